"""Copies of short contiguous blocks: if only a few bytes are contiguous in both views, each block is one load and one store."""

from __future__ import annotations

from math import prod

from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.merging import LoopNest, merge, row_offsets
from firebrick.compiler.targets.llvm.native import UNIT, Loop, NativeKernel, buffer_pointers, finish
from firebrick.compiler.targets.llvm.target import Target

MOST = 64
"""Maximum bytes of a block."""


def in_blocks(shape: tuple[int, ...], source: BufferView, goal: BufferView) -> bool:
    """Whether a copy moves contiguous blocks of more than one element and at most ``MOST`` bytes."""
    nest = _nest(shape, source, goal)
    size = nest.shape[-1] * source.itemsize
    return len(nest.shape) > 1 and nest.strides[0][-1] == nest.strides[1][-1] == 1 and source.itemsize < size <= MOST


def _nest(shape: tuple[int, ...], source: BufferView, goal: BufferView) -> LoopNest:
    return merge(shape, [source.strides, goal.strides], sorted(range(len(shape)), key=lambda a: (-abs(goal.strides[a]), a)))


def block_kernel(name: str, shape: tuple[int, ...], source: BufferView, goal: BufferView, target: Target) -> NativeKernel:
    """Generate a copy of ``source`` to ``goal``, for which ``in_blocks`` holds.

    Args:
        name: Of its function.
        shape: Of both views.
        source: What is read.
        goal: What is written; of the same dtype, an integer.
        target: What to generate for.
    """
    nest = _nest(shape, source, goal)
    # the innermost axis is the block; the loop runs over the next one, and the grid over strips of it and the outer axes
    count, size = nest.shape[-2:]
    outer = LoopNest(nest.shape[:-1], tuple(s[:-1] for s in nest.strides))
    strip = max(1, UNIT // size)
    strips = -(-count // strip)
    code = Code(target)
    pointers = buffer_pointers(code, 2)
    element, block = f"i{8 * source.itemsize}", f"<{size} x i{8 * source.itemsize}>"
    unit = Loop(code, "%begin", "%end", 1)
    at, start = unit.index, "0"
    if strips > 1:
        start = code.put(f"mul i64 {code.put(f'urem i64 {at}, {strips}')}, {strip}")
        at = code.put(f"udiv i64 {at}, {strips}")
    stop = code.call("i64", "llvm.smin.i64", ("i64", code.put(f"add i64 {start}, {strip}")), ("i64", str(count)))
    rows = [
        code.put(f"getelementptr {element}, ptr {p}, i64 {offset}")
        for p, offset in zip(pointers, row_offsets(code, outer, at), strict=True)
    ]
    loop = Loop(code, start, stop, 1)
    here, there = (
        code.put(f"getelementptr {element}, ptr {row}, i64 {code.put(f'mul i64 {loop.index}, {strides[-2]}')}")
        for row, strides in zip(rows, nest.strides, strict=True)
    )
    value = code.put(f"load {block}, ptr {here}, align {source.itemsize}")
    code.do(f"store {block} {value}, ptr {there}, align {source.itemsize}")
    loop.close()
    unit.close()
    return finish(name, code, 2, prod(nest.shape[:-2]) * strips)
