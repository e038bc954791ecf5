"""``NativeScan``: a scan whose steps are all native, as one list of launches: the kernels of a step, repeated on other memory.

A step reads its elements of the input sequences, and writes those of the output sequences, without copies. Carries are double
buffered, or overwritten in place if no other kernel reads the old value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from firebrick.backends.cpu.native import NativeNode, Proofs, kernel_of, kernel_with, kinds_of, launched, lowered_of
from firebrick.compiler import Kernel, choose, plan_memory
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.fusion.loop_views import views_inside
from firebrick.compiler.fusion.row_slices import sliced
from firebrick.compiler.layout.views import strided_view
from firebrick.compiler.program.launch import At, Launch, in_sequences
from firebrick.compiler.program.segments import HOST, Call, Kinds, SegmentPlan, find_segments
from firebrick.compiler.program.spans import rounded
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.llvm.copy_kernels import SIZES, copied
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of, lower
from firebrick.compiler.targets.llvm.lowered import Lowered, at_offset, relocated
from firebrick.compiler.targets.llvm.products import packed_once
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.tune import choice
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.views import View, row_major
from firebrick.ir import CONSTANT, Graph, Node

MOST = 1 << 15
"""Maximum number of launches of all steps; longer loops run on the host."""
SLICES, LEAST_ROWS = 8, 8
"""Maximum number of slices of rows that threads compute independently, and minimum number of rows of a slice: products with
fewer rows take longer for each."""
SHARED_BYTES = 512 << 10
"""Maximum bytes that all steps read, for slices: each thread reads all of it in each step, from its own second-level cache."""
SLICED_US = 100.0
"""Minimum estimated time of a loop in slices."""
BLOCK_US = 4000.0
"""Estimated time of the steps of one launch of slices, after which the native loop may return to Python."""


def loop_kernel(
    engine: Any, n: Node, device: Device | None, proofs: Proofs, inner: Callable[[Node], Kernel | None]
) -> Kernel | None:  # fmt: skip
    """The kernel of a scan, if its steps are all native, and not too many; else None.

    Args:
        engine: Engine of the kernels.
        n: The scan.
        device: Device on which it runs.
        proofs: Validation of groups.
        inner: Returns the kernel of a node of the body that runs graphs itself.
    """
    if n.op.control is None or not n.params["length"]:
        return None
    body = views_inside(n.params["body"])
    consts, carries = n.params["consts"], n.params["carries"]
    length, reverse = n.params["length"], n.params["reverse"]

    def scan_of(body: Graph, slices: int) -> NativeScan | None:
        fused = fuse(body, kind_of, POLICY, states=range(consts, consts + carries), proved=proofs)
        if fused is body:
            return None
        kernels = _packing_once(fused, choose(engine, fused, device, inner), consts)
        step = body_step(kinds_of(fused, kernels), kernels, consts, carries)
        if step is None or step.numbers or step.constants or slices * length * step.launches > MOST:
            return None
        return NativeScan(step, length, reverse, slices)

    loop, (part, slices) = None, _slice(body, consts)
    if part is not None:
        loop = scan_of(part, slices)
        if loop is not None and not (loop.cost_us >= SLICED_US and loop.divisible):
            loop = None
    loop = loop or scan_of(body, 1)
    if loop is None:
        return None
    return kernel_of(NativeNode(loop, partial(n.op.control, engine, n.params, device)), len(n.inputs))


def _slice(body: Graph, consts: int) -> tuple[Graph | None, int]:
    """The body for some of its rows, and in how many such slices they are divided; None where all rows are to be computed
    together. Shapes alone decide this, so that results do not depend on the number of threads."""
    if len(body.inputs) == consts or not body.inputs[consts].shape:
        return None, 1
    rows = body.inputs[consts].shape[0]
    slices = max((k for k in range(1, SLICES + 1) if rows % k == 0 and rows >= k * LEAST_ROWS), default=1)
    if slices == 1 or sum(a.nbytes for a in body.inputs[:consts]) > SHARED_BYTES:
        return None, 1
    return sliced(body, consts, rows // slices), slices


def _packing_once(graph: Graph, kernels: Sequence[Kernel | None], consts: int) -> list[Kernel | None]:
    """The kernels of a body's nodes, in which products with a matrix that all steps read pack it by a separate kernel. The
    autotuner's variants are measured for one product, and do not compete with that."""
    found = list(kernels)
    for k, n in enumerate(graph.nodes):
        body, target = n.params.get("body"), Target.host()
        if n.op is not FUSED or body is None:
            continue
        default = lower(body, target)
        if choice.forces() and lowered_of(kernels[k]) is not default:
            continue
        spec = spec_of(body)
        if isinstance(spec, Contract):
            constant = [i for i, v in enumerate(n.inputs) if v < consts]
            made = packed_once(spec, body.inputs, [body.avals[v] for v in body.outputs], target, constant)
            found[k] = kernels[k] if made is None else kernel_with(body, replace(made, doubt=default.doubt))
    return found


