"""Which positions of an epoch a loader visits, computed and not stored: slices and shards of it, one within another.

Each is a function from the loader's own positions 0 … count-1 to those of the loader it was made of. A ``Positions`` applies
them in turn, innermost loader first, and gives positions of the whole epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


class Part(Protocol):
    """Part of a loader's positions."""

    @property
    def count(self) -> int: ...

    def __call__(self, own: Array, /) -> Array: ...


@dataclass(frozen=True, slots=True)
class Slice:
    """``count`` consecutive positions from ``start`` on."""

    start: int
    count: int

    def __call__(self, own: Array, /) -> Array:
        """int64 [n], positions in the sliced loader."""
        return own + self.start


@dataclass(frozen=True, slots=True)
class Shard:
    """The rows that one of ``ranks`` takes of each batch: as even as can be, the first ranks one more.

    Attributes:
        samples: Of the divided loader.
        size: Its batch size.
        ranks: How many shards there are, 1 to ``size``.
        rank: Which of them this is.
    """

    samples: int
    size: int
    ranks: int
    rank: int

    def _rows(self, rows: int) -> tuple[int, int]:
        """The first row of a batch of ``rows`` that this rank takes, and how many."""
        each, more = divmod(rows, self.ranks)
        return self.rank * each + min(self.rank, more), each + (self.rank < more)

    @property
    def batch_size(self) -> int:
        """The rows of a full batch."""
        return self._rows(self.size)[1]

    @property
    def count(self) -> int:
        """How many positions there are."""
        full, rest = divmod(self.samples, self.size)
        return full * self.batch_size + self._rows(rest)[1]

    def __call__(self, own: Array, /) -> Array:
        """int64 [n], positions in the divided loader."""
        full, rest = divmod(self.samples, self.size)
        batch, row = np.divmod(own, self.batch_size)
        short = own - full * self.batch_size  # from 0 on within the smaller last batch
        inside: Array = batch * self.size + row + self._rows(self.size)[0]
        return np.where(short < 0, inside, full * self.size + short + self._rows(rest)[0])


@dataclass(frozen=True, slots=True)
class Positions:
    """Parts of parts of an epoch of ``whole`` samples.

    Attributes:
        whole: How many positions the epoch has.
        parts: The first is part of the epoch, each other one of the part before it.
    """

    whole: int
    parts: tuple[Part, ...] = ()

    def __len__(self) -> int:
        return self.parts[-1].count if self.parts else self.whole

    def __call__(self, own: Array, /) -> Array:
        """The positions of the epoch, int64 [n], for positions 0 ≤ each < len of this."""
        for part in reversed(self.parts):
            own = part(own)
        return own

    def part(self, part: Part) -> Positions:
        """A part of these."""
        return Positions(self.whole, (*self.parts, part))
