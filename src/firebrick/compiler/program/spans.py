"""Offsets of values in an arena: values that are live at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64
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

    The largest go first, each into the smallest gap, between those that are needed at the same time, in which it fits.
    """
    placed = np.empty((4, len(spans)), np.int64)  # (first, last, offset, end) of assigned spans, sorted by offset
    whole = 0
    for count, span in enumerate(sorted(spans, key=lambda s: (-s.nbytes, s.first))):
        size = rounded(span.nbytes)
        first, last, at, end = placed[:, :count]
        beside = np.flatnonzero((first <= span.last) & (last >= span.first))
        ends = np.zeros(len(beside) + 1, np.int64)
        np.maximum.accumulate(end[beside], out=ends[1:])
        gaps = at[beside] - ends[:-1]
        gaps[gaps < size] = _NONE
        best = int(np.argmin(gaps)) if len(gaps) else 0
        span.at = int(ends[best] if len(gaps) and gaps[best] < _NONE else ends[-1])
        whole = max(whole, span.at + size)
        k = int(np.searchsorted(at, span.at, "right"))
        placed[:, k + 1 : count + 1] = placed[:, k:count].copy()
        placed[:, k] = span.first, span.last, span.at, span.at + size
    return whole
