"""Random changes of training images, on the host: equal for every engine, number of shards and place to resume from.

A change is given random words, some for each sample, that the loader draws from its seed, the epoch and the sample's place in
the epoch. So nothing has to be kept in a checkpoint but the loader's cursor, and a split or resumed epoch changes each image
as the whole one would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
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
        """The changed arrays, as many as there are; what the change leaves alone comes back as it is.

        Args:
            words: Random words uint32 [batch, ``words_per_sample``].
            arrays: Arrays of the batch.
        """
        ...


def augmentation_words(seed: int, epoch: int, positions: Array, per_sample: int) -> Array:
    """Random words of an epoch's positions, int64 [n]: uint32 [n, per_sample], functions of seed and epoch alone."""
    return words_at(seed, epoch, positions, per_sample, _PURPOSE)


class _OfImages:
    """Which arrays of a batch are images that change together, and where their channels are."""

    def __init__(self, of: int | Sequence[int] | None, channels: str | None) -> None:
        self._name = type(self).__name__
        given = of if isinstance(of, Sequence) else () if of is None else (of,)
        self.of = None if of is None else tuple(whole(self._name, "of", i, 0) for i in given)
        if self.of is not None and len(set(self.of)) < max(1, len(self.of)):
            raise LoaderError(f"{self._name}: of names arrays of a batch, each once", f"of={of!r}", "pass e.g. of=(0, 1)")
        if channels not in (None, "first", "last"):
            raise LoaderError(f'{self._name}: channels is "first" or "last"', f"channels={channels!r}", "pass one of the two")
        self.channels = channels

    def _apply(self, arrays: Sequence[Array], change: Callable[[Array, int], Array]) -> tuple[Array, ...]:
        """The arrays, images changed by a function: of images with their channels last, and of their place in ``of``."""
        chosen = (0,) if self.of is None else self.of
        if max(chosen) >= len(arrays):
            raise LoaderError(
                f"{self._name}: of names arrays of a batch", f"of={self.of}, of {len(arrays)} arrays", "count from 0"
            )
        out = list(arrays)
        sizes = set()
        for k, i in enumerate(chosen):
            first = self._channels_first(arrays[i])
            images = np.moveaxis(arrays[i], 1, -1) if first else arrays[i]
            sizes.add(images.shape[1:3])
            out[i] = change(images, k)
            out[i] = np.ascontiguousarray(np.moveaxis(out[i], -1, 1)) if first else out[i]
        if len(sizes) > 1:
            shapes = ", ".join(f"{h}×{w}" for h, w in sorted(sizes))
            raise LoaderError(
                f"{self._name}: images that change together have one size", shapes, "bring them to one size before"
            )
        if self.of is None:
            height, width = sizes.pop()
            for i, other in enumerate(arrays[1:], 1):
                if other.ndim in (3, 4) and (height, width) in (other.shape[1:3], other.shape[-2:]):
                    raise LoaderError(
                        f"{self._name} is told which of several arrays of images change",
                        f"arrays 0 and {i} of {height}×{width}",
                        f"of=(0, {i}) changes both alike, as an image and its mask; of=0 changes the first alone",
                    )
        return tuple(out)

    def _channels_first(self, images: Array) -> bool:
        """Whether axis 1 of images has their channels; refused where that is not certain."""
        if images.ndim not in (3, 4):
            raise LoaderError(
                f"{self._name} takes images [batch, height, width], or with channels",
                f"{images.dtype}{list(images.shape)}",
                "augment images as they are stored; of= names another array of the batch",
            )
        if images.ndim == 3:
            return False
        if self.channels is None and not (images.shape[3] in (1, 3) and images.shape[1] > 4):
            raise LoaderError(
                f"{self._name} is told where images of these sizes have their channels",
                f"{images.dtype}{list(images.shape)}",
                'channels="first" for [batch, channels, height, width], channels="last" for [batch, height, width, channels]',
            )
        return self.channels == "first"


