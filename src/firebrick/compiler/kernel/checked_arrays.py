"""Memory of the interpreter with checks: bounds, races, and shared elements that are read before they are stored.

Two items must not access one element if one of the two stores it: not in a group without a barrier between the two accesses,
and never in different groups, or without groups. Atomic operations may meet each other. For each element it is kept who
accessed it last, in each of three ways, so that each access is compared with all those before it that matter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from firebrick.compiler.kernel.ir import ArrayParameter, Atomic, CompareExchange, Function, Statement, statements
from firebrick.compiler.kernel.item_errors import ItemErrors
from firebrick.compiler.kernel.scopes import ID, ROW, Scope
from firebrick.compiler.kernel.unchecked_arrays import Change, ValueOf, raw
from firebrick.core.dtypes import dtype
from firebrick.core.errors import ExecutionError, OutOfRangeError
from firebrick.scalar.expr import Expr, load
from firebrick.scalar.interpret import evaluate
from firebrick.scalar.storage import HALVES, decode, encode

Array = np.ndarray[Any, Any]
_NOBODY, _SEVERAL = -1, -2
_ALONE = "an element that an item stores is accessed by that item alone"
_APART = _ALONE + ", or by others of its group with a barrier between"


class _Last:
    """Who accessed each element of an array last, in one way: item, group, and the group's number of barriers then."""

    def __init__(self, size: int, items: int) -> None:
        kind = np.int32 if items < 1 << 31 else np.int64
        self.item, self.group = np.full(size, _NOBODY, kind), np.full(size, _NOBODY, kind)
        self.barriers = np.zeros(size, np.int64)

    def others(self, at: Array, item: Array, group: Array, barriers: Array) -> Array:
        """Whether an access of another item is not over at an access of these."""
        theirs = self.group[at]
        meets = (theirs == group) & (self.barriers[at] == barriers) & (self.item[at] != item)
        return np.asarray(meets | ((theirs != group) & (theirs != _NOBODY)))

    def add(self, at: Array, item: Array, group: Array, barriers: Array) -> None:
        """Remember accesses, several to one element too."""
        theirs = self.group[at]
        mine = theirs == group
        old = mine & (self.barriers[at] == barriers) & (self.item[at] != item)
        far = ~mine & (theirs != _NOBODY)
        self.barriers[at] = barriers
        for kept, new in ((self.group, np.where(far, _SEVERAL, group)), (self.item, np.where(far | old, _SEVERAL, item))):
            kept[at] = new
            kept[at[kept[at] != new]] = _SEVERAL  # items of this statement that access one element


