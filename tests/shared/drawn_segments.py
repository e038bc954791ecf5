"""Random programs of native nodes, views and host nodes, and what stands for an engine: native calls are followed in NumPy.

A segment's call reads and writes the bytes that its plan names: those of arrays, and those of an arena that begins as noise. A
kernel may write over an operand only where it is declared to, and its temporary buffers are in use while it runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import numpy as np

import firebrick as fb
from firebrick.compiler.program.expression import ANY, KEPT, ROWS, Kernel
from firebrick.compiler.program.plan import Plan, plan_memory
from firebrick.compiler.program.python import Executable, SegmentFunctions, write
from firebrick.compiler.program.segments import Call, Kinds, NodeSegment, SegmentPlan, find_segments
from firebrick.core.aval import Aval
from firebrick.core.views import View
from firebrick.ir import CONSTANT, Graph, Node, interpret
from firebrick.ops import OPS

SHAPES = ((4, 6), (6, 4), (24,), (2, 3, 4), (3,), (2, 0))
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DrawnMemory:
    """Temporary buffers of a native node, and what its results may be written over."""

    temporary: tuple[int, ...]
    over: tuple[frozenset[int], ...]


@dataclass
class Allocated:
    """Arrays that a program allocates: the bytes that are live, and the most that were.

    Attributes:
        extra: Whether an array was copied that the plan takes for row-major.
    """

    live: int = 0
    peak: int = 0
    extra: bool = False

    def add(self, x: Array) -> Array:
        self.live += x.nbytes
        self.peak = max(self.peak, self.live)
        weakref.finalize(x, self._free, x.nbytes)
        return x

    def _free(self, nbytes: int) -> None:
        self.live -= nbytes


@dataclass
class DrawnSegments:
    """A graph with kernels, and its plans.

    Attributes:
        rng: Draws it.
        views: Whether host kernels return arrays that are not row-major too.
    """

    rng: Random
    views: bool = False
    graph: Graph = field(init=False)
    memory: list[DrawnMemory | None] = field(default_factory=list)
    kernels: list[Kernel | None] = field(default_factory=list)
    allocated: Allocated = field(default_factory=Allocated)
    within: int = 0

    def __post_init__(self) -> None:
        rng = self.rng
        dtypes = (fb.int64, fb.int32)
        self.graph = Graph([Aval(rng.choice(SHAPES), rng.choice(dtypes)) for _ in range(rng.randint(1, 4))])
        native, regions = rng.choice((0.5, 0.8, 1.0)), rng.random() < 0.4
        for _ in range(rng.randint(2, 16)):
            self._draw(native)
            if regions and rng.random() < 0.3:
                self.graph.nodes[-1] = replace(self.graph.nodes[-1], region=rng.randint(1, 2))
        made = [v for n in self.graph.nodes for v in n.results]
        self.graph.outputs = tuple(rng.choice([*made, *made, *range(len(self.graph.inputs))]) for _ in range(rng.randint(1, 4)))
        self.donate = tuple(i for i in range(len(self.graph.inputs)) if rng.random() < 0.6)
        self.ready = tuple(p for p in range(len(self.graph.outputs)) if rng.random() < 0.15)
        self.kinds = Kinds(self.graph, self.memory)
        self.plan: Plan = plan_memory(self.graph, self.kernels, self.donate, self.ready, self.kinds.arrange)
        self.parts: SegmentPlan = find_segments(self.kinds, self.kernels, self.plan)

    # the graph

    def _draw(self, native: float) -> None:
        rng, g = self.rng, self.graph
        v = rng.randrange(g.size) if rng.random() < 0.5 else rng.randrange(max(0, g.size - 3), g.size)
        shape = g.avals[v].shape
        draw = rng.random()
        if g.nodes and g.nodes[-1].op is OPS["permute"] and rng.random() < 0.4:  # such a view of a view may need a copy
            v, draw = g.size - 1, 0.2
            shape = g.avals[v].shape
        if draw < 0.05:
            g.add(CONSTANT, value=np.arange(24).reshape(rng.choice(SHAPES[:4])) * rng.randint(1, 9))
        elif draw < 0.14:
            g.add(OPS["permute"], v, axes=tuple(rng.sample(range(len(shape)), len(shape))))
        elif draw < 0.24:
            g.add(OPS["reshape"], v, shape=rng.choice([s for s in SHAPES if np.prod(s) == np.prod(shape)] or [shape]))
        elif draw < 0.32:
            starts = tuple(rng.choice((0, 0, d // 2)) for d in shape)
            g.add(OPS["slice"], v, starts=starts, stops=shape, steps=tuple(rng.choice((1, 1, 2)) for _ in shape))
        elif draw < 0.37 and shape[0] > 1:
            g.add(OPS["split"], v, axis=0, sizes=(shape[0] // 2, shape[0] - shape[0] // 2))
        elif draw < 0.40:
            g.add(OPS["split"], v, axis=0, sizes=(shape[0],))
        elif draw < 0.43:
            g.add(OPS["flip"], v, axes=(rng.randrange(len(shape)),))
        elif draw < 0.46:
            g.add(OPS["broadcast_to"], v, shape=(2, *shape))
        elif draw < 0.57:
            g.add(OPS["sort"], v, axis=len(shape) - 1, descending=False)
        elif draw < 0.78:
            g.add(OPS["add"], v, rng.choice([u for u in range(g.size) if g.avals[u] == g.avals[v]]))
        else:
            g.add(OPS["negative"], v)
        n = g.nodes[-1]
        if n.op is CONSTANT or n.op.view is not None or rng.random() >= native:
            self.memory.append(None)
            self.kernels.append(None if n.op is CONSTANT else self._host(n))
        else:
            self._native(n)

    def _native(self, n: Node) -> None:
        rng, avals = self.rng, self.graph.avals
        over = tuple(frozenset(j for j, v in enumerate(n.inputs) if avals[v] == a and rng.random() < 0.7) for a in n.avals)
        self.memory.append(DrawnMemory(rng.choice(((), (), (40,), (100, 8))), over))
        scratch = sum(self.memory[-1].temporary)
        names = {"run": partial(self._separately, n)}
        self.kernels.append(
            Kernel(
                f"{{run}}({_operands(n)})", names, outs="", over=over, layout=ROWS, scratch=scratch, faults=rng.random() < 0.1
            )
        )

    def _host(self, n: Node) -> Kernel:
        rng, args = self.rng, _operands(n)
        if n.op.view is not None:
            return Kernel(f"{{run}}({args})", {"run": partial(self._view, n)}, layout=ANY)
        layout, scratch = rng.choice((ROWS, KEPT, ANY)) if self.views else ROWS, rng.choice((0, 0, 320))
        names: dict[str, Any] = {"run": partial(self._on_host, n, layout, scratch), "none": None, "pair": (1, (2.5, True))}
        expr = f"{{run}}({args}, {{none}}, {{pair}})"
        if len(n.avals) > 1:
            same = self.graph.avals[n.inputs[0]]
            over = tuple(frozenset({0} if a == same and rng.random() < 0.7 else ()) for a in n.avals)
            outs = f"{{run}}({args}, {{none}}, {{pair}}, {{out0}}, {{out1}})" if rng.random() < 0.7 else None
            return Kernel(expr, names, layout=layout, outs=outs, over=over, scratch=scratch)
        into = f"{{run}}({args}, {{none}}, {{pair}}, {{out}})" if rng.random() < 0.6 else None
        first = f"{{run}}({args}, {{none}}, {{pair}}, {{0}})" if rng.random() < 0.4 else None
        elementwise, faults = rng.random() < 0.8 or first is not None, rng.random() < 0.1
        return Kernel(expr, names, into, first, elementwise, layout=layout, scratch=scratch, faults=faults)

    # how it runs

    def _computed(self, n: Node, xs: tuple[Array, ...]) -> list[Array]:
        out = n.op.reference(*xs, **n.params)
        return [np.asarray(y) for y in (out if isinstance(out, (tuple, list)) else (out,))]

    def _new(self, y: Array, rows: bool = True) -> Array:
        return self.allocated.add(np.array(y, order="C" if rows else "F"))

    def _separately(self, n: Node, *xs: Array) -> tuple[Array, ...]:
        return tuple(self._new(y) for y in self._computed(n, xs))

    def _view(self, n: Node, x: Array) -> Any:
        out = self._computed(n, (x,))
        if not np.shares_memory(out[0], x):
            self.allocated.extra = True
        return tuple(out) if len(out) > 1 or n.op is OPS["split"] else out[0]

    def _on_host(self, n: Node, layout: str, scratch: int, *args: Any) -> Any:
        count = len(n.inputs)
        xs, outs = args[:count], args[count + 2 :]
        assert args[count : count + 2] == (None, (1, (2.5, True)))
        found = self._computed(n, xs)
        rows = layout == ROWS or (layout == KEPT and all(x.flags.c_contiguous for x in xs))
        made = []
        for y, out in zip(found, outs or [None] * len(found), strict=True):
            if out is None:
                made.append(self._new(y, rows))
            else:
                assert (out.shape, out.dtype) == (y.shape, y.dtype)
                out[...] = y
                made.append(out)
        self.allocated.peak = max(self.allocated.peak, self.allocated.live + scratch)
        return tuple(made) if len(made) > 1 else made[0]

    def segment(self, segment: NodeSegment) -> Callable[..., tuple[Array, ...]]:
        """The function of a segment."""
        made = set(segment.results)
        count, outside = len(segment.arrays), segment.outside

        def run(*args: Any) -> tuple[Array, ...]:
            space = args[0] if self.parts.arena else np.empty(0, np.uint8)
            args = args[bool(self.parts.arena) :]
            assert len(args) == count + len(outside)
            arrays = {v: self._rows(x) for v, x in zip(segment.arrays, args, strict=False)}
            over = dict(zip(outside, args[count:], strict=True))
            for v in segment.results:
                u, a = segment.into.get(v), self.graph.avals[v]
                if u in made:
                    arrays[v] = arrays[u]
                elif u is not None and over[u].flags.c_contiguous:
                    arrays[v] = over[u]
                else:
                    self.allocated.extra |= u is not None
                    arrays[v] = self.allocated.add(np.full(a.shape, -77, a.dtype.np))
            for c in segment.calls:
                self._call(c, arrays, space)
            return tuple(arrays[v] for v in segment.results)

        return run

    def _rows(self, x: Array) -> Array:
        if x.flags.c_contiguous:
            return x
        self.allocated.extra = True
        return np.ascontiguousarray(x)

    def _bytes(self, buffer: int, arrays: dict[int, Array], space: Array) -> Array:
        if buffer in arrays:
            return arrays[buffer].reshape(-1).view(np.uint8)
        assert buffer in self.parts.at, "neither an array of the segment nor in the arena"
        return space[self.parts.at[buffer] :]

    def _call(self, c: Call, arrays: dict[int, Array], space: Array) -> None:
        avals = self.graph.avals
        if c.view is not None:
            view, aval = c.view
            source = self._bytes(c.operands[0].buffer, arrays, space)
            copy = np.ascontiguousarray(_strided(source, view, aval))
            self._bytes(c.results[0], arrays, space)[: copy.nbytes] = copy.reshape(-1).view(np.uint8)
            return
        n, memory = self.graph.nodes[c.node], self.memory[c.node]
        assert memory is not None
        xs = [
            self._bytes(r.buffer, arrays, space)[r.offset :][: avals[v].nbytes]
            for r, v in zip(c.operands, n.inputs, strict=True)
        ]
        found = self._computed(
            n, tuple(x.view(avals[v].dtype.np).reshape(avals[v].shape) for x, v in zip(xs, n.inputs, strict=True))
        )
        outs = [self._bytes(v, arrays, space)[: avals[v].nbytes] for v in c.results]
        buffers = [space[at : at + size] for at, size in zip(self.parts.temporary[c.node], memory.temporary, strict=True)]
        assert [len(b) for b in buffers] == list(memory.temporary)
        for j, one in enumerate([*outs, *buffers]):
            assert not any(np.may_share_memory(one, other) for other in [*outs, *buffers][:j]), "results share memory"
            for i, x in enumerate(xs):
                if np.may_share_memory(one, x):
                    assert j < len(outs), "a temporary buffer is over an operand"
                    assert i in memory.over[j], "a result is written over an operand that is read"
                    assert one.ctypes.data == x.ctypes.data, "a result is not in the place of the operand"
        for b in buffers:
            b[:] = 0x5A
        for y, out in zip(found, outs, strict=True):
            out[:] = np.ascontiguousarray(y).reshape(-1).view(np.uint8)

    @contextmanager
    def _arena(self) -> Iterator[Array]:
        self.within += 1
        yield np.full(self.parts.arena, 0xA5, np.uint8)
        self.within -= 1

    def executable(self) -> Executable:
        """The program."""
        pairs = [(s, self.segment(s)) for s in self.parts.segments]
        arena = self._arena if self.parts.arena else None
        return write(self, self.graph, self.kernels, self.parts.plan, None, SegmentFunctions(pairs, self.parts.skipped, arena))  # type: ignore[arg-type]

    def expected(self, arrays: list[Array]) -> tuple[Array, ...]:
        """The outputs."""
        return interpret(
            self.graph, arrays, lambda op, xs, params: params["value"] if op is CONSTANT else op.reference(*xs, **params)
        )

    # the engine

    def around(self) -> tuple[str, dict[str, Any]] | None:
        return None

    def translated(self, error: Exception) -> Exception:
        return error

    def from_host(self, array: Array, device: Any) -> Array:
        return np.array(array)

    def copy(self, native: Array, device: Any = None) -> Array:
        return self._new(native)


def _operands(n: Node) -> str:
    return ", ".join(f"{{{i}}}" for i in range(len(n.inputs)))


def _strided(source: Array, view: View, aval: Aval) -> Array:
    """The elements of a view of bytes."""
    x = source[: source.nbytes // aval.dtype.itemsize * aval.dtype.itemsize].view(aval.dtype.np)
    digits = [d for axis in view.axes for d in axis]
    steps = [d.stride * aval.dtype.itemsize for d in digits]
    return np.lib.stride_tricks.as_strided(x[view.offset :], [d.size for d in digits], steps).reshape(aval.shape)


def _inputs(drawn: DrawnSegments, columns: bool) -> list[Array]:
    rng = np.random.default_rng(1)
    return [
        np.array(rng.integers(-90, 90, a.shape), a.dtype.np, order="F" if columns and i % 2 else "C")
        for i, a in enumerate(drawn.graph.inputs)
    ]


def run_in_numpy(drawn: DrawnSegments, columns: bool = False) -> None:
    """Run a program, and check its results, what is left of its inputs, and the memory that it takes.

    Args:
        drawn: The program.
        columns: Whether some inputs are column-major.
    """
    program, plan = drawn.executable(), drawn.parts.plan
    given = _inputs(drawn, columns)
    before = [x.copy() for x in given]
    wanted = [np.array(x) for x in drawn.expected(before)]
    began: list[int] = []

    def begin(*ready: Any) -> None:
        began.append(1)
        assert all(np.array_equal(x, y) for x, y in zip(given, before, strict=True)), "an input is overwritten too early"
        assert len(ready) == bool(plan.ready)
        for position, x in zip(plan.ready, *ready, strict=True) if ready else ():
            assert np.array_equal(x, wanted[position])

    allocated = drawn.allocated
    allocated.live = allocated.peak = 0
    found = program(given, begin)
    for x, want in zip(found, wanted, strict=True):
        assert x.dtype == want.dtype
        assert np.array_equal(x, want)
    assert len(began) == bool(plan.writes)
    assert program.writes == plan.writes <= set(drawn.donate)
    assert drawn.within == 0
    for i, (x, y) in enumerate(zip(given, before, strict=True)):
        assert i in plan.writes or np.array_equal(x, y), "an input that is not donated is overwritten"
        assert i in plan.writes or not any(np.shares_memory(x, out) for out in found)
    for j, out in enumerate(found):
        assert not any(np.shares_memory(out, other) for other in found[:j])
    if not allocated.extra:
        assert plan.peak == drawn.parts.arena + allocated.peak
    del found, x, out
    assert allocated.live == 0, "the program keeps an array"
