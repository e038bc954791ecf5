"""``fuse``: connected elementwise nodes, and reductions along rows, become one ``fused`` node, which an engine compiles.

Nodes of a group have one region and one shape; reductions along its last axis, which keep that axis, and what is computed from
their results belong to the group of the whole rows, and so does a sum along the columns of what the group reads or computes.
Another reduction along columns is a group of its own; a contraction takes in the groups of elementwise nodes that follow from
it, behind reshapes too. Constants of one element and views that only change strides (``broadcast_to``, axes of size 1 put in
or dropped, outer axes permuted) are taken into the groups that read them; a value that is used outside is one of the group's
results. No group waits for what waits for it: two are joined only if no path leads from one through a third into the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

from firebrick.compiler.fusion.expand import expanded
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.policy import FusionPolicy, in_force
from firebrick.compiler.layout.views import keeps_order, strided_view, viewed
from firebrick.compiler.spec.elements import is_sum, reduced_axes
from firebrick.core.aval import Aval
from firebrick.core.op import Op
from firebrick.core.views import View, cuts, row_major
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.index_check import raises
from firebrick.ir.keys import key_of

Can = Callable[[Node, tuple[Aval, ...]], str]
"""How an engine can compute a node in a kernel, one of ``KINDS``; else why not."""
Proved = Callable[[Graph], bool]
"""Whether the kernels that an engine has for a group are proved to compute what its nodes mean."""

MAP, ROWS, COLUMNS, CONTRACT, ALONE = KINDS = "map", "rows", "columns", "contract", "alone"


def fuse(
    graph: Graph,
    can: Can,
    policy: FusionPolicy,
    reasons: list[str] | None = None,
    states: Sequence[int] | None = None,
    proved: Proved = lambda body: True,
) -> Graph:
    """A graph that computes the same with elementwise nodes in groups.

    Args:
        graph: Program; it is not changed.
        can: Which nodes the engine has a kernel for.
        policy: The target's.
        reasons: Takes a line for each elementwise node that stays alone, if given.
        states: The inputs whose memory a result may take, as their next state; all by default.
        proved: Which groups may stay; the nodes of others are kernels one by one, or operations where that is not proved.

    Returns:
        A graph of the same inputs and outputs; ``graph`` itself if nothing is fused.
    """
    full = expanded(graph)
    own = frozenset(range(len(graph.inputs)) if states is None else states)
    found = _Groups(full, can, in_force(policy), reasons if reasons is not None else [], own)
    return _rewritten(full, found, proved) if found.any else graph


@dataclass(slots=True)
class _Unit:
    """Nodes that become one, or a node that stays what it is (``shape`` None)."""

    members: list[int]
    before: set[int] = field(default_factory=set)  # nodes of the units that it reads from
    after: set[int] = field(default_factory=set)  # nodes of the units that read from it
    level: int = 0  # above those of all units that it waits for
    shape: tuple[int, ...] | None = None
    region: int = 0
    kind: str = MAP
    whole: list[tuple[int, bool]] = field(default_factory=list)  # values read anywhere; whether a row at a time would do
    added: set[int] = field(default_factory=set)  # results that are sums along the columns
    axes: tuple[int, ...] = ()  # along which it has reductions

    @property
    def several(self) -> bool:
        """Whether reductions are along other axes than the last one."""
        return self.shape is not None and self.axes not in ((), (len(self.shape) - 1,))

    dear: bool = False  # the engine's own operation costs much more than a kernel's call


def is_free(n: Node, operands: tuple[Aval, ...]) -> bool:
    """Whether a node costs a kernel that reads its result nothing: a number, or a view that only changes strides."""
    if n.op is CONSTANT:
        return n.avals[0].size == 1
    if n.op.view is None or len(n.avals) != 1:
        return False
    x = row_major(operands[0].shape)
    found = strided_view(n, 0, x)
    if found is None or not found.covers(operands[0].size):
        return False
    axes = [digit for (digit,) in found.axes if digit.size != 1]
    return all(digit.stride == 0 or (digit,) in x.axes for digit in axes) and (not axes or axes[-1].stride in (0, 1))


def is_part(n: Node, operands: tuple[Aval, ...], stretch: int) -> bool:
    """Whether a node gives parts of long stretches of its operand's rows, which an elementwise kernel reads where they lie."""
    if n.op.view is None or any(not a.ndim or a.shape[-1] < stretch for a in n.avals):
        return False
    x = operands[0]
    parts = [strided_view(n, slot, row_major(x.shape)) for slot in range(len(n.avals))]
    if any(p is None or p.axes[-1][0].stride != 1 for p in parts):
        return False
    return not all(p is not None and (p.in_rows or p.covers(x.size)) for p in parts)


