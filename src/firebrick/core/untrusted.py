"""Files that anyone may have written: only regular ones are opened, only their own size is read, and JSON has one meaning.

A name may refer to a FIFO, a device or a socket, where ``open`` and ``read`` wait for ever. A file may claim more than it has,
grow while it is read, or nest its lists until Python's stack is full. Each of these is an ``OSError`` or a ``ValueError`` here,
which a reader turns into an error of its own. ``shown`` makes text from such a file fit for a message.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from math import isfinite
from typing import Any

_KINDS: dict[Callable[[int], bool], str] = {
    stat.S_ISDIR: "a directory",
    stat.S_ISFIFO: "a FIFO",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}
# O_NONBLOCK: a FIFO that replaces a file between the two checks does not block either
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a name that does not refer to a regular file.

    Raises:
        OSError: It does not, or nothing is there.
    """
    try:
        mode = os.stat(path).st_mode
    except ValueError as e:  # it has a NUL, or a surrogate that the encoding of file names lacks
        raise OSError(errno.EINVAL, f"a name that no file can have ({e})", ascii(os.fspath(path))) from None
    _refuse_others(mode, path)


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, open for reading.

    Raises:
        OSError: It is none, is not there or cannot be read.
    """
    check_regular(path)
    handle = os.open(path, _FLAGS)
    try:
        _refuse_others(os.fstat(handle).st_mode, path)
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def content_of(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The content of a regular file.

    Args:
        path: The file.
        most: Bytes it may have; any number if None.

    Raises:
        OSError: It is none, is not there, cannot be read, is larger, or changed while it was read.
    """
    with opened(path) as file:
        return rest_of(file, path, most)


def rest_of(file: BufferedReader, path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The content of a file that ``opened`` gave; see ``content_of``."""
    size = os.fstat(file.fileno()).st_size
    if most is not None and size > most:
        raise OSError(errno.EFBIG, f"{size} bytes instead of {most}", os.fspath(path))
    content = file.read(size)
    if len(content) != size or file.read(1):
        raise OSError(errno.EIO, "changed while it was read", os.fspath(path))
    return content


def _refuse_others(mode: int, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(mode):
        kind = next((text for check, text in _KINDS.items() if check(mode)), "no file")
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"{kind} instead of a regular file", os.fspath(path))


def shown(value: Any, most: int = 80) -> str:
    """A value out of a file, or an error about it, as text for a message: in one line, without control characters, and short.

    Args:
        value: The value; text is quoted only if it has characters that do not print.
        most: Characters that are shown of it.
    """
    text = " ".join(str(value).split("\n")) if isinstance(value, BaseException) else value
    if not isinstance(text, str):
        try:
            text = repr(text)
        except ValueError:  # a whole number of thousands of digits
            text = f"an object of type {type(text).__name__} that is too long to show"
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def json_of(text: str | bytes, *, finite: bool = False) -> Any:
    """The value of JSON text in UTF-8.

    Args:
        text: The text.
        finite: Whether NaN, Infinity and numbers that become infinite as float64 are refused.

    Raises:
        ValueError: It is no JSON, nests too deeply, or an object of it has a key twice.
    """
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        if finite:
            return json.loads(decoded, object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse_constant)
        return json.loads(decoded, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("lists or objects that nest too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"an object with a key twice among {', '.join(repr(k) for k, _ in pairs):.200}")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"the number {text:.40}, which is beyond float64")
    return number


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text}, which is no number of JSON")
