"""Kernel IR for GPUs, through LLVM's NVPTX and AMDGPU targets: one thread for each work item.

A launch is one-dimensional. A kernel without groups has blocks of any width, and ⌈size / width⌉ blocks for each row of items
that differ in the last index alone; so the outer indices are uniform in a block. A group is a block, whose width is then fixed
in the code. ``blocks`` counts the blocks of a launch. The number of a block is decoded with 32-bit divisions.

Arrays are parameters in global memory; LLVM finds their address space behind casts to generic pointers. Shared arrays are
globals of address space 3. Atomic operations are relaxed: of the scope of the device for arrays of the launch, of the block for
shared ones. A barrier orders the accesses of a block to both. A shuffle within a subgroup is one instruction for each 32 bits,
and otherwise goes through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from firebrick.compiler.kernel.ir import Atomic, Barrier, CompareExchange, Function, Shuffle, loops
from firebrick.compiler.kernel.verify import check_plain, verify
from firebrick.compiler.targets.llvm.alignments import Alignments
from firebrick.compiler.targets.llvm.emit import Code, Limit, scalar_type
from firebrick.compiler.targets.llvm.memory import Strip, address, item_bytes, stored_type
from firebrick.compiler.targets.llvm.scalar_kernel import Printer
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import KernelCompileError
from firebrick.scalar.expr import BITS, FLOATS

_NVVM, _AMD = "llvm.nvvm.read.ptx.sreg", "llvm.amdgcn"
_WAVE64 = ("gfx7", "gfx8", "gfx9")
"""AMD's families whose subgroups are 64 threads wide; later ones have 32 by default."""
_SHARED_ALIGNMENT = 16
_EXCHANGE = "exchange"
"""The shared memory of shuffles that are wider than a subgroup."""


