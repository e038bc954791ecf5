"""Compiled kernels as functions of NumPy arrays: each segment of a program is one native call.

Operands that are not row-major are copied; a destination that is not is ignored, and a new array is returned. Several threads
may call one function at once: each call uses its own table of addresses, and each call of a program its own arena.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.arena import ArenaPool
from firebrick.backends.cpu.runtime.results import LEAST, RESULTS
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.backends.cpu.tuning import selected
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.program.expression import ROWS, Kernel
from firebrick.compiler.program.launch import At, Launch
from firebrick.compiler.program.plan import Plan, plan_memory
from firebrick.compiler.program.python import SegmentFunctions
from firebrick.compiler.program.segments import Kinds, NodeSegment, SegmentPlan, find_segments
from firebrick.compiler.targets.llvm.copy_kernels import copied
from firebrick.compiler.targets.llvm.host import Module, compile_many
from firebrick.compiler.targets.llvm.lower import lower
from firebrick.compiler.targets.llvm.lowered import Lowered, LoweredKernel, at_offset
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.errors import KernelCompileError
from firebrick.ir import Graph, interpret

ARENAS = ArenaPool()
"""Arenas of running programs."""
LONG = 256
"""Maximum number of arrays of a segment whose function has no loops."""


class Kernels(Protocol):
    """The interface of a native node's kernels: ``Lowered``, or those of a ``NativeScan`` or ``NativeBranches``."""

    @property
    def parts(self) -> tuple[LoweredKernel, ...]: ...
    @property
    def temporary(self) -> tuple[int, ...]: ...
    @property
    def over(self) -> tuple[frozenset[int], ...]: ...
    @property
    def texts(self) -> tuple[str, ...]: ...
    @property
    def cost_us(self) -> float: ...
    @property
    def count(self) -> int: ...
    def launches(self, at: Sequence[At]) -> list[Launch]: ...


class NativeNode:
    """A node's kernels. Programs run them in segments; a call with the operands runs them separately.

    Args:
        lowered: The kernels.
        alone: Returns the function that runs them separately.
    """

    __name__ = "alone"

    def __init__(self, lowered: Kernels, alone: Callable[[], Callable[..., tuple[Any, ...]]]) -> None:
        self.lowered, self._alone = lowered, alone
        self._run: Callable[..., tuple[Any, ...]] | None = None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if self._run is None:
            self._run = self._alone()
        return self._run(*arrays)


class Proofs:
    """Validation of a graph's groups; see ``compiler.fusion.validate``.

    Attributes:
        refused: A line for each group that is not proved to be valid.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []
        self._kept: list[Lowered] = []  # kept alive, so that they are not lowered again

    def __call__(self, body: Graph) -> bool:
        found = lower(body, Target.host())
        self._kept.append(found)
        if not found.doubt:
            return True
        names = ", ".join(n.op.name for n in body.nodes)
        line = f"{names}: {found.doubt}"
        if config.verify_graphs and (wrong := _wrong(body, found)):
            raise KernelCompileError(
                "a group of fused nodes computes what they mean", f"{line}; {wrong}", "report this as a bug"
            )
        if line not in self.refused:
            self.refused.append(line)
        return False


def _wrong(body: Graph, lowered: Lowered) -> str:
    """The difference between kernels and a body's nodes on random numbers, as text; empty if there is none."""
    rng = np.random.default_rng(0)
    arrays = [
        (rng.uniform(0.5, 1.5, a.shape) + (1j if a.dtype.kind == "complex" else 0) * rng.random(a.shape)).astype(a.dtype.np)
        for a in body.inputs
    ]
    found = _alone(body, lowered)(*arrays)
    wanted = interpret(body, arrays, lambda op, xs, params: op.reference(*xs, **params))
    for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
        dtype = np.complex128 if got.dtype.kind == "c" else np.float64
        wide = np.asarray(want).astype(dtype)
        far = np.abs(got.astype(dtype) - wide).max(initial=0.0)
        if not far <= 1e-3 * np.abs(wide).max(initial=0.0):  # larger than any rounding error of numbers near 1
            return f"result {number} differs by {far:.3g}"
    return ""


def native_kernel(body: Graph) -> Kernel:
    """The kernel of a fused node, not yet compiled."""
    return kernel_with(body, selected(body))


def kernel_with(body: Graph, lowered: Lowered) -> Kernel:
    """The kernel of a fused node, from certain kernels for its body."""
    return kernel_of(NativeNode(lowered, partial(_alone, body, lowered)), len(body.inputs))


def kernel_of(native: NativeNode, operands: int) -> Kernel:
    """A node's kernels as the expression of a program without segments."""
    args, lowered = ", ".join(f"{{{i}}}" for i in range(operands)), native.lowered
    return Kernel(
        f"{{run}}({args})", {"run": native}, outs="", over=lowered.over, layout=ROWS, scratch=sum(lowered.temporary),
        faults=any(p.sites for p in lowered.parts),
    )  # fmt: skip


