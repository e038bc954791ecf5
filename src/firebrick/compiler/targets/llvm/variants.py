"""The variants of a specification on processors: other algorithms and blocks of products, other divisions among threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from firebrick.compiler.program.launch import ALIGNED
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.kinds import KernelSpec
from firebrick.compiler.targets.llvm import library_product, products
from firebrick.compiler.targets.llvm.contract.alternatives import alternatives
from firebrick.compiler.targets.llvm.library_product import suits_library
from firebrick.compiler.targets.llvm.lowered import Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.tune.variant import DEFAULT, KernelVariant
from firebrick.core.aval import Aval

CHUNKS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of parts into which a kernel's grid may be divided among threads."""
SAME = "default"
"""The default's order of combination."""


def variants(
    spec: KernelSpec, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target, default: Lowered, threads: int
) -> list[KernelVariant]:
    """The variants of a specification; the first is the default.

    Args:
        spec: The specification.
        inputs: The group's inputs.
        outputs: Its results.
        target: Processor.
        default: The default's kernels.
        threads: Number of threads.
    """
    cost = default.cost_us
    found = [KernelVariant(DEFAULT, SAME, partial(_itself, default), cost_us=cost)]
    if isinstance(spec, Contract):
        for a in alternatives(spec, target):
            build = partial(products.lowered, spec, inputs, outputs, target, a)
            found.append(KernelVariant(a.name, a.order or SAME, build, cost_us=cost * a.cost))
        if suits_library(spec):
            build = partial(library_product.lowered, spec, list(inputs), threads)
            found.append(KernelVariant("library", "library", build, cost_us=0.95 * cost))
    seen = [_chunks(default)]
    # the order of float atomics of a kernel of the kernel language may depend on threads
    for n in CHUNKS if threads > 1 and not isinstance(spec, Custom) else ():
        made = replace(default, parts=tuple(_divided(p, n) for p in default.parts))
        if _chunks(made) not in seen:
            seen.append(_chunks(made))
            name = "threads=1" if n == 1 else f"chunks={n}"
            found.append(KernelVariant(name, SAME, partial(_itself, made), cost_us=cost * (1.05 + 0.01 * n)))
    return found


def _itself(lowered: Lowered) -> Lowered:
    return lowered


def _chunks(lowered: Lowered) -> list[int]:
    return [part.taken for part in lowered.parts]


def _divided(part: LoweredKernel, count: int) -> LoweredKernel:
    """The same kernel, its grid in at most this number of parts."""
    grid = part.kernel.grid
    chunk = -(-grid // count) if count > 1 and grid > 1 else 0
    return replace(part, chunk=chunk if chunk < ALIGNED else -(-chunk // 64) * 64)
