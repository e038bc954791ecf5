"""``fuse``: replaces connected elementwise nodes, and reductions along rows, by one ``fused`` node, which an engine compiles.

The nodes of a fusion group have one region and one shape. A group of rows also contains reductions along its last axis that
keep that axis, their consumers, and sums along the columns of values that it reads or computes. Other reductions along columns
have groups of their own. A contraction's group contains the elementwise groups that consume its result, directly or through
reshapes. Constants of one element and views that only change strides (``broadcast_to``, axes of size 1 inserted or dropped,
outer axes permuted) are copied into the groups that read them. A value that is used outside of its group is one of the group's
results. Groups do not depend on each other in a cycle: two are joined only if no path leads from one to the other through a
third group.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

from firebrick.compiler.fusion.expand import expanded
from firebrick.compiler.fusion.facts import ALONE, COLUMNS, CONTRACT, KINDS, MAP, ROWS, Can, Facts, facts_of, whole
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.policy import FusionPolicy, in_force
from firebrick.compiler.fusion.row_updates import row_updates
from firebrick.compiler.layout.views import keeps_order, viewed
from firebrick.compiler.spec.elements import reduced_axes
from firebrick.core.op import Op
from firebrick.core.views import View, cuts, row_major
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.index_check import raises
from firebrick.ir.keys import key_of

Proved = Callable[[Graph], bool]
"""Whether the kernels of a group are proved to compute its nodes."""


def fuse(
    graph: Graph,
    can: Can,
    policy: FusionPolicy,
    reasons: list[str] | None = None,
    states: Sequence[int] | None = None,
    proved: Proved = lambda body: True,
) -> Graph:
    """An equivalent graph whose elementwise nodes are in fusion groups.

    Args:
        graph: Program; it is not changed.
        can: Returns the kind of a node's kernel, or the reason why it has none.
        policy: The target's policy.
        reasons: A list to which a line is appended for each node that is not fused.
        states: The inputs whose memory a result may use, as their next state; all by default.
        proved: Decides which groups are valid. The nodes of other groups get separate kernels; a node whose separate kernel is
            not proved either is left to the engine's own operation.

    Returns:
        A graph of the same inputs and outputs; ``graph`` itself if nothing is fused.
    """
    full = expanded(row_updates(graph))
    own = frozenset(range(len(graph.inputs)) if states is None else states)
    found = _Groups(full, can, in_force(policy), reasons if reasons is not None else [], own)
    return _rewritten(full, found, proved) if found.any else graph


@dataclass(slots=True)
class _Group:
    """A fusion group, or a single node that is not compiled (``shape`` None)."""

    members: list[int]
    before: set[int] = field(default_factory=set)  # nodes of the groups that it depends on
    after: set[int] = field(default_factory=set)  # nodes of the groups that depend on it
    level: int = 0  # greater than the levels of all groups that it depends on
    shape: tuple[int, ...] | None = None
    region: int = 0
    kind: str = MAP
    whole: list[tuple[int, bool]] = field(default_factory=list)  # values read at any position; whether reads stay within a row
    added: set[int] = field(default_factory=set)  # results that are sums along the columns
    axes: tuple[int, ...] = ()  # axes of its reductions

    @property
    def several(self) -> bool:
        """Whether reductions are along other axes than the last one."""
        return self.shape is not None and self.axes not in ((), (len(self.shape) - 1,))

    expensive: bool = False  # the engine's own operation costs much more than a kernel's call


class _Groups:
    """The fusion groups: ``by_first``, by the number of their first node, and ``group_of``, the group of each node."""

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
        self.by_first: dict[int, _Group] = {}
        self.group_of: list[int] = []
        self.facts: list[Facts] = []
        self._known: dict[Any, Facts] = {}  # by op, operands and parameters: a deep model repeats a few nodes many times
        self.last_kernel = -1  # the last node with a separate kernel
        for k, n in enumerate(graph.nodes):
            self._add(k, n, reasons)
        for v, users in self.users.items():
            if len(users) > 1 and self.avals[v].nbytes >= self.policy.shared_bytes:
                self._join_readers(v, sorted(users))
        for a in [a for a, group in self.by_first.items() if group.kind == CONTRACT]:
            while any(self._taken(a, b) for b in self._following(a)):
                pass
        for group in [group for group in self.by_first.values() if group.kind == COLUMNS]:
            self._join_columns(group.members[0])
        # other operations interrupt the native call that runs all kernels: so if one kernel is faster, all nodes have kernels
        if not any(
            group.shape is not None and _faster(group, [graph.nodes[k].op for k in group.members], self.policy)
            for group in self.by_first.values()
        ):
            for first, group in list(self.by_first.items()):
                if group.shape is not None:
                    count = len(group.members)
                    reasons += [f"{graph.nodes[k].op.name} {graph.nodes[k].avals[0]}: {count} so small" for k in group.members]
                    self._split(first)
        self.any = any(u.shape is not None for u in self.by_first.values())

    def _add(self, k: int, n: Node, reasons: list[str]) -> None:
        """Make a group of a node, then join it with the groups that it reads from."""
        self.group_of.append(k)
        self.facts.append(self._facts_of(n))
        group = self.by_first[k] = self._single(k, reasons)
        for u in {self.group_of[self.made_by[v]] for v in n.inputs if v in self.made_by}:
            group.before.add(u)
            self.by_first[u].after.add(k)
            group.level = max(group.level, self.by_first[u].level + 1)
        if group.shape is None:
            return
        if group.kind in (CONTRACT, ALONE):
            self.last_kernel = k
        for v in () if group.kind == MAP and self._deferred(n) else n.inputs:
            if v in self.made_by:
                self._join(self.group_of[self.made_by[v]], self.group_of[k])
        if group.added:  # sums along the columns are computed by the kernel that reads the same rows
            for j in sorted(self.users[n.inputs[0]]):
                if j < k and self.group_of[k] == k:
                    self._join(self.group_of[j], k)

    def _single(self, k: int, reasons: list[str]) -> _Group:
        """A group of one node."""
        n, group, facts = self.graph.nodes[k], _Group([k]), self.facts[k]
        if n.op.control is not None or facts.free:
            return group
        if facts.kind not in KINDS:
            if not n.op.view:
                reasons.append(f"{n.op.name} {n.avals[0]}: {facts.kind}")
            return group
        if n.op.program is None and all(self.is_number(v) for v in n.inputs):
            return group  # a constant, computed once when the graph is compiled
        group.shape, group.region, group.kind, group.axes = facts.shape, n.region, facts.kind, facts.axes
        group.whole = [(n.inputs[i], rows) for i, rows in facts.whole]
        group.expensive = n.op.access is not None or n.op.fusion == "scatter"
        group.added = set(n.results) if facts.added else set()
        return group

    def _facts_of(self, n: Node) -> Facts:
        operands = tuple([self.avals[v] for v in n.inputs])
        if n.op.control is not None:
            return facts_of(n, operands, self.can, self.policy)
        params = None if n.op is CONSTANT or not n.params else key_of(n.params)  # a constant's value is not a property
        key = n.op, operands, n.avals, params
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = facts_of(n, operands, self.can, self.policy)
        return found

    def separate(self, a: int) -> None:
        """Replace a group by groups of single nodes; a group of one node is left to the engine's own operation."""
        members = self.by_first.pop(a).members
        for k in members:
            self.by_first[k] = self._single(k, []) if len(members) > 1 else _Group([k])
            self.group_of[k] = k

    def _deferred(self, n: Node) -> bool:
        """Whether a node is joined with its consumers, not with its producers: its operands are computed before the last
        separate kernel, and keeping its result in memory takes as much memory as keeping them."""
        size = n.avals[0].size
        large = size >= self.policy.one and all(n.avals[0].nbytes >= self.avals[v].nbytes for v in n.inputs)
        return large and all(self.made_by.get(v, -1) < self.last_kernel for v in n.inputs)

    def _join_columns(self, k: int) -> None:
        """Join a reduction along columns with its elementwise producers, and with others that reduce the same value."""
        v = self.graph.nodes[k].inputs[0]
        for j in sorted(self.users[v] | ({self.made_by[v]} if v in self.made_by else set())):
            a, b = self.group_of[j], self.group_of[k]
            first, second = self.by_first[a], self.by_first[b]
            if a == b or not _fit_columns(first, second):
                continue
            inside = {*first.members, *second.members}
            reduced = [r for i in inside if self.graph.nodes[i].op.fusion == "row" for r in self.graph.nodes[i].results]
            if not self._waits_for(a, b) and not any(self.users[r] & inside for r in reduced):
                self._join(a, b, _fit_columns)

    def is_number(self, v: int) -> bool:
        """Whether a value is a scalar constant, in any shape."""
        k = self.made_by.get(v)
        return k is not None and self.facts[k].free and all(self.is_number(i) for i in self.graph.nodes[k].inputs)

    def _join(self, a: int, b: int, fit: Callable[[_Group, _Group], bool] | None = None) -> None:
        """Join two groups, if that is valid; the second one depends on the first."""
        first, second = self.by_first[a], self.by_first[b]
        if a == b or first.region != second.region or not (fit or _fit)(first, second):
            return
        if len(first.members) + len(second.members) > self.policy.most_nodes or self._apart(first, b) or self._apart(second, a):
            return
        if not (self._aligned(first, second) and self._aligned(second, first)):
            return
        if any(not second.added.isdisjoint(self.graph.nodes[k].inputs) for k in first.members) or any(
            not first.added.isdisjoint(self.graph.nodes[k].inputs) for k in second.members
        ):
            return  # a sum over rows is complete only at the kernel's end
        if self._through({a, b}):
            return  # a third group depends on the first, and the second on it
        first.members += second.members
        first.whole += second.whole
        first.expensive |= second.expensive
        first.added |= second.added
        if second.kind in (ROWS, COLUMNS) and first.kind != ROWS:
            first.kind, first.shape, first.axes = second.kind, second.shape, second.axes
        self._merge(a, [b])

    def _merge(self, a: int, others: Sequence[int]) -> None:
        """Move the nodes of other groups into a group, and raise the levels of the groups that depend on it."""
        group = self.by_first[a]
        for b in others:
            other = self.by_first.pop(b)
            for k in other.members:
                self.group_of[k] = a
            group.before |= other.before
            group.after |= other.after
            group.level = max(group.level, other.level)
        raised = [(group.level, a)]
        while raised:
            level, u = heapq.heappop(raised)
            for w in self._groups_of(self.by_first[u].after) - {u}:
                if self.by_first[w].level <= level:
                    self.by_first[w].level = level + 1
                    heapq.heappush(raised, (level + 1, w))

    def _groups_of(self, nodes: set[int]) -> set[int]:
        return {self.group_of[k] for k in nodes}

    def _waits_for(self, a: int, b: int) -> bool:
        """Whether a group depends on another one, directly or through others."""
        if self.by_first[a].level <= self.by_first[b].level:
            return False
        return b in self._groups_of(self.by_first[a].before) or self._through({a, b})

    def _through(self, group: set[int]) -> bool:
        """Whether a path leads from one of these groups through another group to one of them.

        Levels increase along each path, which bounds the search. The search alternates between both ends, and stops as soon as
        one of them has no further groups.
        """
        levels = [self.by_first[u].level for u in group]
        low, high = min(levels), max(levels)
        behind = {w for u in group for w in self._groups_of(self.by_first[u].after) if self.by_first[w].level < high} - group
        ahead = {w for u in group for w in self._groups_of(self.by_first[u].before) if self.by_first[w].level > low} - group
        up, down = list(behind), list(ahead)
        if not behind.isdisjoint(ahead):
            return True
        while up and down:
            for w in self._groups_of(self.by_first[down.pop()].before):
                if w in group or w in behind:
                    return True
                if w not in ahead and self.by_first[w].level > low:
                    ahead.add(w)
                    down.append(w)
            for w in self._groups_of(self.by_first[up.pop()].after):
                if w in group or w in ahead:
                    return True
                if w not in behind and self.by_first[w].level < high:
                    behind.add(w)
                    up.append(w)
        return False

    def _aligned(self, producer: _Group, reader: _Group) -> bool:
        """Whether the reader broadcasts the results of the producer's reductions along the reduced axes.

        Broadcasting aligns the last axes. A reduction without ``keepdims`` is one value for each row only if the axes that it
        keeps are aligned with themselves: if sizes are equal, shapes do not distinguish rows from columns.
        """
        nodes = self.graph.nodes
        made = {nodes[k].first: nodes[k] for k in producer.members if nodes[k].op.fusion == "row"}
        return all(self._in_place(made[v]) for k in reader.members for v in nodes[k].inputs if v in made)

    def _in_place(self, n: Node) -> bool:
        """Whether broadcasting to its operand's shape aligns the axes that a reduction keeps with themselves."""
        whole, left = self.avals[n.inputs[0]].shape, n.avals[0].shape
        axes, lead = reduced_axes(n, len(whole)), len(whole) - len(left)
        kept = [a for a in range(len(whole)) if a not in axes]
        return not lead or all(d == 1 or kept[i] == lead + i for i, d in enumerate(left))

    def _join_readers(self, v: int, users: list[int]) -> None:
        """Join the groups that read a large value, if that is valid, so that it is read once."""
        shape = self.avals[v].shape
        for j, k in pairwise(users):
            a, b = sorted((self.group_of[j], self.group_of[k]))
            first, second = self.by_first[a], self.by_first[b]
            if first.shape != shape or second.shape != shape or any(v == i for u in (first, second) for i, _ in u.whole):
                continue
            apart = not (self._waits_for(a, b) or self._waits_for(b, a))
            if apart and self._updates(first) == self._updates(second):
                self._join(a, b)

    def _following(self, a: int) -> Iterator[list[int]]:
        """Candidates to join with a contraction's group: an elementwise consumer, or a reshape and its elementwise consumer."""
        for k in self.by_first[a].members:
            for v in self.graph.nodes[k].results:
                for user in sorted(self.users[v]):
                    b, n = self.group_of[user], self.graph.nodes[user]
                    if b != a and self.by_first[b].kind == MAP and self.by_first[b].shape is not None:
                        yield [b]
                    elif b != a and keeps_order(n, self.avals[n.inputs[0]].shape):
                        behind = sorted({self.group_of[w] for w in self.users[n.first]} - {a, b})
                        yield from (
                            [b, c] for c in behind if self.by_first[c].kind == MAP and self.by_first[c].shape is not None
                        )

    def _taken(self, a: int, firsts: list[int]) -> bool:
        """Join a contraction's group with these groups, if that is valid."""
        first, last = self.by_first[a], self.by_first[firsts[-1]]
        others = [self.by_first[u] for u in firsts]
        assert first.shape is not None
        members = [k for group in (first, *others) for k in group.members]
        shapes = {self.graph.nodes[k].avals[0].shape for k in members}
        if (
            len({self.graph.nodes[k].region for k in members}) > 1
            or len(members) > self.policy.most_nodes
            or last.whole
            or last.expensive
        ):
            return False
        if any(prod(s) != prod(first.shape) for s in shapes) or cuts(*shapes) is None:
            return False
        if self._updates(last) or self._summed(last):
            return False
        if len(shapes) > 1 and self.graph.nodes[first.members[0]].op.facts is not None:
            return False
        if self._through({a, *firsts}):
            return False  # the joined group and a third group would depend on each other
        first.members = members
        self._merge(a, firsts)
        return True

    def _updates(self, group: _Group) -> bool:
        """Whether a group computes the next state of an input that it reads. It overwrites the input, so it must run late."""
        nodes = [self.graph.nodes[k] for k in group.members]
        made = {self.avals[v] for n in nodes for v in n.results if v in self.outputs}
        return any(v in self.states and self.avals[v] in made for n in nodes for v in n.inputs)

    def _summed(self, group: _Group) -> bool:
        """Whether only reductions consume a group's results. It is then joined with these instead."""
        made = {v for k in group.members for v in self.graph.nodes[k].results}
        users = {self.group_of[u] for v in made for u in self.users[v]} - {self.group_of[group.members[0]]}
        return not made & self.outputs and all(self.by_first[u].kind in (ROWS, COLUMNS) for u in users)

    def _apart(self, group: _Group, other: int) -> bool:
        """Whether a group reads, at any position, a value that another one computes."""
        producer = self.by_first[other]
        return any(
            self.group_of[self.made_by[v]] == other
            and not (rows and producer.kind == ROWS and producer.shape == self.avals[v].shape)
            for v, rows in group.whole
            if v in self.made_by
        )

    def _split(self, a: int) -> None:
        """Replace a group by single nodes that are not compiled."""
        for k in self.by_first.pop(a).members:
            self.by_first[k] = _Group([k])
            self.group_of[k] = k


