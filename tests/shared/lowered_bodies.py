"""Running the kernels of one group of nodes on NumPy arrays, on any number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler.targets.llvm.host import compile_many
from firebrick.compiler.targets.llvm.lower import lower
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.ir import CONSTANT, Graph
from firebrick.ops import OPS

Array = np.ndarray[Any, Any]


def body_of(arrays: Sequence[Array], *nodes: tuple[str, tuple[int, ...], dict[str, Any]], outputs: Sequence[int] = ()) -> Graph:
    """A body of nodes (name, operands by number, parameters); the last one's results are its outputs if none are named."""
    g = Graph([Aval(a.shape, dtype(a.dtype)) for a in arrays])
    for name, inputs, params in nodes:
        found = g.add(CONSTANT if name == "constant" else OPS[name], *inputs, **params)
    g.outputs = tuple(outputs) or found
    return g


class Body:
    """A compiled group of nodes.

    Args:
        body: The nodes.
        target: What to generate for; this machine.

    Attributes:
        lowered: Its kernels.
    """

    def __init__(self, body: Graph, target: Target | None = None) -> None:
        target = target or Target.host()
        self.body, self.lowered = body, lower(body, target)
        module = compile_many([self.lowered.text], target)
        self.avals = [body.avals[v] for v in body.outputs]
        count = len(body.inputs) + len(self.avals)
        self.spare = [np.full(n + 128, 255, np.uint8) for n in self.lowered.temporary]
        self.spare = [s[-s.ctypes.data % 64 :] for s in self.spare]
        self.segment = Segment(self.lowered.launches(range(count + len(self.spare))), [module])

    def __call__(self, *arrays: Array, out: Sequence[Array] | None = None, pool: Pool | None = None) -> list[Array]:
        """Its results, in new arrays or in ``out``."""
        outs = list(out) if out is not None else [np.full(a.shape, 77, a.dtype.np) for a in self.avals]
        table = AddressTable(len(arrays) + len(outs) + len(self.spare))
        table.put(0, (*arrays, *outs, *self.spare))
        self.segment(table.address, pool)
        return outs


def kernels_of(found: Lowered) -> list[str]:
    """What its kernels are, in order: the part of their names before the hash."""
    return [p.kernel.name.rsplit("_", 1)[0] for p in found.parts]
