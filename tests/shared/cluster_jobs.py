"""Training functions for the tests of clusters, and nodes that are threads of the test with real workers' processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import firebrick as fb
from firebrick.train import TrainingInterrupted, Worker, save_checkpoint
from firebrick.train.claim import claimed
from firebrick.train.cluster.supervisor import Lost
from firebrick.train.cluster.worker import Agent
from firebrick.train.interrupt import Interrupts

SECONDS = 60.0


def until(holds: Callable[[], Any]) -> None:
    """Wait for what must come."""
    ends = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < ends, "it does not come"
        time.sleep(0.02)


def when(file: Path, act: Callable[[], Any]) -> threading.Thread:
    """Do something as soon as a file is there."""

    def run() -> None:
        until(file.exists)
        act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


class LocalSeat:
    """A place on a node of this process."""

    def __init__(self, node: str, agent: Agent) -> None:
        self.node = self.host = node
        self.address = "127.0.0.1"
        self.agent, self.lost = agent, False
        self._threads = ThreadPoolExecutor(4)

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        return self._threads.submit(self._answer, method, arguments)

    def _answer(self, method: str, arguments: tuple[Any, ...]) -> Any:
        answer = None if self.lost else getattr(self.agent, method)(*arguments)
        if self.lost:
            raise Lost("no answer")
        return answer


class Nodes:
    """A pool of nodes with room for one worker each; two of one name are one node with room for two."""

    pickler = "pickle"

    def __init__(self, *names: str, agents: Callable[[str], Agent] = lambda node: Agent()) -> None:
        self.names, self.agents = list(names), agents
        self.seats: list[LocalSeat] = []

    def room(self) -> int:
        return len(self.names) - len(self.seats)

    def place(self, count: int, seconds: float) -> list[LocalSeat] | None:
        if self.room() < count:
            return None
        self.seats = [LocalSeat(n, self.agents(n)) for n in self.names[:count]]
        return list(self.seats)

    def release(self, seats: Sequence[LocalSeat]) -> None:
        self.seats = []

    def lose(self, name: str) -> None:
        """A node goes, with its agent and the worker's process."""
        self.names.remove(name)
        for seat in self.seats:
            if seat.node == name:
                seat.lost = True
                seat.agent.end()

    def fate(self, seat: LocalSeat) -> str:
        return "its process is gone, and its node lives" if seat.node in self.names else "its node is gone"

    def needs(self) -> str:
        return "1 CPU"

    def describe(self) -> str:
        return f"{len(self.names)} nodes; {', '.join(self.names)}"


# training functions


def told(worker: Worker) -> tuple[Worker, dict[str, str]]:
    """What a worker knows."""
    return worker, dict(os.environ)


def has_empty_input(worker: Worker) -> bool:
    """Whether standard input is the null device, so that a program that reads it goes on."""
    return os.path.sameopenfile(0, os.open(os.devnull, os.O_RDONLY))


def summed(worker: Worker) -> list[float]:
    """The sum of the ranks, by gloo."""
    out: list[float] = fb.distributed.init(timeout=SECONDS).all_reduce(fb.full(1, float(worker.rank))).tolist()
    return out


def dies(worker: Worker, times: int) -> int:
    """The last rank dies, so many times."""
    (worker.out / "left").touch()
    if worker.rank == worker.size - 1 and worker.attempt < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(list(worker.out.iterdir()))


def progresses(worker: Worker, times: int) -> tuple[int, bool]:
    """Dies so many times, each time after a further checkpoint."""
    if worker.attempt < times:
        save_checkpoint(worker.out / "checkpoint", model={}, optimizer={}, state={"step": worker.attempt}, config={})
        os.kill(os.getpid(), signal.SIGKILL)
    return worker.attempt, worker.resumes


def raises(worker: Worker) -> None:
    """Rank 1 raises what no restart can mend; the others find out that it left."""
    if worker.rank == 1:
        raise KeyError("no such column")
    raise fb.CollectiveTimeoutError("all_reduce(sum) needs every rank of the group", "missing rank 1")


def hangs(worker: Worker) -> int:
    """Once, rank 0 is cut off, and rank 1 finds nothing out."""
    if worker.attempt:
        return worker.attempt
    if worker.rank == 0:
        raise fb.CollectiveTimeoutError("all_reduce(sum) needs every rank of the group", "missing rank 1")
    threading.Event().wait()
    raise AssertionError


def waits(worker: Worker, times: int) -> int:
    """So many times, says that it runs and goes on until it is asked to stop; then returns the number of workers."""
    if worker.attempt < times:
        with Interrupts() as interrupts:
            (worker.out / f"running-{worker.rank}").touch()
            until(lambda: interrupts.pending)
            raise TrainingInterrupted(worker.out / "checkpoint", 1, 5)
    return worker.size


def holds(worker: Worker) -> None:
    """Keeps the run directory to itself, for ever."""
    with claimed(worker.out):
        (worker.out / "running-0").touch()
        threading.Event().wait()
