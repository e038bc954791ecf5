"""Tensors on their way to their sum over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

from firebrick.autodiff.tape import no_grad
from firebrick.core.tensor import Tensor
from firebrick.distributed import Group, Work
from firebrick.functions.creation import zeros
from firebrick.train.strategy import Named


class Sending:
    """Tensors on their way to their weighted sum over the ranks, a bucket after the other; the last one takes a note along.

    Args:
        group: The ranks.
        like: Tensors like those that are sent, by name.
        buckets: Their names, as they travel together.
        weight: This rank's.

    Attributes:
        notes: What each rank has said, by rank, once all is reduced.
    """

    def __init__(self, group: Group, like: Named, buckets: Sequence[Sequence[str]], weight: float) -> None:
        self.like = like
        self._group, self._buckets, self._weight = group, buckets, weight
        self._works: list[Work[list[Tensor]]] = []
        self._last: Work[tuple[list[Tensor], list[bytes]]] | None = None
        self._kept: Named = {}
        self.notes: list[bytes] = []

    def __call__(self, bucket: int, own: Named) -> None:
        """Start the next bucket; the last one waits for the note."""
        if bucket < len(self._buckets) - 1:
            self._start(own)
        else:
            self._kept = own

    def _start(self, own: Named) -> None:
        self._works.append(self._group.all_reduce(self._terms(own), weight=self._weight, wait=False))

    def _terms(self, own: Named) -> list[Tensor]:
        """The next bucket; where this rank has no tensor, zeros stand for it."""
        with no_grad():
            return [own[n] if n in own else _nothing(self.like[n]) for n in self._buckets[len(self._works)]]

    def rest(self, own: Named, note: bytes | None = None) -> None:
        """Start the buckets that have not been, of these tensors, and say something to all ranks, if there is a note."""
        own = {**own, **self._kept}
        while len(self._works) < len(self._buckets) - (note is not None):
            self._start(own)
        if note is not None:
            self._last = self._group.all_reduce_noted(self._terms(own), note, weight=self._weight)

    def reduced(self) -> Named:
        """Σ weight · tensor over the ranks, by name."""
        found = [t for work in self._works for t in work.wait()]
        if self._last is not None:
            last, self.notes = self._last.wait()
            found += last
        return dict(zip((n for names in self._buckets for n in names), found, strict=True))


def _nothing(like: Tensor) -> Tensor:
    return zeros(like.shape, dtype=like.dtype, device=like.device)
