"""``Supervisor``: starts workers wherever there is room, watches them, and starts them again after a loss.

An attempt is a group of workers from its start to its end. When one of them is lost, the group is of no more use: the others
are given a moment to find that out by themselves, which writes what they have in hand, and are then ended. The next attempt
takes as many workers as there is room for by then; they go on from the last checkpoint.

A worker is reached through a ``Seat``, and seats come from a ``Pool``: nothing here knows Ray.
"""

from __future__ import annotations

import math
import os
import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from firebrick.train.cluster.shared import MARK, PATIENCE, Standing
from firebrick.train.cluster.worker import Ending, Job, Place, Worker
from firebrick.train.errors import TrainingError, TrainingInterrupted, WorkerError

SETTLE = 5.0
"""Seconds in which only the largest number of workers will do, since nodes come, and places become free, one by one."""
TRY = 10.0
"""Seconds to wait for one placement, before what there is room for is counted again."""
LONGEST_BACKOFF = 60.0


class Lost(Exception):
    """An agent answers no more: its process or its node is gone. The message says what more is known, if anything is."""


class Seat(Protocol):
    """A worker's place on a node, with an agent that answers.

    Attributes:
        node: What messages call the node.
        address: Where it is reached.
        host: Equal for seats on one node.
    """

    node: str
    address: str
    host: str

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the agent; the future raises what that raises, or ``Lost``."""
        ...


class Pool(Protocol):
    """Where workers are placed."""

    pickler: str

    def room(self) -> int:
        """How many workers fit on what is free."""
        ...

    def place(self, count: int, seconds: float) -> list[Seat] | None:
        """Seats for so many workers, in the order of their nodes; None if that takes too long."""
        ...

    def release(self, seats: Sequence[Seat]) -> None:
        """Give back the seats of an attempt."""
        ...

    def fate(self, seat: Seat) -> str:
        """What became of a seat whose agent is lost."""
        ...

    def needs(self) -> str:
        """What a worker needs, for messages."""
        ...

    def describe(self) -> str:
        """What there is, for messages."""
        ...


Asked = Literal["", "to grow", "to stop"]


@dataclass
class Attempt:
    """One group of workers.

    Attributes:
        seats: By rank.
        jobs: What each runs.
        endings: How each ended, so far.
        asked: What for they were all asked to save and stop.
    """

    seats: list[Seat]
    jobs: list[Job]
    endings: dict[int, Ending] = field(default_factory=dict)
    asked: Asked = ""

    def who(self, rank: int) -> str:
        """A worker in words."""
        return f"rank {rank} of {len(self.seats)} on {self.seats[rank].node}"

    def failed(self) -> bool:
        """Whether some worker ended neither by its function's end nor as it was asked to."""
        return any(e.how not in ("returned", "stopped") for e in self.endings.values())

    def stop(self, asked: Asked) -> None:
        """Ask all workers to save and stop."""
        self.asked = asked
        for seat in self.seats:
            seat.call("stop")


