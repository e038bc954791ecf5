"""Data sets by name, as plain NumPy arrays together with what a training run must know about them.

`digits` is part of the package and needs neither network nor files; `mnist` and `fashion-mnist` are resolved
by `_sources`. What `load` returns has been checked: dtypes, shapes, equal counts, labels within the classes.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from firebrick.core.untrusted import content_of
from firebrick.data.datasets._idx import DataError, read_idx
from firebrick.data.datasets._sources import resolve

_SPLITS = ("train", "test")
_DIGITS_SEED = 0
_DIGITS_SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"


@dataclass(frozen=True)
class RawDataset:
    """One split of an image data set, before any scaling.

    Args:
        name: the data set's name, as given to `load`.
        images: uint8[n, height, width], values from 0 to `pixel_max`.
        labels: uint8[n], indices into `classes`.
        classes: the name of each class.
        pixel_max: the value of a full pixel, 16 or 255; `images / pixel_max` lies in [0, 1].
        mean: mean of `images / pixel_max` over the training split, for either split.
        std: standard deviation of the same.
    """

    name: str
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    classes: tuple[str, ...]
    pixel_max: int
    mean: float
    std: float

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class _Facts:
    classes: tuple[str, ...]
    image_shape: tuple[int, int]
    pixel_max: int
    mean: float
    std: float


_NUMERALS = tuple("0123456789")
_GARMENTS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

_FACTS: dict[str, _Facts] = {
    "digits": _Facts(_NUMERALS, (8, 8), pixel_max=16, mean=0.3047, std=0.3756),
    "mnist": _Facts(_NUMERALS, (28, 28), pixel_max=255, mean=0.1307, std=0.3081),
    "fashion-mnist": _Facts(_GARMENTS, (28, 28), pixel_max=255, mean=0.2860, std=0.3530),
}


def names() -> tuple[str, ...]:
    """Return the names that `load` knows."""
    return tuple(_FACTS)


def load(name: str, split: str, data_dir: str | os.PathLike[str] | None = None) -> RawDataset:
    """Load one split of a data set.

    `digits` is split 80/20 here, since it is published whole, and the split is part of its definition: within
    each class, images are ranked by the SHA-256 of `"0:<index>"` (seed 0, index in the published order), and
    the first fifth, rounded, is the test split. Both splits keep the published order. A hash is used rather
    than a NumPy generator because NumPy does not promise equal streams from version to version. It gives
    1,438 training and 359 test images.

    Args:
        name: one of `names()`.
        split: `"train"` or `"test"`.
        data_dir: the folder with the published files, or one with a subfolder called `name` that has them.
            Without it they are downloaded once into a cache. `digits` takes none.

    Returns:
        The split, in new arrays.

    Raises:
        DataError: an unknown name or split, or a missing or damaged file.

    Example:
        >>> from firebrick.data.datasets import load
        >>> digits = load("digits", "train")
        >>> digits.images.shape, digits.images.dtype, digits.pixel_max
        ((1438, 8, 8), dtype('uint8'), 16)
    """
    if name not in _FACTS:
        raise DataError(f"unknown data set: expected one of {', '.join(_FACTS)}; received {name!r}.")
    if split not in _SPLITS:
        raise DataError(f"unknown split of {name}: expected one of {', '.join(_SPLITS)}; received {split!r}.")
    if name == "digits":
        if data_dir is not None:
            raise DataError(
                f"digits is part of the package and is read from nowhere else; "
                f"received data_dir {os.fspath(data_dir)!r}. Leave --data-dir out."
            )
        images, labels = _digits(split)
    else:
        paths = resolve(name, data_dir, split=split)
        images, labels = read_idx(paths[f"{split}-images"]), read_idx(paths[f"{split}-labels"])
    facts = _FACTS[name]
    _check(f"{name} ({split})", images, labels, facts)
    return RawDataset(
        name=name,
        images=images,
        labels=labels,
        classes=facts.classes,
        pixel_max=facts.pixel_max,
        mean=facts.mean,
        std=facts.std,
    )


def _digits(split: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    file = resources.files("firebrick.data.datasets").joinpath("digits.npz")
    try:
        with resources.as_file(file) as path:
            content = content_of(path)
        received = hashlib.sha256(content).hexdigest()
    except OSError as error:
        received = str(error)
    if received != _DIGITS_SHA256:
        raise DataError(
            f"digits: expected {file} with sha256 {_DIGITS_SHA256}; received: {received}. "
            f"The installation is damaged: install firebrick again."
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    chosen = _in_test_split(labels)
    if split == "train":
        chosen = ~chosen
    return images[chosen], labels[chosen]


def _in_test_split(labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    def rank(index: int) -> bytes:
        return hashlib.sha256(f"{_DIGITS_SEED}:{index}".encode()).digest()

    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        ranked = sorted(np.flatnonzero(labels == label).tolist(), key=rank)
        chosen[ranked[: round(len(ranked) / 5)]] = True
    return chosen


def _check(what: str, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8], facts: _Facts) -> None:
    height, width = facts.image_shape
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != facts.image_shape:
        raise DataError(
            f"{what}: expected images as uint8[n, {height}, {width}]; "
            f"received {images.dtype.name}{list(images.shape)}. Check that the file is the data set's own."
        )
    if labels.dtype != np.uint8 or labels.ndim != 1:
        raise DataError(
            f"{what}: expected labels as uint8[n]; received {labels.dtype.name}{list(labels.shape)}. "
            f"Check that the file is the data set's own."
        )
    if len(images) != len(labels):
        raise DataError(
            f"{what}: expected one label for each image; received {len(images)} images and {len(labels)} "
            f"labels. Check that both files belong to the same split."
        )
    if labels.size and int(labels.max()) >= len(facts.classes):
        raise DataError(
            f"{what}: expected labels from 0 to {len(facts.classes) - 1}; received {int(labels.max())}. "
            f"Check that the file is the data set's own."
        )
    if images.size and int(images.max()) > facts.pixel_max:
        raise DataError(
            f"{what}: expected pixels from 0 to {facts.pixel_max}; received {int(images.max())}. "
            f"Check that the file is the data set's own."
        )
