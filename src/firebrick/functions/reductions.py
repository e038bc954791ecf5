"""Reductions, searching and sorting functions of the Array API standard, over the op table."""

from __future__ import annotations

from math import prod as count
from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.bind import bind, check_out
from firebrick.core.dtypes import DType, bool_, int64
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.shapes import normalize_axes, normalize_axis, reduced_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype, sqrt
from firebrick.ops import OPS

Axis = int | tuple[int, ...] | None


def _reduce(name: str, x: Tensor, axis: Axis, keepdims: bool, out: Tensor | None) -> Tensor:
    _operand(name, x)
    params = {"axes": normalize_axes(axis, x.ndim, name), "keepdims": keepdims}
    return bind(OPS[name], (x,), params, out)  # type: ignore[no-any-return]


def _check_out(name: str, x: Tensor, axis: Axis, keepdims: bool, dtype: DType, out: Tensor | None) -> None:
    """Check ``out`` at the entry of a function that computes something else first."""
    if out is not None:
        shape = reduced_shape(x.shape, normalize_axes(axis, x.ndim, name), keepdims)
        check_out(name, out, x.device, Aval(shape, dtype))


def _operand(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        from firebrick.core.bind import not_a_tensor

        raise not_a_tensor(name, "x", x, None)


def _accumulator(x: Tensor, dtype: Any) -> DType:
    """The dtype that sums and products have: the default integer width for narrower integers."""
    if dtype is not None:
        return as_dtype(dtype)
    if x.dtype.kind == "bool":
        return _default_int(x)
    if x.dtype.is_integer:
        wide = as_dtype(_default_int(x).name.replace("int", "uint") if x.dtype.kind == "uint" else _default_int(x))
        return wide if x.dtype.itemsize < wide.itemsize else x.dtype
    return x.dtype


def _accumulate(name: str, x: Tensor, axis: Axis, dtype: Any, keepdims: bool, out: Tensor | None) -> Tensor:
    _operand(name, x)
    goal = _accumulator(x, dtype)
    _check_out(name, x, axis, keepdims, goal, out)
    return _reduce(name, astype(x, goal, copy=False), axis, keepdims, out)


def _default_int(x: Tensor) -> DType:
    return as_dtype(x.device.backend.default_int(x.device))


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
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
    return _accumulate("sum", x, axis, dtype, keepdims, out)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Product over axes (all by default); arguments as for ``sum``.

    Example:
        >>> import firebrick as fb
        >>> fb.prod(fb.asarray([2, 3, 4])).item()
        24
    """
    return _accumulate("prod", x, axis, dtype, keepdims, out)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Arithmetic mean over axes of a floating tensor.

    Example:
        >>> import firebrick as fb
        >>> fb.mean(fb.asarray([1.0, 2.0, 6.0])).item()
        3.0
    """
    return _reduce("mean", x, axis, keepdims, out)


def var(
    x: Tensor,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Variance over axes: Σ (x - mean)² / (n - correction).

    Example:
        >>> import firebrick as fb
        >>> fb.var(fb.asarray([1.0, 3.0])).item()
        1.0
    """
    _operand("var", x)
    axes = normalize_axes(axis, x.ndim, "var")
    _check_out("var", x, axes, keepdims, x.dtype, out)
    n = count(x.shape[a] for a in axes)
    centred = x - mean(x, axis=axes, keepdims=True)
    total = _reduce("sum", centred * centred, axes, keepdims, None)
    divisor = float(n - correction)
    return bind(OPS["divide"], (total, divisor if divisor > 0.0 else 0.0), {}, out)  # type: ignore[no-any-return]


def std(
    x: Tensor,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Standard deviation over axes: the root of ``var``.

    Example:
        >>> import firebrick as fb
        >>> fb.std(fb.asarray([1.0, 3.0])).item()
        1.0
    """
    _operand("std", x)
    _check_out("std", x, axis, keepdims, x.dtype, out)
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims), out=out)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Largest element over axes; NaN if there is one; the first largest takes the gradient.

    Example:
        >>> import firebrick as fb
        >>> fb.max(fb.asarray([[1, 5], [3, 4]]), axis=1).tolist()
        [5, 4]
    """
    return _reduce("max", x, axis, keepdims, out)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Smallest element over axes; NaN if there is one; the first smallest takes the gradient.

    Example:
        >>> import firebrick as fb
        >>> fb.min(fb.asarray([[1, 5], [3, 4]]), axis=1).tolist()
        [1, 3]
    """
    return _reduce("min", x, axis, keepdims, out)


def _holds(name: str, x: Tensor, axis: Axis, keepdims: bool, out: Tensor | None) -> Tensor:
    _operand(name, x)
    _check_out(name, x, axis, keepdims, bool_, out)
    true = bind(OPS["not_equal"], (x, 0), {}) if x.dtype.kind == "complex" else astype(x, bool_, copy=False)
    return _reduce(name, true, axis, keepdims, out)


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


def _arg(name: str, x: Tensor, axis: int | None, keepdims: bool, out: Tensor | None) -> Tensor:
    from firebrick.functions.movement import reshape

    _operand(name, x)
    _check_out(name, x, axis, keepdims, int64, out)
    if axis is None:
        flat = reshape(x, (-1,))
        if not keepdims:
            return bind(OPS[name], (flat,), {"axis": 0, "keepdims": False}, out)  # type: ignore[no-any-return]
        found: Tensor = bind(OPS[name], (flat,), {"axis": 0, "keepdims": False})
        return reshape(found, (1,) * x.ndim, out=out)
    params = {"axis": normalize_axis(axis, x.ndim, name), "keepdims": keepdims}
    return bind(OPS[name], (x,), params, out)  # type: ignore[no-any-return]


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """The lowest index of the largest element along an axis (of the flat tensor by default), as int64.

    Example:
        >>> import firebrick as fb
        >>> fb.argmax(fb.asarray([1.0, 7.0, 7.0])).item()
        1
    """
    return _arg("argmax", x, axis, keepdims, out)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """The lowest index of the smallest element along an axis (of the flat tensor by default), as int64.

    Example:
        >>> import firebrick as fb
        >>> fb.argmin(fb.asarray([7.0, 1.0, 1.0])).item()
        1
    """
    return _arg("argmin", x, axis, keepdims, out)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sorted copy along an axis; always stable; NaN last (first if descending).

    Example:
        >>> import firebrick as fb
        >>> fb.sort(fb.asarray([3, 1, 2])).tolist()
        [1, 2, 3]
    """
    _operand("sort", x)
    params = {"axis": normalize_axis(axis, x.ndim, "sort"), "descending": descending}
    return bind(OPS["sort"], (x,), params)[0]  # type: ignore[no-any-return]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Indices that sort along an axis; always stable.

    Example:
        >>> import firebrick as fb
        >>> fb.argsort(fb.asarray([3, 1, 2])).tolist()
        [1, 2, 0]
    """
    _operand("argsort", x)
    params = {"axis": normalize_axis(axis, x.ndim, "argsort"), "descending": descending}
    return bind(OPS["sort"], (x.detach(),), params)[1]  # type: ignore[no-any-return]
