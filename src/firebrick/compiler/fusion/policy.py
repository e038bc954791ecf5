"""``FusionPolicy``: minimum sizes for which fusion is profitable on a target. Whether it is valid does not depend on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class FusionPolicy:
    """Thresholds of one target.

    Attributes:
        most_nodes: Maximum number of nodes of a group: its code grows with them, and its values occupy registers.
        one: Minimum elements of a kernel of a single node; below, its call costs more than it saves.
        two: Minimum elements of a kernel of two nodes.
        more: Minimum elements of a kernel of three or more nodes.
        reduced: Minimum elements of a kernel with reductions.
        shared_bytes: Minimum bytes of a value for which two groups that read it are joined, if neither depends on the other.
        stretch: Minimum length of contiguous segments that a kernel reads from rows without a copy of them.
        summed_rows: Minimum rows of a sum along the columns that is computed in the kernel of the rows.
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
        """Minimum elements of a kernel with this number of nodes."""
        return (self.one, self.two, self.more)[min(nodes, 3) - 1]


_changed: dict[str, int] = {}


def in_force(policy: FusionPolicy) -> FusionPolicy:
    """The policy with the fields that ``thresholds`` replaces."""
    return replace(policy, **_changed) if _changed else policy


@contextmanager
def thresholds(**numbers: int) -> Iterator[None]:
    """Context manager that sets thresholds of every policy in the process, for tests and experiments.

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
