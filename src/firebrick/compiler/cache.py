"""Compiled objects on disk: an entry's key is a hash of everything that its code depends on, and its content is verified.

An entry is one file, named by its key and written atomically by a rename, so that processes share the folder without locks. A
file that is damaged, truncated, of another format or writable by other users is ignored with a warning, and replaced. If the
folder exceeds its size, the least recently used entries are removed. An error of the disk never stops a computation: the code
is compiled again.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firebrick.core.config import config
from firebrick.core.lines import warn
from firebrick.core.untrusted import json_of, opened, rest_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = 1
SUFFIX = ".fbo"
_MAGIC = b"FBOBJECT"
# magic, format, key, bytes of the facts, bytes of the object, SHA-256 of facts and object
_HEADER = struct.Struct("<8sI32sIQ32s")
_TEMPORARY = ".writing-"
_ABANDONED = 3600.0  # age in seconds after which no process still writes a temporary file


class CacheWarning(UserWarning):
    """Compiled code could not be stored on disk, or a stored entry could not be used."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object in the cache.

    Attributes:
        key: Its key, as 64 hexadecimal digits.
        nbytes: Bytes of its file.
        used: Time of the last write or read, in seconds since the epoch.
        facts: Description: ``functions``, ``target``, ``llvm``; empty if the file is no valid entry.
    """

    key: str
    nbytes: int
    used: float
    facts: dict[str, Any]


def key(text: str, target: DataclassInstance, options: DataclassInstance) -> bytes:
    """The key of an object: a hash of everything that its code depends on.

    Args:
        text: LLVM IR.
        target: Target: triple, processor, features and vector width.
        options: Options of the optimiser.
    """
    digest = hashlib.sha256()
    for part in (FORMAT, *versions(), *astuple(target), *astuple(options), text):
        encoded = str(part).encode()
        digest.update(struct.pack("<Q", len(encoded)))  # so that different lists of parts are different texts
        digest.update(encoded)
    return digest.digest()


@cache
def versions() -> tuple[str, str]:
    """The versions of llvmlite and of LLVM."""
    import llvmlite
    import llvmlite.binding as llvm

    return llvmlite.__version__, ".".join(map(str, llvm.llvm_version_info))


def folder() -> Path | None:
    """The folder of objects: the setting ``cache_dir``, or a folder among the system's caches; None if there is none."""
    named = config.cache_dir
    if named.lower() == "off":
        return None
    if named:
        return Path(named).expanduser() / "objects"
    try:
        return system_caches() / "firebrick" / "objects"
    except RuntimeError:  # no home directory
        return None


def system_caches() -> Path:
    """The system's folder of caches: ``$XDG_CACHE_HOME`` or ``~/.cache``, ``~/Library/Caches``, ``%LOCALAPPDATA%``.

    Raises:
        RuntimeError: The user has no home directory.
    """
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    # XDG base directory specification: a relative path in the variable is invalid, and ignored
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):
        return Path(named)
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


