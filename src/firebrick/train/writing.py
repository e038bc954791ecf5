"""How a directory takes the place of another so that a crash, at any moment, leaves the old one or the new one.

It is written beside, synced, and renamed into place, in the steps of one table. ``perform`` is the only way to a step, so that
tests can end a process right before and right after each of them, and each failure names step and path.

The directory that is replaced and the one that is written are locked meanwhile: two processes that write to one path would
remove each other's files, and leave a mixture.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from firebrick.train.claim import lock, unlock
from firebrick.train.errors import CheckpointError
from firebrick.train.replacing import check_replaceable, is_of_checkpoint, is_replaceable


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _clear(folder: Path, locked: bool) -> None:
    """Remove what a crash left; what has come since the directory was locked is another writer's."""
    if locked:
        shutil.rmtree(folder)


def _write(file: Path, content: bytes) -> None:
    with file.open("wb") as stream:
        stream.write(content)


def _sync(file: Path) -> None:
    handle = os.open(file, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some systems cannot open a directory; they order renames themselves
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


STEPS: dict[str, Callable[..., None]] = {
    "make parent": _make,
    "clear leftovers": _clear,
    "make directory": Path.mkdir,
    "write file": _write,
    "sync file": _sync,
    "sync directory": _sync_folder,
    "make history": _make,
    "clear place": _remove,
    "rename old": Path.rename,
    "sync history": _sync_folder,
    "rename new": Path.rename,
    "sync parent": _sync_folder,
    "remove old": _remove,
}

_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free space on that disk, or name a directory on another"),
    **dict.fromkeys(
        (errno.EAGAIN, errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY),
        "another process seems to write there too: save in one of them, or name a path for each",
    ),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make that directory writable, or name another"),
}


def perform(step: str, path: Path, *args: Any) -> None:
    """One step of the table at a path.

    Raises:
        OSError: It failed.
    """
    STEPS[step](path, *args)


def put(goal: Path, files: Iterable[tuple[str, bytes]], *, aside: Path | None = None, gone: Sequence[Path] = ()) -> None:
    """Write a directory of files in the place of ``goal``.

    Args:
        goal: The directory.
        files: Name and content of each file, asked for one by one.
        aside: Where what was at ``goal`` is kept; it is removed if None.
        gone: Directories that are removed when the new one is in place, unless they hold other files than a checkpoint's.

    Raises:
        CheckpointError: What is there is more than a checkpoint, another process writes there, or a step failed; what was at
            ``goal`` is still there or aside.
    """
    at = "make parent", goal.parent

    def step(name: str, path: Path, *args: Any) -> None:
        nonlocal at
        at = name, path
        perform(name, path, *args)

    def hold(folder: Path) -> None:
        nonlocal at
        at = "lock directory", folder
        try:
            locks.append(lock(folder))
        except BlockingIOError:
            raise BlockingIOError(errno.EAGAIN, "another process writes there now") from None
        if locks[-1] is not None and not os.path.samestat(os.fstat(locks[-1]), folder.stat()):
            raise BlockingIOError(errno.EAGAIN, "another process has put another directory there")

    fresh, old = fresh_of(goal), old_of(goal)
    locks: list[int | None] = []
    made, before = False, goal.exists()
    try:
        leftovers = fresh.exists()
        for place in (goal, fresh):
            if place.is_dir() and not place.is_symlink():
                hold(place)
        at = "look at what is there", goal
        check_replaceable(goal, partial=aside is not None)  # which is not removed then
        check_replaceable(old, partial=is_of_checkpoint(goal))
        for place in (fresh, *([] if aside is None else [aside])):
            check_replaceable(place, partial=True)
        step("make parent", goal.parent)
        step("clear leftovers", fresh, leftovers)
        step("make directory", fresh)
        hold(fresh)
        made = True
        for name, content in files:
            step("write file", fresh / name, content)
            step("sync file", fresh / name)
        step("sync directory", fresh)
        if goal.exists():
            place = old
            if aside is not None:
                step("make history", aside.parent)
                place = aside
            step("clear place", place)  # what a crash left there; goal is whole
            step("rename old", goal, place)
            step("sync history", place.parent)
        step("rename new", fresh, goal)
        step("sync parent", goal.parent)
        for folder in (old, *gone):
            if folder.exists() and is_replaceable(folder):  # else it stays: someone put other files there
                step("remove old", folder)
    except OSError as e:
        if at[0] in ("sync history", "rename new") and not goal.exists():
            with suppress(OSError):
                (old if aside is None else aside).rename(goal)  # back to where it was
        raise CheckpointError(
            f"the checkpoint {goal} is written to the end",
            f"{e.strerror or e}, in the step {at[0]!r} of {at[1]}",
            _REMEDIES.get(e.errno or 0, "see to what the system says of it")
            + ("; the checkpoint before this one is kept" if before else ""),
        ) from e
    finally:
        if made:
            shutil.rmtree(fresh, ignore_errors=True)  # gone already if it was renamed
        for handle in locks:
            unlock(handle)


def fresh_of(goal: Path) -> Path:
    """Where a directory is written before it takes its place."""
    return goal.with_name(f".{goal.name}.new")


def old_of(goal: Path) -> Path:
    """Where a directory lies while another takes its place."""
    return goal.with_name(goal.name + ".old")
