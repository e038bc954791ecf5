"""Work of NumPy's functions, which let other threads run, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from firebrick.core.sharing import cores

_P = TypeVar("_P")


def in_threads(work: Callable[[_P], object], parts: Sequence[_P], most: int) -> None:
    """Call ``work`` with each part, on as many threads as this call may use cores, and at most ``most``.

    A thread is started for each call, which takes about 50 µs: threads that wait for work would not be there after a fork.
    The calling thread works too. If parts fail, the error of one of them is raised when all threads have ended.
    """
    left = iter(parts)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            for part in left:  # the next part is taken by one thread only: taking it is one step of the interpreter
                work(part)
        except BaseException as e:  # noqa: BLE001 - raised below
            failed.append(e)

    count = min(len(parts), most, cores())
    others = [Thread(target=copy_context().run, args=(run,), name="firebrick-numpy") for _ in range(count - 1)]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()
    if failed:
        raise failed[0]
