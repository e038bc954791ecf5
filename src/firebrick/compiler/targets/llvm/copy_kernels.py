"""Copies between views, and fills of views with a constant, for any dtype: elements are moved as integers of their size."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from firebrick.compiler.targets.llvm.blocks import block_kernel, in_blocks
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.native import NAME, NativeKernel, module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.targets.llvm.transpose import transposes, transposing_kernel
from firebrick.core.indexing import strides_of
from firebrick.core.views import View
from firebrick.scalar.expr import const, eq, index, load, select

Axes = tuple[int, ...]
WORD = 8
"""Bytes of the widest integer; elements of 16 bytes are two of them, along one more axis."""
SIZES = (1, 2, 4, WORD, 2 * WORD)
"""Supported element sizes in bytes."""


@lru_cache(256)
def copied(view: View, itemsize: int, target: Target) -> Lowered:
    """The kernel that makes a row-major copy of a view. Kept, since each step of a loop asks for the same copies.

    Args:
        view: View with one stride for each axis. The buffer's pointer is that of its element at index 0 of every axis.
        itemsize: Bytes of an element, one of ``SIZES``.
        target: Processor to generate for.
    """
    shape, strides = view.shape, view.strides
    assert strides is not None
    kernel = copy_kernel(shape, strides, tuple(strides_of(shape)), itemsize, target)
    return Lowered((LoweredKernel(kernel, (0, 1), moving_us(shape, itemsize)),), (), module_text([kernel]), (frozenset(),))


def copy_kernel(shape: Axes, strides: Axes, to: Axes, itemsize: int, target: Target, same: bool = False) -> NativeKernel:
    """The kernel that copies a view to another one, with strides ``to``.

    Args:
        shape: Shape of both views.
        strides: Strides of the source.
        to: Strides of the destination.
        itemsize: Bytes of an element.
        target: Processor to generate for.
        same: Whether source and destination may be the same memory. The kernel then compares the pointers first, and returns at
            once if they are equal.
    """
    (shape, strides, itemsize), (_, to, _) = (_in_words(shape, x, itemsize) for x in (strides, to))
    dtype = f"uint{8 * itemsize}"
    source, destination = BufferView(dtype, strides), BufferView(dtype, to)
    if transposes(shape, source, destination, target):
        kernel = transposing_kernel(NAME, shape, source, destination, target)
    elif in_blocks(shape, source, destination):
        kernel = block_kernel(NAME, shape, source, destination, target)
    else:
        kernel = map_kernel(NAME, shape, [source], [(load(0, dtype), destination)], target)
    return named(_unless_same(kernel) if same else kernel, "copy")


@lru_cache(256)
def filled(size: int, bits: int, itemsize: int, target: Target) -> Lowered:
    """The kernel that fills a row-major array with the element that has these bits."""
    kernel = fill_kernel((size,), bits, (1,), itemsize, target)
    return Lowered((LoweredKernel(kernel, (0,), moving_us((size,), itemsize)),), (), module_text([kernel]), (frozenset(),))


def fill_kernel(shape: Axes, bits: int, to: Axes, itemsize: int, target: Target) -> NativeKernel:
    """The kernel that fills a view with the element that has these bits."""
    words = [const(bits >> shift, f"uint{8 * min(itemsize, WORD)}") for shift in range(0, 8 * itemsize, 8 * WORD)]
    value = words[0] if len(set(words)) == 1 else select(eq(index(len(shape)), 0), words[0], words[1])
    shape, to, itemsize = _in_words(shape, to, itemsize)
    return named(map_kernel(NAME, shape, [], [(value, BufferView(value.dtype, to))], target), "fill")


def _in_words(shape: Axes, strides: Axes, itemsize: int) -> tuple[Axes, Axes, int]:
    """A shape, strides in it, and bytes of an element, in elements of ``WORD`` bytes at most."""
    if itemsize <= WORD:
        return shape, strides, itemsize
    return (*shape, 2), (*(2 * s for s in strides), 1), WORD


def moving_us(shape: Axes, itemsize: int) -> float:
    """Estimate of the time of a copy on one thread."""
    return 2 * prod(shape) * itemsize / BYTES_PER_US


def _unless_same(kernel: NativeKernel) -> NativeKernel:
    """The kernel with a test at its start: it returns at once if its operand and its result are the same memory."""
    guard = """start:
  %from = load ptr, ptr %bufs, align 8
  %toat = getelementptr ptr, ptr %bufs, i64 1
  %to = load ptr, ptr %toat, align 8
  %same = icmp eq ptr %from, %to
  br i1 %same, label %stays, label %entry
stays:
  ret void
entry:"""
    text = kernel.text.replace("\nentry:", f"\n{guard}", 1)
    return NativeKernel(kernel.name, text, kernel.declarations, kernel.buffers, kernel.grid, kernel.scratch)
