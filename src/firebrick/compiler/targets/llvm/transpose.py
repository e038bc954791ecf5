"""Transposing copies by square tiles: loaded along one axis, transposed in registers, stored along the other axis.

If the destination's innermost axis has a large stride in the source, copying element by element uses one element of each cache
line; a tile of ``L`` × ``L`` elements loads and stores whole vectors. Tiles at the edges overlap: some elements are stored
twice, with the same value. The outer loop runs along the destination's innermost axis, the inner one over a few adjacent tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.merging import LoopNest, merge, row_offsets
from firebrick.compiler.targets.llvm.native import UNIT, Loop, NativeKernel, buffer_pointers, finish
from firebrick.compiler.targets.llvm.target import Target

_MIN_SIDE = 4
"""Minimum side of a tile, in elements."""
_TILES_DOWN = 4
"""Adjacent tiles that are copied before the next position of a strip, as they read the same memory pages."""


@dataclass(frozen=True, slots=True)
class _TransposeTiling:
    """Axes of a transposing copy: axis ``down`` is contiguous in the source, the last one in the destination.

    Attributes:
        nest: All axes, merged, with the strides of the source, then of the destination.
        down: Number of the axis that is contiguous in the source.
        side: Side of a tile, in elements; at most a vector register.
    """

    nest: LoopNest
    down: int
    side: int


def transposes(shape: tuple[int, ...], source: BufferView, destination: BufferView, target: Target) -> bool:
    """Whether a copy is done by tiles."""
    return _tiling(shape, source, destination, target) is not None


def _tiling(shape: tuple[int, ...], source: BufferView, destination: BufferView, target: Target) -> _TransposeTiling | None:
    order = sorted(range(len(shape)), key=lambda a: (-abs(destination.strides[a]), a))
    nest = merge(shape, [source.strides, destination.strides], order)
    read, written = nest.strides
    if written[-1] != 1 or abs(read[-1]) <= 1:
        return None
    down = next((a for a, s in enumerate(read[:-1]) if s == 1), -1)
    if down < 0 or written[down] == 0:
        return None
    side = min(16, target.lanes(8 * source.itemsize))
    while side > min(nest.shape[down], nest.shape[-1]):
        side //= 2
    return _TransposeTiling(nest, down, side) if side >= _MIN_SIDE else None


def transposing_kernel(
    name: str, shape: tuple[int, ...], source: BufferView, destination: BufferView, target: Target
) -> NativeKernel:
    """Generate a copy of ``source`` to ``destination``, for which ``transposes`` holds.

    Args:
        name: Name of its function.
        shape: Shape of both views.
        source: View that is read.
        destination: View that is written; of the same dtype, an integer.
        target: Processor to generate for.
    """
    tiling = _tiling(shape, source, destination, target)
    assert tiling is not None
    nest, down, side = tiling.nest, tiling.down, tiling.side
    read, written = nest.strides
    width, height = nest.shape[-1], nest.shape[down]
    others = [a for a in range(len(nest.shape) - 1) if a != down]
    outer = LoopNest((*(nest.shape[a] for a in others), 1), tuple((*(s[a] for a in others), 0) for s in (read, written)))
    strip = max(side, UNIT // side // side * side)
    strips, rows = -(-width // strip), -(-height // (side * _TILES_DOWN))
    grid = prod(nest.shape[a] for a in others) * strips * rows
    code = Code(target)
    pointers = buffer_pointers(code, 2)
    element = f"i{8 * source.itemsize}"
    unit = Loop(code, "%begin", "%end", 1)
    at = unit.index
    start = "0"
    if strips > 1:
        start = code.put(f"mul i64 {code.put(f'urem i64 {at}, {strips}')}, {strip}")
        at = code.put(f"udiv i64 {at}, {strips}")
    first = code.put(f"mul i64 {code.put(f'urem i64 {at}, {rows}')}, {side * _TILES_DOWN}")
    end = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {first}, {side * _TILES_DOWN}")), ("i64", str(height)))
    at = code.put(f"udiv i64 {at}, {rows}")
    offsets = row_offsets(code, outer, at)
    sources, destinations = (_advanced(code, element, p, offset, 1) for p, offset in zip(pointers, offsets, strict=True))
    stop = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {start}, {strip}")), ("i64", str(width)))
    loop = Loop(code, start, stop, side)
    # the last tile is moved back to end with the axis: it overlaps the previous one, and needs no masks
    column = code.call("i64", "llvm.smin.i64", ("i64", loop.index), ("i64", str(width - side)))
    down_loop = Loop(code, first, end, side)
    row = code.call("i64", "llvm.smin.i64", ("i64", down_loop.index), ("i64", str(height - side)))
    source_row, destination_row = (
        _advanced(code, element, p, row, step) for p, step in ((sources, 1), (destinations, written[down]))
    )
    _transposed_tile(code, element, source_row, read[-1], destination_row, written[down], column, side, source.itemsize)
    down_loop.close()
    loop.close()
    unit.close()
    return finish(name, code, 2, grid)


def _advanced(code: Code, element: str, pointer: str, count: str, step: int) -> str:
    """A pointer plus ``count`` (i64) times ``step`` elements."""
    by = count if step == 1 else code.put(f"mul i64 {count}, {step}")
    return code.put(f"getelementptr {element}, ptr {pointer}, i64 {by}")


def _transposed_tile(
    code: Code, element: str, source: str, step: int, destination: str, down: int, at: str, side: int, align: int
) -> None:  # fmt: skip
    """One tile: row ``k`` is read at index ``at + k`` of the last axis, and becomes column ``k`` of the destination."""
    vector = f"<{side} x {element}>"
    first = _advanced(code, element, source, at, step)
    rows = []
    for k in range(side):
        where = code.put(f"getelementptr {element}, ptr {first}, i64 {k * step}")
        rows.append(code.put(f"load {vector}, ptr {where}, align {align}"))
    size = 1
    while size < side:  # exchange blocks of ``far`` × ``far`` elements with their mirror images across the diagonal
        low = [k if not k & size else side + k - size for k in range(side)]
        height = [k + size if not k & size else side + k for k in range(side)]
        for k in range(side):
            if not k & size:
                pair = f"{vector} {rows[k]}, {vector} {rows[k + size]}"
                rows[k], rows[k + size] = (
                    code.put(f"shufflevector {pair}, <{side} x i32> <{', '.join(f'i32 {i}' for i in lanes)}>")
                    for lanes in (low, height)
                )
        size *= 2
    to = code.put(f"getelementptr {element}, ptr {destination}, i64 {at}")
    for k in range(side):
        where = code.put(f"getelementptr {element}, ptr {to}, i64 {k * down}")
        code.do(f"store {vector} {rows[k]}, ptr {where}, align {align}")
