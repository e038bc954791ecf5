"""Metrics that are right over uneven batches: every sample counts once, whatever batch it came in.

``update`` keeps tensors where they are; ``settle`` reads what many metrics hold with one wait for the engine. ``state`` is
plain numbers for a checkpoint, and a metric loaded from it goes on as if never interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.core.bind import describe
from firebrick.core.errors import ShapeError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import equal
from firebrick.functions.reductions import argmax
from firebrick.functions.reductions import sum as sum_

_MOST_PENDING = 512  # tensors kept before a metric reads them by itself


class Metric(Protocol):
    """What ``settle`` needs, besides each metric's own ``update``, ``compute``, ``reset`` and ``state``."""

    def pending(self) -> list[Tensor]:
        """Tensors not yet read."""
        ...

    def absorb(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Take in the values of ``pending()``."""
        ...


def settle(*metrics: Metric) -> None:
    """Read what these metrics hold back, all with one wait."""
    held = [m.pending() for m in metrics]
    values = read([t for tensors in held for t in tensors])
    at = 0
    for metric, tensors in zip(metrics, held, strict=True):
        metric.absorb(values[at : at + len(tensors)])
        at += len(tensors)


class Loss:
    """Mean loss a sample: Σ samples · loss / Σ samples over batches whose loss is a mean.

    Attributes:
        recent: The losses that the last ``settle`` read, one a batch in order.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Loss
        >>> loss = Loss()
        >>> loss.update(fb.asarray(1.0), 30)
        >>> loss.update(fb.asarray(5.0), 10)
        >>> loss.compute()
        2.0
    """

    def __init__(self) -> None:
        self.recent: list[float] = []
        self._pending: list[tuple[Tensor, int]] = []
        self._total, self._samples = 0.0, 0

    def update(self, loss: Tensor, samples: int) -> None:
        """Add a batch: its mean loss (a scalar tensor) and how many samples it has."""
        self._pending.append((loss, samples))
        if len(self._pending) > _MOST_PENDING:
            settle(self)

    def pending(self) -> list[Tensor]:
        """Losses not yet read."""
        return [loss for loss, _ in self._pending]

    def absorb(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Take in the values of ``pending()``."""
        self.recent = [float(v) for v in values]
        for value, (_, samples) in zip(self.recent, self._pending, strict=True):
            self._total += value * samples
            self._samples += samples
        self._pending.clear()

    def compute(self) -> float:
        """The mean so far; NaN before the first batch."""
        settle(self)
        return self._total / self._samples if self._samples else float("nan")

    def reset(self) -> None:
        """Forget everything."""
        self._pending.clear()
        self._total, self._samples = 0.0, 0

    def state(self) -> dict[str, Any]:
        """What ``load_state`` takes: plain numbers."""
        settle(self)
        return {"total": self._total, "samples": self._samples}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from ``state()``."""
        self.reset()
        self._total, self._samples = float(state["total"]), int(state["samples"])


class Accuracy:
    """Share of samples whose class of largest score is their label.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Accuracy
        >>> accuracy = Accuracy()
        >>> accuracy.update(fb.asarray([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), fb.asarray([1, 0, 0]))
        >>> accuracy.update(fb.asarray([1]), fb.asarray([1]))
        >>> accuracy.compute()
        0.75
    """

    def __init__(self) -> None:
        self._pending: list[tuple[Tensor, int]] = []
        self._hits, self._samples = 0, 0

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Add a batch: scores [batch, classes] or class numbers [batch], and labels [batch]."""
        hits = sum_(equal(classes_of("Accuracy", predicted, labels), labels))
        self._pending.append((hits, labels.shape[0]))
        if len(self._pending) > _MOST_PENDING:
            settle(self)

    @property
    def used(self) -> bool:
        """Whether any batch was added."""
        return bool(self._samples or self._pending)

    def pending(self) -> list[Tensor]:
        """Counts not yet read."""
        return [hits for hits, _ in self._pending]

    def absorb(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Take in the values of ``pending()``."""
        self._hits += sum(int(v) for v in values)
        self._samples += sum(n for _, n in self._pending)
        self._pending.clear()

    def compute(self) -> float:
        """The share so far; NaN before the first batch."""
        settle(self)
        return self._hits / self._samples if self._samples else float("nan")

    def reset(self) -> None:
        """Forget everything."""
        self._pending.clear()
        self._hits, self._samples = 0, 0

    def state(self) -> dict[str, Any]:
        """What ``load_state`` takes: plain numbers."""
        settle(self)
        return {"hits": self._hits, "samples": self._samples}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from ``state()``."""
        self.reset()
        self._hits, self._samples = int(state["hits"]), int(state["samples"])


class ConfusionMatrix:
    """How often each class (row) was taken for each class (column).

    Args:
        classes: How many there are.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import ConfusionMatrix
        >>> confusion = ConfusionMatrix(2)
        >>> confusion.update(fb.asarray([1, 0, 1]), fb.asarray([1, 0, 0]))
        >>> confusion.compute().tolist()
        [[1, 1], [0, 1]]
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._pending: list[Tensor] = []
        self._counts = np.zeros((classes, classes), np.int64)

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Add a batch: scores [batch, classes] or class numbers [batch], and labels [batch]."""
        self._pending += [classes_of("ConfusionMatrix", predicted, labels), labels]
        if len(self._pending) > _MOST_PENDING:
            settle(self)

    def pending(self) -> list[Tensor]:
        """Class numbers not yet read: predicted and true, by turns."""
        return list(self._pending)

    def absorb(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Take in the values of ``pending()``."""
        n = self.classes
        for predicted, labels in zip(values[0::2], values[1::2], strict=True):
            cells = labels.astype(np.int64) * n + predicted.astype(np.int64)
            self._counts += np.bincount(cells, minlength=n * n).reshape(n, n)
        self._pending.clear()

    def compute(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """int64 [classes, classes]: rows are labels, columns predictions."""
        settle(self)
        return self._counts.copy()

    def reset(self) -> None:
        """Forget everything."""
        self._pending.clear()
        self._counts = np.zeros((self.classes, self.classes), np.int64)

    def state(self) -> dict[str, Any]:
        """What ``load_state`` takes: plain numbers."""
        settle(self)
        return {"counts": self._counts.tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from ``state()``."""
        self.reset()
        self._counts += np.asarray(state["counts"], np.int64)


def classes_of(where: str, predicted: Tensor, labels: Tensor) -> Tensor:
    """Class numbers [batch] of scores [batch, classes] or of class numbers; checked against the labels' shape.

    Raises:
        ShapeError: The shapes do not fit.
    """
    if labels.ndim != 1 or predicted.ndim not in (1, 2) or predicted.shape[0] != labels.shape[0]:
        raise ShapeError(
            f"{where} takes scores [batch, classes] or class numbers [batch], and labels [batch]",
            f"{describe('predicted', predicted)} and {describe('labels', labels)}",
            "reshape them",
        )
    return argmax(predicted, axis=1) if predicted.ndim == 2 else predicted
