"""How entries read elements elsewhere than at the position of their result: the ``access`` fields of indexing and random ops.

``element`` makes the scalar expression of a result's element of what a ``Reader`` gives. An index out of range is clamped, and
its fault is reported. A scatter with one update for each row is a choice for each element; others have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

from firebrick.core.aval import Aval
from firebrick.core.indexing import strides_of
from firebrick.core.op import Access
from firebrick.scalar import elements
from firebrick.scalar.complex_numbers import by_parts
from firebrick.scalar.expr import BITS, COMPLEX, Expr, cast, const, eq, index, maximum, minimum, select

Strides = Sequence[int]
LARGE, LONG, ROW = 1 << 14, 16, 8
"""Elements of an array, of its axis, and of what an index selects, from which on one update is written alone."""


class Reader(Protocol):
    """What the expression of a result's element can be made of. Operands are named by their number."""

    rank: int
    """Axes of the kernel; those of the result are its last ones."""

    def value(self, operand: int) -> Expr:
        """An operand's element at the kernel's position."""

    def stored(self, operand: int) -> bool:
        """Whether an operand lies in memory as a whole, row by row."""

    def load(self, operand: int, strides: Strides) -> Expr:
        """An element of a stored operand, through strides along the result's axes."""

    def gather(self, operand: int, strides: Strides, at: Expr) -> Expr:
        """The element ``at`` elements behind that one."""

    def moved(self, operand: int, at: Expr) -> Expr:
        """An operand's element at position ``at`` of the kernel's last axis."""

    def inside(self, at: Expr, size: int) -> Expr:
        """An index into ``size`` elements, counted from the front."""

    def position(self, strides: Strides) -> Expr:
        """The sum of the positions along the result's axes times strides."""


def _take(reader: Reader, operands: Sequence[Aval], result: Aval, *, axis: int) -> Expr:
    x, at = operands
    strides = strides_of(x.shape)
    if x.ndim == 1:
        found = reader.value(1)
    else:
        found = reader.load(1, [0] * axis + [*strides_of(at.shape), *(0 for _ in range(axis + 1, x.ndim))])
    rest = [*strides[:axis], *(0 for _ in at.shape), *strides[axis + 1 :]]
    return reader.gather(0, rest, reader.inside(found, x.shape[axis]) * strides[axis])


def _gather(reader: Reader, operands: Sequence[Aval], result: Aval, *, axis: int) -> Expr:
    x = operands[0]
    found = reader.inside(reader.value(1), x.shape[axis])
    if not reader.stored(0):
        return reader.moved(0, found)
    strides = strides_of(x.shape)
    return reader.gather(0, [0 if a == axis else s for a, s in enumerate(strides)], found * strides[axis])


def _ravel_index(reader: Reader, operands: Sequence[Aval], result: Aval, *, sizes: Any, strides: Any, offset: int) -> Expr:
    out = const(offset, "int64")
    for i, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        out = out + reader.inside(reader.value(i), size) * stride
    return out


def scattered(put: Callable[..., Expr]) -> Callable[..., Expr]:
    """One update for each row along the axis: where it falls, ``put`` of the element and the update."""

    def element(reader: Reader, operands: Sequence[Aval], result: Aval, *, axis: int, **more: Any) -> Expr:
        x, at, update = (reader.value(i) for i in range(3))
        size = operands[0].shape[axis]
        here = reader.inside(at, size)
        there = index(axis) if size > 1 else const(0, "int64")
        if size < 1 << 31 and BITS[COMPLEX.get(x.dtype, x.dtype)] <= 32:
            here, there = cast(here, "int32"), cast(there, "int32")
        return by_parts(lambda old, new: select(eq(there, here), put(old, new, **more), old), x, update)

    return element


def fold(x: Expr, update: Expr, mode: str) -> Expr:
    """The element of ``scatter_reduce``."""
    return {"mul": elements.multiply, "min": minimum, "max": maximum}[mode](x, update)


def _random(word: Callable[..., Expr]) -> Callable[..., Expr]:
    def element(reader: Reader, operands: Sequence[Aval], result: Aval, *, shape: Any, offset: int, **more: Any) -> Expr:
        key = [reader.gather(0, [0] * len(shape), const(i, "int64")) for i in range(4)]
        return word(key, reader.position(strides_of(shape)) + offset, **more)

    return element


def _indexed(shapes: Sequence[Any], axis: int) -> str:
    return "" if shapes[0][axis] else "no elements"


TAKE = Access(
    _take, lambda shapes, axis: (0,) if len(shapes[0]) == 1 else (0, 1), lambda shapes, axis: _indexed(shapes, axis)
)  # fmt: skip
GATHER = Access(
    _gather, lambda shapes, axis: (0,), lambda shapes, axis: _indexed(shapes, axis),
    lambda shapes, axis: axis == len(shapes[0]) - 1 and shapes[1][-1] == 1,
)  # fmt: skip
RAVEL_INDEX = Access(_ravel_index, lambda shapes, **_: (), lambda shapes, sizes, **_: "" if all(sizes) else "no elements",
                     form="position")  # fmt: skip


def _drawn(word: Callable[..., Expr]) -> Access:
    return Access(_random(word), lambda shapes, **_: (0,), lambda shapes, **_: "", form="random", of=word)


RANDOM_BITS = _drawn(elements.random_bits)
RANDOM_UNIFORM = _drawn(lambda key, at, dtype: elements.random_uniform(key, at, dtype.name))


def one_update(put: Callable[..., Expr]) -> Access:
    """Of a scatter: where there is one update for each row along the axis. Of a large array with long rows, a kernel of its own
    writes the updates alone, over an array that is dead after it (a cache of keys, one token at a time)."""

    def by_element(shapes: Sequence[Any], axis: int) -> bool:
        inner = prod(shapes[0][axis + 1 :])
        return bool(shapes[1][axis] == 1 and (prod(shapes[0]) < LARGE or shapes[0][axis] < LONG or inner < ROW))

    return Access(
        scattered(put),
        lambda shapes, axis, **_: () if by_element(shapes, axis) else (1,),
        lambda shapes, axis, **_: None if not by_element(shapes, axis) else _indexed(shapes, axis), form="update", of=put,
    )  # fmt: skip


def spread(strides: Strides, shape: Sequence[int], to: Sequence[int]) -> tuple[int, ...]:
    """Strides of an array of ``shape`` in the shape ``to``: 0 along axes that it lacks or that have size 1."""
    own = tuple(0 if d == 1 else s for d, s in zip(shape, strides, strict=True))
    return (0,) * (len(to) - len(shape)) + own
