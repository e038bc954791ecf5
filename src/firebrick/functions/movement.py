"""Manipulation functions of the Array API standard and their relatives: elements move, nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Never

from firebrick.backends.contract import check_storable
from firebrick.backends.registry import find_device
from firebrick.core.bind import bind, bind_as
from firebrick.core.errors import OperandError, ShapeError
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments, several_sizes, unknown_argument
from firebrick.core.shapes import (
    broadcast_shapes,
    normalize_axes,
    normalize_axis,
    normalize_shape,
    resolve_reshape,
)
from firebrick.core.tensor import Tensor
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


def reshape(
    x: Tensor, /, shape: Any, *_sizes: Never, copy: bool | None = None, out: Tensor | None = None, **_other: Never
) -> Tensor:
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
    if _other:
        raise unknown_argument(reshape, _other)
    if _sizes:
        raise several_sizes("reshape", shape, _sizes, "x, ")
    _operand("reshape", x)
    return bind(OPS["reshape"], (x,), {"shape": resolve_reshape(shape, x.size)}, out)  # type: ignore[no-any-return]


def permute_dims(x: Tensor, /, axes: Sequence[int], *_axes: Never, **_other: Never) -> Tensor:
    """Axes in another order: axis i of the result is axis axes[i] of x.

    Args:
        x: Tensor.
        axes: Axis of x for each axis of the result.

    Example:
        >>> import firebrick as fb
        >>> fb.permute_dims(fb.zeros((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    if _other:
        raise unknown_argument(permute_dims, _other)
    if _axes:
        raise several_sizes("permute_dims", axes, _axes, "x, ")
    _operand("permute_dims", x)
    if not isinstance(axes, (tuple, list)):
        raise ShapeError("permute_dims: axes is a tuple with each axis once", repr(axes), "pass e.g. (1, 0)")
    order = tuple(normalize_axis(a, x.ndim, "permute_dims") for a in axes)
    return bind_as("permute_dims", OPS["permute"], (x,), {"axes": order})  # type: ignore[no-any-return]


@answers_arguments
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The transpose of the last two axes.

    Args:
        x: Tensor ``[..., rows, columns]``.

    Example:
        >>> import firebrick as fb
        >>> fb.matrix_transpose(fb.zeros((5, 2, 3))).shape
        (5, 3, 2)
    """
    _operand("matrix_transpose", x)
    if x.ndim < 2:
        raise ShapeError("matrix_transpose needs at least two axes", describe("x", x), "add an axis")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@answers_arguments
def swapaxes(x: Tensor, axis1: int, axis2: int, /) -> Tensor:
    """Two axes exchanged.

    Args:
        x: Tensor.
        axis1: One axis.
        axis2: The other.

    Example:
        >>> import firebrick as fb
        >>> fb.swapaxes(fb.zeros((2, 3, 4)), 0, -1).shape
        (4, 3, 2)
    """
    _operand("swapaxes", x)
    a, b = (normalize_axis(k, x.ndim, "swapaxes") for k in (axis1, axis2))
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return permute_dims(x, order)


@answers_arguments
def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other positions; the others keep their order.

    Args:
        x: Tensor.
        source: Axis or axes to move.
        destination: Their places in the result.

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


def broadcast_to(x: Tensor, /, shape: Any, *_sizes: Never, **_other: Never) -> Tensor:
    """x repeated along axes of size 1, and along new leading axes.

    Args:
        x: Tensor.
        shape: Shape of the result, with which that of x must be compatible.

    Example:
        >>> import firebrick as fb
        >>> fb.broadcast_to(fb.asarray([1, 2]), (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    if _other:
        raise unknown_argument(broadcast_to, _other)
    if _sizes:
        raise several_sizes("broadcast_to", shape, _sizes, "x, ")
    _operand("broadcast_to", x)
    return bind(OPS["broadcast_to"], (x,), {"shape": normalize_shape(shape, "broadcast_to")})  # type: ignore[no-any-return]


def broadcast_arrays(*arrays: Tensor, **_other: Never) -> list[Tensor]:
    """All tensors broadcast to their common shape.

    Args:
        *arrays: Tensors of compatible shapes.

    Example:
        >>> import firebrick as fb
        >>> [a.shape for a in fb.broadcast_arrays(fb.zeros((3, 1)), fb.zeros(2))]
        [(3, 2), (3, 2)]
    """
    if _other:
        raise unknown_argument(broadcast_arrays, _other)
    found = _list("broadcast_arrays", arrays)
    shape = broadcast_shapes(*(a.shape for a in found), op="broadcast_arrays")
    return [broadcast_to(a, shape) for a in found]


@answers_arguments
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """x with a new axis of size 1, or several, at these positions of the result.

    Args:
        x: Tensor.
        axis: Place of the new axis in the result.

    Example:
        >>> import firebrick as fb
        >>> fb.expand_dims(fb.zeros(3), axis=(0, -1)).shape
        (1, 3, 1)
    """
    _operand("expand_dims", x)
    if isinstance(axis, (tuple, list)):
        at = normalize_axes(axis, x.ndim + len(axis), "expand_dims")
        sizes = iter(x.shape)
        return reshape(x, tuple(1 if k in at else next(sizes) for k in range(x.ndim + len(at))))
    place = normalize_axis(axis, x.ndim + 1, "expand_dims")
    return reshape(x, (*x.shape[:place], 1, *x.shape[place:]))


@answers_arguments
def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """x without the named axes, which must have size 1.

    Args:
        x: Tensor.
        axis: Axis or axes of size 1 to leave out.

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


@answers_arguments
def flatten(x: Tensor, /, *, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Neighbouring axes, from ``start_axis`` to ``end_axis`` inclusive (all by default), as one.

    Args:
        x: Tensor.
        start_axis: First of the axes that become one.
        end_axis: Last of them.

    Example:
        >>> import firebrick as fb
        >>> fb.flatten(fb.zeros((2, 3, 4)), start_axis=1).shape
        (2, 12)
    """
    _operand("flatten", x)
    if not x.ndim:
        return reshape(x, (1,))
    first, last = (normalize_axis(k, x.ndim, "flatten") for k in (start_axis, end_axis))
    if first > last:
        raise ShapeError("flatten: start_axis must not come after end_axis", f"{start_axis}, {end_axis}", "exchange them")
    return reshape(x, (*x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@answers_arguments
def ravel(x: Tensor, /) -> Tensor:
    """All elements in row-major order, as a vector.

    Args:
        x: Tensor of any shape and dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.ravel(fb.asarray([[1, 2], [3, 4]])).tolist()
        [1, 2, 3, 4]
    """
    _operand("ravel", x)
    return reshape(x, (x.size,))


@answers_arguments
def atleast_1d(x: Tensor, /) -> Tensor:
    """x, with an axis of size 1 if it has none.

    Args:
        x: Tensor of any shape and dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.atleast_1d(fb.asarray(3)).shape
        (1,)
    """
    _operand("atleast_1d", x)
    return reshape(x, x.shape or (1,))


@answers_arguments
def atleast_2d(x: Tensor, /) -> Tensor:
    """x, with axes of size 1 in front until it has two.

    Args:
        x: Tensor of any shape and dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.atleast_2d(fb.zeros(3)).shape
        (1, 3)
    """
    _operand("atleast_2d", x)
    return reshape(x, x.shape if x.ndim > 1 else (1, x.size))


@answers_arguments
def atleast_3d(x: Tensor, /) -> Tensor:
    """x with at least three axes: a vector becomes [1, n, 1], a matrix [m, n, 1].

    Args:
        x: Tensor of any shape and dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.atleast_3d(fb.zeros((2, 3))).shape
        (2, 3, 1)
    """
    _operand("atleast_3d", x)
    return reshape(x, {0: (1, 1, 1), 1: (1, x.size, 1), 2: (*x.shape, 1)}.get(x.ndim, x.shape))


@answers_arguments
def concat(arrays: Sequence[Tensor], /, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis (flattened first if ``axis`` is None).

    Args:
        arrays: Tensors whose shapes agree but for ``axis``; their dtypes promote.
        axis: Axis to join along; None flattens each first.

    Example:
        >>> import firebrick as fb
        >>> fb.concat([fb.asarray([1]), fb.asarray([2, 3])]).tolist()
        [1, 2, 3]
    """
    found = _list("concat", arrays)
    if axis is None:
        found, axis = [reshape(a, (-1,)) for a in found], 0
    return join("concat", found, normalize_axis(axis, found[0].ndim, "concat"))


def join(where: str, arrays: list[Tensor], axis: int) -> Tensor:
    """``concat`` for the function ``where``, which errors are to name."""
    return bind_as(where, OPS["concat"], tuple(arrays), {"axis": axis})  # type: ignore[no-any-return]


@answers_arguments
def split(x: Tensor, sizes: int | Sequence[int], /, axis: int = 0) -> list[Tensor]:
    """Consecutive parts of x along an axis: what ``concat`` joins again.

    Args:
        x: Tensor.
        sizes: Size of each part along the axis, which add up to that of x; or one size for all, the last part being
            smaller where it does not divide.
        axis: Axis that is cut.

    Raises:
        ShapeError: The sizes are no ints ≥ 0 that add up to the axis.

    Example:
        >>> import firebrick as fb
        >>> [part.tolist() for part in fb.split(fb.asarray([1, 2, 3]), (1, 2))]
        [[1], [2, 3]]
        >>> [part.tolist() for part in fb.split(fb.asarray([1, 2, 3]), 2)]
        [[1, 2], [3]]
    """
    _operand("split", x)
    at = normalize_axis(axis, x.ndim, "split")
    parts = normalize_shape(sizes, "split")
    if not isinstance(sizes, (tuple, list)):
        n, size = x.shape[at], parts[0]
        if not size:
            raise ShapeError("split: a size for all parts must be ≥ 1", repr(sizes), "pass the size of each part")
        parts = (*[size] * (n // size), *([n % size] if n % size or not n else []))
    if not parts:
        raise ShapeError("split needs at least one size", repr(sizes), "pass the size of each part")
    return list(bind(OPS["split"], (x,), {"sizes": parts, "axis": at}))


@answers_arguments
def stack(arrays: Sequence[Tensor], /, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis.

    Args:
        arrays: Tensors of one shape; their dtypes promote.
        axis: Place of the new axis in the result.

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
    return join("stack", [expand_dims(a, axis=at) for a in found], at)


@answers_arguments
def flip(x: Tensor, /, axis: Any = None) -> Tensor:
    """Elements in reverse order along axes (all by default).

    Args:
        x: Tensor.
        axis: Axis or axes to reverse; all by default.

    Example:
        >>> import firebrick as fb
        >>> fb.flip(fb.asarray([1, 2, 3])).tolist()
        [3, 2, 1]
    """
    _operand("flip", x)
    return bind(OPS["flip"], (x,), {"axes": normalize_axes(axis, x.ndim, "flip")})  # type: ignore[no-any-return]


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
