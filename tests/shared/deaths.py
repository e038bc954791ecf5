"""Runs that end in the middle of an epoch, for tests that go on with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from firebrick.train import Learner


@contextmanager
def dying_after(steps: int) -> Iterator[None]:
    """A ``with`` block in which a learner writes a checkpoint after each step, and fails in the one after so many."""
    counted, taken = Learner._count, count()

    def dying(self: Learner, *given: Any) -> int:
        if next(taken) == steps:
            raise MemoryError("the process is gone")
        return counted(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Learner, "_count", dying)
        patched.setattr(Learner, "_checkpoint_due", lambda self: True)
        yield
