"""``fuse``: connected elementwise nodes, and reductions along rows, become one ``fused`` node, which an engine compiles.

Nodes of a group have one region and one shape; reductions along its last axis, which keep that axis, and what is computed from
their results belong to the group of the whole rows. A reduction along columns, and a
contraction, is a group of its own. Constants of one element and views that only change strides
(``broadcast_to``, axes of size 1 put in or dropped, outer axes permuted) are taken into the groups that read them; a value that
is used outside is one of the group's results. No group waits for what waits for it: two are joined only if no path leads from
one through a third into the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from firebrick.compiler.fused import FUSED
from firebrick.compiler.indexed import INDEXED, NUMBERED, along_rows, whole
from firebrick.core.aval import Aval
from firebrick.ir import CONSTANT, Graph, Node

Can = Callable[[Node, tuple[Aval, ...]], str]
"""How an engine can compute a node in a kernel, one of ``KINDS``; else why not."""

MAP, ROWS, COLUMNS, CONTRACT, ALONE = KINDS = "map", "rows", "columns", "contract", "alone"

MOST = 200
"""Nodes of a group at most: a kernel's code grows with them, and its values have to find room in registers."""
ONE, TWO, THREE = 1 << 15, 1 << 12, 1
"""From so many elements on a group of one, two, or more nodes has a kernel; below, its call costs more than it saves."""
REDUCED = 1 << 9
"""The same for groups with reductions."""


def fuse(graph: Graph, can: Can, reasons: list[str] | None = None) -> Graph:
    """A graph that computes the same with elementwise nodes in groups.

    Args:
        graph: Program; it is not changed.
        can: Which nodes the engine has a kernel for.
        reasons: Takes a line for each elementwise node that stays alone, if given.

    Returns:
        A graph of the same inputs and outputs; ``graph`` itself if nothing is fused.
    """
    found = _Groups(graph, can, reasons if reasons is not None else [])
    return _rewritten(graph, found) if found.any else graph


@dataclass(slots=True)
class _Unit:
    """Nodes that become one, or a node that stays what it is (``shape`` None)."""

    members: list[int]
    above: int = 0  # the units that it waits for, as bits
    shape: tuple[int, ...] | None = None
    region: int = 0
    kind: str = MAP
    whole: list[tuple[int, bool]] = field(default_factory=list)  # values that it reads anywhere; whether a row at a time would do
    dear: bool = False  # the engine's own operation costs much more than a kernel's call


def is_free(n: Node, operands: tuple[Aval, ...]) -> bool:
    """Whether a node costs a kernel that reads its result nothing: a number, or a view that only changes strides."""
    if n.op is CONSTANT:
        return n.avals[0].size == 1
    if n.op.name == "broadcast_to":
        return True
    if n.op.name == "reshape":
        before, after = operands[0].shape, n.avals[0].shape
        return [d for d in before if d != 1] == [d for d in after if d != 1]
    return n.op.name == "permute" and n.params["axes"][-1:] == (len(n.params["axes"]) - 1,)


