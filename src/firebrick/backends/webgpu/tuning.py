"""``selected``: the launches of a group on a device, by the variant that the autotuner has chosen. Variants are
tried in a process of its own (``trial``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from firebrick.backends.webgpu.adapters import Adapter
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.groups import default_launches, lowered_or_reason
from firebrick.backends.webgpu.lowering import LoweredGroup, lowered_body
from firebrick.backends.webgpu.measurements import identity_of
from firebrick.backends.webgpu.variants import variants
from firebrick.compiler.naive import naive
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.faults import sites_of
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.compared import Tuned, is_untuned
from firebrick.compiler.tune.records import Record
from firebrick.compiler.tune.variant import KernelProblem, KernelVariant, added, problem_of
from firebrick.ir import Graph

MOST_BYTES = 256 << 20
"""Maximum bytes of operands and results of a problem that is tuned."""
LONGEST = 1 << 32
"""Maximum operations of a naive form that checks the default."""


@lru_cache(maxsize=16)
def _identity(adapter: Adapter) -> str | None:
    found = identity_of(adapter)
    return None if found is None else json.dumps(found, sort_keys=True)


def device_key(gpu: Gpu) -> str | None:
    """Identifies an adapter for the records of the autotuner: model, driver, limits, versions, what was measured; None if
    its driver does not report a version."""
    identity, a = _identity(gpu.adapter), gpu.adapter
    return None if identity is None else f"{a.name} through {a.api}\n{identity}\n{gpu.measured.capabilities}"


def selected(body: Graph, gpu: Gpu) -> tuple[LoweredGroup | str, Tuned | None]:
    """The launches of a group of nodes, or why there are none; and the variant that they are of, unless it is the default.

    Raises:
        UnsupportedError: No variant of a forced name is valid for the group.
    """
    default, _ = default_launches(body, gpu)
    device = device_key(gpu) or f"{gpu.adapter.name} of no version"
    # what no kernel computes has no variants either
    if isinstance(default, str) or is_untuned() or not choice.active(device):
        return default, None
    variant, tuned = _chosen(body, kinds.spec_of(body), gpu, device)
    if variant is None:
        return default, None
    return lowered_or_reason(lambda: lowered_body(body, gpu.measured, lambda spec: variant.build())), tuned


def _chosen(
    body: Graph, spec: kinds.KernelSpec, gpu: Gpu, device: str
) -> tuple[KernelVariant, Tuned] | tuple[None, None]:  # fmt: skip
    """The variant of a group; None for the default."""
    problem, offered = problem_of(body, spec, device), variants(spec, gpu.measured)
    offered += added(spec, problem, offered[0])
    if len(offered) == 1:
        return None, None
    outputs = [body.avals[v] for v in body.outputs]

    def tried(problem: KernelProblem, competing: Sequence[KernelVariant]) -> Record:
        from firebrick.backends.webgpu.trial import GpuBench  # imported here, since few processes measure
        from firebrick.compiler.tune.searching import search

        reference = naive(spec, gpu.measured.capabilities.float64) if spec.cost.flops <= LONGEST else None
        bench = GpuBench(gpu, body.inputs, outputs, sites_of(spec), offered[0], reference, spec.cost.flops)
        return search(problem, competing, bench, choice.records_of(device).barred(problem.structure))

    # an adapter whose driver does not report a version is not tuned: nobody would notice another driver
    tunable = device_key(gpu) is not None and sum(a.nbytes for a in (*body.inputs, *outputs)) <= MOST_BYTES
    found = choice.chosen(problem, offered, tried if tunable else None)
    if found is offered[0]:
        return None, None
    return found, (problem, found.name, found.order == offered[0].order)
