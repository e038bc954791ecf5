"""Statistical functions of the Array API standard, and the running extremes: reductions and scans of the op table."""

from __future__ import annotations

from math import inf
from math import prod as count
from typing import Any, NamedTuple

from firebrick.core.autocast import wide
from firebrick.core.bind import bind
from firebrick.core.docstrings import documented_like
from firebrick.core.errors import ShapeError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import in_float32, in_wide_float32
from firebrick.core.settings import number
from firebrick.core.shapes import normalize_axes
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import Axis, accumulator, check_reduced, nonempty, one_axis, operand, reduce
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import reshape
from firebrick.functions.scaled import variance
from firebrick.ops import OPS


def accumulate(where_: str, x: Tensor, axis: Axis, dtype: Any, keepdims: bool, out: Tensor | None) -> Tensor:
    """A sum or product, in the dtype that the standard says; ``where_`` is its name, or that with ``nan`` before it."""
    operand(where_, x, "comparable")
    x = wide(x) if out is None and dtype is None else x
    goal = accumulator(where_, x, dtype)
    axes = normalize_axes(axis, x.ndim, where_)
    check_reduced(where_, x, axes, keepdims, goal, out)
    return reduce(where_.removeprefix("nan"), astype(x, goal, copy=False), axes, keepdims, out)


