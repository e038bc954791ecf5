"""The memory plan of a graph: the order of its nodes, the results that are written over dead values, and the copies.

Every value is in a buffer: that of an input, of a constant, or one that a kernel allocates. An op with ``view`` returns memory
of its first operand, so its results belong to that operand's buffer, even if the engine copies them. A buffer is dead after the
last use of any value in it; outputs are never dead.

Nodes that overwrite donated inputs run as late as possible: they, their consumers, and elementwise producers that only they
use are moved after all other nodes, so that a failure before them leaves all inputs unchanged.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from firebrick.compiler.layout.views import keeps_order, strided_view
from firebrick.compiler.program.expression import KEPT, ROWS, Kernel
from firebrick.core.aval import Aval
from firebrick.core.indexing import strides_of
from firebrick.core.op import Op
from firebrick.core.views import View, strided
from firebrick.ir import Graph, Node
from firebrick.ir.nested import nodes_in

_FOREVER = 1 << 60
_DEPTH = 12
"""Maximum number of elementwise ops between a state and its updated value."""


@dataclass
class Plan:
    """Order and memory of a program, with figures in bytes.

    Attributes:
        order: Indices of the graph's nodes in the order in which they run.
        into: Index of a node → the value whose memory its result is written to.
        outs: A result of a kernel with several results → the value whose memory it is written to.
        dies: Position in ``order`` → values whose last use is the node at that position.
        begin: Number of nodes of ``order`` that run before the first one that overwrites a donated input.
        writes: The inputs that are overwritten.
        copied: Positions of outputs that are copied, since they would share memory with an input, a constant or another output.
        ready: Positions of outputs that are computed before the first donated input is overwritten.
        peak: Peak memory of intermediate values and outputs, without inputs and constants.
        unplanned: Peak memory if every result had separate memory.
        reused: Bytes of results written over dead values, donated inputs included.
        donated: Bytes of results written over donated inputs.
        constants: Bytes of constant arrays.
    """

    order: list[int]
    into: dict[int, int] = field(default_factory=dict)
    outs: dict[int, int] = field(default_factory=dict)
    dies: dict[int, list[int]] = field(default_factory=dict)
    begin: int = 0
    writes: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()
    ready: tuple[int, ...] = ()
    peak: int = 0
    unplanned: int = 0
    reused: int = 0
    donated: int = 0
    constants: int = 0

    def __str__(self) -> str:
        saved = f", {size_text(self.unplanned)} with memory of its own for every result" if self.unplanned > self.peak else ""
        lines = [
            f"memory: at most {size_text(self.peak)} without inputs and constants{saved}",
            f"reuse: {len(self.into) + len(self.outs)} results, {size_text(self.reused)}, over dead values; "
            f"{size_text(self.donated)} of donated inputs",
        ]
        if self.writes:
            lines.append(f"donated inputs overwritten: {', '.join(f'%{i}' for i in sorted(self.writes))}")
        if self.constants:
            lines.append(f"constants: {size_text(self.constants)}")
        return "\n".join(lines)


def size_text(n: float) -> str:
    """A number of bytes as text."""
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.2f} GiB"


class _Values:
    """The values of a graph: their consumers, their buffer and layout in it, and whether it may be overwritten."""

    def __init__(self, graph: Graph, kernels: Sequence[Kernel | None], donated: frozenset[int]) -> None:
        self.graph = graph
        self.avals = graph.avals
        count = len(graph.inputs)
        self.node_of: dict[int, int] = {}
        self.consumers: list[list[int]] = [[] for _ in self.avals]
        self.buffer = list(range(len(self.avals)))  # the number of the value that owns the memory
        self.rows = [True] * len(self.avals)
        # whether a value is its whole buffer, contiguous, so that the buffer can hold a result of its shape
        self.whole = [v in donated for v in range(count)] + [False] * (len(self.avals) - count)
        self.strides: dict[int, tuple[int, ...]] = {}  # strides in elements, of values for which they are known
        self.constants: set[int] = set()
        self.scratch = [0 if kernel is None else kernel.scratch for kernel in kernels]
        for k, (n, kernel) in enumerate(zip(graph.nodes, kernels, strict=True)):
            for i in set(n.inputs):
                self.consumers[i].append(k)
            for v in n.results:
                self.node_of[v] = k
                if kernel is None:
                    self.constants.add(v)
                    continue
                self.rows[v] = kernel.layout == ROWS or (kernel.layout == KEPT and all(self.rows[i] for i in n.inputs))
                if n.op.view and self._copies(n):
                    self.rows[v] = self.whole[v] = True
                elif n.op.view:
                    self.buffer[v] = self.buffer[n.inputs[0]]
                    self.whole[v] = n.op.reshapes and self.whole[n.inputs[0]]
                else:
                    self.whole[v] = self.rows[v]
                if kernel.layout == ROWS:
                    self.strides[v] = tuple(strides_of(self.avals[v].shape))
                elif n.op.view and n.inputs[0] in self.strides:
                    view = self._viewed(n, v - n.first)
                    if view is not None and view.strides is not None:
                        self.strides[v] = view.strides
        self.donated = donated
        self.outputs = frozenset(graph.outputs)

    def _copies(self, n: Node) -> bool:
        """Whether a view is certain to be a copy: a reshape that merges axes that are not contiguous with each other."""
        return n.inputs[0] in self.strides and self.avals[n.inputs[0]].size > 0 and self._viewed(n, 0) is None

    def _viewed(self, n: Node, slot: int) -> View | None:
        """The view that a result is of its operand's memory, whose strides are known; None if it is a copy."""
        v = n.inputs[0]
        return strided_view(n, slot, strided(self.avals[v].shape, self.strides[v]))

    def is_input(self, v: int) -> bool:
        return v < len(self.graph.inputs)

    def bytes(self, v: int) -> int:
        return self.avals[v].nbytes


