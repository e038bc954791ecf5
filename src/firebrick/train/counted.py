"""What is counted of batches, of steps and evaluations, and how processes put together what each has counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.core.constants import constant
from firebrick.core.device import Device
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.train.measures import Counts, Measures


@dataclass(frozen=True)
class Forecast:
    """One sample of a forecast, for people to look at.

    Attributes:
        seen: [rows, series], what the model was shown.
        target: [horizon, series], what came next.
        predicted: [horizon, series], what the model said.
    """

    seen: np.ndarray[Any, Any]
    target: np.ndarray[Any, Any]
    predicted: np.ndarray[Any, Any]


@dataclass
class Counted:
    """What was counted of the batches of a loader, or of those that one of several processes has taken.

    Attributes:
        measures: Loss, accuracy and errors.
        samples: How many there were.
        confusion: int64 [classes, classes]; None where no classes were scored.
        forecast: The first sample, where windows of series are forecast.
    """

    measures: Measures
    samples: int = 0
    confusion: np.ndarray[Any, np.dtype[np.int64]] | None = None
    forecast: Forecast | None = None

    def plain(self) -> dict[str, Any]:
        """All but the confusion matrix as plain values, for other processes."""
        shown = None if self.forecast is None else {k: (a.dtype.name, a.tolist()) for k, a in vars(self.forecast).items()}
        classes = 0 if self.confusion is None else len(self.confusion)
        return {"measures": self.measures.state(), "samples": self.samples, "classes": classes, "forecast": shown}


def summed(notes: Sequence[Mapping[str, Any]]) -> tuple[Counted, int]:
    """What several processes have counted, each ``plain``, and the number of classes; the first one has the first sample."""
    total = Counted(Measures(), sum(n["samples"] for n in notes))
    for n in notes:
        total.measures.merge(n["measures"])
    shown = notes[0]["forecast"]
    if shown is not None:
        total.forecast = Forecast(**{k: np.array(values, as_dtype(dtype).np) for k, (dtype, values) in shown.items()})
    return total, max(n["classes"] for n in notes)


def joined(found: Sequence[Counts]) -> Counts:
    """The counts of several passes, in their order."""
    measures = Measures()
    for counts in found:
        measures.take(counts)
    return measures.held()


def plain(counts: Counts) -> dict[str, Any]:
    """Counts as plain values: the dtype and value of each tensor, and the samples."""
    read_all = read([t for rows in counts.values() for tensors, _ in rows for t in tensors])
    values = iter(read_all)
    return {
        name: [[[(t.dtype.name, next(values).item()) for t in tensors], samples] for tensors, samples in rows]
        for name, rows in counts.items()
    }


def merged(found: Sequence[Any], device: Device) -> Counts:
    """The counts of all ranks, in their order."""
    out = Counts()
    for counts in found:
        for name, rows in (counts or {}).items():
            held = out.setdefault(name, [])
            for tensors, samples in rows:
                held.append((tuple(constant(v, as_dtype(d), device) for d, v in tensors), samples))
    return out
