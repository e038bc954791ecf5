"""The values of a kernel's names for the items that execute a block together: ``Scope``.

A value is an array that broadcasts to the scope's shape, so that what is the same for all items is one number. The items that a
branch or a loop leaves active get a scope of their own, with one axis: names are read from the scope around it when they are
first used, and what is assigned to them is written back at its end. Whatever a block computes is therefore one array operation
over exactly the items that execute it.

The root scope, of all items of a wave, has the shape of a box of the grid. Names that are linear functions of the indices there
have a ``Linear`` too, by which accesses are slices instead of gathers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from firebrick.scalar.expr import Expr

Array = np.ndarray[Any, Any]
ID, ROW = "#item", "#row"
"""Names that no kernel has: the number of an item in the grid, and the row of its group in the memory of shared arrays."""
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Linear:
    """An integer of every item: ``base`` + Σ ``steps[a]`` · coordinate along axis a of the scope's shape.

    Attributes:
        base: Of the first item.
        steps: For each axis.
    """

    base: int
    steps: tuple[int, ...]

    def plus(self, other: Linear, times: int = 1) -> Linear:
        """The sum with a multiple of another."""
        return Linear(
            self.base + times * other.base, tuple(a + times * b for a, b in zip(self.steps, other.steps, strict=True))
        )

    def bounds(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The smallest and the largest of the integers."""
        reach = [s * (n - 1) for s, n in zip(self.steps, shape, strict=True)]
        return self.base + sum(min(r, 0) for r in reach), self.base + sum(max(r, 0) for r in reach)

    def array(self, shape: tuple[int, ...]) -> Array:
        """The integers, with size 1 along axes where they are the same."""
        out = np.full((1,) * len(shape), self.base, np.int64)
        for axis, (step, n) in enumerate(zip(self.steps, shape, strict=True)):
            if step:
                out = out + (np.arange(n) * step).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        return out if any(self.steps) else out.reshape(())


class Scope:
    """The names that items have while they execute a block together.

    Attributes:
        shape: Of the items; values broadcast to it.
        values: Of names, as far as they were used or defined here.
        forms: Of names of the root scope, as far as they are linear.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        values: Mapping[str, Array] | None = None,
        parent: Scope | None = None,
        at: Array | None = None,
    ) -> None:
        self.shape, self.values = shape, dict(values or {})
        self._parent, self._at = parent, at
        self.forms: dict[str, Linear] = {}
        self._local: set[str] = set()  # defined here
        self._changed: set[str] = set()  # to be written back
        self._private: set[str] = set()  # whose arrays may be written to

    @property
    def size(self) -> int:
        """The number of items."""
        return prod(self.shape)

    @cached_property
    def _coordinates(self) -> tuple[Array, ...]:
        assert self._parent is not None
        assert self._at is not None
        return tuple(np.unravel_index(self._at, self._parent.shape))

    def read(self, name: str) -> Array:
        """The value of a name, which is not to be written to."""
        found = self.values.get(name)
        if found is None:
            parent = self._parent
            found = self.forms[name].array(self.shape) if parent is None else self._taken(parent.read(name))
            self.values[name] = found
        return found

    def flat(self, name: str) -> Array:
        """The value of a name for each item, along one axis."""
        return self.spread(self.read(name))

    def spread(self, value: Array) -> Array:
        """A value for each item, along one axis."""
        return np.broadcast_to(value, self.shape).reshape(-1)

    def _taken(self, value: Array) -> Array:
        """The items' part of a value of the scope around this one."""
        assert self._parent is not None
        assert self._at is not None
        if not value.ndim:
            return value
        if value.shape == self._parent.shape:
            return np.asarray(value.reshape(-1)[self._at])
        places = zip(self._coordinates, value.shape, strict=True)
        return np.asarray(value[tuple(c if n > 1 else 0 for c, n in places)])

    def define(self, name: str, value: Array) -> None:
        """Give a name of a block of this scope its first value."""
        self._local.add(name)
        self._bind(name, value)

    def define_linear(self, name: str, form: Linear) -> None:
        """``define`` an integer of the root scope by its form; the array is made when it is needed."""
        self._local.add(name)
        self.values.pop(name, None)
        self._private.discard(name)
        self.forms[name] = form

    def assign(self, name: str, value: Array) -> None:
        """Give a name another value."""
        if name not in self._local:
            self._changed.add(name)
        self._bind(name, value)

    def _bind(self, name: str, value: Array) -> None:
        self.values[name] = value
        self._private.discard(name)
        self.forms.pop(name, None)

    def _update(self, name: str, at: Array, value: Array) -> None:
        """Assign to some of the items."""
        old = self.read(name)
        if name not in self._private:
            old = self.values[name] = np.array(np.broadcast_to(old, self.shape), order="C")
            self._private.add(name)
            self.forms.pop(name, None)
        old.reshape(-1)[at] = value
        if name not in self._local:
            self._changed.add(name)

    def part(self, holds: Array) -> Scope:
        """A scope of the items where a condition holds; to be finished."""
        at = np.flatnonzero(np.broadcast_to(holds, self.shape))
        return Scope(at.shape, parent=self, at=at)

    def finish(self) -> None:
        """Write back what was assigned to names of the scope around this one."""
        if self._parent is not None and self._at is not None:
            for name in self._changed:
                self._parent._update(name, self._at, self.values[name])

    def narrowed(self, holds: Array) -> Scope:
        """This scope without the items where a condition does not hold, for the next round of a loop; those are finished."""
        if self._parent is None or self._at is None:
            return self.part(holds)
        rest = ~holds
        for name in self._changed:
            value = self.values[name]
            self._parent._update(name, self._at[rest], value[rest] if value.ndim else value)
        at = self._at[holds]
        kept = {n: v[holds] if v.ndim else v for n, v in self.values.items() if n not in self._local}
        out = Scope(at.shape, kept, self._parent, at)
        out._changed = self._changed
        out._private = {n for n, v in kept.items() if v.ndim}
        return out

    def linear(self, order: list[Expr]) -> Linear | None:
        """The form of an int64 expression in the root scope, if all that it reads is linear or the same for all items.

        Args:
            order: Its nodes, operands first.
        """
        if self._parent is not None:
            return None
        found: dict[Expr, Linear] = {}
        zero = (0,) * len(self.shape)
        for e in order:
            args = [found[a] for a in e.args]
            match e.op:
                case "const":
                    form = Linear(int(e.value or 0), zero)
                case "local":
                    known = self.forms.get(str(e.value))
                    if known is None:
                        value = self.values.get(str(e.value))
                        if value is None or value.ndim:
                            return None
                        known = Linear(int(value), zero)
                    form = known
                case "add":
                    form = args[0].plus(args[1])
                case "sub":
                    form = args[0].plus(args[1], -1)
                case "neg":
                    form = Linear(0, zero).plus(args[0], -1)
                case "mul" if not any(args[1].steps):
                    form = Linear(0, zero).plus(args[0], args[1].base)
                case "mul" if not any(args[0].steps):
                    form = Linear(0, zero).plus(args[1], args[0].base)
                case _:
                    return None
            found[e] = form
        form = found[order[-1]]
        low, high = form.bounds(self.shape)
        return form if min(low, -high) >= -_LARGEST else None


LINEAR = frozenset({"const", "local", "add", "sub", "neg", "mul"})
"""The nodes that ``Scope.linear`` knows."""
