"""``Layout``: how an array lies in memory behind views of any kind, each of its axes as digits with a stride of their own.

An index along an axis is a number whose digits, the last fastest, each step through memory by their own stride: so axes that
were permuted and then merged by a reshape need no copy. ``reshaped`` fails only where an axis is cut amid a digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from firebrick.core.indexing import strides_of

Digit = tuple[int, int]
"""How many places, and elements of memory between them."""
Layout = tuple[tuple[Digit, ...], ...]
"""For each axis its digits, the last fastest; their sizes multiply to the axis's."""


def row_major(shape: Sequence[int]) -> Layout:
    """An array that lies row by row."""
    return strided(shape, strides_of(tuple(shape)))


def strided(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """An array with one stride for each axis."""
    return tuple(((d, s),) for d, s in zip(shape, strides, strict=True))


def permuted(x: Layout, axes: Sequence[int]) -> Layout:
    """Axes in another order."""
    return tuple(x[a] for a in axes)


def broadcast(x: Layout, shape: Sequence[int]) -> Layout:
    """Repeated along axes that it lacks or that have size 1."""
    own = (((1, 0),),) * (len(shape) - len(x)) + x
    return tuple(((d, 0),) if size(axis) == 1 else axis for axis, d in zip(own, shape, strict=True))


def size(axis: Sequence[Digit]) -> int:
    """Places along an axis."""
    n = 1
    for d, _ in axis:
        n *= d
    return n


def reshaped(x: Layout, shape: Sequence[int]) -> Layout | None:
    """The same elements in the same order in another shape; None where an axis would begin amid a digit. No axis is empty."""
    left = merged([digit for axis in x for digit in axis])
    out: list[tuple[Digit, ...]] = []
    for wanted in reversed(shape):
        axis: list[Digit] = []
        while wanted > 1:
            n, stride = left.pop()
            if wanted % n == 0:
                axis.append((n, stride))
                wanted //= n
            elif n % wanted == 0:
                axis.append((wanted, stride))
                left.append((n // wanted, stride * wanted))
                wanted = 1
            else:
                return None
        out.append(tuple(reversed(axis)) or ((1, 0),))
    return tuple(reversed(out))


def merged(digits: Sequence[Digit]) -> list[Digit]:
    """The fewest digits that step through memory in the same way."""
    out: list[Digit] = []
    for n, stride in digits:
        if n == 1:
            continue
        if out and out[-1][1] == n * stride:
            out[-1] = out[-1][0] * n, stride
        else:
            out.append((n, stride))
    return out


def viewed(x: Layout, op: str, params: dict[str, Any], shape: Sequence[int]) -> Layout | None:
    """A view of an array by one of the ops ``VIEWS``, of this shape; None if it needs a copy."""
    if op == "permute":
        return permuted(x, params["axes"])
    return broadcast(x, shape) if op == "broadcast_to" else reshaped(x, shape)


VIEWS = ("broadcast_to", "permute", "reshape")


def cuts(*shapes: Sequence[int]) -> list[int] | None:
    """How many elements lie behind each place where an axis of some shape begins, the fewest first; shapes are of one size.

    None if a shape cuts another's axis amid a digit: then what is repeated along axes of one has no strides in the other.
    """
    found = {1}
    for shape in shapes:
        n = 1
        for d in reversed(shape):
            n *= d
            found.add(n)
    out = sorted(found)
    return out if all(b % a == 0 for a, b in pairwise(out)) else None