@answers_arguments
def sum(x: Tensor, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Sum over axes (all by default); narrow integers and bool accumulate in the default integer dtype.

    Args:
        x: Tensor.
        axis: Axis or axes to reduce.
        dtype: Dtype to accumulate in.
        keepdims: Keep reduced axes with size 1.
        out: Tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> fb.sum(fb.asarray([[1, 2], [3, 4]]), axis=0).tolist()
        [4, 6]
    """
    return accumulate("sum", x, axis, dtype, keepdims, out)


@documented_like(sum)
@answers_arguments
def prod(x: Tensor, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Product over axes (all by default); narrow integers and bool accumulate in the default integer dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.prod(fb.asarray([2, 3, 4])).item()
        24
    """
    return accumulate("prod", x, axis, dtype, keepdims, out)


@answers_arguments
def mean(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Arithmetic mean over axes of a floating or complex tensor; half precision is summed in float32.

    Args:
        x: Floating or complex tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.mean(fb.asarray([1.0, 2.0, 6.0])).item()
        3.0
    """
    operand("mean", x)
    return reduce("mean", wide(x) if out is None else x, axis, keepdims, out)


@answers_arguments
def var(
    x: Tensor,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Variance over axes: Σ (x - mean)² / (n - correction); infinite or NaN where n ≤ correction.

    It is computed in two passes, the second of which corrects the first's rounding, so a large mean costs no digits.

    Args:
        x: Floating tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        correction: What the divisor is less than the count: 0 for a population, 1 for a sample.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.var(fb.asarray([1.0, 3.0])).item()
        1.0
    """
    return _variance("var", x, axis, correction, keepdims, out)


def _variance(where_: str, x: Tensor, axis: Axis, correction: float, keepdims: bool, out: Tensor | None) -> Tensor:
    """The variance, or, for ``std``, its root."""
    operand(where_, x, "floating")
    correction = number(where_, "correction", correction)
    x = wide(x) if out is None else x
    axes = normalize_axes(axis, x.ndim, where_)
    check_reduced(where_, x, axes, keepdims, x.dtype, out)
    n = count(x.shape[a] for a in axes)
    divisor = float(n - correction)
    found = _about_mean(x, axes, keepdims, n, n / divisor if divisor > 0.0 else inf, where_ == "std")
    return found if out is None else reshape(found, found.shape, out=out)


@in_float32
def _about_mean(x: Tensor, axes: tuple[int, ...], keepdims: bool, n: int, factor: float, spread: bool) -> Tensor:
    """``factor`` · Σ (x - mean)² / n, or its root for ``spread``. The mean counts as a constant, which changes no variance."""
    found = variance(x - mean(x, axis=axes, keepdims=True).detach(), axes, keepdims, n, spread)
    return found * (factor**0.5 if spread else factor)


@answers_arguments
def std(
    x: Tensor,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Standard deviation over axes: the root of ``var``; of equal elements it is 0, and so is its gradient.

    Args:
        x: Floating tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        correction: What the divisor is less than the count: 0 for a population, 1 for a sample.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.std(fb.asarray([1.0, 3.0])).item()
        1.0
    """
    return _variance("std", x, axis, correction, keepdims, out)


@answers_arguments
def max(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Largest element over axes; NaN if there is one; the first largest takes the gradient.

    Args:
        x: Real tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.max(fb.asarray([[1, 5], [3, 4]]), axis=1).tolist()
        [5, 4]
    """
    return reduce("max", x, axis, keepdims, out)


@answers_arguments
def min(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Smallest element over axes; NaN if there is one; the first smallest takes the gradient.

    Args:
        x: Real tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.min(fb.asarray([[1, 5], [3, 4]]), axis=1).tolist()
        [1, 3]
    """
    return reduce("min", x, axis, keepdims, out)


@answers_arguments
def ptp(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Peak to peak: the largest element less the smallest, over axes.

    Args:
        x: Real tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.ptp(fb.asarray([3.0, -1.0, 2.0])).item()
        4.0
    """
    operand("ptp", x, "real")
    axis = normalize_axes(axis, x.ndim, "ptp")
    nonempty("ptp", x, axis)
    return max(x, axis=axis, keepdims=keepdims) - min(x, axis=axis, keepdims=keepdims)


# scans


def _scan_axis(where: str, x: Tensor, axis: int | None, kind: str) -> int:
    operand(where, x, kind)
    if not x.ndim:
        raise ShapeError(f"{where} needs at least one axis", describe("x", x), "reshape it to (1,)", op=where)
    return one_axis(where, x, axis)


def _cumulate(name: str, x: Tensor, axis: int | None, dtype: Any, initial: int | None, reverse: bool) -> Tensor:
    at = _scan_axis(name, x, axis, "comparable")
    x = wide(x) if dtype is None else x
    goal = accumulator(name, x, dtype)
    found: Tensor = bind(OPS[name], (astype(x, goal, copy=False),), {"axis": at, "reverse": bool(reverse)})
    if initial is None:
        return found
    widths = tuple(((0, 1) if reverse else (1, 0)) if i == at else (0, 0) for i in range(x.ndim))
    return bind(OPS["pad"], (found,), {"widths": widths, "value": initial})  # type: ignore[no-any-return]


@answers_arguments
def cumulative_sum(
    x: Tensor,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
) -> Tensor:
    """The running sum along an axis.

    Args:
        x: Numeric or bool tensor of at least one axis.
        axis: Axis to go along; may be left out for one axis.
        dtype: Dtype to accumulate in; narrow integers and bool take the default integer dtype.
        include_initial: Begin with a 0, so that the result is longer by one.
        reverse: Go from the last element to the first (the initial 0 is then last).

    Returns:
        Tensor of the shape of x (one more along ``axis`` with ``include_initial``).

    Example:
        >>> import firebrick as fb
        >>> fb.cumulative_sum(fb.asarray([1, 2, 3])).tolist()
        [1, 3, 6]
        >>> fb.cumulative_sum(fb.asarray([1, 2, 3]), include_initial=True).tolist()
        [0, 1, 3, 6]
    """
    return _cumulate("cumulative_sum", x, axis, dtype, 0 if include_initial else None, reverse)


@answers_arguments
def cumulative_prod(
    x: Tensor,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
) -> Tensor:
    """The running product along an axis; its gradient is exact also where factors are 0.

    Args:
        x: Numeric or bool tensor of at least one axis.
        axis: Axis to go along; may be left out for one axis.
        dtype: Dtype to accumulate in; narrow integers and bool take the default integer dtype.
        include_initial: Begin with a 1, so that the result is longer by one.
        reverse: Go from the last element to the first (the initial 1 is then last).

    Returns:
        Tensor of the shape of x (one more along ``axis`` with ``include_initial``).

    Example:
        >>> import firebrick as fb
        >>> fb.cumulative_prod(fb.asarray([1, 2, 3])).tolist()
        [1, 2, 6]
    """
    return _cumulate("cumulative_prod", x, axis, dtype, 1 if include_initial else None, reverse)


@in_wide_float32
def cumulative_logsumexp(x: Tensor, /, axis: int | None = None, *, reverse: bool = False) -> Tensor:
    """The running log Σ exp(x) along an axis, without overflow.

    Args:
        x: Floating tensor of at least one axis.
        axis: Axis to go along; may be left out for one axis.
        reverse: Go from the last element to the first.

    Returns:
        Tensor of x's shape and dtype.

    Raises:
        DTypeError: x is not floating.
        ShapeError: x has no axis, or several and ``axis`` is left out.

    Example:
        >>> import firebrick as fb
        >>> [round(v, 3) for v in fb.cumulative_logsumexp(fb.asarray([1000.0, 1000.0, 0.0])).tolist()]
        [1000.0, 1000.693, 1000.693]
    """
    params = {"axis": _scan_axis("cumulative_logsumexp", x, axis, "floating"), "reverse": bool(reverse)}
    return bind(OPS["cumulative_logsumexp"], (x,), params)  # type: ignore[no-any-return]


class RunningExtreme(NamedTuple):
    """Running extremes, and the index that each was met at first."""

    values: Tensor
    indices: Tensor


def _running(where: str, op: str, x: Tensor, axis: int | None, reverse: bool) -> RunningExtreme:
    params = {"axis": _scan_axis(where, x, axis, "real"), "reverse": bool(reverse)}
    return RunningExtreme(*bind(OPS[op], (x,), params))


@answers_arguments
def cummax(x: Tensor, /, axis: int | None = None, *, reverse: bool = False) -> RunningExtreme:
    """The running maximum along an axis, NaN from the first NaN on, and where it was met.

    Of equal maxima the first one counts, here as everywhere (PyTorch reports the last): its index is reported and it
    takes the gradient.

    Args:
        x: Real tensor of at least one axis.
        axis: Axis to go along; may be left out for one axis.
        reverse: Go from the last element to the first.

    Returns:
        ``values`` and ``indices`` (int64), both of x's shape.

    Example:
        >>> import firebrick as fb
        >>> values, indices = fb.cummax(fb.asarray([1, 3, 2, 3, 5]))
        >>> values.tolist(), indices.tolist()
        ([1, 3, 3, 3, 5], [0, 1, 1, 1, 4])
    """
    return _running("cummax", "cumulative_max", x, axis, reverse)


@documented_like(cummax)
@answers_arguments
def cummin(x: Tensor, /, axis: int | None = None, *, reverse: bool = False) -> RunningExtreme:
    """The running minimum along an axis, NaN from the first NaN on, and where it was met; see ``cummax``.

    Example:
        >>> import firebrick as fb
        >>> fb.cummin(fb.asarray([3, 4, 1, 2])).values.tolist()
        [3, 3, 1, 1]
    """
    return _running("cummin", "cumulative_min", x, axis, reverse)
