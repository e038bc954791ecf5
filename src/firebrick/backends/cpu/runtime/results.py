"""Memory for results: large buffers whose arrays are gone serve later results.

New memory of the system costs a page fault for each page at its first write, which takes as long as a memory-bound kernel. An
array of ``ResultMemory`` is an ordinary NumPy array whose memory belongs to a ``_Lease``. Views, exports and other libraries'
arrays hold the array, and the array holds the lease. So the buffer becomes free when the last of them is gone, and no sooner.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from contextlib import suppress
from itertools import cycle
from threading import Lock
from typing import Any
from weakref import WeakSet

import numpy as np

from firebrick.backends.cpu.runtime.arena import size_class
from firebrick.core.config import config

LEAST = 1 << 16
"""Minimum bytes of a result whose memory is reused; it is aligned to a cache line."""
AGE = 512
"""Number of leases after which a buffer that was free all the time is given back to the system."""
_PAGE = 4096
_PLACES = cycle((0, 2048, 1024, 3072, 512, 2560, 1536, 3584))
"""Buffers begin at different places of a page, and one far from that of the last one. Arrays that agree in the address within a
page share the same few lines of a processor's first cache, and where a result is a little ahead of an operand, a read of the
operand waits for a write to the result."""

Array = np.ndarray[Any, Any]


class _ResultBuffer:
    """Memory of one size class.

    Attributes:
        size: Its bytes.
        shown: What NumPy makes an array of it from.
        since: Number of leases when it became free.
    """

    __slots__ = ("_memory", "shown", "since", "size")

    def __init__(self, size: int) -> None:
        raw = np.empty(size + _PAGE, np.uint8)
        at = (next(_PLACES) - raw.ctypes.data) % _PAGE
        self.size, self.since, self._memory = size, 0, raw[at : at + size]
        self.shown = self._memory.__array_struct__


class _Lease:
    """The owner of a buffer while arrays show it; NumPy keeps it as their base."""

    __slots__ = ("__array_struct__", "buffer", "memory")

    def __init__(self, buffer: _ResultBuffer, memory: ResultMemory) -> None:
        self.buffer, self.memory = buffer, memory
        self.__array_struct__ = buffer.shown

    def __del__(self) -> None:
        self.memory._give(self.buffer)


class ResultMemory:
    """Buffers for results, reused by size class; at most ``config.kept_results`` bytes of free ones are kept. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ended: deque[_ResultBuffer] = deque()  # of leases that have ended, not yet among the free ones
        self._kept: OrderedDict[int, _ResultBuffer] = OrderedDict()  # free ones by number, the oldest first
        self._free: dict[int, list[int]] = {}  # size class → numbers
        self._bytes = self._number = self._leases = 0
        _made.add(self)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> Array:
        """A new array, row-major and not initialised.

        Args:
            shape: Its shape.
            dtype: Its dtype.
            nbytes: Its bytes.

        Raises:
            MemoryError: The system has no more.
        """
        if nbytes < LEAST:
            return np.empty(shape, dtype)
        # a buffer that cannot be kept is no larger than its array
        size = size_class(nbytes) if nbytes <= config.kept_results else nbytes
        return np.ndarray(shape, dtype, np.asarray(_Lease(self._take(size) or self._new(size), self)))

    def _new(self, size: int) -> _ResultBuffer:
        with suppress(MemoryError):
            return _ResultBuffer(size)
        self.release()  # without the free buffers of other classes, the allocation may succeed
        return _ResultBuffer(size)

    def _take(self, size: int) -> _ResultBuffer | None:
        with self._lock:
            self._leases += 1
            if self._ended or not self._leases % 64:
                self._collect()
            numbers = self._free.get(size)
            while numbers:  # the one used last, which may be in a cache
                buffer = self._kept.pop(numbers.pop(), None)
                if buffer is not None:  # else Ctrl-C came before its number was taken out
                    self._bytes -= size
                    return buffer
        return None

    def _give(self, buffer: _ResultBuffer) -> None:
        """Take a buffer back.

        A lease may end anywhere, also where garbage is collected inside of these methods. So this waits for no lock: who holds
        it, or comes next, finds the buffer.
        """
        buffer.since = self._leases
        self._ended.append(buffer)
        while self._ended and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        """Keep what leases have left, and give back to the system what is too much or too old."""
        limit = config.kept_results
        while self._ended:
            buffer = self._ended.popleft()
            if buffer.size <= limit:
                self._number += 1
                self._kept[self._number] = buffer
                self._free.setdefault(buffer.size, []).append(self._number)
                self._bytes += buffer.size
        while self._kept:
            number, oldest = self._kept.popitem(last=False)
            if self._bytes <= limit and self._leases - oldest.since <= AGE:
                self._kept[number] = oldest
                self._kept.move_to_end(number, last=False)
                return
            with suppress(ValueError):
                self._free[oldest.size].remove(number)
            self._bytes -= oldest.size

    @property
    def kept(self) -> int:
        """Bytes of free buffers."""
        return self._bytes

    def release(self) -> int:
        """Give free buffers back to the system; returns their bytes."""
        with self._lock:
            self._collect()
            freed, self._bytes = self._bytes, 0
            self._kept, self._free = OrderedDict(), {}
        return freed

    def _forked(self) -> None:
        """In a child: another thread may have held the lock, in the middle of a change."""
        self._lock, self._bytes = Lock(), 0
        self._ended, self._kept, self._free = deque(), OrderedDict(), {}


def _forked() -> None:
    for memory in _made:
        memory._forked()


_made: WeakSet[ResultMemory] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

RESULTS = ResultMemory()
"""Memory of the results of the ``cpu`` engine."""
