"""Data sets without numbers: samples that come one after the other, such as lines of a log or records of a queue.

A stream gives the same samples in the same order each time it is entered for an epoch. Then workers need not talk to each
other: each enters the stream itself, passes over the batches of the others and makes its own, so the order is that of the
stream for any number of workers, and a cursor goes on by passing over what was handed out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any


class IterableDataset(ABC):
    """A data set that is read from its beginning: write ``__iter__``, and ``__len__`` where the number of samples is known.

    What is costly for a sample belongs in the loader's ``sample_transform``: each worker reads the whole stream, but changes
    only the samples of its own batches. With ``__len__``, an epoch has that many samples.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import DataLoader, IterableDataset
        >>> class Squares(IterableDataset):
        ...     def __iter__(self):
        ...         return (np.float32(i * i) for i in range(5))
        >>> [batch.tolist() for batch in DataLoader(Squares(), 2)]
        [[0.0, 1.0], [4.0, 9.0], [16.0]]
    """

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """All samples, in their order."""

    def stream(self, epoch: int, start: int) -> Iterator[Any]:
        """The samples of an epoch from number ``start`` on; override it where epochs differ, or where entering is cheap.

        Args:
            epoch: Number of the epoch, from 0.
            start: Number of the first sample, from 0.
        """
        del epoch  # the same samples in each
        return islice(iter(self), start, None)

    def shuffled(self, buffer_size: int, *, seed: int = 0) -> IterableDataset:
        """The samples in a random order within ``buffer_size`` samples of memory, another one in each epoch.

        The first ``buffer_size`` samples fill a buffer. Each sample handed out is drawn from the buffer, all with the same
        probability, and the next one of the stream takes its slot; after the end of the stream the rest is drawn in the same
        way. So sample i comes at position i - buffer_size + 1 or later. Samples far apart in the stream stay apart: shuffle
        the files or parts that it reads too, by the ``epoch`` of ``stream``.

        The order is a function of seed, epoch, buffer size and number of samples: the same for any number of workers, and a
        cursor goes on exactly, by reading from the beginning and passing over what was handed out. It names buffer size and
        seed. The stream is read ahead of use, so random numbers are drawn in the loader's ``sample_transform``.

        Args:
            buffer_size: Samples held in memory, by each worker; 1 leaves the order as it is.
            seed: Decides the order.

        Returns:
            A stream, of the length of this one where it has one.

        Raises:
            ConfigError: ``buffer_size`` is no int of at least 1, or the seed no int in [0, 2^64).

        Example:
            >>> import numpy as np
            >>> from firebrick.data import DataLoader, IterableDataset
            >>> class Squares(IterableDataset):
            ...     def __iter__(self):
            ...         return (np.float32(i * i) for i in range(5))
            >>> [batch.tolist() for batch in DataLoader(Squares().shuffled(3), 2)]
            [[0.0, 1.0], [4.0, 16.0], [9.0]]
        """
        from firebrick.data.buffered import BufferShuffle, SizedBufferShuffle  # which is derived from this

        kind = SizedBufferShuffle if hasattr(type(self), "__len__") else BufferShuffle
        return kind(self, buffer_size, seed)
