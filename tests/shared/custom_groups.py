"""Kernels of the kernel language as groups of one node, with their operands."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from kernel_programs import PROGRAMS

import firebrick as fb
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.kinds import spec_of
from firebrick.core.aval import Aval
from firebrick.ir import Graph

Array = np.ndarray[Any, Any]
K = fb.kernel


@dataclass(frozen=True)
class KernelGroup:
    """A group of one kernel.

    Attributes:
        body: The group.
        arrays: The operands.
        spec: Its specification.
    """

    body: Graph
    arrays: tuple[Array, ...]
    spec: Custom

    @property
    def results(self) -> list[Aval]:
        """Shapes and dtypes of the results."""
        return [self.body.avals[v] for v in self.body.outputs]


def kernel_group(kernel: Any, *arguments: Any) -> KernelGroup | None:
    """The group of a call of a kernel with arrays and numbers; None for one that is elementwise, as it is a map."""
    given = [fb.asarray(a, device="cpu") if isinstance(a, np.ndarray) else a for a in arguments]
    op, operands, params = kernel.operation(*given, device="cpu")
    if op.kind != "custom":
        return None
    body = Graph([Aval(t.shape, t.dtype) for t in operands])
    body.outputs = body.add(op, *range(len(operands)), **params)
    spec = spec_of(body)
    assert isinstance(spec, Custom)
    return KernelGroup(body, tuple(t.numpy() for t in operands), spec)


def program_group(name: str, size: int) -> KernelGroup | None:
    """The group of a program of ``kernel_programs``."""
    return kernel_group(PROGRAMS[name].kernel, *PROGRAMS[name].inputs(np.random.default_rng(size), size))


@K(grid="n")
def picked(
    x: K.In[fb.float32, "m"],
    at: K.In[fb.int64, "n"],
    scale: float,
    out: K.Out[fb.float32, "n"],
    odd: K.Out[fb.float32, "n", 0.5],
    count: K.InOut[fb.int64, "bins"],
):
    """Elements by index, every other one again over 0.5, and how often each class of them is read."""
    i = K.index()
    out[i] = x[at[i]] * scale
    if i % 2 == 1:
        odd[i] = x[at[i]]
    K.atomic_add(count, at[i] % count.size, 1)


def picked_group(n: int = 6, m: int = 4, bins: int = 3) -> KernelGroup:
    """The group of ``picked``."""
    at = np.arange(n) % m
    found = kernel_group(picked, np.arange(m, dtype=np.float32) + 1, at, 2.0, np.arange(bins))
    assert found is not None
    return found
