"""Map kernels: several results, each an expression of operands' elements at the same position, in one loop nest.

Axes are sorted by the first result's strides and merged if every view allows it. The innermost axis is divided into vectors;
the remainder is masked. If all axes merge into one, work units are elements; else they are segments of a long innermost axis,
or groups of short rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from firebrick.compiler.targets.llvm.emit import Code, Emitter, splat, vector_type
from firebrick.compiler.targets.llvm.gathered import Gathered, uniform
from firebrick.compiler.targets.llvm.memory import (
    BufferView,
    Strip,
    address,
    positions,
    read,
    read_uniform,
    store_bytes,
    stored_type,
    tail_mask,
    write,
)
from firebrick.compiler.targets.llvm.merging import LoopNest, merge, row_offsets
from firebrick.compiler.targets.llvm.native import STREAM, UNIT, Loop, NativeKernel, aligned, buffer_pointers, finish, lanes_for
from firebrick.compiler.targets.llvm.randoms import Streams, consecutive
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Expr, steps, walk
from firebrick.scalar.storage import computed

GROUPS = 16
"""Number of groups that few short rows are divided into, so that several threads have work."""


def map_kernel(
    name: str,
    shape: Sequence[int],
    operands: Sequence[BufferView],
    results: Sequence[tuple[Expr, BufferView]],
    target: Target,
    stream: bool | None = None,
) -> NativeKernel:
    """Generate a map kernel.

    Args:
        name: Name of its function.
        shape: Shape of the results.
        operands: Views that ``load(k)`` and ``gather(k, …)`` read, with a stride for each axis of ``shape``.
        results: Expressions and their views, of the same dtype, except that half precision is computed in float32.
        target: Processor to generate for.
        stream: Whether to use non-temporal stores; by default, if a result is too large for the caches. False if a result uses
            an operand's memory, which is already in the caches.
    """
    for e, view in results:
        if e.dtype != computed(view.dtype):
            raise TypeError(f"a result stored as {view.dtype} is computed as {computed(view.dtype)}. Received: {e.dtype}")
    nodes = walk(e for e, _ in results)
    views = [*operands, *(v for _, v in results)]
    axes = [e for e in nodes if e.op == "index"]
    rank = len(shape)
    # an ``index`` node has strides like a view, so that axes are merged only if it allows that
    strides = [v.strides for v in views] + [steps(e, rank) for e in axes]
    lead = results[0][1].strides
    # axes of the result with stride 0 are outermost, so that stores along the innermost axis are contiguous
    order = sorted(range(rank), key=lambda a: (-abs(lead[a]) if lead[a] else -(1 << 62), a))
    nest = merge(shape, strides, order)
    lanes = lanes_for(target, (e for e in nodes if e.op != "index"), [computed(v.dtype) for v in views])
    count = prod(nest.shape)
    if stream is None:
        stream = max(v.itemsize for _, v in results) * count >= STREAM
    code = Code(target)
    generator = _MapGenerator(code, nest, list(operands), list(results), axes, lanes, stream and target.arch == "x86_64")
    inner, outer = nest.shape[-1], prod(nest.shape[:-1])
    if len(nest.shape) == 1:
        if generator.streams.nodes:  # in pieces, whose random words fit in scratch memory
            piece = Loop(code, "%begin", "%end", UNIT)
            end = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {piece.index}, {UNIT}")), ("i64", "%end"))
            generator.row("0", piece.index, end)
            piece.close()
        else:
            generator.row("0", "%begin", "%end")
        generator.end()
        return finish(name, code, len(views), count, generator.streams.bytes)
    if inner > UNIT:
        parts = -(-inner // UNIT)
        grid = outer * parts if count else 0
    else:
        parts = 1
        rows = max(1, min(UNIT // max(1, inner), -(-outer // GROUPS)))
        grid = -(-outer // rows) if count else 0
    unit = Loop(code, "%begin", "%end", 1)
    if parts > 1:
        row, part = (code.put(f"{op} i64 {unit.index}, {parts}") for op in ("udiv", "urem"))
        start = code.put(f"mul i64 {part}, {UNIT}")
        stop = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {start}, {UNIT}")), ("i64", str(inner)))
        generator.row(row, start, stop)
    else:
        first = code.put(f"mul i64 {unit.index}, {rows}")
        last = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {first}, {rows}")), ("i64", str(outer)))
        loop = Loop(code, first, last, 1)
        generator.row(loop.index, "0", str(inner))
        loop.close()
    unit.close()
    generator.end()
    return finish(name, code, len(views), grid, generator.streams.bytes)


class _MapGenerator:
    """Generates the code of one row: a segment of the innermost axis at one position of the other axes."""

    def __init__(
        self, code: Code, nest: LoopNest, operands: list[BufferView], results: list[tuple[Expr, BufferView]], axes: list[Expr],
        lanes: int, stream: bool,
    ) -> None:  # fmt: skip
        self.code, self.nest, self.lanes, self.results, self.axes = code, nest, lanes, results, axes
        self.views = [*operands, *(v for _, v in results)]
        self.operands = len(operands)
        self.pointers = buffer_pointers(code, len(self.views))
        self.nodes = walk(e for e, _ in results)
        self.inner = {e: nest.strides[len(self.views) + i][-1] for i, e in enumerate(axes)}
        inner = [s[-1] for s in nest.strides]
        self.invariant = uniform(self.nodes, inner, self.inner)
        self.streams = Streams(code, consecutive(self.nodes, self.invariant, self.inner), min(nest.shape[-1], UNIT), 0)
        self.stream = 0
        if stream and lanes > 1:
            contiguous = all(nest.strides[self.operands + i][-1] == 1 for i in range(len(results)))
            sizes = {store_bytes(v.dtype, lanes) for _, v in results}
            if contiguous and min(sizes) >= 16 and nest.shape[-1] >= UNIT:
                self.stream = max(sizes)

    def end(self) -> None:
        if self.stream:  # makes non-temporal stores visible to other threads
            self.code.call("void", "llvm.x86.sse.sfence")

    def row(self, row: str, start: str, stop: str) -> None:
        """The code for elements [start, stop) of a row."""
        code, lanes = self.code, self.lanes
        offsets = row_offsets(code, self.nest, row)
        self.bases = offsets[len(self.views) :]
        self.strips = []
        for view, pointer, offset, strides in zip(self.views, self.pointers, offsets, self.nest.strides, strict=False):
            if offset != "0":
                pointer = code.put(f"getelementptr {stored_type(view.dtype, code)}, ptr {pointer}, i64 {offset}")
            self.strips.append(Strip(view.dtype, pointer, strides[-1]))
        for k in sorted({int(e.value or 0) for e in self.nodes if e.op == "load"}):
            if self.strips[k].stride == 0:
                read_uniform(code, self.strips[k], lanes)
        self.gathered = Gathered(code, self.nodes, self.invariant, self.strips, lanes, self._scalar)
        size = code.put(f"sub i64 {stop}, {start}")
        self.streams.fill(self.gathered.emitter, start, size)
        if lanes == 1:
            loop = Loop(code, start, stop, 1)
            self._body(loop.index)
            loop.close()
            return
        whole = code.put(f"sub i64 {stop}, {code.put(f'urem i64 {size}, {lanes}')}")
        if self.stream:
            results = [address(code, strip, start) for strip in self.strips[self.operands :]]
            aligned(code, results, self.stream, lambda yes: self._whole(start, whole, yes))
        elif len(self.nest.shape) == 1 or self.nest.shape[-1] >= lanes:
            self._whole(start, whole, False)
        left = code.put(f"sub i64 {stop}, {whole}")
        not_empty = code.put(f"icmp sgt i64 {left}, 0")
        tail, after = code.fresh("tail"), code.fresh("after")
        code.do(f"br i1 {not_empty}, label %{tail}, label %{after}")
        code.label(tail)
        self._body(whole, tail_mask(code, left, lanes))
        code.do(f"br label %{after}")
        code.label(after)

    def _whole(self, start: str, stop: str, stream: bool) -> None:
        loop = Loop(self.code, start, stop, self.lanes)
        self._body(loop.index, "", stream)
        loop.close()

    def _scalar(self, e: Expr) -> str:
        """A loop-invariant load or index."""
        if e.op != "load":
            return self.bases[self.axes.index(e)]
        strip = self.strips[int(e.value or 0)]
        return read(self.code, Strip(strip.dtype, strip.pointer, 0), "0", 1)

    def _body(self, at: str, mask: str = "", stream: bool = False) -> None:
        code, lanes = self.code, self.lanes

        def leaf(e: Expr) -> str:
            if e.op == "load":
                return read(code, self.strips[int(e.value or 0)], at, lanes, mask)
            if e.op != "index":
                raise TypeError(f"a map kernel has no {e.op}")
            base = self.bases[self.axes.index(e)]
            index = positions(code, at, self.inner[e], lanes)
            if base == "0":
                return index
            t = vector_type("i64", lanes)
            return code.put(f"add {t} {index}, {splat(code, 'i64', base, lanes)}")

        emitter = Emitter(code, lanes, leaf, lambda e, places: self.gathered.element(e, places, at, mask), mask)
        emitter.values.update(self.gathered.splats)
        emitter.values.update(self.streams.values(at, lanes, mask))
        values = emitter.all(e for e, _ in self.results)
        for strip, value, (_, view) in zip(self.strips[self.operands :], values, self.results, strict=True):
            write(code, strip, at, value, lanes, mask, store_bytes(view.dtype, lanes) if stream else 0)
