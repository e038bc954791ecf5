"""Where the passes of one step, each in a thread of its own, meet to sum what they have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Barrier
from typing import Any, Protocol

from firebrick.core.tensor import Tensor
from firebrick.nn.joint import Joint, joint


class Meeting:
    """A meeting of several replicas, for one step.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self._slots: list[Any] = [None] * count
        self._barrier = Barrier(count)

    def place(self, at: int) -> Place:
        """The place of replica ``at``."""
        return Place(self, at)

    def sum(self, at: int, x: Tensor) -> Tensor:
        """Σ x over the replicas in their order, on x's device; each adds them up for itself, with the same roundings."""
        self._slots[at] = x
        self._barrier.wait()
        total: Tensor = self._slots[0].to(x.device)
        for other in self._slots[1:]:
            total = total + other.to(x.device)
        self._barrier.wait()  # nobody goes on before all have read
        return total

    def leave(self) -> None:
        """Let nobody wait for a replica that has failed."""
        self._barrier.abort()


@dataclass(frozen=True)
class Place:
    """A replica's place at a meeting."""

    meeting: Meeting
    at: int

    def sum(self, x: Tensor) -> Tensor:
        """Σ x over the replicas."""
        return self.meeting.sum(self.at, x)

    def leave(self) -> None:
        """Let nobody wait for this replica."""
        self.meeting.leave()


class Meets(Joint, Protocol):
    """A ``Joint`` that can be left after a failure."""

    def leave(self) -> None: ...


@contextmanager
def meeting_at(place: Meets | None) -> Iterator[None]:
    """A ``with`` block whose batch norms meet at a place; None lets them be."""
    if place is None:
        yield
        return
    token = joint.set(place)
    try:
        yield
    except BaseException:
        place.leave()
        raise
    finally:
        joint.reset(token)
