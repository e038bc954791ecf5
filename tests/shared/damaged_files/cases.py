"""A case from a seed: a reader, honest files, damage to one or two of them, and the verdict of reading them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import PIL.Image

from damaged_files import damage, trees, watch
from damaged_files.readers import PIXELS, READERS, Reader, sizes

Damage = Callable[[Random, bytes], bytes]


def _in_safetensors(rng: Random, content: bytes) -> bytes:
    """Damage of the header, with its length right."""
    size = int.from_bytes(content[:8], "little")
    header = trees.damaged(rng, content[8 : 8 + size])
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def _inside(within: Callable[[Random, bytes, Damage], bytes], kinds: tuple[Damage, ...], rng: Random, content: bytes) -> bytes:
    return within(rng, content, rng.choice(kinds))


SPECIAL: dict[str, Damage] = {
    ".json": trees.damaged,
    ".png": partial(_inside, damage.in_png, damage.PLAIN),
    ".gz": partial(_inside, damage.in_gzip, (*damage.PLAIN, *(damage.words,) * 12)),
    ".safetensors": _in_safetensors,
    "": partial(_inside, damage.in_gzip, damage.PLAIN),
}


# names that stand for no regular file, and files that change


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's name is short
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path.name)
    finally:
        os.chdir(here)


PLACES: dict[str, Callable[[Path], None]] = {
    "a FIFO": _fifo,
    "a socket": _socket,
    "a directory": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to("absent"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to an empty device": lambda path: path.symlink_to("/dev/null"),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "nothing": lambda path: None,
}


def _replaced(path: Path, how: Callable[[Path], None]) -> None:
    path.unlink()
    how(path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "becomes a FIFO": lambda path: _replaced(path, _fifo),
    "vanishes": Path.unlink,
    "is cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "grows": lambda path: _append(path, bytes(1000)),
}


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


@contextmanager
def _changing_after_a_look(path: Path, change: Callable[[Path], None]) -> Iterator[None]:
    """The file changes right after each look at its kind or size."""
    fstat = os.fstat

    def late(handle: int) -> os.stat_result:
        found = fstat(handle)
        if path.exists() and os.path.samestat(found, path.stat()):
            with watch.unseen():
                change(path)
        return found

    os.fstat = late
    try:
        yield
    finally:
        os.fstat = fstat


# cases


@dataclass(frozen=True)
class Outcome:
    """What came of a seed."""

    seed: int
    reader: str
    damage: str
    outcome: str
    failures: list[tuple[str, str]]
    peak: int


def files_of(folder: Path) -> list[Path]:
    """The files of a folder, in an order of their names."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def run(seed: int, reader: str | None = None, wanted: Callable[[str], bool] = lambda text: True) -> Outcome | None:
    """Run a case.

    Args:
        seed: Of all that is random.
        reader: A reader of ``READERS``, or any.
        wanted: Called with what the damage is; where it says False the case is not run, and None returned.
    """
    rng = Random(seed)
    name = rng.choice(list(READERS)) if reader is None else reader
    kind = READERS[name]
    PIL.Image.MAX_IMAGE_PIXELS = PIXELS
    folder = Path(tempfile.mkdtemp(prefix="damaged-"))
    try:
        kind.honest(rng, folder)
        before = None if kind.honest_value is None else kind.honest_value()
        honest = sizes(folder)
        file = rng.choice(files_of(folder))
        text, at_open, late = _harm(rng, kind, folder, file)
        if not wanted(text):
            return None
        honest = max(honest, sizes(folder), kind.needs(folder))
        with late():
            found, value = watch.watched(
                kind.read, folder, kind.errors, honest, writes=kind.writes, at_open=at_open, changes=" it is " in text
            )
        if found.outcome == "value" and "hashed again" not in text and (wrong := kind.check(value, before)):
            found.fail("wrong value", wrong)
        return Outcome(seed, name, f"{file.relative_to(folder)}: {text}", found.outcome, found.failures, found.peak)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


Late = Callable[[], AbstractContextManager[None]]


def _harm(rng: Random, kind: Reader, folder: Path, file: Path) -> tuple[str, Callable[[str], bool] | None, Late]:
    """Damage a folder: what was done, what is to be done when a file is opened, and a context to read in."""
    way = rng.random() if kind.opens else 1.0
    if way < 0.1:
        place = rng.choice(list(PLACES))
        _replaced(file, PLACES[place])
        return f"{place} instead", None, nullcontext
    if way < 0.2:
        change = rng.choice(list(CHANGES))
        if way < 0.15:
            wanted = os.fspath(file)

            def opened(path: str) -> bool:
                if path == wanted:
                    with watch.unseen():
                        CHANGES[change](file)
                return path == wanted

            return f"{change} when it is opened", opened, nullcontext
        return f"{change} while it is read", None, lambda: _changing_after_a_look(file, CHANGES[change])
    content, done = file.read_bytes(), []
    special = [d for end, some in kind.damages.items() if file.name.endswith(end) for d in some]
    if file.suffix in SPECIAL and (file.suffix or content[:2] == b"\x1f\x8b"):
        special.append(SPECIAL[file.suffix])
    for step in range(rng.choice((1, 1, 1, 2))):
        chosen = rng.choice(special) if special and step == 0 and rng.random() < 0.7 else rng.choice(damage.PLAIN)
        content = chosen(rng, content)
        done.append(getattr(chosen, "__name__", "inside"))
    file.write_bytes(content)
    if kind.hashed is not None and rng.random() < 0.8:
        kind.hashed(folder)
        done.append("hashed again")
    return ", ".join(done), None, nullcontext
