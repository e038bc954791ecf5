"""Reductions along any axes, fused with elementwise work: the choice of kernels and their order, by the memory layout.

If the innermost axis is reduced, a row kernel is used where the reduced axes are contiguous with each other, else a fold
kernel. If the kept axes have few positions and the reduced ones many, parts of each reduction are reduced first, so that there
is work for several threads. If the innermost axis is kept, column kernels are used.
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
        kernels: Each with its buffers: numbers of operands, then of results, then of temporary ones.
        temporary: Bytes of the temporary buffers.
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
        shape: Of the work.
        axes: Those that are reduced.
        operands: What ``load(k)`` reads, with a stride for each axis.
        results: Expressions and where they go, with strides of 0 along ``axes`` for one value a position. Where ``split``
            says so, no expression has a reduction below another one, or beside a value for each element.
        target: What to generate for.
        kind: What names begin with.
    """
    kept = [a for a in range(len(shape)) if a not in axes and shape[a] != 1]
    folded = [a for a in axes if shape[a] != 1]

    def placed(v: BufferView, order: Sequence[int]) -> BufferView:
        return BufferView(v.dtype, tuple(v.strides[a] for a in order))

    def sizes(order: Sequence[int]) -> list[int]:
        return [shape[a] for a in order]

    n = len(operands)
    own = tuple(range(n + len(results)))
    if kept_last(shape, axes):
        order = [*kept[:-1], *folded, kept[-1]]
        goals = [(e, placed(v, order)) for e, v in results]
        reads = [placed(v, order) for v in operands]
        rows = sizes(folded) or [1]
        if not folded:
            reads, goals = [_with_row(v) for v in reads], [(e, _with_row(v)) for e, v in goals]
        made = nested_column_kernels(NAME, sizes(kept[:-1]), rows, shape[kept[-1]], reads, goals, target)
        if len(made.kernels) == 1:
            return Stages(((named(made.kernels[0], kind), own),), ())
        each = [n + i for i, (_, v) in enumerate(goals) if any(v.strides[len(kept) - 1 : -1])]
        once = [i for i in own[n:] if i not in each]
        temps = [len(own) + i for i in range(len(made.partials))]
        count = prod(sizes(kept)) * made.blocks
        first, put = made.kernels
        return Stages(
            ((named(first, kind), (*own[:n], *temps, *each)), (named(put, kind), (*own[:n], *temps, *once))),
            tuple(count * v.itemsize for v in made.partials),
        )
    if split(shape, axes):
        each = [i for i, (_, v) in enumerate(results) if any(v.strides[a] for a in folded)]
        if each:  # parts are reduced without their elements' results: a map kernel computes these afterwards
            once = [i for i in range(len(results)) if i not in each]
            if not once:  # no result is a reduction
                mapped = named(map_kernel(NAME, shape, operands, results, target), kind)
                return Stages(((mapped, own),), ())
            sums = reduction_stages(shape, axes, operands, [results[i] for i in once], target, kind)
            mapped = named(map_kernel(NAME, shape, operands, [results[i] for i in each], target), kind)
            numbers = [*range(n), *(n + i for i in once), *range(len(own), len(own) + len(sums.temporary))]
            moved = tuple((k, tuple(numbers[b] for b in buffers)) for k, buffers in sums.kernels)
            return Stages((*moved, (mapped, (*own[:n], *(n + i for i in each)))), sums.temporary)
    order = [*kept, *folded]
    reads, goals = [placed(v, order) for v in operands], [(e, placed(v, order)) for e, v in results]
    first_fold = len(kept)
    nest = merge(sizes(folded), [v.strides[first_fold:] for v in (*reads, *(v for _, v in goals))], range(len(folded)))
    if len(nest.shape) == 1:  # the reduced elements are evenly spaced: a row

        def flat(v: BufferView) -> BufferView:
            return BufferView(v.dtype, (*v.strides[:first_fold], v.strides[-1] if folded else 0))

        reads, goals = [flat(v) for v in reads], [(e, flat(v)) for e, v in goals]
        rows_shape = [*sizes(kept), prod(sizes(folded))]
        if split(shape, axes):
            return _long(rows_shape, reads, goals, own, target, kind)
        return Stages(((named(row_kernel(NAME, rows_shape, reads, goals, target), kind), own),), ())
    if split(shape, axes) and max(levels([e for e, _ in goals]).values()) == 1:
        return _in_parts(sizes(kept), sizes(folded), reads, goals, own, target, kind)
    return Stages(((named(fold_kernel(NAME, sizes(kept), sizes(folded), reads, goals, target), kind), own),), ())


def _with_row(v: BufferView) -> BufferView:
    return BufferView(v.dtype, (*v.strides[:-1], 0, v.strides[-1]))


def _long(
    shape: list[int], reads: list[BufferView], goals: list[Output], own: tuple[int, ...], target: Target, kind: str
) -> Stages:  # fmt: skip
    """Reductions of few long rows, without results for each element."""
    made = long_row_kernels(NAME, shape, reads, goals, target)
    if len(made.kernels) == 1:
        return Stages(((named(made.kernels[0], kind), own),), ())
    n, count = len(reads), prod(shape[:-1]) * made.parts
    temps = tuple(len(own) + i for i in range(len(made.partials)))
    first, put = made.kernels
    return Stages(
        ((named(first, kind), (*own[:n], *temps)), (named(put, kind), (*own[:n], *temps, *own[n:]))),
        tuple(count * v.itemsize for v in made.partials),
    )


def _in_parts(
    kept: list[int],
    folded: list[int],
    reads: list[BufferView],
    goals: list[Output],
    own: tuple[int, ...],
    target: Target,
    kind: str,
) -> Stages:
    """A fold kernel over parts of the first reduced axis, and a row kernel that reduces their partial results."""
    n, at = len(reads), len(kept)
    # a divisor of the axis, so that all parts have one shape and one kernel serves them
    parts = max(p for p in range(1, PARTS + 1) if folded[0] % p == 0)
    each = folded[0] // parts

    def cut(v: BufferView) -> BufferView:
        return BufferView(v.dtype, (*v.strides[:at], v.strides[at] * each, *v.strides[at:]))

    reduces = [e for e in walk(e for e, _ in goals) if e.op == "reduce"]
    steps = [prod(kept[i + 1 :]) * parts for i in range(at)]
    partials = [BufferView(e.dtype, (*steps, 1, *[0] * len(folded))) for e in reduces]
    first = fold_kernel(
        NAME, [*kept, parts], [each, *folded[1:]], [cut(v) for v in reads], list(zip(reduces, partials, strict=True)), target
    )  # fmt: skip
    known = {e: node("reduce", e.dtype, (load(n + i, e.dtype),), e.value) for i, e in enumerate(reduces)}
    still = [BufferView(v.dtype, (*v.strides[:at], 0)) for v in reads]
    rest = [BufferView(e.dtype, (*steps, 1)) for e in reduces]
    after = [(replaced(e, known), BufferView(v.dtype, (*v.strides[:at], 0))) for e, v in goals]
    put = row_kernel(f"{NAME}_put", [*kept, parts], [*still, *rest], after, target)
    temps = tuple(len(own) + i for i in range(len(reduces)))
    return Stages(
        ((named(first, kind), (*own[:n], *temps)), (named(put, kind), (*own[:n], *temps, *own[n:]))),
        tuple(prod(kept) * parts * v.itemsize for v in partials),
    )