def plan_memory(
    graph: Graph, kernels: Sequence[Kernel | None], donate: Iterable[int] = (), ready: Iterable[int] = (),
    arrange: Callable[[list[int]], list[int]] = list, private: bool = False,
) -> Plan:  # fmt: skip
    """Plan the order and memory of a graph.

    Args:
        graph: The program.
        kernels: The kernel of each node; None for constants.
        donate: Numbers of inputs that may be overwritten.
        ready: Positions of outputs that must be computed before the first donated input is overwritten.
        arrange: Reorders indices of nodes topologically. It is called for the nodes before those that overwrite donated
            inputs, then for these.
        private: Whether nobody sees the donated inputs when a node raises an error, so that such nodes may overwrite them.
    """
    ready = tuple(ready)
    plans = []
    checked = set() if private else _checked(graph, kernels)
    early = _producers(graph, {graph.outputs[position] for position in ready} | checked)
    for donated in dict.fromkeys((frozenset(donate), frozenset())):
        values = _Values(graph, kernels, donated)
        tail = _tail(values, kernels, early) if donated else frozenset()
        order = arrange([k for k in range(len(graph.nodes)) if k not in tail]) + arrange(sorted(tail))
        assigned, reuses = _assigned(values, kernels, order, tail, True)
        plans.append(assigned)
        if reuses:  # otherwise both plans are equal
            plans.append(_assigned(values, kernels, order, tail, False)[0])
    for p in plans:
        p.ready = ready
    # dead memory is kept for later results, and updates run last, only if that does not increase the peak
    best = min(plans, key=lambda p: p.peak)
    straight = range(len(graph.nodes))
    best.unplanned = _peak(values, _Lifetimes(values, straight), straight, best.copied)
    return best


# nodes that run last


def _producers(graph: Graph, wanted: set[int]) -> frozenset[int]:
    """The nodes that values depend on."""
    needed = set()
    for k in range(len(graph.nodes) - 1, -1, -1):
        n = graph.nodes[k]
        if wanted.intersection(n.results):
            needed.add(k)
            wanted.update(n.inputs)
    return frozenset(needed)


def _checked(graph: Graph, kernels: Sequence[Kernel | None]) -> set[int]:
    """Results of nodes that raise an error for some values of their operands. Such nodes run before donated inputs are
    overwritten."""
    return {
        v
        for n, kernel in zip(graph.nodes, kernels, strict=True)
        if kernel is not None and (kernel.faults or any(_indexes(m.op) or m.op.partial for m in nodes_in([n])))
        for v in n.results
    }


@cache
def _indexes(op: Op) -> bool:
    """Whether an operation raises an error for some indices."""
    return any(o.name == "indices" for o in op.operands)


def _tail(values: _Values, kernels: Sequence[Kernel | None], early: frozenset[int]) -> frozenset[int]:
    """The nodes that compute new values of donated inputs, their consumers, and elementwise nodes that only they use; without
    ``early``."""
    nodes = values.graph.nodes
    unassigned = set(values.donated)
    tail: set[int] = set()
    for v in values.graph.outputs:
        k = values.node_of.get(v)
        kernel = None if k is None else kernels[k]
        if k is None or k in tail or k in early or kernel is None or not kernel.writes:
            continue
        state = _state_of(values, v, unassigned)
        if state is not None:
            unassigned.discard(state)
            tail.add(k)
    for k, n in enumerate(nodes):
        if any(values.node_of.get(i) in tail for i in n.inputs):
            tail.add(k)
    for k in range(len(nodes) - 1, -1, -1):
        if k not in tail and k not in early and _only_for(tail, values, nodes[k]):
            tail.add(k)
    return frozenset(tail)


