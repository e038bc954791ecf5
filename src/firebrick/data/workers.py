"""Workers that make batches ahead of use: threads or processes, whose batches come back in the order they were asked for.

Batch j of an iteration is made by worker j mod workers, which answers in the order it was asked; so the consumer reads each
worker's next answer in turn, and nothing has to be put in order. At most ``prefetch`` batches are asked for and not yet
read. A worker that fails answers with a ``Failed``; a process that ends without being told is noticed by the closing of its
pipe, at once.

Processes are started by ``forkserver`` (``spawn`` where there is none), so that no lock or thread of the consumer is copied
in the middle of its work. They get the data set once, by pickle, its arrays shared; they end when their pipe closes, hence
also when the consumer is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, redirect_stderr, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import connection, forkserver
from queue import SimpleQueue
from time import monotonic
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from firebrick.data.assembly import PARTS, Assembly, Job, Made, Maker
from firebrick.data.errors import LoaderError, SampleError, WorkerDiedError
from firebrick.data.transport import SHARED_MEMORY, Channel, Memory, Parcel, shortage

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
MOST = 256  # workers of a loader
MOST_AHEAD = 64  # batches asked of one worker: their messages fit into a pipe
_GRACE = 1.0  # seconds for workers to see that their pipes are closed
_SETUP = -1  # slot of the data set


@dataclass(frozen=True, slots=True)
class Failed:
    """A batch that could not be made: the parts of its error, and the traceback where it arose."""

    expected: str
    received: str
    remedy: str
    context: dict[str, Any]
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """What a worker answers that met ``error``."""
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, SampleError):
            return cls(error.expected, error.received, error.remedy, error.context, trace)
        shown = f"{type(error).__name__}: {error}"
        return cls("a worker makes its batches", shown, "see the worker's traceback below", {}, trace)

    def error(self, who: str, worker: int) -> SampleError:
        """The error to raise in the consumer."""
        made = SampleError(self.expected, f"{self.received}, in {who}", self.remedy, **{**self.context, "worker": worker})
        made.add_note(f"In {who}:\n{self.trace}")
        return made


def _answer(maker: Maker, job: Job) -> Made | Failed:
    try:
        return maker(job)
    except BaseException as e:  # noqa: BLE001 - it is raised in the consumer
        return Failed.of(e)


class _Died(Exception):
    """A worker ended unasked."""

    def __init__(self, worker: ProcessWorker) -> None:
        self.worker = worker


class Worker(Protocol):
    """One worker, as its consumer sees it."""

    number: int

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def send(self, job: Job, slot: int) -> None:
        """Ask for a batch."""
        ...

    def receive(self, peers: Sequence[Any]) -> Made | Failed:
        """Wait for the next answer, or for the end of this worker or one of its peers."""
        ...

    def ready(self) -> bool:
        """Whether ``receive`` would not wait."""
        ...

    def leave(self) -> None:
        """Tell it to end."""
        ...

    def join(self, deadline: float) -> None:
        """Wait until it has; from ``deadline`` on (``time.monotonic``), end it if that can be done."""
        ...


class ThreadWorker:
    """A thread that makes batches; what it reads with must allow several threads at once."""

    def __init__(self, assembly: Assembly, number: int, workers: int) -> None:
        self.number = number
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._answers: SimpleQueue[Made | Failed] = SimpleQueue()
        self._left = threading.Event()
        args = (Maker(assembly, number, workers), self._jobs, self._answers, self._left)
        self._thread = threading.Thread(target=self._serve, args=args, name=f"loader worker {number}", daemon=True)
        self._thread.start()

    @staticmethod
    def _serve(maker: Maker, jobs: SimpleQueue[Any], answers: SimpleQueue[Any], left: threading.Event) -> None:
        while (job := jobs.get()) is not None and not left.is_set():
            answers.put(_answer(maker, job))

    @property
    def name(self) -> str:
        """For messages."""
        return f"thread worker {self.number}"

    def send(self, job: Job, slot: int) -> None:
        """Ask for a batch."""
        self._jobs.put(job)

    def receive(self, peers: Sequence[Any]) -> Made | Failed:
        """Wait for the next answer."""
        return self._answers.get()

    def ready(self) -> bool:
        """Whether ``receive`` would not wait."""
        return not self._answers.empty()

    def leave(self) -> None:
        """Tell it to end after the batch it is at."""
        self._left.set()
        self._jobs.put(None)  # type: ignore[arg-type]

    def join(self, deadline: float) -> None:
        """Wait until it has ended, but not beyond the deadline: a thread cannot be ended, and goes after its batch."""
        self._thread.join(max(deadline - monotonic(), 0.0))


class ProcessWorker:
    """A process that makes batches."""

    def __init__(self, parcel: Parcel, memory: Memory | None, number: int, workers: int) -> None:
        context: Any = multiprocessing.get_context(METHOD)
        self.number = number
        mine, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(theirs, number, workers, SHARED_MEMORY), name=f"loader worker {number}", daemon=True
        )
        self.channel = Channel(mine, SHARED_MEMORY)
        try:
            with redirect_stderr(sys.__stderr__) if _has_no_file(sys.stderr) else nullcontext():
                self.process.start()
            theirs.close()
            with suppress(OSError):  # it has ended already, which the first answer says
                self.channel.post(parcel, _SETUP, memory)
        except BaseException:
            self.channel.close()
            raise

    @property
    def name(self) -> str:
        """For messages."""
        return f"process worker {self.number} (pid {self.process.pid})"

    def send(self, job: Job, slot: int) -> None:
        """Ask for a batch, to be answered in a slot."""
        with suppress(OSError):  # it has ended, which the next answer says
            self.channel.send((slot, job), slot)

    def receive(self, peers: Sequence[ProcessWorker]) -> Made | Failed:
        """Wait for the next answer, or for the end of this worker or one of its peers."""
        if not self.channel.connection.poll():
            ended = connection.wait([self.channel.connection, *(p.process.sentinel for p in peers)])
            if self.channel.connection not in ended:
                raise _Died(next(p for p in peers if p.process.sentinel in ended))
        try:
            answer: Made | Failed = self.channel.receive()
            return answer
        except (EOFError, OSError):
            raise _Died(self) from None

    def ready(self) -> bool:
        """Whether ``receive`` would not wait."""
        with suppress(OSError):
            return self.channel.connection.poll()
        return False

    def leave(self) -> None:
        """Tell it to end, by closing its pipe."""
        self.channel.close()

    def join(self, deadline: float) -> None:
        """Wait until it has ended; from the deadline on, end it."""
        self.process.join(max(deadline - monotonic(), 0.0))
        if self.process.exitcode is None:
            self.process.terminate()
            self.process.join(_GRACE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def serve(end: connection.Connection, number: int, workers: int, shared: bool) -> None:
    """What a worker process does until its pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the consumer's, which closes the pipe
    threading.Thread(target=_follow, daemon=True).start()
    channel = Channel(end, shared)
    with threadpool_limits(1), suppress(EOFError, OSError):
        failed = None
        try:
            maker = Maker(channel.receive(), number, workers)
        except BaseException as e:  # noqa: BLE001 - it is raised in the consumer; a pipe that is closed raises again below
            remedy = (
                "define the data set's class and what the loader calls at the top of a module that workers can import (a "
                'script starts its work under `if __name__ == "__main__":`), or pass worker="thread"'
            )
            trace = "".join(traceback.format_exception(e))
            received = f"unpickling it raised {type(e).__name__}: {e}"
            failed = Failed("a worker process can unpickle the data set and transforms", received, remedy, {}, trace)
        while True:
            slot, job = channel.receive()
            answer = failed or _answer(maker, job.owned())
            try:
                channel.send(answer, slot)
            except BrokenPipeError:
                raise
            except Exception as e:  # noqa: BLE001 - it is raised in the consumer
                channel.send(Failed.of(e), slot)


