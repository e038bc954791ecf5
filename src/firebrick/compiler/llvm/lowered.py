"""``Lowered``: what a group of nodes, or a node of its own, is in kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firebrick.compiler.llvm.contract import Contraction
from firebrick.compiler.llvm.host import AS_WRITTEN
from firebrick.compiler.llvm.native import NativeKernel
from firebrick.compiler.llvm.segment import Launch, Place, chunk_of

# Rates of one thread for the estimate of a kernel's time, which decides on how many threads it runs: bytes from memory and
# elements of one operation, and a contraction's multiplications and additions, per microsecond.
BYTES_PER_US, STEPS_PER_US, FLOPS_PER_US = 1.0e4, 2.0e4, 5.0e4


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel of a body.

    Attributes:
        kernel: Its code.
        buffers: The body's inputs, then its results, then temporary ones, by number.
        cost_us: Estimate of its time on one thread, in microseconds.
        places: Where its faults come from: number ``k`` of a fault word is ``places[k]``.
    """

    kernel: NativeKernel
    buffers: tuple[int, ...]
    cost_us: float
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Lowered:
    """A body's kernels.

    Attributes:
        parts: In the order in which they run.
        temporary: Bytes of each temporary buffer.
        text: The module of the kernels.
        over: For each result, the inputs whose memory it may take: every element is read where the result's is written, and
            nowhere else.
    """

    parts: tuple[Part, ...]
    temporary: tuple[int, ...]
    text: str
    over: tuple[frozenset[int], ...]

    @property
    def cost_us(self) -> float:
        """Estimate of its time on one thread."""
        return sum(p.cost_us for p in self.parts)

    def launches(self, at: Sequence[int | tuple[int, int]]) -> list[Launch]:
        """The launches of the kernels.

        Args:
            at: Where the addresses of the body's inputs, its results and its temporary buffers stand in the segment's array.
        """
        return [
            Launch(
                p.kernel.name, tuple(at[i] for i in p.buffers), p.kernel.grid, chunk_of(p.kernel.grid, p.cost_us),
                p.kernel.scratch, p.cost_us, p.places,
            )
            for p in self.parts
        ]  # fmt: skip

    def of(self, inputs: Sequence[int], count: int) -> Lowered:
        """The same kernels for a body with ``count`` inputs, of which ``inputs`` are those that the kernels know as 0, 1, …"""
        own, more = len(inputs), count - len(inputs)

        def buffer(b: int) -> int:
            return inputs[b] if b < own else b + more

        parts = tuple(Part(p.kernel, tuple(map(buffer, p.buffers)), p.cost_us, p.places) for p in self.parts)
        return Lowered(parts, self.temporary, self.text, tuple(frozenset(inputs[i] for i in o) for o in self.over))


def contracted(made: Sequence[tuple[Contraction, tuple[int, int]]], count: int) -> Lowered:
    """Contractions, of which operands of ``count``, that give one result together."""
    parts: list[Part] = []
    sizes: list[int] = []
    functions: dict[str, str] = {}
    declarations: set[str] = set()
    for c, order in made:
        space = count + 1 + len(sizes)
        sizes.append(c.workspace)
        functions.update(c.functions)
        declarations |= c.declarations
        for k in c.kernels:
            cost = k.flops / FLOPS_PER_US or c.workspace / BYTES_PER_US
            parts.append(Part(NativeKernel(k.name, "", frozenset(), 4, k.grid, k.scratch), (*order, count, space), cost))
    text = AS_WRITTEN + "\n".join([*sorted(declarations), *functions.values(), ""])
    return Lowered(tuple(parts), tuple(sizes), text, (frozenset(),))
