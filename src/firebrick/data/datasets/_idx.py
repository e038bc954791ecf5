"""IDX files: the binary array format in which MNIST and its relatives are published.

A file is a magic number `00 00 <dtype code> <number of dimensions>`, one big-endian uint32 a dimension, then
the elements in row-major, big-endian order. Files may be plain or gzip-compressed; the first bytes decide
which, never the file's name. Nothing is guessed: every byte of the file must be accounted for, or `DataError`
says what is off.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firebrick.core.untrusted import opened

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20
_INFLATION = 1032  # bytes that deflate makes of one, at most: 258 of two bits

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
        DataError: the file cannot be read, is not IDX, or holds fewer or more bytes than its header states. No more is
            read than it states, however much a gzip stream would give.

    Source: http://yann.lecun.com/exdb/mnist/ (section "The IDX file format").
    """
    path = Path(path)
    try:
        with opened(path) as file:
            return _array(path, _Stream(path, file))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}. Check the path and its permissions.") from error


class _Stream:
    """What a file holds, decompressed; ``read`` gives what comes before a fault, and ``damage`` is what the fault is.

    Attributes:
        size: bytes of the file.
        most: bytes that it can hold.
        given: bytes that were read.
    """

    def __init__(self, path: Path, file: BufferedReader) -> None:
        self.path = path
        self.size = os.fstat(file.fileno()).st_size
        self.packed = file.read(2) == _GZIP_MAGIC
        self.most = self.size * _INFLATION if self.packed else self.size
        self.given = 0
        self.damage: str | None = None
        file.seek(0)
        self._stream = gzip.GzipFile(fileobj=file) if self.packed else file

    def read(self, count: int) -> bytes:
        """Some bytes, at most `count`; none at the end or a fault."""
        try:
            # read1, not read: it gives what came before a fault instead of only raising.
            data = self._stream.read1(min(count, _CHUNK)) if self.damage is None else b""
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.damage, data = str(error).rstrip("."), b""
        self.given += len(data)
        return bytes(data)

    def fill(self, room: memoryview) -> None:
        """Read until `room` is full, or to the end."""
        at = 0
        while at < len(room) and (data := self.read(len(room) - at)):
            room[at : at + len(data)] = data
            at += len(data)

    def fault(self, text: str) -> DataError:
        """An error about the content, which says too that the stream is damaged if it is."""
        return DataError(f"{self.path}: {text}" + (f" The gzip stream is damaged: {self.damage}." if self.damage else ""))


def _array(path: Path, stream: _Stream) -> npt.NDArray[Any]:
    """The header, then just the elements that it states, if the file can hold them."""
    dtype, shape, start = _read_header(stream)
    expected = start + math.prod(shape) * dtype.itemsize
    what = f"expected {expected} bytes for {dtype.name}{list(shape)} (a header of {start} and the elements)"
    if expected > stream.most or (not stream.packed and expected != stream.size):
        held = f"{stream.size} compressed bytes, which hold at most {stream.most}" if stream.packed else f"{stream.size} bytes"
        short = "is truncated" if expected > stream.most else "has bytes after its last element"
        raise stream.fault(f"{what}; received {held}. The file {short}: delete it and get it again.")
    try:
        array: npt.NDArray[Any] = np.empty(shape, dtype)
    except (ValueError, MemoryError) as error:  # more axes than NumPy has, sizes beside a 0 that overflow, or no room
        raise stream.fault(
            f"expected a shape that NumPy can make; received {list(shape)}: {error}. Get the file again."
        ) from None
    stream.fill(array.reshape(-1).view(np.uint8).data)
    more = stream.read(1)
    if more or stream.given != expected:
        fault = "has bytes after its last element" if more else "is truncated"
        held = f"more than {expected}" if more else f"{stream.given}"
        raise stream.fault(f"{what}; received {held} bytes. The file {fault}: delete it and get it again.")
    if stream.damage is not None:
        raise DataError(
            f"{path}: the gzip stream is damaged: {stream.damage}. Expected a stream that ends with the checksum of "
            f"its content; received {stream.size} compressed bytes, which gave {stream.given} bytes. "
            f"Delete the file and get it again."
        )
    return array if dtype.isnative else array.byteswap(inplace=True).view(dtype.newbyteorder("="))


def _read_header(stream: _Stream) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    magic = bytearray(4)
    stream.fill(memoryview(magic))
    if stream.given < 4:
        raise stream.fault(
            f"expected an IDX magic number of 4 bytes; received {stream.given} bytes. Delete the file and get it again."
        )
    code, ndim = magic[2], magic[3]
    if magic[:2] != b"\x00\x00" or code not in _DTYPES or ndim == 0:
        codes = ", ".join(f"{known:02x}" for known in _DTYPES)
        raise stream.fault(
            f"not an IDX file. Expected a magic number 00 00 <dtype> <dimensions>, where "
            f"<dtype> is one of {codes} and <dimensions> is at least 1; received {magic.hex(' ')}. "
            f"Check that this is the file you meant; if it is, get it again."
        )
    start = 4 + 4 * ndim
    sizes = bytearray(4 * ndim)
    stream.fill(memoryview(sizes))
    if stream.given < start:
        raise stream.fault(
            f"expected a header of {start} bytes for {ndim} dimensions; received {stream.given} bytes. "
            f"The file is truncated: delete it and get it again."
        )
    return _DTYPES[code], struct.unpack(f">{ndim}I", sizes), start
