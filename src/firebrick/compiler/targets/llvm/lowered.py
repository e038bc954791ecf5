"""``Lowered``: the kernels of a fusion group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from firebrick.compiler.program.launch import At, Launch, chunk_of
from firebrick.compiler.spec.faults import FaultSite
from firebrick.compiler.targets.llvm.contract import Contraction
from firebrick.compiler.targets.llvm.host import AS_WRITTEN
from firebrick.compiler.targets.llvm.native import NativeKernel

# Assumed rates of one thread, per microsecond: bytes of memory traffic, elements of one scalar operation, and a contraction's
# flops. They are constants: a kernel's estimated time determines how it is divided among threads, on every machine alike.
BYTES_PER_US, STEPS_PER_US, FLOPS_PER_US = 1.0e4, 2.0e4, 5.0e4


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """One kernel of a group.

    Attributes:
        kernel: The kernel.
        buffers: Numbers of its buffers: the group's inputs come first, then its results, then temporary buffers.
        cost_us: Estimate of its time on one thread, in microseconds.
        sites: The checks whose faults it reports, by number.
        chunk: How much of its grid a thread takes at a time; by default what the estimate of its time gives.
        packs: Position in ``buffers`` of the operand that the kernel packs into a temporary buffer, and the only one that it
            reads; -1 for other kernels.
    """

    kernel: NativeKernel
    buffers: tuple[At, ...]
    cost_us: float
    sites: tuple[FaultSite, ...] = ()
    chunk: int | None = None
    packs: int = -1

    @property
    def taken(self) -> int:
        """How much of its grid a thread takes at a time; 0 for all of it, on the calling thread."""
        return chunk_of(self.kernel.grid, self.cost_us) if self.chunk is None else self.chunk


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Lowered:
    """The kernels of a group.

    Attributes:
        parts: The kernels, in the order in which they run.
        temporary: Bytes of each temporary buffer.
        text: The module of the kernels.
        over: For each result, the inputs whose memory it may use: an element of these is read only to compute the result's
            element at the same position.
        doubt: The reason why ``validate`` could not prove that they compute the group's nodes; empty if it could, and for kinds
            that are not validated.
    """

    parts: tuple[LoweredKernel, ...]
    temporary: tuple[int, ...]
    text: str
    over: tuple[frozenset[int], ...]
    doubt: str = ""

    @property
    def cost_us(self) -> float:
        """Estimate of its time on one thread."""
        return sum(p.cost_us for p in self.parts)

    @property
    def count(self) -> int:
        """Number of launches."""
        return len(self.parts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The modules that hold the kernels."""
        return (self.text,)

    def launches(self, at: Sequence[At]) -> list[Launch]:
        """The launches of the kernels.

        Args:
            at: Slots in the segment's address array of the group's inputs, its results and its temporary buffers.
        """
        return [
            Launch(
                p.kernel.name, tuple(within(at, b) for b in p.buffers), p.kernel.grid, p.taken,
                p.kernel.scratch, p.cost_us, p.sites,
            )
            for p in self.parts
        ]  # fmt: skip

    def of(self, inputs: Sequence[int], count: int) -> Lowered:
        """The same kernels for a group with ``count`` inputs, whose input ``inputs[k]`` is input k of the kernels.

        Several inputs of the kernels may be one input of the group. A result may use its memory only if it may use that of all
        of them.
        """
        own, more = len(inputs), count - len(inputs)

        def buffer(b: At) -> At:
            if isinstance(b, tuple):
                return (inputs[b[0]] if b[0] < own else b[0] + more), b[1]
            return inputs[b] if b < own else b + more

        parts = tuple(replace(p, buffers=tuple(map(buffer, p.buffers))) for p in self.parts)
        over = tuple(frozenset(inputs) - {v for i, v in enumerate(inputs) if i not in o} for o in self.over)
        return replace(self, parts=parts, over=over)


def within(at: Sequence[At], buffer: At) -> At:
    """The slot of a buffer in a segment's address array, with its byte offset."""
    return at_offset(at[buffer[0]], buffer[1]) if isinstance(buffer, tuple) else at[buffer]


def relocated(launch: Launch, at: Sequence[At]) -> Launch:
    """A launch on other buffers: number k is that at ``at[k]``."""
    return launch.placed(partial(within, at))


def at_offset(buffer: At, nbytes: int) -> At:
    """The memory at a byte offset from a buffer's beginning."""
    if not nbytes:
        return buffer
    return (buffer[0], buffer[1] + nbytes) if isinstance(buffer, tuple) else (buffer, nbytes)


def contracted(
    made: Sequence[tuple[Contraction, Sequence[int]]], count: int, results: int = 1, more_us: float = 0.0
) -> Lowered:
    """Contractions that together compute the same results, such as the classes of an input gradient.

    Args:
        made: Each contraction, with the numbers of its operands: A, B, and those of its epilogue.
        count: Number of operands.
        results: Number of results.
        more_us: Estimate of the time of their epilogues, on one thread.
    """
    parts: list[LoweredKernel] = []
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
            kernel = NativeKernel(k.name, "", frozenset(), len(buffers), k.grid, k.scratch)
            parts.append(LoweredKernel(kernel, buffers, cost, packs=k.packs))
    text = AS_WRITTEN + "\n".join([*sorted(declarations), *functions.values(), ""])
    return Lowered(tuple(parts), tuple(sizes), text, (frozenset(),) * results)
