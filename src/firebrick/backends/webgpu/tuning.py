"""``selected``: the launches of a group on a device, by the variant that the autotuner has chosen; and how it tries variants.

Variants run in this process: WGSL cannot reach memory outside of its bindings, and the compiler bounds loops. A variant that
loses the device loses it for the process, so what a run may lose is not tuned in it: ``firebrick tune`` has its own process.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from firebrick.backends.webgpu.adapters import Adapter
from firebrick.backends.webgpu.buffers import DeviceArray
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.groups import CompiledGroup, default_launches, lowered_or_reason
from firebrick.backends.webgpu.lowering import LoweredGroup, lowered, lowered_body
from firebrick.backends.webgpu.measurements import identity_of
from firebrick.backends.webgpu.variants import variants
from firebrick.compiler.naive import Naive, naive
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.faults import FaultSite, sites_of
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.records import Record
from firebrick.compiler.tune.trial_values import DRAWS, differences, drawn
from firebrick.compiler.tune.variant import KernelProblem, KernelVariant, added, problem_of
from firebrick.core.aval import Aval
from firebrick.core.errors import DeviceLostError, FirebrickError
from firebrick.ir import Graph

MOST_BYTES = 256 << 20
"""Maximum bytes of operands and results of a problem that is tuned."""
LONGEST = 1 << 32
"""Maximum operations of a naive form that checks the default."""
CANARY = 0xA5
"""The bytes of results and temporaries before a trial."""
SAMPLE_US = 2000.0
"""Minimum time of a sample; shorter groups run several times before it ends."""


@lru_cache(maxsize=16)
def _identity(adapter: Adapter) -> str | None:
    found = identity_of(adapter)
    return None if found is None else json.dumps(found, sort_keys=True)


def device_key(gpu: Gpu) -> str | None:
    """Identifies an adapter for the records of the autotuner: model, driver, limits, versions, what was measured; None if
    its driver does not report a version."""
    identity, a = _identity(gpu.adapter), gpu.adapter
    return None if identity is None else f"{a.name} through {a.api}\n{identity}\n{gpu.measured.capabilities}"


def selected(body: Graph, gpu: Gpu) -> LoweredGroup | str:
    """The launches of a group of nodes, or why there are none.

    Raises:
        UnsupportedError: No variant of a forced name is valid for the group.
    """
    device = device_key(gpu)
    if device is None or not choice.active(device):
        return default_launches(body, gpu)
    spec = kinds.spec_of(body)
    default = lowered_or_reason(lambda: lowered_body(body, gpu.measured))
    if isinstance(default, str):  # what no kernel computes has no variants either
        return default
    variant = _chosen(body, spec, gpu, device)
    if variant is None:
        return default
    return lowered_or_reason(lambda: lowered_body(body, gpu.measured, lambda spec: variant.build()))


def _chosen(body: Graph, spec: kinds.KernelSpec, gpu: Gpu, device: str) -> KernelVariant | None:
    """The variant of a group; None for the default."""
    problem, offered = problem_of(body, spec, device), variants(spec, gpu.measured)
    offered += added(spec, problem, offered[0])
    if len(offered) == 1:
        return None
    outputs = [body.avals[v] for v in body.outputs]

    def tried(problem: KernelProblem, competing: Sequence[KernelVariant]) -> Record:
        from firebrick.compiler.tune.searching import search  # imported here, since few processes measure

        reference = naive(spec, gpu.measured.capabilities.float64) if spec.cost.flops <= LONGEST else None
        bench = GpuBench(gpu, body.inputs, outputs, sites_of(spec), offered[0], reference)
        return search(problem, competing, bench, choice.records_of(device).barred(problem.structure))

    small = sum(a.nbytes for a in (*body.inputs, *outputs)) <= MOST_BYTES
    found = choice.chosen(problem, offered, tried if small else None)
    return None if found is offered[0] else found


class GpuBench:
    """Tries the variants of one group of nodes on a device.

    Args:
        gpu: The device.
        inputs: Operands of the group.
        outputs: Its results.
        sites: The checks of its kernels.
        default: The default variant.
        reference: The naive form; None if it would take too long.
    """

    bound_us = 0.0

    def __init__(
        self, gpu: Gpu, inputs: Sequence[Aval], outputs: Sequence[Aval], sites: Sequence[FaultSite], default: KernelVariant,
        reference: Naive | None,
    ) -> None:  # fmt: skip
        self._gpu, self._inputs, self._outputs, self._sites = gpu, list(inputs), list(outputs), tuple(sites)
        self._default, self._reference = default, reference
        self._lowered: dict[str, LoweredGroup] = {}
        self._groups: dict[str, CompiledGroup] = {}
        self._wanted: dict[str, list[np.ndarray] | str] = {}
        rng = np.random.default_rng(0)
        self._hosts = {how: [drawn(rng, how, a.shape, a.dtype.np) for a in inputs] for how in DRAWS}
        self._data = {
            how: [gpu.uploaded(x, a) for x, a in zip(hosts, inputs, strict=True)] for how, hosts in self._hosts.items()
        }

    def check(self, variant: KernelVariant) -> str:
        try:
            group = self._group(variant)
            if variant is self._default:
                self._wanted = {how: self._ran(group, data) for how, data in self._data.items()}
                return self._of_reference()
            same = variant.order == self._default.order
            for how, data in self._data.items():
                wrong = differences(self._wanted[how], self._ran(group, data), same, variant.exact and how == "exact")
                if wrong:
                    return f"{wrong} ({how} operands)"
                for x, host in zip(data, self._hosts[how], strict=True):
                    if self._gpu.read(x).tobytes() != host.tobytes():
                        return "it changed an operand"
        except DeviceLostError:
            raise
        except FirebrickError as e:
            return f"{type(e).__name__}: {e}"
        return ""

    def _of_reference(self) -> str:
        """What is wrong with the default, held against the naive form."""
        if self._reference is None:
            return ""
        made = lowered(self._reference, self._inputs, self._outputs, self._gpu.measured, self._sites)
        found = self._ran(CompiledGroup(self._gpu, made), self._data["exact"])
        wrong = differences(self._wanted["exact"], found, same=False, exact=False)
        return f"it differs from its reference: {wrong}" if wrong else ""

    def times(self, variants: Sequence[KernelVariant], rounds: int) -> dict[str, list[float]] | str:
        repeats, found = {}, {v.name: [] for v in variants}  # type: dict[str, int], dict[str, list[float]]
        for v in variants:
            took = self._took(v, 1)
            repeats[v.name] = max(1, min(64, int(SAMPLE_US / max(took, 1.0))))
        for _ in range(rounds):
            for v in variants:
                found[v.name].append(self._took(v, repeats[v.name]))
        return found

    def source(self, variant: KernelVariant) -> str:
        self._group(variant)
        return "\n".join(s.shader.text for s in self._lowered[variant.name].launches)

    def _group(self, variant: KernelVariant) -> CompiledGroup:
        if variant.name not in self._groups:
            made = lowered(variant.build(), self._inputs, self._outputs, self._gpu.measured, self._sites)
            self._lowered[variant.name], self._groups[variant.name] = made, CompiledGroup(self._gpu, made)
        return self._groups[variant.name]

    def _ran(self, group: CompiledGroup, data: Sequence[DeviceArray]) -> list[np.ndarray] | str:
        """The results, or the text of an index that is out of range, which is a result of the group like others."""
        gpu = self._gpu
        # other bits than those of a run before, which a kernel that stores nothing would find in the same memory
        made = [gpu.uploaded(np.full(a.nbytes, CANARY, np.uint8), a) for a in group.written]
        try:
            return [gpu.read(x).copy() for x in group.run_in(made, data)]
        except IndexError as e:
            return str(e)

    def _took(self, variant: KernelVariant, repeat: int) -> float:
        """Microseconds of a run."""
        group, data = self._group(variant), self._data["normal"]
        self._gpu.wait()
        start = time.perf_counter()
        for _ in range(repeat):
            with contextlib.suppress(IndexError):
                group(*data)
        self._gpu.wait()
        return (time.perf_counter() - start) * 1e6 / repeat
