import hashlib
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from firebrick.data.datasets import DataError, RawDataset, _load, load, names

PER_CLASS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
TEST_PER_CLASS = [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]


@pytest.fixture(scope="module")
def train() -> RawDataset:
    return load("digits", "train")


@pytest.fixture(scope="module")
def test() -> RawDataset:
    return load("digits", "test")


def test_digits_has_1797_images_with_the_published_count_of_each_class(train: RawDataset, test: RawDataset) -> None:
    assert (len(train), len(test)) == (1438, 359)
    assert (np.bincount(train.labels) + np.bincount(test.labels)).tolist() == PER_CLASS


def test_each_class_gives_a_fifth_of_its_images_to_the_test_split(test: RawDataset) -> None:
    assert np.bincount(test.labels).tolist() == TEST_PER_CLASS


def test_digits_are_uint8_of_8_by_8_from_0_to_16(train: RawDataset, test: RawDataset) -> None:
    for split in (train, test):
        assert split.images.dtype == split.labels.dtype == np.uint8
        assert split.images.shape == (len(split), 8, 8)
        assert (split.images.min(), split.images.max()) == (0, split.pixel_max) == (0, 16)
        assert split.classes == tuple("0123456789")


def test_the_first_published_image_is_a_zero(train: RawDataset, test: RawDataset) -> None:
    zero = [0, 0, 5, 13, 9, 1, 0, 0]
    with np.load(str(resources.files("firebrick.data.datasets").joinpath("digits.npz"))) as arrays:
        assert arrays["images"][0, 0].tolist() == zero
        assert arrays["labels"][:10].tolist() == list(range(10))
        assert int(arrays["images"].sum()) == 561_718


def test_the_split_is_the_same_for_every_run_and_version(train: RawDataset, test: RawDataset) -> None:
    def digest(split: RawDataset) -> str:
        return hashlib.sha256(split.images.tobytes() + split.labels.tobytes()).hexdigest()

    # Results on `digits` are comparable only while these stand: a change here is a new data set.
    assert digest(train) == "f66375e5dd8528a1577f86ab455016b5ab4ffe462eae929b5b886b54816adf9c"
    assert digest(test) == "7643029fba3f7f4d65faf77e916e2c958adf48b7e24e4e19491c8b327dcc49a7"


def test_the_splits_hold_every_image_once_and_in_the_published_order(train: RawDataset, test: RawDataset) -> None:
    with np.load(str(resources.files("firebrick.data.datasets").joinpath("digits.npz"))) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    chosen = _load._in_test_split(labels)
    merged = np.empty_like(images)
    merged[chosen], merged[~chosen] = test.images, train.images
    np.testing.assert_array_equal(merged, images)


def test_the_stated_moments_are_those_of_the_training_split(train: RawDataset, test: RawDataset) -> None:
    pixels = train.images / train.pixel_max
    assert train.mean == pytest.approx(pixels.mean(), abs=5e-5)
    assert train.std == pytest.approx(pixels.std(), abs=5e-5)
    assert (test.mean, test.std) == (train.mean, train.std)


def test_writing_into_a_loaded_split_does_not_change_the_next_load() -> None:
    first = load("digits", "test")
    first.images[:] = 0
    assert load("digits", "test").images.any()


def test_digits_refuses_a_data_dir_rather_than_ignore_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"digits is part of the package .* Leave --data-dir out"):
        load("digits", "train", tmp_path)


def test_a_damaged_package_file_says_to_install_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = resources.files("firebrick.data.datasets").joinpath("digits.npz").read_bytes()
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 0xFF
    monkeypatch.setattr(_load.resources, "files", lambda _package: tmp_path)
    for damaged in (None, b"", b"not an archive", whole[:-100], bytes(flipped)):
        if damaged is not None:
            (tmp_path / "digits.npz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"digits: expected .* The installation is damaged: install firebrick again"):
            load("digits", "train")


def test_names_lists_what_load_knows() -> None:
    assert names() == ("digits", "mnist", "fashion-mnist")


def test_importing_the_data_sets_imports_neither_torch_nor_jax() -> None:
    code = "import sys, firebrick.data.datasets; print('torch' in sys.modules or 'jax' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert ran.stdout.strip() == "False"
