"""Where values lie in an arena: no two that are needed at the same time share a byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(slots=True, eq=False)
class Span:
    """Memory that is needed from step ``first`` to step ``last``, both included; ``at`` is where ``arranged`` puts it."""

    nbytes: int
    first: int
    last: int
    at: int = 0


def rounded(nbytes: int) -> int:
    """The bytes of an arena that a value takes: some even if it is empty, for what has an address lies in an arena."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


def arranged(spans: Sequence[Span]) -> int:
    """Give each span its place, a multiple of 64 bytes; returns the bytes of the arena.

    The largest go first, each into the smallest gap, between those that are needed at the same time, in which it fits.
    """
    placed: list[Span] = []
    whole = 0
    for span in sorted(spans, key=lambda s: (-s.nbytes, s.first)):
        size = rounded(span.nbytes)
        end, best, room = 0, -1, 0
        for other in placed:  # in the order of their places
            if other.first <= span.last and span.first <= other.last:
                gap = other.at - end
                if gap >= size and (best < 0 or gap < room):
                    best, room = end, gap
                end = max(end, other.at + rounded(other.nbytes))
        span.at = end if best < 0 else best
        whole = max(whole, span.at + size)
        at = next((i for i, other in enumerate(placed) if other.at > span.at), len(placed))
        placed.insert(at, span)
    return whole
