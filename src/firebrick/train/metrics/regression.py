"""Metrics of predicted numbers: mean squared and absolute error, and the coefficient of determination R²."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.lines import warn
from firebrick.core.operands import describe
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.movement import reshape
from firebrick.functions.scaled import unit_of
from firebrick.functions.statistical import mean
from firebrick.functions.statistical import sum as sum_
from firebrick.train.errors import UndefinedMetricWarning
from firebrick.train.metrics.metric import Array, Metric, check_tensors, wide


def _difference(where: str, predicted: Tensor, target: Tensor) -> Tensor:
    """predicted - target, untracked.

    Raises:
        ShapeError, DTypeError: Their shapes differ, or one is not of a floating dtype.
    """
    check_tensors(where, predicted=predicted, target=target)
    both = f"{describe('predicted', predicted)} and {describe('target', target)}"
    if predicted.shape != target.shape or not target.ndim:
        raise ShapeError(f"{where} takes a prediction and a target of one shape [batch, ...]", both, "reshape one of them")
    if predicted.dtype.kind != "float" or target.dtype.kind != "float":
        raise DTypeError(f"{where} takes floating numbers", both, "cast them before")
    return wide(predicted.detach()) - wide(target.detach())


class _MeanError(Metric):
    """A sum over all elements, divided by their number."""

    def initial(self) -> dict[str, Any]:
        return {"total": 0.0, "elements": 0}

    def add(self, values: Sequence[Array], samples: int) -> None:
        self.totals["total"] += float(values[0])
        self.totals["elements"] += samples

    @property
    def used(self) -> bool:
        """Whether any batch was added."""
        return bool(self._totals["elements"] or self._held)

    def compute(self) -> float:
        """The mean so far; NaN before the first batch."""
        elements = self.totals["elements"]
        return float(self.totals["total"] / elements) if elements else math.nan


class MeanSquaredError(_MeanError):
    """Mean of (prediction - target)² over all elements.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import MeanSquaredError
        >>> mse = MeanSquaredError()
        >>> mse.update(fb.asarray([1.0, 2.0, 3.0]), fb.asarray([1.0, 2.0, 5.0]))
        >>> mse.update(fb.asarray([0.0]), fb.asarray([2.0]))
        >>> mse.compute()
        2.0
    """

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Add a batch: floating prediction and target of one shape [batch, ...].

        Args:
            predicted: Floating tensor [batch, ...].
            target: Of the same shape.
        """
        error = _difference("MeanSquaredError", predicted, target)
        self.keep(error.size, sum_(error * error))


class MeanAbsoluteError(_MeanError):
    """Mean of |prediction - target| over all elements.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import MeanAbsoluteError
        >>> mae = MeanAbsoluteError()
        >>> mae.update(fb.asarray([1.0, 2.0]), fb.asarray([1.0, 4.0]))
        >>> mae.compute()
        1.0
    """

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Add a batch: floating prediction and target of one shape [batch, ...].

        Args:
            predicted: Floating tensor [batch, ...].
            target: Of the same shape.
        """
        error = _difference("MeanAbsoluteError", predicted, target)
        self.keep(error.size, sum_(abs_(error)))


class R2Score(Metric):
    """1 - Σ (target - prediction)² / Σ (target - mean target)² of each output, averaged over the outputs.

    The variance of the targets is combined from those of the batches in float64, so no large sums are subtracted. An output
    whose targets are all equal scores 1 if every prediction is exact, else 0. A prediction or target that is NaN makes it NaN.

    Args:
        outputs: Number of predicted numbers per sample: the product of all axes of the target but the first.

    Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import R2Score
        >>> r2 = R2Score()
        >>> r2.update(fb.asarray([2.5, 0.0, 2.0, 8.0]), fb.asarray([3.0, -0.5, 2.0, 7.0]))
        >>> round(r2.compute(), 4)
        0.9486
    """

    def __init__(self, outputs: int = 1) -> None:
        self.outputs = whole("R2Score", "outputs", outputs, 1)
        super().__init__()

    def initial(self) -> dict[str, Any]:
        return {"samples": 0, **{name: np.zeros(self.outputs) for name in ("mean", "spread", "residual")}}

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Add a batch: floating prediction and target of one shape [batch, ...].

        Args:
            predicted: Floating tensor [batch, ...].
            target: Of the same shape.
        """
        error = _difference("R2Score", predicted, target)
        if not target.shape[0]:
            return
        if target.size != target.shape[0] * self.outputs:
            raise ShapeError(
                f"R2Score was made for {self.outputs} outputs a sample", describe("target", target), "pass outputs="
            )
        rows = reshape(wide(target.detach()), (target.shape[0], self.outputs))
        first = rows[:1]  # taken off before the mean: neither large nor equal targets are rounded in it
        rows = rows - first
        middle = mean(rows, axis=0)
        found = [first[0], middle]
        for x in (rows - middle, reshape(error, rows.shape)):
            unit = unit_of(x, (0,))  # squares of large and small numbers would overflow and underflow
            x = x / unit
            found += [sum_(x * x, axis=0), unit[0]]
        self.keep(target.shape[0], *found)

    def add(self, values: Sequence[Array], samples: int) -> None:
        first, middle, spread, unit, residual, unit_of_errors = (v.astype(np.float64) for v in values)
        spread, residual, totals = spread * unit**2, residual * unit_of_errors**2, self.totals
        before, after = totals["samples"], totals["samples"] + samples
        step = first + middle - totals["mean"]
        totals["mean"] = totals["mean"] + step * (samples / after)
        totals["spread"] = totals["spread"] + spread + step * step * (before * samples / after)
        totals["residual"] = totals["residual"] + residual
        totals["samples"] = after

    def compute(self) -> float:
        """R² so far; NaN with an ``UndefinedMetricWarning`` before the second sample."""
        if self.totals["samples"] < 2:
            warn(f"R2Score needs two samples, and has {self.totals['samples']}; it is NaN", UndefinedMetricWarning)
            return math.nan
        spread, residual = self.totals["spread"], self.totals["residual"]
        scores = np.where(spread > 0, 1.0 - residual / np.where(spread > 0, spread, 1.0), np.where(residual == 0, 1.0, 0.0))
        return float(np.where(np.isnan(spread + residual), math.nan, scores).mean())
