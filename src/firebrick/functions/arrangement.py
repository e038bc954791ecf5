"""Joining, cutting, rolling and repeating: functions that arrange elements anew, as compositions of ops that move them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from firebrick.core.bind import bind
from firebrick.core.dtypes import int64
from firebrick.core.errors import OperandError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.shapes import normalize_axis, normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.checks import known_now, staged
from firebrick.functions.elementwise import astype, greater_equal, minimum
from firebrick.functions.movement import (
    _list,
    _operand,
    atleast_1d,
    atleast_2d,
    broadcast_to,
    concat,
    flip,
    join,
    reshape,
    split,
    swapaxes,
)
from firebrick.functions.ranges import arange
from firebrick.functions.statistical import cumulative_sum
from firebrick.ops import OPS


@answers_arguments
def hstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors joined along their second axis; vectors along their only one.

    Args:
        arrays: Tensors to join along their second axis (vectors: their first).

    Example:
        >>> import firebrick as fb
        >>> fb.hstack([fb.asarray([[1], [2]]), fb.asarray([[3], [4]])]).tolist()
        [[1, 3], [2, 4]]
    """
    found = [atleast_1d(a) for a in _list("hstack", arrays)]
    return join("hstack", found, 0 if found[0].ndim == 1 else 1)


@answers_arguments
def vstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors joined along their first axis; vectors as rows.

    Args:
        arrays: Tensors to join along their first axis; vectors become rows.

    Example:
        >>> import firebrick as fb
        >>> fb.vstack([fb.asarray([1, 2]), fb.asarray([3, 4])]).tolist()
        [[1, 2], [3, 4]]
    """
    return join("vstack", [atleast_2d(a) for a in _list("vstack", arrays)], 0)


@answers_arguments
def unstack(x: Tensor, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, without that axis: what ``stack`` joins again.

    Args:
        x: Tensor of at least one axis.
        axis: Axis to take apart.

    Example:
        >>> import firebrick as fb
        >>> [row.tolist() for row in fb.unstack(fb.asarray([[1, 2], [3, 4]]))]
        [[1, 2], [3, 4]]
    """
    _operand("unstack", x)
    at = normalize_axis(axis, x.ndim, "unstack")
    rest = (*x.shape[:at], *x.shape[at + 1 :])
    return tuple(reshape(part, rest) for part in split(x, 1, axis=at)) if x.shape[at] else ()


def _cut(x: Tensor, ends: Sequence[int], at: int) -> list[Tensor]:
    """Parts of x along an axis that end at these places."""
    return split(x, [b - a for a, b in zip((0, *ends), (*ends, x.shape[at]), strict=True)], axis=at)