@dataclass(frozen=True, slots=True)
class BodyStep:
    """One step of a loop, or a branch, which has no carries.

    Attributes:
        kernels: Kernels of the body's nodes.
        segment_plan: Segments of the body.
        consts: Number of inputs that are equal in all steps.
        carries: Number of inputs from the previous step; the others are elements of sequences.
        inputs: All inputs.
        outputs: For each output, the value whose memory it is in, the view of that memory, and its shape and dtype.
        over: Values that are written over a carry → number of the carry, whose next state the value is.
        avals: Shapes and dtypes of the body's values.
        numbers: Outputs that are constants of one element, or repeat it → the constants.
        constants: Values that kernels read and that are constants of one element → the constants.
    """

    kernels: Sequence[Kernel | None]
    segment_plan: SegmentPlan
    consts: int
    carries: int
    inputs: list[Aval]
    outputs: list[tuple[int, View, Aval]]
    over: dict[int, int]
    avals: list[Aval]
    numbers: dict[int, np.ndarray[Any, Any]]
    constants: dict[int, np.ndarray[Any, Any]]

    @property
    def launches(self) -> int:
        """Number of launches, or of kernels and copies."""
        nodes = (c.node for segment in self.segment_plan.segments for c in segment.calls)
        lowered = (None if k < 0 else lowered_of(self.kernels[k]) for k in nodes)
        return sum(1 if found is None else found.count for found in lowered)


def body_step(kinds: Kinds, kernels: Sequence[Kernel | None], consts: int, carries: int) -> BodyStep | None:
    """A body as a step; None if some node is not native, or if the step cannot be repeated on other memory.

    Carries are overwritten in place if no kernel of the step reads them later. They are in memory of the loop's own, so that a
    step that raises an error may have overwritten them.
    """
    graph = kinds.graph
    uses = Counter(graph.outputs)
    alone = tuple(consts + k for k in range(carries) if uses[graph.outputs[k]] == 1)
    for donated in dict.fromkeys((alone, ())):
        own = kinds_of(graph, kernels)
        parts = find_segments(own, kernels, plan_memory(graph, kernels, donated, (), own.arrange, private=True))
        step = _step(own, kernels, parts, consts, carries)
        if step is not None:
            return step
    return None


def _step(kinds: Kinds, kernels: Sequence[Kernel | None], parts: SegmentPlan, consts: int, carries: int) -> BodyStep | None:
    """The step of segments in which certain carries are overwritten; None if there is none."""
    graph, avals = kinds.graph, kinds.avals
    if any(kind == HOST and not n.op.view for kind, n in zip(kinds.of, graph.nodes, strict=True)):
        return None
    made = {v for segment in parts.segments for v in segment.results}
    known = made.union(range(len(graph.inputs)))
    constants: dict[int, np.ndarray[Any, Any]] = {}
    for v in [v for segment in parts.segments for v in segment.arrays if v not in known]:
        value = _number(kinds, v)
        if value is None:
            return None  # a constant array
        constants[v] = value
    outputs = []
    numbers: dict[int, np.ndarray[Any, Any]] = {}
    for k, v in enumerate(graph.outputs):
        located = _view_of_memory(kinds, v)
        value = None if located is None else _number(kinds, located[0])
        if value is not None and avals[v].dtype.itemsize in SIZES:
            numbers[k] = value
            outputs.append((-1, row_major(avals[v].shape), avals[v]))
            continue
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
    return BodyStep(kernels, parts, consts, carries, list(graph.inputs), outputs, over, avals, numbers, constants)