class _Groups:
    """Which nodes become one: units by the number of their first node, and the unit of each node."""

    def __init__(self, graph: Graph, can: Can, reasons: list[str]) -> None:
        self.graph, self.avals = graph, graph.avals
        self.made_by = {v: k for k, n in enumerate(graph.nodes) for v in n.results}
        self.outputs = frozenset(graph.outputs)
        self.users: dict[int, set[int]] = {v: set() for v in range(graph.size)}
        for k, n in enumerate(graph.nodes):
            for v in n.inputs:
                self.users[v].add(k)
        self.units: dict[int, _Unit] = {}
        self.unit_of: list[int] = []
        self.free: list[bool] = []
        for k, n in enumerate(graph.nodes):
            self._place(k, n, can, reasons)
        for first, unit in list(self.units.items()):
            if unit.shape is not None and not _pays(unit):
                count = len(unit.members)
                reasons += [f"{graph.nodes[k].op.name} {graph.nodes[k].avals[0]}: {count} so small" for k in unit.members]
                self._split(first)
        self.any = any(u.shape is not None for u in self.units.values())

    def _place(self, k: int, n: Node, can: Can, reasons: list[str]) -> None:
        """Put a node into a unit of its own, then join the groups that it continues."""
        unit = self.units[k] = _Unit([k])
        self.unit_of.append(k)
        operands = tuple(self.avals[v] for v in n.inputs)
        self.free.append(is_free(n, operands))
        made = [self.unit_of[self.made_by[v]] for v in n.inputs if v in self.made_by]
        for u in made:
            unit.above |= self.units[u].above | 1 << u
        if n.op.control is not None or self.free[k]:
            return
        kind = can(n, operands)
        if kind not in KINDS:
            reasons.append(f"{n.op.name} {n.avals[0]}: {kind}")
            return
        if all(self.is_number(v) for v in n.inputs):
            return  # to be computed once, when the graph is made
        unit.shape, unit.region, unit.kind = (operands if kind in (ROWS, COLUMNS) else n.avals)[0].shape, n.region, kind
        unit.whole = [(n.inputs[i], along_rows(n, operands)) for i in whole(n, operands)]
        unit.dear = n.op.name in INDEXED
        for v in n.inputs:
            if v in self.made_by:
                self._join(self.unit_of[self.made_by[v]], self.unit_of[k])

    def is_number(self, v: int) -> bool:
        """Whether a value is a number of the program, in any shape."""
        k = self.made_by.get(v)
        return k is not None and self.free[k] and all(self.is_number(i) for i in self.graph.nodes[k].inputs)

    def _join(self, a: int, b: int) -> None:
        """Make one group of two, if they may be one; the second one waits for the first."""
        first, second = self.units[a], self.units[b]
        if a == b or first.region != second.region or not _fit(first, second):
            return
        if len(first.members) + len(second.members) > MOST or self._apart(first, b) or self._apart(second, a):
            return
        both = 1 << a | 1 << b
        above = (first.above | second.above) & ~both
        between = second.above & ~first.above & ~both  # what the first waits for does not wait for it
        while between:
            u = between.bit_length() - 1
            if self.units[u].above >> a & 1:
                return  # something waits for the first, and the second for it
            between ^= 1 << u
        first.members += second.members
        first.whole += second.whole
        first.dear |= second.dear
        first.above = above
        if second.kind == ROWS:
            first.kind, first.shape = ROWS, second.shape
        for k in second.members:
            self.unit_of[k] = a
        del self.units[b]
        for u in self.units.values():
            if u.above & both:
                u.above = (u.above | above | 1 << a) & ~(1 << b)

    def _apart(self, unit: _Unit, other: int) -> bool:
        """Whether a unit reads a value anywhere that another one makes."""
        maker = self.units[other]
        return any(
            self.unit_of[self.made_by[v]] == other and not (rows and maker.kind == ROWS and maker.shape == self.avals[v].shape)
            for v, rows in unit.whole
            if v in self.made_by
        )

    def _split(self, a: int) -> None:
        """Make its nodes units of their own again."""
        for k in self.units.pop(a).members:
            self.units[k] = _Unit([k])
            self.unit_of[k] = k


def _fit(a: _Unit, b: _Unit) -> bool:
    """Whether the nodes of two units can be computed together: element by element, or row by row."""
    if a.shape is None or b.shape is None or not {a.kind, b.kind} <= {MAP, ROWS}:
        return False
    if a.shape == b.shape:
        return True
    rows, other = (a, b) if a.kind == ROWS else (b, a)
    return rows.kind == ROWS and other.kind == MAP and rows.shape is not None and other.shape == (*rows.shape[:-1], 1)


def _pays(unit: _Unit) -> bool:
    """Whether a kernel is quicker than the engine's own operations one by one."""
    assert unit.shape is not None
    if unit.kind in (CONTRACT, ALONE) or unit.dear:
        return True
    if unit.kind != MAP:
        return prod(unit.shape) >= REDUCED
    size = prod(unit.shape)
    return size >= (ONE, TWO, THREE)[min(len(unit.members), 3) - 1]


def _rewritten(graph: Graph, groups: _Groups) -> Graph:
    """The graph with a ``fused`` node for each group."""
    made = Graph(list(graph.inputs), names=list(graph.names))
    number = {v: v for v in range(len(graph.inputs))}  # of a value in the new graph
    count = len(graph.inputs)
    parts = {u: _part(graph, groups, u) for u in groups.units}
    wanted = set(graph.outputs)
    order = _order(groups, parts)
    kept = []
    for u in reversed(order):
        if wanted.intersection(parts[u].results):
            kept.append(u)
            wanted.update(parts[u].inputs)
    for u in reversed(kept):
        part = parts[u]
        inputs = tuple(number[v] for v in part.inputs)
        if part.body is None:
            n = graph.nodes[u]
            node = Node(n.op, inputs, n.params, count, n.avals, n.label, n.line, n.region)
        else:
            last = graph.nodes[max(groups.units[u].members)]
            avals = tuple(groups.avals[v] for v in part.results)
            node = Node(FUSED, inputs, {"body": part.body}, count, avals, last.label, last.line, last.region)
        made.nodes.append(node)
        for v in part.results:
            number[v] = count
            count += 1
    made.outputs = tuple(number[v] for v in graph.outputs)
    return made


