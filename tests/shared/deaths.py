"""Runs that end in the middle of an epoch, for tests that go on with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from firebrick.train.readings import Readings
from firebrick.train.snapshots import Snapshots


@contextmanager
def dying_after(steps: int) -> Iterator[None]:
    """A ``with`` block in which a learner writes a checkpoint after each step, and fails in the one after so many."""
    counted, taken = Readings.count, count()

    def dying(self: Readings, *given: Any) -> int:
        if next(taken) == steps:
            raise MemoryError("the process is gone")
        return counted(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Readings, "count", dying)
        patched.setattr(Snapshots, "due", lambda self: True)
        yield
