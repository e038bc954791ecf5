"""How calls that run at the same time share the cores: each takes a part, so that they do not wait for each other's threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from firebrick.core.config import config

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


def cores() -> int:
    """How many threads this call may use: ``config.num_threads``, or one for each usable core, or its part of them."""
    part = part_of_cores.get()
    whole = config.num_threads or usable_cores()
    return whole if part is None else cores_of(part, whole)


def usable_cores() -> int:
    """Cores this process may use: those of its affinity mask, and no more than its control group's share (Linux)."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(found, _quota()))


def _quota(path: str = "/sys/fs/cgroup/cpu.max") -> int:
    """The control group's limit in whole cores, rounded up; a large number where there is none."""
    try:
        with open(path) as file:
            limit, period = file.read().split()[:2]
        return -(-int(limit) // int(period))
    except (OSError, ValueError):  # no such file, or `max`
        return 1 << 20
