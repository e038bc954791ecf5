"""Manipulation and indexing functions of the Array API standard, and what ``x[key]`` and ``x[key] = v`` call."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from firebrick.backends.dispatch import check_storable
from firebrick.backends.registry import find_device
from firebrick.core.bind import bind, check_devices, constant, describe, not_a_tensor
from firebrick.core.dtypes import no_common_dtype, promote, scalar_fits, scalar_misfit
from firebrick.core.errors import OperandError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.indexing import is_basic, parse_basic, positions
from firebrick.core.shapes import (
    broadcast_shapes,
    normalize_axes,
    normalize_axis,
    normalize_shape,
    resolve_reshape,
)
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.ops import OPS


def _operand(where: str, x: Any, name: str = "x") -> None:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where, name, x, None)


def _list(where: str, arrays: Any) -> list[Tensor]:
    if isinstance(arrays, Tensor) or not isinstance(arrays, (list, tuple)) or not arrays:
        raise OperandError(f"{where} takes a non-empty list or tuple of tensors", type(arrays).__name__, "pass [x, y]")
    for i, a in enumerate(arrays):
        _operand(where, a, f"arrays[{i}]")
    check_devices(where, arrays=arrays)
    return list(arrays)


def reshape(x: Tensor, /, shape: Any, *, copy: bool | None = None, out: Tensor | None = None) -> Tensor:
    """The same elements in another shape (one size may be -1).

    Args:
        x: Tensor.
        shape: New sizes, with as many elements in all.
        copy: True for memory of its own; otherwise it may share memory (which nobody can notice).
        out: Tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> fb.reshape(fb.arange(6), (2, -1)).shape
        (2, 3)
    """
    _operand("reshape", x)
    return bind(OPS["reshape"], (x,), {"shape": resolve_reshape(shape, x.size)}, out)  # type: ignore[no-any-return]


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Axes in another order: axis i of the result is axis axes[i] of x.

    Example:
        >>> import firebrick as fb
        >>> fb.permute_dims(fb.zeros((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    _operand("permute_dims", x)
    if not isinstance(axes, (tuple, list)):
        raise ShapeError("permute_dims: axes is a tuple with each axis once", repr(axes), "pass e.g. (1, 0)")
    order = tuple(normalize_axis(a, x.ndim, "permute_dims") for a in axes)
    return bind(OPS["permute"], (x,), {"axes": order})  # type: ignore[no-any-return]


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The transpose of the last two axes.

    Example:
        >>> import firebrick as fb
        >>> fb.matrix_transpose(fb.zeros((5, 2, 3))).shape
        (5, 3, 2)
    """
    _operand("matrix_transpose", x)
    if x.ndim < 2:
        raise ShapeError("matrix_transpose needs at least two axes", describe("x", x), "add an axis")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places, the others keeping their order.

    Example:
        >>> import firebrick as fb
        >>> fb.moveaxis(fb.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    _operand("moveaxis", x)
    src = [normalize_axis(a, x.ndim, "moveaxis") for a in (source if isinstance(source, tuple) else (source,))]
    dst = [normalize_axis(a, x.ndim, "moveaxis") for a in (destination if isinstance(destination, tuple) else (destination,))]
    if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise ShapeError(
            "moveaxis needs as many distinct destinations as sources",
            f"{source} to {destination}",
            "pair them",
        )
    order = [a for a in range(x.ndim) if a not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return permute_dims(x, order)


def broadcast_to(x: Tensor, /, shape: Any) -> Tensor:
    """x repeated along axes of size 1, and along new leading axes.

    Example:
        >>> import firebrick as fb
        >>> fb.broadcast_to(fb.asarray([1, 2]), (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    _operand("broadcast_to", x)
    return bind(OPS["broadcast_to"], (x,), {"shape": normalize_shape(shape, "broadcast_to")})  # type: ignore[no-any-return]


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All tensors broadcast to their common shape.

    Example:
        >>> import firebrick as fb
        >>> [a.shape for a in fb.broadcast_arrays(fb.zeros((3, 1)), fb.zeros(2))]
        [(3, 2), (3, 2)]
    """
    found = _list("broadcast_arrays", arrays)
    shape = broadcast_shapes(*(a.shape for a in found), op="broadcast_arrays")
    return [broadcast_to(a, shape) for a in found]


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """x with a new axis of size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.expand_dims(fb.zeros(3), axis=-1).shape
        (3, 1)
    """
    _operand("expand_dims", x)
    at = normalize_axis(axis, x.ndim + 1, "expand_dims")
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """x without the named axes, which must have size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.squeeze(fb.zeros((1, 3)), 0).shape
        (3,)
    """
    _operand("squeeze", x)
    axes = normalize_axes(axis, x.ndim, "squeeze")
    if any(x.shape[a] != 1 for a in axes):
        raise ShapeError("squeeze drops axes of size 1", f"axis {axis} of shape {x.shape}", "index or reduce it instead")
    return reshape(x, tuple(d for i, d in enumerate(x.shape) if i not in axes))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis (flattened first if ``axis`` is None).

    Example:
        >>> import firebrick as fb
        >>> fb.concat([fb.asarray([1]), fb.asarray([2, 3])]).tolist()
        [1, 2, 3]
    """
    found = _list("concat", arrays)
    if axis is None:
        found, axis = [reshape(a, (-1,)) for a in found], 0
    at = normalize_axis(axis, found[0].ndim, "concat")
    return bind(OPS["concat"], tuple(found), {"axis": at})  # type: ignore[no-any-return]


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis.

    Example:
        >>> import firebrick as fb
        >>> fb.stack([fb.asarray([1, 2]), fb.asarray([3, 4])]).tolist()
        [[1, 2], [3, 4]]
    """
    found = _list("stack", arrays)
    for i, a in enumerate(found):
        if a.shape != found[0].shape:
            raise ShapeError(
                "stack needs equal shapes",
                f"{describe('arrays[0]', found[0])} and {describe(f'arrays[{i}]', a)}",
                "reshape or pad one of them",
            )
    at = normalize_axis(axis, found[0].ndim + 1, "stack")
    return concat([expand_dims(a, axis=at) for a in found], axis=at)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """Elements in reverse order along axes (all by default).

    Example:
        >>> import firebrick as fb
        >>> fb.flip(fb.asarray([1, 2, 3])).tolist()
        [3, 2, 1]
    """
    _operand("flip", x)
    return bind(OPS["flip"], (x,), {"axes": normalize_axes(axis, x.ndim, "flip")})  # type: ignore[no-any-return]


def pad(x: Tensor, /, widths: Any, *, value: float = 0) -> Tensor:
    """x with ``widths`` = ((before, after), …), one pair an axis, of constant elements around it.

    Example:
        >>> import firebrick as fb
        >>> fb.pad(fb.asarray([1, 2]), ((1, 0),), value=9).tolist()
        [9, 1, 2]
    """
    _operand("pad", x)
    if not scalar_fits(value, x.dtype):
        raise scalar_misfit("pad", value, x.dtype)
    try:
        pairs = tuple((index(a), index(b)) for a, b in widths)
    except (TypeError, ValueError):
        raise ShapeError("pad: widths is ((before, after), …), one pair an axis", repr(widths), "pass ints") from None
    return bind(OPS["pad"], (x,), {"widths": pairs, "value": value})  # type: ignore[no-any-return]


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Slices of x along an axis, in the order of ``indices``.

    Args:
        x: Tensor.
        indices: Integer tensor of any shape, values in [-n, n).
        axis: Axis to index; may be left out for one axis.

    Raises:
        OutOfRangeError: An index lies outside the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.take(fb.asarray([10, 20, 30]), fb.asarray([2, 0])).tolist()
        [30, 10]
    """
    _operand("take", x)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError("take needs axis= for a tensor of several axes", describe("x", x), "name the axis")
        axis = 0
    return bind(OPS["take"], (x, indices), {"axis": normalize_axis(axis, x.ndim, "take")})  # type: ignore[no-any-return]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements of x along an axis, one for each index; other axes must agree.

    Example:
        >>> import firebrick as fb
        >>> fb.take_along_axis(fb.asarray([[1, 2], [3, 4]]), fb.asarray([[1], [0]]), axis=1).tolist()
        [[2], [3]]
    """
    _operand("take_along_axis", x)
    return bind(OPS["gather"], (x, indices), {"axis": normalize_axis(axis, x.ndim, "take_along_axis")})  # type: ignore[no-any-return]


def scatter_add(x: Tensor, indices: Tensor, updates: Tensor, /, *, axis: int = -1) -> Tensor:
    """x with each update added to the element along an axis that its index names; repeats accumulate, in order.

    Example:
        >>> import firebrick as fb
        >>> fb.scatter_add(fb.zeros(3), fb.asarray([0, 2, 2]), fb.ones(3)).tolist()
        [1.0, 0.0, 2.0]
    """
    _operand("scatter_add", x)
    params = {"axis": normalize_axis(axis, x.ndim, "scatter_add")}
    return bind(OPS["scatter_add"], (x, indices, updates), params)  # type: ignore[no-any-return]


def to_device(x: Tensor, device: Any, /) -> Tensor:
    """x on another device (x itself if it is there); gradients flow back through the move."""
    _operand("to", x)
    goal = find_device(device)
    if goal is x.device:
        return x
    check_storable(x.dtype, goal)
    moved: Tensor = bind(OPS["to_device"], (x,), {"device": goal, "source": x.device})
    moved.label = x.label
    return moved


# x[key] and x[key] = v


def getitem(x: Tensor, key: Any) -> Tensor:
    """What ``x[key]`` means: slices and ints, or NumPy's rules for index and mask tensors."""
    _check_key(x, key)
    if is_basic(key):
        b = parse_basic(key, x.shape)
        y = bind(OPS["slice"], (x,), {"starts": b.starts, "stops": b.stops, "steps": b.steps})
        return y if b.sliced == b.shape else bind(OPS["reshape"], (y,), {"shape": b.shape})  # type: ignore[no-any-return]
    if isinstance(key, Tensor) and key.dtype.is_integer and x.ndim:
        return take(x, key, axis=0)
    at = positions(key, x.shape, "x[key]")
    flat = reshape(x, (-1,))
    return bind(OPS["take"], (flat, hooks.from_host(at, x.device)), {"axis": 0})  # type: ignore[no-any-return]


def _check_key(x: Tensor, key: Any) -> None:
    check_devices("x[key]", x=x, key=key)


def setitem(x: Tensor, key: Any, value: Any) -> Tensor:
    """The tensor that ``x`` shows after ``x[key] = value``; value broadcasts and keeps x's dtype."""
    _check_key(x, key)
    if isinstance(value, Tensor):
        check_devices("x[key] = value", x=x, value=value)
        if value.dtype is not x.dtype:
            if promote(value.dtype, x.dtype) is not x.dtype:
                raise no_common_dtype("x[key] = value", [(describe("value", value), value.dtype), (describe("x", x), x.dtype)])
            value = astype(value, x.dtype)
    elif isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        if not scalar_fits(value, x.dtype):
            raise scalar_misfit("x[key] = value", value, x.dtype)
        value = constant(value, x.dtype, x.device)
    else:
        raise not_a_tensor("x[key] = value", "value", value, x.device.name)
    if is_basic(key):
        b = parse_basic(key, x.shape)
        value = _fit(value, b.shape)
        value = bind(OPS["reshape"], (value,), {"shape": b.sliced})
        params = {"starts": b.starts, "stops": b.stops, "steps": b.steps}
        return bind(OPS["slice_update"], (x, value), params)  # type: ignore[no-any-return]
    if isinstance(key, Tensor) and key.dtype.kind == "bool" and key.shape == x.shape and value.ndim == 0:
        return bind(OPS["where"], (key, value, x), {})  # type: ignore[no-any-return]
    at = positions(key, x.shape, "x[key] = value")
    value = reshape(_fit(value, at.shape), (-1,))
    places = hooks.from_host(at.reshape(-1), x.device)
    flat = bind(OPS["scatter"], (reshape(x, (-1,)), places, value), {"axis": 0})
    return reshape(flat, x.shape)


def _fit(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """value broadcast to a shape, leading axes of size 1 dropped as in NumPy."""
    extra = value.ndim - len(shape)
    if extra > 0 and all(d == 1 for d in value.shape[:extra]):
        value = reshape(value, value.shape[extra:])
    return value if value.shape == shape else broadcast_to(value, shape)
