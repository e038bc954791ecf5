"""Utility functions of the Array API standard: all, any and differences between neighbours."""

from __future__ import annotations

from firebrick.core.bind import check_devices, describe
from firebrick.core.dtypes import bool_, no_common_dtype, promote
from firebrick.core.errors import ShapeError
from firebrick.core.settings import whole
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import Axis, check_reduced, operand, reduce, truth
from firebrick.functions.movement import concat


def _holds(name: str, x: Tensor, axis: Axis, keepdims: bool, out: Tensor | None) -> Tensor:
    operand(name, x)
    check_reduced(name, x, axis, keepdims, bool_, out)
    return reduce(name, truth(x), axis, keepdims, out)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Whether every element over axes is true (non-zero).

    Example:
        >>> import firebrick as fb
        >>> fb.all(fb.asarray([True, False])).item()
        False
    """
    return _holds("all", x, axis, keepdims, out)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Whether some element over axes is true (non-zero).

    Example:
        >>> import firebrick as fb
        >>> fb.any(fb.asarray([True, False])).item()
        True
    """
    return _holds("any", x, axis, keepdims, out)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences between neighbours along an axis, x[i+1] - x[i], taken ``n`` times.

    Args:
        x: Numeric tensor of at least one axis.
        axis: Axis to go along.
        n: How often; 0 gives x.
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
    if len(parts) > 1:
        x = concat(parts, axis=at)
    lead = (slice(None),) * at
    for _ in range(n):
        x = x[(*lead, slice(1, None))] - x[(*lead, slice(None, -1))]
    return x