def _state_of(values: _Values, v: int, unassigned: set[int]) -> int | None:
    """The donated input of which ``v`` is the next state: the nearest one of its shape and dtype through elementwise ops."""
    queue = deque([(v, 0)])
    seen = {v}
    while queue:
        at, depth = queue.popleft()
        if at in unassigned and values.avals[at] == values.avals[v]:
            return at
        k = values.node_of.get(at)
        if k is None or depth == _DEPTH or values.graph.nodes[k].op.fusion != "map":
            continue
        for i in values.graph.nodes[k].inputs:
            if i not in seen:
                seen.add(i)
                queue.append((i, depth + 1))
    return next((i for i in sorted(unassigned) if values.avals[i] == values.avals[v]), None)


def _only_for(tail: set[int], values: _Values, n: Node) -> bool:
    """Whether all consumers of an elementwise node are in the tail, and running it later keeps no more memory alive."""
    if not (n.op.fusion == "map" or n.op.view) or values.outputs.intersection(n.results):
        return False
    consumers = {k for v in n.results for k in values.consumers[v]}
    if not consumers or not consumers <= tail:
        return False
    available = 0
    for i in set(n.inputs) - values.outputs - values.constants:
        if not values.is_input(i) and not any(k in tail for k in values.consumers[i]):
            available += values.bytes(i)
    return available <= sum(values.bytes(v) for v in n.results)


# memory of results


class _Lifetimes:
    """The last use of each buffer, as a position in the order, while results are assigned to buffers of other values."""

    def __init__(self, values: _Values, order: Sequence[int]) -> None:
        position_of = {k: p for p, k in enumerate(order)}
        self.buffers = list(values.buffer)
        self.moved: dict[int, int] = {}
        self.last = [-1] * len(values.avals)
        for v, consumers in enumerate(values.consumers):
            b = values.buffer[v]
            self.last[b] = max([self.last[b], *(position_of[k] for k in consumers)])
        for v in values.graph.outputs:
            self.last[values.buffer[v]] = _FOREVER

    def buffer(self, v: int) -> int:
        """The buffer of a value."""
        b = first = self.buffers[v]
        while b in self.moved:
            b = self.moved[b]
        if b != first:
            self.moved[first] = b  # path compression
        return b

    def move(self, v: int, into: int) -> None:
        """Assign the value ``v``, and all views of it, to the buffer ``into``."""
        self.last[into] = self.last[v]
        self.moved[v] = into


def _assigned(
    values: _Values, kernels: Sequence[Kernel | None], order: list[int], tail: frozenset[int], pool: bool
) -> tuple[Plan, bool]:  # fmt: skip
    """The plan of an order, and whether some result uses memory of a value that is dead before the result's node runs.

    Args:
        values: The graph's values.
        kernels: The kernels of its nodes.
        order: The order of its nodes.
        tail: The nodes that run last.
        pool: Whether memory of dead values is kept for later results of the same shape and dtype.
    """
    plan, reuses = Plan(order, begin=len(order)), False
    lifetimes = _Lifetimes(values, order)
    available: dict[Aval, dict[int, int]] = defaultdict(dict)  # values whose buffers are free, or donated inputs
    for i in sorted(values.donated, reverse=True):
        available[values.avals[i]][i] = i
    writes: set[int] = set()
    for p, k in enumerate(order):
        n, kernel = values.graph.nodes[k], kernels[k]
        several = kernel is not None and kernel.outs is not None
        taken: set[int] = set()  # buffers of this node's results: one that nothing uses is written too
        for v in n.results if several else (n.first,):
            if kernel is None or not kernel.writes or not values.whole[v] or n.op.view:
                continue
            assigned = _reusable_memory(values, lifetimes, n, v, kernel, p, k in tail, available[values.avals[v]], taken)
            if assigned is not None:
                if several:
                    plan.outs[v] = assigned
                else:
                    plan.into[k] = assigned
                source = lifetimes.buffer(assigned)
                taken.add(source)
                reuses |= lifetimes.last[source] < p and not values.is_input(source)
                lifetimes.move(v, source)
                plan.reused += values.bytes(v)
                if values.is_input(source):
                    writes.add(source)
                    plan.begin = min(plan.begin, p)
                    plan.donated += values.bytes(v)
        if pool:
            for v in dict.fromkeys((*n.results, *n.inputs)):  # results first, since one may be in an operand's buffer
                b = lifetimes.buffer(v)
                if values.whole[v] and lifetimes.last[b] <= p and not values.is_input(b):
                    available[values.avals[v]].setdefault(b, v)
    plan.writes = frozenset(writes)
    position_of = {k: p for p, k in enumerate(order)}
    last = {
        v: max([position_of[k] for k in values.consumers[v]], default=position_of[made])
        for v, made in values.node_of.items()
        if v not in values.constants and v not in values.outputs
    }
    for k, u in (*plan.into.items(), *((values.node_of[v], u) for v, u in plan.outs.items())):
        if u in last:  # memory that is kept for a later result stays until that result's node
            last[u] = max(last[u], position_of[k])
    for v, p in last.items():
        plan.dies.setdefault(p, []).append(v)
    plan.copied = _copied(values, lifetimes)
    plan.peak = _peak(values, lifetimes, order, plan.copied)
    plan.constants = sum(values.bytes(v) for v in values.constants)
    return plan, reuses


