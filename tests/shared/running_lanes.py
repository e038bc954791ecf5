"""Running kernels with work items as lanes of vectors, and comparing their bits with those of the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from running_kernels import SITES, bits

from firebrick.compiler.kernel import Function, interpret
from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.spec.faults import found, table
from firebrick.compiler.targets.llvm.emit import Limit
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.lanes import LanesKernel, lanes_kernel
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.scalar_kernel import argument_words
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Number

Array = np.ndarray[Any, Any]
_P, _I = ctypes.c_void_p, ctypes.c_int64


class Compiled:
    """A kernel compiled for this machine, for launches of any size.

    Args:
        function: Kernel.
        bits: Of the vectors; 0 for the widest.
        width: Lanes of a vector; 0 for the printer's choice.
        limit: Of loops.
        grid: Of all launches, if they have one, of a function without scalars.
    """

    def __init__(
        self, function: Function, bits: int = 0, width: int = 0, limit: Limit | None = None, grid: Sequence[int] | None = None
    ) -> None:
        target = Target.host(bits)
        self.function, self.known = function, grid is not None
        self.lanes: LanesKernel = lanes_kernel(function, target, width, limit, grid)
        kernel = self.lanes.kernel
        self.module = compile_ir(module_text([kernel]), target)
        self.run = self.module.function(kernel.name, None, _P, _I, _I, _P, _P)

    def __call__(
        self, arrays: Mapping[str, Array], scalars: Mapping[str, Number], grid: Sequence[int], cuts: Sequence[int] = ()
    ) -> Fault | None:
        """Launch, in pieces of the units that end at ``cuts``; the fault that is reported."""
        words = np.concatenate([argument_words(self.function, scalars), np.array(grid, np.int64).view(np.uint64)])
        memory = [*(arrays[a.name] for a in self.function.arrays), *([] if self.known else [words])]
        buffers = (_P * len(memory))(*[x.__array_interface__["data"][0] for x in memory])
        scratch = np.zeros(self.lanes.kernel.scratch + 64, np.uint8)
        place = -(-scratch.ctypes.data // 64) * 64
        faults, begin = table(SITES), 0
        for end in (*cuts, self.lanes.units(grid)):
            self.run(buffers, begin, end, place, faults.ctypes.data)
            begin = end
        return found(faults)


def agree(
    compiled: Compiled, arrays: Mapping[str, Array], scalars: Mapping[str, Number], grid: Sequence[int]
) -> dict[str, Array]:
    """The arrays after a launch by the interpreter, which has the bits of the compiled kernel but for payloads of NaN."""
    one, other = ({name: x.copy() for name, x in arrays.items()} for _ in range(2))
    fault = interpret(compiled.function, one, scalars, tuple(grid))
    reported = compiled(other, scalars, grid, (compiled.lanes.units(grid) // 3,))
    text = f"{compiled.lanes.lanes} lanes, grid {tuple(grid)}\n{compiled.function}"
    assert reported == fault, f"fault {fault} and compiled {reported}, {text}"
    for name, x in one.items():
        differ = bits(x) != bits(other[name])
        assert not differ.any(), f"{name}{np.flatnonzero(differ)[:5]}: {x[differ][:5]}, {other[name][differ][:5]}, {text}"
    return one
