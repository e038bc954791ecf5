"""Shape arithmetic: broadcasting, axes and reshapes, each with an error that shows the shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from operator import index
from typing import Any

from firebrick.core.aval import Shape
from firebrick.core.errors import OutOfRangeError, ShapeError


def broadcast_shapes(*shapes: Shape, op: str = "broadcast_shapes") -> Shape:
    """The shape that all ``shapes`` broadcast to.

    Args:
        shapes: Tuples of sizes; of none the result is ().
        op: Name that an error gives to what is broadcast.

    Raises:
        ShapeError: Two sizes of one axis differ and neither is 1.

    Example:
        >>> import firebrick as fb
        >>> fb.broadcast_shapes((3, 1), (4,))
        (3, 4)
    """
    for shape in shapes:
        if not isinstance(shape, tuple):
            raise ShapeError(f"{op}: a shape is a tuple of sizes", repr(shape), "pass e.g. (3, 1)")
    if op == "broadcast_shapes":  # a user's call, whose sizes may be NumPy's
        shapes = tuple(tuple(index(n) for n in shape) for shape in shapes)
    out: tuple[int, ...] = shapes[0] if shapes else ()
    for shape in shapes[1:]:
        if shape == out:
            continue
        if len(shape) > len(out):
            shape, out = out, shape
        lead = len(out) - len(shape)
        tail = []
        for a, b in zip(out[lead:], shape, strict=True):
            if a != b and a != 1 and b != 1:
                raise ShapeError(
                    f"{op}: shapes must be equal or 1 in every axis, counted from the last",
                    " and ".join(str(tuple(s)) for s in shapes),
                    "reshape one of them, or add an axis of size 1 with fb.expand_dims",
                )
            tail.append(b if a == 1 else a)
        out = (*out[:lead], *tail)
    return out


def normalize_axis(axis: Any, ndim: int, op: str) -> int:
    """``axis`` as 0 ≤ axis < ndim."""
    try:
        if axis is True or axis is False:  # as in torch.std(x, True), where it is no axis
            raise TypeError
        i = index(axis)
    except TypeError:
        raise ShapeError(f"{op}: axis must be an int", repr(axis), "pass an int") from None
    if not -ndim <= i < ndim:
        raise OutOfRangeError(
            f"{op}: axis must lie in [{-ndim}, {ndim}) for a tensor of {ndim} axes",
            f"axis {i}",
            "count axes from 0, or from -1 backwards",
        )
    return i % ndim if ndim else i


def normalize_axes(axis: Any, ndim: int, op: str) -> tuple[int, ...]:
    """``axis`` (None for all, an int or several) as sorted, distinct, non-negative axes."""
    if axis is None:
        return tuple(range(ndim))
    items: Iterable[Any] = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(normalize_axis(a, ndim, op) for a in items))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: axes must be distinct", f"axis={axis}", "name each axis once")
    return axes


def normalize_shape(shape: Any, op: str) -> Shape:
    """A shape given as int or sequence of ints, each ≥ 0."""
    try:
        out = tuple(index(d) for d in shape) if isinstance(shape, (tuple, list)) else (index(shape),)
    except TypeError:
        raise ShapeError(f"{op}: a shape is an int or a tuple of ints", repr(shape), "pass e.g. (2, 3)") from None
    if any(d < 0 for d in out):
        raise ShapeError(f"{op}: sizes must be ≥ 0", f"shape {out}", "give every axis its size")
    return out


def resolve_reshape(shape: Any, size: int, op: str = "reshape") -> Shape:
    """``shape`` with at most one -1 replaced so that it holds ``size`` elements."""
    try:
        dims = tuple(index(d) for d in shape) if isinstance(shape, (tuple, list)) else (index(shape),)
    except TypeError:
        raise ShapeError(f"{op}: a shape is an int or a tuple of ints", repr(shape), "pass e.g. (2, -1)") from None
    known = prod(d for d in dims if d != -1)
    free = dims.count(-1)
    bad = free > 1 or any(d < -1 for d in dims)
    if not bad and free and known and size % known == 0:
        dims = tuple(size // known if d == -1 else d for d in dims)
    elif bad or free or known != size:
        raise ShapeError(
            f"{op}: the new shape must hold the same {size} elements, with at most one -1",
            f"shape {dims}",
            "check the sizes; their product must be the tensor's size",
        )
    return dims


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """``shape`` after reducing ``axes``."""
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def slice_length(start: int, stop: int, step: int) -> int:
    """Number of elements of the normalised slice ``start:stop:step``."""
    return len(range(start, stop, step))
