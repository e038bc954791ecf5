"""Sorting functions of the Array API standard, and the k largest: all stable, of equals the lowest index first."""

from __future__ import annotations

from operator import index
from typing import Any, NamedTuple

from firebrick.core.bind import bind
from firebrick.core.dtypes import bool_, uint8
from firebrick.core.errors import OutOfRangeError
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import operand
from firebrick.functions.elementwise import astype
from firebrick.ops import OPS

_SHORT = 16
"""Maximum length of a line that engines may sort inside a fused kernel, which the op without indices is no part of."""


def _is_bool(x: Any) -> bool:
    """Whether x is a tensor of bools, which are sorted as 0 and 1."""
    return isinstance(x, Tensor) and x.dtype is bool_


@answers_arguments
def sort(x: Tensor, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """Sorted copy along an axis; always stable; NaN last (first if descending).

    Args:
        x: Real or bool tensor of at least one axis; False comes before True.
        axis: Axis to sort along.
        descending: The largest first.
        stable: Accepted for the standard; the sort is stable either way.

    Example:
        >>> import firebrick as fb
        >>> fb.sort(fb.asarray([3, 1, 2])).tolist()
        [1, 2, 3]
    """
    if _is_bool(x):
        return astype(sort(astype(x, uint8), axis, descending=descending), bool_)
    operand("sort", x, "real")
    return in_order(x, normalize_axis(axis, x.ndim, "sort"), bool(descending))


def in_order(x: Tensor, axis: int, descending: bool = False) -> Tensor:
    """The sorted values of a checked tensor. Gradients need the indices; compiled code sorts short lines with theirs."""
    params = {"axis": axis, "descending": descending}
    if x.node is None and x.shape[axis] > _SHORT:
        return bind(OPS["sort_values"], (x,), params)  # type: ignore[no-any-return]
    return bind(OPS["sort"], (x,), params)[0]  # type: ignore[no-any-return]


@answers_arguments
def argsort(x: Tensor, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """Indices that sort along an axis; always stable.

    Args:
        x: Real or bool tensor of at least one axis; False comes before True.
        axis: Axis to sort along.
        descending: The largest first.
        stable: Accepted for the standard; the sort is stable either way.

    Example:
        >>> import firebrick as fb
        >>> fb.argsort(fb.asarray([3, 1, 2])).tolist()
        [1, 2, 0]
    """
    if _is_bool(x):
        x = astype(x, uint8)
    operand("argsort", x, "real")
    params = {"axis": normalize_axis(axis, x.ndim, "argsort"), "descending": bool(descending)}
    return bind(OPS["sort"], (x.detach(),), params)[1]  # type: ignore[no-any-return]


class TopK(NamedTuple):
    """The k most extreme values along an axis, in order, and the indices they came from."""

    values: Tensor
    indices: Tensor


@answers_arguments
def top_k(x: Tensor, k: int, /, axis: int = -1, *, largest: bool = True) -> TopK:
    """The k largest (or smallest) values along an axis, the most extreme first.

    Of equal values the one with the lowest index comes first; NaN counts as the largest value.

    Args:
        x: Real tensor of at least one axis.
        k: How many, at most the length of the axis.
        axis: Axis to choose along.
        largest: False for the smallest.

    Returns:
        ``values`` and ``indices`` (int64), both with k elements along the axis. Gradients flow into the chosen elements.

    Raises:
        OutOfRangeError: k is negative or larger than the axis.

    Example:
        >>> import firebrick as fb
        >>> values, indices = fb.top_k(fb.asarray([1.0, 7.0, 3.0, 7.0]), 2)
        >>> values.tolist(), indices.tolist()
        ([7.0, 7.0], [1, 3])
    """
    operand("top_k", x, "real")
    try:
        count = index(k)
    except TypeError:
        raise OutOfRangeError("top_k: k must be an int", repr(k), "say how many elements to choose") from None
    params: dict[str, Any] = {"k": count, "axis": normalize_axis(axis, x.ndim, "top_k"), "largest": bool(largest)}
    return TopK(*bind(OPS["top_k"], (x,), params))
