"""Damage to bytes, as a disk, a network or an attacker does it; each is a function of a random generator and a content."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from functools import cache
from random import Random

_EXTREMES = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
BOMB = 2**26  # bytes that a bomb is decompressed to


def flip(rng: Random, content: bytes) -> bytes:
    """Some bits are others."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def cut(rng: Random, content: bytes) -> bytes:
    """The end is missing."""
    return content[: rng.randrange(len(content) + 1)]


def remove(rng: Random, content: bytes) -> bytes:
    """A part in the middle is missing."""
    start, stop = _span(rng, content)
    return content[:start] + content[stop:]


def insert(rng: Random, content: bytes) -> bytes:
    """There is more in the middle: noise, zeros or a part again."""
    at = rng.randrange(len(content) + 1)
    start, stop = _span(rng, content)
    more = rng.choice((rng.randbytes(rng.choice((1, 2, 7, 300))), b"\0" * rng.choice((1, 4, 4096)), content[start:stop]))
    return content[:at] + more + content[at:]


def overwrite(rng: Random, content: bytes) -> bytes:
    """A part is noise, zeros, or ones."""
    start, stop = _span(rng, content)
    return content[:start] + rng.choice((b"\0", b"\xff", rng.randbytes(1))) * (stop - start) + content[stop:]


def exchange(rng: Random, content: bytes) -> bytes:
    """Two neighbouring parts have changed places."""
    a, c = _span(rng, content)
    b = rng.randint(a, c)
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def length(rng: Random, content: bytes) -> bytes:
    """A number of 1, 2, 4 or 8 bytes, such as a length or a count, is an extreme one; often near the start."""
    width, value = rng.choice((1, 2, 4, 8)), rng.choice(_EXTREMES) + rng.choice((0, 0, -1, 1))
    if len(content) < width:
        return content
    room = min(64, len(content)) if rng.random() < 0.6 else len(content)
    at = min(rng.randrange(room), len(content) - width)
    field = (value % 256**width).to_bytes(width, rng.choice(("big", "little")))
    return content[:at] + field + content[at + width :]


def empty(rng: Random, content: bytes) -> bytes:
    """There is nothing, or hardly anything."""
    return content[: rng.choice((0, 0, 1, 2, 4))]


def noise(rng: Random, content: bytes) -> bytes:
    """There is something else, of a known first few bytes or not."""
    return content[: rng.choice((0, 4, 8, 32))] + rng.randbytes(rng.choice((16, 500, 5000)))


def other(rng: Random, content: bytes) -> bytes:
    """A file of another format."""
    return rng.choice(
        (EPS, gzip.compress(content), b"PK\x03\x04" + content, b"\x80\x05cos\nsystem\n(S'true'\ntR.", bomb("gzip"))
    )


def words(rng: Random, content: bytes) -> bytes:
    """A word of a text is one that few expect."""
    parts = content.replace(b"\n", b",\n,").split(b",")
    parts[rng.randrange(len(parts))] = rng.choice(_WORDS)
    return b",".join(parts).replace(b",\n,", b"\n")


_WORDS = (
    b"nan", b"inf", b"-1e999", b"1_0", b"", b'"', b'"a\n', b"\0", b"\xff\xfe", "٣".encode(), b"9" * 5000, b"x" * 200_000,
    b"," * 3000, b"0001-01-01 00:00:00", b"9999-12-31 23:59:59", b"2020-01-01T00:00:00+14:00", b"\r", b"\xed\xa0\x80",
    b"1e-400",
    b"0x10", b"True", b"2" * 30,
)  # fmt: skip
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(/tmp/firebrick-eps) (w) file closefile showpage\n"

PLAIN: tuple[Callable[[Random, bytes], bytes], ...] = (
    flip, flip, cut, remove, insert, overwrite, exchange, length, length, length, empty, noise, other,
)  # fmt: skip


def _span(rng: Random, content: bytes) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice((1, 4, 16, 256, 4096)))


@cache
def bomb(kind: str) -> bytes:
    """``BOMB`` bytes of zeros or of rows of a table, compressed."""
    row = b"1.0,1,a,1.0\n"
    return {
        "gzip": lambda: gzip.compress(bytes(BOMB)),
        "rows in gzip": lambda: gzip.compress(row * (BOMB // len(row)), 1),
    }[kind]()


def in_gzip(rng: Random, content: bytes, change: Callable[[Random, bytes], bytes]) -> bytes:
    """Damage of what a gzip stream holds, whose checksum is right; now and then it goes on with a bomb."""
    inner = change(rng, gzip.decompress(content))
    out = gzip.compress(inner, 1)
    return out + bomb(rng.choice(("gzip", "rows in gzip"))) if rng.random() < 0.15 else out


def in_png(rng: Random, content: bytes, change: Callable[[Random, bytes], bytes]) -> bytes:
    """Damage of a chunk of a PNG file, whose checksum is right; of the compressed pixels, mostly inside."""
    chunks, at = [], 8
    while at < len(content):
        (size,) = struct.unpack(">I", content[at : at + 4])
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += 12 + size
    k = rng.randrange(len(chunks))
    kind, body = chunks[k]
    if kind == b"IDAT" and rng.random() < 0.7:
        body = zlib.compress(rng.choice((lambda: change(rng, zlib.decompress(body)), lambda: bytes(BOMB)))(), 1)
    else:
        body = change(rng, body)
    chunks[k] = kind, body
    if rng.random() < 0.2:
        chunks.insert(k, rng.choice(chunks))
    parts = [struct.pack(">I", len(b)) + t + b + struct.pack(">I", zlib.crc32(t + b)) for t, b in chunks]
    return content[:8] + b"".join(parts)
