"""Row kernels that also sum over the rows, for each column, in the same pass: a norm's gradients of input, weight and bias.

The row kernel stores a partial sum for each block of rows. Column kernels add the partial sums in the order of the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firebrick.compiler.targets.llvm.column import ColumnReduction, column_kernels
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.native import NAME, NativeKernel
from firebrick.compiler.targets.llvm.row import Output, blocks_of, row_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Expr, load, reduce


@dataclass(frozen=True, slots=True)
class RowSums:
    """Kernels of rows and of sums over them.

    Attributes:
        rows: Row kernel. Its buffers are the operands, the results, and a matrix of partial sums for each sum.
        columns: Column kernels that add the partial sums. Their buffers are those matrices, their own partial results, and the
            sums.
        partial: Bytes of each matrix of partial sums.
        further: Bytes of each partial result of ``columns``.
    """

    rows: NativeKernel
    columns: ColumnReduction
    partial: tuple[int, ...]
    further: tuple[int, ...]


def row_sum_kernels(
    shape: Sequence[int],
    operands: Sequence[BufferView],
    results: Sequence[Output],
    sums: Sequence[tuple[Expr, str]],
    target: Target,
) -> RowSums:
    """Generate the kernels.

    Args:
        shape: Shape of the domain; the last axis is a row.
        operands: As for ``row_kernel``.
        results: As for ``row_kernel``.
        sums: Expressions that are summed over the rows, and the dtype in which each sum is stored.
        target: Processor to generate for.
    """
    rows = row_kernel(NAME, shape, operands, results, target, [e for e, _ in sums])
    blocks, length = blocks_of(shape), shape[-1]
    partial_views = [BufferView(e.dtype, (length, 1)) for e, _ in sums]
    sum_outputs = [(reduce("sum", load(i, e.dtype)), BufferView(stored, (0, 1))) for i, (e, stored) in enumerate(sums)]
    columns = column_kernels(NAME, blocks, length, partial_views, sum_outputs, target)
    return RowSums(
        rows, columns, tuple(blocks * length * v.itemsize for v in partial_views),
        tuple(columns.blocks * length * v.itemsize for v in columns.partials),
    )  # fmt: skip