def whole(n: Node, operands: Sequence[Aval]) -> tuple[int, ...]:
    """Numbers of the operands that are read elsewhere than at the position of the result's element, and lie row by row."""
    if n.op.access is not None:
        return n.op.access.whole([a.shape for a in operands], **n.params)
    return (1,) if n.op.fusion == "scatter" else ()


def is_added(n: Node, operands: tuple[Aval, ...], rows: int) -> bool:
    """Whether a node is a sum of floats along the columns of a matrix of many rows."""
    if not operands[0].dtype.is_floating or not is_sum(n, operands):
        return False
    shape = operands[0].shape
    return n.params["axes"] == tuple(range(len(shape) - 1)) and prod(shape[:-1]) >= rows and shape[-1] > 1


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is the same for all nodes of one op with equal shapes, dtypes and parameters.

    Attributes:
        free: ``is_free``.
        part: ``is_part``.
        kind: What ``Can`` says; empty where it is not asked.
        shape: Of the kernel.
        whole: Operands that are read anywhere; whether a row at a time would do.
        added: ``is_added``.
        axes: Along which it reduces.
    """

    free: bool
    part: bool
    kind: str = ""
    shape: tuple[int, ...] = ()
    whole: tuple[tuple[int, bool], ...] = ()
    added: bool = False
    axes: tuple[int, ...] = ()


def _facts(n: Node, operands: tuple[Aval, ...], can: Can, policy: FusionPolicy) -> _Facts:
    free, part = is_free(n, operands), is_part(n, operands, policy.stretch)
    kind = "" if free or n.op.control is not None else can(n, operands)
    if kind not in KINDS:
        return _Facts(free, part, kind)
    reduces = kind in (ROWS, COLUMNS)
    rows = n.op.access is not None and n.op.access.of_rows([a.shape for a in operands], **n.params)
    everywhere = tuple((i, rows) for i in whole(n, operands))
    axes = reduced_axes(n, operands[0].ndim) if reduces else ()
    shape, added = (operands if reduces else n.avals)[0].shape, is_added(n, operands, policy.summed_rows)
    return _Facts(free, part, kind, shape, everywhere, added, axes)


class _Groups:
    """Which nodes become one: units by the number of their first node, and the unit of each node."""

    def __init__(
        self, graph: Graph, can: Can, policy: FusionPolicy, reasons: list[str], states: frozenset[int]
    ) -> None:  # fmt: skip
        self.graph, self.avals, self.states, self.can, self.policy = graph, graph.avals, states, can, policy
        self.made_by = {v: k for k, n in enumerate(graph.nodes) for v in n.results}
        self.outputs = frozenset(graph.outputs)
        self.users: dict[int, set[int]] = {v: set() for v in range(graph.size)}
        for k, n in enumerate(graph.nodes):
            for v in n.inputs:
                self.users[v].add(k)
        self.units: dict[int, _Unit] = {}
        self.unit_of: list[int] = []
        self.facts: list[_Facts] = []
        self._known: dict[Any, _Facts] = {}  # a deep model repeats a few nodes many times
        self.heavy = -1  # the last node that is a kernel of its own
        for k, n in enumerate(graph.nodes):
            self._place(k, n, reasons)
        for v, users in self.users.items():
            if len(users) > 1 and self.avals[v].nbytes >= self.policy.shared_bytes:
                self._join_beside(v, sorted(users))
        for a in [a for a, unit in self.units.items() if unit.kind == CONTRACT]:
            while any(self._taken(a, b) for b in self._following(a)):
                pass
        for unit in [unit for unit in self.units.values() if unit.kind == COLUMNS]:
            self._place_columns(unit.members[0])
        # kernels run in one call, so that where one of them pays, the others do; what stays outside interrupts it
        if not any(
            unit.shape is not None and _pays(unit, graph.nodes[unit.members[0]].op, self.policy) for unit in self.units.values()
        ):
            for first, unit in list(self.units.items()):
                if unit.shape is not None:
                    count = len(unit.members)
                    reasons += [f"{graph.nodes[k].op.name} {graph.nodes[k].avals[0]}: {count} so small" for k in unit.members]
                    self._split(first)
        self.any = any(u.shape is not None for u in self.units.values())

    def _place(self, k: int, n: Node, reasons: list[str]) -> None:
        """Put a node into a unit of its own, then join the groups that it continues."""
        self.unit_of.append(k)
        self.facts.append(self._facts_of(n))
        unit = self.units[k] = self._alone(k, reasons)
        for u in {self.unit_of[self.made_by[v]] for v in n.inputs if v in self.made_by}:
            unit.before.add(u)
            self.units[u].after.add(k)
            unit.level = max(unit.level, self.units[u].level + 1)
        if unit.shape is None:
            return
        if unit.kind in (CONTRACT, ALONE):
            self.heavy = k
        for v in () if unit.kind == MAP and self._waits(n) else n.inputs:
            if v in self.made_by:
                self._join(self.unit_of[self.made_by[v]], self.unit_of[k])
        if unit.added:  # beside what reads the same rows
            for j in sorted(self.users[n.inputs[0]]):
                if j < k and self.unit_of[k] == k:
                    self._join(self.unit_of[j], k)

    def _alone(self, k: int, reasons: list[str]) -> _Unit:
        """A unit of one node."""
        n, unit, facts = self.graph.nodes[k], _Unit([k]), self.facts[k]
        if n.op.control is not None or facts.free:
            return unit
        if facts.kind not in KINDS:
            if not n.op.view:
                reasons.append(f"{n.op.name} {n.avals[0]}: {facts.kind}")
            return unit
        if all(self.is_number(v) for v in n.inputs):
            return unit  # to be computed once, when the graph is made
        unit.shape, unit.region, unit.kind, unit.axes = facts.shape, n.region, facts.kind, facts.axes
        unit.whole = [(n.inputs[i], rows) for i, rows in facts.whole]
        unit.dear = n.op.access is not None or n.op.fusion == "scatter"
        unit.added = set(n.results) if facts.added else set()
        return unit

    def _facts_of(self, n: Node) -> _Facts:
        operands = tuple([self.avals[v] for v in n.inputs])
        if n.op.control is not None:
            return _facts(n, operands, self.can, self.policy)
        params = None if n.op is CONSTANT or not n.params else key_of(n.params)  # of a number only the shape matters
        key = n.op, operands, n.avals, params
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _facts(n, operands, self.can, self.policy)
        return found

    def separate(self, a: int) -> None:
        """Make the nodes of a unit units of their own; one node alone is left to the engine's own operation."""
        members = self.units.pop(a).members
        for k in members:
            self.units[k] = self._alone(k, []) if len(members) > 1 else _Unit([k])
            self.unit_of[k] = k

    def _waits(self, n: Node) -> bool:
        """Whether a node is left to what uses it: its operands are old, and its result would take as much memory meanwhile."""
        size = n.avals[0].size
        large = size >= self.policy.one and all(n.avals[0].nbytes >= self.avals[v].nbytes for v in n.inputs)
        return large and all(self.made_by.get(v, -1) < self.heavy for v in n.inputs)

    def _place_columns(self, k: int) -> None:
        """Join a reduction along columns to the elementwise nodes in front of it, and to others of the same values."""
        v = self.graph.nodes[k].inputs[0]
        for j in sorted(self.users[v] | ({self.made_by[v]} if v in self.made_by else set())):
            a, b = self.unit_of[j], self.unit_of[k]
            first, second = self.units[a], self.units[b]
            if a == b or not _fit_columns(first, second):
                continue
            inside = {*first.members, *second.members}
            reduced = [r for i in inside if self.graph.nodes[i].op.fusion == "row" for r in self.graph.nodes[i].results]
            if not self._waits_for(a, b) and not any(self.users[r] & inside for r in reduced):
                self._join(a, b, _fit_columns)

    def is_number(self, v: int) -> bool:
        """Whether a value is a number of the program, in any shape."""
        k = self.made_by.get(v)
        return k is not None and self.facts[k].free and all(self.is_number(i) for i in self.graph.nodes[k].inputs)

    def _join(self, a: int, b: int, fit: Callable[[_Unit, _Unit], bool] | None = None) -> None:
        """Make one group of two, if they may be one; the second one waits for the first."""
        first, second = self.units[a], self.units[b]
        if a == b or first.region != second.region or not (fit or _fit)(first, second):
            return
        if len(first.members) + len(second.members) > self.policy.most_nodes or self._apart(first, b) or self._apart(second, a):
            return
        if not (self._aligned(first, second) and self._aligned(second, first)):
            return
        if any(not second.added.isdisjoint(self.graph.nodes[k].inputs) for k in first.members) or any(
            not first.added.isdisjoint(self.graph.nodes[k].inputs) for k in second.members
        ):
            return  # a sum is there when all rows are done
        if self._through({a, b}):
            return  # something waits for the first, and the second for it
        first.members += second.members
        first.whole += second.whole
        first.dear |= second.dear
        first.added |= second.added
        if second.kind in (ROWS, COLUMNS) and first.kind != ROWS:
            first.kind, first.shape, first.axes = second.kind, second.shape, second.axes
        self._merge(a, [b])

    def _merge(self, a: int, others: Sequence[int]) -> None:
        """Other units' nodes belong to a unit from now on; what waits for one of them waits for it."""
        unit = self.units[a]
        for b in others:
            other = self.units.pop(b)
            for k in other.members:
                self.unit_of[k] = a
            unit.before |= other.before
            unit.after |= other.after
            unit.level = max(unit.level, other.level)
        raised = [(unit.level, a)]
        while raised:
            level, u = heapq.heappop(raised)
            for w in self._units_of(self.units[u].after) - {u}:
                if self.units[w].level <= level:
                    self.units[w].level = level + 1
                    heapq.heappush(raised, (level + 1, w))

    def _units_of(self, nodes: set[int]) -> set[int]:
        return {self.unit_of[k] for k in nodes}

    def _waits_for(self, a: int, b: int) -> bool:
        """Whether a unit reads, itself or through others, what another one gives."""
        if self.units[a].level <= self.units[b].level:
            return False
        return b in self._units_of(self.units[a].before) or self._through({a, b})

    def _through(self, group: set[int]) -> bool:
        """Whether a path leads from one of these units through a third one to one of them.

        Levels grow along each path. The search goes on from both ends in turn, so it is over as soon as one of them leads no
        further.
        """
        levels = [self.units[u].level for u in group]
        low, high = min(levels), max(levels)
        behind = {w for u in group for w in self._units_of(self.units[u].after) if self.units[w].level < high} - group
        ahead = {w for u in group for w in self._units_of(self.units[u].before) if self.units[w].level > low} - group
        up, down = list(behind), list(ahead)
        if not behind.isdisjoint(ahead):
            return True
        while up and down:
            for w in self._units_of(self.units[down.pop()].before):
                if w in group or w in behind:
                    return True
                if w not in ahead and self.units[w].level > low:
                    ahead.add(w)
                    down.append(w)
            for w in self._units_of(self.units[up.pop()].after):
                if w in group or w in ahead:
                    return True
                if w not in behind and self.units[w].level < high:
                    behind.add(w)
                    up.append(w)
        return False

    def _aligned(self, maker: _Unit, reader: _Unit) -> bool:
        """Whether what one unit's reductions give is broadcast, in the other unit, along the axes that were reduced.

        Broadcasting aligns the last axes. A result that has lost its axes is a value of each row only where the axes that it
        kept are the ones that it is aligned with: shapes alone do not tell rows from columns where sizes are equal.
        """
        nodes = self.graph.nodes
        made = {nodes[k].first: nodes[k] for k in maker.members if nodes[k].op.fusion == "row"}
        return all(self._in_place(made[v]) for k in reader.members for v in nodes[k].inputs if v in made)

    def _in_place(self, n: Node) -> bool:
        """Whether the axes that a reduction keeps are where broadcasting to its operand's shape puts them."""
        whole, left = self.avals[n.inputs[0]].shape, n.avals[0].shape
        axes, lead = reduced_axes(n, len(whole)), len(whole) - len(left)
        kept = [a for a in range(len(whole)) if a not in axes]
        return not lead or all(d == 1 or kept[i] == lead + i for i, d in enumerate(left))

    def _join_beside(self, v: int, users: list[int]) -> None:
        """Make one group of those that read a large value, as far as they may be one: it is read once."""
        shape = self.avals[v].shape
        for j, k in pairwise(users):
            a, b = sorted((self.unit_of[j], self.unit_of[k]))
            first, second = self.units[a], self.units[b]
            if first.shape != shape or second.shape != shape or any(v == i for u in (first, second) for i, _ in u.whole):
                continue
            apart = not (self._waits_for(a, b) or self._waits_for(b, a))
            if apart and self._updates(first) == self._updates(second):
                self._join(a, b)

    def _following(self, a: int) -> Iterator[list[int]]:
        """The units that a contraction's might take in next: an elementwise one, or one and the reshape in front of it."""
        for k in self.units[a].members:
            for v in self.graph.nodes[k].results:
                for user in sorted(self.users[v]):
                    b, n = self.unit_of[user], self.graph.nodes[user]
                    if b != a and self.units[b].kind == MAP and self.units[b].shape is not None:
                        yield [b]
                    elif b != a and keeps_order(n, self.avals[n.inputs[0]].shape):
                        behind = sorted({self.unit_of[w] for w in self.users[n.first]} - {a, b})
                        yield from ([b, c] for c in behind if self.units[c].kind == MAP and self.units[c].shape is not None)

    def _taken(self, a: int, units: list[int]) -> bool:
        """Make a contraction's unit and these one, if they may be."""
        first, last = self.units[a], self.units[units[-1]]
        others = [self.units[u] for u in units]
        assert first.shape is not None
        members = [k for unit in (first, *others) for k in unit.members]
        shapes = {self.graph.nodes[k].avals[0].shape for k in members}
        if (
            len({self.graph.nodes[k].region for k in members}) > 1
            or len(members) > self.policy.most_nodes
            or last.whole
            or last.dear
        ):
            return False
        if any(prod(s) != prod(first.shape) for s in shapes) or cuts(*shapes) is None:
            return False
        if self._updates(last) or self._summed(last):
            return False
        if len(shapes) > 1 and self.graph.nodes[first.members[0]].op.facts is not None:
            return False
        if self._through({a, *units}):
            return False  # something waits for one of them, and another one for it
        first.members = members
        self._merge(a, units)
        return True

    def _updates(self, unit: _Unit) -> bool:
        """Whether a unit makes the next state of an input that it reads: that may have to wait for all else."""
        nodes = [self.graph.nodes[k] for k in unit.members]
        made = {self.avals[v] for n in nodes for v in n.results if v in self.outputs}
        return any(v in self.states and self.avals[v] in made for n in nodes for v in n.inputs)

    def _summed(self, unit: _Unit) -> bool:
        """Whether all that a unit makes goes into reductions, which had better make it than read it."""
        made = {v for k in unit.members for v in self.graph.nodes[k].results}
        users = {self.unit_of[u] for v in made for u in self.users[v]} - {self.unit_of[unit.members[0]]}
        return not made & self.outputs and all(self.units[u].kind in (ROWS, COLUMNS) for u in users)

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
    if b.added and b.kind == COLUMNS and a.kind == ROWS:
        return a.shape == b.shape and not a.several
    if a.shape is None or b.shape is None or not {a.kind, b.kind} <= {MAP, ROWS}:
        return False
    if a.kind == b.kind:
        return a.shape == b.shape and a.axes == b.axes
    rows, other = (a, b) if a.kind == ROWS else (b, a)
    if rows.several and (rows.dear or other.dear):
        return False
    assert rows.shape is not None
    return other.shape in (rows.shape, tuple(1 if i in rows.axes else d for i, d in enumerate(rows.shape)))