def _reusable_memory(
    values: _Values, lifetimes: _Lifetimes, n: Node, v: int, kernel: Kernel, p: int, late: bool, available: dict[int, int],
    taken: set[int],
) -> int | None:  # fmt: skip
    """The value whose memory the result ``v`` of node ``n`` at position ``p`` is written to; None for new memory."""
    aval = values.avals[v]
    # the operands that may be overwritten while the other ones are read
    if kernel.outs is not None:
        operands_over = kernel.over[v - n.first]
        over = [n.inputs[j] for j in sorted(operands_over)]
        count = len(values.graph.inputs)  # donated inputs first, so that state is updated in place
        over = [i for i in over if i < count] + [i for i in over if i >= count]
    else:
        operands_over = frozenset(range(len(n.inputs)) if kernel.elementwise else ())
        over = [n.inputs[j] for j in sorted(operands_over)][: None if kernel.into is not None else 1]
    buffers: list[int] = []  # of the operands, looked up when one may be overwritten
    for i in dict.fromkeys(over):
        if not values.whole[i] or values.avals[i] != aval:
            continue
        b = lifetimes.buffer(i)
        if lifetimes.last[b] != p or (values.is_input(b) and not (late and b in values.donated)):
            continue
        buffers = buffers or [lifetimes.buffer(j) for j in n.inputs]
        if all(c != b or (n.inputs[j] == i and j in operands_over) for j, c in enumerate(buffers)):
            return i
    for b, u in reversed(available.items()) if kernel.first is None or kernel.into is not None else ():
        if b not in taken and lifetimes.last[b] < p and (late or not values.is_input(b)):
            if not values.is_input(b):
                del available[b]
            return u
    return None


def _copied(values: _Values, lifetimes: _Lifetimes) -> frozenset[int]:
    """Positions of outputs that would share memory with an input, a constant or a previous output, or that are only a part of
    their buffer."""
    seen: set[int] = set()
    copied = set()
    for position, v in enumerate(values.graph.outputs):
        b = lifetimes.buffer(v)
        own = not values.is_input(lifetimes.buffers[v]) and b not in values.constants
        if own and b not in seen and _one_to_one(values, v):
            seen.add(b)
        else:
            copied.add(position)
    return frozenset(copied)


def _reshapes(values: _Values, n: Node) -> bool:
    """Whether a node's result has the elements of its operand in the same order, in another shape."""
    source = values.avals[n.inputs[0]].shape
    return n.op.view is not None and n.avals[0].shape != source and keeps_order(n, source)


def _one_to_one(values: _Values, v: int) -> bool:
    """Whether a value contains each element of its buffer exactly once."""
    while v in values.node_of and values.graph.nodes[values.node_of[v]].op.view:
        n = values.graph.nodes[values.node_of[v]]
        if values.avals[v].size != values.avals[n.inputs[0]].size:
            return False
        v = n.inputs[0]
    return True


def _peak(values: _Values, lifetimes: _Lifetimes, order: Sequence[int], copied: frozenset[int]) -> int:
    """The peak memory of intermediate values and outputs, by simulation of the order."""
    nodes = values.graph.nodes
    position_of = {k: p for p, k in enumerate(order)}
    ends: dict[int, int] = {}
    for v, k in values.node_of.items():
        b = lifetimes.buffer(v)
        if values.is_input(b) or b in values.constants:
            continue
        last = _FOREVER if v in values.outputs else max([position_of[k], *(position_of[u] for u in values.consumers[v])])
        ends[b] = max(ends.get(b, -1), last)
        if values.buffer[v] != v and not values.rows[nodes[k].inputs[0]] and _reshapes(values, nodes[k]):
            ends[v] = last  # most such reshapes have to copy
    freed: dict[int, int] = defaultdict(int)
    live = peak = 0
    for p, k in enumerate(order):
        for v in nodes[k].results:
            if v in ends:
                live += values.bytes(v)
                freed[ends[v]] += values.bytes(v)
        peak = max(peak, live + values.scratch[k])
        live -= freed.pop(p, 0)
    return max(peak, live + sum(values.bytes(values.graph.outputs[i]) for i in copied))
