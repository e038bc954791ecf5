"""``NativeBranches``: branches and loops whose graphs are all native, as launches with jumps between them.

The native loop reads the condition, so a program goes from one kernel to the next without Python, and a loop may have any
number of rounds. A loop's carries are in the memory of its results, which may be that of the first carries. What a round
computes is copied there at its end, unless it may be written over a carry that nothing else reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from firebrick.backends.cpu.loops import BodyStep, body_step, loop_kernel
from firebrick.backends.cpu.native import Kernels, NativeNode, Proofs, kernel_of, kinds_of, launched, lowered_of
from firebrick.compiler import Kernel, choose
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.program.launch import At, Launch, jump
from firebrick.compiler.program.spans import rounded
from firebrick.compiler.targets.llvm.copy_kernels import copied, filled
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.compiler.targets.llvm.lowered import LoweredKernel, at_offset, relocated
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.views import View, row_major
from firebrick.ir import Graph, Node

EVERY_SIZE = replace(POLICY, one=0, two=0, more=0, reduced=0)
"""The policy of graphs in which no operation may be left to the host, since it would end the native call."""
ROUNDS = 16
"""Assumed number of rounds of a loop, for the estimate of its time."""


def control_kernel(engine: Any, n: Node, device: Device | None, proofs: Proofs) -> Kernel | None:
    """The kernel of a node that runs graphs, if all nodes of these are native; else None."""
    if n.op.control is None:
        return None
    inner = partial(control_kernel, engine, device=device, proofs=proofs)
    if n.op.name == "scan":
        return loop_kernel(engine, n, device, proofs, inner)
    made = _BUILD[n.op.name](engine, n, device, proofs, inner) if n.op.name in _BUILD else None
    if made is None:
        return None
    return kernel_of(NativeNode(made, partial(n.op.control, engine, n.params, device)), len(n.inputs))


Inner = Callable[[Node], Kernel | None]


def _step_of(
    engine: Any, graph: Graph, device: Device | None, proofs: Proofs, inner: Inner, consts: int, carries: int
) -> BodyStep | None:  # fmt: skip
    """A graph as a step of a loop; None if some node is not native."""
    fused = fuse(graph, kind_of, EVERY_SIZE, states=range(consts, consts + carries), proved=proofs)
    kernels = choose(engine, fused, device, inner)
    kinds = kinds_of(fused, kernels)
    return body_step(kinds, kernels, consts, carries)


class _Launches:
    """Launches on operands, results, and one temporary buffer, whose slots are numbers in this order."""

    def __init__(self, operands: int, results: Sequence[Aval]) -> None:
        self.operands, self.avals = operands, results
        self.block = operands + len(results)
        self.size = 0  # of the temporary buffer, in bytes
        self.found: list[Launch] = []
        self.texts: dict[str, None] = {}

    def result(self, k: int) -> int:
        """The slot of a result."""
        return self.operands + k

    def room(self, nbytes: int) -> At:
        """A new part of the temporary buffer."""
        place = at_offset(self.block, self.size)
        self.size += rounded(nbytes)
        return place

    def copy(self, source: At, view: View, aval: Aval, goal: At) -> None:
        """Copy a view, unless source and goal are the same memory."""
        source = at_offset(source, view.offset * aval.dtype.itemsize)
        if not aval.size or (source == goal and view.in_rows):
            return
        made = copied(row_major((aval.size,)) if view.in_rows else view, aval.dtype.itemsize, Target.host())
        self.texts[made.text] = None
        self.found += made.launches([source, goal])

    def fill(self, value: np.ndarray[Any, Any], aval: Aval, goal: At) -> None:
        """Fill an array with a number."""
        if aval.size:
            bits = int.from_bytes(value.tobytes(), "little")
            made = filled(aval.size, bits, aval.dtype.itemsize, Target.host())
            self.texts[made.text] = None
            self.found += made.launches([goal])

    def segments(self, step: BodyStep, slots: dict[int, At]) -> None:
        """The kernels of a step; constants that they read get slots."""
        for v, value in step.constants.items():
            slots[v] = self.room(step.avals[v].nbytes)
            self.fill(value, step.avals[v], slots[v])
        arena = self.room(step.segment_plan.arena) if step.segment_plan.arena else self.block
        for segment in step.segment_plan.segments:
            launches, texts = launched(segment, step.kernels, step.segment_plan, slots, arena)
            self.found += launches
            self.texts.update(dict.fromkeys(texts))

    def put(self, step: BodyStep, k: int, slots: Mapping[int, At], goal: At) -> None:
        """Copy an output of a step."""
        if k in step.numbers:
            self.fill(step.numbers[k], step.outputs[k][2], goal)
        else:
            base, view, aval = step.outputs[k]
            self.copy(slots[base], view, aval, goal)


def _made(step: BodyStep) -> list[int]:
    """The arrays that a step's kernels make."""
    return [v for segment in step.segment_plan.segments for v in segment.results]


def _parts(step: BodyStep) -> tuple[LoweredKernel, ...]:
    """The kernels of a step."""
    return tuple(part for kernel in step.kernels if (found := lowered_of(kernel)) is not None for part in found.parts)


