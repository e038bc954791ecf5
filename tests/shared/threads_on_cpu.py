"""The code of a GPU kernel, executed on this machine thread by thread.

What is printed for NVIDIA's GPUs is changed in three points: the numbers of thread and group are read from memory, pointers
have no address space, and the calling convention is that of C. The statements stay as they were printed.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from assembling import NVIDIA
from running_kernels import SITES

from firebrick.compiler.kernel import Fault, Function
from firebrick.compiler.kernel.arguments import numbers
from firebrick.compiler.spec.faults import found, table
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.scalar_kernel import gpu_module
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Number

Array = np.ndarray[Any, Any]
_C = {
    "bool": ctypes.c_int8, "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip
_LAST = (ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p)
"""Grid, first site and table of faults."""
_REGISTER = re.compile(r"call i32 @llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.x\(\)")


def threads(
    function: Function, arrays: Mapping[str, Array], scalars: Mapping[str, Number], grid: int, width: int, first: int = 0
) -> Fault | None:
    """Run all threads of a launch with groups of ``width``, whose first site is number ``first`` of the program, and give the
    fault that it reports."""
    text = gpu_module([function], NVIDIA["sm_80"])
    text = re.sub(r"^declare i32 @llvm\.nvvm.*\n", "", text, flags=re.MULTILINE)
    text = _REGISTER.sub(r"load i32, ptr @\1", text).replace("ptx_kernel void", "void")
    text = re.sub(r"addrspacecast ptr addrspace\(1\) (%[\w.]+) to ptr", r"getelementptr i8, ptr \1, i64 0", text)
    text = text.replace("ptr addrspace(1)", "ptr")
    registers = [f"@{name} = global i32 0\ndefine void @set_{name}(i32 %x) {{\n  store i32 %x, ptr @{name}\n  ret void\n}}"
                 for name in ("ctaid", "ntid", "tid")]  # fmt: skip
    module = compile_ir("\n".join([text, *registers]), Target.host())
    group, size, lane = (module.function(f"set_{name}", None, ctypes.c_int32) for name in ("ctaid", "ntid", "tid"))
    pointers = [arrays[a.name].__array_interface__["data"][0] for a in function.arrays]
    values = [x.item() for x in numbers(function, scalars).values()]
    kinds = [*(ctypes.c_void_p for _ in pointers), *(_C[s.dtype] for s in function.scalars), *_LAST]
    run = module.function(function.name, None, *kinds)
    faults = table(first + SITES)
    size(width)
    for g in range(-(-grid // width)):
        group(g)
        for t in range(width):
            lane(t)
            run(*pointers, *values, grid, first, faults.ctypes.data)
    return found(faults)
