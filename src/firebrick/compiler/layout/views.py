"""``Seen``: how a value lies in the memory of another, and what the ops that only move elements make of that.

Offsets and strides are in elements. Each rule says how its node's result lies, or None where no offset and strides do:
a reshape that merges axes which do not follow each other in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firebrick.core.indexing import strides_of
from firebrick.core.shapes import slice_length
from firebrick.ir import Node


@dataclass(frozen=True, slots=True)
class Seen:
    """A view: the element at position 0 of every axis lies at ``offset``, its neighbours at ``strides``."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def in_rows(self) -> bool:
        """Whether its elements follow each other in memory, in row-major order."""
        if 0 in self.shape:
            return True
        found = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        return [s for _, s in found] == strides_of([d for d, _ in found])


def rows(shape: tuple[int, ...]) -> Seen:
    """All of a row-major array."""
    return Seen(0, shape, tuple(strides_of(shape)))


def seen(n: Node, slot: int, x: Seen) -> Seen | None:
    """How result number ``slot`` of a node lies in the memory in which its operand lies as ``x``."""
    shape = n.avals[slot].shape
    if 0 in shape:
        return Seen(0, shape, tuple(strides_of(shape)))
    return RULES[n.op.name](n, slot, x)


def reshaped(shape: tuple[int, ...], strides: tuple[int, ...], goal: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of memory of this shape and these strides in another shape of as many elements, at least one; None if
    there are none."""
    axes = [(d, s) for d, s in zip(shape, strides, strict=True) if d != 1]
    sizes = [d for d in goal if d != 1]
    made: list[int] = []
    i = j = 0
    while i < len(axes):
        first, start = i, j
        here, there = axes[i][0], sizes[j]
        i, j = i + 1, j + 1
        while here != there:
            if here < there:
                here, i = here * axes[i][0], i + 1
            else:
                there, j = there * sizes[j], j + 1
        if any(axes[k][1] != axes[k + 1][0] * axes[k + 1][1] for k in range(first, i - 1)):
            return None
        step = axes[i - 1][1]
        for d in reversed(sizes[start:j]):
            made.insert(start, step)
            step *= d
    found = iter(made)
    return tuple(0 if d == 1 else next(found) for d in goal)


def _reshape(n: Node, slot: int, x: Seen) -> Seen | None:
    shape = n.avals[0].shape
    strides = reshaped(x.shape, x.strides, shape)
    return None if strides is None else Seen(x.offset, shape, strides)


def _permute(n: Node, slot: int, x: Seen) -> Seen:
    return Seen(x.offset, n.avals[0].shape, tuple(x.strides[a] for a in n.params["axes"]))


def _broadcast_to(n: Node, slot: int, x: Seen) -> Seen:
    shape = n.avals[0].shape
    kept = tuple(0 if d == 1 else s for d, s in zip(x.shape, x.strides, strict=True))
    return Seen(x.offset, shape, (0,) * (len(shape) - len(kept)) + kept)


def _flip(n: Node, slot: int, x: Seen) -> Seen:
    axes = n.params["axes"]
    offset = x.offset + sum((x.shape[a] - 1) * x.strides[a] for a in axes)
    return Seen(offset, x.shape, tuple(-s if a in axes else s for a, s in enumerate(x.strides)))


def _slice(n: Node, slot: int, x: Seen) -> Seen:
    starts, stops, steps = (n.params[k] for k in ("starts", "stops", "steps"))
    offset = x.offset + sum(a * s for a, s in zip(starts, x.strides, strict=True))
    shape = tuple(map(slice_length, starts, stops, steps))
    strides = tuple(c * s for c, s in zip(steps, x.strides, strict=True))
    goal = n.avals[0].shape
    if shape != goal:  # axes of size 1 dropped or put in
        rest = iter([s for d, s in zip(shape, strides, strict=True) if d != 1])
        strides = tuple(0 if d == 1 else next(rest) for d in goal)
    return Seen(offset, goal, strides)


def _split(n: Node, slot: int, x: Seen) -> Seen:
    start = sum(n.params["sizes"][:slot]) * x.strides[n.params["axis"]]
    return Seen(x.offset + start, n.avals[slot].shape, x.strides)


RULES: dict[str, Callable[[Node, int, Seen], Seen | None]] = {
    "reshape": _reshape, "permute": _permute, "broadcast_to": _broadcast_to, "flip": _flip, "slice": _slice, "split": _split,
}  # fmt: skip
