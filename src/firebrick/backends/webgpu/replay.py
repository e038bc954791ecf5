"""``LaunchTable``: launches that are recorded later, by calls of wgpu's C functions in one compiled loop.

A call from Python costs more than wgpu's work for it. The loop is compiled when a table is long enough to pay for it once;
shorter ones before that are recorded by calls from Python.
"""

from __future__ import annotations

import ctypes
from array import array
from functools import cache
from typing import Any

COLUMNS = 4
"""Numbers of a launch: address of the pipeline, address of the bind group, workgroups along x and y."""
LEAST = 64
"""Minimum number of launches of a table for which the loop is compiled, which takes some ten milliseconds."""
_LOOP = """
define void @replay(ptr %pass, ptr %rows, i64 %count, ptr %set_pipeline, ptr %set_group, ptr %dispatch) {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %done
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %launch ]
  %before = phi i64 [ 0, %entry ], [ %pipeline, %launch ]
  %at = mul i64 %k, 4
  %row = getelementptr i64, ptr %rows, i64 %at
  %pipeline = load i64, ptr %row
  %same = icmp eq i64 %pipeline, %before
  br i1 %same, label %launch, label %change
change:
  %p = inttoptr i64 %pipeline to ptr
  call void %set_pipeline(ptr %pass, ptr %p)
  br label %launch
launch:
  %to_group = getelementptr i64, ptr %row, i64 1
  %group = load i64, ptr %to_group
  %g = inttoptr i64 %group to ptr
  call void %set_group(ptr %pass, i32 0, ptr %g, i64 0, ptr null)
  %to_x = getelementptr i64, ptr %row, i64 2
  %x = load i64, ptr %to_x
  %to_y = getelementptr i64, ptr %row, i64 3
  %y = load i64, ptr %to_y
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  call void %dispatch(ptr %pass, i32 %x32, i32 %y32, i32 1)
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
_NAMES = ("wgpuComputePassEncoderSetPipeline", "wgpuComputePassEncoderSetBindGroup", "wgpuComputePassEncoderDispatchWorkgroups")


@cache
def _compiled() -> Any:
    """The loop; what it was compiled by stays for as long as the process."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(_LOOP)
    engine = binding.create_mcjit_compiler(module, binding.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 2, ctypes.c_int64, *(ctypes.c_void_p,) * 3)
    return engine, kind(engine.get_function_address("replay"))


class LaunchTable:
    """Launches in order.

    Args:
        native: wgpu's module of C functions.

    Attributes:
        rows: ``COLUMNS`` numbers for each launch; who appends them holds the objects of the addresses.
    """

    def __init__(self, native: Any) -> None:
        self.rows = array("q")
        self._native = native
        self._compiled = False
        ffi, lib = native.ffi, native.lib
        self._functions = [int(ffi.cast("intptr_t", ffi.addressof(lib, name))) for name in _NAMES]

    def address(self, handle: Any) -> int:
        """The address of one of wgpu's objects."""
        return int(self._native.ffi.cast("intptr_t", handle))

    def record(self, into: Any) -> None:
        """Record all launches into a compute pass, and forget them. After an exception it is not known which are recorded.

        Args:
            into: The handle of the pass.
        """
        rows, self.rows = self.rows, array("q")
        count = len(rows) // COLUMNS
        if self._compiled or count >= LEAST:
            self._compiled = True
            _, loop = _compiled()
            loop(self.address(into), rows.buffer_info()[0], count, *self._functions)
            return
        ffi, lib = self._native.ffi, self._native.lib
        for k in range(0, len(rows), COLUMNS):
            pipeline, group, x, y = rows[k : k + COLUMNS]
            lib.wgpuComputePassEncoderSetPipeline(into, ffi.cast("WGPUComputePipeline", pipeline))
            lib.wgpuComputePassEncoderSetBindGroup(into, 0, ffi.cast("WGPUBindGroup", group), 0, ffi.NULL)
            lib.wgpuComputePassEncoderDispatchWorkgroups(into, x, y, 1)
