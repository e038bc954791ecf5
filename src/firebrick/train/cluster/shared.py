"""The run directory as every worker must see it: one directory, with the same checkpoints, on a file system that all share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from firebrick.train.checkpoint import checkpoints_of
from firebrick.train.claim import is_claimed
from firebrick.train.errors import TrainingError

MARK = ".seen-by-all-"
"""How the name of the file begins that is to be seen."""
PATIENCE = 10.0
"""Seconds until a file that one host wrote must be seen on another; network file systems remember what was not there."""
ENDING = 120.0
"""Seconds until a worker that was lost, perhaps with its network only, must have let go of the run directory."""


@dataclass(frozen=True)
class Standing:
    """What a run directory holds.

    Attributes:
        checkpoints: Name and SHA-256 of the manifest of each checkpoint, newest first.
        empty: Whether there was nothing in it.
    """

    checkpoints: tuple[tuple[str, str], ...]
    empty: bool


def standing(out: Path) -> Standing:
    """What a run directory holds now."""
    found = checkpoints_of(out)
    return Standing(tuple((str(f.relative_to(out)), _digest(f / "manifest.json")) for f in found), not any(out.iterdir()))


def take_over(out: Path, mark: str, *, again: bool, own: bool) -> Standing:
    """Make the directory ready for an attempt, on rank 0: returns what it holds, and leaves a mark for the others.

    Args:
        out: The run directory, made if need be.
        mark: Name of the file to leave.
        again: Whether attempts of this run came before; the directory is then waited for, if one of them still writes.
        own: Whether all that is there was made by attempts of this run. Without a checkpoint nothing can go on from it, and
            it is moved beside the directory.

    Raises:
        TrainingError: Another run writes there, or the directory cannot be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not _until(lambda: not is_claimed(out), ENDING if again else 0.0):
            raise TrainingError(
                "a run directory takes one run at a time",
                f"{out}, where another run writes now",
                "name another directory, or end the other run",
            )
        for left in out.glob(f"{MARK}*"):  # by an attempt that ended between
            left.unlink()
        found = standing(out)
        if own and not found.checkpoints and not found.empty:
            out.rename(_free(out))
            out.mkdir()
            found = standing(out)
        (out / mark).touch()
    except OSError as e:
        raise TrainingError(
            "a run writes checkpoints and metrics into its directory",
            f"{out}, where the system refuses to: {e.strerror or e}",
            "make it writable on every node, or name another directory",
        ) from e
    return found


def find(out: Path, mark: str, expected: Standing) -> str:
    """What is wrong with the directory as this worker sees it, beside what rank 0 saw; nothing if it is the same.

    Args:
        out: The run directory.
        mark: Name of the file that rank 0 left.
        expected: What rank 0 found.
    """
    if not _until(lambda: (out / mark).exists(), PATIENCE):
        return "a directory without the mark that rank 0 left in it" if out.is_dir() else "no such directory"
    if not _until(lambda: standing(out).checkpoints == expected.checkpoints, PATIENCE):
        return f"other checkpoints than on rank 0: {_names(standing(out))} instead of {_names(expected)}"
    return ""


def take_away(out: Path, mark: str) -> None:
    """Remove the mark, on rank 0."""
    (out / mark).unlink(missing_ok=True)


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether something holds, now or within some seconds."""
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= ends:
            return False
        time.sleep(0.1)
    return True


def _free(out: Path) -> Path:
    """A name beside the directory that nothing has."""
    number = 1
    while (beside := out.with_name(f"{out.name}.unfinished-{number}")).exists():
        number += 1
    return beside


def _names(found: Standing) -> str:
    return ", ".join(f"{name} ({digest[:8]})" for name, digest in found.checkpoints) or "none"


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"
