"""The normal form of an index: what ``x[key]`` means, as slices, a final shape, or explicit positions.

A *basic* key (ints, slices, ``...``, ``None``) becomes one stepped slice and one reshape. A key with integer or bool
arrays means what it means in NumPy: its index tensors broadcast to one *block* of axes, which replaces them if they are
adjacent, else comes first. Only masks are read by the host, since the result's shape depends on their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any

import numpy as np

from firebrick.core.aval import Shape
from firebrick.core.errors import OperandError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.shapes import broadcast_shapes, slice_length
from firebrick.core.tensor import Tensor


@dataclass(frozen=True)
class Basic:
    """A basic index: one ``start:stop:step`` an axis (stop -1 below step < 0 means "before 0"), then ``shape``."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    shape: Shape

    @property
    def sliced(self) -> Shape:
        """Shape after the slices and before ints drop axes and ``None`` adds them."""
        return tuple(map(slice_length, self.starts, self.stops, self.steps))


def _is_array(k: Any) -> bool:
    return isinstance(k, (Tensor, np.ndarray, list, bool, np.bool_))


def is_basic(key: Any) -> bool:
    """Whether ``key`` has no arrays."""
    return not any(_is_array(k) for k in (key if isinstance(key, tuple) else (key,)))


def _expand(key: Sequence[Any], shape: Shape, width: Callable[[Any], int]) -> list[Any]:
    """``key`` with the slices that its ellipsis stands for behind it, or else at the end, so that its items index all axes;
    ``width`` gives the number of axes that an item indexes."""
    gaps = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(gaps) > 1:
        raise ShapeError("x[key]: an index may hold one ellipsis", repr(key), "write the slices out")
    used = sum(width(k) for k in key)
    if used > len(shape):
        raise OutOfRangeError(
            f"x[key]: too many indices: the tensor has {len(shape)} axes", f"{used} indices for shape {shape}", "drop some"
        )
    at = gaps[0] + 1 if gaps else len(key)
    return [*key[:at], *[slice(None)] * (len(shape) - used), *key[at:]]


def _one(k: Any) -> int:
    """How many axes an item of a basic key indexes."""
    return int(k is not None and k is not Ellipsis)


