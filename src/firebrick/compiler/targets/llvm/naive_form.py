"""Kernels of a kind for which this target has no generator: its naive form, one item after the other.

The arguments of each launch are constants of its kernel's code, since segments have no buffers of constants. So one kernel
serves one problem, like the kernels of generators, and LLVM can use the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firebrick.compiler.naive import Buffer, naive
from firebrick.compiler.naive.building import INPUT, RESULT, TEMPORARY
from firebrick.compiler.spec.faults import sites_of
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.memory import item_bytes
from firebrick.compiler.targets.llvm.native import module_text, named
from firebrick.compiler.targets.llvm.scalar_kernel import cpu_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval

FLOPS_PER_US = 1000.0
"""Assumed number of dependent operations of one thread in a microsecond."""


def lowered(spec: Any, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a specification's naive form.

    Args:
        spec: Specification of any kind.
        inputs: The group's inputs.
        outputs: Its results.
        target: Processor.
    """
    form = naive(spec)
    first = {INPUT: 0, RESULT: len(inputs), TEMPORARY: len(inputs) + len(outputs)}

    def number(b: Buffer) -> int:
        return first[b.origin] + b.number

    cost_us = max(spec.cost.flops / FLOPS_PER_US, spec.cost.nbytes / BYTES_PER_US)
    sites = sites_of(spec)
    parts = []
    for step in form.steps:
        assert isinstance(step.grid, int), "kernels of several axes have a generator"
        scalars = dict(zip([s.name for s in step.function.scalars], step.scalars, strict=True))
        kernel = cpu_kernel(step.function, target, step.grid, scalars)
        kernel = named(kernel, step.function.name.rsplit("_", 1)[0])
        parts.append(LoweredKernel(kernel, tuple(map(number, step.buffers)), cost_us, sites))
    temporary = tuple(t.elements * item_bytes(t.dtype) for t in form.temporaries)
    text = module_text({p.kernel.name: p.kernel for p in parts}.values())
    return Lowered(tuple(parts), temporary, text, (frozenset(),) * len(outputs))