class ObjectStore:
    """The objects in the folder of the settings, which each call looks up. ``load`` and ``save`` raise no error of the disk."""

    def __init__(self) -> None:
        self._total: tuple[Path, int] | None = None
        self._warned: set[tuple[str, Path]] = set()

    def load(self, key: bytes, again: str = "the code was compiled again") -> bytes | None:
        """The object of a key; None if there is no valid entry.

        Args:
            key: Its key.
            again: What happens in place of using an entry that is not valid, for the warning.
        """
        home = folder()
        if home is None:
            return None
        path = home / (key.hex() + SUFFIX)
        try:
            content = _read_own(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as e:
            self._warn_once("entry", home, f"{path}: {e.strerror or e}; {again}")
            return None
        try:
            image, _ = unpack(content, key)
        except ValueError as e:
            self._warn_once("entry", home, f"{path}: {e}; {again} and the entry replaced")
            return None
        with suppress(OSError):  # the folder may be read-only
            os.utime(path)  # the time of the last use
        return image

    def save(self, key: bytes, image: bytes, facts: dict[str, Any] | None = None) -> None:
        """Store an object. If the folder exceeds its size, the least recently used entries are removed."""
        home = folder()
        limit = config.cache_size
        content = pack(key, image, facts or {})
        if home is None or len(content) > limit:
            return
        try:
            handle, temporary = _temporary(home)
            try:
                with open(handle, "wb") as file:
                    file.write(content)
                os.replace(temporary, home / (key.hex() + SUFFIX))
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as e:
            self._warn_once(
                "folder",
                home,
                f"compiled code is not kept in {home}: {e.strerror or e}; it is compiled again in each process. "
                "Name a writable folder in FIREBRICK_CACHE_DIR, or `off`",
            )
            return
        known = self._total[1] if self._total is not None and self._total[0] == home else None
        total = sum(nbytes for _, _, nbytes in _files(home)) if known is None else known + len(content)
        if total > limit:
            total = _trim(home, limit)
        self._total = home, total

    def check_writable(self) -> None:
        """Check that objects can be stored; nothing is to be checked where none are kept.

        Raises:
            OSError: The folder cannot be made, or no file in it.
        """
        home = folder()
        if home is not None:
            handle, temporary = _temporary(home)
            os.close(handle)
            os.unlink(temporary)

    def entries(self) -> list[Entry]:
        """All entries, the most recently used first."""
        home = folder()
        found = []
        for used, name, nbytes in [] if home is None else _files(home):
            path, facts = Path(name), dict[str, Any]()
            with suppress(OSError, ValueError):
                _, description = unpack(_read_own(path), bytes.fromhex(path.stem))
                functions = description.get("functions")
                if isinstance(functions, list) and all(isinstance(f, str) for f in functions):
                    facts = description
            found.append(Entry(path.stem, nbytes, used, facts))
        return sorted(found, key=lambda e: e.used, reverse=True)

    def clear(self) -> tuple[int, int]:
        """Remove all entries.

        Returns:
            The number of removed entries, and their bytes.

        Raises:
            OSError: An entry could not be removed.
        """
        home = folder()
        count = total = 0
        for _, path, nbytes in [] if home is None else _files(home):
            try:
                Path(path).unlink()
            except FileNotFoundError:
                continue  # another process removed it
            count, total = count + 1, total + nbytes
        self._total = None
        return count, total

    def _warn_once(self, kind: str, home: Path, text: str) -> None:
        if (kind, home) not in self._warned:  # once, since it affects all kernels alike
            self._warned.add((kind, home))
            warn(text, CacheWarning)


def pack(key: bytes, image: bytes, facts: dict[str, Any]) -> bytes:
    """The content of an entry's file."""
    description = json.dumps(facts).encode()
    check = hashlib.sha256(description + image).digest()
    return _HEADER.pack(_MAGIC, FORMAT, key, len(description), len(image), check) + description + image


def unpack(content: bytes, key: bytes) -> tuple[bytes, dict[str, Any]]:
    """The object and the facts in an entry's file.

    Raises:
        ValueError: It is not the complete and undamaged entry of this key and format; the message reports the reason.
    """
    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        raise ValueError("not an entry of Firebrick's cache, or cut short")
    _, format_number, stored_key, description, length, check = _HEADER.unpack_from(content)
    if format_number != FORMAT:
        raise ValueError(f"an entry of format {format_number}, not {FORMAT}")
    if stored_key != key:
        raise ValueError("an entry of another key")
    body = content[_HEADER.size :]
    if len(body) != description + length:
        raise ValueError(f"{len(body)} bytes in place of {description + length}")
    if hashlib.sha256(body).digest() != check:
        raise ValueError("its content is damaged")
    facts = json_of(body[:description])
    if not isinstance(facts, dict):
        raise ValueError("its facts are no object")
    return body[description:], facts


def _temporary(home: Path) -> tuple[int, str]:
    """A new file in the folder, which is made if need be: its descriptor and its path. Only this user can read it."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tempfile.mkstemp(prefix=_TEMPORARY, dir=home)


def _read_own(path: Path) -> bytes:
    """The content of a file that only this user or the system's administrator can write.

    Its code will be executed, so a file that other users can write is rejected like a damaged one.
    """
    with opened(path) as file:
        if hasattr(os, "getuid"):
            status = os.fstat(file.fileno())
            if status.st_uid not in (os.getuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise PermissionError(0, "another user may write this entry")
        return rest_of(file, path)


def _files(home: Path) -> Iterator[tuple[float, str, int]]:
    """Time of last use, path and bytes of each entry, of which there may be 100,000. Abandoned temporary files are removed."""
    try:
        with os.scandir(home) as entries:
            listed = list(entries)
    except FileNotFoundError:
        return
    except OSError:
        return  # a folder that cannot be listed has no usable entries
    for e in listed:
        try:
            status = e.stat(follow_symlinks=False)
            if e.name.startswith(_TEMPORARY):
                if time.time() - status.st_mtime > _ABANDONED:
                    os.unlink(e.path)
            elif e.name.endswith(SUFFIX) and len(e.name) == 64 + len(SUFFIX):
                yield status.st_mtime, e.path, status.st_size
        except OSError:
            continue  # another process removed it


def _trim(home: Path, limit: int) -> int:
    """Remove the least recently used entries, down to 9/10 of the limit; returns the remaining bytes."""
    rows = sorted(_files(home))
    total = sum(nbytes for _, _, nbytes in rows)
    for _, path, nbytes in rows:
        if total <= limit * 9 // 10:
            break
        try:
            Path(path).unlink(missing_ok=True)
        except OSError:
            continue  # in use, or not removable by this user
        total -= nbytes
    return total


store = ObjectStore()
