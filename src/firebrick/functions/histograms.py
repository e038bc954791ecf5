"""Counting into bins: ``bincount``, ``histogram`` and the bin that each element falls into.

Sums of weights are differentiable in the weights. Counts, bins and edges are not differentiable: they are constant almost
everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.core.bind import bind
from firebrick.core.dtypes import int64, no_common_dtype, promote
from firebrick.core.errors import ConfigError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import number, whole
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import operand, widest
from firebrick.functions.checks import check_range, deferred, known_now, staged
from firebrick.functions.conversion import asarray
from firebrick.functions.creation import ones, zeros
from firebrick.functions.elementwise import (
    astype,
    equal,
    greater_equal,
    isfinite,
    less_equal,
    logical_and,
    logical_or,
    where,
)
from firebrick.functions.movement import concat, flip, reshape
from firebrick.functions.ranges import arange
from firebrick.functions.searching import fixed_size
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import min as min_
from firebrick.functions.statistical import sum as sum_
from firebrick.functions.utility import all as all_
from firebrick.functions.utility import diff
from firebrick.ops import OPS


def _count(bins: Tensor, weights: Tensor | None, length: int) -> Tensor:
    """How often each of ``length`` bins occurs, or the sum of its weights."""
    if weights is None:
        weights = ones(bins.shape, dtype=int64, device=bins.device)
    start = zeros(length, dtype=weights.dtype, device=bins.device)
    return bind(OPS["scatter_add"], (start, bins, weights), {"axis": 0})  # type: ignore[no-any-return]


def _check_weights(where_: str, x: Tensor, weights: Any) -> None:
    if weights is not None:
        operand(where_, weights, "numeric", "weights")
        check_devices(where_, x=x, weights=weights)
        if weights.shape != x.shape:
            raise ShapeError(
                f"{where_}: weights must have the shape of x",
                f"{describe('weights', weights)} and {describe('x', x)}",
                "give each element its weight",
                op=where_,
            )


@answers_arguments
def bincount(
    x: Tensor, /, weights: Tensor | None = None, *, minlength: int = 0, size: int | None = None,
) -> Tensor:  # fmt: skip
    """How often each integer from 0 to the largest of x occurs, or the sum of the weights of its occurrences.

    Without ``size`` the result's shape depends on values: x's smallest and largest are read, once.

    Args:
        x: Integer tensor [n], values ≥ 0.
        weights: Numeric tensor [n]; gradients flow back into it.
        minlength: The least length of the result.
        size: The length of the result, in place of ``minlength``, so that the shape depends on no value.

    Returns:
        Tensor [max(largest + 1, minlength)] or [size], int64 or of the weights' dtype.

    Raises:
        OutOfRangeError: A value is negative, or not below ``size``.

    Example:
        >>> import firebrick as fb
        >>> fb.bincount(fb.asarray([0, 2, 2])).tolist()
        [1, 0, 2]
        >>> fb.bincount(fb.asarray([0, 2, 2]), fb.asarray([0.5, 1.0, 2.0])).tolist()
        [0.5, 0.0, 3.0]
    """
    operand("bincount", x, "integer")
    _check_weights("bincount", x, weights)
    if x.ndim != 1:
        raise ShapeError("bincount takes a tensor of one axis", describe("x", x), "flatten it: fb.reshape(x, (-1,))")
    length = whole("bincount", "minlength", minlength, 0)
    if size is not None:
        length = fixed_size("bincount", size)
        check_range("bincount", "x", x, 0, length, "shift or drop such values, or pass a larger size")
    elif x.size:
        known_now("bincount", "the shape of its result", "x", x, "pass size=, one more than the largest value there may be")
        low, top = (int(v) for v in read([min_(x), max_(x)]))
        if low < 0:
            raise OutOfRangeError("bincount counts values ≥ 0", f"{low} in {describe('x', x)}", "shift or drop such values")
        length = max(length, top + 1)
    return _count(x, weights, length)


# bins between edges


def _check_edges(where_: str, name: str, edges: Tensor, least: int) -> None:
    if edges.ndim != 1 or edges.size < least:
        raise ShapeError(
            f"{where_}: {name} must have one axis, with at least {least} element{'s' if least > 1 else ''}",
            describe(name, edges),
            "list the edges of the bins in order",
            op=where_,
        )


def _rising(edges: Tensor) -> Tensor:
    return all_(greater_equal(edges[1:], edges[:-1]))


def _out_of_order(where_: str, name: str, received: str) -> ConfigError:
    return ConfigError(f"{where_}: {name} must be in order, without NaN", received, f"sort it: fb.sort({name})")


def _check_order(where_: str, name: str, edges: Tensor) -> None:
    if staged(lambda: _rising(edges), lambda: _out_of_order(where_, name, describe(name, edges))):
        return
    if not _rising(edges):
        raise _out_of_order(where_, name, f"{edges.tolist()!r:.80}")


def _search(where_: str, x: Tensor, name: str, edges: Tensor, right: bool) -> Tensor:
    if promote(x.dtype, edges.dtype) is None:
        raise no_common_dtype(where_, [(describe("x", x), x.dtype), (describe(name, edges), edges.dtype)])
    return bind(OPS["searchsorted"], (edges.detach(), x.detach()), {"right": right})  # type: ignore[no-any-return]


@answers_arguments
def bucketize(x: Tensor, boundaries: Tensor, /, *, right: bool = False) -> Tensor:
    """The bucket of each element, as PyTorch counts them: boundaries[i-1] < x ≤ boundaries[i] is bucket i.

    Args:
        x: Real tensor.
        boundaries: Real tensor [n] in ascending order.
        right: The other end belongs to a bucket: boundaries[i-1] ≤ x < boundaries[i]. (``digitize`` has it reversed.)

    Returns:
        int64 tensor of x's shape, values in [0, n]. NaN counts as largest.

    Raises:
        ConfigError: The boundaries are not in order (which is read).

    Example:
        >>> import firebrick as fb
        >>> fb.bucketize(fb.asarray([0.5, 1.0, 2.5]), fb.asarray([1.0, 2.0])).tolist()
        [0, 0, 2]
    """
    operand("bucketize", x, "real")
    operand("bucketize", boundaries, "real", "boundaries")
    check_devices("bucketize", x=x, boundaries=boundaries)
    _check_edges("bucketize", "boundaries", boundaries, 0)
    _check_order("bucketize", "boundaries", boundaries)
    return _search("bucketize", x, "boundaries", boundaries, bool(right))


@answers_arguments
def digitize(x: Tensor, bins: Tensor, /, *, right: bool = False) -> Tensor:
    """The bin of each element, as NumPy counts them: bins[i-1] ≤ x < bins[i] is bin i.

    For bins in descending order it is bins[i-1] > x ≥ bins[i].

    Args:
        x: Real tensor.
        bins: Real tensor [n] in ascending or descending order.
        right: The other end belongs to a bin: bins[i-1] < x ≤ bins[i]. (``bucketize`` has it reversed.)

    Returns:
        int64 tensor of x's shape, values in [0, n]. NaN counts as largest.

    Raises:
        ConfigError: The bins are in no order (which is read).

    Example:
        >>> import firebrick as fb
        >>> fb.digitize(fb.asarray([0.5, 1.0, 2.5]), fb.asarray([1.0, 2.0])).tolist()
        [0, 1, 2]
    """
    operand("digitize", x, "real")
    operand("digitize", bins, "real", "bins")
    check_devices("digitize", x=x, bins=bins)
    _check_edges("digitize", "bins", bins, 0)
    upwards = flip(bins)

    def found(bins: Tensor) -> Tensor:
        return _search("digitize", x, "bins", bins, not right)

    if staged(
        lambda: logical_or(_rising(bins), _rising(upwards)),
        lambda: _out_of_order("digitize", "bins", describe("bins", bins)),
    ):
        rising = _rising(bins)
        return where(rising, found(bins), bins.size - found(where(rising, bins, upwards)))
    if _rising(bins):
        return found(bins)
    if not _rising(upwards):
        raise _out_of_order("digitize", "bins", f"{bins.tolist()!r:.80}")
    return bins.size - found(upwards)


class Histogram(NamedTuple):
    """Counts, or densities, and the edges of the bins they belong to."""

    hist: Tensor
    bin_edges: Tensor


@answers_arguments
def histogram(
    x: Tensor,
    /,
    bins: int | Sequence[float] | Tensor = 10,
    *,
    range: tuple[float, float] | None = None,
    weights: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """How many elements lie in each bin: edges[i] ≤ x < edges[i+1], and in the last bin also x = edges[-1].

    Elements outside of all bins, and NaN, are not counted.

    Args:
        x: Real tensor of any shape.
        bins: Number of bins of equal width, or all their edges in ascending order.
        range: Where bins of equal width begin and end; by default at x's smallest and largest element, which are read.
        weights: Numeric tensor of x's shape, summed in place of counting; gradients flow back into it.
        density: Whether to divide by the total and each bin's width, so that the integral is 1.

    Returns:
        ``hist`` [bins], int64 or of the weights' dtype (floating for a density), and ``bin_edges`` [bins + 1], of x's dtype
        if that is floating, else float64 where the device has it.

    Raises:
        ConfigError: ``bins`` is not positive or not in order, ``range`` is not, or x is not finite and has no range.

    Example:
        >>> import firebrick as fb
        >>> hist, edges = fb.histogram(fb.asarray([0.0, 0.5, 1.5, 2.0]), 2)
        >>> hist.tolist(), edges.tolist()
        ([2, 2], [0.0, 1.0, 2.0])
    """
    operand("histogram", x, "real")
    _check_weights("histogram", x, weights)
    edges = _edges(x.detach(), bins, range)
    if x.dtype.is_integer and not edges.dtype.is_integer:
        x = astype(x, edges.dtype)
    values = reshape(x.detach(), (-1,))
    count = edges.size - 1
    place = _search("histogram", values, "bins", edges, True) - 1
    place = where(equal(values, edges[-1:]), count - 1, place)
    inside = logical_and(greater_equal(values, edges[:1]), less_equal(values, edges[-1:]))
    # what lies outside goes to a bin of its own, which is dropped
    place = where(inside, place, count)
    found = _count(place, None if weights is None else reshape(weights, (-1,)), count + 1)[:count]
    if density:
        goal = edges.dtype if edges.dtype.is_inexact else widest(x)
        shares = found if found.dtype.is_inexact else astype(found, goal)
        widths = astype(diff(edges), shares.dtype)
        found = shares / (widths * sum_(shares))
    return Histogram(found, edges)


def _edges(x: Tensor, bins: Any, limits: Any) -> Tensor:
    goal = x.dtype if x.dtype.is_inexact else widest(x)
    if isinstance(bins, Tensor):
        operand("histogram", bins, "real", "bins")
        check_devices("histogram", x=x, bins=bins)
        edges = bins.detach()
    elif isinstance(bins, (list, tuple)):
        edges = asarray([number("histogram", f"bins[{i}]", v) for i, v in enumerate(bins)], dtype=goal, device=x.device)
    else:
        return _equal_widths(x, bins, limits, goal)
    _check_edges("histogram", "bins", edges, 2)
    _check_order("histogram", "bins", edges)
    return edges


def _equal_widths(x: Tensor, bins: Any, limits: Any, goal: Any) -> Tensor:
    try:
        count = index(bins)
    except TypeError:
        count = 0
    if count < 1 or isinstance(bins, bool):
        raise ConfigError("histogram: bins is a number ≥ 1, or the edges of the bins", repr(bins), "pass e.g. 10")
    if limits is not None:
        if not isinstance(limits, (tuple, list)) or len(limits) != 2:
            raise ConfigError("histogram: range is a pair of numbers", f"range={limits!r:.60}", "pass range=(low, high)")
        low, high = (float(number("histogram", f"range[{i}]", v)) for i, v in enumerate(limits))
    elif x.size and deferred(x):
        return _equal_widths_later(x, count, goal)
    elif x.size:
        low, high = (float(v) for v in read([min_(x), max_(x)]))
    else:
        low, high = 0.0, 1.0
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise _no_range(f"({low}, {high})" + (", from the elements of x" if limits is None else ""))
    if low == high:
        low, high = low - 0.5, high + 0.5
    return hooks.from_host(np.linspace(low, high, count + 1).astype(goal.np), x.device)


def _no_range(received: str) -> ConfigError:
    want = "histogram: range must be finite, its first end not above its second"
    return ConfigError(want, received, "pass range=(low, high)")


def _equal_widths_later(x: Tensor, count: int, goal: Any) -> Tensor:
    """Edges from the smallest to the largest element, computed on the device as the host's ``linspace`` does."""
    wide = widest(x)
    low, high = astype(min_(x), wide), astype(max_(x), wide)
    staged(
        lambda: logical_and(isfinite(low), isfinite(high)),
        lambda: _no_range(f"the range of {describe('x', x)}, which holds infinities or NaN"),
    )
    single = equal(low, high)
    low, high = where(single, low - 0.5, low), where(single, high + 0.5, high)
    places = arange(count, dtype=wide, device=x.device)
    rising = places * ((high - low) / count) + low
    return astype(concat([rising, reshape(high, (1,))]), goal, copy=False)
