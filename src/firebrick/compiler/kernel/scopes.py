"""The values of a kernel's names for the items that execute a block together: ``Scope``.

A value is an array that broadcasts to the scope's shape, so that what is the same for all items is one number. The items that a
branch or a loop leaves active get a scope of their own: names are read from the scope around it when they are first used, and
what is assigned to them is written back at its end. Whatever a block computes is therefore one array operation over exactly the
items that execute it.

The root scope, of all items of a wave, has the shape of a box of the grid. So has a scope of items that are a box in it, such
as those inside of a boundary. Names that are linear functions of the indices have a form of these there (``linear_forms``).
All other scopes have one axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from firebrick.compiler.kernel.linear_forms import LinearForm, array_of, form_of
from firebrick.scalar.expr import Expr

Array = np.ndarray[Any, Any]
Places = Array | tuple[slice, ...]
"""Items of a scope: their numbers in it, or a box of them."""
ID, ROW = "#item", "#row"
"""Names that no kernel has: the number of an item in the grid, and the row of its group in the memory of shared arrays."""


class Scope:
    """The names that items have while they execute a block together.

    Attributes:
        shape: Of the items; values broadcast to it.
        values: Of names, as far as they were used or defined here.
        forms: Of names, as far as they are linear; none in a scope of one axis within another.
    """

    def __init__(self, shape: tuple[int, ...], values: Mapping[str, Array] | None = None) -> None:
        self.shape, self.values = shape, dict(values or {})
        self.forms: dict[str, LinearForm] = {}
        self._parent: Scope | None = None
        self._at: Places = ()  # in the scope around this one
        self._local: set[str] = set()  # defined here
        self._changed: set[str] = set()  # to be written back
        self._private: set[str] = set()  # whose arrays may be written to

    @property
    def size(self) -> int:
        """The number of items."""
        return prod(self.shape)

    def read(self, name: str) -> Array:
        """The value of a name, which is not to be written to."""
        found = self.values.get(name)
        if found is None:
            form = self.forms.get(name)
            if form is not None:
                found = array_of(form, self.shape)
            else:
                assert self._parent is not None
                found = self._taken(self._parent.read(name))
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
        if not value.ndim:
            return value
        if isinstance(self._at, tuple):
            return value[tuple([s if n > 1 else slice(None) for s, n in zip(self._at, value.shape, strict=True)])]
        if value.shape == self._parent.shape:
            return value.reshape(-1).take(self._at)
        places = zip(self._coordinates, value.shape, strict=True)
        return np.asarray(value[tuple([c if n > 1 else 0 for c, n in places])])

    @cached_property
    def _coordinates(self) -> tuple[Array, ...]:
        assert self._parent is not None
        return tuple(np.unravel_index(np.asarray(self._at), self._parent.shape))

    def define(self, name: str, value: Array) -> None:
        """Give a name of a block of this scope its first value."""
        self._local.add(name)
        self._bind(name, value)

    def define_linear(self, name: str, form: LinearForm) -> None:
        """``define`` an integer by its form; the array is made when it is needed."""
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

    def _update(self, name: str, at: Places, value: Array) -> None:
        """Assign to some of the items."""
        old = self.read(name)
        if name not in self._private:
            old = self.values[name] = np.array(np.broadcast_to(old, self.shape), order="C")
            self._private.add(name)
            self.forms.pop(name, None)
        if isinstance(at, tuple):
            old[at] = value
        else:
            old.reshape(-1)[at] = value
        if name not in self._local:
            self._changed.add(name)

    def part(self, holds: Array) -> Scope:
        """A scope of the items where a condition holds; to be finished."""
        box = _box(np.broadcast_to(holds, self.shape)) if self._parent is None or isinstance(self._at, tuple) else None
        if box is None:
            return self._within(np.flatnonzero(np.broadcast_to(holds, self.shape)))
        out = self._within(box, tuple([s.stop - s.start for s in box]))
        for name, form in self.forms.items():
            steps = [step if n > 1 else 0 for step, n in zip(form[1:], out.shape, strict=True)]
            out.forms[name] = (form[0] + sum(s.start * step for s, step in zip(box, form[1:], strict=True)), *steps)
        return out

    def _within(self, at: Places, shape: tuple[int, ...] | None = None) -> Scope:
        out = Scope(shape or (len(at),))
        out._parent, out._at = self, at
        return out

    def finish(self) -> None:
        """Write back what was assigned to names of the scope around this one."""
        if self._parent is not None:
            for name in self._changed:
                self._parent._update(name, self._at, self.values[name])

    def narrowed(self, holds: Array) -> Scope:
        """This scope without the items where a condition does not hold, for the next round of a loop; those are finished."""
        assert self._parent is not None
        if isinstance(self._at, tuple):
            self.finish()
            inside = np.zeros(self._parent.shape, np.bool_)
            inside[self._at] = holds
            return self._parent.part(inside)
        rest, places = np.flatnonzero(~holds), np.flatnonzero(holds)
        for name in self._changed:
            value = self.values[name]
            self._parent._update(name, self._at[rest], value[rest] if value.ndim else value)
        out = self._parent._within(self._at.take(places))
        out.values = {n: v.take(places) if v.ndim else v for n, v in self.values.items() if n not in self._local}
        out._changed = self._changed
        out._private = {n for n, v in out.values.items() if v.ndim}
        return out

    def linear(self, order: Sequence[Expr]) -> LinearForm | None:
        """The form of an int64 expression, if all that it reads is linear or the same for all items.

        Args:
            order: Its nodes, operands first, all of them of ``LINEAR``.
        """
        return form_of(order, self.shape, self._form) if self.forms else None

    def _form(self, name: str) -> LinearForm | None:
        form = self.forms.get(name)
        if form is None:
            value = self.read(name)
            form = None if value.ndim else (int(value), *(0 for _ in self.shape))
        return form


def _box(holds: Array) -> tuple[slice, ...] | None:
    """The box of the items where a condition holds, if they are one."""
    out, size = [], 1
    for axis in range(holds.ndim):
        some = np.flatnonzero(holds.any(axis=tuple([a for a in range(holds.ndim) if a != axis])))
        out.append(slice(int(some[0]), int(some[-1]) + 1))
        size *= out[-1].stop - out[-1].start
    return tuple(out) if size == np.count_nonzero(holds) else None
