"""Segments: consecutive nodes of a program that an engine computes in one native call.

Results that other nodes or the caller use are arrays; all other values are in one arena, where values that are not live at the
same time share memory. A row-major view is not a node of its own: kernels read the viewed memory at a byte offset. Other views
are copied before their first use. No segment extends beyond the point where a program begins to overwrite donated inputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from firebrick.compiler.layout.views import strided_view
from firebrick.compiler.program.expression import Kernel
from firebrick.compiler.program.plan import Plan
from firebrick.compiler.program.spans import Span, arranged, rounded
from firebrick.core.aval import Aval
from firebrick.core.views import View, row_major
from firebrick.ir import CONSTANT, Graph, Node

NATIVE, VIEW, HOST, NUMBER = "native", "view", "host", "number"
_LARGE = 1 << 20
"""Minimum bytes of the results of a host node that is computed as late as possible; others are computed early if that makes
segments longer."""


class Memory(Protocol):
    """The memory of a native node's kernels."""

    @property
    def temporary(self) -> tuple[int, ...]:
        """Bytes of each temporary buffer."""

    @property
    def over(self) -> tuple[frozenset[int], ...]:
        """For each result, the operands whose memory it may use."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A row-major operand, at a byte offset in a buffer."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A native node, or a copy of a view to row-major memory.

    Attributes:
        node: Its index in the graph; -1 for a copy.
        operands: Their buffers and offsets; of a copy, the buffer of the view.
        results: Buffers: values by their numbers, copies by numbers beyond those.
        view: Of a copy: the view that it reads, and its shape and dtype.
    """

    node: int
    operands: tuple[Ref, ...]
    results: tuple[int, ...]
    view: tuple[View, Aval] | None = None


@dataclass(slots=True)
class NodeSegment:
    """A segment: the nodes of one native call.

    Attributes:
        nodes: Indices of the nodes, in order.
        calls: Their kernels, and copies of views.
        arrays: The values that it reads as arrays, as keys in order.
        results: The values that it returns as arrays.
        into: Some results → the array whose memory they use, if it is row-major: one from outside, or another result.
    """

    nodes: list[int] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    arrays: dict[int, None] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)
    into: dict[int, int] = field(default_factory=dict)

    @property
    def outside(self) -> list[int]:
        """The arrays from outside whose memory results use."""
        made = set(self.results)
        return list(dict.fromkeys(u for u in self.into.values() if u not in made))


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """The segments of a program.

    Attributes:
        plan: The plan of the arrays and of the host nodes.
        segments: The segments, in order.
        skipped: Indices of nodes that are not executed: views that kernels read through.
        arena: Bytes of the arena.
        at: Buffer that is no array → its offset in the arena.
        temporary: Index of a node → offsets of its temporary buffers.
    """

    plan: Plan
    segments: list[NodeSegment]
    skipped: frozenset[int]
    arena: int
    at: dict[int, int]
    temporary: dict[int, tuple[int, ...]]


class Kinds:
    """The nodes of a graph by kind: native nodes, views that only native nodes read, constants, and host nodes.

    Args:
        graph: The program.
        memory: The kernels of each native node; None for other nodes.
    """

    def __init__(self, graph: Graph, memory: Sequence[Memory | None]) -> None:
        self.graph, self.avals = graph, graph.avals
        self.node_of = {v: k for k, n in enumerate(graph.nodes) for v in n.results}
        self.memory = memory
        self.of = [self._first(k, n) for k, n in enumerate(graph.nodes)]
        self.wanted = set(graph.outputs)  # values that are read as arrays outside of segments
        for k in range(len(graph.nodes) - 1, -1, -1):
            n = graph.nodes[k]
            if self.of[k] == VIEW and self.wanted.intersection(n.results):
                self.of[k] = HOST
            if self.of[k] == HOST:
                self.wanted.update(n.inputs)

    def _first(self, k: int, n: Node) -> str:
        if self.memory[k] is not None:
            return NATIVE
        if n.op is CONSTANT:
            return NUMBER
        return VIEW if n.op.view else HOST

    def base(self, v: int) -> int:
        """The value whose memory a value views, directly or through other views."""
        while v in self.node_of and self.graph.nodes[self.node_of[v]].op.view:
            v = self.graph.nodes[self.node_of[v]].inputs[0]
        return v

    def arrange(self, nodes: Sequence[int]) -> list[int]:
        """The same nodes in a topological order with few, long segments."""
        both = [_Order(self, nodes, first).made for first in (NATIVE, HOST)]
        return min(both, key=self._switches)

    def _switches(self, order: Iterable[int]) -> int:
        kinds = [self.of[k] for k in order if self.of[k] in (NATIVE, HOST)]
        return sum(a != b for a, b in pairwise(kinds))


