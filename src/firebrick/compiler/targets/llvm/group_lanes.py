"""``GroupLanes``: the items of a group on one thread, in loops over vectors that are cut at barriers.

Statements between two barriers are one loop over the group's items. Control flow around barriers is uniform, so it is scalar
control flow outside of these loops. A local that differs between items and lives across a barrier is an array in scratch
memory, unless it is cheaper to compute it again; a uniform one stays a scalar. A group that fits into one vector has no loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from firebrick.compiler.kernel.ir import (
    Assign,
    Barrier,
    Let,
    Shuffle,
    Statement,
    assigned,
    blocks,
    expressions,
    statements,
)
from firebrick.compiler.kernel.live import Names, live_after, live_before
from firebrick.compiler.targets.llvm.emit import literal, scalar_type
from firebrick.compiler.targets.llvm.lane_forms import LaneForm
from firebrick.compiler.targets.llvm.lane_memory import read_lanes, write_lanes
from firebrick.compiler.targets.llvm.masked import Masked, taken
from firebrick.compiler.targets.llvm.memory import Strip, tail_mask
from firebrick.compiler.targets.llvm.native import Loop
from firebrick.scalar.expr import Expr, walk

AGAIN = 24
"""Most nodes of a local's value that is computed again after a barrier."""
_EXPENSIVE = {"element", "sqrt", "philox", "rarely"}


@dataclass(frozen=True, slots=True)
class _Offer:
    """Half of a ``Shuffle``: each item leaves its value for the others."""

    shuffle: Shuffle
    room: Strip


@dataclass(frozen=True, slots=True)
class _Take:
    """The other half: each item reads the value of another one."""

    shuffle: Shuffle
    room: Strip


Part = Statement | _Offer | _Take


