"""Reductions of few long rows: rows are divided into parts, by their length alone; a second kernel reduces the partial results.

Each part is a work unit of the grid, so that one long row occupies several threads. Partial results are combined in their order
along the row, whichever thread computed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from firebrick.compiler.targets.llvm.column import replaced
from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.native import Loop, NativeKernel, finish
from firebrick.compiler.targets.llvm.row import Output, RowGenerator, levels, row_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Expr, load, node, walk

PART = 16384
"""Minimum number of elements of a part."""
PARTS = 256
"""Maximum number of parts of a row."""


@dataclass(frozen=True, slots=True)
class LongRowReduction:
    """A reduction as two kernels.

    Attributes:
        kernels: In the order in which they run. The first one's results are the partial results, and the second one's buffers
            are the operands, the partial results, and the results.
        partials: Views of the partial results, contiguous arrays of the outer shape and ``parts``.
        parts: Number of parts of each row.
    """

    kernels: tuple[NativeKernel, NativeKernel]
    partials: tuple[BufferView, ...]
    parts: int


def long_row_kernels(
    name: str, shape: Sequence[int], operands: Sequence[BufferView], results: Sequence[Output], target: Target
) -> LongRowReduction:
    """Generate the kernels of a reduction along the last axis.

    Args:
        name: Name of the functions; ``_put`` is appended to the second one's.
        shape: Shape of the domain; the last axis is reduced, and has at least two parts.
        operands: Views that ``load(k)`` reads, with a stride for each axis.
        results: Expressions with one value for each row, of ``reduce`` nodes that are not nested, and their views.
        target: Processor to generate for.
    """
    roots = [e for e, _ in results]
    reduces = [e for e in walk(roots) if e.op == "reduce"]
    outer, length = list(shape[:-1]), shape[-1]
    parts = min(PARTS, length // PART)
    if max(levels(roots).values()) > 1:
        raise TypeError("reductions of parts of rows are not nested: give the inner ones as operands")
    steps = [prod(outer[i + 1 :]) * parts for i in range(len(outer))]
    partials = tuple(BufferView(e.dtype, (*steps, 1)) for e in reduces)
    first = _parts(name, outer, length, parts, operands, list(zip(reduces, partials, strict=True)), target)
    combined = {e: node("reduce", e.dtype, (load(len(operands) + i, e.dtype),), e.value) for i, e in enumerate(reduces)}
    second = [(replaced(e, combined), view) for e, view in results]
    put = row_kernel(f"{name}_put", (*outer, parts), [*operands, *partials], second, target)
    return LongRowReduction((first, put), partials, parts)


def _parts(
    name: str,
    outer: list[int],
    length: int,
    parts: int,
    operands: Sequence[BufferView],
    results: Sequence[tuple[Expr, BufferView]],
    target: Target,
) -> NativeKernel:
    """The kernel of partial results, with a work unit for each part of each row. The last part takes the remainder."""
    chunk = length // parts
    code = Code(target)
    views = [BufferView(v.dtype, (*v.strides[:-1], v.strides[-1] * chunk, v.strides[-1])) for v in operands]
    destinations = [(e, BufferView(v.dtype, (*v.strides, 0))) for e, v in results]
    rows = RowGenerator(code, [*outer, parts, chunk], views, destinations, [])
    unit = Loop(code, "%begin", "%end", 1)
    part = code.put(f"urem i64 {unit.index}, {parts}")
    last = code.put(f"icmp eq i64 {part}, {parts - 1}")
    last_part, other_part, after = code.fresh("last"), code.fresh("part"), code.fresh("after")
    # two copies of the row's code, since the division of a row into blocks, vectors and a tail is fixed by a constant length
    code.do(f"br i1 {last}, label %{last_part}, label %{other_part}")
    for label, size in ((last_part, length - chunk * (parts - 1)), (other_part, chunk)):
        code.label(label)
        rows.length = size
        rows.row(unit.index)
        code.do(f"br label %{after}")
    code.label(after)
    unit.close()
    return finish(name, code, len(operands) + len(results), prod(outer) * parts, rows.scratch)
