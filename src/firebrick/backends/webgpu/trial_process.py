"""The process in which the autotuner tries kernels of this engine: one that loses the device or does not return ends here.

WGSL cannot access memory outside of a kernel's arrays. Results and temporaries lie in memory that is filled with a pattern
before each run, and operands must not change. The parent process is that of ``trial``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.backends.webgpu.adapters import adapters
from firebrick.backends.webgpu.buffers import DeviceArray
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.groups import CompiledGroup
from firebrick.backends.webgpu.lowering import LoweredGroup
from firebrick.compiler.tune.child_process import answer_requests
from firebrick.compiler.tune.trial_values import DRAWS, differences, drawn
from firebrick.core.aval import Aval
from firebrick.core.errors import DeviceLostError
from firebrick.scalar.capabilities import Capabilities

Array = np.ndarray[Any, Any]
CANARY = 0xA5
"""The bytes of results and temporaries before a trial."""
SAMPLE_US = 2000.0
"""Minimum time of a sample; shorter groups run several times before it ends."""


class Trial:
    """One problem: its operands and what its kernels must compute.

    Args:
        gpu: The device.
        inputs: Operands.
        default: Kernels of the default variant.
        reference: Those of the naive form; None if they would take too long.
    """

    def __init__(self, gpu: Gpu, inputs: Sequence[Aval], default: LoweredGroup, reference: LoweredGroup | None) -> None:
        self._gpu, self._default, self._reference = gpu, default, reference
        self._groups: dict[str, CompiledGroup] = {}
        self._wanted: dict[str, list[Array] | str] = {}
        rng = np.random.default_rng(0)
        self._hosts = {how: [drawn(rng, how, a.shape, a.dtype.np) for a in inputs] for how in DRAWS}
        self._data = {
            how: [gpu.uploaded(x, a) for x, a in zip(hosts, inputs, strict=True)] for how, hosts in self._hosts.items()
        }

    def prepare(self) -> str:
        """Compute what is expected; says what is wrong with the default."""
        group = self._group("default", self._default)
        self._wanted = {how: self._ran(group, data) for how, data in self._data.items()}
        if self._reference is None:
            return ""
        found = self._ran(CompiledGroup(self._gpu, self._reference), self._data["exact"])
        wrong = differences(self._wanted["exact"], found, same=False, exact=False)
        return f"it differs from its reference: {wrong}" if wrong else ""

    def check(self, name: str, kernels: LoweredGroup, same: bool, exact: bool) -> str:
        """What is wrong with a variant; empty if its results are those that are expected.

        Args:
            name: Its name.
            kernels: Its kernels.
            same: Whether its results must equal the default's in every bit.
            exact: Whether results of small integers must.
        """
        group = self._group(name, kernels)
        for how, data in self._data.items():
            wrong = differences(self._wanted[how], self._ran(group, data), same, exact and how == "exact")
            if wrong:
                return f"{wrong} ({how} operands)"
            for k, (x, host) in enumerate(zip(data, self._hosts[how], strict=True)):
                if self._gpu.read(x).tobytes() != host.tobytes():
                    return f"it changed operand {k}"
        return ""

    def times(self, variants: Sequence[tuple[str, LoweredGroup]], rounds: int) -> dict[str, list[float]]:
        """Microseconds of each round by name; in a round every variant is timed once."""
        groups = [(name, self._group(name, kernels)) for name, kernels in variants]
        repeats = {name: max(1, min(64, int(SAMPLE_US / max(self._took(group, 1), 1.0)))) for name, group in groups}
        found: dict[str, list[float]] = {name: [] for name, _ in groups}
        for _ in range(rounds):
            for name, group in groups:
                found[name].append(self._took(group, repeats[name]))
        return found

    def _group(self, name: str, kernels: LoweredGroup) -> CompiledGroup:
        if name not in self._groups:
            self._groups[name] = CompiledGroup(self._gpu, kernels)
        return self._groups[name]

    def _ran(self, group: CompiledGroup, data: Sequence[DeviceArray]) -> list[Array] | str:
        """The results, or the text of an index that is out of range, which is a result of the group like others."""
        gpu = self._gpu
        # other bits than those of a run before, which a kernel that stores nothing would find in the same memory
        made = [gpu.uploaded(np.full(a.nbytes, CANARY, np.uint8), a) for a in group.written]
        try:
            return [gpu.read(x).copy() for x in group.run_in(made, data)]
        except IndexError as e:
            return str(e)

    def _took(self, group: CompiledGroup, repeat: int) -> float:
        """Microseconds of a run."""
        self._gpu.wait()
        start = time.perf_counter()
        for _ in range(repeat):
            with contextlib.suppress(IndexError):
                group(*self._data["normal"])
        self._gpu.wait()
        return (time.perf_counter() - start) * 1e6 / repeat


def opened(index: int, capabilities: Capabilities) -> Gpu | str:
    """A device, or why it is not that of the parent process."""
    found = adapters()
    if index >= len(found):
        return f"this process finds {len(found)} adapters, and none of number {index}"
    gpu = Gpu(found[index], index)
    return gpu if gpu.measured.capabilities == capabilities else "this process measures other properties of the adapter"


def main() -> None:
    """Answer the parent's requests until it closes the pipe."""
    devices: dict[int, Gpu] = {}
    trial: Trial | None = None

    def answer(request: dict[str, Any]) -> Any:
        nonlocal trial
        try:
            if request["step"] == "prepare":
                gpu = devices.get(request["index"]) or opened(request["index"], request["capabilities"])
                if isinstance(gpu, str):
                    return gpu
                devices[request["index"]] = gpu
                trial = Trial(gpu, request["inputs"], request["default"], request["reference"])
                return trial.prepare()
            assert trial is not None
            if request["step"] == "check":
                return trial.check(request["name"], request["kernels"], request["same"], request["exact"])
            return trial.times(request["variants"], request["rounds"])
        except DeviceLostError as e:
            return {"ended": f"it lost the device: {e}"}

    answer_requests(answer)