def _fit(a: _Group, b: _Group) -> bool:
    """Whether the nodes of two groups can be computed in one kernel, elementwise or row by row."""
    if b.added and b.kind == COLUMNS and a.kind == ROWS:
        return a.shape == b.shape and not a.several
    if a.shape is None or b.shape is None or not {a.kind, b.kind} <= {MAP, ROWS}:
        return False
    if a.kind == b.kind:
        return a.shape == b.shape and a.axes == b.axes
    rows, other = (a, b) if a.kind == ROWS else (b, a)
    if rows.several and (rows.expensive or other.expensive):
        return False
    assert rows.shape is not None
    return other.shape in (rows.shape, tuple(1 if i in rows.axes else d for i, d in enumerate(rows.shape)))


def _fit_columns(a: _Group, b: _Group) -> bool:
    """Whether a reduction along columns, ``b``, can be computed in one kernel with elementwise nodes or with others like it."""
    if a.shape is None or b.kind != COLUMNS or a.shape != b.shape or a.expensive or b.expensive:
        return False
    return a.kind == MAP or (a.kind == COLUMNS and a.axes == b.axes)


def _faster(group: _Group, ops: Sequence[Op], policy: FusionPolicy) -> bool:
    """Whether a kernel is faster than the engine's separate operations, ``ops``."""
    assert group.shape is not None
    if group.kind == CONTRACT or group.expensive or (group.kind == ALONE and ops[0].fusion != "move"):
        return True
    if any(op.program is not None for op in ops):  # the kernel language has no other code than kernels
        return True
    if group.kind not in (MAP, ALONE):
        return prod(group.shape) >= policy.reduced
    size = prod(group.shape)
    return size >= policy.smallest(len(group.members))


