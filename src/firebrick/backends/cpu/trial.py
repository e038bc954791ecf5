"""Trials of kernels in a process of their own (``trial_process``): the cpu engine's ``Bench`` for the autotuner."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.tune.child_process import DEADLINE, ProcessBench, TrialProcess
from firebrick.compiler.tune.variant import KernelVariant
from firebrick.core.aval import Aval

MEMORY = 2 << 30
"""Bytes that a trial may take besides its buffers."""


PROCESS = TrialProcess("firebrick.backends.cpu.trial_process")
"""The process of this program's trials."""


class CpuBench(ProcessBench):
    """Tries the variants of one group of nodes.

    Args:
        inputs: Its operands.
        outputs: Its results.
        default: The default variant.
        reference: Kernels of the naive form; None if they would take too long.
        bound_us: The shortest time that the processor allows; 0 if not known.
    """

    def __init__(
        self, inputs: Sequence[Aval], outputs: Sequence[Aval], default: KernelVariant, reference: Lowered | None,
        bound_us: float,
    ) -> None:  # fmt: skip
        super().__init__(PROCESS, default)
        self.inputs, self.outputs, self.bound_us = inputs, outputs, bound_us
        self._reference = reference

    def built(self, variant: KernelVariant) -> Lowered:
        found: Lowered = variant.build()
        return found

    def seconds(self, *built: Lowered) -> float:
        return DEADLINE + sum(x.cost_us for x in built) * 1e-6 * 100

    def problem(self) -> tuple[dict[str, Any], float]:
        default, reference = self._kept(self.default), self._reference
        nbytes = sum(a.nbytes for a in (*self.inputs, *self.outputs)) + sum(default.temporary)
        request = {
            "inputs": [(a.shape, a.dtype.name) for a in self.inputs], "memory": MEMORY + 16 * nbytes,
            "outputs": [(a.shape, a.dtype.name) for a in self.outputs], "reference": reference, "default": default,
        }  # fmt: skip
        return request, self.seconds(default, *([reference] if reference else []))

    def source(self, variant: KernelVariant) -> str:
        return str(self._kept(variant).text)


@cache
def peaks(threads: int) -> dict[str, float]:
    """The measured rates of this machine, flops and bytes in a microsecond; empty if they could not be measured."""
    with PROCESS.lock:
        answer = PROCESS.ask({"step": "peaks", "threads": threads}, DEADLINE)
    return {} if {"ended", "error"} & answer.keys() else {str(k): float(v) for k, v in answer.items()}


def reference_takes(flops: float, nbytes: float) -> float:
    """Estimated seconds of a naive form, on one thread."""
    return max(flops / 5e8, nbytes / 5e8)
