"""The record of a run, one row an epoch, and its files: ``metrics.csv`` for people, ``metrics.jsonl`` for programs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from firebrick.core import html
from firebrick.train.errors import TrainingError

CSV, JSONL = "metrics.csv", "metrics.jsonl"


@dataclass(frozen=True)
class Epoch:
    """The results of an epoch.

    Attributes:
        epoch: Its number, from 1.
        step: Steps done in all when it ended.
        train_loss: Mean loss per sample in training.
        train_accuracy: Share of samples classified correctly in training; None where there are no classes.
        valid_loss: Mean loss per sample of the validation data after the epoch; None without such data.
        valid_accuracy: Share of samples of the validation data classified correctly.
        train_mse, train_mae: Mean squared and absolute error in training; None where no numbers are predicted, or
            the loss takes them for scores of probabilities, as ``nn.BCEWithLogitsLoss`` does.
        valid_mse, valid_mae: The same of the validation data.
        learning_rate: Learning rate of the step after the epoch.
        samples_per_second: Samples trained per second, without validation and checkpoint.
        seconds: Time spent training.
        metrics: Further metrics that are one number, by name with "train_" or "valid_" in front.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> model = fb.nn.Linear(2, 2)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.eye(2, dtype=np.float32), np.arange(2)), 2)
        >>> rows = fb.train.Learner(model, fb.optim.SGD(model, lr=0.1), log=None).fit(loader, epochs=2)
        >>> [(row.epoch, row.step) for row in rows]
        [(1, 1), (2, 2)]
    """

    epoch: int
    step: int
    train_loss: float
    train_accuracy: float | None
    valid_loss: float | None
    valid_accuracy: float | None
    learning_rate: float
    samples_per_second: float
    seconds: float
    train_mse: float | None = None
    train_mae: float | None = None
    valid_mse: float | None = None
    valid_mae: float | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)

    def values(self) -> dict[str, float | None]:
        """All numbers by name, as the files of a run have them."""
        absent = _OF_CLASSES if self.train_mse is not None else _OF_NUMBERS
        return {n: getattr(self, n) for n in NAMES if n not in absent} | dict(self.metrics)

    def value(self, name: str) -> float | None:
        """The number of this name; None if the epoch has none.

        Args:
            name: As in the columns of ``metrics.csv``: "train_loss", "valid_accuracy", …

        Raises:
            TrainingError: No epoch has a number of this name.
        """
        if name in NAMES:
            return cast("float | None", getattr(self, name))
        if name not in self.metrics and not name.startswith("valid_"):
            raise TrainingError("a number of an epoch", repr(name), f"name one of {', '.join(self.values())}")
        return self.metrics.get(name)

    def line(self, epochs: int) -> str:
        """One line of text.

        Args:
            epochs: Number of epochs that ``fit`` was asked for.
        """
        parts = [f"epoch {self.epoch}/{epochs}", f"loss {self.train_loss:.4f}"]
        if self.train_accuracy is not None:
            parts.append(f"accuracy {self.train_accuracy:.4f}")
        if self.valid_loss is not None:
            parts.append(f"valid loss {self.valid_loss:.4f}")
        if self.valid_accuracy is not None:
            parts.append(f"valid accuracy {self.valid_accuracy:.4f}")
        for what in ("train", "valid"):
            for error in ("mse", "mae"):
                value = getattr(self, f"{what}_{error}")
                if value is not None and f"{value:.4f}" != f"{getattr(self, f'{what}_loss'):.4f}":  # which the loss may be
                    parts.append(f"{'valid ' if what == 'valid' else ''}{error} {value:.4f}")
        for name, further in self.metrics.items():
            if further is not None:
                parts.append(f"{name.removeprefix('train_').replace('_', ' ')} {further:.4f}")
        parts += [f"{self.samples_per_second:.0f} samples/s", f"lr {self.learning_rate:.2e}"]
        return "  ".join(parts)

    def better_than(self, other: Epoch | None) -> bool:
        """Whether it did better on the validation data (without such data, in training): accuracy first, then loss.

        Args:
            other: Another epoch, or None.
        """
        return other is None or self._rank() > other._rank()

    def show_to(self, optimizer: Any) -> None:
        """Give the schedules that wait for a metric the one of this epoch: of the validation, if there was one.

        Args:
            optimizer: Optimizer of the learner.
        """
        validated = self.valid_loss is not None
        loss, accuracy = (self.valid_loss, self.valid_accuracy) if validated else (self.train_loss, self.train_accuracy)
        for plateau in optimizer.plateaus() if hasattr(optimizer, "plateaus") else []:
            metric = loss if plateau.mode == "min" else accuracy
            if metric is None:
                raise TrainingError(
                    'reduce_on_plateau(mode="max") follows the accuracy', "targets that are no classes", 'use mode="min"'
                )
            plateau.observe(metric)

    def _rank(self) -> tuple[float, float]:
        accuracy, loss = self.train_accuracy, self.train_loss
        if self.valid_loss is not None:
            accuracy, loss = self.valid_accuracy, self.valid_loss
        return (accuracy or 0.0, -(math.inf if math.isnan(loss) else loss))


NAMES = tuple(f.name for f in fields(Epoch) if f.name != "metrics")
_OF_CLASSES = ("train_accuracy", "valid_accuracy")
_OF_NUMBERS = ("train_mse", "train_mae", "valid_mse", "valid_mae")


def _columns(rows: Sequence[Epoch]) -> tuple[str, ...]:
    """The columns of a run's table: those of classes, or those of predicted numbers, and all further metrics."""
    return tuple(dict.fromkeys([*rows[0].values(), *(n for row in rows for n in row.metrics)]))


