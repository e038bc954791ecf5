"""The order in which an epoch visits its samples: ``index = f(seed, epoch, position)``.

Every position draws one 64-bit key from Philox, and the samples are sorted by key. So the order is a function of seed
and epoch alone: equal on every engine, machine and NumPy version, for any number of shards, and an epoch can be entered
at any position without visiting those before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.ops.bits import philox

Keys = np.ndarray[Any, np.dtype[np.uint64]]
ORDER = 0x4C4F4144  # "LOAD": the streams of loaders are apart from those of fb.random


def keys(seed: int, epoch: int, first: int, count: int, purpose: int = ORDER) -> Keys:
    """Uniform 64-bit words number ``first`` to ``first + count`` of the stream of seed, epoch and purpose: uint64 [count]."""
    key = np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, epoch & 0xFFFFFFFF, purpose], np.uint32)
    words = philox(key, 2 * first, 2 * count).astype(np.uint64)
    return words[0::2] << np.uint64(32) | words[1::2]


def permutation(seed: int, epoch: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers 0 … count-1 in the order of one epoch.

    Args:
        seed: Any integer; its low 64 bits count.
        epoch: Number of the epoch, from 0; its low 32 bits count.
        count: How many samples there are.

    Returns:
        int64 [count].

    Source: sorting by random keys; Knuth, The Art of Computer Programming, volume 2, 3.4.2. Two of ``count`` keys are
    equal with probability below count² / 2⁶⁵, and then keep their order.

    Example:
        >>> from firebrick.data import permutation
        >>> permutation(0, 0, 5).tolist() == permutation(0, 0, 5).tolist()
        True
        >>> sorted(permutation(0, 1, 5).tolist())
        [0, 1, 2, 3, 4]
    """
    return np.argsort(keys(seed, epoch, 0, count), kind="stable").astype(np.int64)
