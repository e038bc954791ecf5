"""Lists of sample numbers: those in memory, and those that are computed when they are asked for.

A ``Subset`` or ``SubsetSampler`` of 10⁹ samples holds a ``Computed`` list: a range, or part of a permutation. It is
indexed as an int64 array is, by ints, slices and arrays, and ``numpy.asarray`` gives the array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from firebrick.data.order import BLOCK, permutation_of

Array = np.ndarray[Any, Any]
STORED = 1 << 20  # numbers that are kept as an array, 8 MiB; more are computed where they can be
_HASHED = 1 << 24  # numbers that are compared one by one; lists of more by what they are computed from


class Computed:
    """``count`` numbers, of which ``at(positions)`` gives any, int64 [n]; ``text`` is what they are computed from.

    Attributes:
        least: The smallest number that may be in it.
        most: The largest.
    """

    __slots__ = ("_arguments", "_at", "_count", "least", "most", "text")

    def __init__(self, arguments: tuple[Any, ...], at: Callable[[Array], Array], count: int, least: int, most: int) -> None:
        self._arguments, self._at, self._count, self.least, self.most = arguments, at, count, least, most
        self.text = " ".join(map(str, (arguments[0].__name__, *arguments[1:])))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._at(np.arange(*key.indices(self._count)))
        at = np.asarray(key)
        if at.dtype.kind == "b":
            at = np.flatnonzero(at)
        if at.size and not (-self._count <= at.min() <= at.max() < self._count):
            raise IndexError(f"positions in a list of {self._count} numbers, received {at.min()} to {at.max()}")
        flat = np.where(at < 0, at + self._count, at).astype(np.int64).reshape(-1)
        return self._at(flat).reshape(at.shape)[()]

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks():
            yield from block

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("the numbers of a computed list are in no array that could be shared")
        made: Array = np.concatenate([np.empty(0, np.int64), *self.blocks()])
        return made if dtype is None else made.astype(dtype)

    def __reduce__(self) -> Any:
        return self._arguments[0], self._arguments[1:]

    def __repr__(self) -> str:
        return f"<{self._count} numbers computed: {self.text}>"

    def blocks(self) -> Iterator[Array]:
        """All numbers, int64, some at a time."""
        for at in range(0, self._count, BLOCK):
            yield self._at(np.arange(at, min(at + BLOCK, self._count)))


def ranged(numbers: range) -> Computed:
    """The numbers of a range."""
    start, step = numbers.start, numbers.step
    least, most = sorted((numbers[0], numbers[-1])) if len(numbers) else (0, -1)
    return Computed((ranged, numbers), lambda at: start + step * at, len(numbers), least, most)


def drawn(seed: int, epoch: int, count: int, start: int, stop: int) -> Computed:
    """Positions ``start`` to ``stop`` of the permutation of ``count`` numbers that seed and epoch give."""
    return Computed(
        (drawn, seed, epoch, count, start, stop),
        lambda at: permutation_of(seed, epoch, count)(at + start),
        stop - start, 0, count - 1,
    )  # fmt: skip


def listed(given: Sequence[int] | Array | Computed) -> Array | Computed:
    """``given`` as it is kept: a long range as a computed list, anything else as an array of whatever dtype."""
    if isinstance(given, range) and len(given) > STORED:
        return ranged(given)
    return given if isinstance(given, Computed) else np.asarray(given)


def digest(numbers: Array | Computed) -> str:
    """A text that tells lists apart: the SHA-256 of the int64 numbers, or of what very long computed ones come from."""
    if isinstance(numbers, Computed) and len(numbers) > _HASHED:
        return sha256(f"{numbers.text} {len(numbers)}".encode()).hexdigest()
    made = sha256()
    for block in numbers.blocks() if isinstance(numbers, Computed) else [numbers]:
        made.update(np.ascontiguousarray(block, "<i8").tobytes())
    return made.hexdigest()