@answers_arguments
def array_split(x: Tensor, sections: int | Sequence[int], /, axis: int = 0) -> list[Tensor]:
    """x cut into parts of nearly equal size, the first ones being larger, or at given indices.

    Args:
        x: Tensor.
        sections: Number of parts; or the places, rising, at which parts begin.
        axis: Axis that is cut.

    Example:
        >>> import firebrick as fb
        >>> [part.tolist() for part in fb.array_split(fb.asarray([1, 2, 3, 4, 5]), 3)]
        [[1, 2], [3, 4], [5]]
    """
    _operand("array_split", x)
    at = normalize_axis(axis, x.ndim, "array_split")
    n = x.shape[at]
    if isinstance(sections, (tuple, list)):
        ends = [whole("array_split", f"sections[{i}]", k) for i, k in enumerate(sections)]
        if ends != sorted(ends) or any(not 0 <= k <= n for k in ends):
            raise ShapeError(f"array_split: places rise from 0 to {n}", f"{sections} for shape {x.shape}", "sort them")
        return _cut(x, ends, at)
    count = _count("array_split", "sections", sections)
    return split(x, [n // count + (k < n % count) for k in range(count)], axis=at)


@answers_arguments
def chunk(x: Tensor, chunks: int, /, axis: int = 0) -> list[Tensor]:
    """x cut into at most ``chunks`` parts of one size, the last being smaller where it does not divide.

    Args:
        x: Tensor of at least one axis.
        chunks: How many parts at most, at least 1.
        axis: Axis to cut.

    Example:
        >>> import firebrick as fb
        >>> [part.tolist() for part in fb.chunk(fb.asarray([1, 2, 3, 4, 5]), 3)]
        [[1, 2], [3, 4], [5]]
    """
    _operand("chunk", x)
    at = normalize_axis(axis, x.ndim, "chunk")
    count = _count("chunk", "chunks", chunks)
    if not x.shape[at]:
        return split(x, [0] * count, axis=at)
    return split(x, -(-x.shape[at] // count), axis=at)


def _count(where: str, name: str, value: Any) -> int:
    try:
        found = index(value)
    except TypeError:
        found = 0
    if found < 1:
        raise ShapeError(f"{where}: {name} is an int ≥ 1", repr(value), "pass the number of parts")
    return found


@answers_arguments
def rot90(x: Tensor, /, k: int = 1, *, axes: Sequence[int] = (0, 1)) -> Tensor:
    """x turned ``k`` times by 90 degrees in the plane of two axes, from the first towards the second.

    Args:
        x: Tensor of at least two axes.
        k: How many quarter turns; negative ones turn back.
        axes: Two axes of x.

    Example:
        >>> import firebrick as fb
        >>> fb.rot90(fb.asarray([[1, 2], [3, 4]])).tolist()
        [[2, 4], [1, 3]]
    """
    _operand("rot90", x)
    k = whole("rot90", "k", k)
    if not isinstance(axes, (tuple, list)):
        raise ShapeError("rot90: axes are two different axes", f"axes={axes!r:.60}", "pass e.g. (0, 1)")
    at = [normalize_axis(a, x.ndim, "rot90") for a in axes]
    if len(at) != 2 or at[0] == at[1]:
        raise ShapeError("rot90: axes are two different axes", f"{axes} for shape {x.shape}", "pass e.g. (0, 1)")
    if k % 4 == 0:
        return reshape(x, x.shape)
    if k % 4 == 2:
        return flip(x, axis=tuple(at))
    if k % 4 == 1:
        return swapaxes(flip(x, axis=at[1]), *at)
    return flip(swapaxes(x, *at), axis=at[1])


@answers_arguments
def roll(x: Tensor, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved along axes; what leaves at the end comes back at the start.

    Args:
        x: Tensor.
        shift: By how many places; an int for each axis, or one for all. Negative ones move towards the start.
        axis: Axis or axes; None rolls the flat tensor and restores its shape.

    Example:
        >>> import firebrick as fb
        >>> fb.roll(fb.asarray([1, 2, 3, 4]), 1).tolist()
        [4, 1, 2, 3]
    """
    _operand("roll", x)
    if axis is None:
        if isinstance(shift, (tuple, list)):
            raise ShapeError("roll: several shifts need as many axes", f"shift={shift}, axis=None", "name the axes")
        return reshape(roll(reshape(x, (x.size,)), shift, axis=0), x.shape)
    axes = [normalize_axis(a, x.ndim, "roll") for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts: Sequence[Any] = shift if isinstance(shift, (tuple, list)) else [shift] * len(axes)
    if len(shifts) != len(axes):
        raise ShapeError("roll: one shift an axis, or one for all", f"shift={shift}, axis={axis}", "pair them")
    x = reshape(x, x.shape)  # another handle, also where nothing moves
    for a, by in zip(axes, shifts, strict=True):
        try:
            move = index(by) % x.shape[a] if x.shape[a] else 0
        except TypeError:
            raise ShapeError("roll: a shift is an int", repr(by), "pass an int") from None
        if move:
            head, tail = split(x, (x.shape[a] - move, move), axis=a)
            x = concat((tail, head), axis=a)
    return x


@answers_arguments
def tile(x: Tensor, repetitions: int | Sequence[int], /) -> Tensor:
    """x side by side with itself, ``repetitions[k]`` times along axis k; missing axes or repetitions are 1, in front.

    Args:
        x: Tensor.
        repetitions: How often along each of the last axes, none negative.

    Example:
        >>> import firebrick as fb
        >>> fb.tile(fb.asarray([1, 2]), (2, 2)).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    _operand("tile", x)
    times = normalize_shape(repetitions, "tile")
    n = max(x.ndim, len(times))
    times = (*(1,) * (n - len(times)), *times)
    sizes = (*(1,) * (n - x.ndim), *x.shape)
    apart = reshape(x, tuple(d for size in sizes for d in (1, size)))
    wide = broadcast_to(apart, tuple(d for pair in zip(times, sizes, strict=True) for d in pair))
    return reshape(wide, tuple(t * d for t, d in zip(times, sizes, strict=True)))


@answers_arguments
def repeat(
    x: Tensor, repeats: int | Sequence[int] | Tensor, /, axis: int | None = None, *, size: int | None = None,
) -> Tensor:  # fmt: skip
    """Each element repeated, its copies next to each other.

    Args:
        x: Tensor.
        repeats: How often each; an int for all, or one for each element along the axis (without ``size``, a tensor of them
            is read by the host, since the result's shape depends on it).
        axis: Axis to repeat along; None flattens x first.
        size: Length of the result along the axis, so that the shape depends on no value: the first ``size`` elements, or
            fewer filled up with the last element of x.

    Example:
        >>> import firebrick as fb
        >>> fb.repeat(fb.asarray([1, 2]), 2).tolist()
        [1, 1, 2, 2]
        >>> fb.repeat(fb.asarray([1, 2]), [3, 1]).tolist()
        [1, 1, 1, 2]
        >>> fb.repeat(fb.asarray([1, 2]), fb.asarray([2, 1]), size=4).tolist()
        [1, 1, 2, 2]
    """
    _operand("repeat", x)
    check_devices("repeat", x=x, repeats=repeats)
    length = None if size is None else whole("repeat", "size", size, 0)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    at = normalize_axis(axis, x.ndim, "repeat")
    n = x.shape[at]
    if isinstance(repeats, Tensor) and length is None:
        known_now("repeat", "the shape of its result", "repeats", repeats, "pass size=")
    times = _repeats(repeats)
    if length is not None:
        return _repeated(x, times, at, length)
    if isinstance(times, Tensor):
        times = times.numpy().astype(np.int64)
    if times.ndim == 0 or times.size == 1:
        count = int(times.reshape(()))
        lead, rest = x.shape[: at + 1], x.shape[at + 1 :]
        wide = broadcast_to(reshape(x, (*lead, 1, *rest)), (*lead, count, *rest))
        return reshape(wide, (*x.shape[:at], n * count, *rest))
    _one_each(x, times, at)
    places = hooks.from_host(np.repeat(np.arange(n), times), x.device)
    return bind(OPS["take"], (x, places), {"axis": at})  # type: ignore[no-any-return]


def _one_each(x: Tensor, times: np.ndarray[Any, Any] | Tensor, at: int) -> None:
    n = x.shape[at]
    if times.shape != (n,):
        raise ShapeError(
            f"repeat: repeats is an int, or {n} of them, one for each element of axis {at}",
            f"{times.size} repeats, {describe('x', x)}",
            "give each element its own",
        )


def _repeated(x: Tensor, times: np.ndarray[Any, Any] | Tensor, at: int, length: int) -> Tensor:
    """``length`` elements along an axis, whatever their numbers."""
    n = x.shape[at]
    if not n and length:
        raise ShapeError(f"repeat: x has no element to fill {length} places with", describe("x", x), "leave size out")
    counts: Tensor = times if isinstance(times, Tensor) else hooks.from_host(times, x.device)
    if counts.size == 1:
        counts = broadcast_to(reshape(counts, (1,)), (n,))
    _one_each(x, counts, at)
    ends = cumulative_sum(astype(counts, int64, copy=False), axis=0)
    # an element's place is how many of them end before it
    found: Tensor = bind(OPS["searchsorted"], (ends, arange(length, dtype=int64, device=x.device)), {"right": True})
    return bind(OPS["take"], (x, minimum(found, n - 1)), {"axis": at})  # type: ignore[no-any-return]


def _repeats(repeats: Any) -> np.ndarray[Any, Any] | Tensor:
    """Repeats as integers ≥ 0, of no or one axis: a tensor, or an array for ints."""

    def error() -> ShapeError:
        return ShapeError("repeat: repeats are ints ≥ 0 along one axis", shown, "check them")

    given: Any = repeats if isinstance(repeats, Tensor) else np.asarray(repeats)
    shown = describe("repeats", repeats) if isinstance(repeats, Tensor) else repr(repeats)
    if np.dtype(getattr(given.dtype, "np", given.dtype)).kind not in "iu" and given.size:
        raise OperandError("repeat: repeats is an int, a list of ints or an integer tensor", shown, "pass ints")
    if given.ndim > 1:
        raise error()
    if isinstance(given, Tensor):
        if not staged(lambda: greater_equal(given, 0), error) and given.size and int(given.numpy().min()) < 0:
            raise error()
        return given
    if given.size and int(given.min()) < 0:
        raise error()
    found: np.ndarray[Any, Any] = given.astype(np.int64)
    return found
