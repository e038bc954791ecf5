"""Kernels of the kernel language as parts of compiled programs: their naive form, which is their own kernel IR, as lanes.

The sizes of a launch are constants of its code, since segments have no buffers of constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firebrick.compiler.naive import Buffer, naive
from firebrick.compiler.naive.building import INPUT
from firebrick.compiler.program.launch import chunk_of
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.targets.llvm.copy_kernels import moving_us
from firebrick.compiler.targets.llvm.emit import Limit
from firebrick.compiler.targets.llvm.lanes import lanes_kernel
from firebrick.compiler.targets.llvm.lowered import Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.native import module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.config import config


def lowered(spec: Custom, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The launches of a kernel: those that give results their first values, if anything reads these, then its own.

    Args:
        spec: Specification.
        inputs: The group's inputs.
        outputs: Its results.
        target: Processor.
    """

    def number(b: Buffer) -> int:
        return b.number if b.origin == INPUT else len(inputs) + b.number

    limit = Limit(config.kernel_loop_limit, len(spec.checks))
    parts: list[LoweredKernel] = []
    for step in naive(spec).steps:
        first = None if step.function is spec.function else spec.results[step.buffers[-1].number]
        if first is not None and first.unread:
            continue
        grid = step.grid if isinstance(step.grid, tuple) else (step.grid,)
        made = lanes_kernel(step.function, target, limit=limit, words=[*step.scalars, *grid])
        if units := made.units(grid):
            kernel = named(replace(made.kernel, grid=units), f"kernel_{spec.function.name}")
            cost, chunk, sites = made.cost_us(grid), made.chunk(grid), spec.sites
            if first is not None:  # what takes time is memory, which cycles do not count
                cost, sites = moving_us(first.view.shape, itemsize(first.dtype)), ()
                chunk = chunk_of(units, cost)
            parts.append(LoweredKernel(kernel, tuple(map(number, step.buffers)), cost, sites, chunk=chunk))
    text = module_text({p.kernel.name: p.kernel for p in parts}.values())
    return Lowered(tuple(parts), (), text, (frozenset(),) * len(outputs))
