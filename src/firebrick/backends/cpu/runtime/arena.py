"""Memory for plans: pooled, size-classed, aligned buffers, NumPy arrays over one allocation each.

A run of a plan takes one arena from its pool and gives it back at the end; several threads that run the same plan have an arena
each. What is given back is kept for the next run, up to a bound, until ``release``.
"""

from __future__ import annotations

import os
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakSet

import numpy as np

ALIGNMENT = 64
# Size classes grow by a quarter: a buffer wastes at most a fifth of itself.
_STEPS = 4
_LEAST = 4096
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> Bytes:
    """``uint8[nbytes]``, not initialised, at least one byte, whose first element is at a multiple of ``alignment``."""
    raw = np.empty(nbytes + alignment, np.uint8)
    at = -raw.ctypes.data % alignment
    return raw[at : at + nbytes]


@lru_cache(maxsize=1024)  # a program asks for the same at each run
def size_class(nbytes: int) -> int:
    """The bytes of the buffer for a request: a size class, of which there are four in each doubling; at least 4096."""
    if nbytes <= _LEAST:
        return _LEAST
    step = (1 << (nbytes - 1).bit_length() - 1) // _STEPS
    return -(-nbytes // step) * step


class ArenaPool:
    """Buffers of any size, reused by size class. Thread-safe.

    Args:
        most: Bytes of unused buffers to keep.
    """

    def __init__(self, most: int = 256 * 2**20) -> None:
        self.most = most
        self._free: dict[int, list[Bytes]] = {}
        self._lock = Lock()
        self._live = self._peak = self._kept = 0
        _pools.add(self)

    def take(self, nbytes: int) -> Bytes:
        """An aligned, uninitialised buffer of at least ``nbytes`` bytes.

        Raises:
            MemoryError: The system has no more.
        """
        size = size_class(nbytes)
        with self._lock:
            free = self._free.get(size)
            if free:
                found = free.pop()
                self._kept -= size
            else:
                found = None
            self._live += size
            if self._live > self._peak:
                self._peak = self._live
        if found is not None:
            return found
        try:
            return aligned(size)
        except MemoryError:
            self.release()  # without the unused buffers of other classes, the allocation may succeed
        try:
            return aligned(size)
        except MemoryError:
            with self._lock:
                self._live -= size
            raise

    def give(self, buffer: Bytes) -> None:
        """Return a buffer that ``take`` returned; it must not be used afterwards."""
        size = buffer.nbytes
        with self._lock:
            self._live -= size
            if self._kept + size <= self.most:
                self._free.setdefault(size, []).append(buffer)
                self._kept += size

    def run(self, nbytes: int) -> Loan:
        """A buffer for a ``with`` block."""
        return Loan(self, nbytes)

    def stats(self) -> dict[str, int]:
        """Bytes in use (``live``), their ``peak`` since the start or the last ``release``, and unused ones ``kept``."""
        with self._lock:
            return {"live": self._live, "peak": self._peak, "kept": self._kept}

    def release(self) -> int:
        """Free unused buffers, and reset the peak to the bytes in use; returns the freed bytes."""
        with self._lock:
            freed, self._kept = self._kept, 0
            self._free.clear()
            self._peak = self._live
        return freed


class Loan:
    """A buffer that is returned to its pool at the end of a ``with`` block."""

    __slots__ = ("buffer", "nbytes", "pool")

    def __init__(self, pool: ArenaPool, nbytes: int) -> None:
        self.pool, self.nbytes = pool, nbytes

    def __enter__(self) -> Bytes:
        self.buffer = self.pool.take(self.nbytes)
        return self.buffer

    def __exit__(self, *_: object) -> None:
        self.pool.give(self.buffer)
        del self.buffer  # nobody uses it any more


def _forked() -> None:
    for pool in _pools:
        pool._lock = Lock()  # a thread that is not in this process may have held it


_pools: WeakSet[ArenaPool] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
