"""Memory of the interpreter without checks: ``UncheckedArrays``. An index out of range accesses the nearest element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from firebrick.compiler.kernel.ir import Function, Statement
from firebrick.compiler.kernel.linear_forms import LINEAR, LinearForm, added, extremes, sliced
from firebrick.compiler.kernel.scopes import ROW, Scope
from firebrick.core.dtypes import dtype
from firebrick.scalar.expr import Expr, walk
from firebrick.scalar.storage import HALVES

Array = np.ndarray[Any, Any]
ValueOf = Callable[[Expr], Array]
"""The value of an expression in the items of a scope."""
Change = Callable[[Array, Array], Array | None]
"""A change of elements at indices."""


class UncheckedArrays:
    """The arrays of a launch and the shared ones of its groups, accessed by slices where indices are linear."""

    def __init__(self, function: Function, arrays: Mapping[str, Array]) -> None:
        self._shared = {a.name: a for a in function.shared}
        self._arrays = {name: raw(x) for name, x in arrays.items()}
        dtypes = {a.name: a.dtype for a in function.arrays} | {a.name: a.dtype for a in function.shared}
        self._halves = {name: dtype(d).np for name, d in dtypes.items() if d in HALVES}
        self._orders: dict[Expr, tuple[Expr, ...] | None] = {}

    def begin(self, rows: int) -> None:
        """Make the shared arrays of some groups."""
        for a in self._shared.values():
            self._arrays[a.name] = raw(np.zeros(rows * a.extent, dtype(a.dtype).np))

    def load(self, s: Statement, name: str, index: Expr, scope: Scope, value: ValueOf) -> Array:
        """The elements that the items of a scope read; a view of the array if it can be."""
        array, form = self._arrays[name], self._form(name, index, scope)
        if form is not None:
            out = sliced(array, form, scope.shape)
        elif not array.size:
            out = np.zeros(scope.shape, array.dtype)
        else:
            out = array.take(self._places(name, value(index), scope), mode="clip")
        half = self._halves.get(name)
        return np.asarray(out if half is None else out.view(half).astype(np.float32))

    def store(self, s: Statement, name: str, index: Expr, values: Array, scope: Scope, value: ValueOf) -> None:
        """Write the items' elements."""
        array, form, half = self._arrays[name], self._form(name, index, scope), self._halves.get(name)
        values = values if half is None else values.astype(half).view(np.uint16)
        if form is not None and all(step or n == 1 for step, n in zip(form[1:], scope.shape, strict=True)):
            sliced(array, form, scope.shape)[...] = values
        elif array.size:
            at = np.broadcast_to(self._places(name, value(index), scope), scope.shape)
            array.put(at, np.broadcast_to(values, scope.shape), mode="clip")

    def update(
        self, s: Statement, name: str, at: Array, scope: Scope, order: Array | None, change: Change
    ) -> Array | None:  # fmt: skip
        """Change the items' elements one after the other.

        Args:
            s: The statement.
            name: Of the array.
            at: Index of each item.
            scope: Of the items.
            order: Of the items, if it is not that of their numbers.
            change: What to do with the elements and the indices.

        Returns:
            What ``change`` does.
        """
        array = self._arrays[name]
        if not array.size:
            return change(np.zeros(1, array.dtype), np.zeros(scope.size, np.int64))
        at = np.clip(scope.spread(self._places(name, at, scope)), 0, array.size - 1)
        return change(array, at if order is None else at[order])

    def barrier(self, s: Statement, scope: Scope) -> None:
        """Nothing is left to do: all items are here."""

    def _places(self, name: str, at: Array, scope: Scope) -> Array:
        """Positions in memory; those of arrays that are not shared are clamped by the access."""
        a = self._shared.get(name)
        return at if a is None else np.clip(at, 0, a.extent - 1) + scope.read(ROW) * a.extent

    def _form(self, name: str, index: Expr, scope: Scope) -> LinearForm | None:
        """The positions in memory, if they are linear and in range."""
        if index not in self._orders:
            order = walk([index])
            self._orders[index] = order if all(e.op in LINEAR for e in order) else None
        order_or_none = self._orders[index]
        form = None if order_or_none is None else scope.linear(order_or_none)
        if form is None:
            return None
        low, high = extremes(form, scope.shape)
        a = self._shared.get(name)
        if low < 0 or high >= (self._arrays[name].size if a is None else a.extent):
            return None
        if a is None:
            return form
        return added(form, scope.forms[ROW], a.extent) if ROW in scope.forms else None


def raw(x: Array) -> Array:
    """Memory of half precision as its bits."""
    return x.view(np.uint16) if x.dtype.name in HALVES else x
