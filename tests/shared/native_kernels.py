"""Running generated kernels on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.spec.faults import found, table
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.native import NativeKernel, module_text
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Expr, load
from firebrick.scalar.storage import computed

Array = np.ndarray[Any, Any]
_P, _I = ctypes.c_void_p, ctypes.c_int64
SITES = 16
"""Of the tables of faults."""


def widths() -> list[Target]:
    """This machine with vectors of each width it has."""
    widest = Target.host(0).width_bits
    return [Target.host(w) for w in (128, 256, 512) if w <= widest]


def view(x: Array, shape: Sequence[int] | None = None) -> BufferView:
    """How a kernel over ``shape`` reads an array that broadcasts to it."""
    x = np.broadcast_to(x, x.shape if shape is None else shape)
    return BufferView(x.dtype.name, tuple(s // x.itemsize for s in x.strides))


def run_kernel(kernel: NativeKernel, arrays: Sequence[Array], target: Target, cuts: Sequence[int] = ()) -> None:
    """Run a kernel over its grid, in pieces that end at ``cuts``, with each array's element 0 as its buffer."""
    begin = 0
    for end in (*cuts, kernel.grid):
        assert run_units(kernel, arrays, target, begin, end) is None
        begin = end


def run_units(kernel: NativeKernel, arrays: Sequence[Array], target: Target, begin: int, end: int) -> Fault | None:
    """Run units [begin, end) of a kernel's grid, with scratch memory full of NaN, and give the fault that it reports."""
    assert len(arrays) == kernel.buffers
    module = compile_ir(module_text([kernel]), target)
    function = module.function(kernel.name, None, _P, _I, _I, _P, _P)
    buffers = (_P * max(1, len(arrays)))(*[a.__array_interface__["data"][0] for a in arrays])
    memory = np.full(kernel.scratch + 64, 255, np.uint8)
    scratch = memory.ctypes.data + -memory.ctypes.data % 64
    faults = table(SITES)
    function(buffers, begin, end, scratch, faults.ctypes.data)
    return found(faults)


def run_map(e: Expr, arrays: Sequence[Array], shape: Sequence[int], dtype: Any, target: Target) -> Array:
    """One expression of arrays that broadcast to ``shape``."""
    out = np.empty(shape, dtype)
    kernel = map_kernel("kernel", shape, [view(a, shape) for a in arrays], [(e, view(out))], target)
    run_kernel(kernel, [*arrays, out], target)
    return out


def loads(arrays: Sequence[Array]) -> list[Expr]:
    """The elements of arrays as operands."""
    return [load(i, computed(a.dtype.name)) for i, a in enumerate(arrays)]
