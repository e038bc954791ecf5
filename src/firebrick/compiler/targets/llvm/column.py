"""Column kernels: reductions along axes in front of the innermost one, such as gradients of biases and weights.

The reduced axes are the rows of a matrix; further kept axes give several matrices. The grid divides a matrix into blocks of
rows and of columns, by its shape alone. A block is read in memory order, a few rows at a time, and reduced into one row of
accumulators in scratch memory; long sums are added to compensated totals at intervals. If there are several blocks of rows,
each gives a row of partial results, which a second kernel reduces in order. Results with a value for each element are stored in
the same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from firebrick.compiler.targets.llvm import reduction
from firebrick.compiler.targets.llvm.emit import Code, Emitter
from firebrick.compiler.targets.llvm.memory import (
    BufferView,
    Strip,
    item_bytes,
    read,
    read_uniform,
    stored_type,
    tail_mask,
    write,
)
from firebrick.compiler.targets.llvm.merging import LoopNest, merge, row_offsets
from firebrick.compiler.targets.llvm.native import Loop, NativeKernel, buffer_pointers, finish, lanes_for
from firebrick.compiler.targets.llvm.row import Output
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import FLOATS, Expr, load, node, walk
from firebrick.scalar.storage import computed

COLUMNS = 1024
"""Columns of a block. Their accumulators fit in a first-level cache."""
ROWS = 64
"""Minimum number of rows of a block."""
BLOCKS = 16
"""Maximum number of blocks of rows."""
ROWS_IN_REGISTERS = 4
"""Maximum number of rows that are reduced in registers before the accumulators are updated: four loads of an operand for one
load and store of an accumulator."""
PLAIN_ROWS = 128
"""Number of rows that are summed without compensation, before they are added to a block's compensated total."""


@dataclass(frozen=True, slots=True)
class ColumnReduction:
    """A reduction along columns as one kernel or two.

    Attributes:
        kernels: In the order in which they run. If there are two, the first one's results are the partial results, and the
            second one's buffers are the operands, the partial results, and the results.
        partials: Views of the partial results, matrices of ``blocks`` rows of ``columns`` elements.
        blocks: Number of rows of each.
    """

    kernels: tuple[NativeKernel, ...]
    partials: tuple[BufferView, ...]
    blocks: int


def column_kernels(
    name: str, rows: int, columns: int, operands: Sequence[BufferView], results: Sequence[Output], target: Target
) -> ColumnReduction:
    """Generate the kernels of a reduction along the rows of a matrix.

    Args:
        name: Name of the functions; ``_put`` is appended to the second one's.
        rows: Number of rows; 0 gives the reductions' identities.
        columns: Number of columns.
        operands: Views that ``load(k)`` reads, with strides of rows and columns.
        results: Expressions of ``reduce`` nodes, which are not nested, and of operands that do not vary along a column; with
            views that have a stride of 0 for rows.
        target: Processor to generate for.
    """
    reduces = [e for e in walk(e for e, _ in results) if e.op == "reduce"]
    if any(below.op == "reduce" for e in reduces for below in walk(e.args)):
        raise TypeError("reductions along columns are not nested: give the inner ones as operands")
    return nested_column_kernels(name, (), (rows,), columns, operands, results, target)


