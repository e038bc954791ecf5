"""Reductions that skip NaN. Where nothing is left, the result is what it is for no elements: 0, 1 or NaN.

Elements that are NaN take no gradient. Integers have no NaN: for them these are the plain reductions.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

from firebrick.core.errors import ShapeError
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import in_float32
from firebrick.core.settings import number
from firebrick.core.shapes import normalize_axes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import Axis, nonempty, operand, reduce
from firebrick.functions.checks import staged
from firebrick.functions.elementwise import astype, equal, isinf, isnan, logical_not, sqrt, where
from firebrick.functions.movement import reshape
from firebrick.functions.scaled import variance
from firebrick.functions.searching import argmax
from firebrick.functions.statistical import accumulate
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import min as min_


def _filled(x: Tensor, value: float) -> Tensor:
    """``x`` with ``value`` in place of NaN."""
    return where(isnan(x), value, x) if x.dtype.is_inexact else x


def _numbers(x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """How many elements over axes are not NaN, in x's dtype."""
    return reduce("sum", astype(logical_not(isnan(x)), x.dtype), axis, keepdims)


@answers_arguments
def nansum(x: Tensor, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum of the elements over axes that are not NaN.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis or axes to reduce; all by default.
        dtype: Dtype to accumulate in, as for ``fb.sum``.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nansum(fb.asarray([1.0, fb.nan, 2.0])).item()
        3.0
    """
    operand("nansum", x, "comparable")
    return accumulate("nansum", _filled(x, 0.0), axis, dtype, keepdims, None)


@answers_arguments
def nanprod(x: Tensor, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product of the elements over axes that are not NaN.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis or axes to reduce; all by default.
        dtype: Dtype to accumulate in, as for ``fb.prod``.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nanprod(fb.asarray([3.0, fb.nan, 2.0])).item()
        6.0
    """
    operand("nanprod", x, "comparable")
    return accumulate("nanprod", _filled(x, 1.0), axis, dtype, keepdims, None)


@in_float32
def nanmean(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The mean of the elements over axes that are not NaN; NaN where there are none.

    Args:
        x: Floating tensor.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nanmean(fb.asarray([1.0, fb.nan, 2.0])).item()
        1.5
    """
    operand("nanmean", x, "floating")
    axis = normalize_axes(axis, x.ndim, "nanmean")
    return reduce("sum", _filled(x, 0.0), axis, keepdims) / _numbers(x, axis, keepdims)


@in_float32
def nanvar(x: Tensor, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance of the elements over axes that are not NaN; NaN where at most ``correction`` are left.

    Args:
        x: Floating tensor.
        axis: Axis or axes to reduce; all by default.
        correction: What to subtract from the number of elements: 0 for the variance, 1 for the unbiased estimate.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nanvar(fb.asarray([1.0, fb.nan, 3.0])).item()
        1.0
    """
    return _variance("nanvar", x, axis, correction, keepdims, False)


def _variance(where_: str, x: Tensor, axis: Axis, correction: float, keepdims: bool, spread: bool) -> Tensor:
    """The variance of what is not NaN, or its root for ``spread``."""
    operand(where_, x, "floating")
    correction = number(where_, "correction", correction)
    axis = normalize_axes(axis, x.ndim, where_)
    # the deviation of NaN is NaN, and skipped like it
    centred = _filled(x - nanmean(x, axis=axis, keepdims=True).detach(), 0.0)
    n = _numbers(x, axis, keepdims)
    divisor = n - float(correction)
    factor = where(divisor > 0.0, n / where(divisor > 0.0, divisor, 1.0), nan)
    found = variance(centred, axis, keepdims, n, spread) * (sqrt(factor) if spread else factor)
    # what is left of infinities is NaN, which is no element to skip
    return where(reduce("any", isinf(x), axis, keepdims), nan, found)


@in_float32
def nanstd(x: Tensor, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation of the elements over axes that are not NaN: the root of ``nanvar``.

    Args:
        x: Floating tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        correction: What the divisor is less than the count: 0 for a population, 1 for a sample.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nanstd(fb.asarray([1.0, fb.nan, 3.0])).item()
        1.0
    """
    return _variance("nanstd", x, axis, correction, keepdims, True)


def _extreme(where_: str, x: Tensor, axis: Axis, keepdims: bool, worst: float, reduction: Any) -> Tensor:
    operand(where_, x, "real")
    axes = normalize_axes(axis, x.ndim, where_)
    nonempty(where_, x, axes)
    found: Tensor = reduction(_filled(x, worst), axis=axes, keepdims=keepdims)
    return where(reduce("all", isnan(x), axes, keepdims), nan, found) if x.dtype.is_inexact else found


@answers_arguments
def nanmax(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest element over axes that is not NaN; NaN where all are.

    Args:
        x: Real tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nanmax(fb.asarray([1.0, fb.nan, 2.0])).item()
        2.0
    """
    return _extreme("nanmax", x, axis, keepdims, -inf, max_)


@answers_arguments
def nanmin(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element over axes that is not NaN; NaN where all are.

    Args:
        x: Real tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nanmin(fb.asarray([1.0, fb.nan, 2.0])).item()
        1.0
    """
    return _extreme("nanmin", x, axis, keepdims, inf, min_)


def _place(name: str, x: Tensor, axis: int | None, keepdims: bool, extreme: Any) -> Tensor:
    operand(name, x, "real")
    flat = reshape(x, (-1,)) if axis is None else x
    at = normalize_axis(0 if axis is None else axis, flat.ndim, name)
    nonempty(name, flat, (at,))
    best = extreme(flat, axis=at, keepdims=True)

    def error() -> ShapeError:
        return ShapeError(
            f"{name} of nothing but NaN is undefined",
            f"a slice along axis {at} of x with no number in it",
            "leave such slices out, or fill them first",
            op=name,
        )

    looked = not x.dtype.is_inexact or staged(lambda: logical_not(isnan(best)), error)
    if not looked and bool(reduce("any", isnan(best), None, False)):
        raise error()
    # the first that equals the extreme: NaN equals nothing
    found = argmax(astype(equal(flat.detach(), best), "uint8"), axis=at, keepdims=keepdims)
    if axis is None and keepdims:
        return reshape(found, (1,) * x.ndim)
    return found


@answers_arguments
def nanargmax(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The lowest index of the largest element along an axis that is not NaN (of the flat tensor by default), as int64.

    Args:
        x: Real tensor of any shape.
        axis: Axis to search; the flat tensor by default.
        keepdims: Keep reduced axes with size 1.

    Raises:
        ShapeError: A slice holds nothing but NaN, or nothing.

    Example:
        >>> import firebrick as fb
        >>> fb.nanargmax(fb.asarray([fb.nan, 1.0, 7.0])).item()
        2
    """
    return _place("nanargmax", x, axis, keepdims, nanmax)


@answers_arguments
def nanargmin(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The lowest index of the smallest element along an axis that is not NaN (of the flat tensor by default), as int64.

    Args:
        x: Real tensor of any shape.
        axis: Axis to search; the flat tensor by default.
        keepdims: Keep reduced axes with size 1.

    Raises:
        ShapeError: A slice holds nothing but NaN, or nothing.

    Example:
        >>> import firebrick as fb
        >>> fb.nanargmin(fb.asarray([fb.nan, 7.0, 1.0])).item()
        2
    """
    return _place("nanargmin", x, axis, keepdims, nanmin)
