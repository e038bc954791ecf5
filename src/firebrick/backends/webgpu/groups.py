"""Fusion groups on a device: their launches (``lowering``), recorded with the buffers of a call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from firebrick.backends.webgpu.buffers import DeviceArray, padded
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.launches import chooser
from firebrick.backends.webgpu.lowering import LoweredGroup
from firebrick.backends.webgpu.stored import stored_body, stored_view
from firebrick.compiler.spec.custom import KernelSite
from firebrick.compiler.spec.faults import LARGEST_SITE, FaultSite, Site
from firebrick.compiler.spec.matrix import MatrixSite
from firebrick.compiler.spec.ranges import Ranges
from firebrick.compiler.tune.compared import Tuned, collect, is_untuned
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.core.views import View
from firebrick.ir import Graph
from firebrick.ir.keys import key_of

_KEPT = 64
"""Maximum number of groups whose kernels are kept when no program has them any more."""


class CompiledGroup:
    """The kernels of a group on a device.

    Args:
        gpu: The device.
        group: The launches.
        tuned: The variant that they are of; None for the default.
        body: The nodes, by which the ranges of operands may prove that no index is out of range; None if they are not known.

    Attributes:
        tuned: The variant that computes it; None for the default.
        written: Of the results, and of the temporaries.
        steps: The launches, each with what takes its arrays from a list of operands, results and temporaries.
        lowered: The launches as they were lowered.

    Raises:
        KernelCompileError: The driver refuses a kernel.
    """

    def __init__(
        self, gpu: Gpu, group: LoweredGroup, tuned: Tuned | None = None, body: Graph | None = None
    ) -> None:  # fmt: skip
        self._gpu, self._sites, self.tuned = gpu, group.sites, tuned
        self.written = (*group.results, *group.temporaries)
        self._made = [(gpu.pool.size_of(padded(a.nbytes)) if a.size else 0, a) for a in self.written]
        self._count = len(group.results)
        self._ranges = Ranges(body) if group.sites and body is not None else None
        self.steps = [(gpu.prepared(s.shader, s.sizes, s.scalars, s.grid), chooser(s.arrays)) for s in group.launches]
        self.lowered = group

    def __call__(self, *arrays: DeviceArray) -> tuple[DeviceArray, ...]:
        """Record the launches.

        Raises:
            OutOfRangeError: An index is out of range.
        """
        if self._sites:
            with self._gpu.lock:
                hold = self._holds(arrays)
                self._gpu.clear_faults()
                made = self._gpu.launched(self.steps, arrays, self._made)
                if not hold:
                    self._raise_fault()
        else:
            made = self._gpu.launched(self.steps, arrays, self._made)
        return tuple(made) if self._count == len(made) else tuple(made[: self._count])

    def run_in(self, made: Sequence[DeviceArray], arrays: Sequence[DeviceArray]) -> tuple[DeviceArray, ...]:
        """Record the launches, with the results and temporaries in the memory of arrays; as ``__call__`` else.

        Args:
            made: Arrays as in ``written``.
            arrays: The operands.
        """
        gpu = self._gpu
        with gpu.lock:
            hold = self._holds(arrays)
            if self._sites:
                gpu.clear_faults()
            gpu.launched(self.steps, (*arrays, *made), ())
            for x in made:
                x.forget()
            if not hold:
                self._raise_fault()
        return tuple(made[: self._count])

    def _holds(self, arrays: Sequence[DeviceArray]) -> bool:
        """Whether no index can be out of range, by what is known of operands that no kernel has written yet."""
        ranges = self._ranges
        return not self._sites or (ranges is not None and ranges.hold([arrays[i].known_range for i in ranges.inputs]))

    def _raise_fault(self) -> None:
        raise_fault(self._gpu.faults(len(self._sites)), self._sites)


def raise_fault(words: np.ndarray[Any, Any], sites: Sequence[FaultSite]) -> None:
    """Raise the error that a table of faults reports, if there is one.

    Args:
        words: The table, uint32.
        sites: The checks, by their numbers in it.
    """
    if words[0]:
        number = LARGEST_SITE - int(words[0])
        site, (payload, *others) = sites[number], [0xFFFFFFFF - int(w) - (1 << 31) for w in words[1 + number :]]
        if isinstance(site, MatrixSite):
            raise site.error(payload, others[0])
        raise site.error(payload, bits=32) if isinstance(site, (Site, KernelSite)) else site.error(payload)


Lowering = Callable[[Graph, Gpu], "tuple[LoweredGroup | str, Tuned | None]"]
"""The launches of a group of nodes on a device, or why there are none; and the variant that they are of, unless it is the
default."""


def lowered_or_reason(lower: Callable[[], LoweredGroup]) -> LoweredGroup | str:
    """The launches of a group, or why there are none."""
    try:
        return lower()
    except (UnsupportedError, DTypeError) as e:
        return str(e)


def default_launches(body: Graph, gpu: Gpu) -> tuple[LoweredGroup | str, None]:
    """The launches of a group of nodes without tuning."""
    return lowered_or_reason(lambda: stored_body(body, gpu.measured)), None


class Groups:
    """The compiled groups of a device, by their bodies; what cannot be compiled is remembered with the reason.

    Args:
        gpu: The device.
        lowering: Gives the launches of a group of nodes.
    """

    def __init__(self, gpu: Gpu, lowering: Lowering = default_launches) -> None:
        self.gpu, self._lowering = gpu, lowering
        self._made: OrderedDict[object, CompiledGroup | str] = OrderedDict()  # the last ones
        self._alive: WeakValueDictionary[object, CompiledGroup] = WeakValueDictionary()
        self._lock = threading.RLock()

    def of_body(self, body: Graph) -> CompiledGroup | str:
        """The kernels of a group, or why there are none."""
        lines = tuple(n.line for n in body.nodes if n.op.indexes is not None)  # which faults report
        key = "body", key_of(body), lines, config.compiled_with, config.tune, is_untuned()
        refused = key, tuple(n.line for n in body.nodes)  # a reason may name lines of all nodes
        found = self._kept(key, refused, lambda: self._lowering(body, self.gpu), body)
        if isinstance(found, CompiledGroup):
            collect(found.tuned)
        return found

    def of_view(self, view: View, source: Aval, result: Aval) -> CompiledGroup | str:
        """The kernel that copies a view of an array."""
        driver = self.gpu.measured

        def lower() -> tuple[LoweredGroup | str, None]:
            return lowered_or_reason(lambda: stored_view(view, source, result, driver)), None

        key = "view", view, source, result
        return self._kept(key, key, lower)

    def _kept(
        self,
        key: object,
        refused: object,
        lower: Callable[[], tuple[LoweredGroup | str, Tuned | None]],
        body: Graph | None = None,
    ) -> CompiledGroup | str:
        with self._lock:
            found = self._made.get(key) or self._alive.get(key) or self._made.get(refused)
            if found is None:
                made, tuned = lower()
                found = made if isinstance(made, str) else CompiledGroup(self.gpu, made, tuned, body)
                if isinstance(found, CompiledGroup):
                    self._alive[key] = found
            at = refused if isinstance(found, str) else key
            self._made[at] = found
            self._made.move_to_end(at)
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
            return found
