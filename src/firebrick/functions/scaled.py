"""Roots of sums of powers without overflow or underflow: numbers are divided by the largest before they are squared.

The divisor counts as a constant: the value does not depend on it, hence no derivative does.
"""

from __future__ import annotations

from math import inf

from firebrick.core.dtypes import limits
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.shapes import normalize_axes
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import Axis, reduce
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import clip, equal, maximum, minimum, sqrt, where
from firebrick.functions.elementwise import pow as pow_
from firebrick.functions.movement import reshape


def root(x: Tensor) -> Tensor:
    """The square root; at 0 its gradient is 0."""
    none = equal(x, 0.0)
    return where(none, 0.0, sqrt(where(none, 1.0, x)))


@answers_arguments
def norm(x: Tensor, axis: Axis, keepdims: bool, p: float = 2.0) -> Tensor:
    """(Σ |x|ᵖ)^(1/p) over axes, for any p but 0 and infinities; 0 of nothing, and at 0 the gradient is 0.

    Args:
        x: Floating or complex tensor of any shape.
        axis: Axis or axes to reduce; all for None.
        keepdims: Keep reduced axes with size 1.
        p: The power. For p < 0, one element that is 0 makes the norm 0.
    """
    axes = normalize_axes(axis, x.ndim, "norm")
    if p == 2.0 and x.dtype.kind != "complex":
        unit = unit_of(x, axes)
        parts = x / unit
        found = root(reduce("sum", parts * parts, axes, keepdims))
        return found * _shaped(unit, found)
    size = abs_(x)
    none = equal(size, 0.0)
    unit = unit_of(size, axes) if p > 0.0 else unit_of(where(none, inf, size), axes, "min")
    powers = where(none, 0.0 if p > 0.0 else inf, pow_(where(none, 1.0, size / unit), p))
    total = reduce("sum", powers, axes, keepdims)
    none = equal(total, 0.0)
    found = where(none, 0.0 if p > 0.0 else inf, pow_(where(none, 1.0, total), 1.0 / p))
    return found * _shaped(unit, found)


def variance(centred: Tensor, axes: tuple[int, ...], keepdims: bool, count: float | Tensor, spread: bool) -> Tensor:
    """Σ (c - c̄)² / count, or its root for ``spread``, of numbers from which nearly their mean was taken.

    What was taken is rounded, so the rest has a mean c̄ ≠ 0, whose square is no part of the variance.

    Args:
        centred: Floating tensor c.
        axes: Axes to reduce.
        keepdims: Keep reduced axes with size 1.
        count: Number of elements, or what stands for it: a tensor where zeros fill up.
        spread: Whether the root is wanted.
    """
    unit = unit_of(centred, axes) if spread else None
    c = centred if unit is None else centred / unit
    mean = reduce("sum", c, axes, keepdims) / count
    taken = minimum(mean * mean, float(limits(c.dtype).max))  # an infinite sum of squares stays infinite
    found = maximum(reduce("sum", c * c, axes, keepdims) / count - taken, 0.0)
    return found if unit is None else root(found) * _shaped(unit, found)


def divisor(total: Tensor) -> Tensor:
    """A sum to divide by; NaN where it overflowed, since a quotient by infinity is 0, whatever is divided."""
    return total + (total - total)


def unit_of(x: Tensor, axes: tuple[int, ...], kind: str = "max") -> Tensor:
    """The largest |x| (or the smallest) as a normal number, with reduced axes of size 1; 1 for nothing."""
    x = x.detach()
    if any(not x.shape[a] for a in axes):
        return reduce("sum", x, axes, True) + 1.0
    numbers = limits(x.dtype)
    return clip(reduce(kind, abs_(x), axes, True), float(numbers.smallest_normal), float(numbers.max))


def _shaped(unit: Tensor, like: Tensor) -> Tensor:
    return unit if unit.shape == like.shape else reshape(unit, like.shape)