class _Order:
    """A greedy order: ready native nodes while there are any, then other ready nodes until a native one is ready."""

    def __init__(self, kinds: Kinds, nodes: Sequence[int], first: str) -> None:
        self.kinds, self.graph = kinds, kinds.graph
        self.sorted = sorted(nodes)
        self.remaining = set(nodes)
        self.at = 0
        self.consumers: dict[int, list[int]] = {k: [] for k in nodes}
        self.missing: dict[int, int] = {}
        self.made: list[int] = []
        self.native: list[int] = []
        self.others: list[int] = []
        self.large: list[int] = []
        for k in self.sorted:
            needed = self._needed(k) & self.remaining
            self.missing[k] = len(needed)
            for j in needed:
                self.consumers[j].append(k)
        for k in [k for k in self.sorted if not self.missing[k]]:
            self._ready(k)
        if first == HOST:
            self._drain(self.others)
        while left := len(self.remaining):
            self._drain(self.native)
            self._drain(self.others)
            waiting = len(self.remaining) == left  # all ready native nodes recompute, and come after a large node
            if self.large and (waiting or not self.native):
                self._put(heapq.heappop(self.large))

    def _needed(self, k: int) -> set[int]:
        """The nodes that a node depends on, directly or through views."""
        n = self.graph.nodes[k]
        values = map(self.kinds.base, n.inputs) if self.kinds.of[k] == NATIVE else n.inputs
        return {self.kinds.node_of[v] for v in values if v in self.kinds.node_of}

    def _ready(self, k: int) -> None:
        kind = self.kinds.of[k]
        if kind == NATIVE:
            heapq.heappush(self.native, k)
        elif kind != HOST:
            self._put(k)
        else:
            n = self.graph.nodes[k]
            large = not n.op.view and sum(a.nbytes for a in n.avals) >= _LARGE
            heapq.heappush(self.large if large else self.others, k)

    def _drain(self, heap: list[int]) -> None:
        """Append all ready nodes of a heap. Nodes that are recomputed to save memory wait for all preceding nodes."""
        blocked = []
        while heap:
            k = heapq.heappop(heap)
            if self.graph.nodes[k].region and self._first() != k:
                blocked.append(k)
            else:
                self._put(k)
        for k in blocked:
            heapq.heappush(heap, k)
        if blocked and not self._can_proceed():
            first = self._first()
            for h in (self.native, self.others, self.large):
                if first in h:
                    h.remove(first)
                    heapq.heapify(h)
            self._put(first)

    def _can_proceed(self) -> bool:
        """Whether there is a ready node that need not wait for preceding nodes."""
        return any(not self.graph.nodes[k].region for h in (self.native, self.others, self.large) for k in h)

    def _first(self) -> int:
        while self.sorted[self.at] not in self.remaining:
            self.at += 1
        return self.sorted[self.at]

    def _put(self, k: int) -> None:
        self.remaining.discard(k)
        self.made.append(k)
        for user in self.consumers[k]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._ready(user)


def find_segments(kinds: Kinds, kernels: Sequence[Kernel | None], plan: Plan) -> SegmentPlan:
    """The segments of a program.

    Args:
        kinds: Of its nodes.
        kernels: Of its nodes; host nodes' kernels have scratch memory.
        plan: Order and arrays, as if each node were a call of its own.
    """
    return _SegmentBuilder(kinds, kernels, plan).build()