def _alone(body: Graph, lowered: Lowered) -> Callable[..., tuple[Any, ...]]:
    """A function that runs the kernels of a body separately."""
    graph = Graph(list(body.inputs))
    graph.outputs = graph.add(FUSED, *range(len(graph.inputs)), body=body)
    kernels = [kernel_of(NativeNode(lowered, lambda: _alone(body, lowered)), len(graph.inputs))]
    linked = compiled(kinds_of(graph, kernels), kernels, plan_memory(graph, kernels)).functions
    ((_, function),) = linked.pairs

    def run(*arrays: Any) -> tuple[Any, ...]:
        if linked.arena is None:
            return function(*arrays)
        with linked.arena() as space:
            return function(space, *arrays)

    return run


def lowered_of(kernel: Kernel | None) -> Kernels | None:
    """A node's native kernels; None if it has none."""
    run = None if kernel is None else kernel.names.get("run")
    return run.lowered if isinstance(run, NativeNode) else None


def kinds_of(graph: Graph, kernels: Sequence[Kernel | None]) -> Kinds:
    """The kinds of a graph's nodes."""
    return Kinds(graph, [lowered_of(kernel) for kernel in kernels])


@dataclass(frozen=True, slots=True)
class Linked:
    """The native part of a program.

    Attributes:
        segment_plan: Its segments, and the plan of the host nodes.
        functions: The segments as functions.
        launches: The launches of each segment.
        texts: The modules of all kernels, without repetition.
    """

    segment_plan: SegmentPlan
    functions: SegmentFunctions
    launches: list[list[Launch]]
    texts: list[str]


def compiled(kinds: Kinds, kernels: Sequence[Kernel | None], plan: Plan) -> Linked:
    """The native part of a program, all its kernels compiled and linked at once."""
    parts = find_segments(kinds, kernels, plan)
    launches_and_texts = [_launches(segment, kinds, kernels, parts) for segment in parts.segments]
    texts = list(dict.fromkeys(text for _, found in launches_and_texts for text in found))
    module = compile_many(texts) if texts else None
    launches = [found for found, _ in launches_and_texts]
    return Linked(parts, functions(parts.segments, launches, module, kinds.avals, parts.arena, parts.skipped), launches, texts)


def functions(
    segments: Sequence[NodeSegment], launches: Sequence[Sequence[Launch]], module: Module | None, avals: Sequence[Aval],
    arena: int, skipped: frozenset[int] = frozenset(),
) -> SegmentFunctions:  # fmt: skip
    """The segments of a program as functions.

    Args:
        segments: The segments.
        launches: The launches of each segment.
        module: The module of their kernels; None if there are none.
        avals: Shapes and dtypes of the program's values.
        arena: Bytes of the arena.
        skipped: Indices of nodes that need no line.
    """
    made = []
    for segment, found in zip(segments, launches, strict=True):
        code = Segment(found, [module] if module is not None else [], name="a compiled program")
        made.append((segment, function(segment, avals, code, arena > 0)))
    return SegmentFunctions(made, skipped, partial(ARENAS.run, arena) if arena else None)


def _launches(
    segment: NodeSegment, kinds: Kinds, kernels: Sequence[Kernel | None], parts: SegmentPlan
) -> tuple[list[Launch], list[str]]:
    """A segment's launches, and the texts of their kernels; its arrays and results precede the arena in the address array."""
    slots: dict[int, At] = {v: i for i, v in enumerate(segment.arrays)}
    count, made = len(slots), set(segment.results)
    for v in segment.results:
        over = segment.into.get(v)
        if over in made:
            slots[v] = slots[over]
        else:
            slots[v], count = count, count + 1
    return launched(segment, kernels, parts, slots, count)


def launched(
    segment: NodeSegment, kernels: Sequence[Kernel | None], parts: SegmentPlan, slots: Mapping[int, At], arena: At,
    done: Mapping[int, Collection[int]] = MappingProxyType({}),
) -> tuple[list[Launch], list[str]]:  # fmt: skip
    """A segment's launches, and the texts of their kernels.

    Args:
        segment: Segment of a program.
        kernels: Of the program's nodes.
        parts: The program's segments.
        slots: Slots in the segment's address array of the arrays that it reads and writes.
        arena: Slot of the arena.
        done: For some nodes, the numbers of their kernels that have run already and are left out.
    """

    def place(buffer: int, offset: int = 0) -> At:
        return at_offset(slots[buffer], offset) if buffer in slots else at_offset(arena, parts.at[buffer] + offset)

    launches: list[Launch] = []
    texts: list[str] = []
    for c in segment.calls:
        if c.view is None:
            found = lowered_of(kernels[c.node])
            assert found is not None
            at = [place(r.buffer, r.offset) for r in c.operands] + [place(v) for v in c.results]
            at += [at_offset(arena, offset) for offset in parts.temporary[c.node]]
            skipped = done.get(c.node, ())
            launches += [x for i, x in enumerate(found.launches(at)) if i not in skipped]
            texts += found.texts
        else:
            view, aval = c.view
            copy = copied(view, aval.dtype.itemsize, Target.host())
            launches += copy.launches(
                [place(c.operands[0].buffer, view.offset * aval.dtype.itemsize), place(c.results[0])]
            )  # fmt: skip
            texts += copy.texts
    return launches, texts


