"""Row kernels: reductions along the innermost axis, fused with elementwise work before, between and after them.

Results are expressions in which ``reduce`` nodes are values of the whole row; they may be nested, as in softmax. Reductions
without reductions among their operands are computed in the first pass over a row, those that depend on these in the second, and
so on. A last pass stores results with a value for each element. Expensive values that a later pass needs are stored in scratch
memory.

A sum is computed in fixed blocks, each with a fixed number of accumulators, whose lanes are added by halves. Its bits depend on
the row's length and on the target, never on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from firebrick.compiler.targets.llvm import reduction
from firebrick.compiler.targets.llvm.emit import Code, Emitter, literal, scalar_type, splat, vector_type
from firebrick.compiler.targets.llvm.gathered import Gathered, uniform
from firebrick.compiler.targets.llvm.memory import (
    BufferView,
    Strip,
    address,
    item_bytes,
    positions,
    read,
    read_at,
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
from firebrick.scalar.expr import FLOATS, Expr, steps, walk
from firebrick.scalar.storage import computed

BLOCK = 32
"""Vectors that are added to an accumulator without compensation, before it is added to the compensated total."""
CACHED_BYTES = 1 << 18
"""Maximum bytes of scratch memory for values of one row that later passes need."""
BLOCKS = 32
"""Approximate number of blocks of rows of a kernel with ``sums``."""
SHORT = 128
"""Maximum number of rows of such a block, since rows are summed without compensation."""
MIN_CACHED_COST = 6
"""Minimum number of instructions of a value that is stored in scratch memory; a cheaper one is recomputed."""
PREFETCH_BYTES = 1 << 9, 1 << 20
"""Minimum bytes of a row, and of an operand, for which the second pass over a row prefetches the next row. Later passes do not
prefetch: they store, often with non-temporal stores, which prefetches would delay."""

Output = tuple[Expr, BufferView]


def row_kernel(
    name: str,
    shape: Sequence[int],
    operands: Sequence[BufferView],
    results: Sequence[Output],
    target: Target,
    sums: Sequence[Expr] = (),
) -> NativeKernel:
    """Generate a row kernel.

    Args:
        name: Name of its function.
        shape: Shape of the domain; reductions run along the last axis, which is not empty.
        operands: Views that ``load(k)`` reads, with a stride for each axis; the last one is 0 for one value a row.
        results: Expressions and their views. The last stride is 0 for a result with one value a row, which is stored once.
        target: Processor to generate for.
        sums: Expressions that are also summed over the rows, column by column: the gradients of a norm's weight and bias.
            Each block of rows gives a row of partial sums. These matrices ``[blocks_of(shape), length]`` of the expressions'
            dtypes are the last buffers; ``column_kernels`` reduce them.
    """
    code = Code(target)
    rows = RowGenerator(code, list(shape), list(operands), list(results), list(sums))
    count = prod(shape[:-1])
    group = _group(shape, bool(sums))
    unit = Loop(code, "%begin", "%end", 1)
    first = code.put(f"mul i64 {unit.index}, {group}")
    last = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {first}, {group}")), ("i64", str(count)))
    if sums:
        rows.clear()
    loop = Loop(code, first, last, 1)
    rows.row(loop.index)
    loop.close()
    if sums:
        rows.write_sums(unit.index)
    unit.close()
    rows.end()
    return finish(name, code, len(rows.views) + len(sums), -(-count // group), rows.scratch)


def blocks_of(shape: Sequence[int]) -> int:
    """Number of blocks of rows of a row kernel with ``sums``, which is the number of rows of its partial sums."""
    return -(-prod(shape[:-1]) // _group(shape, True))


def _group(shape: Sequence[int], sums: bool) -> int:
    """Rows of one work unit."""
    count = prod(shape[:-1])
    return max(8, min(SHORT, -(-count // BLOCKS))) if sums else max(1, UNIT // max(1, shape[-1]))


def levels(roots: Sequence[Expr]) -> dict[Expr, int]:
    """The depth of nested reductions of each node, itself included: the number of the pass that computes it."""
    out: dict[Expr, int] = {}
    for e in walk(roots):
        out[e] = max((out[a] for a in e.args), default=0) + (e.op == "reduce")
    return out


class RowGenerator:
    """Generates the code of one row; see ``row_kernel``."""

    def __init__(
        self, code: Code, shape: list[int], operands: list[BufferView], results: list[Output], sums: list[Expr]
    ) -> None:  # fmt: skip
        self.code, self.length, self.operands, self.results, self.sums = code, shape[-1], operands, results, sums
        roots = [*(e for e, _ in results), *sums]
        self.roots, nodes = roots, walk(roots)
        self.views = [*operands, *(v for _, v in results)]
        self.nodes = nodes
        self.axes = [e for e in nodes if e.op == "index"]
        rank = len(shape)
        strides = [v.strides for v in self.views] + [steps(e, rank) for e in self.axes]
        outer = merge(shape[:-1], [s[:-1] for s in strides], range(rank - 1))
        # rows are numbered over the outer axes; ``row_offsets`` ignores the innermost axis, here one of size 1
        self.nest = LoopNest((*outer.shape, 1), tuple((*s, 0) for s in outer.strides))
        self.inner = [s[-1] for s in strides]
        self.lanes = lanes_for(code.target, (e for e in nodes if e.op != "index"), [computed(v.dtype) for v in self.views])
        while self.lanes > 1 and self.lanes // 2 >= self.length:
            self.lanes //= 2
        along = dict(zip(self.axes, self.inner[len(self.views) :], strict=True))
        self.uniform = uniform(nodes, self.inner, along)
        level = levels(roots)
        reduces = [e for e in nodes if e.op == "reduce"]
        self.passes = [[e for e in reduces if level[e] == k] for k in range(1, max(level.values(), default=0) + 1)]
        self.per_element = [(e, i) for i, (e, v) in enumerate(results) if not self._is_per_row(e, v)]
        self.per_row = [(e, i) for i, (e, v) in enumerate(results) if self._is_per_row(e, v)]
        self.pointers = buffer_pointers(code, len(self.views) + len(sums))
        self._choose_cached()
        self.totals = []
        for e in sums:
            self.totals.append(Strip(e.dtype, code.put(f"getelementptr i8, ptr %scratch, i64 {self.scratch}"), 1))
            self.scratch += -(-self.length * item_bytes(e.dtype) // 64) * 64
        self.streams = Streams(code, consecutive(nodes, self.uniform, along), self.length, self.scratch)
        self.scratch += self.streams.bytes
        self.prefetched = self._prefetched(shape)
        self.stream = 0
        large = [v for e, v in results if prod(shape) * v.itemsize >= STREAM and not self._is_per_row(e, v)]
        if large and code.target.arch == "x86_64" and all(results[i][1].strides[-1] == 1 for _, i in self.per_element):
            self.stream = max(store_bytes(v.dtype, self.lanes) for v in large)

    def _prefetched(self, shape: list[int]) -> list[tuple[int, int]]:
        """Operands whose next row is prefetched in the second pass, and its offset in elements."""
        if len(self.nest.shape) != 2 or not self.passes:
            return []
        used = sorted({int(e.value or 0) for e in self.nodes if e.op == "load"})
        row, whole = PREFETCH_BYTES
        prefetches = []
        for k in used:
            step, nbytes = self.nest.strides[k][0], self.views[k].itemsize * self.length
            if step and self.inner[k] == 1 and nbytes >= row and nbytes * prod(shape[:-1]) >= whole:
                prefetches.append((k, step))
        return prefetches

    def _prefetch(self, number: int, at: str) -> None:
        """In the second pass, prefetch elements of the next row from position ``at`` on."""
        code = self.code
        for k, step in self.prefetched if number == 1 else ():
            strip = self.strips[k]
            following = code.put(f"getelementptr {stored_type(strip.dtype, code)}, ptr {strip.pointer}, i64 {step}")
            where = address(code, Strip(strip.dtype, following, 1), at)
            code.call("void", "llvm.prefetch.p0", ("ptr", where), ("i32", "0"), ("i32", "3"), ("i32", "1"))

    def _is_per_row(self, e: Expr, view: BufferView) -> bool:
        if view.strides[-1] == 0 and e not in self.uniform and self.length > 1:
            raise TypeError(f"a result with values along the row has a last stride. Received: {view} for {e}")
        return view.strides[-1] == 0 and e in self.uniform

    def _available(self, e: Expr) -> bool:
        """Whether a node's elements are available without computation."""
        return e in self.uniform or e in self.cached

    def _choose_cached(self) -> None:
        """Choose the values to store in scratch memory: ``cached`` (node → byte offset), ``cached_in`` (node → its pass)."""
        self.cached: dict[Expr, int] = {}
        self.cached_in: dict[Expr, int] = {}
        self.scratch = 0
        seen: dict[Expr, int] = {}
        last = [*(e for e, _ in self.per_element), *self.sums]
        for number, roots in enumerate([*([e.args[0] for e in p] for p in self.passes), last]):
            stack, visited = list(roots), set()
            while stack:
                e = stack.pop()
                if e in visited or e in self.uniform:
                    continue
                visited.add(e)
                size = -(-self.length * item_bytes(e.dtype) // 64) * 64
                if e in self.cached:
                    continue
                # not bools: they are lane masks, which would be converted to bytes and back
                reused = e in seen and e.dtype != "bool" and self.scratch + size <= CACHED_BYTES
                if reused and reduction.weight(e, self._available) >= MIN_CACHED_COST:
                    self.cached[e], self.cached_in[e] = self.scratch, seen[e]
                    self.scratch += size
                    continue
                stack.extend(e.args)
            for e in visited:
                seen.setdefault(e, number)

    # one row

    def row(self, row: str) -> None:
        """The code for one row."""
        code = self.code
        offsets = row_offsets(code, self.nest, row)
        self.bases = offsets[len(self.views) :]
        self.strips = []
        for view, pointer, offset, inner in zip(self.views, self.pointers, offsets, self.inner, strict=False):
            if offset != "0":
                pointer = code.put(f"getelementptr {stored_type(view.dtype, code)}, ptr {pointer}, i64 {offset}")
            self.strips.append(Strip(view.dtype, pointer, inner))
        self.scalars: dict[Expr, str] = {}
        self.splats: dict[Expr, str] = {}
        self.cache = {
            e: Strip(e.dtype, code.put(f"getelementptr i8, ptr %scratch, i64 {at}") if at else "%scratch", 1)
            for e, at in self.cached.items()
        }
        for k in sorted({int(e.value or 0) for e in walk(self.roots) if e.op == "load"}):
            if self.inner[k] == 0:
                read_uniform(code, self.strips[k], self.lanes)
        self.gathered = Gathered(code, self.nodes, self.uniform, self.strips, self.lanes, self._scalar_leaf)
        self.streams.fill(self.gathered.emitter, "0", str(self.length))
        for number, reduces in enumerate(self.passes):
            self._pass(number, reduces)
        # all loads come before the stores: in a row of one element, a result may use an operand's memory
        per_row = self._scalar().all(e for e, _ in self.per_row)
        for (_, i), value in zip(self.per_row, per_row, strict=True):
            write(code, self.strips[len(self.operands) + i], "0", value, 1)
        if self.per_element or self.sums:
            self._write_per_element()

    def _scalar(self) -> Emitter:
        emitter = Emitter(
            self.code, 1, self._scalar_leaf, lambda e, at: read_at(self.code, self.strips[int(e.value or 0)], at, 1)
        )
        emitter.values.update(self.gathered.emitter.values)
        return emitter

    def _scalar_leaf(self, e: Expr) -> str:
        """A loop-invariant leaf."""
        if e.op == "reduce":
            return self.scalars[e]
        if e.op == "index":
            return self.bases[self.axes.index(e)]
        strip = self.strips[int(e.value or 0)]
        return read(self.code, Strip(strip.dtype, strip.pointer, 0), "0", 1)

    def _emitter(self, number: int, at: str, mask: str) -> Emitter:
        """An emitter of elements from position ``at`` on, in pass ``number``."""
        code, lanes = self.code, self.lanes

        def leaf(e: Expr) -> str:
            if e.op == "reduce":
                if e not in self.splats:
                    raise AssertionError("a reduction is used before its pass")
                return self.splats[e]
            if e.op == "load":
                return read(code, self.strips[int(e.value or 0)], at, lanes, mask)
            which = self.axes.index(e)
            step, base = self.inner[len(self.views) + which], self.bases[which]
            if step == 0:
                return splat(code, "i64", base, lanes)
            index = positions(code, at, step, lanes)
            return (
                index
                if base == "0"
                else code.put(f"add {vector_type('i64', lanes)} {index}, {splat(code, 'i64', base, lanes)}")
            )

        emitter = Emitter(code, lanes, leaf, lambda e, places: self.gathered.element(e, places, at, mask), mask)
        emitter.values.update(self.gathered.splats)
        emitter.values.update(self.streams.values(at, lanes, mask))
        for e, strip in self.cache.items():
            if self.cached_in[e] < number:
                emitter.values[e] = read(code, strip, at, lanes, mask)
        return emitter

    def _store_cached(self, number: int, emitter: Emitter, at: str, mask: str) -> None:
        for e, strip in self.cache.items():
            if self.cached_in[e] == number:
                write(self.code, strip, at, emitter.value(e), self.lanes, mask)

    def _body(self, number: int, reduces: list[Expr], at: str, mask: str = "") -> list[str]:
        emitter = self._emitter(number, at, mask)
        self._prefetch(number, at)
        values = emitter.all(e.args[0] for e in reduces)
        self._store_cached(number, emitter, at, mask)
        if mask:
            values = [
                reduction.masked(self.code, str(e.value), e.dtype, v, mask, self.lanes)
                for e, v in zip(reduces, values, strict=True)
            ]
        return values

    def _steps(self, reduces: list[Expr], old: Sequence[str], new: Sequence[str]) -> list[str]:
        return [
            reduction.step(self.code, str(e.value), e.dtype, a, b, self.lanes)
            for e, a, b in zip(reduces, old, new, strict=True)
        ]  # fmt: skip

    def _pass(self, number: int, reduces: list[Expr]) -> None:
        """One pass over the row, which computes ``reduces``."""
        code, lanes, n = self.code, self.lanes, self.length
        work = sum(reduction.weight(e.args[0], self._available) for e in reduces)
        # several accumulators hide the latency of an addition; fewer where registers are needed for the expressions
        chains = 4 if work <= 8 and len(reduces) <= 2 else 2 if work <= 24 and len(reduces) <= 4 else 1
        stride = chains * lanes
        block = BLOCK * stride
        types = [vector_type(scalar_type(e.dtype), lanes) for e in reduces]
        zeros = [reduction.identity(str(e.value), e.dtype, lanes) for e in reduces]
        totals = zeros
        whole = n - n % block
        if whole > block:
            totals = self._blocks(number, reduces, whole, chains, types, zeros)
        else:
            whole = 0
        rest = n - (n - whole) % stride
        if rest > whole:
            part = self._chains(number, reduces, str(whole), str(rest), chains, types, zeros)
            totals = part if totals is zeros else self._steps(reduces, totals, part)
        end = n - n % lanes
        if end > rest:
            loop = Loop(code, str(rest), str(end), lanes, list(zip(types, totals, strict=True)))
            loop.close(self._steps(reduces, loop.values, self._body(number, reduces, loop.index)))
            totals = loop.values
        if n > end:
            mask = tail_mask(code, str(n - end), lanes)
            part = self._body(number, reduces, str(end), mask)
            totals = self._steps(reduces, totals, part)
        for e, total in zip(reduces, totals, strict=True):
            self.scalars[e] = reduction.across(code, str(e.value), e.dtype, total, lanes)
            self.splats[e] = splat(code, scalar_type(e.dtype), self.scalars[e], lanes)

    def _blocks(
        self, number: int, reduces: list[Expr], whole: int, chains: int, types: list[str], zeros: list[str]
    ) -> list[str]:  # fmt: skip
        """Reduce [0, whole) in blocks; the rounding errors of sums of blocks are summed separately."""
        code, lanes = self.code, self.lanes
        block = BLOCK * chains * lanes
        exact = [k for k, e in enumerate(reduces) if e.value == "sum" and e.dtype in FLOATS]
        carried = [*zip(types, zeros, strict=True), *((types[k], literal(0.0, reduces[k].dtype, lanes)) for k in exact)]
        loop = Loop(code, "0", str(whole), block, carried)
        stop = code.put(f"add i64 {loop.index}, {block}")
        part = self._chains(number, reduces, loop.index, stop, chains, types, zeros)
        new, errors = self._steps(reduces, loop.values[: len(reduces)], part), []
        for i, k in enumerate(exact):
            before = loop.values[k], loop.values[len(reduces) + i]
            new[k], error = reduction.add_exactly(code, reduces[k].dtype, *before, part[k], lanes)
            errors.append(error)
        loop.close([*new, *errors])
        out = loop.values[: len(reduces)]
        for i, k in enumerate(exact):
            out[k] = reduction.settle(code, reduces[k].dtype, out[k], loop.values[len(reduces) + i], lanes)
        return out

    def _chains(
        self, number: int, reduces: list[Expr], start: str, stop: str, chains: int, types: list[str], zeros: list[str]
    ) -> list[str]:  # fmt: skip
        """Reduce [start, stop) with ``chains`` accumulators for each reduction, then these as a tree."""
        code, lanes = self.code, self.lanes
        carried = [(t, z) for t, z in zip(types, zeros, strict=True) for _ in range(chains)]
        loop = Loop(code, start, stop, chains * lanes, carried)
        columns = []
        for c in range(chains):
            at = code.put(f"add i64 {loop.index}, {c * lanes}") if c else loop.index
            columns.append(self._body(number, reduces, at))
        new = []
        for k, e in enumerate(reduces):
            for c in range(chains):
                new.append(reduction.step(code, str(e.value), e.dtype, loop.values[k * chains + c], columns[c][k], lanes))
        loop.close(new)
        return [
            reduction.tree(code, str(e.value), e.dtype, loop.values[k * chains : (k + 1) * chains], lanes)
            for k, e in enumerate(reduces)
        ]

    def end(self) -> None:
        """After the last row."""
        if self.stream:  # makes non-temporal stores visible to other threads
            self.code.call("void", "llvm.x86.sse.sfence")

    # sums over rows

    def clear(self) -> None:
        """Set the sums over rows to 0."""

        def body(at: str, mask: str) -> None:
            for total in self.totals:
                zero = reduction.identity("sum", total.dtype, self.lanes)
                write(self.code, total, at, zero, self.lanes, mask)

        self._over_columns(body)

    def _accumulate_sums(self, emitter: Emitter, at: str, mask: str) -> None:
        code, lanes = self.code, self.lanes
        for e, total in zip(self.sums, self.totals, strict=True):
            old = read(code, total, at, lanes, mask)
            write(code, total, at, reduction.step(code, "sum", e.dtype, old, emitter.value(e), lanes), lanes, mask)

    def write_sums(self, block: str) -> None:
        """Write the sums to row ``block`` of the partial sums."""
        code = self.code
        out = []
        for total, pointer in zip(self.totals, self.pointers[len(self.views) :], strict=True):
            offset = code.put(f"mul i64 {block}, {self.length}")
            row = code.put(f"getelementptr {stored_type(total.dtype, code)}, ptr {pointer}, i64 {offset}")
            out.append(Strip(total.dtype, row, 1))

        def body(at: str, mask: str) -> None:
            for total, to in zip(self.totals, out, strict=True):
                write(code, to, at, read(code, total, at, self.lanes, mask), self.lanes, mask)

        self._over_columns(body)

    def _over_columns(self, body: Callable[[str, str], None]) -> None:
        code, lanes, n = self.code, self.lanes, self.length
        end = n - n % lanes
        loop = Loop(code, "0", str(end), lanes)
        body(loop.index, "")
        loop.close()
        if n > end:
            body(str(end), tail_mask(code, str(n - end), lanes))

    def _write_per_element(self) -> None:
        code, lanes, n = self.code, self.lanes, self.length
        number = len(self.passes)

        def body(at: str, mask: str = "", stream: bool = False) -> None:
            emitter = self._emitter(number, at, mask)
            self._prefetch(number, at)
            values = emitter.all([*(e for e, _ in self.per_element), *self.sums])  # all loads come before the stores
            for (_, i), value in zip(self.per_element, values, strict=False):
                strip = self.strips[len(self.operands) + i]
                write(code, strip, at, value, lanes, mask, store_bytes(strip.dtype, lanes) if stream else 0)
            self._accumulate_sums(emitter, at, mask)

        def whole(stream: bool) -> None:
            loop = Loop(code, "0", str(end), lanes)
            body(loop.index, "", stream)
            loop.close()

        end = n - n % lanes
        if end and self.stream:
            strips = [self.strips[len(self.operands) + i] for _, i in self.per_element]
            aligned(code, [address(code, s, "0") for s in strips], self.stream, whole)
        elif end:
            whole(False)
        if n > end:
            body(str(end), tail_mask(code, str(n - end), lanes))
