"""``EventWriter``: scalars in the event files that TensorBoard reads.

A file is a row of records: length (uint64), masked CRC-32C of the length, content, masked CRC-32C of the content, all little
endian. Each content is an ``Event`` message of Protocol Buffers, of which the few fields in use are encoded here by hand.

Source: TensorFlow, "tensorflow/core/lib/io/record_writer.h" and "tensorflow/core/util/event.proto" for the formats;
    RFC 3720, appendix B.4, for CRC-32C.
"""

from __future__ import annotations

import math
import os
import re
import socket
import struct
from itertools import count
from pathlib import Path
from time import time

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reversed
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7  # fields of Event
_START = 1  # a status of SessionLog
_files = count()


class EventWriter:
    """Appends to one new event file of a folder.

    Args:
        folder: Made if it is not there; a run that is resumed adds a file to it.
        step: Steps done already. TensorBoard forgets what earlier files of the folder hold beyond it.

    Example:
        >>> import tempfile
        >>> from firebrick.train.events import EventWriter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     writer = EventWriter(folder)
        ...     writer.scalars({"loss/train": 0.25}, step=10)
        ...     writer.close()
        ...     writer.path.stat().st_size
        90
    """

    def __init__(self, folder: str | os.PathLike[str], step: int = 0) -> None:
        host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
        self.path = Path(folder) / f"events.out.tfevents.{int(time())}.{host}.{os.getpid()}.{next(_files)}"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self.path.open("xb")
        self._write(0, _text(_FILE_VERSION, "brain.Event:2"))
        if step:
            self._write(step + 1, _field(_SESSION_LOG, _number(1, _START)))

    def scalars(self, values: dict[str, float], step: int) -> None:
        """Add values by tag, as float32 (infinite beyond its range), and hand them to the system."""
        parts = [_field(1, _text(1, tag) + _key(2, _FIXED32) + _float32(v)) for tag, v in values.items()]
        self._write(step, _field(_SUMMARY, b"".join(parts)))

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _write(self, step: int, content: bytes) -> None:
        event = _key(_WALL_TIME, _FIXED64) + struct.pack("<d", time()) + _number(_STEP, step) + content
        length = struct.pack("<Q", len(event))
        self._stream.write(length + _masked(length) + event + _masked(event))
        self._stream.flush()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode())


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_row, range(256)))


def crc32c(content: bytes) -> int:
    """The CRC-32C of bytes.

    Example:
        >>> from firebrick.train.events import crc32c
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(content: bytes) -> bytes:
    """A CRC turned and shifted, since CRCs of data that hold CRCs are weak."""
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