class CheckedArrays:
    """The arrays of a launch and the shared ones of its groups."""

    def __init__(
        self, function: Function, arrays: Mapping[str, Array], items: int, errors: ItemErrors, unset: Collection[str]
    ) -> None:
        self._function, self._errors, self._items = function, errors, items
        self._arrays = {name: raw(x) for name, x in arrays.items()}
        self._dtypes = {a.name: a.dtype for a in function.arrays} | {a.name: a.dtype for a in function.shared}
        self._shared = {a.name: a for a in function.shared}
        self._atomics = {s.array for s in statements(function.body) if isinstance(s, Atomic | CompareExchange)}
        self._barriers = np.zeros(items // (function.group or 1), np.int64)  # how many each group, or item, has passed
        self._stores: dict[str, _Last] = {}
        self._loads: dict[str, _Last] = {}
        self._updates: dict[str, _Last] = {}
        self._stored = {name: np.zeros(arrays[name].size, np.bool_) for name in unset}
        memory: dict[tuple[int, int, int], list[ArrayParameter]] = {}
        for p in function.arrays:
            x = arrays[p.name]
            memory.setdefault((x.__array_interface__["data"][0], x.size, x.itemsize), []).append(p)
        for names in memory.values():  # of one array that is several parameters
            access = {p.access for p in names}
            if access != {"read"}:
                self._watch([p.name for p in names], access != {"write"})

    def _watch(self, names: list[str], read: bool) -> None:
        size = self._arrays[names[0]].size
        self._stores |= dict.fromkeys(names, _Last(size, self._items))
        if read:
            self._loads |= dict.fromkeys(names, _Last(size, self._items))
        if self._atomics.intersection(names):
            self._updates |= dict.fromkeys(names, _Last(size, self._items))

    def begin(self, rows: int) -> None:
        """Make the shared arrays of some groups."""
        for a in self._shared.values():
            self._arrays[a.name] = raw(np.zeros(rows * a.extent, dtype(a.dtype).np))
            self._stored[a.name] = np.zeros(rows * a.extent, np.bool_)
            self._watch([a.name], True)

    def load(self, s: Statement, name: str, index: Expr, scope: Scope, value: ValueOf) -> Array:
        """The elements that the items of a scope read."""
        index_of, at = self._places(s, name, value(index), scope)
        who = self._who(scope)
        self._known(s, name, index_of, at, who[0])
        self._alone(s, name, index_of, at, who, "reads", self._stores, self._updates)
        if name in self._loads:
            self._loads[name].add(at, *who)
        raw = self._arrays[name][at]
        half = self._dtypes[name]
        out = evaluate([decode(load(0, "uint16"), half)], [raw])[0] if half in HALVES else raw
        return np.asarray(out).reshape(scope.shape)

    def store(self, s: Statement, name: str, index: Expr, values: Array, scope: Scope, value: ValueOf) -> None:
        """Write the items' elements."""
        index_of, at = self._places(s, name, value(index), scope)
        who = item, group, barriers = self._who(scope)
        self._alone(s, name, index_of, at, who, "stores to", self._stores, self._loads, self._updates)
        last = self._stores[name]
        last.group[at], last.barriers[at], last.item[at] = group, barriers, item
        self._differ(s, name, index_of, item, last.item[at] != item, "stores to", last.item[at])
        if name in self._stored:
            self._stored[name][at] = True
        half, flat = self._dtypes[name], scope.spread(values)
        self._arrays[name][at] = evaluate([encode(load(0, "float32"), half)], [flat])[0] if half in HALVES else flat

    def update(
        self, s: Statement, name: str, at: Array, scope: Scope, order: Array | None, change: Change
    ) -> Array | None:  # fmt: skip
        """Change the items' elements one after the other. See ``UncheckedArrays.update``."""
        index_of, at = self._places(s, name, at, scope)
        who = self._who(scope)
        if not (isinstance(s, Atomic) and s.op == "exchange" and not s.name):
            self._known(s, name, index_of, at, who[0])
        self._alone(s, name, index_of, at, who, "updates", self._stores, self._loads)
        self._updates[name].add(at, *who)
        if name in self._stored:
            self._stored[name][at] = True
        return change(self._arrays[name], at if order is None else at[order])

    def barrier(self, s: Statement, scope: Scope) -> None:
        """What the items of these groups did before is over."""
        self._barriers[np.unique(scope.flat(ID) // self._function.group)] += 1

    def _who(self, scope: Scope) -> tuple[Array, Array, Array]:
        item = scope.flat(ID)
        group = item // (self._function.group or 1)
        return item, group, self._barriers[group]

    def _places(self, s: Statement, name: str, at: Array, scope: Scope) -> tuple[Array, Array]:
        """The items' indices, which are in range, and the positions in memory that they have."""
        at = scope.spread(at)
        a = self._shared.get(name)
        size = self._arrays[name].size if a is None else a.extent
        bad = (at < 0) | (at >= size)
        if bad.any():
            first = int(np.argmax(bad))
            self._errors.fail(
                OutOfRangeError, s, scope.flat(ID)[first], f"an index of {name} is at least 0 and below {size}",
                f"index {at[first]}", "correct the index, or put the access into an If",
            )  # fmt: skip
        return at, at if a is None else at + scope.flat(ROW) * a.extent

    def _known(self, s: Statement, name: str, index: Array, at: Array, item: Array) -> None:
        if name in self._stored:
            bad = ~self._stored[name][at]
            if bad.any():
                first = int(np.argmax(bad))
                self._errors.fail(
                    ExecutionError, s, item[first], "an element that has no value is stored before it is read",
                    f"{name}[{index[first]}], which no item {'of the group ' * (name in self._shared)}has stored",
                    "store it" + ", and put a Barrier between the two" * (name in self._shared),
                )  # fmt: skip

    def _alone(
        self, s: Statement, name: str, index: Array, at: Array, who: tuple[Array, Array, Array], verb: str,
        *earlier: dict[str, _Last],
    ) -> None:  # fmt: skip
        """Refuse an access to an element that another item accesses too, where one of the two would see the other's."""
        for kind in earlier:
            last = kind.get(name)
            if last is not None:
                self._differ(s, name, index, who[0], last.others(at, *who), verb, last.item[at])

    def _differ(self, s: Statement, name: str, index: Array, item: Array, bad: Array, verb: str, others: Array) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            other = (
                "several other items access"
                if others[first] == _SEVERAL
                else f"item {self._errors.item(others[first])} accesses"
            )
            self._errors.fail(
                ExecutionError, s, item[first], _APART if self._function.group else _ALONE,
                f"it {verb} {name}[{index[first]}], which {other} too", "let one item do both, or use another array"
                + (", or put a Barrier between the two" if self._function.group else ""),
            )  # fmt: skip
