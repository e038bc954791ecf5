"""Trials of kernels in a process of their own (``trial_process``): this engine's ``Bench`` for the autotuner.

A variant that loses the device, or does not return, does so there: the tensors of this process are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.lowering import LoweredGroup, lowered
from firebrick.compiler.naive import Naive
from firebrick.compiler.spec.faults import FaultSite
from firebrick.compiler.tune.child_process import DEADLINE, ProcessBench, TrialProcess
from firebrick.compiler.tune.variant import KernelVariant
from firebrick.core.aval import Aval
from firebrick.core.errors import FirebrickError

SLOWEST = 2e7
"""Operations in a second of the slowest kernel on the slowest driver."""
PROCESS = TrialProcess("firebrick.backends.webgpu.trial_process")
"""The process of this program's trials."""


class GpuBench(ProcessBench):
    """Tries the variants of one group of nodes on a device.

    Args:
        gpu: The device.
        inputs: Operands of the group.
        outputs: Its results.
        sites: The checks of its kernels.
        default: The default variant.
        reference: The naive form; None if it would take too long.
        flops: Operations of a run.
    """

    bound_us = 0.0

    def __init__(
        self, gpu: Gpu, inputs: Sequence[Aval], outputs: Sequence[Aval], sites: Sequence[FaultSite], default: KernelVariant,
        reference: Naive | None, flops: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(PROCESS, default)
        self._gpu, self._inputs, self._outputs, self._sites = gpu, list(inputs), list(outputs), tuple(sites)
        self._reference = None if reference is None else self._lowered(reference)
        self._flops = flops

    def built(self, variant: KernelVariant) -> LoweredGroup:
        return self._lowered(variant.build())

    def seconds(self, *built: LoweredGroup) -> float:
        return DEADLINE + len(built) * self._flops / SLOWEST

    def problem(self) -> tuple[dict[str, Any], float]:
        default, reference = self._kept(self.default), self._reference
        request = {
            "index": self._gpu.index, "capabilities": self._gpu.measured.capabilities, "inputs": self._inputs,
            "default": default, "reference": reference,
        }  # fmt: skip
        return request, self.seconds(default, default)

    def source(self, variant: KernelVariant) -> str:
        try:
            return "\n".join(s.shader.text for s in self._kept(variant).launches)
        except FirebrickError as e:
            return f"none: {e}"

    def _lowered(self, form: Naive) -> LoweredGroup:
        return lowered(form, self._inputs, self._outputs, self._gpu.measured, self._sites)
