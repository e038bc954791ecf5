"""Data sets, streams and transforms for the tests of loaders, where worker processes can import them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from firebrick.data import IterableDataset, worker_info

SAMPLES = 37


class Numbers:
    """Sample i is (its number as float64 [3], its number)."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return np.full(3, index, np.float64), index


class Noise(Numbers):
    """Sample i is (8 numbers drawn with its seed, its number)."""

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        info = worker_info()
        assert info is not None
        return np.random.default_rng(info.seed).random(8), index


class Raising(Numbers):
    """A sample that cannot be read."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if index == self.bad:
            raise ZeroDivisionError("the cat ate it")
        return super().__getitem__(index)


class Killed(Numbers):
    """A sample whose reading ends the process, once its own worker holds the other batch too."""

    def __init__(self, bad: int, how: int = signal.SIGKILL) -> None:
        self.bad, self.how = bad, how

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if index == self.bad:
            os.kill(os.getpid(), self.how)
        return super().__getitem__(index)


class Stuck(Numbers):
    """Sample 0 never comes; sample 4, of the next batch, ends its process."""

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if index == 0:
            time.sleep(600)
        if index == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Unreadable(Numbers):
    """What pickles, and does not come out of its pickle."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __setstate__(self, state: Any) -> None:
        raise state["error"]


class Whoami(Numbers):
    """Sample i is (process id, worker, workers)."""

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        info = worker_info()
        assert info is not None
        return os.getpid(), info.worker, info.workers


class Writing(Numbers):
    """One whose ``fetch`` writes into the numbers that it is given, as ``indices.sort()`` and ``indices %= n`` do."""

    def __len__(self) -> int:
        return 400

    def fetch(self, indices: Any) -> Any:
        read = indices.astype(np.float64)
        indices[:] = 0
        return read


class Wiping:
    """An augmentation that writes into its random words."""

    per_sample = 1

    def __call__(self, words: Any, *arrays: Any) -> tuple[Any, ...]:
        drawn = words[:, 0] * 2.0**-32
        words[:] = 0
        return tuple(a + drawn for a in arrays)


class Ragged:
    """Sample i is a sequence of i + 1 numbers, and i."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return np.arange(index + 1.0), index


class Counting(IterableDataset):
    """The numbers from 0; ``log``, a file that gets a line for each number that is read, if any."""

    def __init__(self, count: int, log: Path | None = None) -> None:
        self.count, self.log = count, log

    def __iter__(self) -> Iterator[Any]:
        for i in range(self.count):
            if self.log is not None:
                with self.log.open("a") as f:
                    f.write(f"{i}\n")
            yield np.float64(i), i


class Counted(Counting):
    """The same, with a length."""

    def __len__(self) -> int:
        return self.count


class Short(Counted):
    """A stream that ends before its length says so."""

    def __len__(self) -> int:
        return self.count + 3


class Epochs(IterableDataset):
    """A stream that differs by epoch and is entered in the middle at no cost."""

    def __iter__(self) -> Iterator[Any]:
        return self.stream(0, 0)

    def stream(self, epoch: int, start: int) -> Iterator[Any]:
        return (np.int64(1000 * epoch + i) for i in range(start, 11))


def doubled(sample: tuple[Any, ...]) -> tuple[Any, ...]:
    """A change of one sample."""
    return sample[0] * 2, sample[1]


def noisy(sample: tuple[Any, ...]) -> tuple[Any, ...]:
    """A random change of one sample."""
    info = worker_info()
    assert info is not None
    return sample[0] + np.random.default_rng(info.seed).random(3), sample[1]


def shifted(x: Any, y: Any) -> tuple[Any, ...]:
    """A change of a batch."""
    return x + 1, y


def same(*arrays: Any) -> Any:
    """No change."""
    return arrays


def stretched(samples: list[Any]) -> Any:
    """The first sample of ``Ragged``, each number 40000 times."""
    return np.repeat(samples[0][0], 40000), np.array([samples[0][1]])
