"""``Stamps``: when launches began and ended by the device's clock.

A device writes a time at the beginning of a pass and one at its end into a query set, so each launch that is timed has a pass
of its own. The times are copied to a buffer, in which the host reads them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

FEATURE = "timestamp-query"
"""What adapters that write times have."""
PASSES = 256
"""Passes of a query set, each of which has two times."""
_BYTES = 8


class Stamps:
    """The times of passes.

    Args:
        wgpu: wgpu's module.
        device: wgpu's device.
        period: Nanoseconds of a unit of its clock.

    Attributes:
        host: Whether something else than kernels was waited for.
        found: When passes whose times were read began and ended, in nanoseconds.
    """

    def __init__(self, wgpu: Any, device: Any, period: float) -> None:
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        self._queries = device.create_query_set(type="timestamp", count=2 * PASSES)
        self._buffer = device.create_buffer(size=2 * PASSES * _BYTES, usage=usage)
        self._queue, self._period = device.queue, Fraction(period)
        self.clear()

    def clear(self) -> None:
        """Forget all passes."""
        self.host, self._passes, self.found = False, 0, list[tuple[int, int]]()

    @property
    def full(self) -> bool:
        """Whether there is no room for another pass until the times are read."""
        return self._passes == PASSES

    @property
    def waiting(self) -> bool:
        """Whether there are passes whose times were not read."""
        return self._passes > 0

    def next_pass(self) -> dict[str, Any]:
        """Where the next pass writes its times, as wgpu wants it."""
        first = 2 * self._passes
        self._passes += 1
        return {
            "query_set": self._queries,
            "beginning_of_pass_write_index": first,
            "end_of_pass_write_index": first + 1,
        }

    def resolve(self, encoder: Any) -> None:
        """Record that the times are copied to the buffer."""
        encoder.resolve_query_set(self._queries, 0, 2 * self._passes, self._buffer, 0)

    def read(self) -> None:
        """Wait for the times."""
        data = self._queue.read_buffer(self._buffer, 0, 2 * self._passes * _BYTES)
        times = np.frombuffer(data, np.uint64).astype(object).reshape(-1, 2)  # of any size, and exact
        self.found += [(round(begin * self._period), round(end * self._period)) for begin, end in times]
        self._passes = 0
