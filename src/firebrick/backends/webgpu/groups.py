"""Fusion groups on a device: their launches (``lowering``), recorded with the buffers of a call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from firebrick.backends.webgpu.buffers import DeviceArray, padded
from firebrick.backends.webgpu.commands import Gpu, PreparedLaunch
from firebrick.backends.webgpu.lowering import LoweredGroup, lowered_body, lowered_view
from firebrick.compiler.spec.faults import LARGEST_SITE
from firebrick.core.aval import Aval
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.core.views import View
from firebrick.ir import Graph
from firebrick.ir.keys import key_of

_KEPT = 512
"""Maximum number of groups whose kernels are kept."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A launch of a group's kernel."""

    launch: PreparedLaunch
    arrays: tuple[int, ...]  # of inputs, results and temporaries, in this order


class CompiledGroup:
    """The kernels of a group on a device.

    Args:
        gpu: The device.
        group: The launches.

    Raises:
        KernelCompileError: The driver refuses a kernel.
    """

    def __init__(self, gpu: Gpu, group: LoweredGroup) -> None:
        self._gpu, self._sites = gpu, group.sites
        self._made = [(padded(a.nbytes), a) for a in (*group.results, *group.temporaries)]
        self._count = len(group.results)
        self._steps = [_Step(gpu.prepared(s.shader, s.sizes, s.scalars, s.grid), s.arrays) for s in group.launches]

    def __call__(self, *arrays: DeviceArray) -> tuple[DeviceArray, ...]:
        """Record the launches.

        Raises:
            OutOfRangeError: An index is out of range.
        """
        gpu = self._gpu
        with gpu.lock:
            made = gpu.arrays(self._made)
            memory = [x.lease for x in (*arrays, *made)]
            if self._sites:
                gpu.clear_faults()
            for s in self._steps:
                gpu.launch(s.launch, [memory[k] for k in s.arrays])
            if self._sites:
                self._raise_fault()
        return tuple(made[: self._count])

    def _raise_fault(self) -> None:
        words = self._gpu.faults(len(self._sites))
        if words[0]:
            site = LARGEST_SITE - int(words[0])
            payload = (0xFFFFFFFF - int(words[1 + site])) - (1 << 31)
            raise self._sites[site].error(payload)


class Groups:
    """The compiled groups of a device, by their bodies; what cannot be compiled is remembered with the reason.

    Args:
        gpu: The device.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._made: OrderedDict[object, CompiledGroup | str] = OrderedDict()
        self._lock = threading.RLock()

    def of_body(self, body: Graph) -> CompiledGroup | str:
        """The kernels of a group, or why there are none."""
        lines = tuple(n.line for n in body.nodes)  # which faults report
        return self._kept(("body", key_of(body), lines), lambda: lowered_body(body, self.gpu.measured))

    def of_view(self, view: View, source: Aval, result: Aval) -> CompiledGroup | str:
        """The kernel that copies a view of an array."""
        return self._kept(("view", view, source, result), lambda: lowered_view(view, source, result, self.gpu.measured))

    def _kept(self, key: object, lower: Callable[[], LoweredGroup]) -> CompiledGroup | str:
        with self._lock:
            found = self._made.get(key)
            if found is None:
                try:
                    found = CompiledGroup(self.gpu, lower())
                except (UnsupportedError, DTypeError) as e:
                    found = str(e)
                self._made[key] = found
                while len(self._made) > _KEPT:
                    self._made.popitem(last=False)
            else:
                self._made.move_to_end(key)
            return found