def _rewritten(graph: Graph, groups: _Groups, proved: Proved) -> Graph:
    """The graph with a ``fused`` node for each group."""
    made = Graph(list(graph.inputs), names=list(graph.names))
    number = {v: v for v in range(len(graph.inputs))}  # value → its number in the new graph
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
            last = graph.nodes[max(groups.by_first[u].members)]
            avals = tuple(groups.avals[v] for v in part.results)
            node = Node(FUSED, inputs, {"body": part.body}, count, avals, last.label, last.line, last.region)
        made.nodes.append(node)
        for v in part.results:
            number[v] = count
            count += 1
    made.outputs = tuple(number[v] for v in graph.outputs)
    return made


@dataclass(slots=True)
class _GroupNode:
    """A group in the new graph: the values of the old graph that it reads and computes, and its body if it is compiled."""

    inputs: list[int]
    results: list[int]
    body: Graph | None = None


def _parts(graph: Graph, groups: _Groups) -> tuple[dict[int, _GroupNode], list[int]]:
    """The ``_GroupNode`` of each group, and the groups that the graph's results depend on, in order."""
    parts = {u: _part(graph, groups, u) for u in groups.by_first}
    wanted, kept = set(graph.outputs).union(*(n.results for n in graph.nodes if raises(n))), []
    for u in reversed(_order(groups, parts)):
        if wanted.intersection(parts[u].results):
            kept.append(u)
            wanted.update(parts[u].inputs)
    return parts, kept[::-1]


