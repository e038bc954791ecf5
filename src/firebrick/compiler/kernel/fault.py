"""``Fault``: what a launch reports of a ``Check`` that failed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What a launch reports: of several faults the first in this order.

    Attributes:
        site: Number of the check.
        payload: What its error shows: of an index out of range, the index as it was given.
    """

    site: int
    payload: int
