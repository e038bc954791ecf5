"""What happens to a batch on the host before it is placed: from stored pixels to the numbers a model is fed."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.data.datasets import RawDataset
from firebrick.data.errors import LoaderError

Array = np.ndarray[Any, Any]


class Pixels:
    """Images of whole numbers to normalised floats with a channel axis: (x / pixel_max − mean) / std.

    A transform for ``DataLoader``: it takes images uint8 [batch, height, width] and whatever comes with them, and returns
    float32 [batch, 1, height, width] and the same. The 256 possible values are looked up in a table, computed in float64
    and rounded once, so the values are equal on every machine.

    Args:
        pixel_max: Value of a full pixel, 1 to 255.
        mean: Mean of ``x / pixel_max`` over the training images.
        std: Standard deviation of the same, above 0.

    Raises:
        LoaderError: A number out of these ranges; when called, images that are not uint8 [batch, height, width].

    Example:
        >>> import numpy as np
        >>> from firebrick.data import Pixels
        >>> images, labels = Pixels(pixel_max=16, mean=0.5, std=0.5)(np.array([[[0, 16]]], np.uint8), np.array([3]))
        >>> images.tolist(), images.dtype
        ([[[[-1.0, 1.0]]]], dtype('float32'))
    """

    by_rows = True

    def __init__(self, pixel_max: int, mean: float, std: float) -> None:
        if not 1 <= pixel_max <= 255 or not std > 0:
            raise LoaderError(
                "pixels need a maximum from 1 to 255 and a standard deviation above 0",
                f"pixel_max {pixel_max}, std {std}",
                "take them from the data set: Pixels.of(raw)",
            )
        self.pixel_max, self.mean, self.std = pixel_max, mean, std
        self._table = ((np.arange(256) / pixel_max - mean) / std).astype(np.float32)

    @classmethod
    def of(cls, raw: RawDataset) -> Pixels:
        """The normalisation of a data set.

        Args:
            raw: A data set of images, as ``datasets.load`` returns it.
        """
        return cls(raw.pixel_max, raw.mean, raw.std)

    def __call__(self, images: Array, *others: Array) -> tuple[Array, ...]:
        if images.dtype != np.uint8 or images.ndim != 3:
            raise LoaderError(
                "Pixels takes images as uint8[batch, height, width]",
                f"{images.dtype}{list(images.shape)}",
                "pass the images as they are stored, before any scaling",
            )
        return (self._table.take(images)[:, None], *others)