def _follow() -> None:
    """End this process when its consumer has ended, also in the middle of a sample."""
    consumer = multiprocessing.parent_process()
    if consumer is not None:
        connection.wait([consumer.sentinel])
        os._exit(1)


class Here:
    """No workers: the consumer makes each batch when it is asked for."""

    def __init__(self, assembly: Assembly) -> None:
        self._maker = Maker(assembly)
        self._jobs: Iterator[Job] = iter(())

    def begin(self, jobs: Iterator[Job]) -> None:
        """Make these batches from now on."""
        self._jobs = jobs

    def take(self) -> tuple[Job, Made | SampleError] | None:
        """The next batch; None after the last."""
        job = next(self._jobs, None)
        return None if job is None else (job, self._maker(job))

    def ready(self) -> bool:
        """Whether the next batch is there."""
        return False

    def close(self) -> None:
        """Nothing is left behind."""


class Pool:
    """Some workers of one kind.

    Args:
        assembly: What they do.
        workers: How many, from 1.
        kind: ``"thread"`` or ``"process"``.
        prefetch: Batches asked for and not yet read.

    Raises:
        LoaderError: Processes cannot be sent the assembly, or the system has no room for them.
    """

    def __init__(self, assembly: Assembly, workers: int, kind: str, prefetch: int) -> None:
        self.assembly = assembly
        self._ahead = max(prefetch, workers)
        if kind == "process" and not SHARED_MEMORY:
            self._ahead = workers  # one each: neither end of a pipe then waits for the other to read
        self._slots = -(-self._ahead // workers)
        self._jobs: Iterator[Job] = iter(())
        self._asked: deque[tuple[Worker, Job]] = deque()
        self._turn = 0
        self._workers: list[Worker] = []
        self._end = weakref.finalize(self, _end, self._workers, os.getpid())  # also at the interpreter's exit
        try:
            self._start(workers, kind)
        except BaseException as e:
            self.close()
            if isinstance(e, OSError):
                raise shortage(f"starting {workers} workers raised {e}") from e
            raise

    def _start(self, workers: int, kind: str) -> None:
        if kind == "thread":
            for i in range(workers):
                self._workers.append(ThreadWorker(self.assembly, i, workers))
            return
        parcel = _packed(self.assembly)
        memory = Memory.of(parcel.size) if parcel.size else None
        try:
            if memory is not None:
                parcel.write(memory)
            _preload()
            for i in range(workers):
                self._workers.append(ProcessWorker(parcel, memory, i, workers))
        finally:
            if memory is not None:
                memory.close_descriptor()

    def begin(self, jobs: Iterator[Job]) -> None:
        """Make these batches from now on."""
        self._jobs = iter(())
        while self.take() is not None:
            pass  # asked for beyond the end of a stream
        self._jobs, self._turn = jobs, 0

    def take(self) -> tuple[Job, Made | SampleError] | None:
        """The next batch, or the error in its place; None after the last. Its arrays hold until the next call.

        Raises:
            WorkerDiedError: A worker ended unasked.
        """
        for job in islice(self._jobs, self._ahead - len(self._asked)):
            worker = self._workers[self._turn % len(self._workers)]
            worker.send(job, self._turn // len(self._workers) % self._slots)
            self._asked.append((worker, job))
            self._turn += 1
        if not self._asked:
            return None
        worker, job = self._asked[0]
        try:
            answer = worker.receive(self._workers)
        except _Died as e:
            raise self._death(e.worker) from None
        self._asked.popleft()
        return job, answer.error(worker.name, worker.number) if isinstance(answer, Failed) else answer

    def ready(self) -> bool:
        """Whether the next batch is there."""
        return bool(self._asked) and self._asked[0][0].ready()

    def close(self) -> None:
        """End the workers and wait until they have; calling it again does nothing."""
        self._end()

    def _death(self, worker: ProcessWorker) -> WorkerDiedError:
        worker.process.join(_GRACE)
        code = worker.process.exitcode
        killer = next((s.name for s in signal.Signals if s == -(code or 0)), "")
        how = f"ended by {killer}" if killer else f"ended with exit code {code}"
        had = [f"batch {j.number} (samples {', '.join(map(str, j.indices.tolist()))})" for w, j in self._asked if w is worker]
        return WorkerDiedError(
            f'the workers of loader "{self.assembly.name}" live until they are told to end',
            f"{worker.name}, {how} with {'; '.join(had) or 'no batch to make'}",
            "SIGKILL often means too little memory: take fewer workers or smaller batches; SIGSEGV a fault in native code that "
            'a sample calls; exit code 1 a script that does not guard its work by `if __name__ == "__main__":`',
            worker=worker.number,
            exit_code=code if code is not None else 0,
        )


def _end(workers: list[Worker], consumer: int) -> None:
    if os.getpid() != consumer:
        return  # in a fork of the consumer, whose workers they are not
    for worker in workers:
        worker.leave()
    deadline = monotonic() + _GRACE
    for worker in workers:
        worker.join(deadline)
    workers.clear()


def _has_no_file(stream: Any) -> bool:
    """Whether a stream is one that a full-screen program puts in the place of stderr, which processes cannot be given."""
    with suppress(Exception):
        return bool(stream.fileno() < 0)
    return False


def _packed(assembly: Assembly) -> Parcel:
    try:
        return Parcel(assembly, SHARED_MEMORY)
    except Exception as e:  # pickling calls whatever the data set defines
        culprit = next((p for p in PARTS if not _pickles(getattr(assembly, p))), "dataset")
        raise LoaderError(
            f'process workers are sent what loader "{assembly.name}" reads and calls, by pickle',
            f"{culprit}, of which pickling raised {type(e).__name__}: {e}",
            "name functions and classes at the top of a module (no lambdas, nothing local), open files and locks in the first "
            '__getitem__, or pass worker="thread"',
        ) from e


def _pickles(part: Any) -> bool:
    try:
        pickle.dumps(part)
    except Exception:  # noqa: BLE001 - see above
        return False
    return True


def _preload() -> None:
    """Let the fork server import this once for all workers, unless the program chose what it imports."""
    server = getattr(forkserver, "_forkserver", None)
    if METHOD == "forkserver" and getattr(server, "_preload_modules", None) == ["__main__"]:
        multiprocessing.get_context(METHOD).set_forkserver_preload(["__main__", __name__])
