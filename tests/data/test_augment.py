"""Augmentation: each image changed as its seed, epoch and place say, whatever the split, the device or the place of entry."""

import numpy as np
import pytest

from firebrick.core.errors import ConfigError
from firebrick.data import ArrayDataset, DataLoader, LoaderError, RandomCrop, RandomHorizontalFlip
from firebrick.data.augment import augmentation_words

IMAGES = np.random.default_rng(0).integers(0, 255, (10, 5, 4), dtype=np.uint8)
CHANGES = [RandomHorizontalFlip(), RandomCrop(2, fill=7)]


def loader(**options: object) -> DataLoader:
    settings = {"shuffle": True, "seed": 4, "augment": CHANGES, **options}
    return DataLoader(ArrayDataset(IMAGES, np.arange(10)), 3, **settings)  # type: ignore[arg-type]


def epoch(of: DataLoader) -> list[tuple[bytes, list[int]]]:
    return [(x.numpy().tobytes(), y.tolist()) for x, y in of]


def test_every_crop_and_flip_equals_one_written_out_image_by_image() -> None:
    words = augmentation_words(4, 0, np.arange(10), 3)
    (flipped, labels) = CHANGES[0](words[:, :1], IMAGES, np.arange(10))
    (moved,) = CHANGES[1](words[:, 1:], flipped)
    assert labels.tolist() == list(range(10))
    for i, image in enumerate(IMAGES):
        turned = image[:, ::-1] if words[i, 0] / 2**32 < 0.5 else image
        big = np.full((9, 8), 7, np.uint8)
        big[2:7, 2:6] = turned
        top, left = (int(w) * 5 // 2**32 for w in words[i, 1:])
        assert moved[i].tolist() == big[top : top + 5, left : left + 4].tolist()
    assert len({w // (2**32 // 5 + 1) for w in words[:, 1].tolist()}) > 1


def test_images_with_channels_keep_them() -> None:
    colour = np.stack([IMAGES, 255 - IMAGES], -1)
    words = augmentation_words(0, 0, np.arange(10), 2)
    (moved,) = RandomCrop(1, channels="last")(words, colour)
    (grey,) = RandomCrop(1)(words, IMAGES)
    assert moved.shape == colour.shape
    assert moved[..., 0].tolist() == grey.tolist()
    for change in (RandomCrop, RandomHorizontalFlip):
        (last,) = change(1, channels="last")(words, colour)
        (first,) = change(1, channels="first")(words, np.moveaxis(colour, -1, 1))
        assert np.moveaxis(first, 1, -1).tolist() == last.tolist()
        photos = np.random.default_rng(0).integers(0, 255, (10, 5, 4, 3), np.uint8)
        assert change(1)(words, photos)[0].tolist() == change(1, channels="last")(words, photos)[0].tolist()


@pytest.mark.parametrize("shape", [(10, 3, 6, 6), (10, 1, 28, 28), (10, 3, 3, 3), (10, 16, 8, 8), (10, 4, 7, 1), (10, 2, 5, 3)])
def test_axes_are_not_guessed_where_sizes_do_not_tell(shape: tuple[int, ...]) -> None:
    for change in (RandomCrop(1), RandomHorizontalFlip()):
        with pytest.raises(LoaderError, match=r'told where images(.|\n)*channels="first" for \[batch, channels, '):
            DataLoader(ArrayDataset(np.zeros(shape, np.float32)), 2, augment=change).first()


def test_images_and_masks_change_alike() -> None:
    masks = (IMAGES > 100).astype(np.int64)
    words = augmentation_words(0, 0, np.arange(10), 2)
    moved, labels, mask = RandomCrop(1, fill=(0, 9), of=(0, 2))(words, IMAGES, np.arange(10), masks)
    assert labels.tolist() == [*range(10)]
    assert (mask == 9).any()
    assert mask[mask < 9].tolist() == (moved > 100)[mask < 9].astype(int).tolist()
    flipped, same = RandomHorizontalFlip(1.0, of=1)(words, IMAGES, masks)
    assert (flipped.tolist(), same.tolist()) == (IMAGES.tolist(), masks[:, :, ::-1].tolist())
    for other in (masks, masks[:, None], masks[..., None]):
        with pytest.raises(LoaderError, match=r"told which of several arrays(.|\n)*of=\(0, 1\) changes both alike"):
            RandomHorizontalFlip()(words, IMAGES, other)
    for of, text in (((0, 0), "each once"), ((), "each once"), ((0, 3), "of 2 arrays"), ((0, 1), "one size")):
        with pytest.raises(LoaderError, match=text):
            RandomCrop(1, of=of)(words, IMAGES, masks[:, 1:])
    both = RandomCrop(1, fill=np.array([0, 9]), of=(0, 2))(words, IMAGES, np.arange(10), masks)
    assert [b.tolist() for b in both] == [moved.tolist(), labels.tolist(), mask.tolist()]
    for fill in ((1, 2, 3), None, "0", [(1, 2)], np.ones((2, 2))):
        with pytest.raises(LoaderError, match="one for each of 2 arrays"):
            RandomCrop(1, fill=fill, of=(0, 1))
    for dtype, value in ((bool, 2), (np.float16, 1e9), (np.uint8, np.nan)):
        with pytest.raises(LoaderError, match=f"fills with a value that {np.dtype(dtype)} has"):
            RandomCrop(1, fill=value)(words, IMAGES.astype(dtype))
    assert np.isnan(RandomCrop(1, fill=np.nan)(words, IMAGES / 2)[0]).any()
    with pytest.raises(LoaderError, match='channels is "first" or "last"'):
        RandomHorizontalFlip(channels="middle")


def test_epochs_differ_and_the_same_epoch_repeats() -> None:
    one = loader()
    first, second = epoch(one), epoch(one)
    assert first != second
    again = loader()
    assert epoch(again) == first
    again.set_epoch(1)
    assert epoch(again) == second
    assert epoch(loader(augment=())) != first


def test_an_epoch_entered_in_the_middle_goes_on_as_the_whole_one() -> None:
    whole = epoch(loader())
    stopped = loader()
    for _ in zip(range(2), stopped, strict=False):
        pass
    resumed = loader()
    resumed.load_cursor({**stopped.cursor(), "position": 6})
    assert epoch(resumed) == whole[2:]


def test_shards_change_each_image_as_the_whole_loader_does() -> None:
    whole = {int(n): row.tobytes() for x, y in loader() for row, n in zip(x.numpy(), y.numpy(), strict=True)}
    shards = loader().split(["cpu:0", "numpy:1"])
    parts = {int(n): row.tobytes() for s in shards for x, y in s for row, n in zip(x.numpy(), y.numpy(), strict=True)}
    assert parts == whole


def test_the_first_batch_is_the_one_that_iteration_gives() -> None:
    one = loader()
    x, _ = one.first()
    assert x.numpy().tobytes() == epoch(one)[0][0]


def test_a_probability_of_0_or_1_is_never_and_always() -> None:
    words = augmentation_words(0, 0, np.arange(10), 1)
    assert RandomHorizontalFlip(0.0)(words, IMAGES)[0].tolist() == IMAGES.tolist()
    assert RandomHorizontalFlip(1.0)(words, IMAGES)[0].tolist() == IMAGES[:, :, ::-1].tolist()


def test_bad_settings_and_arrays_are_refused() -> None:
    for p in (1.5, -0.1, float("nan")):
        with pytest.raises(LoaderError, match=r"a probability lies in \[0, 1\]"):
            RandomHorizontalFlip(p)
    for padding in (0, 2.5):
        with pytest.raises(ConfigError, match="RandomCrop: padding is an int ≥ 1"):
            RandomCrop(padding)  # type: ignore[arg-type]
    for fill in (300, 0.5):  # which uint8 would turn into 44 and 0
        with pytest.raises(LoaderError, match="a value that uint8 has"):
            RandomCrop(1, fill)(augmentation_words(0, 0, np.arange(10), 2), IMAGES)  # type: ignore[arg-type]
    for augment in (None, "flip", RandomCrop, [lambda images: images]):
        with pytest.raises(LoaderError, match="augment is a change of batches"):
            loader(augment=augment)
    for change in CHANGES:
        for shape in ((3, 2), (3, 2, 2, 1, 1)):
            with pytest.raises(LoaderError, match=f"{type(change).__name__} takes images"):
                change(augmentation_words(0, 0, np.arange(3), 2), np.zeros(shape))
    assert RandomCrop(1, 0.5)(augmentation_words(0, 0, np.arange(10), 2), IMAGES / 2)[0].dtype == np.float64  # type: ignore[arg-type]
