"""Random changes of training images, on the host: equal for every engine, number of shards and place to resume from.

A change is given random words, some for each sample, that the loader draws from its seed, the epoch and the sample's place in
the epoch. So nothing has to be kept in a checkpoint but the loader's cursor, and a split or resumed epoch changes each image
as the whole one would.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from firebrick.core.settings import number, whole
from firebrick.data.errors import LoaderError
from firebrick.data.order import words_at

Array = np.ndarray[Any, Any]
_PURPOSE = 0x41554731  # "AUG1": apart from the streams of orders and of fb.random


class Augmentation(Protocol):
    """A random change of a batch: ``words`` are uniform uint32 [batch, ``per_sample``], the arrays those of the data set.

    One that changes each row by itself may say so with an attribute ``by_rows = True`` (see ``DataLoader``).

    Example:
        >>> import numpy as np, firebrick as fb
        >>> class RandomSign:
        ...     per_sample = 1
        ...
        ...     def __call__(self, words, *arrays):
        ...         sign = np.where(words[:, 0] & 1, 1.0, -1.0).astype(np.float32)
        ...         return arrays[0] * sign[:, None, None, None], *arrays[1:]
        >>> dataset = fb.data.ArrayDataset(np.ones((4, 1, 2, 2), np.float32), np.arange(4))
        >>> images, labels = next(iter(fb.data.DataLoader(dataset, 4, augment=RandomSign())))
        >>> fb.abs(images).sum().item()
        16.0
    """

    @property
    def per_sample(self) -> int:
        """Random words it takes for each sample."""
        ...

    def __call__(self, words: Array, *arrays: Array) -> tuple[Array, ...]:
        """The changed arrays; the first is the images, the others come back as they are.

        Args:
            words: Random words uint32 [batch, ``words_per_sample``].
            arrays: Arrays of the batch.
        """
        ...


def augmentation_words(seed: int, epoch: int, positions: Array, per_sample: int) -> Array:
    """Random words of an epoch's positions, int64 [n]: uint32 [n, per_sample], functions of seed and epoch alone."""
    return words_at(seed, epoch, positions, per_sample, _PURPOSE)


def _check_images(where: str, images: Array) -> None:
    if images.ndim not in (3, 4):
        raise LoaderError(
            f"{where} takes images [batch, height, width] or [batch, height, width, channels]",
            f"{images.dtype}{list(images.shape)}",
            "augment images as they are stored; put the channels last",
        )


class RandomHorizontalFlip:
    """Mirror an image left to right, with probability 1/2.

    Args:
        p: Probability of a flip.

    Raises:
        LoaderError: p lies outside [0, 1]; when called, the first array is not images.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import RandomHorizontalFlip
        >>> (flipped,) = RandomHorizontalFlip(p=1.0)(np.zeros((1, 1), np.uint32), np.array([[[1, 2, 3]]]))
        >>> flipped.tolist()
        [[[3, 2, 1]]]
    """

    per_sample, by_rows = 1, True

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= number("RandomHorizontalFlip", "p", p) <= 1.0:
            raise LoaderError("a probability lies in [0, 1]", f"p = {p!r}", "pass e.g. 0.5")
        self.p = p

    def __call__(self, words: Array, *arrays: Array) -> tuple[Array, ...]:
        images = arrays[0]
        _check_images("RandomHorizontalFlip", images)
        flip = (words[:, 0] * 2.0**-32 < self.p).reshape((-1,) + (1,) * (images.ndim - 1))
        return (np.where(flip, images[:, :, ::-1], images), *arrays[1:])


class RandomCrop:
    """Pad an image on all sides and cut one of its size out of it, at a random place.

    Args:
        padding: Pixels added on each side.
        fill: Their value, in the images' dtype.

    Raises:
        ConfigError: The padding is no int of at least 1.
        LoaderError: When called: the first array is not images, or they are integers that do not have the fill.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import RandomCrop
        >>> (moved,) = RandomCrop(1)(np.zeros((1, 2), np.uint32), np.array([[[1, 2], [3, 4]]]))
        >>> moved.tolist()
        [[[0, 0], [0, 1]]]
    """

    per_sample, by_rows = 2, True

    def __init__(self, padding: int = 2, fill: int = 0) -> None:
        self.padding = whole("RandomCrop", "padding", padding, 1)
        self.fill = fill

    def __call__(self, words: Array, *arrays: Array) -> tuple[Array, ...]:
        images = arrays[0]
        _check_images("RandomCrop", images)
        batch, height, width = images.shape[:3]
        around = [(0, 0), (self.padding, self.padding), (self.padding, self.padding), (0, 0)][: images.ndim]
        if images.dtype.kind in "iu" and np.asarray(self.fill).astype(images.dtype) != self.fill:
            raise LoaderError(
                f"RandomCrop fills with a value that {images.dtype} has",
                f"fill = {self.fill!r}",
                "choose one, or convert images",
            )
        padded = np.pad(images, around, constant_values=self.fill)
        # the high half of word · places is uniform over them, to one part in 2^32
        places = (words.astype(np.uint64) * np.uint64(2 * self.padding + 1) >> np.uint64(32)).astype(np.int64)
        rows = (places[:, :1] + np.arange(height))[:, :, None]
        columns = (places[:, 1:] + np.arange(width))[:, None, :]
        return (padded[np.arange(batch)[:, None, None], rows, columns], *arrays[1:])