def _fit_columns(a: _Unit, b: _Unit) -> bool:
    """Whether a reduction along columns, ``b``, can be computed together with elementwise nodes or with others like it."""
    if a.shape is None or b.kind != COLUMNS or a.shape != b.shape or a.dear or b.dear:
        return False
    return a.kind == MAP or (a.kind == COLUMNS and a.axes == b.axes)


def _pays(unit: _Unit, op: Op, policy: FusionPolicy) -> bool:
    """Whether a kernel is quicker than the engine's own operations one by one; ``op`` is that of its first node."""
    assert unit.shape is not None
    if unit.kind == CONTRACT or unit.dear or (unit.kind == ALONE and op.fusion != "move"):
        return True
    if unit.kind not in (MAP, ALONE):
        return prod(unit.shape) >= policy.reduced
    size = prod(unit.shape)
    return size >= policy.smallest(len(unit.members))


def _rewritten(graph: Graph, groups: _Groups, proved: Proved) -> Graph:
    """The graph with a ``fused`` node for each group."""
    made = Graph(list(graph.inputs), names=list(graph.names))
    number = {v: v for v in range(len(graph.inputs))}  # of a value in the new graph
    count = len(graph.inputs)
    parts, kept = _parts(graph, groups)
    while refused := [u for u in kept if (body := parts[u].body) is not None and not proved(body)]:
        for u in refused:
            groups.separate(u)
        parts, kept = _parts(graph, groups)
    for u in kept:
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


