"""Image grids: the file, read by Pillow, has each image at its place, in its colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.errors import ConfigError, DataDependentError, DTypeError, OperandError, ShapeError

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)


def read(path: Path) -> np.ndarray[Any, Any]:
    with Image.open(path) as picture:
        picture.load()
        return np.asarray(picture)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(("count", "columns", "padding"), [(1, 8, 0), (5, 2, 1), (6, 3, 2), (7, 3, 0), (3, 8, 3)])
def test_each_image_is_at_its_place(channels: int, count: int, columns: int, padding: int, tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (count, channels, 4, 6), np.uint8)
    path = fb.data.save_image_grid(fb.asarray(images), tmp_path / "grid.png", columns=columns, padding=padding)
    grid = read(path).reshape(*read(path).shape[:2], channels)
    across = min(columns, count)
    assert grid.shape == (-(-count // across) * (4 + padding) + padding, across * (6 + padding) + padding, channels)
    rest = grid.copy()
    for i in range(count):
        y, x = padding + i // across * (4 + padding), padding + i % across * (6 + padding)
        assert np.array_equal(grid[y : y + 4, x : x + 6], images[i].transpose(1, 2, 0))
        rest[y : y + 4, x : x + 6] = 255
    assert (rest == 255).all()


def test_layouts_arrays_and_grey_images_without_channels_give_the_same_file(tmp_path: Path) -> None:
    images = RNG.random((3, 1, 5, 5), np.float32)
    forms: list[tuple[Any, str]] = [
        (fb.asarray(images), "NCHW"), (images, "NCHW"), (fb.asarray(images.transpose(0, 2, 3, 1)), "NHWC"),
        (images[:, 0], "NCHW"), (fb.asarray(images[:, 0]), "NHWC"), (fb.asarray(images, device="torch:cpu"), "NCHW"),
    ]  # fmt: skip
    files = [
        fb.data.save_image_grid(v, tmp_path / f"{i}.png", layout=layout).read_bytes() for i, (v, layout) in enumerate(forms)
    ]
    assert set(files) == {files[0]}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floating_pixels_are_scaled_rounded_and_clipped(dtype: str, tmp_path: Path) -> None:
    pixels = fb.asarray([[[-1.0, 0.0, 0.25, 0.5, 1.0, 3.0, np.inf, -np.inf]]]).astype(dtype)
    path = fb.data.save_image_grid(pixels, tmp_path / "a.png", padding=0)
    assert read(path).tolist() == [[0, 0, 64, 128, 255, 255, 255, 0]]
    path = fb.data.save_image_grid(pixels[..., :6], tmp_path / "a.png", padding=0, low=None, high=None)
    assert read(path).tolist() == [[0, 64, 80, 96, 128, 255]]


def test_bool_pixels_are_black_and_white_and_equal_pixels_black(tmp_path: Path) -> None:
    path = fb.data.save_image_grid(fb.asarray([[[True, False]]]), tmp_path / "a.png", padding=0)
    assert read(path).tolist() == [[255, 0]]
    path = fb.data.save_image_grid(fb.ones((1, 1, 2)), tmp_path / "a.png", padding=0, low=None, high=None)
    assert read(path).tolist() == [[0, 0]]


GREY = np.zeros((2, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("kind", "images", "settings", "text"),
    [
        (ShapeError, np.zeros((4, 4)), {}, r"images of shape \(4, 4\)"),
        (ShapeError, np.zeros((2, 8, 8, 3)), {}, 'pass layout="NHWC"'),
        (ShapeError, np.zeros((2, 3, 8, 8)), {"layout": "NHWC"}, 'pass layout="NCHW"'),
        (ShapeError, np.zeros((2, 5, 8, 8)), {}, "with 1 to 4 channels"),
        (ShapeError, np.zeros((0, 3, 8, 8)), {}, "at least one pixel"),
        (OperandError, [GREY], {}, "images: list"),
        (DTypeError, np.zeros((2, 4, 4), np.int64), {}, "fb.uint8"),
        (DTypeError, np.zeros((2, 4, 4), np.complex64), {}, "images of dtype complex64"),
        (DTypeError, np.zeros((2, 4, 4), object), {}, "images of dtype object"),
        (ConfigError, np.full((1, 2, 2), np.nan), {}, "4 of 4"),
        (ConfigError, GREY, {"layout": "CHW"}, "layout='CHW'"),
        (ConfigError, GREY, {"columns": 0}, "columns is an int ≥ 1"),
        (ConfigError, GREY, {"padding": -1}, "padding is an int ≥ 0"),
        (ConfigError, GREY, {"low": 1.0, "high": 1.0}, "low < high"),
        (ConfigError, GREY, {"high": np.inf}, "finite"),
        (ConfigError, GREY, {"low": "a"}, "low is a number"),
        (fb.ArgumentError, GREY, {"nrow": 3}, "takes no argument nrow"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_and_nothing_is_written(
    kind: type[Exception], images: Any, settings: dict[str, Any], text: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=text):
        fb.data.save_image_grid(images, tmp_path / "a.png", **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_path_is_checked(tmp_path: Path) -> None:
    for path, text in (
        (tmp_path / "a.jpg", r"ends in \.png"),
        (tmp_path / "none" / "a.png", "make it first"),
        (3, "path is a path"),
    ):
        with pytest.raises(ConfigError, match=text):
            fb.data.save_image_grid(GREY, path)  # type: ignore[arg-type]


def test_numpys_scalars_count_as_numbers(tmp_path: Path) -> None:
    a = fb.data.save_image_grid(GREY, tmp_path / "a.png", columns=1, padding=3, low=-1.0, high=2.0).read_bytes()
    b = fb.data.save_image_grid(
        GREY, tmp_path / "b.png", columns=np.int64(1), padding=np.uint8(3), low=np.float32(-1.0), high=np.float64(2.0)
    ).read_bytes()
    assert a == b


def test_a_traced_batch_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataDependentError, match=r"numpy\(\) needs the value"):
        fb.jit(lambda x: fb.data.save_image_grid(x, tmp_path / "a.png"))(fb.asarray(GREY))
