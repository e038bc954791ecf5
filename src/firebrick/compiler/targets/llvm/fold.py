"""Fold kernels: reductions along several axes, including the innermost, fused with elementwise work before, between and after.

An example is batch norm's sums over batch and image, where the elements of a channel are several contiguous segments. The
kernel loops over the positions of the kept axes and computes each as ``row`` computes a row: reductions without reductions
among their operands in the first pass over its elements, those that depend on these in the second, and so on. A last pass
stores results with a value for each element.

A sum uses a fixed number of accumulators in each segment; the sums of segments are added in order, with compensation for
rounding errors. The bits of the result depend on the shape and the target only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from firebrick.compiler.targets.llvm import reduction
from firebrick.compiler.targets.llvm.emit import Code, Emitter, literal, scalar_type, splat, vector_type
from firebrick.compiler.targets.llvm.memory import BufferView, Strip, read, read_uniform, stored_type, tail_mask, write
from firebrick.compiler.targets.llvm.merging import LoopNest, merge, row_offsets
from firebrick.compiler.targets.llvm.native import UNIT, Loop, NativeKernel, buffer_pointers, finish, lanes_for
from firebrick.compiler.targets.llvm.row import Output, levels
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import FLOATS, Expr, walk
from firebrick.scalar.storage import computed

BLOCK = 32
"""Vectors that are added to an accumulator without compensation, before it is added to the compensated total."""


def fold_kernel(
    name: str,
    kept: Sequence[int],
    folded: Sequence[int],
    operands: Sequence[BufferView],
    results: Sequence[Output],
    target: Target,
) -> NativeKernel:
    """Generate a fold kernel.

    Args:
        name: Name of its function.
        kept: The axes that are kept.
        folded: The axes that are reduced, none of them empty.
        operands: Views that ``load(k)`` reads, with strides for ``kept``, then ``folded``.
        results: Expressions and their views. One with a single value for each position of ``kept`` has strides of 0 for
            ``folded``, and is stored once.
        target: Processor to generate for.
    """
    code = Code(target)
    folds = _FoldGenerator(code, len(kept), (*kept, *folded), list(operands), list(results))
    count, size = prod(kept), prod(folded)
    group = max(1, UNIT // size)
    unit = Loop(code, "%begin", "%end", 1)
    first = code.put(f"mul i64 {unit.index}, {group}")
    last = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {first}, {group}")), ("i64", str(count)))
    loop = Loop(code, first, last, 1)
    folds.position(loop.index)
    loop.close()
    unit.close()
    return finish(name, code, len(folds.views), -(-count // group))


class _FoldGenerator:
    def __init__(self, code: Code, kept: int, shape: Sequence[int], operands: list[BufferView], results: list[Output]) -> None:
        self.code, self.operands, self.results = code, operands, results
        roots = [e for e, _ in results]
        nodes = walk(roots)
        if any(e.op in ("index", "gather", "bounded") for e in nodes):
            raise TypeError("a fold reads elements at their own positions only")
        self.views = [*operands, *(v for _, v in results)]
        outer = merge(shape[:kept], [v.strides[:kept] for v in self.views], range(kept))
        self.outer = LoopNest((*outer.shape, 1), tuple((*s, 0) for s in outer.strides))
        self.inner = merge(shape[kept:], [v.strides[kept:] for v in self.views], range(len(shape) - kept))
        self.length = self.inner.shape[-1]
        self.invariant = [not any(s) for s in self.inner.strides]  # whether a buffer has one element for each kept position
        self.lanes = lanes_for(code.target, nodes, [computed(v.dtype) for v in self.views])
        while self.lanes > 1 and self.lanes // 2 >= self.length:
            self.lanes //= 2
        level = levels(roots)
        reduces = [e for e in nodes if e.op == "reduce"]
        self.passes = [[e for e in reduces if level[e] == k] for k in range(1, max(level.values(), default=0) + 1)]
        first = len(operands)
        self.per_element = [(e, first + i) for i, (e, _) in enumerate(results) if not self.invariant[first + i]]
        self.per_position = [(e, first + i) for i, (e, _) in enumerate(results) if self.invariant[first + i]]
        self.pointers = buffer_pointers(code, len(self.views))

    def position(self, position: str) -> None:
        """The code for one position of the kept axes."""
        code = self.code
        self.bases = [
            pointer if offset == "0" else code.put(f"getelementptr {stored_type(v.dtype, code)}, ptr {pointer}, i64 {offset}")
            for v, pointer, offset in zip(self.views, self.pointers, row_offsets(code, self.outer, position), strict=True)
        ]
        self.scalars: dict[Expr, str] = {}
        self.splats: dict[Expr, str] = {}
        self.uniform: dict[int, Strip] = {}
        for k in sorted({int(e.value or 0) for e in walk(e for e, _ in self.results) if e.op == "load"}):
            if self.invariant[k]:
                self.uniform[k] = Strip(self.views[k].dtype, self.bases[k], 0)
                read_uniform(code, self.uniform[k], self.lanes)
        for reduces in self.passes:
            self._pass(reduces)
        if self.per_position:
            emitter = Emitter(code, 1, self._scalar)
            for e, i in self.per_position:
                write(code, Strip(self.views[i].dtype, self.bases[i], 0), "0", emitter.value(e), 1)
        if self.per_element:
            self._write([(e, i) for e, i in self.per_element])

    def _scalar(self, e: Expr) -> str:
        if e.op == "reduce":
            return self.scalars[e]
        k = int(e.value or 0)
        return read(self.code, Strip(self.views[k].dtype, self.bases[k], 0), "0", 1)

    def _for_each_segment(self, carried: Sequence[tuple[str, str]], body: Callable[[list[str]], Sequence[str]]) -> list[str]:
        """Loop over the segments of the innermost axis, with carried values; ``self.strips`` are those of the segment."""
        code, count = self.code, prod(self.inner.shape[:-1])
        if count == 1:
            self._strips(["0"] * len(self.views))
            return list(body([value for _, value in carried]))
        loop = Loop(code, "0", str(count), 1, carried)
        self._strips(row_offsets(code, self.inner, loop.index))
        loop.close(body(loop.values))
        return loop.values

    def _strips(self, offsets: Sequence[str]) -> None:
        code = self.code
        self.strips = []
        for view, base, offset, steps in zip(self.views, self.bases, offsets, self.inner.strides, strict=True):
            if offset != "0":
                base = code.put(f"getelementptr {stored_type(view.dtype, code)}, ptr {base}, i64 {offset}")
            self.strips.append(Strip(view.dtype, base, steps[-1]))
        for k, strip in enumerate(self.strips[: len(self.operands)]):
            if k in self.uniform:
                self.strips[k] = self.uniform[k]
            elif strip.stride == 0:
                read_uniform(code, strip, self.lanes)

    def _values(self, roots: Sequence[Expr], at: str, mask: str) -> list[str]:
        """The values of expressions for ``lanes`` elements of a segment."""

        def leaf(e: Expr) -> str:
            return self.splats[e] if e.op == "reduce" else read(self.code, self.strips[int(e.value or 0)], at, self.lanes, mask)

        return Emitter(self.code, self.lanes, leaf).all(roots)

    def _pass(self, reduces: list[Expr]) -> None:
        """One pass over a position's elements, which computes ``reduces``."""
        code, lanes = self.code, self.lanes
        types = [vector_type(scalar_type(e.dtype), lanes) for e in reduces]
        zeros = [reduction.identity(str(e.value), e.dtype, lanes) for e in reduces]
        exact = [k for k, e in enumerate(reduces) if e.value == "sum" and e.dtype in FLOATS]
        carried = [*zip(types, zeros, strict=True), *((types[k], literal(0.0, reduces[k].dtype, lanes)) for k in exact)]

        def add(totals: Sequence[str], part: Sequence[str]) -> list[str]:
            new, errors = [], []
            for k, (e, total, value) in enumerate(zip(reduces, totals, part, strict=False)):
                if k in exact:
                    sums = reduction.add_exactly(code, e.dtype, total, totals[len(reduces) + exact.index(k)], value, lanes)
                    new.append(sums[0])
                    errors.append(sums[1])
                else:
                    new.append(reduction.step(code, str(e.value), e.dtype, total, value, lanes))
            return [*new, *errors]

        def segment(totals: list[str]) -> Sequence[str]:
            work = sum(reduction.weight(e.args[0]) for e in reduces)
            # several accumulators hide the latency of an addition; fewer where registers are needed for the expressions
            chains = 4 if work <= 8 and len(reduces) <= 2 else 2 if work <= 24 and len(reduces) <= 4 else 1
            step = chains * lanes
            whole = self.length - self.length % step
            if whole > BLOCK * step:
                blocks = Loop(code, "0", str(whole), BLOCK * step, [(t, v) for (t, _), v in zip(carried, totals, strict=True)])
                end = code.put(f"add i64 {blocks.index}, {BLOCK * step}")
                stop = code.call("i64", "llvm.smin.i64", ("i64", end), ("i64", str(whole)))
                blocks.close(add(blocks.values, self._chains(reduces, blocks.index, stop, chains, types, zeros)))
                totals = blocks.values
            elif whole:
                totals = add(totals, self._chains(reduces, "0", str(whole), chains, types, zeros))
            rest = [self._masked(reduces, at) for at in range(whole, self.length, lanes)]
            return add(totals, self._combined(reduces, rest)) if rest else totals

        totals = self._for_each_segment(carried, segment)
        for k, e in enumerate(reduces):
            total = totals[k]
            if k in exact:
                total = reduction.settle(code, e.dtype, total, totals[len(reduces) + exact.index(k)], lanes)
            self.scalars[e] = reduction.across(code, str(e.value), e.dtype, total, lanes)
            self.splats[e] = splat(code, scalar_type(e.dtype), self.scalars[e], lanes)

    def _chains(
        self, reduces: list[Expr], start: str, stop: str, chains: int, types: list[str], zeros: list[str]
    ) -> list[str]:  # fmt: skip
        """Reduce [start, stop) of a segment with ``chains`` accumulators for each reduction, then these as a tree."""
        code, lanes = self.code, self.lanes
        carried = [(t, z) for t, z in zip(types, zeros, strict=True) for _ in range(chains)]
        loop = Loop(code, start, stop, chains * lanes, carried)
        columns = []
        for c in range(chains):
            at = code.put(f"add i64 {loop.index}, {c * lanes}") if c else loop.index
            columns.append(self._values([e.args[0] for e in reduces], at, ""))
        new = []
        for k, e in enumerate(reduces):
            for c in range(chains):
                new.append(reduction.step(code, str(e.value), e.dtype, loop.values[k * chains + c], columns[c][k], lanes))
        loop.close(new)
        return self._combined(reduces, [loop.values[c::chains] for c in range(chains)])

    def _combined(self, reduces: list[Expr], parts: Sequence[Sequence[str]]) -> list[str]:
        return [
            reduction.tree(self.code, str(e.value), e.dtype, [p[k] for p in parts], self.lanes) for k, e in enumerate(reduces)
        ]

    def _masked(self, reduces: list[Expr], at: int) -> list[str]:
        """The values of a segment from element ``at`` on, and identities in lanes beyond its end."""
        code, lanes, left = self.code, self.lanes, self.length - at
        mask = tail_mask(code, str(left), lanes) if left < lanes else ""
        values = self._values([e.args[0] for e in reduces], str(at), mask)
        if not mask:
            return values
        return [
            reduction.masked(code, str(e.value), e.dtype, v, mask, lanes) for e, v in zip(reduces, values, strict=True)
        ]  # fmt: skip

    def _write(self, per_element: list[tuple[Expr, int]]) -> None:
        """Results with a value for each element."""
        code, lanes = self.code, self.lanes
        end = self.length - self.length % lanes

        def body(at: str, mask: str) -> None:
            for (_, i), value in zip(per_element, self._values([e for e, _ in per_element], at, mask), strict=True):
                write(code, self.strips[i], at, value, lanes, mask)

        def segment(_: list[str]) -> list[str]:
            if end == lanes:
                body("0", "")
            elif end:
                loop = Loop(code, "0", str(end), lanes)
                body(loop.index, "")
                loop.close()
            if self.length > end:
                body(str(end), tail_mask(code, str(self.length - end), lanes))
            return []

        self._for_each_segment((), segment)
