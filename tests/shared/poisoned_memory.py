"""Memory of compiled programs that is full of one byte, by default of NaN: what is read before it is written shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from firebrick.backends.cpu import native


@contextmanager
def poisoned_memory(byte: int = 0xFF) -> Iterator[None]:
    """Fill the memory that programs on ``cpu`` take, before each of their runs; all of it is given back at the end."""
    take = native.ARENAS.take

    def poisoned_take(nbytes: int) -> Any:
        space = take(nbytes)
        space[:] = byte
        return space

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native.ARENAS, "take", poisoned_take)
        yield
    assert native.ARENAS.stats()["live"] == 0