def _slice_of(k: slice, size: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice of an axis."""
    try:
        start, stop, step = k.indices(size)
    except (TypeError, ValueError) as e:
        raise OperandError(f"x[key]: a slice needs ints and a step other than 0: {e}", repr(k), "use ints") from None
    return (start, stop, step) if slice_length(start, stop, step) else (0, 0, 1)


def _int_of(k: Any, shape: Shape, axis: int) -> int:
    """An int key, counted from the front of an axis."""
    try:
        i = index(k)
    except TypeError:
        raise OperandError(
            "x[key]: an index is an int, slice, ..., None, or an integer or bool tensor", repr(k), "use one of these"
        ) from None
    size = shape[axis]
    if not -size <= i < size:
        raise OutOfRangeError(
            f"x[key]: an index into axis {axis} of size {size} must lie in [{-size}, {size})",
            f"index {i} for shape {shape}",
            "use an index inside the axis",
        )
    return i % size


def parse_basic(key: Any, shape: Shape) -> Basic:
    """The normal form of a basic key.

    Raises:
        OutOfRangeError: An int outside its axis, or more indices than axes.
        OperandError: An item is not an index.
    """
    items = _expand(key if isinstance(key, tuple) else (key,), shape, _one)
    starts, stops, steps, final = [], [], [], []
    axis = 0
    for k in items:
        if k is Ellipsis:
            continue
        if k is None:
            final.append(1)
            continue
        if isinstance(k, slice):
            start, stop, step = _slice_of(k, shape[axis])
            final.append(slice_length(start, stop, step))
        else:
            start = _int_of(k, shape, axis)
            stop, step = start + 1, 1
        starts.append(start)
        stops.append(stop)
        steps.append(step)
        axis += 1
    return Basic(tuple(starts), tuple(stops), tuple(steps), tuple(final))


@dataclass(frozen=True)
class Steps:
    """A slice of one axis: ``length`` elements that begin at ``start``."""

    start: int
    stop: int
    step: int
    length: int


Entry = Steps | int | Tensor


@dataclass(frozen=True)
class Advanced:
    """An index with index tensors.

    Attributes:
        shape: The indexed tensor's shape, with an axis of size 1 for each 0-d bool.
        entries: For each of those axes a slice, an int or an index tensor.
        block: The shape that the index tensors broadcast to.
        before: How many sliced axes precede the block in the result.
        result: The result's shape, with the axes that ``None`` adds.
    """

    shape: Shape
    entries: tuple[Entry, ...]
    block: Shape
    before: int
    result: Shape

    @property
    def sliced(self) -> list[Steps]:
        """The slices, in order."""
        return [e for e in self.entries if isinstance(e, Steps)]


def strides_of(shape: Sequence[int]) -> list[int]:
    """How many elements apart neighbours along each axis are, row-major."""
    return [prod(shape[k + 1 :]) for k in range(len(shape))]


@dataclass(frozen=True)
class _Mask:
    """A bool array as part of a key."""

    host: np.ndarray[Any, Any]


def _width(k: Any) -> int:
    return k.host.ndim if isinstance(k, _Mask) else _one(k)


def _array_of(k: Any, device: Any) -> Any:
    """An item of a key with masks on the host and index tensors on a device."""
    if isinstance(k, list):
        try:
            k = np.asarray(k, dtype=np.int64 if not k else None)
        except ValueError:
            want = "x[key]: a list holds integers or bools, in rows of one length"
            raise OperandError(want, repr(k)[:80], "pad it") from None
    if isinstance(k, (bool, np.bool_)) or (isinstance(k, np.ndarray) and k.dtype.kind == "b"):
        return _Mask(np.asarray(k))
    if isinstance(k, Tensor) and k.dtype.kind == "bool":
        return _Mask(k.numpy())
    if isinstance(k, np.ndarray) and k.dtype.kind in "iu":
        return hooks.from_host(k, device)
    if isinstance(k, np.ndarray) or (isinstance(k, Tensor) and not k.dtype.is_integer):
        raise OperandError("x[key]: an index tensor needs an integer or bool dtype", str(k.dtype), "cast it to int64")
    return k


def _indices_of(mask: _Mask, shape: Shape, axis: int, device: Any) -> list[Tensor]:
    """The index tensors of a mask's true elements, one for each axis that it covers (a 0-d mask covers a new axis)."""
    if mask.host.ndim == 0:
        return [hooks.from_host(np.zeros(int(mask.host), np.int64), device)]
    stands = shape[axis : axis + mask.host.ndim]
    # an axis of size 0 matches any, as in the standard: nothing is selected along it
    if any(m not in (n, 0) for m, n in zip(mask.host.shape, stands, strict=True)):
        raise OutOfRangeError(
            "x[key]: masks match the axes that they cover",
            f"a mask of shape {mask.host.shape} from axis {axis} of shape {shape} on",
            "reshape the mask, or put a slice before it",
        )
    return [hooks.from_host(i, device) for i in np.nonzero(mask.host)]


def parse_advanced(key: Any, shape: Shape, device: Any) -> Advanced:
    """The normal form of a key with arrays.

    Raises:
        OutOfRangeError: An int or a mask that does not fit its axis, or more indices than axes.
        ShapeError: Index tensors that do not broadcast together.
        OperandError: An item is not an index.
    """
    given = key if isinstance(key, tuple) else (key,)
    items = _expand([_array_of(k, device) for k in given], shape, _width)
    entries: list[Entry] = []
    sizes: list[int] = []
    around: list[int] = []  # the result's axes but for the block
    slices = axis = 0
    position: tuple[int, int] | None = None  # of the block, among all and among sliced axes
    apart = False
    for k in items:
        if k is None or k is Ellipsis or isinstance(k, slice):
            apart = apart or position is not None  # also by an ellipsis that stands for no axis
            if k is Ellipsis:
                continue
            if k is None:
                around.append(1)
                continue
            start, stop, step = _slice_of(k, shape[axis])
            n = slice_length(start, stop, step)
            around.append(n)
            slices += 1
            found: list[Entry] = [Steps(start, stop, step, n)]
        else:
            if position is None:
                position = len(around), slices
            elif apart:
                position = 0, 0
            if isinstance(k, _Mask):
                found = list(_indices_of(k, shape, axis, device))
            else:
                found = [k if isinstance(k, Tensor) else _int_of(k, shape, axis)]
        entries += found
        if isinstance(k, _Mask) and not k.host.ndim:
            sizes.append(1)
        else:
            sizes += shape[axis : axis + len(found)]
            axis += len(found)
    at, before = position or (0, 0)
    block = broadcast_shapes(*(e.shape for e in entries if isinstance(e, Tensor)), op="x[key]: index tensors")
    return Advanced(tuple(sizes), tuple(entries), block, before, (*around[:at], *block, *around[at:]))
