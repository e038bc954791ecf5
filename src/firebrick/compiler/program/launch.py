"""``Launch``: one kernel of a segment, with its buffers, its grid and the sources of its faults; several sequences of such; or
a jump between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from firebrick.compiler.spec.faults import FaultSite

At = int | tuple[int, int]
"""A position in a segment's array of buffers, or such a position and a byte offset."""

ALIGNED = 1024  # chunks of at least this number of units, if units are contiguous elements, end at a cache line

# Minimum estimated time on one thread of a kernel that runs on several, and of its chunks. The estimate depends on shapes.
PARALLEL_US, CHUNK_US, CHUNKS = 30.0, 15.0, 256


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a segment, several sequences of kernels, or a jump.

    Attributes:
        kernel: Name of its function; empty for sequences and for a jump.
        buffers: For each of its operands and results, a position in the segment's array of buffers, or such a position and
            a byte offset.
        grid: Length of its grid; 0 for nothing to do.
        chunk: How much of the grid a thread takes at a time; 0 for all of it at once, on the calling thread.
        scratch: Bytes of working space that each thread needs.
        cost_us: Estimate of its time on one thread in microseconds; None if not known.
        sites: The checks whose faults it reports, by the numbers that it has for them.
        jump: Of a jump: the distance of the launch that follows, in launches, if there is no buffer or the bool in it is false.
        sequences: Launches of kernels without checks, which are independent of those of other sequences. A thread runs all of a
            sequence, in order.
    """

    kernel: str
    buffers: tuple[At, ...]
    grid: int
    chunk: int = 0
    scratch: int = 0
    cost_us: float | None = None
    sites: tuple[FaultSite, ...] = ()
    jump: int = 0
    sequences: tuple[tuple[Launch, ...], ...] = ()

    def placed(self, where: Callable[[At], At]) -> Launch:
        """The launch with other buffers, those of its sequences too: what ``where`` returns for each."""
        inside = tuple(tuple(x.placed(where) for x in part) for part in self.sequences)
        return replace(self, buffers=tuple(map(where, self.buffers)), sequences=inside)


def in_sequences(parts: Sequence[Sequence[Launch]]) -> Launch:
    """One launch of several sequences, which threads run at the same time."""
    inside = [x for part in parts for x in part]
    scratch = max((x.scratch for x in inside), default=0)
    cost = sum(x.cost_us or 0.0 for x in inside)
    return Launch("", (), len(parts), 1, scratch, cost, sequences=tuple(map(tuple, parts)))


def jump(by: int, unless: At | None = None) -> Launch:
    """A jump over launches, forward or back.

    Args:
        by: Distance of the launch that follows; 1 is the next one.
        unless: The buffer of a bool; if it is true, the next launch follows.
    """
    return Launch("", () if unless is None else (unless,), 1, cost_us=0.0, jump=by)


def chunk_of(grid: int, cost_us: float) -> int:
    """The chunk of a kernel by its estimated time on one thread, from nothing that differs between machines; 0 for direct.

    There are 2ⁿ chunks where the grid can be cut so: then a thread's part of them is the same part of each grid.

    Args:
        grid: Length of its grid.
        cost_us: Estimate for the whole grid in microseconds.
    """
    if grid < 2 or cost_us < PARALLEL_US:
        return 0
    chunks = 1 << (min(grid, CHUNKS, int(cost_us / CHUNK_US)) - 1).bit_length()
    chunk = -(-grid // chunks)
    return chunk if chunk < ALIGNED else -(-chunk // 64) * 64
