"""How calls that run at the same time share the cores: each takes a part, so that they do not wait for each other's threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

part_of_cores: ContextVar[tuple[int, int] | None] = ContextVar("firebrick_part_of_cores", default=None)
"""(index of this call, number of calls) at the same time; None if it may use all cores."""


@contextmanager
def sharing_cores(which: int, count: int) -> Iterator[None]:
    """A ``with`` block whose kernels on the host use one of ``count`` parts of the cores; one part is all of them."""
    token = part_of_cores.set((which, count) if count > 1 else None)
    try:
        yield
    finally:
        part_of_cores.reset(token)


def cores_of(part: tuple[int, int], cores: int) -> int:
    """How many cores a part has, at least one."""
    which, count = part
    return max(1, cores * (which + 1) // count - cores * which // count)
