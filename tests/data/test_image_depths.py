"""Images of more than 8 bits a pixel are refused or scaled as the user says; conversion drops what the documentation says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firebrick.data import LoaderError
from firebrick.data.sources import ImageFolder

Image = pytest.importorskip("PIL.Image")

VALUES = np.array([[0, 100], [300, 65535]])
WIDE: dict[str, Any] = {
    "a.png": VALUES.astype(np.uint16),
    "b.tif": VALUES.astype(np.uint16),
    "c.tif": VALUES.astype(np.int32),
    "d.tif": np.array([[0, 0.5], [0.9, 1.0]], np.float32),
    "e.pgm": b"P5\n2 2\n65535\n" + VALUES.astype(">u2").tobytes(),
}


def folder(tmp_path: Path, name: str, content: Any) -> Path:
    file = tmp_path / "pictures" / "one" / name
    file.parent.mkdir(parents=True)
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        Image.fromarray(content).save(file)
    return file


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", list(WIDE))
def test_grey_values_beyond_8_bits_are_refused_not_clipped(tmp_path: Path, name: str, mode: str) -> None:
    file = folder(tmp_path, name, WIDE[name])
    with pytest.raises(LoaderError, match="8 bits a channel") as caught:
        ImageFolder(tmp_path / "pictures", mode=mode)[0]
    assert str(file) in str(caught.value)
    assert "to_uint8=" in caught.value.remedy


@pytest.mark.parametrize("name", list(WIDE))
def test_they_are_scaled_as_the_user_says(tmp_path: Path, name: str) -> None:
    folder(tmp_path, name, WIDE[name])
    scale = (lambda a: np.rint(a * 255).astype(np.uint8)) if name == "d.tif" else (lambda a: (a // 257).astype(np.uint8))
    image, _ = ImageFolder(tmp_path / "pictures", mode="L", to_uint8=scale)[0]
    assert image.tolist() == ([[0, 128], [230, 255]] if name == "d.tif" else [[0, 0], [1, 255]])


@pytest.mark.parametrize(
    ("scale", "got"),
    [
        (lambda a: a / 257, r"float64\[2, 2\]"),
        (lambda a: a[:1].astype(np.uint8), r"uint8\[1, 2\]"),
        (lambda a: (a // 257).astype(np.uint8).tolist(), "list"),
    ],
)
def test_a_scale_that_gives_no_uint8_of_the_shape_is_refused(tmp_path: Path, scale: Callable[[Any], Any], got: str) -> None:
    folder(tmp_path, "a.png", WIDE["a.png"])
    with pytest.raises(LoaderError, match=rf"{got} from to_uint8, which gives uint8\[2, 2\]"):
        ImageFolder(tmp_path / "pictures", to_uint8=scale)[0]


def test_transparency_orientation_and_later_frames_are_dropped_as_the_documentation_says(tmp_path: Path) -> None:
    file = folder(tmp_path, "a.png", np.array([[[10, 20, 30, 0], [40, 50, 60, 255]]], np.uint8))
    assert ImageFolder(tmp_path / "pictures")[0][0].tolist() == [[[10, 20, 30], [40, 50, 60]]]
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90°
    Image.fromarray(np.zeros((2, 4), np.uint8)).save(file, exif=exif)
    assert ImageFolder(tmp_path / "pictures", mode="L")[0][0].shape == (2, 4)
    file.unlink()
    frames = [Image.fromarray(np.full((2, 2), shade, np.uint8)) for shade in (10, 200)]
    frames[0].save(file.with_suffix(".tif"), save_all=True, append_images=frames[1:])
    assert ImageFolder(tmp_path / "pictures", mode="L")[0][0].tolist() == [[10, 10], [10, 10]]


@pytest.mark.parametrize("name", list(WIDE))
def test_a_picture_to_predict_from_is_refused_too(tmp_path: Path, name: str) -> None:
    from firebrick.cli.images import ImageError, read_image

    with pytest.raises(ImageError, match="save it with 8 bits a channel"):
        read_image(folder(tmp_path, name, WIDE[name]), 8, 255)
