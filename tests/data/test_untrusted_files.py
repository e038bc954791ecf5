import errno
import gzip
import os
import struct
import tracemalloc
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firebrick.cli.images import ImageError, read_image
from firebrick.core.untrusted import content_of, json_of, opened
from firebrick.data.datasets import DataError, read_idx, read_series
from firebrick.data.errors import LoaderError
from firebrick.data.sources import CSVDataset, ImageFolder, ParquetDataset
from firebrick.train import CheckpointError, load_checkpoint

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
COLUMNS = {"x": "float64"}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def nowhere(path: Path) -> None:
    path.symlink_to("absent")


PLACES = pytest.mark.parametrize("place", [fifo, endless, nowhere, Path.mkdir], ids=["FIFO", "device", "dangling", "folder"])


# the one way to a file


@PLACES
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, place: Callable[[Path], None]) -> None:
    place(tmp_path / "a")
    with pytest.raises(OSError, match=r"instead of a regular file|No such file"):
        opened(tmp_path / "a")


def test_a_file_that_becomes_a_fifo_between_two_looks_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, stat = tmp_path / "a", os.stat
    path.write_text("text")

    def late(name: Any, **kwargs: Any) -> os.stat_result:
        found = stat(name, **kwargs)
        path.unlink()
        os.mkfifo(path)
        return found

    monkeypatch.setattr(os, "stat", late)
    with pytest.raises(OSError, match="a FIFO instead of a regular file"):
        opened(path)


@pytest.mark.parametrize("change", [b"longer than before", b""], ids=["grows", "shrinks"])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: bytes
) -> None:
    path, fstat, looks = tmp_path / "a", os.fstat, count()
    path.write_text("text")

    def late(handle: int) -> os.stat_result:
        found = fstat(handle)
        if next(looks) == 1:  # its kind is known, and now its size
            path.write_bytes(change)
        return found

    monkeypatch.setattr(os, "fstat", late)
    with pytest.raises(OSError, match="changed while it was read"):
        content_of(path)


def test_a_file_larger_than_it_may_be_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(11))
    assert len(content_of(tmp_path / "a", 11)) == 11
    with pytest.raises(OSError, match="11 bytes instead of 10") as caught:
        content_of(tmp_path / "a", 10)
    assert caught.value.errno == errno.EFBIG


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nest too deeply"),
        ('{"a": 1, "a": 2}', "a key twice"),
        ("[NaN]", "NaN, which is no number"),
        ("[-1e999]", "beyond float64"),
        (b"\xff", "utf-8"),
        ("9" * 5000, "digits"),
        ("{", "Expecting"),
    ],
)
def test_json_has_one_meaning_or_is_a_value_error(text: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        json_of(text, finite=True)


def test_json_may_hold_what_a_checkpoint_writes() -> None:
    assert np.isnan(json_of('{"loss": NaN}')["loss"])
    assert json_of(b'"\\ud83d\\ude00 \\udcff"') == "😀 \udcff"


# IDX


@PLACES
def test_idx_series_and_tables_are_regular_files(tmp_path: Path, place: Callable[[Path], None]) -> None:
    place(tmp_path / "a.csv")
    for read in (read_idx, read_series):
        with pytest.raises(DataError, match="cannot read"):
            read(tmp_path / "a.csv")
    with pytest.raises(LoaderError, match=r"instead of a regular file|No such file"):
        CSVDataset(tmp_path / "a.csv", COLUMNS)
    if place is not Path.mkdir:
        with pytest.raises(LoaderError, match=r"instead of a regular file|No such file"):
            ParquetDataset(tmp_path / "a.csv", COLUMNS)


def test_a_gzip_stream_that_gives_more_than_its_header_states_is_not_inflated(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 5) + bytes(2**26)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"expected 13 bytes .* received more than 13 bytes. The file has bytes after"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_header_that_states_more_than_a_gzip_stream_can_hold_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "claim.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 2]) + struct.pack(">2I", 2**31, 2)))
    with pytest.raises(
        DataError, match=r"expected 4294967308 bytes .* compressed bytes, which hold at most \d+\. The file is trunc"
    ):
        read_idx(path)


@pytest.mark.parametrize("shape", [(0, 2**32 - 1, 2**32 - 1, 2**32 - 1), (1,) * 255], ids=["overflows", "255 axes"])
def test_a_shape_that_no_array_has_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "shape"
    path.write_bytes(bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(0 if 0 in shape else 1))
    with pytest.raises(DataError, match="expected a shape that NumPy can make"):
        read_idx(path)


# tables


def test_a_compressed_table_is_read_to_its_limit_and_no_further(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"x\n" + b"1\n" * 2**20))
    with pytest.raises(LoaderError, match=r"is decompressed to at most 100000[\s\S]*pass max_bytes="):
        CSVDataset(path, COLUMNS, max_bytes=100_000)
    assert len(CSVDataset(path, COLUMNS)) == 2**20


