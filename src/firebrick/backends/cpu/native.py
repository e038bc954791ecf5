"""Compiled kernels as functions of NumPy arrays: each run of a program by one native call.

Operands that do not lie row by row are copied so; a destination that does not is refused, and a new array returned. Several
threads may call one function at once: each call takes a table of addresses for itself, and each run of a program an arena.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firebrick.compiler.fused import FUSED
from firebrick.compiler.kernel import ROWS, Kernel
from firebrick.compiler.llvm.addresses import AddressTable
from firebrick.compiler.llvm.arena import ArenaPool, aligned
from firebrick.compiler.llvm.copies import copied
from firebrick.compiler.llvm.host import Module, compile_many
from firebrick.compiler.llvm.lower import lower
from firebrick.compiler.llvm.lowered import Lowered
from firebrick.compiler.llvm.segment import Launch, Segment
from firebrick.compiler.llvm.target import Target
from firebrick.compiler.plan import Plan, plan_memory
from firebrick.compiler.program import Runs
from firebrick.compiler.segments import Call, Kinds, Run, Segments, segment
from firebrick.core.aval import Aval
from firebrick.ir import Graph

ARENAS = ArenaPool()
"""Memory that programs need while they run."""
ALIGNED = 1 << 16
"""From so many bytes on, results begin at a multiple of a cache line, as kernels that write past the caches want it."""


class Native:
    """A fused node's kernels. Programs run them together with others; called with the operands, they run by themselves.

    Attributes:
        lowered: The kernels.
    """

    __name__ = "fused"

    def __init__(self, body: Graph, lowered: Lowered) -> None:
        self.body, self.lowered = body, lowered
        self._alone: Runs | None = None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if self._alone is None:
            graph = Graph(list(self.body.inputs))
            graph.outputs = graph.add(FUSED, *range(len(graph.inputs)), body=self.body)
            kernels = [_kernel(self)]
            self._alone = compiled(kinds_of(graph, kernels), kernels, plan_memory(graph, kernels))[1]
        ((_, function),) = self._alone.made
        if self._alone.arena is None:
            return function(*arrays)
        with self._alone.arena() as space:
            return function(space, *arrays)


def native_kernel(body: Graph) -> Kernel:
    """The kernel of a fused node, not yet compiled."""
    return _kernel(Native(body, lower(body, Target.host())))


def _kernel(native: Native) -> Kernel:
    args = ", ".join(f"{{{i}}}" for i in range(len(native.body.inputs)))
    lowered = native.lowered
    return Kernel(
        f"{{run}}({args})", {"run": native}, outs="", over=lowered.over, layout=ROWS, scratch=sum(lowered.temporary),
        faults=any(p.places for p in lowered.parts),
    )  # fmt: skip


def lowered_of(kernel: Kernel | None) -> Lowered | None:
    """A node's own kernels, if it has them."""
    run = None if kernel is None else kernel.names.get("run")
    return run.lowered if isinstance(run, Native) else None


def kinds_of(graph: Graph, kernels: Sequence[Kernel | None]) -> Kinds:
    """Which nodes of a graph run natively."""
    return Kinds(graph, [lowered_of(kernel) for kernel in kernels])


def compiled(kinds: Kinds, kernels: Sequence[Kernel | None], plan: Plan) -> tuple[Plan, Runs, Segments]:
    """The native part of a program, all its kernels compiled and linked at once; the plan for the rest comes with it."""
    parts = segment(kinds, kernels, plan)
    listed = [_launches(run, kinds, kernels, parts) for run in parts.runs]
    texts = [text for _, found in listed for text in found]
    module = compile_many(texts) if texts else None
    made = []
    for run, (launches, _) in zip(parts.runs, listed, strict=True):
        code = Segment(launches, [module] if module is not None else [], name="a compiled program")
        made.append((run, function(run, kinds.avals, code, parts.arena > 0)))
    arena = partial(ARENAS.run, parts.arena) if parts.arena else None
    return parts.plan, Runs(made, parts.skipped, arena), parts


def _launches(run: Run, kinds: Kinds, kernels: Sequence[Kernel | None], parts: Segments) -> tuple[list[Launch], list[str]]:
    """A run's launches, and the texts of their kernels."""
    slots = {v: i for i, v in enumerate(run.arrays)}
    count = len(slots)
    for v in run.results:
        over = run.into.get(v)
        if over in run.results:
            slots[v] = slots[over]
        else:
            slots[v], count = count, count + 1

    def place(buffer: int, offset: int = 0) -> int | tuple[int, int]:
        if buffer not in slots:
            return count, parts.at[buffer] + offset
        return (slots[buffer], offset) if offset else slots[buffer]

    launches: list[Launch] = []
    texts = []
    for c in run.calls:
        if c.view is None:
            found = lowered_of(kernels[c.node])
            assert found is not None
            at = [place(r.buffer, r.offset) for r in c.operands] + [place(v) for v in c.results]
            at += [(count, offset) for offset in parts.temporary[c.node]]
        else:
            view, aval = c.view
            found = copied(view.shape, view.strides, aval.dtype.itemsize, Target.host())
            at = [place(c.operands[0].buffer, view.offset * aval.dtype.itemsize), place(c.results[0])]
        launches += found.launches(at)
        texts.append(found.text)
    return launches, texts


def function(run: Run, avals: Sequence[Aval], segment: Segment, arena: bool) -> Callable[..., tuple[Any, ...]]:
    """A run as a function of the arena, if there is one, its arrays, and those whose memory its results take."""
    xs = [f"v{v}" for v in run.arrays]
    outside = [f"over{u}" for u in run.outside]
    space: dict[str, Any] = {
        "contiguous": np.ascontiguousarray, "segment": segment, "tables": [], "Table": AddressTable,
    }  # fmt: skip
    lines = []
    for x in xs:
        lines += [f"if not {x}.flags.c_contiguous:", f"    {x} = contiguous({x})"]
    names: dict[int, str] = {}
    own = []
    for v in run.results:
        over = run.into.get(v)
        if over in run.results:
            names[v] = names[over]
            continue
        names[v] = f"v{v}"
        own.append(names[v])
        space[f"new{v}"] = _allocator(avals[v])
        made = f"new{v}()"
        lines.append(f"{names[v]} = " + (made if over is None else f"over{over} if over{over}.flags.c_contiguous else {made}"))
    buffers = [*xs, *own, *(["space"] if arena else [])]
    lines += [
        "try:",
        "    table = tables.pop()",
        "except IndexError:",
        f"    table = Table({len(buffers)})",
        f"table.put(0, ({''.join(f'{b}, ' for b in buffers)}))",
        "segment(table.address)",
        "tables.append(table)",
        f"return ({''.join(f'{names[v]}, ' for v in run.results)})",
    ]
    args = ", ".join([*(["space"] if arena else []), *xs, *outside])
    exec("\n".join([f"def native({args}):", *(f"    {line}" for line in lines)]), space)
    found: Callable[..., tuple[Any, ...]] = space["native"]
    return found


def _allocator(aval: Aval) -> Callable[[], np.ndarray[Any, Any]]:
    """Makes arrays for a result."""
    shape, dtype, nbytes = aval.shape, aval.dtype.np, aval.nbytes
    if nbytes < ALIGNED:
        return lambda: np.empty(shape, dtype)
    return lambda: aligned(nbytes).view(dtype).reshape(shape)
