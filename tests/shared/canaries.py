"""Memory of compiled programs between zones of known bytes, which show whether a kernel wrote outside of what is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from firebrick.backends.cpu import native
from firebrick.core.aval import Aval

Array = np.ndarray[Any, Any]
ZONE, BYTE = 4096, 0xA5


class Zones:
    """Buffers with zones before and behind, kept until they are looked at."""

    def __init__(self) -> None:
        self._raw: list[tuple[Array, int, int]] = []

    def buffer(self, nbytes: int, alignment: int = 64) -> Array:
        """``uint8[nbytes]`` at a multiple of ``alignment``; the zone behind begins with the next byte."""
        raw = np.full(nbytes + 2 * ZONE + alignment, BYTE, np.uint8)
        at = ZONE + -(raw.ctypes.data + ZONE) % alignment
        self._raw.append((raw, at, at + nbytes))
        return raw[at : at + nbytes]

    def allocator(self, aval: Aval) -> Callable[[], Array]:
        """As the engine's own: makes arrays for a result."""
        return lambda: self.buffer(aval.nbytes, max(aval.dtype.itemsize, 1)).view(aval.dtype.np).reshape(aval.shape)

    def written(self) -> list[str]:
        """Where bytes outside of the buffers have changed; the buffers are then forgotten."""
        found = []
        for raw, begin, end in self._raw:
            before, behind = np.flatnonzero(raw[:begin] != BYTE), np.flatnonzero(raw[end:] != BYTE)
            if before.size:
                found.append(f"{begin - before[-1]} bytes before a buffer of {end - begin}")
            if behind.size:
                found.append(f"{behind[0]} bytes behind a buffer of {end - begin}")
        self._raw.clear()
        return found


class _Loan:
    def __init__(self, zones: Zones, nbytes: int) -> None:
        self.zones, self.nbytes = zones, nbytes

    def __enter__(self) -> Array:
        return self.zones.buffer(self.nbytes)

    def __exit__(self, *_: object) -> None: ...


@contextmanager
def zones() -> Iterator[Zones]:
    """Within, results and arenas of programs compiled on ``cpu`` lie between zones."""
    made = Zones()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_allocator", made.allocator)
        patch.setattr(native.ARENAS, "run", lambda nbytes: _Loan(made, nbytes))
        yield made