def _number(kinds: Kinds, v: int) -> np.ndarray[Any, Any] | None:
    """The constant of one element that a value is; None for others."""
    n = kinds.graph.nodes[kinds.node_of[v]] if v in kinds.node_of else None
    if n is None or n.op is not CONSTANT or n.avals[0].size != 1:
        return None
    return np.asarray(n.params["value"])


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

    Its operands and results are those of the scan. Its only temporary buffer holds packed matrices, intermediate values of a
    step, and carries.

    Args:
        step: A step, for the rows of one slice.
        length: Number of steps.
        reverse: Whether the last element of the sequences is the first that is read.
        slices: In how many slices the rows of carries and of elements of sequences are divided. A thread runs all steps of a
            slice.

    Attributes:
        temporary: Bytes of that buffer.
        over: Empty sets: no result uses an operand's memory.
        parts: The kernels of one step.
        texts: The modules of the kernels.
        cost_us: Estimate of the time of all steps on one thread.
        count: Number of launches.
    """

    def __init__(self, step: BodyStep, length: int, reverse: bool, slices: int = 1) -> None:
        self.step, self.length, self.slices = step, length, slices
        self.results = range(len(step.inputs), len(step.inputs) + len(step.outputs))
        self.block = len(step.inputs) + len(step.outputs)
        self.over: tuple[frozenset[int], ...] = (frozenset(),) * len(step.outputs)
        self._kernels = [found for kernel in step.kernels if (found := lowered_of(kernel)) is not None]
        self.parts = tuple(part for found in self._kernels for part in found.parts)
        self._texts: dict[str, None] = {}
        self.made = [v for segment in step.segment_plan.segments for v in segment.results]
        self.alternating: dict[int, int] = {}  # value or carry → offset of the first of its two buffers
        self.size = step.segment_plan.arena  # of a slice, in bytes
        self._packed, self._offsets, self.shared = self._packing()
        steps = range(length - 1, -1, -1) if reverse else range(length)
        self.arena = at_offset(self.block, self.shared)
        own = {k: tuple(offset - self.shared for offset in offsets) for k, offsets in self._offsets.items()}
        plan = step.segment_plan
        self.plan = replace(plan, temporary={**plan.temporary, **own})
        first = self._initial_copies()
        each = [self._step_launches(iteration, t) for iteration, t in enumerate(steps)]
        each[0][:0] = first
        self._launches = self._packing_launches()
        if slices == 1:
            self._launches += [x for launches in each for x in launches]
        else:
            for some in self._blocks(each):
                own_launches = [x for launches in each[some] for x in launches]
                self._launches.append(in_sequences([self._of_slice(k, own_launches) for k in range(slices)]))
        nbytes = self.shared + slices * self.size
        self.temporary = (nbytes,) if nbytes else ()
        self.cost_us = sum(x.cost_us or 0.0 for x in self._launches)
        self.count = sum(len(part) for x in self._launches for part in (x.sequences or ((x,),)))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def launches(self, at: Sequence[At]) -> list[Launch]:
        """The launches of all steps; ``at`` as for ``Lowered``."""
        return [relocated(x, at) for x in self._launches]

    @property
    def divisible(self) -> bool:
        """Whether slices of rows may run at the same time: kernels without branches and loops within them, which report no
        faults, and packed matrices are all that slices have in common."""
        shared = [len(found.parts) - len(self._packed[k]) for k in self._packed if (found := lowered_of(self.step.kernels[k]))]
        plain = all(isinstance(found, Lowered) for found in self._kernels)
        return plain and all(count == 1 for count in shared) and not any(p.sites for p in self.parts)

    def _packing(self) -> tuple[dict[int, list[int]], dict[int, list[int]], int]:
        """For some nodes, the numbers of their kernels that pack what all steps read, and the offsets of their temporary
        buffers, which belong to them alone; and the bytes of these buffers."""
        packed: dict[int, list[int]] = {}
        offsets: dict[int, list[int]] = {}
        size = 0
        for c in self._calls():
            found = lowered_of(self.step.kernels[c.node])
            if not isinstance(found, Lowered):  # a loop within this one packs what its own steps read
                continue
            for i, part in enumerate(found.parts):
                source = part.buffers[part.packs] if part.packs >= 0 else len(c.operands)
                operand = source[0] if isinstance(source, tuple) else source
                if operand < len(c.operands) and c.operands[operand].buffer < self.step.consts:
                    packed.setdefault(c.node, []).append(i)
            for nbytes in found.temporary if c.node in packed else ():
                offsets.setdefault(c.node, []).append(size)
                size += rounded(nbytes)
        return packed, offsets, size

    def _calls(self) -> list[Call]:
        """The calls of the step's kernels, without copies."""
        return [c for segment in self.step.segment_plan.segments for c in segment.calls if c.view is None]

    def _packing_launches(self) -> list[Launch]:
        """The launches before all steps that pack what these read."""
        out: list[Launch] = []
        for c in self._calls():
            found = lowered_of(self.step.kernels[c.node])
            if not isinstance(found, Lowered) or c.node not in self._packed:
                continue
            # such a kernel reads one operand, which is a constant, and writes a temporary buffer
            at: list[At] = [at_offset(r.buffer, r.offset) if r.buffer < self.step.consts else 0 for r in c.operands]
            at += [0 for _ in c.results]
            at += [at_offset(self.block, offset) for offset in self._offsets[c.node]]
            launches = found.launches(at)
            out += [launches[i] for i in self._packed[c.node]]
        return out

    def _of_slice(self, number: int, launches: Sequence[Launch]) -> list[Launch]:
        """The launches of a slice, from those of slice 0: the rows of arrays, and the slices' memory, follow each other."""
        s = self.step
        sizes = [a.nbytes for a in s.inputs] + [a.nbytes for _, _, a in s.outputs]
        moves = [0] * s.consts + [number * nbytes for nbytes in sizes[s.consts :]]

        def moved(buffer: At) -> At:
            slot, offset = buffer if isinstance(buffer, tuple) else (buffer, 0)
            if slot < self.block:
                return at_offset(buffer, moves[slot])
            return at_offset(buffer, number * self.size if offset >= self.shared else 0)

        return [x.placed(moved) for x in launches]

    def _blocks(self, steps: Sequence[Sequence[Launch]]) -> Iterator[slice]:
        """The steps in consecutive blocks of about ``BLOCK_US``."""
        start, spent = 0, 0.0
        for i, launches in enumerate(steps):
            spent += self.slices * sum(x.cost_us or 0.0 for x in launches)
            if spent >= BLOCK_US or i == len(steps) - 1:
                yield slice(start, i + 1)
                start, spent = i + 1, 0.0

    def _element(self, buffer: At, t: int, nbytes: int) -> At:
        """The memory of a slice's rows, ``nbytes``, of element ``t`` of a sequence."""
        return at_offset(buffer, t * self.slices * nbytes)

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
        slots.update({i: self._element(i, t, s.inputs[i].nbytes) for i in range(first_sequence, len(s.inputs))})
        for v in self.made:
            slots[v] = self._destination(v, iteration, t)
        out: list[Launch] = []
        for segment in s.segment_plan.segments:
            launches, texts = launched(segment, s.kernels, self.plan, slots, self.arena, self._packed)
            out += launches
            self._texts.update(dict.fromkeys(texts))
        for j, (base, view, aval) in enumerate(s.outputs[s.carries :], s.carries):
            out += self._copy(slots[base], view, aval, self._element(self.results[j], t, aval.nbytes))
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
                return self._element(self.results[j], t, s.avals[v].nbytes)
        if iteration == self.length - 1 and whole in s.outputs[: s.carries]:
            return self.results[s.outputs.index(whole)]
        return self._alternating(v, s.avals[v], iteration)

    def _alternating(self, key: int, aval: Aval, iteration: int) -> At:
        """One of two buffers, alternating with the iterations."""
        whole = rounded(aval.nbytes)
        if key not in self.alternating:
            self.alternating[key] = self.size
            self.size += 2 * whole
        return at_offset(self.arena, self.alternating[key] + iteration % 2 * whole)

    def _copy(self, source: At, view: View, aval: Aval, destination: At) -> list[Launch]:
        """The launches that copy a view, unless source and destination are the same memory."""
        source = at_offset(source, view.offset * aval.dtype.itemsize)
        if not aval.size or (source == destination and view.in_rows):
            return []
        made = copied(row_major((aval.size,)) if view.in_rows else view, aval.dtype.itemsize, Target.host())
        self._texts[made.text] = None
        return made.launches([source, destination])
