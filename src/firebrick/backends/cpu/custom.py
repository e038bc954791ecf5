"""Calls of kernels of the kernel language: one object for all sizes, whose work units threads take in chunks.

In a compiled program a kernel is a group with a specification (``compiler.spec.custom``), as operations are.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.pool import shared_pool
from firebrick.backends.cpu.runtime.results import RESULTS
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.program.launch import chunk_of
from firebrick.compiler.targets.llvm.emit import Limit
from firebrick.compiler.targets.llvm.host import Module, compile_many
from firebrick.compiler.targets.llvm.lanes import LanesKernel, lanes_kernel
from firebrick.compiler.targets.llvm.native import module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.config import config

Array = np.ndarray[Any, Any]


class _KernelCode:
    """A kernel's code.

    Attributes:
        kernel: What was printed.
        module: It compiled.
        address: Of the function.
        scratch: Bytes of private memory of each thread.
    """

    def __init__(self, program: KernelProgram, target: Target, rounds: int) -> None:
        function = program.translated.function
        self.kernel: LanesKernel = lanes_kernel(function, target, limit=Limit(rounds, program.limit_site))
        kernel = named(self.kernel.kernel, f"kernel_{function.name}")
        self.module: Module = compile_many([module_text([kernel])])
        self.address = self.module.addresses[kernel.name]
        self.scratch = kernel.scratch


_made: WeakKeyDictionary[KernelProgram, dict[tuple[Any, ...], _KernelCode]] = WeakKeyDictionary()
_lock = threading.Lock()


def code_of(program: KernelProgram) -> _KernelCode:
    """The code of a kernel, compiled at its first call."""
    key = config.compiled_with
    with _lock:
        kept = _made.setdefault(program, {})
        found = kept.get(key)
    if found is None:
        found = _KernelCode(program, Target.host(), config.kernel_loop_limit)
        with _lock:
            kept[key] = found
    return found


def _in_order(array: Array) -> Array:
    """The array, or a row-major and aligned copy of it."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A"))


def run(program: KernelProgram, inputs: tuple[Array, ...], statics: dict[str, int]) -> tuple[Array, ...]:
    """The results of a kernel.

    Args:
        program: Kernel.
        inputs: Its operands.
        statics: Integers that sizes depend on.

    Raises:
        OutOfRangeError: A check of the kernel fails.
    """
    code = code_of(program)
    sizes = program.sizes([x.shape for x in inputs], statics)
    operands = [_in_order(x) for x in inputs]
    results = program.prepared(operands, sizes, lambda a: RESULTS.empty(a.shape, a.dtype.np, a.nbytes))
    words = np.array([*(sizes.scalars[s.name] for s in program.translated.function.scalars), *sizes.grid], np.int64)
    units = code.kernel.units(sizes.grid)
    if units:
        buffers = [*program.buffers(operands, results), words]
        table = AddressTable(len(buffers))
        if not table.put(0, buffers):
            raise AssertionError("arrays of a kernel are row-major")
        pool = shared_pool()
        chunk = chunk_of(units, code.kernel.cost_us(sizes.grid)) or units
        fault = pool.parallel_for(code.address, table.address, units, chunk, code.scratch, program.limit_site + 1)
        if fault is not None:
            raise program.error(fault.site, fault.payload, sizes.scalars)
    return tuple(results)