@dataclass
class Supervisor:
    """Runs a training function on the workers of a pool until it has returned on all of them.

    Args:
        pool: Where workers are placed.
        fewest: Workers there must be.
        most: Workers there may be.
        max_restarts: Restarts after a loss, in a row, without a newer checkpoint between them.
        patience: Seconds to wait for the resources of the fewest workers.
        backoff: Seconds before the first restart in a row; before each further one twice as many.
        grace: Seconds that the others get to end by themselves when one worker failed.
        grow_every: Seconds between looks for room for more workers than there are.
        variables: Environment of the workers.
        log: Takes each line of output.
    """

    pool: Pool
    fewest: int
    most: int
    max_restarts: int
    patience: float
    backoff: float
    grace: float
    grow_every: float
    variables: dict[str, str]
    log: Callable[[str], Any]

    def run(self, function: bytes, out: Path) -> list[Any]:
        """What the function returned, by rank.

        Args:
            function: Pickled.
            out: The run directory.

        Raises:
            TrainingError: There is too little room, or the workers do not see one run directory.
            WorkerError: The function raised, or workers were lost repeatedly.
            TrainingInterrupted: Ctrl-C; the workers saved.
        """
        number = losses = 0
        first: Standing | None = None
        before: Standing | None = None
        reason = ""
        while True:
            seats = self._place()
            try:
                places, found = self._open(seats, out, number, own=first is not None and first.empty)
                if before is not None and found.checkpoints != before.checkpoints:
                    losses = min(losses, 1)
                first, before = first or found, found
                if losses > self.max_restarts:
                    raise self._given_up(losses, reason)
                workers = [Worker(r, len(seats), s.node, out, number, bool(found.checkpoints)) for r, s in enumerate(seats)]
                attempt = Attempt(seats, self._jobs(function, seats, places, workers))
                self._say(attempt)
                self._watch(attempt)
                if (values := self._values(attempt)) is not None:
                    return values
                reason = self._reason(attempt)
            except Lost as e:  # before they ran
                reason = str(e)
                if losses >= self.max_restarts:
                    raise self._given_up(losses + 1, reason) from None
            finally:
                self._end(seats)
            number += 1
            if not reason:
                self.log("there is room for more workers: all were asked to save, and start again")
                continue
            losses += 1
            if self.max_restarts == 0:
                raise self._given_up(losses, reason)
            seconds = min(LONGEST_BACKOFF, self.backoff * 2 ** (losses - 1))
            self.log(f"{reason}; all start again from the last checkpoint in {seconds:g} s")
            time.sleep(seconds)

    def _given_up(self, losses: int, reason: str) -> WorkerError:
        return WorkerError(
            f"workers that are lost leave a newer checkpoint within {self.max_restarts} restarts",
            f"{losses} losses in a row; the last one: {reason}",
            "look at the output of that worker; give workers more memory, or raise max_restarts",
        )

    # the beginning of an attempt

    def _place(self) -> list[Seat]:
        """Seats for as many workers as there is room for.

        Raises:
            TrainingError: There is no room for the fewest.
        """
        begun, told = time.monotonic(), False
        while True:
            waited, room = time.monotonic() - begun, self.pool.room()
            settled = waited >= min(SETTLE, self.patience)
            count = max(self.fewest, min(room, self.most))  # even without room: a cluster may grow when it is asked to
            if (settled or room >= self.most) and (seats := self.pool.place(count, min(TRY, self.patience))):
                return seats
            if time.monotonic() - begun >= self.patience:
                raise TrainingError(
                    f"there is room for at least {self.fewest} workers of {self.pool.needs()} each",
                    f"room for {room} after {self.patience:g} s: {self.pool.describe()}",
                    "start more nodes, end what else runs there, or ask for fewer workers or less for each",
                )
            if settled and not told:
                told = True
                self.log(f"waiting for {self.fewest} workers of {self.pool.needs()} each: {self.pool.describe()}")
            time.sleep(0.2)

    def _open(self, seats: Sequence[Seat], out: Path, number: int, *, own: bool) -> tuple[list[Place], Standing]:
        """Make sure that all workers have the same Firebrick and see the same run directory; returns what it holds."""
        places: list[Place] = self._all(seats, "place")
        for seat, place in zip(seats, places, strict=True):
            if place.version != places[0].version:
                raise TrainingError(
                    "all nodes have the same version of Firebrick",
                    f"{places[0].version} on {seats[0].node}, {place.version} on {seat.node}",
                    "install the same one everywhere",
                )
        mark = f"{MARK}{uuid.uuid4().hex}"
        found: Standing = self._all(seats[:1], "take_over", out, mark, number > 0, own)[0]
        try:
            for seat, wrong in zip(seats[1:], self._all(seats[1:], "find", out, mark, found), strict=True):
                if wrong:
                    raise TrainingError(
                        "all workers see one run directory, on a file system that their nodes share",
                        f"{out} is made on {seats[0].node}; on {seat.node} there is {wrong}",
                        "name a directory that is mounted at the same path on every node, such as one on NFS",
                    )
        finally:
            self._all(seats[:1], "take_away", out, mark)
        return places, found

    def _all(self, seats: Sequence[Seat], method: str, *arguments: Any) -> list[Any]:
        """What a method returns on several agents."""
        answers = [(seat, seat.call(method, *arguments)) for seat in seats]
        out = []
        for seat, answer in answers:
            try:
                out.append(answer.result())
            except Lost as e:
                raise Lost(f"before the function ran, on {seat.node}: {self._fate(seat, str(e))}") from e
        return out

    def _jobs(self, function: bytes, seats: Sequence[Seat], places: Sequence[Place], workers: Sequence[Worker]) -> list[Job]:
        """What each worker runs, with the variables that ``torchrun`` would set."""
        hosts = list(dict.fromkeys(seat.host for seat in seats))
        jobs = []
        for seat, worker in zip(seats, workers, strict=True):
            there = [r for r, s in enumerate(seats) if s.host == seat.host]
            own = {
                "RANK": str(worker.rank),
                "WORLD_SIZE": str(worker.size),
                "LOCAL_RANK": str(there.index(worker.rank)),
                "LOCAL_WORLD_SIZE": str(len(there)),
                "GROUP_RANK": str(hosts.index(seat.host)),
                "MASTER_ADDR": seats[0].address,
                "MASTER_PORT": str(places[0].port),
            }
            if gpus := dict.fromkeys(g for r in there for g in places[r].gpus.split(",") if g):
                own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)  # those of all workers of the node: LOCAL_RANK chooses
            jobs.append(Job(function, worker, {**self.variables, **own}, self.pool.pickler))
        return jobs

    # its course

    def _watch(self, attempt: Attempt) -> None:
        """Wait until all workers have ended, or one failed and the others had their time."""
        running = {seat.call("run", attempt.jobs[rank]): rank for rank, seat in enumerate(attempt.seats)}
        growing = self.grow_every if len(attempt.seats) < self.most else math.inf
        deadline, look = math.inf, time.monotonic() + growing
        while running and time.monotonic() < deadline:
            soon = min(deadline, look) - time.monotonic()
            try:
                done, _ = wait(running, None if soon == math.inf else max(0.0, soon), FIRST_COMPLETED)
            except KeyboardInterrupt:
                if attempt.asked == "to stop":
                    raise
                self.log("stopping: the workers save what they have; a second Ctrl-C does not wait for them")
                attempt.stop("to stop")
                continue
            for answer in done:
                try:
                    ending = answer.result()
                except Lost as e:
                    ending = Ending("lost", str(e))
                attempt.endings[running.pop(answer)] = ending
            if deadline == math.inf and attempt.failed():
                deadline = time.monotonic() + self.grace
            if time.monotonic() >= look:
                look = time.monotonic() + growing
                if not attempt.asked and deadline == math.inf and self.pool.room() > 0:
                    attempt.stop("to grow")

    def _end(self, seats: Sequence[Seat]) -> None:
        """End what still runs, wait until it is gone, and give back the seats."""
        try:
            wait([seat.call("end") for seat in seats], PATIENCE)
        finally:
            self.pool.release(seats)

    def _say(self, attempt: Attempt) -> None:
        worker = attempt.jobs[0].worker
        nodes = ", ".join(dict.fromkeys(seat.node for seat in attempt.seats))
        begins = "going on from the last checkpoint" if worker.resumes else "from the beginning"
        self.log(f"attempt {worker.attempt + 1}: {worker.size} workers on {nodes}, {begins}")

    # its end

    def _values(self, attempt: Attempt) -> list[Any] | None:
        """What the function returned on all workers; None if they are to start again.

        Raises:
            WorkerError: It raised.
            TrainingInterrupted: It was stopped.
        """
        endings = sorted(attempt.endings.items())
        for rank, e in endings:
            if e.how == "raised":
                raise self._error(attempt.who(rank), e, rank)
        if len(endings) == len(attempt.seats) and all(e.how == "returned" for _, e in endings):
            return [pickle.loads(e.value) for _, e in endings]
        stopped = [e for _, e in endings if e.how == "stopped"]
        if attempt.asked == "to stop" or (stopped and not attempt.asked and not attempt.failed()):
            for e in stopped:
                if e.value:
                    raise TrainingInterrupted(*pickle.loads(e.value))
            raise KeyboardInterrupt
        return None

    def _error(self, who: str, ending: Ending, rank: int) -> WorkerError:
        """The error that tells what a function raised."""
        error = WorkerError(
            "the training function does not raise",
            f"{ending.text}, on {who}",
            "mend it and run it again with the same run directory: it goes on from the last checkpoint",
            rank=rank,
            traceback=ending.trace,
        )
        error.add_note(f"\nOn {who}:\n{ending.trace}")
        with suppress(ImportError, AttributeError):  # of a class that is not here
            error.__cause__ = pickle.loads(ending.value) if ending.value else None
        return error

    def _fate(self, seat: Seat, why: str) -> str:
        return f"{self.pool.fate(seat)}{why and f' ({why})'}"

    def _reason(self, attempt: Attempt) -> str:
        """Who was lost, in words: what died, else what was cut off. Nothing, if all were asked to start again."""
        ended = sorted(attempt.endings.items())
        lost = [(rank, self._fate(attempt.seats[rank], e.text)) for rank, e in ended if e.how == "lost"]
        if attempt.asked and not lost:  # what does not know how to stop was ended
            return ""
        died = [(rank, e.text) for rank, e in ended if e.how == "died"]
        said = lost + died or [(rank, e.text) for rank, e in ended if e.how == "cut off"]
        return "; ".join(f"{attempt.who(rank)}: {what}" for rank, what in said)


def forwarded() -> dict[str, str]:
    """The settings of this process that its workers take over: all but the place for compiled code, which is its host's."""
    return {n: v for n, v in os.environ.items() if n.startswith("FIREBRICK_") and n != "FIREBRICK_CACHE_DIR"}