class NativeBranches:
    """Launches with jumps; an implementation of ``Kernels``.

    Args:
        launches: The launches, results and temporary buffer.
        parts: The kernels.
        cost_us: Estimate of the time on one thread.
        first: The operand that is the first value of result 0; those of the others follow. None for branches.
        copies: Number of launches that copy operands to results or to the temporary buffer, before all others.

    Attributes:
        parts: The kernels.
        temporary: Bytes of the temporary buffer.
        over: For each result the operand whose memory it may use, as a set: of a loop, that of its first value.
        texts: The modules of the kernels.
        cost_us: Estimate of the time on one thread.
        count: Number of launches, each counted once.
    """

    def __init__(
        self, launches: _Launches, parts: tuple[LoweredKernel, ...], cost_us: float, first: int | None = None, copies: int = 0
    ) -> None:  # fmt: skip
        self._launches, self._copies = launches.found, copies
        self.parts, self.cost_us, self.count = parts, cost_us, len(launches.found)
        self.temporary = (launches.size,) if launches.size else ()
        results = range(len(launches.avals))
        self.over = tuple(frozenset[int]() if first is None else frozenset([first + k]) for k in results)
        self.texts = tuple(launches.texts)

    def launches(self, at: Sequence[At]) -> list[Launch]:
        """The launches; ``at`` as for ``Lowered``."""
        found = [relocated(x, at) for x in self._launches]
        for k, x in enumerate(found[: self._copies]):
            if x.buffers[0] == x.buffers[1]:
                found[k] = replace(x, grid=0)
        return found


def _cond(engine: Any, n: Node, device: Device | None, proofs: Proofs, inner: Inner) -> Kernels | None:
    """The kernels of a ``cond``: one of two lists of launches."""
    out = _Launches(len(n.inputs), n.avals)
    lists: list[list[Launch]] = []
    parts: tuple[LoweredKernel, ...] = ()
    for graph in n.params["branches"]:
        step = _step_of(engine, graph, device, proofs, inner, len(graph.inputs), 0)
        if step is None:
            return None
        out.found = []
        slots: dict[int, At] = {i: 1 + i for i in range(len(graph.inputs))}
        direct = {output: out.result(k) for k, output in reversed(list(enumerate(step.outputs)))}
        for v in _made(step):
            aval = step.avals[v]
            goal = direct.get((v, row_major(aval.shape), aval))
            slots[v] = out.room(aval.nbytes) if goal is None else goal
        out.segments(step, slots)
        for k in range(len(step.outputs)):
            out.put(step, k, slots, out.result(k))
        lists.append(out.found)
        parts += _parts(step)
    yes, no = lists
    out.found = [jump(len(yes) + 2, unless=0), *yes, jump(len(no) + 1), *no]
    return NativeBranches(out, parts, max(sum(x.cost_us or 0.0 for x in found) for found in lists))


def _while(engine: Any, n: Node, device: Device | None, proofs: Proofs, inner: Inner) -> Kernels | None:
    """The kernels of a ``while_loop``: the launches of a round, between a jump behind them and one back to it."""
    body, consts = n.params["body"], n.params["consts"]
    carries = len(body.inputs) - consts
    # as of a scan: the next carries, then what else a round gives
    graph = Graph(body.inputs, body.nodes, (*body.outputs[1:], body.outputs[0]), body.names)
    step = _step_of(engine, graph, device, proofs, inner, consts, carries)
    if step is None:
        return None
    out = _Launches(len(n.inputs), n.avals)
    more = out.room(1)
    flag = Aval((), n.params["body"].avals[body.outputs[0]].dtype)
    out.copy(consts, row_major(()), flag, more)
    for k, aval in enumerate(n.avals):
        out.copy(consts + 1 + k, row_major(aval.shape), aval, out.result(k))
    head = len(out.found)
    slots: dict[int, At] = {i: i for i in range(consts)}
    slots.update({consts + k: out.result(k) for k in range(carries)})
    for v in _made(step):
        slots[v] = out.result(step.over[v]) if v in step.over else out.room(step.avals[v].nbytes)
    out.segments(step, slots)
    staged: dict[int, At] = {}
    for k, (base, _, aval) in enumerate(step.outputs[:carries]):
        whole = base == consts + k and step.outputs[k][1] == row_major(aval.shape)
        if consts <= base < consts + carries and k not in step.numbers and not whole:
            # a part of a carry, or another one, which may be written before it is read
            staged[k] = out.room(aval.nbytes)
            out.put(step, k, slots, staged[k])
    for k, (base, _, aval) in enumerate(step.outputs[:carries]):
        if k in staged:
            out.copy(staged[k], row_major(aval.shape), aval, out.result(k))
        elif step.over.get(base) != k:
            out.put(step, k, slots, out.result(k))
    out.put(step, carries, slots, more)
    rounds = out.found[head:]
    out.found = [*out.found[:head], jump(len(rounds) + 2, unless=more), *rounds, jump(-1 - len(rounds))]
    return NativeBranches(out, _parts(step), ROUNDS * sum(x.cost_us or 0.0 for x in rounds), consts + 1, head)


_BUILD: dict[str, Callable[..., Kernels | None]] = {"cond": _cond, "while_loop": _while}
"""Operations that run graphs → (engine, node, device, proofs, kernels of inner nodes) → their kernels."""