class GroupLanes:
    """Writes the body of one group.

    Args:
        masked: Writes statements; its values are those of arguments and outer indices.
        names: Those that differ between items.
    """

    def __init__(self, masked: Masked, names: Names) -> None:
        self.masked, self.names = masked, names
        self.code, self.function, self.lanes = masked.code, masked.function, masked.lanes.lanes
        self._assigned = assigned(self.function.body)
        self._slots: dict[str, int] = {}
        self._again: dict[str, Let] = {}
        self._item = LaneForm("0")

    def unit(self) -> None:
        """All items of the group."""
        masked, function = self.masked, self.function
        if function.group <= self.lanes:
            masked.values[function.item] = self._index("0")
            full = function.group == self.lanes
            masked.block(function.body, frozenset(), "" if full else tail_mask(self.code, str(function.group), self.lanes))
            return
        masked.inner = self._region
        self._region(function.body, frozenset(), "")
        masked.inner = masked.block

    def _region(self, body: tuple[Statement, ...], after: Names, mask: str) -> None:
        """Write a block that all items of the group execute."""
        masked = self.masked
        before, slots, again = masked.values, dict(self._slots), dict(self._again)
        masked.values = dict(before)
        parts: list[Part] = []
        for s, live in zip(body, live_after(body, after), strict=True):
            if not self._cut(s):
                parts.append(s)
                continue
            needed = live_before(s, live)
            if isinstance(s, Shuffle):
                masked.dtypes[s.name] = s.value.dtype
                room = masked.scratch.array(s.value.dtype, self.function.group)
                self._items([*parts, _Offer(s, room)], needed)
                parts = [_Take(s, room)]
                continue
            self._items(parts, needed)
            parts = []
            if not isinstance(s, Barrier):
                masked.write(s, live)
        self._items(parts, after)
        masked.values = {name: masked.values[name] for name in before}
        self._slots, self._again = slots, again

    def _index(self, first: str) -> LaneForm:
        """The index of the items of a vector, from that of its first one."""
        return LaneForm(first, 1, near=0) if self.lanes > 1 else LaneForm(first)

    def _cut(self, s: Statement) -> bool:
        """Whether a statement ends the loop over items: it has a barrier, or a shuffle between vectors."""
        return any(isinstance(t, Barrier) or (isinstance(t, Shuffle) and t.width > self.lanes) for t in statements((s,)))

    def _items(self, parts: list[Part], after: Names) -> None:
        """One loop over the items of the group, for statements without a barrier."""
        masked, code, function = self.masked, self.code, self.function
        parts = self._hoisted(parts, after)
        if not parts:
            return
        plain = tuple(p for p in parts if not isinstance(p, _Offer | _Take))
        changed = assigned(plain) | _defined(parts)
        live = self._before(parts, after)
        loaded = sorted(self._slots.keys() & (live | changed))
        dtypes = {s.name: s.value.dtype for s in statements(plain) if isinstance(s, Let | Assign) and s.name not in self.names}
        uniform = sorted(changed & after & dtypes.keys())
        carried = [(scalar_type(dtypes[n]), self._first(n, dtypes[n])) for n in uniform]
        outside = masked.values
        loop = Loop(code, "0", str(function.group), self.lanes, carried)
        item = self._index(loop.index)
        masked.values = {**outside, function.item: item}
        mask = ""
        if function.group % self.lanes:
            mask = tail_mask(code, code.put(f"sub i64 {function.group}, {loop.index}"), self.lanes)
        masked.mask = mask
        for name, let in self._again.items():
            masked.values[name] = masked.lanes.evaluated([let.value], mask)[0]
        for name in loaded:
            masked.values[name] = self._read(name, item)
        inner, masked.inner = masked.inner, masked.block
        self._parts(parts, after, item)
        masked.inner = inner
        for name in sorted(changed & self.names & masked.values.keys() - self._again.keys()):
            if name not in self._slots and (name in after or name in self._assigned):
                self._slots[name] = masked.scratch.room(masked.dtypes[name], function.group)
            if name in after:
                self._keep(name, item)
        masked.mask = ""
        loop.close([masked.values[n].base for n in uniform])
        masked.values = outside | {n: LaneForm(v) for n, v in zip(uniform, loop.values, strict=True)}

    def _first(self, name: str, dtype: str) -> str:
        """A uniform name's value before a loop over items."""
        known = self.masked.values.get(name)
        return known.base if known else literal(0, dtype)

    def _parts(self, parts: list[Part], after: Names, item: LaneForm) -> None:
        masked = self.masked
        lives = [after]
        for p in reversed(parts[1:]):
            lives.append(self._before([p], lives[-1]))
        for p, live in zip(parts, reversed(lives), strict=True):
            match p:
                case _Offer(shuffle, room):
                    value = masked.lanes.evaluated([shuffle.value], masked.mask)[0]
                    write_lanes(masked.lanes, room, item, masked.lanes.vector(value, shuffle.value.dtype), masked.mask)
                case _Take(shuffle, room):
                    masked.values[shuffle.name] = taken(masked, shuffle, room, item)
                case _:
                    masked.write(p, live)
                    if isinstance(p, Let) and self._cheap(p):
                        self._again[p.name] = p

    def _array(self, name: str) -> Strip:
        """The array that holds a local's values; its address is computed here, as no loop comes before all others."""
        return self.masked.scratch.at(self._slots[name], self.masked.dtypes[name])

    def _read(self, name: str, item: LaneForm) -> LaneForm:
        return self.masked.lanes.form(read_lanes(self.masked.lanes, self._array(name), item, self.masked.mask))

    def _keep(self, name: str, item: LaneForm) -> None:
        """Write a local's values to its array in scratch memory."""
        masked = self.masked
        value = masked.lanes.vector(masked.values[name], masked.dtypes[name])
        write_lanes(masked.lanes, self._array(name), item, value, masked.mask)

    def _before(self, parts: Iterable[Part], after: Names) -> Names:
        for p in reversed(list(parts)):
            match p:
                case _Offer(shuffle, _):
                    after = after | _locals([shuffle.value])
                case _Take(shuffle, _):
                    after = (after - {shuffle.name}) | _locals([shuffle.source])
                case _:
                    after = live_before(p, after)
        return after

    def _hoisted(self, parts: list[Part], after: Names) -> list[Part]:
        """The parts that are left when uniform locals are computed outside of the loop, as far as no part before minds."""
        masked = self.masked
        left: list[Part] = []
        for p in parts:
            if isinstance(p, Let | Assign) and p.name not in self.names:
                reads = _locals([p.value])
                before = tuple(q for q in left if not isinstance(q, _Offer | _Take))
                changed = assigned(before) | _defined(left)
                if not (reads & changed) and (isinstance(p, Let) or p.name not in changed | _read_by(left)):
                    masked.write(p, after)
                    continue
            left.append(p)
        return left

    def _cheap(self, s: Let) -> bool:
        """Whether a local that differs between items is computed again after a barrier rather than kept in memory."""
        if s.name not in self.names or s.name in self._assigned:
            return False
        nodes = walk([s.value])
        if len(nodes) > AGAIN or any(e.op in _EXPENSIVE for e in nodes):
            return False
        if any(e.op in ("div", "rem") and e.args[1].op != "const" for e in nodes):
            return False
        known = self._again.keys() | {self.function.item}
        return all(
            n in known or (n not in self.names and n not in self._assigned and n in self.masked.values)
            for n in _locals([s.value])
        )


def _locals(roots: Iterable[Expr]) -> Names:
    return frozenset(str(e.value) for e in walk(list(roots)) if e.op == "local")


def _defined(parts: Iterable[Part]) -> set[str]:
    """The names that parts define for those after them."""
    found = set()
    for p in parts:
        name = p.shuffle.name if isinstance(p, _Take) else "" if isinstance(p, _Offer) else getattr(p, "name", "")
        if name and not (not isinstance(p, _Offer | _Take) and blocks(p)):
            found.add(name)
    return found


def _read_by(parts: Iterable[Part]) -> set[str]:
    found: set[str] = set()
    for p in parts:
        if isinstance(p, _Take):
            found |= _locals([p.shuffle.source])
        elif not isinstance(p, _Offer):  # which is the last part
            for s in statements((p,)):
                found |= _locals(expressions(s))
    return found
