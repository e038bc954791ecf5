"""Copies of short contiguous blocks: if only a few bytes are contiguous in both views, each block is one load and one store."""

from __future__ import annotations

from math import prod

from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.merging import LoopNest, merge, row_offsets
from firebrick.compiler.targets.llvm.native import UNIT, Loop, NativeKernel, buffer_pointers, finish
from firebrick.compiler.targets.llvm.target import Target

MAX_BYTES = 64
"""Maximum bytes of a block."""


def in_blocks(shape: tuple[int, ...], source: BufferView, destination: BufferView) -> bool:
    """Whether a copy moves contiguous blocks of more than one element and at most ``MAX_BYTES`` bytes."""
    nest = _nest(shape, source, destination)
    size = nest.shape[-1] * source.itemsize
    return len(nest.shape) > 1 and nest.strides[0][-1] == nest.strides[1][-1] == 1 and source.itemsize < size <= MAX_BYTES


def _nest(shape: tuple[int, ...], source: BufferView, destination: BufferView) -> LoopNest:
    return merge(
        shape, [source.strides, destination.strides], sorted(range(len(shape)), key=lambda a: (-abs(destination.strides[a]), a))
    )


def block_kernel(
    name: str, shape: tuple[int, ...], source: BufferView, destination: BufferView, target: Target
) -> NativeKernel:
    """Generate a copy of ``source`` to ``destination``, for which ``in_blocks`` holds.

    Args:
        name: Name of its function.
        shape: Shape of both views.
        source: View that is read.
        destination: View that is written; of the same dtype, an integer.
        target: Processor to generate for.
    """
    nest = _nest(shape, source, destination)
    # the innermost axis is the block; the loop runs over the next one, and the grid over strips of it and the outer axes
    count, size = nest.shape[-2:]
    outer = LoopNest(nest.shape[:-1], tuple(s[:-1] for s in nest.strides))
    strip = max(1, UNIT // size)
    strips = -(-count // strip)
    code = Code(target)
    pointers = buffer_pointers(code, 2)
    element, block = f"i{8 * source.itemsize}", f"<{size} x i{8 * source.itemsize}>"
    unit = Loop(code, "%begin", "%end", 1)
    outer_row, start = unit.index, "0"
    if strips > 1:
        start = code.put(f"mul i64 {code.put(f'urem i64 {outer_row}, {strips}')}, {strip}")
        outer_row = code.put(f"udiv i64 {outer_row}, {strips}")
    stop = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {start}, {strip}")), ("i64", str(count)))
    rows = [
        code.put(f"getelementptr {element}, ptr {p}, i64 {offset}")
        for p, offset in zip(pointers, row_offsets(code, outer, outer_row), strict=True)
    ]
    loop = Loop(code, start, stop, 1)
    source_address, destination_address = (
        code.put(f"getelementptr {element}, ptr {row}, i64 {code.put(f'mul i64 {loop.index}, {strides[-2]}')}")
        for row, strides in zip(rows, nest.strides, strict=True)
    )
    value = code.put(f"load {block}, ptr {source_address}, align {source.itemsize}")
    code.do(f"store {block} {value}, ptr {destination_address}, align {source.itemsize}")
    loop.close()
    unit.close()
    return finish(name, code, 2, prod(nest.shape[:-2]) * strips)
