"""The order in which an epoch visits its samples: ``index = f(seed, epoch, position)``, in constant memory.

Up to ``SORTED`` samples, each position draws a 64-bit key from Philox, and the samples are sorted by key. Beyond that, a keyed
permutation computes the sample of each position by itself, so that an epoch of 10⁹ samples starts at once. In both cases the
order is a function of seed, epoch and count alone: equal on every engine, machine and NumPy version and for any number of
shards, and an epoch can be entered at any position without visiting those before it.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from operator import index
from typing import Any

import numpy as np

from firebrick.ops.bits import philox, philox_at

Array = np.ndarray[Any, Any]
Keys = np.ndarray[Any, np.dtype[np.uint64]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
ORDER = 0x4C4F4144  # "LOAD": the streams of loaders are apart from those of fb.random
_ROUND_KEYS = 0x4645_4953  # "FEIS"
SORTED = 1 << 16  # samples that are sorted by key; the permutation of more is computed by position
BLOCK = 1 << 14  # positions computed together: few calls of NumPy, temporaries that stay in the cache
_ROUNDS = 8
_32 = np.uint64(32)


def keys(seed: int, epoch: int, first: int, count: int, purpose: int = ORDER) -> Keys:
    """Uniform 64-bit words number ``first`` to ``first + count`` of the stream of seed, epoch and purpose: uint64 [count]."""
    return _joined(philox(stream(seed, epoch, purpose), 2 * first, 2 * count).reshape(count, 2))


def keys_at(seed: int, epoch: int, positions: Array, purpose: int) -> Keys:
    """The words of that stream at any positions, int64 [n]: uint64 [n]."""
    return _joined(words_at(seed, epoch, positions, 2, purpose))


def words_at(seed: int, epoch: int, positions: Array, each: int, purpose: int) -> Array:
    """``each`` 32-bit words for each position, int64 [n] in any order, of a stream of random words: uint32 [n, each]."""
    n = len(positions)
    if not n or not each:
        return np.empty((n, each), np.uint32)
    key, first = stream(seed, epoch, purpose), int(positions[0])
    if int(positions[-1]) - first == n - 1 and (np.diff(positions) == 1).all():
        return philox(key, first * each, n * each).reshape(n, each)
    return philox_at(key, positions[:, None] * each + np.arange(each))


def stream(seed: int, epoch: int, purpose: int) -> Array:
    """The key of the random words that seed and epoch give for a purpose: uint32 [4]."""
    seed, epoch = index(seed), index(epoch)  # NumPy's integers would overflow
    return np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, epoch & 0xFFFFFFFF, purpose], np.uint32)


def _joined(words: Array) -> Keys:
    pairs = words.astype(np.uint64)
    joined: Keys = pairs[:, 0] << _32 | pairs[:, 1]
    return joined


class Permutation:
    """A permutation of 0 … count-1, asked for by position.

    Args:
        seed: Any integer; its low 64 bits count.
        epoch: Its low 32 bits count.
        count: How many numbers, below 2⁶³.

    Source: of more than ``SORTED`` numbers, the generalised Feistel cipher of Black, Rogaway, "Ciphers with arbitrary finite
    domains", CT-RSA 2002: x = a·l + r with a = ⌈√count⌉ is encrypted by rounds (l, r) ← (r, (l + F(r)) mod a), and again as
    long as the result is not below count, which 2/√count of the results are at most. F is the finaliser of splitmix64 (Steele,
    Lea, Flood, OOPSLA 2014) of r and the round's key.
    """

    def __init__(self, seed: int, epoch: int, count: int) -> None:
        self.count = count
        self._table: Numbers | None = None
        if count <= SORTED:
            self._table = np.argsort(keys(seed, epoch, 0, count), kind="stable").astype(np.int64)
            self._table.flags.writeable = False
            return
        self._side = np.uint64(isqrt(count - 1) + 1)
        self._keys: Keys = keys(seed, epoch, 0, _ROUNDS, _ROUND_KEYS)

    def __call__(self, positions: Array) -> Numbers:
        """The numbers at ``positions``, int64 [n] with 0 ≤ each < count, in a new array."""
        if self._table is not None:
            return self._table[positions]
        found: Numbers = np.empty(len(positions), np.int64)
        for at in range(0, len(positions), BLOCK):
            found[at : at + BLOCK] = self._walk(positions[at : at + BLOCK].astype(np.uint64))
        return found

    def _walk(self, x: Keys) -> Keys:
        """Encrypt until the result is in the range. A cycle through a number below count has others, so this ends."""
        x = self._encrypted(x)
        while len(outside := np.flatnonzero(x >= self.count)):
            x[outside] = self._encrypted(x[outside])
        return x

    def _encrypted(self, x: Keys) -> Keys:
        side = self._side
        left, right = np.divmod(x, side)
        for key in self._keys:
            z = right + key  # wraps around, as all that follows
            z ^= z >> np.uint64(30)
            z *= np.uint64(0xBF58476D1CE4E5B9)
            z ^= z >> np.uint64(27)
            z *= np.uint64(0x94D049BB133111EB)
            z ^= z >> np.uint64(31)
            z >>= _32  # the high half, scaled to 0 … side-1
            z *= side
            z >>= _32
            z += left
            left, right = right, np.minimum(z, z - side)  # z mod side: below 2·side, and z - side wraps where z < side
        left *= side
        left += right
        return left


@lru_cache(maxsize=4)  # a loader asks once a block
def permutation_of(seed: int, epoch: int, count: int) -> Permutation:
    """``Permutation(seed, epoch, count)``; the last few are kept."""
    return Permutation(seed, epoch, count)


def permutation(seed: int, epoch: int, count: int) -> Numbers:
    """The numbers 0 … count-1 in the order of one epoch.

    A loader computes the same order batch by batch, without holding all of it.

    Args:
        seed: Any integer; its low 64 bits count.
        epoch: Number of the epoch, from 0; its low 32 bits count.
        count: How many samples there are.

    Returns:
        int64 [count].

    Source: up to 65,536 numbers, sorting by random keys; Knuth, The Art of Computer Programming, volume 2, 3.4.2. Two of
    ``count`` keys are equal with probability below count² / 2⁶⁵, and then keep their order. Of more, a generalised Feistel
    cipher; Black, Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.

    Example:
        >>> from firebrick.data import permutation
        >>> permutation(0, 0, 5).tolist() == permutation(0, 0, 5).tolist()
        True
        >>> sorted(permutation(0, 1, 5).tolist())
        [0, 1, 2, 3, 4]
    """
    made = Permutation(seed, epoch, count)
    found: Numbers = np.empty(count, np.int64)
    for at in range(0, count, BLOCK):
        found[at : at + BLOCK] = made(np.arange(at, min(at + BLOCK, count)))
    return found
