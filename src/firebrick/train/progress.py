"""What a person sees while training: a live bar in a terminal, one plain line an epoch everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol

from firebrick.train.history import Epoch

_REFRESH_S = 0.1


class Progress(Protocol):
    """What ``Learner`` tells whoever watches."""

    def begin(self, epoch: int, epochs: int, batches: int | None, done: int) -> None:
        """An epoch starts (numbered from 1), ``done`` of its batches done already; None of a stream without a length."""
        ...

    def due(self) -> bool:
        """Whether ``step`` would show something now; asked after each step, so that numbers nobody sees are not computed."""
        ...

    def step(self, batch: int, values: Mapping[str, float | None], samples_per_second: float) -> None:
        """``batch`` batches are done; ``values`` are the loss and what else is counted, None where it is not."""
        ...

    def end(self, row: Epoch, epochs: int) -> None:
        """An epoch is over."""
        ...

    def close(self) -> None:
        """Training is over, or was stopped."""
        ...


class Lines:
    """One line an epoch.

    Args:
        log: Where a line goes; None for nowhere.
    """

    def __init__(self, log: Callable[[str], Any] | None) -> None:
        self._log = log

    def begin(self, epoch: int, epochs: int, batches: int | None, done: int) -> None:
        """Nothing to show yet."""

    def due(self) -> bool:
        """Never: only whole epochs are shown."""
        return False

    def step(self, batch: int, values: Mapping[str, float | None], samples_per_second: float) -> None:
        """Nothing to show."""

    def end(self, row: Epoch, epochs: int) -> None:
        """The epoch's line."""
        if self._log is not None:
            self._log(row.line(epochs))

    def close(self) -> None:
        """Nothing is open."""


class Bar:
    """A live bar below the lines of past epochs: epoch, batch, loss, accuracy or errors, samples a second, time left."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Live

        self._shown = 0.0
        self._live = Live(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("[bold]loss {task.fields[loss]}[/]{task.fields[others]}"),
            TextColumn("[dim]{task.fields[speed]}[/]"),
            TimeRemainingColumn(),
            transient=True,
            expand=True,
            auto_refresh=False,
        )
        self._task = self._live.add_task("", total=None, epoch="", loss="–", others="", speed="")

    def begin(self, epoch: int, epochs: int, batches: int | None, done: int) -> None:
        """A fresh bar."""
        self._live.start()
        self._live.remove_task(self._task)
        self._task = self._live.add_task(
            "", total=batches, completed=done, epoch=f"{epoch}/{epochs}", loss="–", others="", speed=""
        )  # fmt: skip
        self._live.refresh()

    def due(self) -> bool:
        """Ten times a second."""
        return perf_counter() - self._shown >= _REFRESH_S

    def step(self, batch: int, values: Mapping[str, float | None], samples_per_second: float) -> None:
        """Move the bar."""
        self._shown = perf_counter()
        loss = values["loss"]
        others = "".join(f"  {n} {v:.4f}" for n, v in values.items() if v is not None and n != "loss")
        self._live.update(
            self._task, completed=batch, loss=f"{loss:.4f}", others=others, speed=f"{samples_per_second:,.0f} samples/s"
        )  # fmt: skip
        self._live.refresh()

    def end(self, row: Epoch, epochs: int) -> None:
        """The epoch's line, above the bar; the terminal wraps it, should it be narrow."""
        self._live.console.print(row.line(epochs), soft_wrap=True, markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        self._live.stop()


def progress_for(log: Callable[[str], Any] | None) -> Progress:
    """A bar where lines are printed to a terminal, else lines."""
    return Bar() if log is print and sys.stdout.isatty() else Lines(log)
