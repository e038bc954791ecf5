"""``RunDirectory``: where a run keeps its checkpoints, the newest, some before it and the best, written in the background.

    checkpoint/                the newest
    earlier/step-00001200/     those before it, of which the youngest are kept
    best/                      that of the epoch that did best
    metrics.csv, …             what is for people

A snapshot is taken between two steps; a thread writes it while training goes on. The next save waits for the one before, and
what went wrong is raised at the next step, at the next save or at the end. The thread is no daemon: a process that ends, by
Ctrl-C too, ends after the checkpoint that is being written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from firebrick.core.settings import whole
from firebrick.train.checkpoint import (
    BEST,
    EARLIER,
    NAME,
    Checkpoint,
    Snapshot,
    earlier_of,
    manifest_of,
    step_of,
    write,
)
from firebrick.train.errors import CheckpointError, TrainingError
from firebrick.train.replacing import check_replaceable


class Background:
    """Runs one job at a time on a thread, and brings back what goes wrong."""

    def __init__(self) -> None:
        self._job: Future[None] | None = None

    def start(self, job: Callable[[], None]) -> None:
        """Run a job when the one before is done; raises what went wrong with that one."""
        self.wait()
        pool = ThreadPoolExecutor(1, "firebrick checkpoint")
        self._job = pool.submit(job)
        pool.shutdown(wait=False)  # the thread ends with the job

    def check(self) -> None:
        """Raise what went wrong since the last time, without waiting."""
        if self._job is not None and self._job.done():
            job, self._job = self._job, None
            job.result()

    def wait(self) -> None:
        """Wait for the running job; raise what went wrong."""
        if self._job is not None:
            wait([self._job])
            self.check()


class RunDirectory:
    """The checkpoints of one run.

    Args:
        path: The directory.
        keep: How many checkpoints stay, the newest among them and the best apart; at least 1.

    Raises:
        ConfigError: ``keep`` is no such number.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = 2) -> None:
        self.path = Path(path)
        self.keep = whole("RunDirectory", "keep", keep, 1)
        self._owned = False
        self._refused: frozenset[Path] = frozenset()  # resolved
        self._background = Background()

    @property
    def latest(self) -> Path:
        """Where the newest checkpoint is."""
        return self.path / NAME

    @property
    def best(self) -> Path:
        """Where the checkpoint of the epoch that did best is."""
        return self.path / BEST

    def open(self) -> None:
        """Make the directory, and make sure that it can be written to, before there is anything to lose.

        Raises:
            TrainingError: It holds something that no ``adopt`` made this run's own, or cannot be written to.
            CheckpointError: A checkpoint that this run replaces has other files beside its own.
        """
        if not self._owned and self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise TrainingError(
                "a new run gets a directory of its own, and overwrites nothing",
                f"{self.path}, which is " + ("not empty" if self.path.is_dir() else "a file"),
                "name another directory, or call learner.resume() first to go on with the run that is there",
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as e:
            raise TrainingError(
                "a run writes checkpoints and metrics into its directory",
                f"{self.path}, where the system refuses to: {e.strerror or e}",
                "make it writable, or name another directory",
            ) from e
        for name in (NAME, BEST):
            check_replaceable(self.path / name, partial=True)
        self._owned = True

    def adopt(self, found: Checkpoint) -> None:
        """Go on with the run here, if that is where a checkpoint came from; damaged ones give way to the next one."""
        here = {f.resolve() for f in (self.path, self.path / EARLIER)}
        self._owned = found.path.parent.resolve() in here
        self._refused = frozenset(f.resolve() for f in found.refused) if self._owned else frozenset()

    def save(self, snapshot: Snapshot, *, best: bool = False) -> None:
        """Begin to write a checkpoint; waits for the one before.

        Args:
            snapshot: What to write.
            best: Whether it is the best one too, which is written first: after a crash in between, its epoch is run again.

        Raises:
            CheckpointError: The one before could not be written.
        """
        self._background.start(lambda: self._write(snapshot, best))

    def check(self) -> None:
        """Raise what went wrong with a checkpoint that was being written, without waiting."""
        self._background.check()

    def wait(self) -> None:
        """Wait until the last checkpoint is written.

        Raises:
            CheckpointError: It could not be.
        """
        self._background.wait()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Wait at the end of a ``with`` block, however it ends."""
        try:
            yield
        except BaseException as e:
            try:
                self.wait()
            except CheckpointError as lost:
                if lost is not e:
                    e.add_note(f"besides, {lost}")
            raise
        self.wait()

    # on the thread

    def _write(self, snapshot: Snapshot, best: bool) -> None:
        if best:
            write(snapshot, self.best)
        aside, gone = self._places(snapshot.step)
        write(snapshot, self.latest, aside=aside, gone=gone)
        self._refused = frozenset()

    def _places(self, step: int | None) -> tuple[Path | None, list[Path]]:
        """Where the newest checkpoint goes, and which ones go altogether when the new one is there.

        What is damaged goes, what is too old, and what is not older than the new one: it is of a course that this run left
        when it went on from an earlier checkpoint.
        """
        spoilt = self.latest.with_name(f"{NAME}.damaged")
        if self.latest.resolve() in self._refused:  # what the run went on from may be its .old, which must stay until then
            return spoilt, [spoilt, *self._surplus(step, self.keep - 1)]
        before = self._step_of_latest()
        if before is None or step is None or before >= step or self.keep == 1:
            return None, [spoilt, *self._surplus(step, self.keep - 1)]
        aside = self.path / EARLIER / f"step-{before:08d}"
        return aside, [spoilt, *(f for f in self._surplus(before, self.keep - 2) if f != aside)]

    def _surplus(self, step: int | None, room: int) -> list[Path]:
        """The earlier checkpoints that do not stay where there is room for some that are older than a step."""
        there = earlier_of(self.path)
        older = [f for f in there if f.resolve() not in self._refused and (step is None or (step_of(f) or 0) < step)]
        return [f for f in there if f not in older[:room]]

    def _step_of_latest(self) -> int | None:
        """The finished steps of the newest checkpoint; None without one, or with one that says nothing of them."""
        try:
            found = manifest_of(self.latest)["progress"].get("step")
        except CheckpointError:
            return None
        return found if isinstance(found, int) else None
