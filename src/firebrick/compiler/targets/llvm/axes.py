"""Reductions along any axes, fused with elementwise work: the choice of kernels and their order, by the memory layout.

If the innermost axis is kept, column kernels are used. If it is reduced, a row kernel is used if the reduced axes are one axis
by their strides, else a fold kernel. If the kept axes have few positions and the reduced ones many, parts of each reduction are
reduced first, so that there is work for several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from firebrick.compiler.targets.llvm.column import nested_column_kernels, replaced
from firebrick.compiler.targets.llvm.fold import fold_kernel
from firebrick.compiler.targets.llvm.long_row import long_row_kernels
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.merging import merge
from firebrick.compiler.targets.llvm.native import NAME, NativeKernel, named
from firebrick.compiler.targets.llvm.row import Output, levels, row_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import load, node, walk

FEW, LARGE = 16, 1 << 15
"""Reductions of fewer than ``FEW`` positions with at least ``LARGE`` elements each are computed in parts."""
PARTS = 32
"""Maximum number of parts of one position's reduction."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Kernels that run one after another.

    Attributes:
        kernels: Each with the numbers of its buffers; operands come first, then results, then temporary buffers.
        temporary: Bytes of each temporary buffer.
    """

    kernels: tuple[tuple[NativeKernel, tuple[int, ...]], ...]
    temporary: tuple[int, ...]


def kept_last(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether the innermost axis is kept; axes of size 1 do not count."""
    return next((a not in axes for a in range(len(shape) - 1, -1, -1) if shape[a] != 1), False)


