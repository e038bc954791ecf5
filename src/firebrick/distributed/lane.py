"""``Lane``: one thread a group that runs its collective operations one after the other, in the order they were called.

The order is what ranks agree on, so it must not depend on timing; a thread of its own lets the caller compute meanwhile.
``Work`` is the caller's end of one operation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Job = Callable[[], Any]


class Work(Generic[T]):
    """A collective operation that was started and may still run.

    Args:
        finish: Makes the result from what came over the wire, on the thread that waits for it first.

    Example:
        >>> import firebrick as fb
        >>> with fb.distributed.Group() as group:
        ...     work = group.all_reduce(fb.ones(2), wait=False)
        ...     work.wait().tolist()
        [1.0, 1.0]
    """

    def __init__(self, finish: Callable[[Any], T]) -> None:
        self._finish: Callable[[Any], T] | None = finish
        self._ended = threading.Event()
        self._taking = threading.Lock()
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether ``wait`` returns immediately."""
        return self._ended.is_set()

    def wait(self) -> T:
        """The result, as soon as it is there; the same one each time.

        Raises:
            CollectiveTimeoutError: The group's timeout passed, or a rank is gone; the message names it.
            CollectiveMismatchError: The ranks called different operations, or gave operands that do not match.
        """
        self._ended.wait()
        if self._error is not None:
            raise self._error
        with self._taking:
            if self._finish is not None:
                self._value, self._finish = self._finish(self._value), None
        result: T = self._value
        return result

    def run(self, job: Job) -> None:
        """Do the work, on the lane's thread; what goes wrong is for the one who waits.

        Args:
            job: Function without arguments.
        """
        try:
            self._value = job()
        except BaseException as e:  # noqa: BLE001 - raised again where the result is waited for
            self._error = e
        self._ended.set()


class Lane:
    """Runs jobs on one thread, first come, first served."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[tuple[Job, Work[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, job: Job, work: Work[T]) -> Work[T]:
        """Add a job; returns ``work``, through which its result comes."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((job, work))
        return work

    def _serve(self) -> None:
        while (entry := self._jobs.get()) is not None:
            entry[1].run(entry[0])

    def close(self, seconds: float) -> bool:
        """End the thread after what is queued; returns whether it ended within ``seconds``."""
        if self._thread is None:
            return True
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()
