"""Reads event files as their formats say, by code that shares nothing with what writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def remainder(content: bytes) -> int:
    """CRC-32C bit by bit, as its definition says."""
    crc = 0xFFFFFFFF
    for byte in content:
        for i in range(8):
            bit = (byte >> i ^ crc) & 1
            crc = crc >> 1 ^ (0x82F63B78 if bit else 0)
    return crc ^ 0xFFFFFFFF


def masked(content: bytes) -> int:
    crc = remainder(content)
    return (((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def messages(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        length, check = struct.unpack_from("<QI", content, at)
        assert check == masked(content[at : at + 8])
        message = content[at + 12 : at + 12 + length]
        assert len(message) == length
        assert struct.unpack_from("<I", content, at + 12 + length) == (masked(message),)
        yield message
        at += 16 + length


def fields(message: bytes) -> list[tuple[int, Any]]:
    """(field, value) pairs of a message of Protocol Buffers."""
    at, out = 0, []

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        field, wire = divmod(varint(), 8)
        if wire == 0:
            out.append((field, varint()))
            continue
        size = {1: 8, 5: 4}.get(wire) or varint()
        raw = message[at : at + size]
        assert len(raw) == size
        at += size
        out.append((field, struct.unpack("<d" if wire == 1 else "<f", raw)[0] if wire != 2 else raw))
    return out


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """Tag → step → value, as TensorBoard puts the files of a folder together."""
    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.iterdir(), key=lambda f: int(f.name.rpartition(".")[2])):
        first = True
        for message in messages(file.read_bytes()):
            event = dict(fields(message))
            assert event[1] > 1.7e9  # seconds since 1970
            if first:
                assert event[3] == b"brain.Event:2"
            first = False
            if 7 in event:
                assert dict(fields(event[7])) == {1: 1}
                found = {t: {s: v for s, v in c.items() if s < event[2]} for t, c in found.items()}
            for _, value in fields(event.get(5, b"")):
                scalar = dict(fields(value))
                found.setdefault(scalar[1].decode(), {})[event[2]] = scalar[2]
    return found
