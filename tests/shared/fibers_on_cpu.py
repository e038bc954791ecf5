"""The code of a GPU kernel with groups, executed on this machine by fibers: each thread of a block has a stack of its own.

The statements are those of ``threads_on_cpu``. A barrier or a shuffle switches to the scheduler, which goes on with the other
threads, and with this one when all threads of the block, or of its subgroup, have come as far. So a meeting costs microseconds
instead of milliseconds, and whole op samples can be computed. Stacks are switched by ``swapcontext`` of the C library.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from threads_on_cpu import C_TYPES, on_host

from firebrick.compiler.kernel import Function
from firebrick.compiler.kernel.arguments import numbers
from firebrick.compiler.spec.faults import found, table
from firebrick.compiler.targets.llvm.gpu_kernel import blocks
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.target import Target

Array = np.ndarray[Any, Any]
_LLVM = {"float32": "float", "float64": "double"} | {f"{u}int{n}": f"i{n}" for u in ("", "u") for n in (8, 16, 32, 64)}
# what a thread waits for: 1 is a barrier
_SHUFFLE, _DONE = 2, 3
_WARP = 32
_CONTEXT = 8 << 10
"""Bytes for the registers of a fiber, more than a ``ucontext_t`` of any machine has."""
_STACK = 128 << 10
_MOST = 1024
"""Threads of a block, at most."""
_SLOTS = 64
_SITES = 16
# contexts of the fibers, that of the scheduler, what each fiber waits for, and the values of a shuffle
_OWN = 4
_CODE = """
@simt.slots = global [SLOTS x i64] zeroinitializer
declare i32 @swapcontext(ptr, ptr)

define ptr @simt.memory() { ret ptr @simt.slots }

define void @simt.wait(i32 %t, i32 %for) {
  %states = load ptr, ptr getelementptr (i64, ptr @simt.slots, i64 2)
  %state = getelementptr i32, ptr %states, i32 %t
  store i32 %for, ptr %state
  %contexts = load ptr, ptr @simt.slots
  %at = mul i32 %t, CONTEXT
  %own = getelementptr i8, ptr %contexts, i32 %at
  %scheduler = load ptr, ptr getelementptr (i64, ptr @simt.slots, i64 1)
  %_ = call i32 @swapcontext(ptr %own, ptr %scheduler)
  ret void
}

define void @simt.barrier(i32 %t) {
  call void @simt.wait(i32 %t, i32 1)
  ret void
}

define i32 @simt.shuffle(i32 %t, i32 %value, i32 %source) {
  %values = load ptr, ptr getelementptr (i64, ptr @simt.slots, i64 3)
  %own = getelementptr i32, ptr %values, i32 %t
  store i32 %value, ptr %own
  call void @simt.wait(i32 %t, i32 2)
  %first = and i32 %t, -32
  %lane = and i32 %source, 31
  %from = or i32 %first, %lane
  %other = getelementptr i32, ptr %values, i32 %from
  %found = load i32, ptr %other
  call void @simt.wait(i32 %t, i32 2)
  ret i32 %found
}

define void @simt.thread(i32 %t) {
entry:
  br label %block
block:
LOADS
  call void @NAME(ARGUMENTS)
  call void @simt.wait(i32 %t, i32 3)
  br label %block
}