class RandomHorizontalFlip(_OfImages):
    """Mirror an image left to right, with probability 1/2.

    Args:
        p: Probability of a flip.
        of: Which arrays of a batch are images and change alike, by their places from 0; (0, 1) for images and masks. By default
            the first, and a batch in which another array has its height and width is refused.
        channels: "first" for images [batch, channels, height, width], "last" for [batch, height, width, channels]; images
            [batch, height, width] have none. By default channels are last, and sizes that do not tell are refused.

    Raises:
        LoaderError: p lies outside [0, 1]; when called, an array is not images, or it is not certain which arrays or axes are
            meant.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import RandomHorizontalFlip
        >>> (flipped,) = RandomHorizontalFlip(p=1.0)(np.zeros((1, 1), np.uint32), np.array([[[1, 2, 3]]]))
        >>> flipped.tolist()
        [[[3, 2, 1]]]
    """

    per_sample, by_rows = 1, True

    def __init__(self, p: float = 0.5, *, of: int | Sequence[int] | None = None, channels: str | None = None) -> None:
        super().__init__(of, channels)
        if not 0.0 <= number("RandomHorizontalFlip", "p", p) <= 1.0:
            raise LoaderError("a probability lies in [0, 1]", f"p = {p!r}", "pass e.g. 0.5")
        self.p = p

    def __call__(self, words: Array, *arrays: Array) -> tuple[Array, ...]:
        flip = words[:, 0] * 2.0**-32 < self.p

        def change(images: Array, k: int) -> Array:
            return np.where(flip.reshape((-1,) + (1,) * (images.ndim - 1)), images[:, :, ::-1], images)

        return self._apply(arrays, change)


class RandomCrop(_OfImages):
    """Pad an image on all sides and cut one of its size out of it, at a random place.

    Args:
        padding: Pixels added on each side.
        fill: Their value, in the images' dtype; with ``of``, also one for each of these arrays.
        of: Which arrays of a batch are images and change alike, as in ``RandomHorizontalFlip``.
        channels: Where images have their channels, as in ``RandomHorizontalFlip``.

    Raises:
        ConfigError: The padding is no int of at least 1.
        LoaderError: When called: an array is not images, or they are integers that do not have the fill, or it is not certain
            which arrays or axes are meant.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import RandomCrop
        >>> (moved,) = RandomCrop(1)(np.zeros((1, 2), np.uint32), np.array([[[1, 2], [3, 4]]]))
        >>> moved.tolist()
        [[[0, 0], [0, 1]]]
    """

    per_sample, by_rows = 2, True

    def __init__(
        self, padding: int = 2, fill: float | Sequence[float] = 0, *, of: int | Sequence[int] | None = None,
        channels: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(of, channels)
        self.padding = whole("RandomCrop", "padding", padding, 1)
        count = 1 if self.of is None else len(self.of)
        given: Any = fill
        given = given.tolist() if isinstance(given, np.ndarray) else given
        fills = given if isinstance(given, Sequence) else [given]
        if isinstance(given, str) or not all(isinstance(v, Real) for v in fills) or len(fills) not in (1, count):
            want = f"RandomCrop: fill is a number, or one for each of {count} arrays"
            raise LoaderError(want, f"{fill!r:.60}", "pass e.g. 0")
        self.fill: Any = given

    def __call__(self, words: Array, *arrays: Array) -> tuple[Array, ...]:
        # the high half of word · places is uniform over them, to one part in 2^32
        places = (words.astype(np.uint64) * np.uint64(2 * self.padding + 1) >> np.uint64(32)).astype(np.int64)

        def change(images: Array, k: int) -> Array:
            fill = self.fill[k if len(self.fill) > 1 else 0] if isinstance(self.fill, Sequence) else self.fill
            with np.errstate(all="ignore"):
                held = np.asarray(fill).astype(images.dtype)
            lost = held != fill if images.dtype.kind in "iub" else np.isinf(held) and not np.isinf(fill)
            if lost:
                raise LoaderError(
                    f"RandomCrop fills with a value that {images.dtype} has",
                    f"fill = {fill!r}",
                    "choose one, or convert images",
                )
            batch, height, width = images.shape[:3]
            around = [(0, 0), (self.padding, self.padding), (self.padding, self.padding), (0, 0)][: images.ndim]
            padded = np.pad(images, around, constant_values=fill)
            rows = (places[:, :1] + np.arange(height))[:, :, None]
            columns = (places[:, 1:] + np.arange(width))[:, None, :]
            return padded[np.arange(batch)[:, None, None], rows, columns]

        return self._apply(arrays, change)
