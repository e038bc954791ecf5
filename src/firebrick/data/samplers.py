"""Which samples an epoch visits, and in which order: functions of seed and epoch, so that a run can be repeated and resumed.

A sampler is anything that is called as ``sampler(seed, epoch)`` and returns the numbers of samples, int64 [samples], as many
in each epoch: one of these, or a function of yours. One with a method ``at(seed, epoch, positions)`` and an attribute
``samples`` is asked for the numbers at the positions of some batches instead, so that an order of any length takes constant
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Protocol

import numpy as np

from firebrick.core.settings import whole
from firebrick.data.errors import LoaderError
from firebrick.data.listed import Computed, digest, listed
from firebrick.data.order import keys, keys_at, permutation, permutation_of

Array = np.ndarray[Any, Any]
_WEIGHTED = 0x57454947  # "WEIG": apart from the streams of orders
_BATCHES = 0x424B4554  # "BKET"


class Sampler(Protocol):
    """The order of an epoch.

    A class may also have an attribute ``samples``, the number of samples of an epoch, and a method
    ``at(seed, epoch, positions)``, which returns the numbers of the samples at ``positions`` (int64 [n], 0 ≤ each <
    ``samples``): a loader then never asks for the whole order.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> class Backwards:
        ...     def __call__(self, seed, epoch, /):
        ...         return np.arange(4)[::-1]
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.arange(4)), 2, sampler=Backwards())
        >>> [batch[0].tolist() for batch in loader]
        [[3, 2], [1, 0]]
    """

    def __call__(self, seed: int, epoch: int, /) -> Any:
        """Numbers of samples, int64 [samples]: a function of seed and epoch alone, of one length.

        Args:
            seed: Seed of the loader.
            epoch: Number of the epoch, from 0.
        """
        ...


class SequentialSampler:
    """The samples as they are stored.

    Args:
        samples: Number of samples.

    Example:
        >>> from firebrick.data import SequentialSampler
        >>> SequentialSampler(3)(0, 0).tolist()
        [0, 1, 2]
    """

    def __init__(self, samples: int) -> None:
        self.samples = whole("SequentialSampler", "samples", samples, 1)

    def __call__(self, seed: int, epoch: int, /) -> Array:
        return np.arange(self.samples)

    def at(self, seed: int, epoch: int, positions: Array, /) -> Array:
        """The numbers of the samples at some positions of an epoch.

        Args:
            seed: Seed of the loader.
            epoch: Number of the epoch, from 0.
            positions: int64 [n], 0 ≤ each < ``samples``, in any order.

        Returns:
            int64 [n].
        """
        return positions.copy()

    @property
    def limit(self) -> int:
        """All numbers are below it."""
        return self.samples


class RandomSampler:
    """Each sample once, in another order each epoch: ``permutation(seed, epoch, samples)``.

    Args:
        samples: Number of samples.

    Example:
        >>> from firebrick.data import RandomSampler
        >>> sorted(RandomSampler(4)(0, 7).tolist())
        [0, 1, 2, 3]
    """

    def __init__(self, samples: int) -> None:
        self.samples = whole("RandomSampler", "samples", samples, 1)

    def __call__(self, seed: int, epoch: int, /) -> Array:
        return permutation(seed, epoch, self.samples)

    def at(self, seed: int, epoch: int, positions: Array, /) -> Array:
        """The numbers of the samples at some positions of an epoch.

        Args:
            seed: Seed of the loader.
            epoch: Number of the epoch, from 0.
            positions: int64 [n], 0 ≤ each < ``samples``, in any order.

        Returns:
            int64 [n].
        """
        return permutation_of(seed, epoch, self.samples)(positions)

    @property
    def limit(self) -> int:
        """All numbers are below it."""
        return self.samples


class SubsetSampler:
    """Some samples, each once, in another order each epoch.

    Args:
        indices: int64 [n], numbers of samples. A long ``range`` is kept as it is, in constant memory.
        shuffle: Whether to change the order, else as given.

    Raises:
        LoaderError: They are no list of whole numbers from 0.

    Example:
        >>> from firebrick.data import SubsetSampler
        >>> sorted(SubsetSampler([7, 2, 5])(0, 0).tolist())
        [2, 5, 7]
    """

    def __init__(self, indices: Sequence[int] | Array, *, shuffle: bool = True) -> None:
        kept = listed(indices)
        if isinstance(kept, Computed):
            if kept.least < 0:
                raise LoaderError("SubsetSampler: numbers of samples are whole numbers from 0", repr(kept), "check them")
            self.limit = kept.most + 1  # all numbers are below it
        else:
            kept = checked_order("SubsetSampler", kept)
            self.limit = int(kept.max()) + 1
        self.indices: Any = kept
        self.shuffle = shuffle
        self.samples = len(self.indices)

    def __call__(self, seed: int, epoch: int, /) -> Array:
        if not self.shuffle:
            return np.asarray(self.indices)
        found: Array = self.indices[permutation(seed, epoch, self.samples)]
        return found

    def at(self, seed: int, epoch: int, positions: Array, /) -> Array:
        """The numbers of the samples at some positions of an epoch.

        Args:
            seed: Seed of the loader.
            epoch: Number of the epoch, from 0.
            positions: int64 [n], 0 ≤ each < ``samples``, in any order.

        Returns:
            int64 [n].
        """
        found: Array = self.indices[permutation_of(seed, epoch, self.samples)(positions) if self.shuffle else positions]
        return found

    def fingerprint(self) -> str:
        """A text that tells its samples from others."""
        return digest(self.indices)


class WeightedSampler:
    """Samples drawn with replacement, each with a probability proportional to its weight.

    Args:
        weights: One for each sample of the data set, 0 or more; some above 0.
        samples: How many to draw in an epoch; as many as there are weights if None.

    Raises:
        LoaderError: A weight is negative or not finite, or all are 0.
        ConfigError: ``samples`` is no int of at least 1.

    Source: inversion of the cumulative sum, by 53-bit uniform numbers.

    Example:
        >>> from firebrick.data import WeightedSampler
        >>> set(WeightedSampler([0.0, 1.0, 3.0], samples=100)(0, 0).tolist())
        {1, 2}
    """

    def __init__(self, weights: Sequence[float] | Array, samples: int | None = None) -> None:
        given = np.asarray(weights, np.float64)
        if given.ndim != 1 or not given.size or not np.isfinite(given).all() or given.min() < 0 or not given.any():
            raise LoaderError(
                "a WeightedSampler takes one finite weight from 0 for each sample, not all 0",
                f"shape {list(given.shape)}" + (f", from {given.min()} to {given.max()}" if given.size else ""),
                "pass e.g. 1 / (number of samples of its class)",
            )
        self.samples = whole("WeightedSampler", "samples", len(given) if samples is None else samples, 1)
        self.size = len(given)  # of the data set
        self._last = int(np.flatnonzero(given)[-1])
        self._ends = np.cumsum(given)

    def __call__(self, seed: int, epoch: int, /) -> Array:
        return self.at(seed, epoch, np.arange(self.samples))

    def at(self, seed: int, epoch: int, positions: Array, /) -> Array:
        """The numbers of the samples at some positions of an epoch.

        Args:
            seed: Seed of the loader.
            epoch: Number of the epoch, from 0.
            positions: int64 [n], 0 ≤ each < ``samples``, in any order.

        Returns:
            int64 [n].
        """
        words = keys_at(seed, epoch, positions, _WEIGHTED)
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        drawn = np.searchsorted(self._ends, uniform * self._ends[-1], side="right")
        found: Array = np.minimum(drawn, self._last)  # where the product rounds up to the sum itself
        return found.astype(np.int64)

    @property
    def limit(self) -> int:
        """All numbers are below it."""
        return self._last + 1

    def fingerprint(self) -> str:
        """A text that tells its weights from others."""
        return sha256(self._ends.astype("<f8").tobytes()).hexdigest()


class BucketSampler:
    """Each sample once, with samples of like length in one batch, so that little is padded.

    The shuffled samples are cut into pools of ``pool`` batches; a pool is sorted by length and cut into batches, and all
    batches are shuffled. A smaller last batch stays last.

    Args:
        lengths: One for each sample, whole numbers from 0.
        batch_size: That of the loader.
        pool: Batches sorted together: more of them need less padding, fewer are shuffled better.

    Raises:
        LoaderError: The lengths are no list of whole numbers from 0.
        ConfigError: ``batch_size`` or ``pool`` is no int of at least 1.

    Example:
        >>> from firebrick.data import BucketSampler
        >>> lengths = [9, 1, 8, 2, 7, 3]
        >>> order = BucketSampler(lengths, batch_size=2)(0, 0)
        >>> sorted(tuple(sorted(lengths[i] for i in order[at : at + 2])) for at in (0, 2, 4))
        [(1, 2), (3, 7), (8, 9)]
    """

    def __init__(self, lengths: Sequence[int] | Array, batch_size: int, pool: int = 100) -> None:
        self.lengths = checked_order("BucketSampler", lengths, "lengths")
        self.size = len(self.lengths)  # of the data set
        self.batch_size = whole("BucketSampler", "batch_size", batch_size, 1)
        self.pool = whole("BucketSampler", "pool", pool, 1)

    def __call__(self, seed: int, epoch: int, /) -> Array:
        order = permutation(seed, epoch, len(self.lengths))
        full = len(order) // self.batch_size * self.batch_size
        last, order = order[full:], order[:full]
        pools = [order[at : at + self.pool * self.batch_size] for at in range(0, full, self.pool * self.batch_size)]
        batches = [p[np.argsort(self.lengths[p], kind="stable")].reshape(-1, self.batch_size) for p in pools]
        shuffled = np.argsort(keys(seed, epoch, 0, full // self.batch_size, _BATCHES), kind="stable")
        return np.concatenate([*(np.concatenate(batches)[shuffled] if batches else ()), last])


def computes_positions(sampler: Any) -> bool:
    """Whether a sampler gives the numbers at any positions by ``at``, rather than the whole order alone.

    A class derived from one that has ``at``, which writes ``__call__`` anew, does not.
    """
    if not hasattr(sampler, "samples") or "at" in getattr(sampler, "__dict__", {}):
        return hasattr(sampler, "samples")
    for kind in type(sampler).__mro__:
        if "at" in vars(kind):
            return True
        if "__call__" in vars(kind):
            return False
    return False


def checked_order(who: str, given: Any, what: str = "numbers of samples", end: int | None = None) -> Array:
    """``given`` as int64 [n] with 0 ≤ each (< end).

    Raises:
        LoaderError: It is something else, or empty.
    """
    found = np.asarray(given)
    wrong = found.ndim != 1 or not found.size or found.dtype.kind not in "iu"
    if not wrong and found.min() >= 0 and (end is None or found.max() < end):
        return found.astype(np.int64, copy=False)
    limits = "from 0" if end is None else f"in [0, {end})"
    received = f"{found.dtype}{list(found.shape)}" + ("" if wrong else f" from {found.min()} to {found.max()}")
    raise LoaderError(f"{who}: {what} are whole numbers {limits}, at least one: int64 [n]", received, "check them")
