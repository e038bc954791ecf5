"""IDX files: the binary array format in which MNIST and its relatives are published.

A file is a magic number `00 00 <dtype code> <number of dimensions>`, one big-endian uint32 a dimension, then
the elements in row-major, big-endian order. Files may be plain or gzip-compressed; the first bytes decide
which, never the file's name. Nothing is guessed: every byte of the file must be accounted for, or `DataError`
says what is off.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20

_DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}


class DataError(ValueError):
    """A data set's file is missing, damaged, or not what it should be."""


def read_idx(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read an IDX file, plain or gzip-compressed.

    Args:
        path: the file.

    Returns:
        An owned, writable array of the shape and dtype that the header states, in native byte order.

    Raises:
        DataError: the file cannot be read, is not IDX, or holds fewer or more bytes than its header states.

    Source: http://yann.lecun.com/exdb/mnist/ (section "The IDX file format").
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}. Check the path and its permissions.") from error
    data, damage = _decompress(content) if content.startswith(_GZIP_MAGIC) else (content, None)
    try:
        dtype, shape, start = _parse_header(path, data)
        _check_length(path, data, dtype, shape, start)
    except DataError as error:
        if damage is None:
            raise
        raise DataError(f"{error} The gzip stream is damaged: {damage}.") from error
    if damage is not None:
        raise DataError(
            f"{path}: the gzip stream is damaged: {damage}. Expected a stream that ends with the checksum of "
            f"its content; received {len(content)} compressed bytes, which gave {len(data)} bytes. "
            f"Delete the file and get it again."
        )
    elements = np.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=start)
    return elements.reshape(shape).astype(dtype.newbyteorder("="))


def _decompress(content: bytes) -> tuple[bytes, str | None]:
    """Return what could be decompressed, and what stopped it early if anything did."""
    data = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        try:
            # read1, not read: it gives what came before a fault instead of only raising.
            while chunk := stream.read1(_CHUNK):
                data += chunk
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            return bytes(data), str(error).rstrip(".")
    return bytes(data), None


def _parse_header(path: Path, data: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    if len(data) < 4:
        raise DataError(
            f"{path}: expected an IDX magic number of 4 bytes; received {len(data)} bytes. Delete the file and get it again."
        )
    zeros, code, ndim = data[:2], data[2], data[3]
    if zeros != b"\x00\x00" or code not in _DTYPES or ndim == 0:
        codes = ", ".join(f"{known:02x}" for known in _DTYPES)
        raise DataError(
            f"{path}: not an IDX file. Expected a magic number 00 00 <dtype> <dimensions>, where "
            f"<dtype> is one of {codes} and <dimensions> is at least 1; received {data[:4].hex(' ')}. "
            f"Check that this is the file you meant; if it is, get it again."
        )
    start = 4 + 4 * ndim
    if len(data) < start:
        raise DataError(
            f"{path}: expected a header of {start} bytes for {ndim} dimensions; received {len(data)} bytes. "
            f"The file is truncated: delete it and get it again."
        )
    return _DTYPES[code], struct.unpack(f">{ndim}I", data[4:start]), start


def _check_length(path: Path, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> None:
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) == expected:
        return
    fault = "is truncated" if len(data) < expected else "has bytes after its last element"
    raise DataError(
        f"{path}: expected {expected} bytes for {dtype.name}{list(shape)} (a header of {start} and the "
        f"elements); received {len(data)} bytes. The file {fault}: delete it and get it again."
    )
