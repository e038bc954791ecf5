"""The code of a GPU kernel, executed on this machine: thread by thread, or, for groups, by as many threads of the system.

What is printed for NVIDIA's GPUs is changed in five points: the numbers of thread and block are parameters, barriers and
shuffles call Python, pointers have no address space, shared arrays are plain globals (so one block runs at a time), and the
calling convention is that of C. The statements stay as they were printed.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from assembling import NVIDIA
from running_kernels import SITES

from firebrick.compiler.kernel import Fault, Function
from firebrick.compiler.kernel.arguments import numbers
from firebrick.compiler.spec.faults import found, table
from firebrick.compiler.targets.llvm.emit import Limit
from firebrick.compiler.targets.llvm.gpu_kernel import blocks, gpu_module
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Number

Array = np.ndarray[Any, Any]
C_TYPES = {
    "bool": ctypes.c_int8, "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip
_REGISTERS = ("ctaid", "nctaid", "ntid", "tid")
_ADDED = ", ".join([*(f"i32 %sreg.{r}" for r in _REGISTERS), "ptr %sreg.barrier", "ptr %sreg.shuffle"])
_CHANGES = (
    (r"^declare .*@llvm\.nvvm.*\n", ""),
    (r"call i32 @llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.x\(\)", r"add i32 %sreg.\1, 0"),
    (r"call void @llvm\.nvvm\.barrier\.cta\.sync\.aligned\.all\(i32 0\)", "call void %sreg.barrier(i32 %sreg.tid)"),
    (r"call i32 @llvm\.nvvm\.shfl\.sync\.idx\.i32\(i32 -1, (.*), i32 31\)", r"call i32 %sreg.shuffle(i32 %sreg.tid, \1)"),
    (r"internal addrspace\(3\) global (\[.*\]) poison", r"global \1 zeroinitializer"),
    (r"addrspacecast ptr addrspace\(\d\) (\S+) to ptr", r"getelementptr i8, ptr \1, i64 0"),
    (r"ptr addrspace\(\d\)", "ptr"),
    (r"define ptx_kernel void (.*)\)", rf"define void \1, {_ADDED})"),
)  # fmt: skip
_MEETING = 60.0
"""Seconds that threads wait for each other, before a test fails instead of hanging."""
_WARP = 32
_LAST = (ctypes.c_int32, ctypes.c_void_p)
"""First site and table of faults."""


def on_host(function: Function, alignment: int = 1, limit: Limit | None = None) -> str:
    """The code of a kernel with the changes; ``alignment`` and ``limit`` are those of ``gpu_module``."""
    text = gpu_module([function], NVIDIA["sm_80"], alignment, limit=limit)
    for old, new in _CHANGES:
        text = re.sub(old, new, text, flags=re.MULTILINE)
    return text


def threads(
    function: Function, arrays: Mapping[str, Array], scalars: Mapping[str, Number], grid: int | tuple[int, ...], width: int = 0,
    first: int = 0, limit: Limit | None = None,
) -> Fault | None:  # fmt: skip
    """Run all threads of a launch, in blocks of ``width`` if there are no groups, and give the fault that it reports. Its first
    site is number ``first`` of the program."""
    module = compile_ir(on_host(function, limit=limit), Target.host())
    sizes = (grid,) if isinstance(grid, int) else grid
    width = function.group or width
    pointers = [arrays[a.name].__array_interface__["data"][0] for a in function.arrays]
    values = [x.item() for x in numbers(function, scalars).values()]
    kinds = [*(ctypes.c_void_p for _ in pointers), *(C_TYPES[s.dtype] for s in function.scalars),
             *(ctypes.c_int64 for _ in sizes), *_LAST, *(ctypes.c_int32 for _ in _REGISTERS), ctypes.c_void_p,
             ctypes.c_void_p]  # fmt: skip
    run = module.function(function.name, None, *kinds)
    faults = table(first + SITES)
    count = blocks(function, sizes, width)
    block = _Block(width)
    calls = [ctypes.cast(f, ctypes.c_void_p) for f in (block.barrier, block.shuffle)]

    def one(g: int, t: int) -> None:
        run(*pointers, *values, *sizes, first, faults.ctypes.data, g, count, width, t, *calls)

    if function.group:
        block.run(one, count)
    else:
        for g in range(count):
            for t in range(width):
                one(g, t)
    return found(faults)


class _Block:
    """The threads of a block, which meet at barriers and exchange values."""

    def __init__(self, width: int) -> None:
        self._all = threading.Barrier(width, timeout=_MEETING)
        self._warps = [threading.Barrier(min(_WARP, width - w), timeout=_MEETING) for w in range(0, width, _WARP)]
        self._values = [0] * width
        self._failed: list[BaseException] = []
        self.barrier = ctypes.CFUNCTYPE(None, ctypes.c_int32)(lambda t: self._meet(self._all))
        self.shuffle = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)(self._exchange)
        self._width = width

    def _meet(self, barrier: threading.Barrier) -> None:
        try:
            barrier.wait()
        except threading.BrokenBarrierError as e:
            self._failed.append(e)

    def _exchange(self, thread: int, value: int, source: int) -> int:
        warp = thread // _WARP
        self._values[thread] = value
        self._meet(self._warps[warp])
        found = self._values[warp * _WARP + source]
        self._meet(self._warps[warp])
        return found

    def run(self, one: Any, count: int) -> None:
        """Execute ``one(block, thread)`` for all."""

        def work(thread: int) -> None:
            for g in range(count):
                one(g, thread)
                self._meet(self._all)

        workers = [threading.Thread(target=work, args=(t,)) for t in range(self._width)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        assert not self._failed, "threads of a block did not meet at a barrier"
