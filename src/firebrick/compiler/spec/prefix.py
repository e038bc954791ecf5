"""``Prefix``: a running fold along one axis, from its first element or from its last: the running sum, product, maximum or
minimum, or one of ``RUNNING``, log Σ exp and linear recurrences.

The order of the additions and multiplications is that of the axis: each result is rounded from the one before it, kept in a
wider dtype. Extremes also give the index at which each was met first; NaN is before every number and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from firebrick.compiler.spec.base import Cost, Size, as_reals
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.running import RUNNING
from firebrick.compiler.spec.single import single
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.ir import Graph
from firebrick.scalar.interpret import evaluate
from firebrick.scalar.storage import HALVES, computed

Array = np.ndarray[Any, Any]
LOGSUMEXP_FLOPS = 30
"""Operations of a step of log Σ exp, which computes an exponential and a logarithm."""
EXTREMES = ("max", "min")
"""Folds that also give indices."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Arrays are row-major, seen as [outer, size, inner] with the axis in the middle.

    Attributes:
        fold: ``sum``, ``prod``, ``max``, ``min`` or a name in ``RUNNING``.
        outer: Elements before the axis.
        size: Length of the axis.
        inner: Elements after the axis.
        reverse: Whether the first element of the scan is the last one of the axis.
        dtype: Of the operands and the result in memory.
        total: Dtype of the running value, from which each result is rounded.
        sources: The inputs that are the operands.
    """

    fold: str
    outer: Size
    size: Size
    inner: Size
    reverse: bool
    dtype: str
    total: str
    sources: tuple[int, ...]

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        elements = self.outer * self.size * self.inner
        indices = 8 if self.fold in EXTREMES else 0
        arrays = 1 + self.operands
        flops = LOGSUMEXP_FLOPS if self.fold == "logsumexp" else 1
        return Cost(float(elements * flops), float(elements * (arrays * itemsize(self.dtype) + indices)))

    @property
    def operands(self) -> int:
        """Number of operands."""
        return RUNNING[self.fold].operands if self.fold in RUNNING else 1

    def interpret(self, inputs: Sequence[Array], outs: Sequence[Array]) -> None:
        """Write the results, by NumPy; arrays are flat."""
        shape = self.outer, self.size, self.inner
        if self.fold in RUNNING:
            outs[0][:] = self._running([inputs[i].astype(computed(self.dtype)).reshape(shape) for i in self.sources])
            return
        x = inputs[self.sources[0]].astype(as_dtype(self.total).np).reshape(shape)
        x = x[:, ::-1] if self.reverse else x
        if self.fold in EXTREMES:
            values, at = _extremes(x, self.fold)
            at = self.size - 1 - at if self.reverse else at
            found = [values, at]
        else:
            found = [(np.cumsum if self.fold == "sum" else np.cumprod)(x, axis=1, dtype=x.dtype)]
        for out, y in zip(outs, found, strict=True):
            out[:] = (y[:, ::-1] if self.reverse else y).reshape(-1).astype(out.dtype)

    def _running(self, xs: Sequence[Array]) -> Array:
        """The results of a fold of ``RUNNING``, flat, in the dtype that they are computed in."""
        fold, element = RUNNING[self.fold], computed(self.dtype)
        names, elements = fold.named(self.dtype, self.total), fold.elements(self.dtype)
        first, step = fold.first(elements, self.total), fold.step(names, elements, self.total)
        states = [np.empty((self.outer, self.size, self.inner), e.dtype) for e in names]
        before: int | None = None
        for k in reversed(range(self.size)) if self.reverse else range(self.size):
            values = {str(e.value): x[:, k] for e, x in zip(elements, xs, strict=True)}
            if before is not None:
                values |= {str(e.value): held[:, before] for e, held in zip(names, states, strict=True)}
            for held, v in zip(states, evaluate(first if before is None else step, locals=values), strict=True):
                held[:, k] = v
            before = k
        (out,) = evaluate(
            [fold.result(names, element)], locals={str(e.value): held for e, held in zip(names, states, strict=True)}
        )
        return out.reshape(-1)


def _extremes(x: Array, fold: str) -> tuple[Array, Array]:
    """Running extremes along the middle axis, and the positions at which they first occur."""
    values, at = x.copy(), np.zeros(x.shape, np.int64)
    for k in range(1, x.shape[1]):
        new, best = x[:, k], values[:, k - 1]
        better = (new > best if fold == "max" else new < best) | ((new != new) & (best == best))
        values[:, k] = np.where(better, new, best)
        at[:, k] = np.where(better, k, at[:, k - 1])
    return values, at


def kept_in(fold: str, dtype: str) -> str:
    """The dtype of a running value: float64 for sums, products and recurrences of floats, whose rounding errors accumulate, and
    which may leave the range of their dtype for a while."""
    if dtype in HALVES or dtype == "float32":
        return "float64" if fold not in EXTREMES else "float32"
    return dtype


def prefix(body: Graph) -> Prefix:
    """The specification of a group of one running fold."""
    s = single(body)
    x, axis, fold = as_reals(s.operands[-1]), s.node.params["axis"], s.facts["fold"]
    dtype = x.dtype.name
    return Prefix(
        fold, prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]), s.node.params["reverse"], dtype,
        kept_in(fold, dtype), s.inputs,
    )  # fmt: skip
