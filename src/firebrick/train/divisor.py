"""Whether a loss that cannot say what it divides by is the mean over rows, whatever labels a batch holds.

A function that divides by the labels that count, or by their weights, looks like a mean over rows as long as all parts of a
batch hold the same number of them. So it is computed of labels that differ between the two halves: every class in turn, and
the numbers that mark ignored labels by custom. The model runs once; labels that the loss refuses are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite, prod
from typing import Any

import numpy as np

from firebrick.core.dtypes import DType, finfo, iinfo
from firebrick.core.errors import FirebrickError
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.train.batches import rows_of

_IGNORED = (-100, -1, 255)
_MOST = 64  # sets of labels: a batch of 128 rows holds 4096 classes in them


def apart(whole: float, first: float, last: float, share: float, dtypes: set[DType]) -> float | None:
    """The losses of two parts joined, the first one with a share of the rows, if they differ from the whole by more than
    roundings; None if they do not. A part that is NaN differs from a whole that is finite: no label of it counted."""
    joined = first * share + last * (1.0 - share)
    if not isfinite(whole + joined):
        return joined if isfinite(whole) else None
    eps = max(finfo(d).eps for d in dtypes)
    slack = max(eps**0.5, 16.0 * eps) * max(abs(whole), abs(first), abs(last)) + 16.0 * eps
    return joined if abs(whole - joined) > slack else None


def with_other_labels(
    loss: Callable[[Any, Any], Tensor], output: Any, target: Any, dtypes: set[DType]
) -> tuple[float, float] | None:
    """The loss of a batch with other labels, and that of its two halves joined, of the first labels for which they differ.

    Args:
        loss: As of ``Learner``.
        output: The model's of a batch; only a floating tensor [batch, …] is looked at.
        target: Of the batch; only integers are replaced.
        dtypes: Whose roundings are allowed, besides those of the output.
    """
    rows = target.shape[0] if isinstance(target, Tensor) and target.ndim else 0
    if rows < 2 or not target.dtype.is_integer or not isinstance(output, Tensor) or output.dtype.kind != "float":
        return None
    if output.shape[:1] != (rows,):
        return None
    cut = rows // 2
    noise = np.sin(np.arange(output.size, dtype=np.float32)).reshape(output.shape)  # equal rows would hide any weights
    unequal = output + asarray(noise, dtype=output.dtype, device=output.device)
    for labels in _other_labels(output, target, cut):
        for scores in (unequal, output):  # probabilities, say, take no noise
            try:
                parts = [(rows_of(scores, a, b), rows_of(labels, a, b)) for a, b in ((0, rows), (0, cut), (cut, rows))]
                whole, first, last = (float(loss(*part)) for part in parts)
            except (FirebrickError, ArithmeticError, LookupError, TypeError, ValueError):
                continue
            joined = apart(whole, first, last, cut / rows, {*dtypes, output.dtype})
            if joined is not None:
                return whole, joined
            break
    return None


def _other_labels(output: Tensor, target: Tensor, cut: int) -> Iterator[Tensor]:
    """The target with other labels in its first rows."""
    own = target.numpy()
    count = cut * prod(target.shape[1:])
    axes = [a for a in range(1, output.ndim) if output.shape[:a] + output.shape[a + 1 :] == target.shape]
    classes = output.shape[axes[0]] if axes else 0
    info = iinfo(target.dtype)
    if not count:
        return
    starts = range(0, classes, count)
    sets = [(start + np.arange(count)) % classes for start in starts[:_MOST]]
    sets += [np.full(count, value) for value in (*_IGNORED, 0) if info.min <= value <= info.max]
    for values in sets:
        if values.max() <= info.max:
            labels = np.array(own)
            labels[:cut] = values.reshape(own[:cut].shape).astype(own.dtype)
            yield asarray(labels, device=target.device)