@dataclass(slots=True)
class _Part:
    """What becomes of a unit: the old values that it reads and gives, and its body if it is a group."""

    inputs: list[int]
    results: list[int]
    body: Graph | None = None


def _part(graph: Graph, groups: _Groups, u: int) -> _Part:
    unit = groups.units[u]
    if unit.shape is None:
        n = graph.nodes[u]
        return _Part(list(n.inputs), list(n.results))
    return _Body(graph, groups, sorted(unit.members)).part


class _Body:
    """Builds the body of a group."""

    def __init__(self, graph: Graph, groups: _Groups, members: list[int]) -> None:
        self.graph, self.groups = graph, groups
        inside = {v for k in members for v in graph.nodes[k].results}
        self.taken: list[Node] = []  # views and numbers that are taken in, operands first
        self.seen: set[int] = set()
        kind = groups.units[groups.unit_of[members[0]]].kind
        self.alone = kind in (COLUMNS, ALONE)  # what reads arrays as they are
        self.product = kind == CONTRACT  # which packs them anyway
        self.numbered = kind == ALONE and graph.nodes[members[0]].op.name in NUMBERED
        self.inputs: list[int] = []
        for k in members:  # what is read anywhere is read as it lies
            n = graph.nodes[k]
            for i in whole(n, [groups.avals[v] for v in n.inputs]):
                if n.inputs[i] not in inside and n.inputs[i] not in self.seen:
                    self.seen.add(n.inputs[i])
                    self.inputs.append(n.inputs[i])
        for k in members:
            for v in graph.nodes[k].inputs:
                if v not in inside:
                    self._take(v)
        body = Graph([groups.avals[v] for v in self.inputs])
        number = {v: i for i, v in enumerate(self.inputs)}
        for n in (*self.taken, *(graph.nodes[k] for k in members)):
            first = body.size
            body.nodes.append(Node(n.op, tuple(number[v] for v in n.inputs), n.params, first, n.avals, n.label, n.line))
            number.update(zip(n.results, range(first, first + len(n.avals)), strict=True))
        own = set(members)
        results = [v for v in sorted(inside) if v in groups.outputs or not groups.users[v] <= own]
        body.outputs = tuple(number[v] for v in results)
        self.part = _Part(self.inputs, results, body)

    def _take(self, v: int) -> None:
        """Make a value from outside known: a view or a number as it is, anything else as an operand."""
        if v in self.seen:
            return
        self.seen.add(v)
        k = self.groups.made_by.get(v)
        if k is None or not self._taken_in(k, v):
            self.inputs.append(v)
            return
        n = self.graph.nodes[k]
        for i in n.inputs:
            self._take(i)
        self.taken.append(n)

    def _taken_in(self, k: int, v: int) -> bool:
        """Whether node ``k``, which makes the value ``v``, becomes part of the body."""
        if self.product:
            view = self.groups.free[k] or self.graph.nodes[k].op.name == "permute"
            return view and not self.groups.is_number(v)
        if self.alone:
            return self.numbered and self.groups.is_number(v)
        return self.groups.free[k]


def _order(groups: _Groups, parts: dict[int, _Part]) -> list[int]:
    """The units in an order in which each comes after what it reads: as early as its last node was."""
    unit_of = {v: u for u, part in parts.items() for v in part.results}
    waits = {u: {unit_of[v] for v in part.inputs if v in unit_of} for u, part in parts.items()}
    users: dict[int, list[int]] = {u: [] for u in parts}
    for u, needed in waits.items():
        for w in needed:
            users[w].append(u)
    ready = [(max(groups.units[u].members), u) for u, needed in waits.items() if not needed]
    heapq.heapify(ready)
    out = []
    while ready:
        _, u = heapq.heappop(ready)
        out.append(u)
        for w in users[u]:
            waits[w].discard(u)
            if not waits[w]:
                heapq.heappush(ready, (max(groups.units[w].members), w))
    return out
