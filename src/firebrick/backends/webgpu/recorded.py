"""Segments of a program that are recorded as one: consecutive nodes whose launches are the same at every call.

A segment that runs again on the same buffers appends rows that it has kept to the table of launches; otherwise it makes bind
groups for the buffers that it gets. Values that only its own nodes use share buffers, in the order in which the program runs
them, and values of earlier segments that die in it leave theirs to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from firebrick.backends.webgpu.buffers import Block, DeviceArray, padded
from firebrick.backends.webgpu.commands import BATCH, Gpu
from firebrick.backends.webgpu.groups import CompiledGroup, raise_fault
from firebrick.backends.webgpu.launches import PreparedLaunch, PreparedSegment
from firebrick.backends.webgpu.lowering import SITES
from firebrick.compiler import Kernel, Plan
from firebrick.compiler.program.python import SegmentFunctions
from firebrick.compiler.program.segments import NodeSegment
from firebrick.compiler.spec.faults import FaultSite
from firebrick.compiler.spec.ranges import Ranges
from firebrick.core.aval import Aval
from firebrick.ir import Graph, Node

LEAST, MOST = 2, BATCH // 2
"""Minimum and maximum number of launches of a segment, which is submitted as a whole."""


class OneResult:
    """The function of a group with one result.

    Args:
        group: Its kernels.
        operands: Number of arguments that it reads.
    """

    def __init__(self, group: CompiledGroup, operands: int) -> None:
        self.group, self.operands = group, operands

    def __call__(self, *arrays: DeviceArray) -> DeviceArray:
        return self.group(*arrays[: self.operands])[0]


class SameMemory:
    """The function that gives all elements of its first argument another shape.

    Args:
        aval: Of the result.
    """

    def __init__(self, aval: Aval) -> None:
        self.aval = aval

    def __call__(self, *arrays: DeviceArray) -> DeviceArray:
        return arrays[0].as_shape(self.aval)


class AllResults:
    """The function that returns what several functions of the same arguments return."""

    def __init__(self, parts: tuple[Callable[..., DeviceArray], ...]) -> None:
        self.parts = parts

    def __call__(self, *arrays: DeviceArray) -> tuple[DeviceArray, ...]:
        return tuple([part(*arrays) for part in self.parts])


@dataclass(frozen=True, slots=True)
class _Part:
    """A group of a node, or a view of all elements of another value, which has no group."""

    group: CompiledGroup | None
    operands: tuple[int, ...]
    results: tuple[int, ...]


def _parts(function: Any, operands: tuple[int, ...], results: tuple[int, ...]) -> list[_Part] | None:
    """The parts of a node, by the function that runs it; None where it is no group."""
    if isinstance(function, CompiledGroup):
        return [_Part(function, operands, results)]
    if isinstance(function, OneResult):
        return _parts(function.group, operands[: function.operands], results)
    if isinstance(function, SameMemory):
        return [_Part(None, operands[:1], results)]
    if not isinstance(function, AllResults):
        return None
    found: list[_Part] = []
    for part, v in zip(function.parts, results, strict=True):
        parts = _parts(part, operands, (v,))
        if parts is None:
            return None
        found += parts
    return found


Place = tuple[bool, int]
"""Where a value is: whether in the buffer of an operand, and the number of that operand, or of a buffer of the segment."""


@dataclass(slots=True)
class _Draft:
    """What a segment does, with places of values in place of buffers."""

    arrays: dict[int, int] = field(default_factory=dict)  # values that it reads → their numbers
    sizes: list[int] = field(default_factory=list)  # of its own buffers
    steps: list[tuple[PreparedLaunch, list[Place | None]]] = field(default_factory=list)
    sources: dict[int, int] = field(default_factory=dict)  # views of all elements of another value → that value
    places: dict[int, Place] = field(default_factory=dict)
    free: defaultdict[int, list[Place]] = field(default_factory=lambda: defaultdict(list))  # by size

    def room(self, size: int) -> Place:
        """A buffer whose values are dead, else a new one."""
        if self.free[size]:
            return self.free[size].pop()
        self.sizes.append(size)
        return False, len(self.sizes) - 1


class Checks:
    """The checks of indices of a program, each call of which has a table of faults, and waits for it at its end unless the
    ranges of its inputs prove that it stays empty.

    Args:
        gpu: The device.
        graph: The program before nodes are fused.

    Attributes:
        sites: The checks, by their numbers in a table.
    """

    def __init__(self, gpu: Gpu, graph: Graph) -> None:
        self.gpu, self._graph = gpu, graph
        self.sites: list[FaultSite] = []
        self._before: Block | None = None

    @cached_property
    def _ranges(self) -> Ranges:
        return Ranges(self._graph)

    @contextmanager
    def __call__(self, inputs: Sequence[DeviceArray]) -> Iterator[DeviceArray]:
        """A table, for the time of a call.

        Args:
            inputs: Of the program.

        Raises:
            OutOfRangeError: An index was out of range.
        """
        ranges = self._ranges
        hold = ranges.hold([inputs[i].known_range for i in ranges.inputs])  # before a kernel writes there
        table = self.gpu.new_table(self._before)
        yield table
        assert table.lease is not None
        self._before = table.lease.block
        if not hold:
            raise_fault(self.gpu.read(table), self.sites)


class RecordedSegment:
    """A segment as a function of the arrays that it reads; of the table of faults before them, if its program has one.

    Args:
        gpu: The device.
        draft: What it does.
        results: For each result its place, None for one without elements, and its aval.
        checks: Whether its program has a table of faults.
    """

    def __init__(self, gpu: Gpu, draft: _Draft, results: Sequence[tuple[Place | None, Aval]], checks: bool) -> None:
        self._gpu, self._first = gpu, int(checks)
        operands = self._first + len(draft.arrays)
        self._results = [(place and (place[0], place[1] + self._first if place[0] else place[1]), a) for place, a in results]

        def position(place: Place | None) -> int:
            if place is None:
                return operands + len(draft.sizes)
            return place[1] + (self._first if place[0] else operands)

        steps = []
        for launch, places in draft.steps:
            numbers = tuple(map(position, places))
            steps.append((launch, (*numbers, 0) if launch.table is not None else numbers))
        self.prepared = PreparedSegment(steps, operands, draft.sizes)

    def __call__(self, *arrays: DeviceArray) -> tuple[DeviceArray, ...]:
        """Record the launches; the results."""
        gpu = self._gpu
        leases = gpu.recorded(self.prepared, arrays)
        made = []
        for place, aval in self._results:
            lease = None if place is None else arrays[place[1]].lease if place[0] else leases[place[1]]
            made.append(DeviceArray(gpu, lease, aval))
        return tuple(made)


def recorded_segments(
    gpu: Gpu, whole: Graph, graph: Graph, kernels: Sequence[Kernel | None], plan: Plan
) -> tuple[Plan, SegmentFunctions]:  # fmt: skip
    """The segments of a program, and its plan with them.

    Args:
        gpu: The device.
        whole: The program before nodes are fused.
        graph: The program.
        kernels: Of its nodes.
        plan: Order and memory.
    """
    return _Segments(gpu, whole, graph, kernels, plan).made()


class _Segments:
    """Plans the segments of a program.

    Args:
        gpu: The device.
        whole: The program before nodes are fused.
        graph: The program.
        kernels: Of its nodes.
        plan: Order and memory.
    """

    def __init__(self, gpu: Gpu, whole: Graph, graph: Graph, kernels: Sequence[Kernel | None], plan: Plan) -> None:
        self.gpu, self.graph, self.kernels, self.plan = gpu, graph, kernels, plan
        self.avals = graph.avals
        self._sites = 0  # of all parts, some of which may be in no segment
        self.parts = {k: self._parts_of(k, n) for k, n in enumerate(graph.nodes)}
        self.runs = self._runs()
        self.owner: dict[int, int] = {}  # of a view of all elements of another value → that value
        self.used: dict[int, int] = {}  # position of the last node that uses a value; of its own node where none does
        for p, k in enumerate(plan.order):
            n = graph.nodes[k]
            self.used.update(dict.fromkeys((*n.results, *n.inputs), p))
        self.used.update(dict.fromkeys(graph.outputs, len(plan.order)))
        self.inherited = self._inherited()
        self.checks = Checks(gpu, whole)
        self.ends: dict[int, int] = {}  # likewise, of a value and all its views
        for v, p in self.used.items():
            u = self.of(v)
            self.ends[u] = max(self.ends.get(u, -1), p)

    def of(self, v: int) -> int:
        """The value whose memory a value is in."""
        return self.owner.get(v, v)

    def _parts_of(self, k: int, n: Node) -> list[_Part] | None:
        kernel, plan = self.kernels[k], self.plan
        if kernel is None or set(kernel.names) != {"f"} or k in plan.into or not plan.outs.keys().isdisjoint(n.results):
            return None
        found = _parts(kernel.names["f"], tuple(n.inputs), tuple(n.results))
        checks = sum(len(part.group.lowered.sites) for part in found or () if part.group is not None)
        if self._sites + checks > SITES:
            return None
        self._sites += checks
        return found

    def _runs(self) -> list[list[int]]:
        """Positions in the order of the program, of nodes that follow each other but for constants."""
        runs: list[list[int]] = []
        current: list[int] = []
        launches = 0
        for p, k in enumerate([*self.plan.order, -1]):
            parts = self.parts[k] if k >= 0 else None
            more = sum(len(part.group.steps) for part in parts or () if part.group is not None)
            constant = k >= 0 and self.kernels[k] is None
            if p == self.plan.begin or (parts is None and not constant) or launches + more > MOST:
                if launches >= LEAST:
                    runs.append(current)
                current, launches = [], 0
            if parts is not None and more <= MOST:
                current.append(p)
                launches += more
        return runs

    def _inherited(self) -> set[int]:
        """The values whose memory only segments use: a later segment may write it when they are dead."""
        order, nodes = self.plan.order, self.graph.nodes
        inside = {p for run in self.runs for p in run}
        made: set[int] = set()
        for p in sorted(inside):
            for part in self.parts[order[p]] or ():
                if part.group is not None:
                    made.update(part.results)
                else:
                    self.owner[part.results[0]] = self.of(part.operands[0])
        others = {self.of(v) for p, k in enumerate(order) if p not in inside for v in nodes[k].inputs}
        return made - others - {self.of(v) for v in self.graph.outputs}

    def made(self) -> tuple[Plan, SegmentFunctions]:
        dies = dict(self.plan.dies)
        checks = any(part.group and part.group.lowered.sites for run in self.runs for part in self._parts_in(run))
        pairs = [self._segment(run, dies, checks) for run in self.runs]
        return replace(self.plan, dies=dies), SegmentFunctions(
            pairs, frozenset(), self.checks if checks else None, reads=checks
        )

    def _parts_in(self, run: list[int]) -> Iterator[_Part]:
        for p in run:
            yield from self.parts[self.plan.order[p]] or ()

    def _segment(
        self, run: list[int], dies: dict[int, list[int]], checks: bool
    ) -> tuple[NodeSegment, RecordedSegment]:  # fmt: skip
        """A segment and its function; what dies in it dies at its end."""
        nodes = [self.plan.order[p] for p in run]
        own = dict.fromkeys(v for k in nodes for v in self.graph.nodes[k].results)
        draft = _Draft()
        for p, k in zip(run, nodes, strict=True):
            for part in self.parts[k] or ():
                self._add(part, draft)
            self._release(p, draft)
        results = [v for v in own if self.used[v] > run[-1]]
        found = [(self._place(v, draft), self.avals[v]) for v in results]
        if dead := [v for p in run for v in dies.pop(p, ()) if v not in own]:
            dies[run[-1]] = dead
        segment = NodeSegment(nodes, arrays=dict.fromkeys(draft.arrays), results=results)
        return segment, RecordedSegment(self.gpu, draft, found, checks)

    def _place(self, v: int, draft: _Draft) -> Place | None:
        """Where a value is; None without elements."""
        v = draft.sources.get(v, v)
        if not self.avals[v].size:
            return None
        if v not in draft.places:
            draft.places[v] = True, draft.arrays.setdefault(v, len(draft.arrays))
        return draft.places[v]

    def _size(self, aval: Aval) -> int:
        return self.gpu.pool.size_of(padded(aval.nbytes))

    def _add(self, part: _Part, draft: _Draft) -> None:
        group = part.group
        if group is None:
            draft.sources[part.results[0]] = draft.sources.get(part.operands[0], part.operands[0])
            self._place(part.operands[0], draft)
            return
        arrays = [self._place(v, draft) for v in part.operands]
        for v in part.results:
            if self.avals[v].size:
                draft.places[v] = draft.room(self._size(self.avals[v]))
            arrays.append(draft.places.get(v))
        temporaries = group.written[len(part.results) :]
        rooms = [draft.room(self._size(a)) if a.size else None for a in temporaries]
        arrays += rooms
        launches = [launch for launch, _ in group.steps]
        if group.lowered.sites:  # numbers of checks are those of the program
            first, gpu = len(self.checks.sites), self.gpu
            launches = [gpu.prepared(s.shader, s.sizes, s.scalars, s.grid, first) for s in group.lowered.launches]
            self.checks.sites += group.lowered.sites
        draft.steps += [
            (launch, [arrays[k] for k in s.arrays]) for launch, s in zip(launches, group.lowered.launches, strict=True)
        ]
        for room, a in zip(rooms, temporaries, strict=True):
            if room is not None:
                draft.free[self._size(a)].append(room)

    def _release(self, p: int, draft: _Draft) -> None:
        """Let later nodes write over the values that die at a position."""
        n = self.graph.nodes[self.plan.order[p]]
        places = {self.of(v): draft.places.get(draft.sources.get(v, v)) for v in (*n.inputs, *n.results)}
        for u, place in places.items():
            if place is not None and self.ends[u] == p and (not place[0] or u in self.inherited):
                draft.free[self._size(self.avals[u])].append(place)
