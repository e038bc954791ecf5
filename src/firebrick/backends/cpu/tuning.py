"""``selected``: the kernels of a group of nodes, by the variant that the autotuner has chosen."""

from __future__ import annotations

import os
import platform
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from firebrick.backends.cpu.runtime.pool import shared_pool
from firebrick.compiler import cache as object_cache
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.kinds import KernelSpec, spec_of
from firebrick.compiler.targets.llvm import naive_form
from firebrick.compiler.targets.llvm.lower import lower
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.targets.llvm.variants import variants
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.compared import Tuned, collect, is_untuned
from firebrick.compiler.tune.records import Record
from firebrick.compiler.tune.variant import KernelProblem, KernelVariant, added, problem_of
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.ir import Graph
from firebrick.ir.keys import key_of

MOST_BYTES = 512 << 20
"""Maximum bytes of operands and results of a problem that is tuned: its trial holds several copies of them."""
KEPT = 512
"""Maximum number of groups whose variants are kept in memory."""
IN_MEMORY = 64 << 20
"""Minimum bytes of operands and results that no cache holds."""
LONGEST = 4.0
"""Maximum estimated seconds of a naive form that checks the default variant."""
_selected: OrderedDict[object, tuple[Lowered, Tuned | None]] = OrderedDict()


@cache
def _processor() -> str:
    """The processor's name, as its system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} logical processors"


@cache
def _device(target: Target) -> str:
    versions = f"llvmlite, LLVM: {object_cache.versions()}"
    return "\n".join([_processor(), f"{target}", target.features, str(target.width_bits), versions])


def device_key() -> str:
    """Identifies this processor for the records of the autotuner: model, features, versions."""
    return _device(Target.host())


def selected(body: Graph) -> Lowered:
    """The kernels of a group of nodes."""
    target = Target.host()
    default = lower(body, target)
    device = _device(target)
    if is_untuned() or not choice.active(device) or not default.parts:
        return default
    threads = shared_pool().threads
    key = key_of(body), tuple(n.line for n in body.nodes), target, config.compiled_with, threads
    found = _selected.get(key)
    if found is None or config.tune == "on":
        spec = spec_of(body)
        found = _selected[key] = _chosen(body, spec, default, target, device, threads)
        while len(_selected) > KEPT:
            _selected.popitem(last=False)
    lowered, tuned = found
    collect(tuned)
    return lowered


def _chosen(
    body: Graph, spec: KernelSpec, default: Lowered, target: Target, device: str, threads: int
) -> tuple[Lowered, Tuned | None]:  # fmt: skip
    problem, outputs = problem_of(body, spec, device, threads), [body.avals[v] for v in body.outputs]
    offered = variants(spec, body.inputs, outputs, target, default, threads)
    offered += added(spec, problem, offered[0])
    if len(offered) == 1:
        return default, None

    def tried(problem: KernelProblem, competing: Sequence[KernelVariant]) -> Record:
        from firebrick.backends.cpu.trial import CpuBench, reference_takes  # imported here, since few processes measure
        from firebrick.compiler.tune.searching import search

        takes = reference_takes(spec.cost.flops, spec.cost.nbytes)
        reference = naive_form.lowered(spec, body.inputs, outputs, target) if takes < LONGEST else None
        bench = CpuBench(body.inputs, outputs, offered[0], reference, _bound_us(spec, outputs, threads))
        return search(problem, competing, bench, choice.records_of(device).barred(problem.structure))

    small = sum(a.nbytes for a in (*body.inputs, *outputs)) + sum(default.temporary) <= MOST_BYTES
    variant = choice.chosen(problem, offered, tried if small else None)
    if variant is offered[0]:
        return default, None
    return replace(variant.build(), doubt=default.doubt), (problem, variant.name, variant.order == offered[0].order)


def _bound_us(spec: KernelSpec, outputs: Sequence[Aval], threads: int) -> float:
    """The shortest time that this machine's arithmetic and memory allow; 0 if neither bounds the problem."""
    from firebrick.backends.cpu.trial import peaks

    rates = peaks(threads)
    if not rates:
        return 0.0
    products = isinstance(spec, Contract) and outputs[0].dtype.name == "float32"
    arithmetic = spec.cost.flops / rates["flops"] if products else 0.0
    return max(arithmetic, spec.cost.nbytes / rates["bytes"] if spec.cost.nbytes > IN_MEMORY else 0.0)