def function(segment: NodeSegment, avals: Sequence[Aval], code: Segment, arena: bool) -> Callable[..., tuple[Any, ...]]:
    """A segment as a function of the arena, if there is one, its arrays, and the arrays whose memory its results use."""
    allocators: dict[Aval, Callable[[], np.ndarray[Any, Any]]] = {}
    outside = {u: i for i, u in enumerate(segment.outside)}
    made, slots = set(segment.results), dict[int, int]()
    own: list[_Own] = []
    for v in segment.results:
        over = segment.into.get(v)
        if over in made:
            slots[v] = slots[over]
            continue
        slots[v] = len(own)
        aval = avals[v]
        if aval not in allocators:
            allocators[aval] = _allocator(aval)
        own.append((allocators[aval], -1 if over is None else outside[over]))
    returned = [slots[v] for v in segment.results]
    write = _looping if len(segment.arrays) + len(own) > LONG else _straight
    return write(len(segment.arrays), len(outside), own, returned, code, arena)


_Own = tuple[Callable[[], np.ndarray[Any, Any]], int]
"""A result's array: the function that allocates it, and the number of the outside array that is used instead, if that is
row-major; -1 for none."""


def _straight(
    arrays: int, outside: int, own: Sequence[_Own], returned: Sequence[int], code: Segment, arena: bool
) -> Callable[..., tuple[Any, ...]]:
    """A function without loops, from Python text: a call is some microseconds faster."""
    xs, overs, results = ([f"{stem}{i}" for i in range(n)] for stem, n in (("x", arrays), ("over", outside), ("y", len(own))))
    space: dict[str, Any] = {
        "rows": partial(np.require, requirements="CA"), "segment": code, "tables": [], "Table": AddressTable,
    }  # fmt: skip
    makes: list[str] = []  # lines that allocate results
    slow: list[str] = [f"{x} = rows({x})" for x in xs]
    for y, (new, over) in zip(results, own, strict=True):
        space[f"new_{y}"] = new
        if over < 0:
            makes.append(f"{y} = new_{y}()")
        else:
            makes.append(f"{y} = {overs[over]}")
            slow.append(f"if not ({y}.flags.c_contiguous and {y}.flags.aligned): {y} = new_{y}()")
    buffers = [*xs, *results, *(["space"] if arena else [])]
    put = f"table.put(0, ({''.join(f'{b}, ' for b in buffers)}))"
    lines = [
        *makes,
        "try:",
        "    table = tables.pop()",
        "except IndexError:",
        f"    table = Table({len(buffers)})",
        f"if not {put}:",
        *(f"    {line}" for line in slow),
        f"    {put}",
        "segment(table.address)",
        "tables.append(table)",
        f"return ({''.join(f'{results[i]}, ' for i in returned)})",
    ]
    args = ", ".join([*(["space"] if arena else []), *xs, *overs])
    exec("\n".join([f"def native({args}):", *(f"    {line}" for line in lines)]), space)
    found: Callable[..., tuple[Any, ...]] = space.pop("native")  # otherwise it and its globals would form a reference cycle
    return found


def _looping(
    arrays: int, outside: int, own: Sequence[_Own], returned: Sequence[int], code: Segment, arena: bool
) -> Callable[..., tuple[Any, ...]]:
    """The same function with loops: compiling Python text for thousands of arrays takes longer than planning."""
    tables: list[AddressTable] = []
    first = int(arena)
    end = first + arrays
    own = [(new, over if over < 0 else end + over) for new, over in own]

    def native(*args: Any) -> tuple[Any, ...]:
        if len(args) != end + outside:
            raise TypeError(f"{end + outside} arguments, not {len(args)}")
        results = [new() if over < 0 else args[over] for new, over in own]
        try:
            table = tables.pop()
        except IndexError:
            table = AddressTable(arrays + len(own) + first)
        buffers = (*args[first:end], *results, *args[:first])
        if not table.put(0, buffers):
            xs = [np.require(x, requirements=("C", "A")) for x in args[first:end]]
            results = [
                y if over < 0 or (y.flags.c_contiguous and y.flags.aligned) else new()
                for y, (new, over) in zip(results, own, strict=True)
            ]
            buffers = (*xs, *results, *args[:first])
            table.put(0, buffers)
        code(table.address)
        tables.append(table)
        return tuple([results[i] for i in returned])

    return native


def _allocator(aval: Aval) -> Callable[[], np.ndarray[Any, Any]]:
    """The function that allocates arrays for a result."""
    shape, dtype, nbytes = aval.shape, aval.dtype.np, aval.nbytes
    if nbytes < LEAST:
        return lambda: np.empty(shape, dtype)
    return partial(RESULTS.empty, shape, dtype, nbytes)