def _parts(graph: Graph, groups: _Groups) -> tuple[dict[int, _Part], list[int]]:
    """What becomes of each unit, and those of them that results need, in order."""
    parts = {u: _part(graph, groups, u) for u in groups.units}
    wanted, kept = set(graph.outputs).union(*(n.results for n in graph.nodes if raises(n))), []
    for u in reversed(_order(groups, parts)):
        if wanted.intersection(parts[u].results):
            kept.append(u)
            wanted.update(parts[u].inputs)
    return parts, kept[::-1]


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
        self.alone = kind == ALONE  # what reads arrays as they are
        self.mapped = kind == MAP
        self.product = False  # whether operands of a product are taken, which are packed anyway
        self.numbered = kind == ALONE and graph.nodes[members[0]].op.fusion in ("scatter", "move")
        self.inputs: list[int] = []
        for k in members:  # what is read anywhere is read as it lies
            n = graph.nodes[k]
            for i in whole(n, [groups.avals[v] for v in n.inputs]):
                if n.inputs[i] not in inside and n.inputs[i] not in self.seen:
                    self.seen.add(n.inputs[i])
                    self.inputs.append(n.inputs[i])
        first = groups.units[groups.unit_of[members[0]]].members[0]
        if kind == CONTRACT:
            self.product = graph.nodes[first].op.facts is None  # of matrices, whose views are axes of the problem
            self.alone = not self.product
            self._take_all(first, inside)
            self.product = self.alone = False
        for k in members:
            self._take_all(k, inside)
        body = Graph([groups.avals[v] for v in self.inputs])
        number = {v: i for i, v in enumerate(self.inputs)}
        for n in (*self.taken, *(graph.nodes[k] for k in members)):
            first = body.size
            body.nodes.append(Node(n.op, tuple(number[v] for v in n.inputs), n.params, first, n.avals, n.label, n.line))
            number.update(zip(n.results, range(first, first + len(n.avals)), strict=True))
        own = set(members)
        results = sorted(inside)
        if kind != ALONE:  # whose kernels write all of their results
            results = [v for v in results if v in groups.outputs or not groups.users[v] <= own]
        body.outputs = tuple(number[v] for v in results)
        self.part = _Part(self.inputs, results, body)

    def _take_all(self, k: int, inside: set[int]) -> None:
        """Make known what a node reads from outside."""
        for v in self.graph.nodes[k].inputs:
            if v not in inside:
                self._take(v)

    def _take(self, v: int) -> None:
        """Make a value from outside known: a view or a number as it is, anything else as an operand."""
        if v in self.seen:
            return
        k = self.groups.made_by.get(v)
        if k is None or not self._taken_in(k, v):
            self.seen.add(v)
            self.inputs.append(v)
            return
        n = self.graph.nodes[k]
        self.seen.update(n.results)
        for i in n.inputs:
            self._take(i)
        self.taken.append(n)

    def _taken_in(self, k: int, v: int) -> bool:
        """Whether node ``k``, which makes the value ``v``, becomes part of the body."""
        if self._grouped(k):
            return False
        if self.product:
            found = None if self.groups.is_number(v) else self._viewed(v)
            return self._rearranges(k) and found is not None and all(len(axis) == 1 for axis in found.axes[:-2])
        if self.alone:
            return self.numbered and self.groups.is_number(v)
        return self.groups.facts[k].free or (self.mapped and self.groups.facts[k].part)

    def _grouped(self, k: int) -> bool:
        """Whether a node is a member of a group, such as a reshape behind a product."""
        return self.groups.units[self.groups.unit_of[k]].shape is not None

    def _rearranges(self, k: int) -> bool:
        """Whether a node's result is a view of all elements of its operand."""
        n = self.graph.nodes[k]
        if not n.op.view or len(n.avals) != 1:
            return False
        operand = self.groups.avals[n.inputs[0]]
        found = viewed(n, 0, row_major(operand.shape))
        return found is not None and found.covers(operand.size)

    def _viewed(self, v: int) -> View | None:
        """How a value lies in the array that it is a view of; None where a view of that needs a copy."""
        k = self.groups.made_by.get(v)
        if k is None or not self._rearranges(k) or self._grouped(k):
            return row_major(self.groups.avals[v].shape)
        n = self.graph.nodes[k]
        below = self._viewed(n.inputs[0])
        return None if below is None else viewed(n, 0, below)


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