def nested_column_kernels(
    name: str, outer: Sequence[int], rows: Sequence[int], columns: int, operands: Sequence[BufferView],
    results: Sequence[Output], target: Target,
) -> ColumnReduction:  # fmt: skip
    """Generate the kernels of a reduction along several axes, for each index of the other axes.

    Args:
        name: Name of the functions; ``_put`` is appended to the second one's.
        outer: Axes that are kept.
        rows: Axes that are reduced.
        columns: Number of columns.
        operands: Views that ``load(k)`` reads, with strides for ``outer``, ``rows``, and columns.
        results: As for ``column_kernels``; one whose strides for ``rows`` are not 0 has a value for each element, and no
            ``reduce`` node.
        target: Processor to generate for.
    """
    per_element = [(e, v) for e, v in results if _varies(v, len(outer), rows)]
    per_column = [(e, v) for e, v in results if not _varies(v, len(outer), rows)]
    reduces = [e for e in walk(e for e, _ in per_column) if e.op == "reduce"]
    inner = walk([*(a for e in reduces for a in e.args), *(e for e, _ in per_element)])
    if any(e.op in ("reduce", "gather", "bounded", "index") for e in inner):
        raise TypeError("reductions along columns are of elements at their own positions: give the inner ones as operands")
    count = prod(outer)
    blocks = max(1, min(-(-BLOCKS // max(1, count)), prod(rows) // ROWS))
    if blocks == 1:
        return ColumnReduction((_kernel(name, outer, rows, columns, operands, results, 1, target),), (), 1)
    steps = [prod(outer[i + 1 :]) * blocks * columns for i in range(len(outer))]
    partials = tuple(BufferView(e.dtype, (*steps, columns, 1)) for e in reduces)
    # without the offset of the block's row, which is added when the results are stored
    destinations = [(e, BufferView(e.dtype, (*steps, *[0] * len(rows), 1))) for e in reduces]
    first = _kernel(name, outer, rows, columns, operands, [*destinations, *per_element], blocks, target, len(destinations))
    combined = {e: node("reduce", e.dtype, (load(len(operands) + i, e.dtype),), e.value) for i, e in enumerate(reduces)}
    second = [(replaced(e, combined), _first_row(view, len(outer))) for e, view in per_column]
    row_operands = [_first_row(v, len(outer)) for v in operands]
    put = _kernel(f"{name}_put", outer, (blocks,), columns, [*row_operands, *partials], second, 1, target)
    return ColumnReduction((first, put), partials, blocks)


def _varies(view: BufferView, outer: int, rows: Sequence[int]) -> bool:
    return any(s and d > 1 for s, d in zip(view.strides[outer:-1], rows, strict=True))


def _first_row(view: BufferView, outer: int) -> BufferView:
    """The first row of a matrix, for all rows."""
    return BufferView(view.dtype, (*view.strides[:outer], 0, view.strides[-1]))


def replaced(root: Expr, combined: dict[Expr, Expr]) -> Expr:
    """An expression with some nodes replaced by others."""
    done = dict(combined)
    for e in walk([root]):
        if e not in done:
            args = tuple(done[a] for a in e.args)
            done[e] = e if args == e.args else node(e.op, e.dtype, args, e.value)
    return done[root]


def _kernel(
    name: str, outer: Sequence[int], rows: Sequence[int], columns: int, operands: Sequence[BufferView],
    results: Sequence[Output], blocks: int, target: Target, by_block: int = 0,
) -> NativeKernel:  # fmt: skip
    """One kernel; the first ``by_block`` results have a row for each block."""
    code = Code(target)
    work = _ColumnGenerator(code, outer, rows, columns, list(operands), list(results), blocks, by_block)
    across = -(-columns // COLUMNS)
    unit = Loop(code, "%begin", "%end", 1)
    block = code.put(f"udiv i64 {unit.index}, {across}") if across > 1 else unit.index
    start = "0"
    if across > 1:
        start = code.put(f"mul i64 {code.put(f'urem i64 {unit.index}, {across}')}, {COLUMNS}")
    outer_index = block
    if blocks > 1:
        outer_index, block = (code.put(f"{op} i64 {block}, {blocks}") for op in ("udiv", "urem"))
    work.unit(outer_index, block if blocks > 1 else "0", start)
    unit.close()
    return finish(name, code, len(operands) + len(results), prod(outer) * blocks * across if columns else 0, work.scratch)


class _ColumnGenerator:
    def __init__(
        self, code: Code, outer: Sequence[int], rows: Sequence[int], columns: int, operands: list[BufferView],
        results: list[Output], blocks: int, by_block: int,
    ) -> None:  # fmt: skip
        self.code, self.rows, self.columns, self.blocks, self.by_block = code, prod(rows), columns, blocks, by_block
        self.operands, self.results = operands, results
        self.views = [*operands, *(v for _, v in results)]
        first = len(outer)
        self.outer, self.nest = (
            LoopNest((*values.shape, 1), tuple((*s, 0) for s in values.strides))
            for values in (
                merge(outer, [v.strides[:first] for v in self.views], range(first)),
                merge(rows, [v.strides[first:-1] for v in self.views], range(len(rows))),
            )
        )
        self.per_element = [
            (e, len(operands) + i) for i, (e, v) in enumerate(results) if i >= by_block and _varies(v, first, rows)
        ]  # fmt: skip
        self.per_column = [
            (e, len(operands) + i) for i, (e, v) in enumerate(results) if i < by_block or not _varies(v, first, rows)
        ]  # fmt: skip
        nodes = walk(e for e, _ in results)
        self.reduces = [e for e in nodes if e.op == "reduce"]
        self.lanes = lanes_for(code.target, nodes, [computed(v.dtype) for v in self.views])
        while self.lanes > 1 and self.lanes // 2 >= columns:
            self.lanes //= 2
        self.bases = self.pointers = buffer_pointers(code, len(self.views))
        # longer expressions take fewer rows at once, or their intermediate values would be spilled
        work = sum(reduction.weight(e.args[0]) for e in self.reduces)
        self.rows_at_once = ROWS_IN_REGISTERS if work <= 16 else 2 if work <= 40 else 1
        width = -(-min(columns, COLUMNS) // self.lanes) * self.lanes
        self.accumulators: list[Strip] = []
        self.scratch = 0
        for e in self.reduces:
            pointer = code.put(f"getelementptr i8, ptr %scratch, i64 {self.scratch}")
            self.accumulators.append(Strip(e.dtype, pointer, 1))
            self.scratch += -(-width * item_bytes(e.dtype) // 64) * 64
        # a long sum also has a compensated total: the sum, and the sum of its rounding errors
        self.totals: dict[Expr, tuple[Strip, Strip]] = {}
        for e in self.reduces if -(-self.rows // blocks) > PLAIN_ROWS else ():
            if e.value == "sum" and e.dtype in FLOATS:
                total_and_error = []
                for _ in range(2):
                    total_and_error.append(Strip(e.dtype, code.put(f"getelementptr i8, ptr %scratch, i64 {self.scratch}"), 1))
                    self.scratch += -(-width * item_bytes(e.dtype) // 64) * 64
                self.totals[e] = (total_and_error[0], total_and_error[1])

    def unit(self, outer_index: str, block: str, start: str) -> None:
        """One block: index ``outer_index`` of the outer axes, rows of block ``block``, columns starting at ``start``."""
        code, lanes = self.code, self.lanes
        self.bases = [
            pointer if offset == "0" else code.put(f"getelementptr {stored_type(v.dtype, code)}, ptr {pointer}, i64 {offset}")
            for v, pointer, offset in zip(self.views, self.pointers, row_offsets(code, self.outer, outer_index), strict=True)
        ]
        stop = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {start}, {COLUMNS}")), ("i64", str(self.columns)))
        size = code.put(f"sub i64 {stop}, {start}")
        clear = Loop(code, "0", size, lanes)
        for e, accumulator in zip(self.reduces, self.accumulators, strict=True):
            for strip in (accumulator, *self.totals.get(e, ())):  # identities, also for a matrix without rows
                write(code, strip, clear.index, reduction.identity(str(e.value), e.dtype, lanes), lanes)
        clear.close()
        # block b has rows [b · rows / blocks, (b + 1) · rows / blocks)
        first = code.put(f"udiv i64 {code.put(f'mul i64 {block}, {self.rows}')}, {self.blocks}")
        following = code.put(f"add i64 {block}, 1")
        last = code.put(f"udiv i64 {code.put(f'mul i64 {following}, {self.rows}')}, {self.blocks}")
        if self.totals:
            short = Loop(code, first, last, PLAIN_ROWS)
            end = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {short.index}, {PLAIN_ROWS}")), ("i64", last))
            self._reduce_rows(short.index, end, start, size)
            self._flush(size)
            short.close()
        else:
            self._reduce_rows(first, last, start, size)
        self._finish(block, start, size)

    def _reduce_rows(self, first: str, last: str, start: str, size: str) -> None:
        """Reduce rows [first, last) into the accumulators."""
        code = self.code
        count = code.put(f"sub i64 {last}, {first}")
        whole = last
        if self.rows_at_once > 1:
            whole = code.put(f"sub i64 {last}, {code.put(f'urem i64 {count}, {self.rows_at_once}')}")
        for begin, end, rows_at_once in ((first, whole, self.rows_at_once), (whole, last, 1))[: 1 + (self.rows_at_once > 1)]:
            loop = Loop(code, begin, end, rows_at_once)
            rows = [loop.index, *(code.put(f"add i64 {loop.index}, {i}") for i in range(1, rows_at_once))]
            self._rows(rows, start, size)
            loop.close()

    def _flush(self, size: str) -> None:
        """Add the accumulators to the totals, and clear them."""
        code, lanes = self.code, self.lanes
        loop = Loop(code, "0", size, lanes)
        for e, (total, error) in self.totals.items():
            accumulator = self.accumulators[self.reduces.index(e)]
            t, c, p = (read(code, strip, loop.index, lanes) for strip in (total, error, accumulator))
            for strip, value in zip((total, error), reduction.add_exactly(code, e.dtype, t, c, p, lanes), strict=True):
                write(code, strip, loop.index, value, lanes)
            write(code, accumulator, loop.index, reduction.identity("sum", e.dtype, lanes), lanes)
        loop.close()

    def _strips(self, places: Sequence[int], row: str, start: str) -> dict[int, Strip]:
        """Strips of the buffers at a row (the first one if ``row`` is empty), starting at column ``start``."""
        code = self.code
        offsets = row_offsets(code, self.nest, row) if row else ["0"] * len(self.views)
        out = {}
        for k in places:
            view, pointer, element = self.views[k], self.bases[k], stored_type(self.views[k].dtype, code)
            stride = view.strides[-1]
            for offset in (offsets[k], "0" if start == "0" or not stride else self._times(start, stride)):
                if offset != "0":
                    pointer = code.put(f"getelementptr {element}, ptr {pointer}, i64 {offset}")
            out[k] = Strip(view.dtype, pointer, stride)
            if stride == 0 and k < len(self.operands):
                read_uniform(code, out[k], self.lanes)
        return out

    def _times(self, a: str, factor: int) -> str:
        return a if factor == 1 else self.code.put(f"mul i64 {a}, {factor}")

    def _columns(self, size: str, body: Callable[[str, str], None]) -> None:
        """Loop over whole vectors of columns, then the masked remainder: ``body(at, mask)``."""
        code, lanes = self.code, self.lanes
        end = code.put(f"sub i64 {size}, {code.put(f'urem i64 {size}, {lanes}')}")
        loop = Loop(code, "0", end, lanes)
        body(loop.index, "")
        loop.close()
        if lanes == 1:
            return
        left = code.put(f"sub i64 {size}, {end}")
        tail, after = code.fresh("tail"), code.fresh("after")
        code.do(f"br i1 {code.put(f'icmp sgt i64 {left}, 0')}, label %{tail}, label %{after}")
        code.label(tail)
        body(end, tail_mask(code, left, lanes))
        code.do(f"br label %{after}")
        code.label(after)

    def _rows(self, rows: list[str], start: str, size: str) -> None:
        """Reduce some rows in registers, as a tree, then into the accumulators."""
        code, lanes = self.code, self.lanes
        per_element = [e for e, _ in self.per_element]
        inner = walk([*(a for r in self.reduces for a in r.args), *per_element])
        used = sorted({int(e.value or 0) for e in inner if e.op == "load"})
        strips = [self._strips([*used, *(i for _, i in self.per_element)], row, start) for row in rows]

        def body(at: str, mask: str) -> None:
            values = []
            for row_strips in strips:
                emitter = Emitter(code, lanes, partial(self._leaf, strips=row_strips, at=at, mask=mask))
                values.append(emitter.all(e.args[0] for e in self.reduces))
                for (_, i), value in zip(self.per_element, emitter.all(per_element), strict=True):
                    write(code, row_strips[i], at, value, lanes, mask)
            for k, (e, accumulator) in enumerate(zip(self.reduces, self.accumulators, strict=True)):
                kind = str(e.value)
                new = reduction.tree(code, kind, e.dtype, [v[k] for v in values], lanes)
                old = read(code, accumulator, at, lanes)
                write(code, accumulator, at, reduction.step(code, kind, e.dtype, old, new, lanes), lanes)

        self._columns(size, body)

    def _leaf(self, e: Expr, strips: dict[int, Strip], at: str, mask: str) -> str:
        if e.op == "load":
            return read(self.code, strips[int(e.value or 0)], at, self.lanes, mask)
        raise TypeError(f"no {e.op} below a reduction along columns")

    def _finish(self, block: str, start: str, size: str) -> None:
        """The results of a block of columns."""
        code, lanes = self.code, self.lanes
        after = [e for e, _ in self.per_column]
        strips = self._strips(_outside(after), "", start)
        out = []
        for number, (_, i) in enumerate(self.per_column):
            strip = self._strips([i], "", start)[i]
            if number < self.by_block:
                offset = self._times(block, self.columns)
                strip.pointer = code.put(f"getelementptr {stored_type(strip.dtype, code)}, ptr {strip.pointer}, i64 {offset}")
            out.append(strip)

        def body(at: str, mask: str) -> None:
            def leaf(e: Expr) -> str:
                if e in self.totals:
                    total, error = (read(code, strip, at, lanes) for strip in self.totals[e])
                    return reduction.settle(code, e.dtype, total, error, lanes)
                if e.op == "reduce":
                    return read(code, self.accumulators[self.reduces.index(e)], at, lanes)
                return self._leaf(e, strips, at, mask)

            values = Emitter(code, lanes, leaf).all(after)
            for strip, value in zip(out, values, strict=True):
                write(code, strip, at, value, lanes, mask)

        self._columns(size, body)


def _outside(roots: list[Expr]) -> list[int]:
    """Operands that are read outside of reductions."""
    stack, seen = list(roots), set()
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            stack.extend(e.args if e.op != "reduce" else ())
    return sorted({int(e.value or 0) for e in seen if e.op == "load"})