def blocks(function: Function, grid: Sequence[int], width: int) -> int:
    """The number of blocks of a launch.

    Args:
        function: Kernel.
        grid: Sizes of the grid.
        width: Threads of a block; those of a group, if the kernel has groups.
    """
    return math.prod(grid[:-1]) * -(-grid[-1] // (function.group or width))


@dataclass(frozen=True, slots=True)
class _Gpu:
    """LLVM IR that differs between kinds of GPUs.

    Attributes:
        convention: Calling convention of a kernel.
        block: Intrinsic for the number of this thread's block.
        thread: Intrinsic for the number of this thread in its block.
        width: Appends code for the number of threads of a block, i32.
        count: Appends code for the number of blocks of the launch, i32, given the width.
        attributes: Attributes of a function whose blocks have so many threads.
        scopes: Names of the scopes of the device and of the block.
        shared: Largest number of bytes of shared arrays.
        barrier: Appends a barrier.
        shuffle: Appends code for the i32 that another thread of a subgroup has: value, thread of the subgroup.
    """

    convention: str
    block: str
    thread: str
    width: Callable[[Code], str]
    count: Callable[[Code, str], str]
    attributes: Callable[[int], str]
    scopes: tuple[str, str]
    shared: int
    barrier: Callable[[Code], None]
    shuffle: Callable[[Code, str, str], str]


def _packet(code: Code, kind: str, offset: int) -> str:
    """A number of AMD's dispatch packet, i32."""
    packet = code.call("ptr addrspace(4)", f"{_AMD}.dispatch.ptr")
    at = code.put(f"getelementptr i8, ptr addrspace(4) {packet}, i64 {offset}")
    found = code.put(f"load {kind}, ptr addrspace(4) {at}, align 4")
    return found if kind == "i32" else code.put(f"zext {kind} {found} to i32")


def _amd_count(code: Code, width: str) -> str:
    threads = _packet(code, "i32", 12)
    return code.put(f"udiv i32 {threads}, {width}")


def _amd_barrier(code: Code) -> None:
    code.do('fence syncscope("workgroup") release')
    code.call("void", f"{_AMD}.s.barrier")
    code.do('fence syncscope("workgroup") acquire')


def _amd_shuffle(code: Code, value: str, source: str) -> str:
    byte = code.put(f"shl i32 {source}, 2")
    return code.call("i32", f"{_AMD}.ds.bpermute", ("i32", byte), ("i32", value))


def _nvidia_barrier(code: Code) -> None:
    code.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", ("i32", "0"))


def _nvidia_shuffle(code: Code, value: str, source: str) -> str:
    # all threads of the mask that exist take part; the last operand lets a thread read from any of the 32
    return code.call(
        "i32", "llvm.nvvm.shfl.sync.idx.i32", ("i32", "-1"), ("i32", value), ("i32", source), ("i32", "31")
    )  # fmt: skip


_GPUS = {
    "nvptx64": _Gpu(
        "ptx_kernel", f"{_NVVM}.ctaid.x", f"{_NVVM}.tid.x",
        lambda code: code.call("i32", f"{_NVVM}.ntid.x"),
        lambda code, width: code.call("i32", f"{_NVVM}.nctaid.x"),
        lambda group: f'"nvvm.reqntid"="{group}"',
        ("device", "block"), 48 << 10, _nvidia_barrier, _nvidia_shuffle,
    ),
    "amdgcn": _Gpu(
        "amdgpu_kernel", f"{_AMD}.workgroup.id.x", f"{_AMD}.workitem.id.x",
        lambda code: _packet(code, "i16", 4), _amd_count,
        lambda group: f'"amdgpu-flat-work-group-size"="{group},{group}"',
        ("agent", "workgroup"), 64 << 10, _amd_barrier, _amd_shuffle,
    ),
}  # fmt: skip


def gpu_module(functions: Iterable[Function], target: Target, alignment: int = 1, limit: Limit | None = None) -> str:
    """A module of kernels for a GPU.

    The parameters of each are a pointer to global memory for each array, its scalars in their dtypes (a bool is a byte), the
    sizes of the grid (i64 each), the number of the kernel's first site in the program (i32) and a pointer to the program's
    table of faults. Threads beyond the grid do nothing.

    Args:
        functions: Kernels with different names.
        target: GPU, by its triple ``nvptx64-nvidia-cuda`` or ``amdgcn-amd-amdhsa``.
        alignment: Bytes that the addresses of all arrays are multiples of, beside the size of their elements. LLVM makes one
            access of several neighbours if the address of the first is a multiple of their size by ``alignments``.
        limit: Of the rounds of each loop.

    Raises:
        KernelCompileError: A kernel breaks a rule of kernel IR, or has more shared arrays than the GPU has memory for.
    """
    texts, declared = [], set()
    for function in functions:
        code = Code(target)
        texts.append(_GpuKernel(function, code, alignment, limit).text())
        declared |= code.declared
    return "\n".join([*sorted(declared), *texts, ""])


class _GpuKernel:
    """The code of one kernel.

    Args:
        function: Kernel.
        code: Empty.
        alignment: As of ``gpu_module``.
        limit: As of ``gpu_module``.
    """

    def __init__(self, function: Function, code: Code, alignment: int, limit: Limit | None) -> None:
        verify(function)
        check_plain(function)
        self.function, self.code, self.alignment = function, code, alignment
        self.gpu, self.limit = _GPUS[code.target.arch], limit
        self._globals: list[str] = []
        self._bytes = 0
        self._own = ""

    def text(self) -> str:
        """The function, and the shared arrays in front of it."""
        function, code, gpu = self.function, self.code, self.gpu
        parameters, arrays, values = [], {}, {}
        for a in function.arrays:
            align = max(item_bytes(a.dtype), self.alignment)
            parameters.append(f"ptr addrspace(1) align {align} %in.{a.name}")
            arrays[a.name] = Strip(a.dtype, self._generic(1, f"%in.{a.name}"), 1)
        for s in function.scalars:
            parameters.append(f"{'i8' if s.dtype == 'bool' else scalar_type(s.dtype)} %in.{s.name}")
            values[s.name] = code.put(f"icmp ne i8 %in.{s.name}, 0") if s.dtype == "bool" else f"%in.{s.name}"
        for shared in function.shared:
            arrays[shared.name] = self._shared(shared.name, shared.dtype, shared.extent)
        code.do("%faults = addrspacecast ptr addrspace(1) %global.faults to ptr")
        values |= self._indices()
        more: dict[type, Callable[[Printer, Any], None]] = {
            Barrier: self._barrier, Shuffle: self._shuffle, Atomic: self._atomic, CompareExchange: self._exchange,
        }  # fmt: skip
        aligned = {a.name: max(item_bytes(a.dtype), self.alignment) for a in function.arrays}
        aligned |= {a.name: _SHARED_ALIGNMENT for a in function.shared}
        found = Alignments(function, aligned)
        every = loops(function.body)
        Printer(code, arrays, values, more, "%first.site", found, self.limit, every).block(function.body)
        if not function.group:
            code.do("br label %done")
            code.label("done")
        self._check_shared()
        sizes = (f"i64 %size{k}" for k in range(len(function.outer) + 1))
        parameters += [*sizes, "i32 %first.site", "ptr addrspace(1) align 8 %global.faults"]
        attributes = f" {gpu.attributes(function.group)}" if function.group else ""
        head = f"define {gpu.convention} void @{function.name}({', '.join(parameters)}){attributes} {{\nentry:"
        return "\n".join([*self._globals, head, *code.lines, "  ret void", "}"])

    # indices

    def _indices(self) -> dict[str, str]:
        """The values of the item's indices; appends the branch of threads beyond the grid."""
        function, code, gpu = self.function, self.code, self.gpu
        block, self._own = code.call("i32", gpu.block), code.call("i32", gpu.thread)
        thread = code.put(f"zext i32 {self._own} to i64")
        if function.group:
            return self._outer(block) | {function.item: thread}
        width = gpu.width(code)
        found, piece = {}, block
        if function.outer:
            rows = "1"
            for k in range(len(function.outer)):
                rows = code.put(f"mul i32 {rows}, {self._size(k)}")
            pieces = code.put(f"udiv i32 {gpu.count(code, width)}, {rows}")
            row = code.put(f"udiv i32 {block}, {pieces}")
            piece = code.put(f"sub i32 {block}, {code.put(f'mul i32 {row}, {pieces}')}")
            found = self._outer(row)
        piece, width = (code.put(f"zext i32 {x} to i64") for x in (piece, width))
        item = code.put(f"add i64 {code.put(f'mul i64 {piece}, {width}')}, {thread}")
        inside = code.put(f"icmp slt i64 {item}, %size{len(function.outer)}")
        code.do(f"br i1 {inside}, label %item, label %done")
        code.label("item")
        return found | {function.item: item}

    def _size(self, axis: int) -> str:
        # a launch has fewer than 2^31 blocks, so the outer sizes fit; without blocks nothing is executed
        return self.code.put(f"trunc i64 %size{axis} to i32")

    def _outer(self, row: str) -> dict[str, str]:
        """The outer indices, from the number of a row of items."""
        code, found = self.code, {}
        for k in range(len(self.function.outer) - 1, -1, -1):
            at = row
            if k:
                size = self._size(k)
                row = code.put(f"udiv i32 {at}, {size}")
                at = code.put(f"sub i32 {at}, {code.put(f'mul i32 {row}, {size}')}")
            found[self.function.outer[k]] = code.put(f"zext i32 {at} to i64")
        return found

    # shared arrays, barriers and shuffles

    def _shared(self, name: str, dtype: str, extent: int) -> Strip:
        """An array of the block: its global, and a generic pointer to it."""
        full = f"@{self.function.name}.{name}"
        kind = f"[{extent} x {stored_type(dtype, self.code)}]"
        self._globals.append(f"{full} = internal addrspace(3) global {kind} poison, align {_SHARED_ALIGNMENT}")
        self._bytes += -(-extent * item_bytes(dtype) // _SHARED_ALIGNMENT) * _SHARED_ALIGNMENT
        return Strip(dtype, self._generic(3, full), 1)

    def _generic(self, space: int, pointer: str) -> str:
        """A generic pointer to an address in an address space."""
        return self.code.put(f"addrspacecast ptr addrspace({space}) {pointer} to ptr")

    def _check_shared(self) -> None:
        if self._bytes > self.gpu.shared:
            text = ", ".join(map(str, self.function.shared)) or "those of wide shuffles"
            raise KernelCompileError(
                f"kernel {self.function.name}: the shared arrays of a group have at most {self.gpu.shared} bytes on"
                f" {self.code.target.cpu}", f"{self._bytes} bytes: {text}", "take smaller tiles",
                kernel=self.function.name,
            )  # fmt: skip

    def _barrier(self, printer: Printer, s: Barrier) -> None:
        self.gpu.barrier(self.code)

    def _shuffle(self, printer: Printer, s: Shuffle) -> None:
        code, group = self.code, self.function.group
        value, source = printer.evaluated(s.value, s.source)
        place = code.put(f"and i32 {code.put(f'trunc i64 {source} to i32')}, {s.width - 1}")
        first = code.put(f"and i32 {self._own}, {-s.width}")
        other = code.put(f"or i32 {first}, {place}")
        if s.width > self.subgroup:
            found = self._through_memory(value, other, s.value.dtype)
        else:
            if group > self.subgroup:
                other = code.put(f"and i32 {other}, {self.subgroup - 1}")
            found = self._across(value, other, s.value.dtype)
        printer.values[s.name] = found

    @property
    def subgroup(self) -> int:
        """Threads that execute together."""
        target = self.code.target
        return 64 if target.arch == "amdgcn" and target.cpu.startswith(_WAVE64) else 32

    def _across(self, value: str, other: str, dtype: str) -> str:
        """What another thread of the subgroup has, as pieces of 32 bits."""
        code, kind, bits = self.code, scalar_type(dtype), BITS[dtype]
        if dtype in FLOATS:
            value = code.put(f"bitcast {kind} {value} to i{bits}")
        if bits == 64:
            low = code.put(f"trunc i64 {value} to i32")
            high = code.put(f"trunc i64 {code.put(f'lshr i64 {value}, 32')} to i32")
            low, high = (code.put(f"zext i32 {self.gpu.shuffle(code, x, other)} to i64") for x in (low, high))
            found = code.put(f"or i64 {code.put(f'shl i64 {high}, 32')}, {low}")
        elif bits == 32:
            found = self.gpu.shuffle(code, value, other)
        else:
            wide = self.gpu.shuffle(code, code.put(f"zext i{bits} {value} to i32"), other)
            found = code.put(f"trunc i32 {wide} to i{bits}")
        return code.put(f"bitcast i{bits} {found} to {kind}") if dtype in FLOATS else found

    def _through_memory(self, value: str, other: str, dtype: str) -> str:
        code, kind = self.code, scalar_type(dtype)
        full = f"@{self.function.name}.{_EXCHANGE}.memory"
        if not any(text.startswith(full) for text in self._globals):
            size = 8 * self.function.group
            self._globals.append(f"{full} = internal addrspace(3) global [{size} x i8] poison, align 16")
            self._bytes += size
        own, from_ = (code.put(f"zext i32 {x} to i64") for x in (self._own, other))
        self.gpu.barrier(code)  # others may still read what was stored by the shuffle before
        to = code.put(f"getelementptr {kind}, ptr addrspace(3) {full}, i64 {own}")
        code.do(f"store {kind} {value}, ptr addrspace(3) {to}")
        self.gpu.barrier(code)
        at = code.put(f"getelementptr {kind}, ptr addrspace(3) {full}, i64 {from_}")
        return code.put(f"load {kind}, ptr addrspace(3) {at}")

    # atomic operations

    def _place(self, printer: Printer, s: Atomic | CompareExchange, at: str) -> tuple[str, str]:
        """The address of an element, and the scope of operations on it."""
        shared = any(a.name == s.array for a in self.function.shared)
        return address(self.code, printer.arrays[s.array], at), self.gpu.scopes[shared]

    def _atomic(self, printer: Printer, s: Atomic) -> None:
        at, value = printer.evaluated(s.index, s.value)
        where, scope = self._place(printer, s, at)
        printer.atomic(s, where, value, f'syncscope("{scope}") ')

    def _exchange(self, printer: Printer, s: CompareExchange) -> None:
        at, expected, value = printer.evaluated(s.index, s.expected, s.value)
        where, scope = self._place(printer, s, at)
        kind = scalar_type(s.value.dtype)
        both = self.code.put(
            f'cmpxchg ptr {where}, {kind} {expected}, {kind} {value} syncscope("{scope}") monotonic monotonic,'
            f" align {item_bytes(s.value.dtype)}"
        )
        printer.values[s.name] = self.code.put(f"extractvalue {{ {kind}, i1 }} {both}, 0")
