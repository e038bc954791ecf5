"""``NativeScan``: a scan whose steps are all native, as one list of launches: the kernels of a step, repeated on other memory.

A step reads its elements of the input sequences, and writes those of the output sequences, without copies. Carries are double
buffered, or overwritten in place if no other kernel reads the old value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from firebrick.backends.cpu.native import NativeNode, Proofs, kernel_of, kinds_of, launched, lowered_of
from firebrick.compiler import Kernel, choose, plan_memory
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.layout.views import strided_view
from firebrick.compiler.program.launch import Launch
from firebrick.compiler.program.segments import HOST, Kinds, SegmentPlan, find_segments
from firebrick.compiler.program.spans import rounded
from firebrick.compiler.targets.llvm.copy_kernels import SIZES, copied
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.compiler.targets.llvm.lowered import At, at_offset, within
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.views import View, row_major
from firebrick.ir import Graph, Node

MOST = 1 << 15
"""Maximum number of nodes of all steps; longer loops run on the host."""


def loop_kernel(engine: Any, n: Node, device: Device | None, proofs: Proofs) -> Kernel | None:
    """The kernel of a node that runs graphs, if it is a scan whose steps are all native, and not too many; else None."""
    if n.op.control is None or n.op.name != "scan" or not n.params["length"]:
        return None
    body: Graph = n.params["body"]
    consts, carries = n.params["consts"], n.params["carries"]
    fused = fuse(body, kind_of, POLICY, states=range(consts, consts + carries), proved=proofs)
    if fused is body or any(m.op.control is not None for m in fused.nodes):
        return None
    kernels = choose(engine, fused, device)
    for donated in (tuple(range(consts, consts + carries)), ()):
        kinds = kinds_of(fused, kernels)
        parts = find_segments(kinds, kernels, plan_memory(fused, kernels, donated, (), kinds.arrange))
        step = _step(kinds, kernels, parts, consts, carries)
        if step is not None:
            if n.params["length"] * sum(len(segment.calls) for segment in parts.segments) > MOST:
                return None
            loop = NativeScan(step, n.params["length"], n.params["reverse"])
            return kernel_of(NativeNode(loop, partial(n.op.control, engine, n.params, device)), len(n.inputs))
    return None


@dataclass(frozen=True, slots=True)
class _ScanStep:
    """One step of a scan.

    Attributes:
        kernels: Kernels of the body's nodes.
        segment_plan: Segments of the body.
        consts: Number of inputs that are equal in all steps.
        carries: Number of inputs from the previous step; the others are elements of sequences.
        inputs: All inputs.
        outputs: For each output, the value whose memory it is in, the view of that memory, and its shape and dtype.
        over: Values that are written over a carry → number of the carry, whose next state the value is.
    """

    kernels: Sequence[Kernel | None]
    segment_plan: SegmentPlan
    consts: int
    carries: int
    inputs: list[Aval]
    outputs: list[tuple[int, View, Aval]]
    over: dict[int, int]
    avals: list[Aval]


def _step(kinds: Kinds, kernels: Sequence[Kernel | None], parts: SegmentPlan, consts: int, carries: int) -> _ScanStep | None:
    """A body as a step; None if some node is not native, or if the step cannot be repeated on other memory."""
    graph, avals = kinds.graph, kinds.avals
    if any(kind == HOST and not n.op.view for kind, n in zip(kinds.of, graph.nodes, strict=True)):
        return None
    made = {v for segment in parts.segments for v in segment.results}
    known = made.union(range(len(graph.inputs)))
    if any(v not in known for segment in parts.segments for v in segment.arrays):
        return None  # a constant array
    outputs = []
    for v in graph.outputs:
        located = _view_of_memory(kinds, v)
        if located is None or located[0] not in known or avals[v].dtype.itemsize not in SIZES:
            return None
        outputs.append((*located, avals[v]))
    uses = Counter(base for base, _, _ in outputs)
    over: dict[int, int] = {}
    for segment in parts.segments:
        for v, u in segment.into.items():
            k = u - consts
            if not 0 <= k < carries or graph.outputs[k] != v or uses[v] > 1:
                return None
            over[v] = k
    return _ScanStep(kernels, parts, consts, carries, list(graph.inputs), outputs, over, avals)


def _view_of_memory(kinds: Kinds, v: int) -> tuple[int, View] | None:
    """The value whose memory a value is a view of, and the view; None if it needs a copy."""
    chain = []
    while v in kinds.node_of and kinds.graph.nodes[kinds.node_of[v]].op.view:
        n = kinds.graph.nodes[kinds.node_of[v]]
        chain.append((n, v - n.first))
        v = n.inputs[0]
    view: View | None = row_major(kinds.avals[v].shape)
    for n, slot in reversed(chain):
        view = None if view is None else strided_view(n, slot, view)
    return None if view is None else (v, view)


class NativeScan:
    """The launches of all steps of a scan.

    Its operands and results are those of the scan. Its only temporary buffer holds intermediate values of a step, and carries.

    Attributes:
        temporary: Bytes of that buffer.
        over: Empty sets: no result uses an operand's memory.
        parts: The kernels of one step.
        texts: The modules of the kernels.
        cost_us: Estimate of the time of all steps on one thread.
    """

    def __init__(self, step: _ScanStep, length: int, reverse: bool) -> None:
        self.step, self.length = step, length
        self.results = range(len(step.inputs), len(step.inputs) + len(step.outputs))
        self.block = len(step.inputs) + len(step.outputs)
        self.over: tuple[frozenset[int], ...] = (frozenset(),) * len(step.outputs)
        lowered_kernels = [found for kernel in step.kernels if (found := lowered_of(kernel)) is not None]
        self.parts = tuple(part for found in lowered_kernels for part in found.parts)
        self._texts: dict[str, None] = {}
        self.made = [v for segment in step.segment_plan.segments for v in segment.results]
        self.alternating: dict[int, int] = {}  # value or carry → offset of the first of its two buffers
        self.size = step.segment_plan.arena
        self._launches = self._initial_copies()
        steps = range(length - 1, -1, -1) if reverse else range(length)
        for iteration, t in enumerate(steps):
            self._launches += self._step_launches(iteration, t)
        self.temporary = (self.size,) if self.size else ()
        self.cost_us = sum(x.cost_us or 0.0 for x in self._launches)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def launches(self, at: Sequence[At]) -> list[Launch]:
        """The launches of all steps; ``at`` as for ``Lowered``."""
        return [replace(x, buffers=tuple(within(at, b) for b in x.buffers)) for x in self._launches]

    def _initial_copies(self) -> list[Launch]:
        """Launches before the first step. They copy carries that are overwritten in place to the results."""
        s = self.step
        self.carry: list[At] = list(range(s.consts, s.consts + s.carries))
        out: list[Launch] = []
        for k in s.over.values():
            aval = s.inputs[s.consts + k]
            out += self._copy(self.carry[k], row_major(aval.shape), aval, self.results[k])
            self.carry[k] = self.results[k]
        return out

    def _step_launches(self, iteration: int, t: int) -> list[Launch]:
        """The launches of an iteration, which reads and writes element ``t`` of the sequences."""
        s, last = self.step, iteration == self.length - 1
        first_sequence = s.consts + s.carries
        slots: dict[int, At] = dict(enumerate(range(s.consts)))
        slots.update({s.consts + k: place for k, place in enumerate(self.carry)})
        slots.update({i: at_offset(i, t * s.inputs[i].nbytes) for i in range(first_sequence, len(s.inputs))})
        for v in self.made:
            slots[v] = self._destination(v, iteration, t)
        out: list[Launch] = []
        for segment in s.segment_plan.segments:
            launches, texts = launched(segment, s.kernels, s.segment_plan, slots, self.block)
            out += launches
            self._texts.update(dict.fromkeys(texts))
        for j, (base, view, aval) in enumerate(s.outputs[s.carries :], s.carries):
            out += self._copy(slots[base], view, aval, at_offset(self.results[j], t * aval.nbytes))
        next_carry = list(self.carry)
        for k, (base, view, aval) in enumerate(s.outputs[: s.carries]):
            if k in s.over.values():
                continue
            must_copy = s.consts <= base < first_sequence and (base != s.consts + k or view != row_major(aval.shape))
            if last:
                out += self._copy(slots[base], view, aval, self.results[k])
            elif must_copy or not view.in_rows:  # its buffer may be overwritten by another carry
                next_carry[k] = self._alternating(-1 - k, aval, iteration)
                out += self._copy(slots[base], view, aval, next_carry[k])
            else:
                next_carry[k] = at_offset(slots[base], view.offset * aval.dtype.itemsize)
        self.carry = next_carry
        return out

    def _destination(self, v: int, iteration: int, t: int) -> At:
        """The memory that an iteration writes a value to: of a carry, a sequence, a final result, or one of two buffers."""
        s = self.step
        if v in s.over:
            return self.carry[s.over[v]]
        whole = (v, row_major(s.avals[v].shape), s.avals[v])
        for j, output in enumerate(s.outputs[s.carries :], s.carries):
            if output == whole:
                return at_offset(self.results[j], t * s.avals[v].nbytes)
        if iteration == self.length - 1 and whole in s.outputs[: s.carries]:
            return self.results[s.outputs.index(whole)]
        return self._alternating(v, s.avals[v], iteration)

    def _alternating(self, key: int, aval: Aval, iteration: int) -> At:
        """One of two buffers, alternating with the iterations."""
        whole = rounded(aval.nbytes)
        if key not in self.alternating:
            self.alternating[key] = self.size
            self.size += 2 * whole
        return at_offset(self.block, self.alternating[key] + iteration % 2 * whole)

    def _copy(self, source: At, view: View, aval: Aval, destination: At) -> list[Launch]:
        """The launches that copy a view, unless source and destination are the same memory."""
        source = at_offset(source, view.offset * aval.dtype.itemsize)
        if not aval.size or (source == destination and view.in_rows):
            return []
        made = copied(row_major((aval.size,)) if view.in_rows else view, aval.dtype.itemsize, Target.host())
        self._texts[made.text] = None
        return made.launches([source, destination])
