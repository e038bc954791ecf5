"""``View``: where the elements of an array lie in a buffer, behind any chain of ops that only move elements.

This is the one form of strides and offsets that compilers use. An index along an axis is a number whose digits, the last
fastest, each step through memory by their own stride: so axes that were permuted and then merged by a reshape need no copy.
Most axes have one digit; then ``strides`` has one number for each axis, as in NumPy. Offsets and strides are in elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

from firebrick.core.shapes import slice_length


class Digit(NamedTuple):
    """A part of an index: its size, and the elements of memory between neighbours."""

    size: int
    stride: int


Digits = tuple[Digit, ...]
"""Those of one index, the last fastest; their sizes multiply to the axis's."""
ONE = Digit(1, 0)


@dataclass(frozen=True, slots=True)
class View:
    """A view of a buffer.

    Attributes:
        axes: For each axis its digits.
        offset: Of the element at position 0 of every axis.

    Example:
        >>> from firebrick.core.views import row_major
        >>> x = row_major((2, 6, 4)).permuted((0, 2, 1))
        >>> x.shape, x.strides
        ((2, 4, 6), (24, 1, 4))
        >>> x.reshaped((8, 6))
        View(axes=((Digit(size=2, stride=24), Digit(size=4, stride=1)), (Digit(size=6, stride=4),)), offset=0)
    """

    axes: tuple[Digits, ...]
    offset: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(map(size, self.axes))

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Elements between neighbours along each axis; None if an axis has several digits."""
        if any(len(axis) != 1 for axis in self.axes):
            return None
        return tuple(stride for ((_, stride),) in self.axes)

    @property
    def in_rows(self) -> bool:
        """Whether its elements follow each other in memory, in row-major order."""
        left = merged([digit for axis in self.axes for digit in axis])
        return any(n == 0 for n, _ in left) or len(left) == 0 or (len(left) == 1 and left[0][1] == 1)

    @property
    def shown(self) -> int:
        """Elements of memory that it shows, at most."""
        return prod(d.size for axis in self.axes for d in axis if d.stride)

    def covers(self, elements: int) -> bool:
        """Whether it shows every element of a buffer of ``elements``, forwards."""
        digits = [(n, s) for axis in self.axes for n, s in axis if s != 0 and n != 1]
        return self.offset == 0 and all(s > 0 for _, s in digits) and prod(n for n, _ in digits) == elements

    def permuted(self, axes: Sequence[int]) -> View:
        """Axes in another order."""
        return View(tuple(self.axes[a] for a in axes), self.offset)

    def broadcast_to(self, shape: Sequence[int]) -> View:
        """Repeated along axes that it lacks or that have size 1."""
        own = ((ONE,),) * (len(shape) - len(self.axes)) + self.axes
        return View(tuple((Digit(d, 0),) if size(axis) == 1 else axis for axis, d in zip(own, shape, strict=True)), self.offset)

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in the same order in another shape; None where an axis would begin inside of a digit."""
        if 0 in shape:
            return row_major(shape)
        left = merged([digit for axis in self.axes for digit in axis])
        out: list[Digits] = []
        for wanted in reversed(shape):
            axis: list[Digit] = []
            while wanted > 1:
                n, stride = left.pop()
                if wanted % n == 0:
                    axis.append(Digit(n, stride))
                    wanted //= n
                elif n % wanted == 0:
                    axis.append(Digit(wanted, stride))
                    left.append(Digit(n // wanted, stride * wanted))
                    wanted = 1
                else:
                    return None
            out.append(tuple(reversed(axis)) or (ONE,))
        return View(tuple(reversed(out)), self.offset)

    def of_parts(self, part: int) -> View:
        """Of elements that are two numbers each, number ``part`` (0 or 1); offsets and strides are then in numbers."""
        return View(tuple(tuple(Digit(n, 2 * s) for n, s in axis) for axis in self.axes), 2 * self.offset + part)

    def flipped(self, axes: Sequence[int]) -> View:
        """Elements in reverse order along some axes."""
        offset, out = self.offset, list(self.axes)
        for a in axes:
            offset += sum((n - 1) * s for n, s in out[a])
            out[a] = tuple(Digit(n, -s) for n, s in out[a])
        return View(tuple(out), offset)

    def sliced(self, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> View | None:
        """A part along each axis, as ``firebrick.ops.movement.slice_``; None where an axis of several digits is cut."""
        offset, out = self.offset, []
        for axis, start, stop, step in zip(self.axes, starts, stops, steps, strict=True):
            length = slice_length(start, stop, step)
            if (start, length, step) == (0, size(axis), 1):
                out.append(axis)
            elif len(axis) == 1:
                ((_, stride),) = axis
                offset += start * stride
                out.append((Digit(length, step * stride),))
            else:
                return None
        return View(tuple(out), offset)


def row_major(shape: Sequence[int]) -> View:
    """An array whose elements follow each other in memory, the last axis fastest."""
    return strided(shape, [prod(shape[i + 1 :]) for i in range(len(shape))])


def strided(shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> View:
    """An array with one stride for each axis."""
    return View(tuple((Digit(d, s),) for d, s in zip(shape, strides, strict=True)), offset)


def size(axis: Sequence[Digit]) -> int:
    """The size of an axis."""
    return prod(d for d, _ in axis)


def merged(digits: Iterable[Digit]) -> list[Digit]:
    """The fewest digits that step through memory in the same way."""
    out: list[Digit] = []
    for n, stride in digits:
        if n == 1:
            continue
        if out and out[-1].stride == n * stride:
            out[-1] = Digit(out[-1].size * n, stride)
        else:
            out.append(Digit(n, stride))
    return out


def cuts(*shapes: Sequence[int]) -> list[int] | None:
    """How many elements follow each position at which an axis of some shape begins, the fewest first; the shapes are of one
    size.

    None if a shape cuts another's axis inside of a digit: then what is repeated along axes of one has no strides in the other.
    """
    found = {1}
    for shape in shapes:
        n = 1
        for d in reversed(shape):
            n *= d
            found.add(n)
    out = sorted(found)
    return out if all(b % a == 0 for a, b in pairwise(out)) else None
