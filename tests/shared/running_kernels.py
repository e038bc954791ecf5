"""Running kernels of kernel IR: by their interpreter, and compiled for this machine."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from firebrick.compiler.kernel import Fault, Function, interpret
from firebrick.compiler.spec.faults import found, table
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.scalar_kernel import argument_words, cpu_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Number

Array = np.ndarray[Any, Any]
_P, _I = ctypes.c_void_p, ctypes.c_int64
SITES = 16
"""Of the tables of faults."""


def compiled(
    function: Function, arrays: Mapping[str, Array], scalars: Mapping[str, Number], grid: int, cuts: tuple[int, ...] = ()
) -> Fault | None:
    """Run a kernel on this machine, in pieces of the grid that end at ``cuts``, and give the fault that it reports."""
    target = Target.host()
    kernel = cpu_kernel(function, target)
    run = compile_ir(module_text([kernel]), target).function(kernel.name, None, _P, _I, _I, _P, _P)
    words = argument_words(function, scalars)
    memory = [*(arrays[a.name] for a in function.arrays), words][: kernel.buffers]
    buffers = (_P * max(1, len(memory)))(*[x.__array_interface__["data"][0] for x in memory])
    faults, begin = table(SITES), 0
    for end in (*cuts, grid):
        run(buffers, begin, end, None, faults.ctypes.data)
        begin = end
    return found(faults)


def both(
    function: Function, arrays: Mapping[str, Array], scalars: Mapping[str, Number], grid: int
) -> tuple[dict[str, Array], Fault | None]:
    """The arrays after a launch by the interpreter, which has the bits of the compiled kernel but for payloads of NaN."""
    one, other = ({name: x.copy() for name, x in arrays.items()} for _ in range(2))
    fault = interpret(function, one, scalars, grid)
    reported = compiled(function, other, scalars, grid, (grid // 3,))
    assert reported == fault, f"interpreted and compiled\n{function}"
    for name, x in one.items():
        differ = bits(x) != bits(other[name])
        assert not differ.any(), f"{name}{np.flatnonzero(differ)[:5]}: {x[differ][:5]}, {other[name][differ][:5]}\n{function}"
    return one, fault


def bits(x: Array) -> Array:
    """An array's bits, with one NaN for all of them."""
    if x.dtype.name in ("float16", "bfloat16", "float32", "float64"):
        with np.errstate(invalid="ignore"):  # of signalling NaN
            x = np.where(np.isnan(x), np.array(np.nan, x.dtype), x)
    return x.view(f"u{x.itemsize}")