class _SegmentBuilder:
    def __init__(self, kinds: Kinds, kernels: Sequence[Kernel | None], plan: Plan) -> None:
        self.kinds, self.kernels, self.plan = kinds, kernels, plan
        self.graph, self.avals = kinds.graph, kinds.avals
        self.segments: list[NodeSegment] = []
        self.actions: list[NodeSegment | int] = []  # segments, and host nodes
        self.into, self.owner = self._arrays()
        self.views: dict[int, tuple[int, View]] = {}
        self.copies: dict[int, int] = {}
        self.sizes: dict[int, int] = {}  # of copies, in bytes
        self.made_in: dict[int, NodeSegment] = {}
        current: NodeSegment | None = None
        for p, k in enumerate(plan.order):
            if p == plan.begin or kinds.of[k] == HOST:
                current = None
            if kinds.of[k] == HOST:
                self.actions.append(k)
            elif kinds.of[k] == NATIVE:
                if current is None:
                    current = NodeSegment()
                    self.segments.append(current)
                    self.actions.append(current)
                self._native(k, current)

    def _arrays(self) -> tuple[dict[int, int], dict[int, int]]:
        """For each array: the array whose memory it uses, if any, and the first array in that memory."""
        into: dict[int, int] = {}
        owner = {v: v for v in range(len(self.graph.inputs))}
        for k in self.plan.order:
            n, kind = self.graph.nodes[k], self.kinds.of[k]
            if kind not in (NATIVE, HOST) or n.op.view:
                continue
            for v in n.results:
                over = self.plan.outs.get(v, self.plan.into.get(k, -1) if v == n.first else -1)
                if over in owner and (v in self.kinds.wanted or kind == HOST or owner[over] < len(self.graph.inputs)):
                    into[v], owner[v] = over, owner[over]
                elif v in self.kinds.wanted or kind == HOST:
                    owner[v] = v
        return into, owner

    def _is_array(self, buffer: int) -> bool:
        k = self.kinds.node_of.get(buffer)
        return buffer in self.owner or (k is not None and self.kinds.of[k] in (NUMBER, HOST))

    def _native(self, k: int, segment: NodeSegment) -> None:
        n = self.graph.nodes[k]
        operands = tuple(self._operand(v, segment) for v in n.inputs)
        segment.nodes.append(k)
        self._call(Call(k, operands, tuple(n.results)), segment)
        for v in n.results:
            if v in self.owner:
                segment.results.append(v)
                self.made_in[v] = segment
                if v in self.into:
                    segment.into[v] = self.into[v]

    def _call(self, call: Call, segment: NodeSegment) -> None:
        segment.calls.append(call)
        for r in call.operands:
            if self._is_array(r.buffer) and self.made_in.get(r.buffer) is not segment:
                segment.arrays[r.buffer] = None

    def _operand(self, v: int, segment: NodeSegment) -> Ref:
        buffer, view = self._view_in_buffer(v, segment)
        if not view.in_rows:
            return Ref(self._copied(v, segment))
        return Ref(buffer, view.offset * self.avals[v].dtype.itemsize)

    def _view_in_buffer(self, v: int, segment: NodeSegment) -> tuple[int, View]:
        """The buffer of a value, and the view of the buffer that it is."""
        found = self.views.get(v)
        if found is None:
            found = self.views[v] = self._resolve_view(v, segment)
        return found

    def _resolve_view(self, v: int, segment: NodeSegment) -> tuple[int, View]:
        k = self.kinds.node_of.get(v)
        n = None if k is None else self.graph.nodes[k]
        if n is None or not n.op.view:
            return v, row_major(self.avals[v].shape)
        (source,) = n.inputs
        buffer, view = self._view_in_buffer(source, segment)
        found = strided_view(n, v - n.first, view)
        if found is not None:
            return buffer, found
        view_of_copy = strided_view(n, v - n.first, row_major(self.avals[source].shape))
        assert view_of_copy is not None  # every reshape of row-major memory is a view
        return self._copied(source, segment), view_of_copy

    def _copied(self, v: int, segment: NodeSegment) -> int:
        """The buffer of a row-major copy of a view."""
        if v not in self.copies:
            buffer, view = self._view_in_buffer(v, segment)
            made = self.copies[v] = self.graph.size + len(self.copies)
            self.sizes[made] = self.avals[v].nbytes
            self._call(Call(-1, (Ref(buffer),), (made,), (view, self.avals[v])), segment)
        return self.copies[v]

    # the arena

    def build(self) -> SegmentPlan:
        spans: dict[int, Span] = {}
        group: dict[int, int] = {}
        temporary: dict[int, list[Span]] = {}
        calls = [c for segment in self.segments for c in segment.calls]
        last: dict[int, int] = {}
        for t, c in enumerate(calls):
            last.update((r.buffer, t) for r in c.operands)
        for t, c in enumerate(calls):
            taken: set[int] = set()
            for slot, v in enumerate(c.results):
                if self._is_array(v):
                    continue
                end = last.get(v, t)
                over = self._over(c, slot, t, last, taken, spans, group)
                if over is None:
                    spans[v], group[v] = Span(self._bytes(v), t, end), v
                else:
                    taken.add(over)
                    group[v] = group[over]
                    spans[group[v]].last = end
            memory = self.kinds.memory[c.node] if c.node >= 0 else None
            if memory is not None:
                temporary[c.node] = [Span(nbytes, t, t) for nbytes in memory.temporary]
        arena = arranged([*spans.values(), *(s for found in temporary.values() for s in found)])
        unshared = sum(rounded(self._bytes(v)) for v in group)
        unshared += sum(rounded(s.nbytes) for found in temporary.values() for s in found)
        at = {v: spans[g].at for v, g in group.items()}
        skipped = frozenset(k for k, kind in enumerate(self.kinds.of) if kind == VIEW)
        offsets = {k: tuple(s.at for s in found) for k, found in temporary.items()}
        return SegmentPlan(self._planned(arena, unshared), self.segments, skipped, arena, at, offsets)

    def _over(
        self, c: Call, slot: int, t: int, last: dict[int, int], taken: set[int], spans: dict[int, Span], group: dict[int, int]
    ) -> int | None:  # fmt: skip
        """The buffer in the arena whose memory a result may use."""
        memory = self.kinds.memory[c.node] if c.node >= 0 else None
        for i in sorted(memory.over[slot]) if memory is not None else ():
            b = c.operands[i].buffer
            if b not in group or b in taken or sum(r.buffer == b for r in c.operands) > 1:
                continue
            span = spans[group[b]]
            if last[b] == span.last == t and span.nbytes == self.avals[c.results[slot]].nbytes:
                return b
        return None

    # the other nodes

    def _bytes(self, buffer: int) -> int:
        return self.sizes[buffer] if buffer in self.sizes else self.avals[buffer].nbytes

    def _planned(self, arena: int, unshared: int) -> Plan:
        """The plan of the arrays: their memory, the nodes after which they are released, and the peak.

        Args:
            arena: Bytes of the arena.
            unshared: Bytes if all values of the arena had separate memory.
        """
        ends: dict[int, int] = {}
        defined_at: dict[int, int] = {}
        for p, action in enumerate(self.actions):
            for v in self._read(action):
                ends[v] = p
            for v in self._written(action):
                ends[v] = defined_at[v] = p
        outputs = set(self.graph.outputs)
        position = {k: p for p, k in enumerate(self.plan.order)}
        dies: dict[int, list[int]] = {}
        for v, p in ends.items():
            if v not in outputs and v in defined_at:
                dies.setdefault(position[self._last_node(self.actions[p])], []).append(v)
        into = {k: u for k, u in self.plan.into.items() if self.into.get(self.graph.nodes[k].first) == u}
        outs = {v: u for v, u in self.plan.outs.items() if self.into.get(v) == u}
        arrays = self._peak(ends, defined_at, outputs)
        unplanned = max(self.plan.unplanned, unshared + arrays)
        reused = sum(self.avals[v].nbytes for v in self.into)
        return replace(self.plan, into=into, outs=outs, dies=dies, peak=arena + arrays, unplanned=unplanned, reused=reused)

    def _last_node(self, action: NodeSegment | int) -> int:
        """The last node of an action."""
        return action if isinstance(action, int) else action.nodes[-1]

    def _read(self, action: NodeSegment | int) -> Iterable[int]:
        if isinstance(action, NodeSegment):
            return [*action.arrays, *action.outside]
        n = self.graph.nodes[action]
        return [*n.inputs, *(u for v in n.results if (u := self.into.get(v)) is not None)]

    def _written(self, action: NodeSegment | int) -> Iterable[int]:
        return action.results if isinstance(action, NodeSegment) else self.graph.nodes[action].results

    def _peak(self, ends: dict[int, int], defined_at: dict[int, int], outputs: set[int]) -> int:
        """The peak memory of arrays, without inputs and constants."""
        until: dict[int, int] = {}
        owner: dict[int, int] = {}
        for v in defined_at:
            k = self.kinds.node_of[v]
            n = self.graph.nodes[k]
            if n.op.view and k not in self.plan.into:
                owner[v] = owner.get(n.inputs[0], n.inputs[0])
            else:
                owner[v] = owner.get(self.into[v], self.into[v]) if v in self.into else v
            b = owner[v]
            until[b] = len(self.actions) if v in outputs else max(until.get(b, -1), ends[v])
        live = peak = 0
        freed: dict[int, int] = {}
        for p, action in enumerate(self.actions):
            for v in self._written(action):
                if owner[v] == v:
                    live += self.avals[v].nbytes
                    freed[until[v]] = freed.get(until[v], 0) + self.avals[v].nbytes
            kernel = self.kernels[action] if isinstance(action, int) else None
            peak = max(peak, live + (kernel.scratch if kernel is not None else 0))
            live -= freed.pop(p, 0)
        return max(peak, live + sum(self.avals[self.graph.outputs[i]].nbytes for i in self.plan.copied))
