"""What is counted of batches, of steps and evaluations, and how processes put together what each has counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.core.constants import constant
from firebrick.core.device import Device
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.train.measures import Counts, Measures, Metrics


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
        further: What is kept of batches for the further metrics of ``measures``, which other processes count too.
    """

    measures: Measures
    samples: int = 0
    confusion: np.ndarray[Any, np.dtype[np.int64]] | None = None
    forecast: Forecast | None = None
    further: Counts = field(default_factory=Counts)

    def plain(self) -> dict[str, Any]:
        """All but the confusion matrix as plain values, for other processes."""
        shown = None if self.forecast is None else {k: (a.dtype.name, a.tolist()) for k, a in vars(self.forecast).items()}
        classes = 0 if self.confusion is None else len(self.confusion)
        return {
            "measures": self.measures.state(),
            "samples": self.samples,
            "further": plain(self.further),
            "classes": classes,
            "forecast": shown,
        }


def summed(notes: Sequence[Mapping[str, Any]], metrics: Metrics, device: Device) -> tuple[Counted, int]:
    """What several processes have counted, each ``plain``, and the number of classes; the first one has the first sample.

    Args:
        notes: Of all processes, in the order of the ranks.
        metrics: The further metrics.
        device: Where what they keep is put.
    """
    total = Counted(Measures(metrics), sum(n["samples"] for n in notes))
    for n in notes:
        total.measures.merge(n["measures"])
    total.measures.take(merged([n["further"] for n in notes], device))
    shown = notes[0]["forecast"]
    if shown is not None:
        total.forecast = Forecast(**{k: np.array(values, as_dtype(dtype).np) for k, (dtype, values) in shown.items()})
    return total, max(n["classes"] for n in notes)


def joined(found: Sequence[Counts]) -> Counts:
    """The counts of several passes, in their order."""
    out = Counts()
    for counts in found:
        for name, rows in counts.items():
            out.setdefault(name, []).extend(rows)
    return out


def plain(counts: Counts) -> dict[str, Any]:
    """Counts as plain values: dtype, shape and values of each tensor, and the samples."""
    tensors = [t for rows in counts.values() for tensors, _ in rows for t in tensors]
    values = iter(read(tensors) if tensors else [])

    def each(t: Tensor) -> tuple[str, tuple[int, ...], list[Any]]:
        return t.dtype.name, t.shape, next(values).reshape(-1).tolist()

    return {name: [[[each(t) for t in kept], samples] for kept, samples in rows] for name, rows in counts.items()}


def merged(found: Sequence[Any], device: Device) -> Counts:
    """The counts of all ranks, in their order."""
    out = Counts()
    for counts in found:
        for name, rows in (counts or {}).items():
            held = out.setdefault(name, [])
            for tensors, samples in rows:
                held.append((tuple(_tensor(d, shape, v, device) for d, shape, v in tensors), samples))
    return out


def _tensor(dtype: str, shape: Sequence[int], values: Sequence[Any], device: Device) -> Tensor:
    if not shape:
        return constant(values[0], as_dtype(dtype), device)
    found: Tensor = hooks.from_host(np.array(values, as_dtype(dtype).np).reshape(shape), device)
    return found
