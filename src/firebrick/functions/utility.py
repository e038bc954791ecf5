"""Utility functions: all, any, differences between neighbours, and whether numbers are near one another."""

from __future__ import annotations

from firebrick.core.docstrings import documented_like
from firebrick.core.dtypes import bool_, no_common_dtype, promote
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import check_devices, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import in_float32
from firebrick.core.settings import number, whole
from firebrick.core.shapes import broadcast_shapes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import Axis, check_reduced, operand, reduce, truth
from firebrick.functions.checks import known_now
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import equal, isfinite, isnan, less_equal, logical_and, logical_or, subtract, where
from firebrick.functions.movement import concat


def _holds(name: str, x: Tensor, axis: Axis, keepdims: bool, out: Tensor | None) -> Tensor:
    operand(name, x)
    check_reduced(name, x, axis, keepdims, bool_, out)
    return reduce(name, truth(x), axis, keepdims, out)


@answers_arguments
def all(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Whether every element over axes is true (non-zero).

    Args:
        x: Bool or numeric tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.all(fb.asarray([True, False])).item()
        False
    """
    return _holds("all", x, axis, keepdims, out)


@answers_arguments
def any(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Whether some element over axes is true (non-zero).

    Args:
        x: Bool or numeric tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.any(fb.asarray([True, False])).item()
        True
    """
    return _holds("any", x, axis, keepdims, out)


@in_float32
def diff(
    x: Tensor,
    /,
    n: int = 1,
    axis: int = -1,
    *,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences between neighbours along an axis, x[i+1] - x[i], taken ``n`` times.

    Args:
        x: Numeric tensor of at least one axis.
        n: How often; 0 gives x, whatever is to be put before and behind it.
        axis: Axis to go along.
        prepend: Tensor to put before x along the axis.
        append: Tensor to put behind it.

    Returns:
        Tensor shorter by ``n`` along the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.diff(fb.asarray([1, 4, 9, 16])).tolist()
        [3, 5, 7]
    """
    operand("diff", x, "numeric")
    check_devices("diff", x=x, prepend=prepend, append=append)
    if not x.ndim:
        raise ShapeError("diff needs at least one axis", describe("x", x), "reshape it to (1,)", op="diff")
    n = whole("diff", "n", n, 0)
    at = normalize_axis(axis, x.ndim, "diff")
    for name, end in (("prepend", prepend), ("append", append)):
        if end is not None:
            operand("diff", end, "numeric", name)
            if promote(end.dtype, x.dtype) is None:
                raise no_common_dtype("diff", [(describe(name, end), end.dtype), (describe("x", x), x.dtype)])
            if (*end.shape[:at], *end.shape[at + 1 :]) != (*x.shape[:at], *x.shape[at + 1 :]) or end.ndim != x.ndim:
                raise ShapeError(
                    f"diff: {name} must have the shape of x, except along axis {at}",
                    f"{describe(name, end)} and {describe('x', x)}",
                    "reshape or broadcast it",
                    op="diff",
                )
    parts = [p for p in (prepend, x, append) if p is not None]
    if n and len(parts) > 1:
        x = concat(parts, axis=at)
    lead = (slice(None),) * at
    for _ in range(n):
        x = x[(*lead, slice(1, None))] - x[(*lead, slice(None, -1))]
    return x


@answers_arguments
def isclose(x1: Tensor, x2: Tensor, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether |x1 - x2| ≤ atol + rtol · |x2|, for each pair; an infinity is close to itself only.

    Args:
        x1: Floating or complex tensor.
        x2: What it should be near to: a tensor that broadcasts with x1.
        rtol: Relative tolerance, at least 0.
        atol: Absolute tolerance, at least 0, in the unit of the operands.
        equal_nan: Whether NaN is close to NaN.

    Returns:
        Bool tensor of the broadcast shape.

    Example:
        >>> import firebrick as fb
        >>> fb.isclose(fb.asarray([1.0, 2.0]), fb.asarray([1.000001, 2.1])).tolist()
        [True, False]
    """
    return _isclose("isclose", x1, x2, rtol, atol, equal_nan)


@documented_like(isclose)
@answers_arguments
def allclose(x1: Tensor, x2: Tensor, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all pairs are close, by the rule of ``isclose``.

    Returns:
        A Python bool: the device is waited for.

    Example:
        >>> import firebrick as fb
        >>> fb.allclose(fb.asarray([1.0, 2.0]), fb.asarray([1.0, 2.1]), atol=0.2)
        True
    """
    found = all(_isclose("allclose", x1, x2, rtol, atol, equal_nan))
    known_now("allclose", "a Python bool", "x1", x1, "use fb.all(fb.isclose(x1, x2)), a 0-d tensor")
    return bool(found)


def _isclose(name: str, x1: Tensor, x2: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    operand(name, x1, "inexact", "x1")
    operand(name, x2, "inexact", "x2")
    check_devices(name, x1=x1, x2=x2)
    broadcast_shapes(x1.shape, x2.shape, op=name)
    for key, value in (("rtol", rtol), ("atol", atol)):
        if not number(name, key, value) >= 0:
            raise ConfigError(f"{name}: {key} is ≥ 0", f"{key}={value!r}", "pass e.g. 1e-5")
    x1, x2 = x1.detach(), x2.detach()
    near = less_equal(abs_(subtract(x1, x2)), abs_(x2) * rtol + atol)
    found = where(logical_and(isfinite(x1), isfinite(x2)), near, equal(x1, x2))
    return logical_or(found, logical_and(isnan(x1), isnan(x2))) if equal_nan else found
