"""``FusionPolicy``: from which sizes on a target gains by fusion. What may be fused at all does not depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class FusionPolicy:
    """Thresholds of one target.

    Attributes:
        most_nodes: Nodes of a group at most: a kernel's code grows with them, and its values take registers.
        one: Elements from which on a single node has a kernel; below, a kernel's call costs more than it saves.
        two: The same for two nodes.
        more: The same for three or more.
        reduced: The same for groups with reductions.
        shared_bytes: Bytes from which on the two groups that read a value are joined, if neither waits for the other.
        stretch: Contiguous elements from which on a kernel reads parts of rows as fast as a copy of them.
        summed_rows: Rows from which on a sum along the columns is computed together with the rows' own work.
    """

    most_nodes: int
    one: int
    two: int
    more: int
    reduced: int
    shared_bytes: int
    stretch: int
    summed_rows: int

    def smallest(self, nodes: int) -> int:
        """Elements from which on a group of so many nodes has a kernel."""
        return (self.one, self.two, self.more)[min(nodes, 3) - 1]


_changed: dict[str, int] = {}


def in_force(policy: FusionPolicy) -> FusionPolicy:
    """A policy with the numbers that ``thresholds`` replaces."""
    return replace(policy, **_changed) if _changed else policy


@contextmanager
def thresholds(**numbers: int) -> Iterator[None]:
    """Within, every policy of the process has these numbers: for tests and experiments.

    Args:
        numbers: Fields of ``FusionPolicy``.

    Example:
        >>> from firebrick.compiler.fusion.policy import thresholds
        >>> with thresholds(one=0, two=0, more=0, reduced=0):
        ...     pass  # graphs of any size become kernels
    """
    unknown: Any = set(numbers) - set(FusionPolicy.__slots__)
    if unknown:
        raise TypeError(f"thresholds are {', '.join(FusionPolicy.__slots__)}. Received: {', '.join(sorted(unknown))}")
    before = dict(_changed)
    _changed.update(numbers)
    try:
        yield
    finally:
        _changed.clear()
        _changed.update(before)
