"""Compiled kernels as functions of NumPy arrays: a fused node's kernel, run by one native call.

Operands that do not lie row by row are copied so; a destination that does not is refused, and a new array returned. Several
threads may call one function at once: each call takes a table of addresses for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from firebrick.compiler import Kernel
from firebrick.compiler.kernel import ROWS
from firebrick.compiler.llvm.addresses import AddressTable
from firebrick.compiler.llvm.arena import ALIGNMENT, ArenaPool, aligned
from firebrick.compiler.llvm.host import Module, compile_many
from firebrick.compiler.llvm.lower import lower
from firebrick.compiler.llvm.lowered import Lowered
from firebrick.compiler.llvm.segment import Segment
from firebrick.compiler.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.ir import Graph

ARENAS = ArenaPool()
"""Memory that kernels need while they run."""
ALIGNED = 1 << 16
"""From so many bytes on, results begin at a multiple of a cache line, as kernels that write past the caches want it."""


class Native:
    """A fused node's kernel; call it with the operands, then a destination or None for each result.

    Attributes:
        lowered: The kernel.
    """

    __name__ = "fused"

    def __init__(self, body: Graph, lowered: Lowered) -> None:
        self.body, self.lowered = body, lowered
        self._run: Callable[..., tuple[Any, ...]] | None = None

    def link(self, module: Module) -> None:
        """Take the kernel's code from a module."""
        count = len(self.body.inputs) + len(self.body.outputs)
        places: list[int | tuple[int, int]] = [*range(count)]
        arena = 0
        for nbytes in self.lowered.temporary:
            places.append((count, arena))
            arena += -(-nbytes // ALIGNMENT) * ALIGNMENT
        segment = Segment(self.lowered.launches(places), [module], name="a fused kernel")
        avals = self.body.avals
        self._run = function(self.body.inputs, [avals[v] for v in self.body.outputs], segment, arena)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if self._run is None:
            link([self])
        assert self._run is not None
        return self._run(*arrays)


def link(natives: Iterable[Native]) -> None:
    """Compile kernels, and link all of them at once."""
    natives = list(natives)
    if natives:
        module = compile_many([n.lowered.text for n in natives])
        for n in natives:
            n.link(module)


def native_kernel(body: Graph) -> Kernel:
    """The kernel of a fused node, not yet compiled."""
    lowered = lower(body, Target.host())
    args = ", ".join(f"{{{i}}}" for i in range(len(body.inputs)))
    outs = ", ".join(f"{{out{i}}}" for i in range(len(body.outputs)))
    return Kernel(
        f"{{run}}({args})", {"run": Native(body, lowered)}, outs=f"{{run}}({args}, {outs})", over=lowered.over, layout=ROWS,
        scratch=sum(lowered.temporary),
    )  # fmt: skip


def function(
    operands: Iterable[Aval], results: Iterable[Aval], segment: Segment, arena: int = 0
) -> Callable[..., tuple[Any, ...]]:
    """A function of arrays, and destinations, that runs a segment whose buffers are these, then ``arena`` bytes."""
    operands, results = list(operands), list(results)
    xs, outs = [f"x{i}" for i in range(len(operands))], [f"out{i}" for i in range(len(results))]
    space: dict[str, Any] = {
        "contiguous": np.ascontiguousarray, "segment": segment, "tables": [], "Table": AddressTable,
        "count": len(xs) + len(outs),
        "arenas": ARENAS, "arena": arena,
    }  # fmt: skip
    lines = [f"def fused({', '.join([*xs, *(f'{o}=None' for o in outs)])}):"]
    for x in xs:
        lines += [f"    if not {x}.flags.c_contiguous:", f"        {x} = contiguous({x})"]
    for k, (out, aval) in enumerate(zip(outs, results, strict=True)):
        space[f"new{k}"] = _allocator(aval)
        lines += [f"    if {out} is None or not {out}.flags.c_contiguous:", f"        {out} = new{k}()"]
    lines += [
        "    try:",
        "        table = tables.pop()",
        "    except IndexError:",
        f"        table = Table({'count + 1' if arena else 'count'})",
        f"    table.put(0, ({', '.join([*xs, *outs])},))",
        *(["    space = arenas.take(arena)", "    table.put(count, (space,))"] if arena else []),
        "    segment(table.address)",
        *(["    arenas.give(space)"] if arena else []),
        "    tables.append(table)",
        f"    return {', '.join(outs)},",
    ]
    exec("\n".join(lines), space)
    made: Callable[..., tuple[Any, ...]] = space["fused"]
    return made


def _allocator(aval: Aval) -> Callable[[], np.ndarray[Any, Any]]:
    """Makes arrays for a result."""
    shape, dtype, nbytes = aval.shape, aval.dtype.np, aval.nbytes
    if nbytes < ALIGNED:
        return lambda: np.empty(shape, dtype)
    return lambda: aligned(nbytes).view(dtype).reshape(shape)