class History(list[Epoch]):
    """The rows of a run, as a list that is shown as a table."""

    def __repr__(self) -> str:
        """The table that notebooks show, as text."""
        if not self:
            return "History(no epochs)"
        names, rows = self._table()
        cells = [names, *[[str(v) for v in row] for row in rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
        return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells)

    def _repr_html_(self) -> str:
        """What notebooks show: the columns that a run's table has, without those that no epoch has a number for."""
        if not self:
            return html.text("no epoch yet")
        return html.table(f"{len(self)} epochs" if len(self) > 1 else "1 epoch", *self._table())

    def _table(self) -> tuple[list[str], list[list[Any]]]:
        """Names of the columns, and the rows."""
        names = [n for n in _columns(self) if any(row.values().get(n) is not None for row in self)]
        return names, [
            ["" if v is None else f"{v:.4g}" if isinstance(v, float) else v for v in _of(row, names)] for row in self
        ]


def rewrite(folder: Path, rows: list[Epoch]) -> None:
    """Make both files hold just these rows, each file whole at every moment; without rows there are no files."""
    if not rows:
        for name in (CSV, JSONL):
            (folder / name).unlink(missing_ok=True)
        return
    names = _columns(rows)
    replace(folder / CSV, (_csv_row(names) + "".join(_csv_row(_of(r, names)) for r in rows)).encode())
    replace(folder / JSONL, "".join(_json_row(r) for r in rows).encode())


def append(folder: Path, rows: Sequence[Epoch]) -> None:
    """Add the last of a run's rows to both files; a table that gets new columns is written anew."""
    row, names = rows[-1], _columns(rows)
    if len(rows) > 1 and names != _columns(rows[:-1]):
        rewrite(folder, [*rows])
        return
    header = "" if (folder / CSV).exists() else _csv_row(names)
    for name, text in ((CSV, header + _csv_row(_of(row, names))), (JSONL, _json_row(row))):
        with (folder / name).open("a", encoding="utf-8", newline="") as stream:
            stream.write(text)


def _of(row: Epoch, names: Sequence[str]) -> list[Any]:
    """The numbers of these columns; None where the epoch has none."""
    values = row.values()
    return [values.get(n) for n in names]


def _csv_row(cells: Iterable[Any]) -> str:
    stream = io.StringIO()
    csv.writer(stream).writerow(cells)  # None as an empty field
    return stream.getvalue()


def _json_row(row: Epoch) -> str:
    return json.dumps({k: _finite(v) for k, v in row.values().items()}) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def replace(path: Path, content: bytes) -> None:
    """Put a file in the place of another, whatever that is; it is whole at every moment."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with fresh.open("xb") as stream:  # what a crash left there, a FIFO or a link among it, is not written through
        stream.write(content)
    os.replace(fresh, path)
