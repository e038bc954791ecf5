"""``CpuBackend``: eager operations on NumPy's kernels; compiled graphs on kernels of their own where that is quicker.

Elementwise nodes are fused, all kernels of a graph are linked at once, and the program calls them beside NumPy's for the rest.
Where the system lets no program run code that it made, the engine says so once and goes on with NumPy's kernels alone.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from firebrick.backends.cpu.native import compiled, kinds_of, native_kernel
from firebrick.backends.numpy.engine import HostBackend
from firebrick.compiler import Executable, Kernel, call, choose, plan_memory, write
from firebrick.compiler.fuse import fuse
from firebrick.compiler.fused import FUSED
from firebrick.compiler.llvm.lower import kind_of
from firebrick.compiler.llvm.pool import native as native_pool
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.errors import KernelCompileError, ShapeError
from firebrick.core.op import Op
from firebrick.ir import Graph, Node
from firebrick.ir.nested import nodes_in

_SHOWN = 12
"""Reasons of one kind, and kernels, that ``explain`` lists."""


class CompiledWarning(UserWarning):
    """Compiled kernels cannot be used on this system."""


class CpuBackend(HostBackend):
    """Firebrick's own CPU engine."""

    engine = "cpu"
    platforms = ("cpu",)

    def __init__(self) -> None:
        super().__init__()
        self._usable: bool | None = None

    @property
    def compiles(self) -> bool:
        """Whether graphs get kernels of their own."""
        if not config.cpu_compile:
            return False
        if self._usable is None:
            try:
                native_pool()
                self._usable = True
            except (KernelCompileError, ImportError, OSError) as e:
                self._usable = False
                warnings.warn(f"the cpu engine runs compiled graphs on NumPy's kernels: {e}", CompiledWarning, stacklevel=2)
        return self._usable

    def compile(
        self, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = ()
    ) -> Executable:
        if not self.compiles:
            return super().compile(graph, device, donate, ready)
        device = device or self.first_device()
        given = tuple(donate)
        if any(not 0 <= i < len(graph.inputs) for i in given):
            raise ShapeError(f"donated inputs are numbers below {len(graph.inputs)}", str(given), "give up inputs only")
        reasons: list[str] = []
        fused = fuse(graph, kind_of, reasons)
        kernels = choose(self, fused, device)
        kinds = kinds_of(fused, kernels)
        plan, runs, segments = compiled(kinds, kernels, plan_memory(fused, kernels, given, ready, kinds.arrange))
        program = write(self, fused, kernels, plan, device, runs)
        program.notes += _notes(fused, kernels, reasons)
        return program

    def kernel(
        self,
        op: Op,
        operands: tuple[Aval, ...],
        params: dict[str, Any],
        results: tuple[Aval, ...],
        device: Device | None,
        known: tuple[np.ndarray[Any, Any] | None, ...],
    ) -> Kernel:
        if op is FUSED:
            if self.compiles:
                return native_kernel(params["body"])
            return call(lambda *natives: self.execute(op, natives, params), len(operands), {})
        return super().kernel(op, operands, params, results, device, known)


def _notes(graph: Graph, kernels: Sequence[Kernel | None], reasons: list[str]) -> list[str]:
    """What was fused, and why not more."""
    lines = []
    made = [(n, k.names["run"]) for n, k in zip(graph.nodes, kernels, strict=True) if k is not None and n.op is FUSED]
    inside = sum(n.op.fusion in ("map", "row", "contract") and n.op is not FUSED for n in nodes_in(n for n, _ in made))
    lines.append(
        f"compiled kernels: {len({p.kernel.name for _, run in made for p in run.lowered.parts})} for {inside} operations"
    )
    for n, run in made[:_SHOWN]:
        lines.append(f"  {_described(n)}: about {run.lowered.cost_us:.1f} µs on one thread")
    if len(made) > _SHOWN:
        lines.append(f"  and {len(made) - _SHOWN} more")
    left = Counter(reasons)
    if left:
        lines.append(f"operations without one: {sum(left.values())}")
        lines += [f"  {reason}" + (f" × {n}" if n > 1 else "") for reason, n in left.most_common(_SHOWN)]
        if len(left) > _SHOWN:
            lines.append(f"  and {sum(n for _, n in left.most_common()[_SHOWN:])} more")
    return lines


def _described(n: Node) -> str:
    """What a fused node does, on what."""
    ops = Counter(m.op.name for m in n.params["body"].nodes if m.op.name != "constant")
    text = ", ".join(f"{name} × {count}" if count > 1 else name for name, count in ops.items())
    return f"{', '.join(map(str, n.avals))} = {text}"
