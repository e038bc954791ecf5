"""Calls of kernels of the kernel language: one object for all sizes, whose work units threads take in chunks.

In a compiled program a kernel is a group with a specification (``compiler.spec.custom``), as operations are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.pool import shared_pool
from firebrick.backends.cpu.runtime.results import RESULTS
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.targets.llvm.emit import Limit
from firebrick.compiler.targets.llvm.host import Module, compile_many
from firebrick.compiler.targets.llvm.lanes import LanesKernel, lanes_kernel
from firebrick.compiler.targets.llvm.native import module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.config import config

Array = np.ndarray[Any, Any]

_LAUNCHES = 64
"""Maximum number of launches that are kept for a kernel."""


class _KernelCode:
    """A kernel's code.

    Attributes:
        kernel: What was printed.
        module: It compiled.
        address: Of the function.
        scratch: Bytes of private memory of each thread.
        launches: Launches of operands of some shapes, by these and the integers that sizes depend on.
    """

    def __init__(self, program: KernelProgram, target: Target, rounds: int) -> None:
        function = program.translated.function
        self.kernel: LanesKernel = lanes_kernel(function, target, limit=Limit(rounds, program.limit_site))
        kernel = named(self.kernel.kernel, f"kernel_{function.name}")
        self.module: Module = compile_many([module_text([kernel])])
        self.address = self.module.addresses[kernel.name]
        self.scratch = kernel.scratch
        self.launches: dict[Any, KernelLaunch] = {}


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


class KernelLaunch:
    """A kernel for operands of certain shapes: all that these decide is computed once. Thread-safe.

    It does not keep the kernel, whose code keeps the launch.

    Args:
        program: Kernel.
        code: Its code.
        shapes: Of the operands.
        statics: Integers that sizes depend on.

    Raises:
        ShapeError: Shapes do not fit the annotations, or each other.
    """

    def __init__(
        self, program: KernelProgram, code: _KernelCode, shapes: Sequence[tuple[int, ...]], statics: Mapping[str, int]
    ) -> None:  # fmt: skip
        self.code, self.sizes, self._sites = code, program.sizes(shapes, statics), program.limit_site + 1
        function, grid = program.translated.function, self.sizes.grid
        self._words = np.array([*(self.sizes.scalars[s.name] for s in function.scalars), *grid], np.int64)
        self._units = code.kernel.units(grid)
        self._chunk = code.kernel.chunk(grid) or self._units
        operands = {name: i for i, name in enumerate(program.operands)}
        # of each result: shape, dtype and bytes; the operand that it begins as, or -1; the value that it begins with, or None
        self._results = [
            (a.shape, a.dtype.np, a.nbytes, operands[name] if array.role == "InOut" else -1, program.filled.get(name))
            for (name, array), a in zip(program.signature.results.items(), self.sizes.results, strict=True)
        ]
        # the arrays of the function, as positions among the operands and, after these, the results
        numbers = {**operands, **{name: len(operands) + i for i, name in enumerate(program.signature.results)}}
        self._arrays = [numbers[a.name] for a in function.arrays]
        self._tables: list[AddressTable] = []

    def __call__(self, program: KernelProgram, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """The results.

        Args:
            program: The kernel.
            inputs: Operands of the shapes.

        Raises:
            OutOfRangeError: A check of the kernel fails.
        """
        arrays = [_in_order(x) for x in inputs]
        results = []
        for shape, dtype, nbytes, source, value in self._results:
            out = RESULTS.empty(shape, dtype, nbytes)
            if source >= 0:
                out[...] = arrays[source]
            elif value is not None:
                out.fill(value)
            results.append(out)
        if self._units:
            arrays += results
            buffers = [arrays[i] for i in self._arrays]
            buffers.append(self._words)
            try:
                table = self._tables.pop()
            except IndexError:  # the first launch, or other threads are at it too
                table = AddressTable(len(buffers))
            if not table.put(0, buffers):
                raise AssertionError("arrays of a kernel are row-major")
            code = self.code
            fault = shared_pool().parallel_for(code.address, table.address, self._units, self._chunk, code.scratch, self._sites)
            self._tables.append(table)
            if fault is not None:
                raise program.error(fault.site, fault.payload, self.sizes.scalars)
        return tuple(results)


def _in_order(array: Array) -> Array:
    """The array, or a row-major and aligned copy of it."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A"))


def run(program: KernelProgram, inputs: Sequence[Array], statics: Mapping[str, int]) -> tuple[Array, ...]:
    """The results of a kernel. The launch of an earlier call for operands of the same shapes is used again, if it is kept.

    Args:
        program: Kernel.
        inputs: Its operands.
        statics: Integers that sizes depend on.

    Raises:
        OutOfRangeError: A check of the kernel fails.
        ShapeError: Shapes do not fit the annotations, or each other.
    """
    code = code_of(program)
    shapes = [x.shape for x in inputs]
    key = *shapes, *statics.items()
    launch = code.launches.get(key)
    if launch is None:
        if len(code.launches) >= _LAUNCHES:
            code.launches.clear()
        launch = code.launches[key] = KernelLaunch(program, code, shapes, statics)
    return launch(program, inputs)