define void @simt.round(i32 %count) {
entry:
  %contexts = load ptr, ptr @simt.slots
  %scheduler = load ptr, ptr getelementptr (i64, ptr @simt.slots, i64 1)
  %states = load ptr, ptr getelementptr (i64, ptr @simt.slots, i64 2)
  br label %thread
thread:
  %t = phi i32 [ 0, %entry ], [ %next, %other ]
  %state = getelementptr i32, ptr %states, i32 %t
  %for = load i32, ptr %state
  %ready = icmp eq i32 %for, 0
  br i1 %ready, label %switch, label %other
switch:
  %at = mul i32 %t, CONTEXT
  %own = getelementptr i8, ptr %contexts, i32 %at
  %_ = call i32 @swapcontext(ptr %scheduler, ptr %own)
  br label %other
other:
  %next = add i32 %t, 1
  %more = icmp slt i32 %next, %count
  br i1 %more, label %thread, label %done
done:
  ret void
}
""".replace("SLOTS", str(_SLOTS)).replace("CONTEXT", str(_CONTEXT))


@lru_cache(maxsize=1)
def _c_library() -> ctypes.PyDLL:
    return ctypes.PyDLL(None)


class _Stacks:
    """Memory of the threads of a block."""

    def __init__(self) -> None:
        self.contexts = np.zeros(_MOST * _CONTEXT // 16 + 1, np.complex128)  # elements of 16 bytes: so aligned
        self.scheduler = np.zeros(_CONTEXT // 16, np.complex128)
        self.stacks = np.empty(_MOST * _STACK, np.uint8)
        self.states = np.zeros(_MOST, np.int32)
        self.values = np.zeros(_MOST, np.int32)

    def begin(self, count: int, entry: int) -> None:
        """Let each thread begin with the function at address ``entry``, which executes one block after the other."""
        libc = _c_library()
        for t in range(count):
            at = self.contexts.ctypes.data + t * _CONTEXT
            libc.getcontext(ctypes.c_void_p(at))
            link, stack, size = (ctypes.c_uint64.from_address(at + offset) for offset in (8, 16, 32))
            link.value, stack.value, size.value = 0, self.stacks.ctypes.data + t * _STACK, _STACK
            libc.makecontext(ctypes.c_void_p(at), ctypes.c_void_p(entry), ctypes.c_int(1), ctypes.c_int(t))

    def run(self, count: int, go_on: Any) -> None:
        """Execute a block: ``go_on(count)`` goes on with each thread that waits for nothing."""
        states = self.states[:count]
        states[:] = 0
        while True:
            go_on(count)
            first = states[0]
            if (states == first).all():
                if first == _DONE:
                    return
                states[:] = 0
                continue
            ready = False
            for begin in range(0, count, _WARP):
                warp = states[begin : begin + _WARP]
                if (warp == _SHUFFLE).all():
                    warp[:] = 0
                    ready = True
            assert ready, f"threads of a block wait for others that do not come: {states.tolist()}"


_stacks: list[_Stacks] = []


class SimtKernel:
    """A compiled kernel.

    Args:
        function: Kernel with groups.
        alignment: Bytes that the addresses of all arrays are multiples of.
    """

    def __init__(self, function: Function, alignment: int = 1) -> None:
        assert function.group
        self.function, self.alignment = function, alignment
        kinds = ["ptr" for _ in function.arrays]
        kinds += ["i8" if s.dtype == "bool" else _LLVM[s.dtype] for s in function.scalars]
        # then the grid, the first site and the table of faults, and the numbers of the block, of blocks and of threads
        kinds += [*["i64"] * (len(function.outer) + 1), "i32", "ptr", *["i32"] * 3]
        loads = [
            f"  %a{k} = load {kind}, ptr getelementptr (i64, ptr @simt.slots, i64 {_OWN + k})" for k, kind in enumerate(kinds)
        ]
        given = [*(f"{kind} %a{k}" for k, kind in enumerate(kinds)), "i32 %t", "ptr @simt.barrier", "ptr @simt.shuffle"]
        code = _CODE.replace("LOADS", "\n".join(loads)).replace("NAME", function.name)
        self._module = compile_ir(on_host(function, alignment) + code.replace("ARGUMENTS", ", ".join(given)), Target.host())

    def run(self, arrays: dict[str, Array], scalars: Any, grid: tuple[int, ...]) -> Any:
        """Run all threads of a launch, block by block, and give the fault that it reports."""
        function = self.function
        if not _stacks:
            _stacks.append(_Stacks())
        stacks, module = _stacks[0], self._module
        pointers = [arrays[a.name].__array_interface__["data"][0] for a in function.arrays]
        assert all(p % self.alignment == 0 for p, a in zip(pointers, function.arrays, strict=True) if arrays[a.name].size)
        faults = table(_SITES)
        words = [x.item() for x in numbers(function, scalars).values()]
        typed = [*map(ctypes.c_void_p, pointers), *(C_TYPES[s.dtype](x) for s, x in zip(function.scalars, words, strict=True))]
        typed += [*map(ctypes.c_int64, grid), ctypes.c_int32(0), ctypes.c_void_p(faults.ctypes.data)]
        count = blocks(function, grid, function.group)
        address = module.function("simt.memory", ctypes.c_void_p)()
        own = [stacks.contexts.ctypes.data, stacks.scheduler.ctypes.data, stacks.states.ctypes.data, stacks.values.ctypes.data]
        for k, value in enumerate([*map(ctypes.c_void_p, own), *typed]):
            ctypes.memmove(address + 8 * k, ctypes.byref(value), ctypes.sizeof(value))
        at = ctypes.c_int32.from_address(address + 8 * (_OWN + len(typed)))
        ctypes.c_int32.from_address(address + 8 * (_OWN + len(typed) + 1)).value = count
        ctypes.c_int32.from_address(address + 8 * (_OWN + len(typed) + 2)).value = function.group
        entry = ctypes.cast(module.function("simt.thread", None, ctypes.c_int32), ctypes.c_void_p).value
        go_on = module.function("simt.round", None, ctypes.c_int32)
        stacks.begin(function.group, entry)
        for block in range(count):
            at.value = block
            stacks.run(function.group, go_on)
        return found(faults)