def test_a_parquet_file_that_states_more_than_its_limit_is_not_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"x": np.zeros(10**6), "y": np.zeros(10**6)}), tmp_path / "t.parquet")
    with pytest.raises(LoaderError, match=r"is decompressed to at most 1000000[\s\S]*at least 8000000 bytes"):
        ParquetDataset(tmp_path / "t.parquet", COLUMNS, max_bytes=10**6)
    assert len(ParquetDataset(tmp_path / "t.parquet", COLUMNS)) == 10**6


# images


def test_an_eps_by_the_name_of_a_png_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL.Image")
    import subprocess

    started: list[Any] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **_: started.append(args))
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.png").write_bytes(EPS)
    with pytest.raises(LoaderError, match="no image of these formats"):
        ImageFolder(tmp_path)[0]
    assert not started


@pytest.mark.filterwarnings("ignore:Image size")  # Pillow's, which decodes the image all the same
def test_an_image_that_pillow_only_warns_of_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "cats").mkdir()
    image.new("L", (10, 9)).save(tmp_path / "cats" / "a.png")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 90)
    assert ImageFolder(tmp_path)[0][0].shape == (9, 10, 3)
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 89)
    with pytest.raises(LoaderError, match=r"10×9 pixels, more than PIL\.Image\.MAX_IMAGE_PIXELS \(89\)"):
        ImageFolder(tmp_path)[0]


@pytest.mark.parametrize("pixels", [99, 40], ids=["Pillow warns", "Pillow raises"])
def test_an_image_of_too_many_pixels_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pixels: int) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "cats").mkdir()
    image.new("L", (10, 10)).save(tmp_path / "cats" / "a.png")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", pixels)
    with pytest.raises(LoaderError, match=r"a\.png is an image .*"):
        ImageFolder(tmp_path)[0]
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", None)
    assert ImageFolder(tmp_path)[0][0].shape == (10, 10, 3)


@PLACES
def test_an_image_that_is_no_regular_file_is_named(tmp_path: Path, place: Callable[[Path], None]) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "cats").mkdir()
    image.new("L", (2, 2)).save(tmp_path / "cats" / "b.png")
    place(tmp_path / "cats" / "a.png")
    data = ImageFolder(tmp_path)
    if place is Path.mkdir:
        assert len(data) == 1
        return
    with pytest.raises(LoaderError, match=r"a\.png is an image"):
        data[0]


@pytest.mark.parametrize("name", ["a\0b.csv.gz", "a\0b.csv", "a\ud800b.csv"])
@pytest.mark.parametrize(
    ("read", "error"),
    [
        (opened, OSError),
        (content_of, OSError),
        (read_idx, DataError),
        (read_series, DataError),
        (lambda name: CSVDataset(name, COLUMNS), LoaderError),
        (lambda name: ParquetDataset(name, COLUMNS), LoaderError),
        (lambda name: ImageFolder(name), LoaderError),
        (lambda name: load_checkpoint(name), CheckpointError),
        (lambda name: read_image(Path(name), 8, 255), ImageError),
    ],
    ids=["opened", "content", "IDX", "series", "CSV", "Parquet", "images", "checkpoint", "picture"],
)
def test_a_name_that_no_file_can_have_is_an_error_of_the_reader(
    read: Callable[[str], Any], error: type[Exception], name: str
) -> None:
    with pytest.raises(error):
        read(name)