def _part(graph: Graph, groups: _Groups, u: int) -> _GroupNode:
    group = groups.by_first[u]
    if group.shape is None:
        n = graph.nodes[u]
        return _GroupNode(list(n.inputs), list(n.results))
    return _BodyBuilder(graph, groups, sorted(group.members)).part


class _BodyBuilder:
    """Builds the body of a group."""

    def __init__(self, graph: Graph, groups: _Groups, members: list[int]) -> None:
        self.graph, self.groups = graph, groups
        inside = {v for k in members for v in graph.nodes[k].results}
        self.taken: list[Node] = []  # views and constants that are copied into the body, operands first
        self.seen: set[int] = set()
        kind = groups.by_first[groups.group_of[members[0]]].kind
        self.alone = kind == ALONE  # kernels of single nodes read arrays, not views
        self.mapped = kind == MAP
        self.product = False  # true while operands of a product are added, whose views cost nothing, since they are packed
        fusion, dtype = graph.nodes[members[0]].op.fusion, graph.nodes[members[0]].avals[0].dtype
        self.numbered = kind == ALONE and (fusion == "move" or (fusion == "scatter" and dtype.kind != "complex"))
        self.inputs: list[int] = []
        for k in members:  # operands that are read at any position are inputs, not views
            n = graph.nodes[k]
            for i in whole(n, [groups.avals[v] for v in n.inputs]):
                if n.inputs[i] not in inside and n.inputs[i] not in self.seen:
                    self.seen.add(n.inputs[i])
                    self.inputs.append(n.inputs[i])
        first = groups.by_first[groups.group_of[members[0]]].members[0]
        if kind == CONTRACT:
            self.product = graph.nodes[first].op.facts is None  # matrix products: views become axes of the problem
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
        if kind != ALONE:  # kernels of single nodes write all of their results
            results = [v for v in results if v in groups.outputs or not groups.users[v] <= own]
        body.outputs = tuple(number[v] for v in results)
        self.part = _GroupNode(self.inputs, results, body)

    def _take_all(self, k: int, inside: set[int]) -> None:
        """Add the values from other groups that a node reads."""
        for v in self.graph.nodes[k].inputs:
            if v not in inside:
                self._take(v)

    def _take(self, v: int) -> None:
        """Add a value from another group: a free view or a constant is copied into the body, any other value is an input."""
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
        """Whether node ``k``, the producer of value ``v``, is copied into the body."""
        if self._grouped(k):
            return False
        if self.product:
            found = None if self.groups.is_number(v) else self._viewed(v)
            return self._rearranges(k) and found is not None and all(len(axis) == 1 for axis in found.axes[:-2])
        if self.alone:
            return self.numbered and self.groups.is_number(v)
        return self.groups.facts[k].free or (self.mapped and self.groups.facts[k].part)

    def _grouped(self, k: int) -> bool:
        """Whether a node is in a compiled group, such as a reshape of a product."""
        return self.groups.by_first[self.groups.group_of[k]].shape is not None

    def _rearranges(self, k: int) -> bool:
        """Whether a node's result is a view of all elements of its operand."""
        n = self.graph.nodes[k]
        if not n.op.view or len(n.avals) != 1:
            return False
        operand = self.groups.avals[n.inputs[0]]
        found = viewed(n, 0, row_major(operand.shape))
        return found is not None and found.covers(operand.size)

    def _viewed(self, v: int) -> View | None:
        """A value as a view of the array that it shares memory with; None if that needs a copy."""
        k = self.groups.made_by.get(v)
        if k is None or not self._rearranges(k) or self._grouped(k):
            return row_major(self.groups.avals[v].shape)
        n = self.graph.nodes[k]
        below = self._viewed(n.inputs[0])
        return None if below is None else viewed(n, 0, below)


def _order(groups: _Groups, parts: dict[int, _GroupNode]) -> list[int]:
    """The groups in topological order; among ready ones, by the number of their first node.

    So what a group computes is used while it is in the caches. By the last node, a group that takes in a node from the end of
    the graph, and what depends on it, would come behind all that is ready: such as the random numbers of all layers.
    """
    group_of = {v: u for u, part in parts.items() for v in part.results}
    waits = {u: {group_of[v] for v in part.inputs if v in group_of} for u, part in parts.items()}
    users: dict[int, list[int]] = {u: [] for u in parts}
    for u, needed in waits.items():
        for w in needed:
            users[w].append(u)
    ready = [(min(groups.by_first[u].members), u) for u, needed in waits.items() if not needed]
    heapq.heapify(ready)
    out = []
    while ready:
        _, u = heapq.heappop(ready)
        out.append(u)
        for w in users[u]:
            waits[w].discard(u)
            if not waits[w]:
                heapq.heappush(ready, (min(groups.by_first[w].members), w))
    return out
