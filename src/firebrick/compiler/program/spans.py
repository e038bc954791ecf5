"""Offsets of values in an arena: values that are live at the same time do not overlap.

Where memory serves several values, one after the other, the halves of a large value are placed in the halves of those before
it, if that costs little memory: the first half of a kernel's grid writes the first half of its result, and a thread takes the
same part of each grid (``backends.cpu.runtime.forkjoin``), so it then writes where it wrote before. Lines that another core
has written last take several times as long, where cores share no cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64
LARGE = 1 << 16
"""Bytes of a value whose halves are placed; smaller ones are mostly computed by one thread."""
SHARED = 1 << 20
"""Bytes of an arena from which on they are: smaller ones are in the cache of a core."""
ROOM = 20
"""The arena may grow by this part of it (a twentieth) before a place costs memory: there are more places then."""
MIDDLES = 16
"""Number of values, the largest ones, in the middle of which others are tried to be placed."""
_NONE = 1 << 62


@dataclass(slots=True, eq=False)
class Span:
    """Memory that is needed from step ``first`` to step ``last``, both included; ``at`` is where ``arranged`` puts it."""

    nbytes: int
    first: int
    last: int
    at: int = 0


def rounded(nbytes: int) -> int:
    """The bytes of an arena that a value occupies: more than 0 even for an empty one, so that its address is in the arena."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


def arranged(spans: Sequence[Span]) -> int:
    """Assign each span an offset, a multiple of 64 bytes; returns the bytes of the arena.

    The largest go first, each into the smallest gap, between those that are needed at the same time, in which it fits; in an
    arena of ``SHARED`` bytes or more, large ones to where their halves cover those of others, if the arena takes at most an
    eighth more memory then.
    """
    whole = _placed(spans)
    if whole < SHARED:
        return whole
    before = [s.at for s in spans]
    found = _placed(spans, rounded(whole + whole // ROOM))
    if 8 * found <= 9 * whole:
        return found
    for span, at in zip(spans, before, strict=True):
        span.at = at
    return whole


def _placed(spans: Sequence[Span], halves_within: int | None = None) -> int:
    """Assign the offsets; returns the end of the last span.

    Args:
        spans: Whose offsets are assigned.
        halves_within: Bytes of the arena, if the halves of large spans are looked at.
    """
    placed = np.empty((4, len(spans)), np.int64)  # (first, last, offset, end) of assigned spans, sorted by offset
    large = np.empty((2, len(spans)), np.int64)  # (offset, end) of large ones, the largest first
    whole, many = 0, 0
    for count, span in enumerate(sorted(spans, key=lambda s: (-s.nbytes, s.first))):
        size = rounded(span.nbytes)
        first, last, at, end = placed[:, :count]
        beside = np.flatnonzero((first <= span.last) & (last >= span.first))
        begins = np.zeros(len(beside) + 1, np.int64)
        np.maximum.accumulate(end[beside], out=begins[1:])
        stops = np.append(at[beside], _NONE)
        fits = stops - begins >= size
        begins, stops = begins[fits], stops[fits]
        if halves_within is not None and size >= LARGE:
            stops[-1] = max(halves_within, begins[-1] + size)
            span.at = _aligned(size, begins, stops, large[:, :many], halves_within)
            large[:, many] = span.at, span.at + size
            many += 1
        else:
            span.at = int(begins[np.argmin(stops - begins)])
        whole = max(whole, span.at + size)
        k = int(np.searchsorted(at, span.at, "right"))
        placed[:, k + 1 : count + 1] = placed[:, k:count].copy()
        placed[:, k] = span.first, span.last, span.at, span.at + size
    return whole


def _aligned(size: int, begins: np.ndarray, stops: np.ndarray, large: np.ndarray, whole: int) -> int:
    """The offset at which a span writes the fewest bytes in the other half of a large one.

    Args:
        size: Of the span.
        begins: Of the gaps in which it fits, in ascending order.
        stops: Their ends.
        large: Offsets and ends of the large spans that have their place.
        whole: Bytes of the arena that are there anyway.
    """
    at, end = large
    middles = (at + end) // 2
    tried = (middles[:MIDDLES] - size // 2) // ALIGNMENT * ALIGNMENT
    tried = tried[((tried[:, None] >= begins) & (tried[:, None] + size <= stops)).any(1)]
    tried = np.concatenate([begins, stops - size, tried])
    gap = np.searchsorted(begins, tried, "right") - 1
    # of what both occupy, the bytes between the two middles are written by different threads
    middle = tried[:, None] + size // 2
    low = np.maximum(np.maximum(tried[:, None], at), np.minimum(middle, middles))
    high = np.minimum(np.minimum(tried[:, None] + size, end), np.maximum(middle, middles))
    apart = np.maximum(high - low, 0).sum(1)
    grown = np.maximum(tried + size - whole, 0)
    return int(tried[np.lexsort((tried, (stops - begins)[gap], apart, grown))[0]])