def split(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether a reduction is computed in parts, whose partial results a second kernel reduces."""
    size = prod(shape[a] for a in axes)
    return kept_last(shape, axes) or (prod(shape) < FEW * size and size >= LARGE)


def reduction_stages(
    shape: Sequence[int],
    axes: Sequence[int],
    operands: Sequence[BufferView],
    results: Sequence[Output],
    target: Target,
    kind: str,
) -> Stages:
    """Generate the kernels of a group with reductions along ``axes`` of ``shape``, which is not empty.

    Args:
        shape: Shape of the domain.
        axes: Axes that are reduced.
        operands: Views that ``load(k)`` reads, with a stride for each axis.
        results: Expressions and their views, with strides of 0 along ``axes`` for one value a position. If ``split`` is true,
            reductions are not nested, and no result with a value for each element depends on one.
        target: Processor to generate for.
        kind: Prefix of the kernels' names.

    Raises:
        TypeError: An expression depends on indices, or reads elements by index: they are those of the domain, and the kernels
            have fewer axes, in another order.
    """
    if any(e.op in ("index", "gather", "bounded") for e in walk(e for e, _ in results)):
        raise TypeError("reductions along these axes read elements at their own positions only")
    kept = [a for a in range(len(shape)) if a not in axes and shape[a] != 1]
    folded = [a for a in axes if shape[a] != 1]

    def permuted(v: BufferView, order: Sequence[int]) -> BufferView:
        return BufferView(v.dtype, tuple(v.strides[a] for a in order))

    def sizes(order: Sequence[int]) -> list[int]:
        return [shape[a] for a in order]

    n = len(operands)
    args = tuple(range(n + len(results)))
    if kept_last(shape, axes):
        order = [*kept[:-1], *folded, kept[-1]]
        outs = [(e, permuted(v, order)) for e, v in results]
        reads = [permuted(v, order) for v in operands]
        rows = sizes(folded) or [1]
        if not folded:
            reads, outs = [_with_row(v) for v in reads], [(e, _with_row(v)) for e, v in outs]
        made = nested_column_kernels(NAME, sizes(kept[:-1]), rows, shape[kept[-1]], reads, outs, target)
        if len(made.kernels) == 1:
            return Stages(((named(made.kernels[0], kind), args),), ())
        full = [n + i for i, (_, v) in enumerate(outs) if any(v.strides[len(kept) - 1 : -1])]
        reduced = [i for i in args[n:] if i not in full]
        temps = [len(args) + i for i in range(len(made.partials))]
        count = prod(sizes(kept)) * made.blocks
        first, put = made.kernels
        return Stages(
            (
                (named(first, kind), (*args[:n], *temps, *full)),
                (named(put, kind), (*args[:n], *temps, *reduced)),
            ),
            tuple(count * v.itemsize for v in made.partials),
        )
    if split(shape, axes):
        full = [i for i, (_, v) in enumerate(results) if any(v.strides[a] for a in folded)]
        if full:  # results with a value for each element are not computed by parts, but by a map kernel
            reduced = [i for i in range(len(results)) if i not in full]
            if not reduced:  # no result is a reduction
                map_part = named(map_kernel(NAME, shape, operands, results, target), kind)
                return Stages(((map_part, args),), ())
            sums = reduction_stages(shape, axes, operands, [results[i] for i in reduced], target, kind)
            map_part = named(map_kernel(NAME, shape, operands, [results[i] for i in full], target), kind)
            numbers = [
                *range(n),
                *(n + i for i in reduced),
                *range(len(args), len(args) + len(sums.temporary)),
            ]
            renumbered = tuple((k, tuple(numbers[b] for b in buffers)) for k, buffers in sums.kernels)
            return Stages((*renumbered, (map_part, (*args[:n], *(n + i for i in full)))), sums.temporary)
    order = [*kept, *folded]
    reads, outs = [permuted(v, order) for v in operands], [(e, permuted(v, order)) for e, v in results]
    first_fold = len(kept)
    nest = merge(sizes(folded), [v.strides[first_fold:] for v in (*reads, *(v for _, v in outs))], range(len(folded)))
    if len(nest.shape) == 1:  # one stride addresses all reduced elements

        def as_row(v: BufferView) -> BufferView:
            return BufferView(v.dtype, (*v.strides[:first_fold], v.strides[-1] if folded else 0))

        reads, outs = [as_row(v) for v in reads], [(e, as_row(v)) for e, v in outs]
        rows_shape = [*sizes(kept), prod(sizes(folded))]
        if split(shape, axes):
            return _long(rows_shape, reads, outs, args, target, kind)
        return Stages(((named(row_kernel(NAME, rows_shape, reads, outs, target), kind), args),), ())
    if split(shape, axes) and max(levels([e for e, _ in outs]).values()) == 1:
        return _in_parts(sizes(kept), sizes(folded), reads, outs, args, target, kind)
    return Stages(((named(fold_kernel(NAME, sizes(kept), sizes(folded), reads, outs, target), kind), args),), ())


def _with_row(v: BufferView) -> BufferView:
    return BufferView(v.dtype, (*v.strides[:-1], 0, v.strides[-1]))


def _long(
    shape: list[int], reads: list[BufferView], outs: list[Output], args: tuple[int, ...], target: Target, kind: str
) -> Stages:  # fmt: skip
    """Reductions of few long rows, without results for each element."""
    made = long_row_kernels(NAME, shape, reads, outs, target)
    n, count = len(reads), prod(shape[:-1]) * made.parts
    temps = tuple(len(args) + i for i in range(len(made.partials)))
    first, put = made.kernels
    return Stages(
        (
            (named(first, kind), (*args[:n], *temps)),
            (named(put, kind), (*args[:n], *temps, *args[n:])),
        ),
        tuple(count * v.itemsize for v in made.partials),
    )


def _in_parts(
    kept: list[int],
    folded: list[int],
    reads: list[BufferView],
    outs: list[Output],
    args: tuple[int, ...],
    target: Target,
    kind: str,
) -> Stages:
    """A fold kernel over parts of the first reduced axis, and a row kernel that reduces their partial results."""
    n, at = len(reads), len(kept)
    # a divisor of the axis's size, so that all parts have the same shape
    parts = max(p for p in range(1, PARTS + 1) if folded[0] % p == 0)
    full = folded[0] // parts

    def part_of(v: BufferView) -> BufferView:
        return BufferView(v.dtype, (*v.strides[:at], v.strides[at] * full, *v.strides[at:]))

    reduces = [e for e in walk(e for e, _ in outs) if e.op == "reduce"]
    steps = [prod(kept[i + 1 :]) * parts for i in range(at)]
    partials = [BufferView(e.dtype, (*steps, 1, *[0] * len(folded))) for e in reduces]
    first = fold_kernel(
        NAME, [*kept, parts], [full, *folded[1:]], [part_of(v) for v in reads], list(zip(reduces, partials, strict=True)),
        target,
    )  # fmt: skip
    combined = {e: node("reduce", e.dtype, (load(n + i, e.dtype),), e.value) for i, e in enumerate(reduces)}
    row_operands = [BufferView(v.dtype, (*v.strides[:at], 0)) for v in reads]
    rest = [BufferView(e.dtype, (*steps, 1)) for e in reduces]
    second = [(replaced(e, combined), BufferView(v.dtype, (*v.strides[:at], 0))) for e, v in outs]
    put = row_kernel(f"{NAME}_put", [*kept, parts], [*row_operands, *rest], second, target)
    temps = tuple(len(args) + i for i in range(len(reduces)))
    return Stages(
        (
            (named(first, kind), (*args[:n], *temps)),
            (named(put, kind), (*args[:n], *temps, *args[n:])),
        ),
        tuple(prod(kept) * parts * v.itemsize for v in partials),
    )
