"""``Lowered``: what a group of nodes, or a node of its own, is in kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firebrick.compiler.program.launch import Launch, chunk_of
from firebrick.compiler.spec.base import Fault
from firebrick.compiler.targets.llvm.contract import Contraction
from firebrick.compiler.targets.llvm.host import AS_WRITTEN
from firebrick.compiler.targets.llvm.native import NativeKernel

# Rates of one thread for the estimate of a kernel's time, which decides on how many threads it runs: bytes from memory and
# elements of one operation, and a contraction's multiplications and additions, per microsecond.
BYTES_PER_US, STEPS_PER_US, FLOPS_PER_US = 1.0e4, 2.0e4, 5.0e4

At = int | tuple[int, int]
"""A buffer's number, or a number and a distance in bytes."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel of a body.

    Attributes:
        kernel: Its code.
        buffers: The body's inputs, then its results, then temporary ones, by number.
        cost_us: Estimate of its time on one thread, in microseconds.
        faults: The checks of indices that its status word names, by number.
    """

    kernel: NativeKernel
    buffers: tuple[At, ...]
    cost_us: float
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Lowered:
    """A body's kernels.

    Attributes:
        parts: In the order in which they run.
        temporary: Bytes of each temporary buffer.
        text: The module of the kernels.
        over: For each result, the inputs whose memory it may take: every element is read where the result's is written, and
            nowhere else.
        doubt: Why they are not proved to compute what the body's nodes mean (``validate``); empty if they are, and of kinds
            that are not validated.
    """

    parts: tuple[Part, ...]
    temporary: tuple[int, ...]
    text: str
    over: tuple[frozenset[int], ...]
    doubt: str = ""

    @property
    def cost_us(self) -> float:
        """Estimate of its time on one thread."""
        return sum(p.cost_us for p in self.parts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The modules that hold the kernels."""
        return (self.text,)

    def launches(self, at: Sequence[At]) -> list[Launch]:
        """The launches of the kernels.

        Args:
            at: Where the addresses of the body's inputs, its results and its temporary buffers stand in the segment's array.
        """
        return [
            Launch(
                p.kernel.name, tuple(within(at, b) for b in p.buffers), p.kernel.grid, chunk_of(p.kernel.grid, p.cost_us),
                p.kernel.scratch, p.cost_us, p.faults,
            )
            for p in self.parts
        ]  # fmt: skip

    def of(self, inputs: Sequence[int], count: int) -> Lowered:
        """The same kernels for a body with ``count`` inputs, of which ``inputs`` are those that the kernels know as 0, 1, …

        One input may stand for several of them; a result may then take its memory only if it may take that of each.
        """
        own, more = len(inputs), count - len(inputs)

        def buffer(b: At) -> At:
            if isinstance(b, tuple):
                return (inputs[b[0]] if b[0] < own else b[0] + more), b[1]
            return inputs[b] if b < own else b + more

        parts = tuple(Part(p.kernel, tuple(map(buffer, p.buffers)), p.cost_us, p.faults) for p in self.parts)
        over = tuple(frozenset(inputs) - {v for i, v in enumerate(inputs) if i not in o} for o in self.over)
        return replace(self, parts=parts, over=over)


def within(at: Sequence[At], buffer: At) -> At:
    """Where a buffer, or what lies at a distance from its beginning, stands in a segment's array."""
    return behind(at[buffer[0]], buffer[1]) if isinstance(buffer, tuple) else at[buffer]


def behind(place: At, distance: int) -> At:
    """What lies so many bytes behind."""
    if not distance:
        return place
    return (place[0], place[1] + distance) if isinstance(place, tuple) else (place, distance)


def contracted(
    made: Sequence[tuple[Contraction, Sequence[int]]], count: int, results: int = 1, more_us: float = 0.0, light: bool = True
) -> Lowered:
    """Contractions that give the same results together.

    Args:
        made: Each, and which of ``count`` operands are its A, its B, and those of its epilogue.
        count: How many operands there are.
        results: How many results.
        more_us: Estimate of the time that their epilogues take, on one thread.
        light: Whether epilogues are so short that passes over the code gain nothing.
    """
    parts: list[Part] = []
    sizes: list[int] = []
    functions: dict[str, str] = {}
    declarations: set[str] = set()
    for c, order in made:
        buffers = *order, *range(count, count + results), count + results + len(sizes)
        sizes.append(c.workspace)
        functions.update(c.functions)
        declarations |= c.declarations
        for i, k in enumerate(c.kernels):
            cost = k.flops / FLOPS_PER_US or c.workspace / BYTES_PER_US
            cost += more_us / len(made) if i == len(c.kernels) - 1 else 0.0
            parts.append(Part(NativeKernel(k.name, "", frozenset(), len(buffers), k.grid, k.scratch), buffers, cost))
    text = (AS_WRITTEN if light else "") + "\n".join([*sorted(declarations), *functions.values(), ""])
    return Lowered(tuple(parts), tuple(sizes), text, (frozenset(),) * results)
