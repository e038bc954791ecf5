"""Kernels of the kernel language on the processor.

Calls of one run one object for all sizes, whose work units threads take in chunks. In a compiled program a kernel is native
code between that of other nodes, with its sizes as constants.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from firebrick.backends.cpu.native import NativeNode, kernel_of
from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.pool import shared_pool
from firebrick.compiler.kernel.ir import ArrayParameter, Function, Store
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.program.expression import Kernel
from firebrick.compiler.program.launch import chunk_of
from firebrick.compiler.targets.llvm.host import Module, compile_many
from firebrick.compiler.targets.llvm.lanes import LanesKernel, lanes_kernel
from firebrick.compiler.targets.llvm.lowered import Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.masked import Limit
from firebrick.compiler.targets.llvm.native import module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.errors import FirebrickError
from firebrick.scalar.expr import const, local
from firebrick.scalar.storage import computed

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
    operands = [np.require(x, requirements=("C", "A")) for x in inputs]
    results = program.prepared(operands, sizes, lambda a: np.empty(a.shape, a.dtype.np))
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


@dataclass(frozen=True, slots=True)
class KernelSite:
    """A check of a kernel in a compiled program: what ``spec.faults.Site`` is for the checks of operations."""

    program: KernelProgram
    number: int
    scalars: tuple[tuple[str, int], ...]

    def error(self, index: int) -> FirebrickError:
        """The error of a fault here."""
        return self.program.error(self.number, index, dict(self.scalars))


def native(program: KernelProgram, operands: Sequence[Aval], params: Mapping[str, Any]) -> Kernel:
    """A kernel as a node of a compiled program.

    Args:
        program: Kernel.
        operands: Shapes and dtypes of the node's operands.
        params: Of the node.
    """
    statics = dict(params["statics"])
    count = len(program.operands)

    def alone(*arrays: Array) -> Any:
        results = run(program, arrays[:count], statics)
        return results if len(results) > 1 else results[0]

    return kernel_of(NativeNode(_lowered(program, operands, statics), lambda: alone), len(operands))


def _lowered(program: KernelProgram, operands: Sequence[Aval], statics: dict[str, int]) -> Lowered:
    """The launches of a kernel for certain sizes: those that give results their first values, then its own."""
    target, function = Target.host(), program.translated.function
    sizes = program.sizes([a.shape for a in operands[: len(program.operands)]], statics)
    number = {n: k for k, n in enumerate(program.operands)}
    number |= {n: len(operands) + k for k, n in enumerate(program.signature.results)}
    parts: list[LoweredKernel] = []

    def add(
        f: Function, words: Sequence[int], grid: Sequence[int], buffers: Sequence[int], sites: tuple[Any, ...] = ()
    ) -> None:
        made = lanes_kernel(f, target, limit=Limit(config.kernel_loop_limit, program.limit_site), words=words)
        if made.units(grid):
            kernel = named(replace(made.kernel, grid=made.units(grid)), f"kernel_{function.name}")
            parts.append(LoweredKernel(kernel, tuple(buffers), made.cost_us(grid), sites))

    for (name, array), aval in zip(program.signature.results.items(), sizes.results, strict=True):
        if array.role == "InOut":
            copy = _first_values(aval, None)
            add(copy, [aval.size], [aval.size], [program.operands.index(name), number[name]])
        elif name in program.filled:
            add(_first_values(aval, program.filled[name]), [aval.size], [aval.size], [number[name]])
    scalars = tuple(sizes.scalars.items())
    sites = tuple(KernelSite(program, k, scalars) for k in range(program.limit_site + 1))
    words = [*(sizes.scalars[s.name] for s in function.scalars), *sizes.grid]
    add(function, words, sizes.grid, [number[a.name] for a in function.arrays], sites)
    text = module_text({p.kernel.name: p.kernel for p in parts}.values())
    return Lowered(tuple(parts), (), text, (frozenset(),) * len(sizes.results))


def _first_values(aval: Aval, value: bool | int | float | None) -> Function:
    """A kernel that sets all elements of an array to a number, or copies them from another one."""
    y, i = ArrayParameter("y", aval.dtype.name, "write"), local("i", "int64")
    x = ArrayParameter("x", aval.dtype.name)
    if value is None:
        return Function("first_values", (x, y), (), "i", (Store("y", i, x[i]),))
    return Function("first_values", (y,), (), "i", (Store("y", i, const(value, computed(aval.dtype.name))),))
