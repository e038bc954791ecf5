"""A stream in a random order within constant memory: a buffer from which samples are drawn, and which the stream refills.

The order is a function of seed, epoch, size of the buffer and length of the stream, so every worker draws the same one, and an
epoch is entered in the middle by repeating the draws before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

import numpy as np

from firebrick.core.settings import whole
from firebrick.data.assembly import WorkerInfo, info_scope
from firebrick.data.errors import LoaderError
from firebrick.data.order import BLOCK, keys
from firebrick.data.owning import owned
from firebrick.data.stream import IterableDataset
from firebrick.random.generator import check_seed

_DRAWS = 0x42554646  # "BUFF": apart from the streams of orders
_END: Any = object()


class BufferShuffle(IterableDataset):
    """A stream whose samples come in a random order; ``stream.shuffled(buffer_size, seed=…)`` makes it.

    Args:
        dataset: The stream.
        buffer_size: Samples held in memory.
        seed: Decides the order, with the epoch.
    """

    def __init__(self, dataset: IterableDataset, buffer_size: int, seed: int = 0) -> None:
        if not isinstance(dataset, IterableDataset):
            raise LoaderError(
                "a buffer shuffles an IterableDataset",
                type(dataset).__name__,
                "samples that have numbers are shuffled by DataLoader(…, shuffle=True)",
            )
        self.dataset = dataset
        self.buffer_size = whole("shuffled", "buffer_size", buffer_size, 1)
        self.seed = check_seed(seed)

    @property
    def order(self) -> str:
        """What a cursor says of the order, after that of the stream itself."""
        own = f"{self.dataset.order}," if isinstance(self.dataset, BufferShuffle) else " shuffled in a buffer"
        return f"{own} of {self.buffer_size} with seed {self.seed}"

    def __iter__(self) -> Iterator[Any]:
        return self.stream(0, 0)

    def stream(self, epoch: int, start: int) -> Iterator[Any]:
        """The samples of an epoch from the ``start``-th that is handed out: those before it are read and passed over."""
        with _read_ahead():
            source = iter(self.dataset.stream(epoch, 0))
        buffer = list(islice(_owned(source), self.buffer_size))
        refill = _owned(source)
        for number, word in enumerate(_draws(self.seed, epoch)):
            if not buffer:
                return
            slot = word * len(buffer) >> 32
            sample, following = buffer[slot], next(refill, _END)
            if following is not _END:
                buffer[slot] = following
            elif slot == len(buffer) - 1:
                buffer.pop()
            else:
                buffer[slot] = buffer.pop()
            if number >= start:
                yield sample


class SizedBufferShuffle(BufferShuffle):
    """The same of a stream whose length is known."""

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]


def _draws(seed: int, epoch: int) -> Iterator[int]:
    """Uniform 32-bit words without end."""
    for block in count():
        yield from (keys(seed, epoch, block * BLOCK, BLOCK, _DRAWS) >> np.uint64(32)).tolist()


def _owned(source: Iterator[Any]) -> Iterator[Any]:
    """Samples that stay as they were read, also where a stream fills one array again and again."""
    while True:
        with _read_ahead():
            sample = next(source, _END)
        if sample is _END:
            return
        yield owned(sample)


class _Ahead(WorkerInfo):
    """The worker that reads a sample ahead of its place in the epoch, so that no seed is known yet."""

    @property
    def seeds(self) -> Any:
        """A seed for each sample of the batch."""
        raise LoaderError(
            "a stream that is shuffled in a buffer is read ahead, before the places of its samples are known",
            "its samples draw random numbers by worker_info().seed",
            "draw them in sample_transform",
        )


@contextmanager
def _read_ahead() -> Iterator[None]:
    """A ``with`` block in which a sample is read for the buffer."""
    with info_scope(lambda info: info and _Ahead(info.worker, info.workers, info._job)):
        yield
