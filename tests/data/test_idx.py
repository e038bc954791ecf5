import gzip
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firebrick.data.datasets import DataError, read_idx

CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def idx_bytes(array: np.ndarray[Any, Any]) -> bytes:
    header = bytes([0, 0, CODES[array.dtype.name], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    values = np.arange(math.prod(shape)) * 37 - 100 * (dtype != "uint8")
    return values.astype(dtype).reshape(shape)


IMAGES = sample("uint8", (3, 4, 2))


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("shape", [(5,), (3, 4, 2), (0, 28, 28), (2, 1, 3, 1)])
@pytest.mark.parametrize("dtype", CODES)
def test_what_was_written_is_read_back_in_native_byte_order(
    tmp_path: Path, dtype: str, shape: tuple[int, ...], compressed: bool
) -> None:
    array = sample(dtype, shape)
    path = tmp_path / "array-idx-ubyte"
    path.write_bytes(gzip.compress(idx_bytes(array)) if compressed else idx_bytes(array))
    read = read_idx(path)
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    assert read.flags.writeable
    np.testing.assert_array_equal(read, array)


def test_the_first_bytes_decide_on_gzip_and_not_the_name(tmp_path: Path) -> None:
    plain_named_gz = tmp_path / "a.gz"
    plain_named_gz.write_bytes(idx_bytes(IMAGES))
    gzip_named_plain = tmp_path / "b"
    gzip_named_plain.write_bytes(gzip.compress(idx_bytes(IMAGES)))
    np.testing.assert_array_equal(read_idx(plain_named_gz), read_idx(str(gzip_named_plain)))


def test_a_truncated_file_is_refused_with_both_byte_counts(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(idx_bytes(IMAGES)[:-5])
    with pytest.raises(DataError) as caught:
        read_idx(path)
    assert str(caught.value) == (
        f"{path}: expected 40 bytes for uint8[3, 4, 2] (a header of 16 and the elements); received 35 bytes. "
        "The file is truncated: delete it and get it again."
    )


def test_extra_bytes_are_refused_with_both_byte_counts(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(idx_bytes(IMAGES) + b"\x00")
    with pytest.raises(DataError, match=r"expected 40 bytes .* received 41 bytes\. The file has bytes after"):
        read_idx(path)


def test_a_header_that_claims_more_than_any_memory_is_refused_without_allocating(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_bytes(bytes([0, 0, 0x0E, 3]) + struct.pack(">3I", *[2**32 - 1] * 3))
    with pytest.raises(DataError, match=r"expected \d{30} bytes for float64.* received 16 bytes"):
        read_idx(path)


@pytest.mark.parametrize(
    ("content", "received"),
    [
        (b"\x89PNG....", "89 50 4e 47"),
        (b"\x00\x00\x0a\x01\x00\x00\x00\x00", "00 00 0a 01"),
        (b"\x00\x00\x08\x00", "00 00 08 00"),
    ],
    ids=["another format", "unknown dtype code", "no dimensions"],
)
def test_a_wrong_magic_number_is_refused_and_shown(tmp_path: Path, content: bytes, received: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"other: not an IDX file. Expected a magic .* received {received}"):
        read_idx(path)


@pytest.mark.parametrize("length", [0, 3])
def test_a_file_shorter_than_the_magic_number_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "stub"
    path.write_bytes(idx_bytes(IMAGES)[:length])
    with pytest.raises(DataError, match=f"magic number of 4 bytes; received {length} bytes"):
        read_idx(path)


def test_a_header_cut_before_its_last_dimension_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "header"
    path.write_bytes(idx_bytes(IMAGES)[:11])
    with pytest.raises(DataError, match=r"header of 16 bytes for 3 dimensions; received 11 bytes"):
        read_idx(path)


def test_a_truncated_gzip_file_is_refused_at_every_length(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    whole = gzip.compress(idx_bytes(IMAGES))
    for length in range(2, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(
            DataError,
            match=r"cut\.gz: .*received \d+ .*gzip stream is damaged|gzip stream is damaged.*received",
        ):
            read_idx(path)


def test_a_gzip_file_with_a_wrong_content_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flipped.gz"
    content = bytearray(gzip.compress(idx_bytes(IMAGES)))
    content[-8] ^= 0xFF  # the CRC-32 of the content: every element still decompresses
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"flipped\.gz: the gzip stream is damaged: CRC check failed"):
        read_idx(path)


def test_a_gzip_file_with_a_damaged_body_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "body.gz"
    content = bytearray(gzip.compress(idx_bytes(IMAGES)))
    content[10] = 0xFF  # the first deflate block: an invalid block type
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"body\.gz: .* received 0 bytes.* gzip stream is damaged"):
        read_idx(path)


def test_bytes_after_the_gzip_stream_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tail.gz"
    path.write_bytes(gzip.compress(idx_bytes(IMAGES)) + b"tail")
    with pytest.raises(DataError, match=r"tail\.gz: the gzip stream is damaged"):
        read_idx(path)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*nowhere: No such file"):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"cannot read .*Check the path"):
        read_idx(tmp_path)


def test_a_data_error_is_a_value_error() -> None:
    assert issubclass(DataError, ValueError)
