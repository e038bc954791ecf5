"""``Dashboard``: a run on the whole terminal. It trains in a thread of its own while the screen is the main thread's.

The training thread only leaves numbers here, and never waits for the screen; the screen looks at them a few times a second, and
asks for a stop or a checkpoint as any other thread may. So a run has the same bits with and without it.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

import click

from firebrick.core.errors import ConfigError
from firebrick.train import Epoch, Learner
from firebrick.train.checkpoint import NAME

_LOOKED_AT_S = 0.2
_POINTS = 4000  # of a curve; when there are more, every second one goes


@dataclass
class Seen:
    """What the training thread said last; the screen reads it.

    Attributes:
        epoch, epochs: The running epoch, from 1, and how many there are in all.
        batches, done: Batches of the epoch, 0 if that is not known, and those that are done.
        values: Loss and what else is counted, over the epoch so far.
        speed: Samples a second.
        rows: The finished epochs.
        curves: Points (epochs done, value) by the names of ``values``.
        lines: What was logged.
        began, epoch_began: When, by ``perf_counter``.
        first: Epochs done, as a fraction, when the run began here.
        epoch_first: Batches done when the epoch began here.
    """

    epoch: int = 0
    epochs: int = 0
    batches: int = 0
    done: int = 0
    values: Mapping[str, float | None] = field(default_factory=dict)
    speed: float = 0.0
    rows: list[Epoch] = field(default_factory=list)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    began: float = field(default_factory=perf_counter)
    epoch_began: float = field(default_factory=perf_counter)
    first: float | None = None
    epoch_first: int = 0

    @property
    def progress(self) -> float:
        """Epochs done, as a fraction."""
        share = min(1.0, self.done / self.batches) if self.batches else self.done / (self.done + 1)
        return max(0, self.epoch - 1) + share


class Dashboard:
    """What a ``Learner`` tells (its ``progress``), and the thread that it runs in.

    Args:
        title: What is trained.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.seen = Seen()
        self.learner: Learner | None = None
        self._looked = 0.0
        self._last = 0

    # what the learner calls

    def begin(self, epoch: int, epochs: int, batches: int | None, done: int) -> None:
        """An epoch starts."""
        seen = self.seen
        seen.epoch, seen.epochs, seen.done = epoch, epochs, done
        seen.batches = self._last if batches is None else batches  # a stream has as many as last time, most likely
        seen.epoch_began, seen.epoch_first = perf_counter(), done
        if seen.first is None:
            seen.first, seen.began = seen.progress, perf_counter()

    def due(self) -> bool:
        """Five times a second."""
        return perf_counter() - self._looked >= _LOOKED_AT_S

    def step(self, batch: int, values: Mapping[str, float | None], samples_per_second: float) -> None:
        """Leave what is known now."""
        self._looked = perf_counter()
        seen = self.seen
        seen.done, seen.values, seen.speed = batch, dict(values), samples_per_second
        for name, value in values.items():
            if value is not None:
                points = seen.curves.setdefault(name, [])
                points.append((seen.progress, value))
                if len(points) > _POINTS:
                    del points[:-1:2]

    def end(self, row: Epoch, epochs: int) -> None:
        """An epoch is over."""
        values = {n: getattr(row, f"train_{n}") for n in ("loss", "accuracy", "mse", "mae")}
        self._last = self.seen.batches = max(self.seen.batches, self.seen.done)
        self.step(self.seen.batches, values, row.samples_per_second)
        self.seen.rows.append(row)
        self.log(row.line(epochs))

    def close(self) -> None:
        """Training is over; the screen closes when its thread ends."""

    def log(self, line: str) -> None:
        """Keep a line of output."""
        self.seen.lines.append(line)

    # running

    def run(self, learner: Learner, fit: Callable[[], Any], **screen: Any) -> Any:
        """Call ``fit`` in a thread, with the screen around it; returns what it returns, and raises what it raises.

        Lines that were logged are printed when the screen is gone. Should the screen fail, training goes on without it.

        Args:
            learner: Made with this dashboard as its ``progress``.
            fit: Trains it.
            **screen: Settings of textual's ``App.run``.
        """
        from firebrick.cli.screen import Screen

        self.learner = learner
        self.seen.rows[:] = learner.history
        outcome: dict[str, Any] = {}

        def work() -> None:
            try:
                outcome["value"] = fit()
            except BaseException as e:  # noqa: BLE001 - raised again in the main thread
                outcome["error"] = e

        thread = Thread(target=copy_context().run, args=(work,), name="training", daemon=True)
        shown, warnings.showwarning = warnings.showwarning, self._warned
        printed = 0
        try:
            with learner.interrupts:  # signals come to the main thread
                thread.start()
                app = Screen(self, thread)
                app.run(**screen)
                if app.given_up:
                    raise KeyboardInterrupt
                printed = self._print(0)
                if thread.is_alive():
                    click.echo("the dashboard failed; training goes on without it", err=True)
                while thread.is_alive():
                    thread.join(1.0)
                    printed = self._print(printed)
        finally:
            warnings.showwarning = shown
            self._print(printed)
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]

    def _print(self, start: int) -> int:
        lines = self.seen.lines[start:]
        for line in lines:
            click.echo(line)
        return start + len(lines)

    def _warned(self, message: Warning | str, *_: Any, **__: Any) -> None:
        self.log(f"warning: {message}")

    # what the screen asks

    @property
    def stopping(self) -> bool:
        """Whether the run ends after the running step."""
        return self.learner is not None and self.learner.interrupts.pending

    @property
    def saved(self) -> float | None:
        """When the newest checkpoint was written, in seconds since 1970; None if there is none."""
        out: Path | None = None if self.learner is None else self.learner.out
        try:
            return None if out is None else (out / NAME / "manifest.json").stat().st_mtime
        except OSError:
            return None


def dashboard_for(title: str) -> Dashboard | None:
    """A dashboard; without a terminal a line says so, and there is none.

    Raises:
        ConfigError: textual is not installed.
    """
    if importlib.util.find_spec("textual") is None:
        raise ConfigError(
            "--dashboard draws with textual", "no such package", "pip install 'firebrick[train]', or leave the option out"
        )
    if sys.stdin.isatty() and sys.stdout.isatty():
        return Dashboard(title)
    click.echo("--dashboard needs a terminal: this run goes on with plain lines", err=True)
    return None
