"""Copies of views to row-major memory, of any dtype: elements are moved as integers of their size."""

from __future__ import annotations

from math import prod

from firebrick.compiler.llvm.lowered import BYTES_PER_US, Lowered, Part
from firebrick.compiler.llvm.map import map_kernel
from firebrick.compiler.llvm.memory import View
from firebrick.compiler.llvm.native import NAME, module_text, named
from firebrick.compiler.llvm.target import Target
from firebrick.compiler.scalar.expr import load
from firebrick.core.indexing import strides_of


def copied(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, target: Target) -> Lowered:
    """The kernel that copies a view.

    Args:
        shape: Of the view and of the copy.
        strides: In elements; the view's memory is given from its element at position 0 of every axis on.
        itemsize: Bytes of an element: 1, 2, 4 or 8.
        target: What it runs on.
    """
    dtype = f"uint{8 * itemsize}"
    result = View(dtype, tuple(strides_of(shape)))
    kernel = named(map_kernel(NAME, shape, [View(dtype, strides)], [(load(0, dtype), result)], target), "copy")
    cost = 2 * prod(shape) * itemsize / BYTES_PER_US
    return Lowered((Part(kernel, (0, 1), cost),), (), module_text([kernel]), (frozenset(),))
