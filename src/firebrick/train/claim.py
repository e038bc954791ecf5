"""A directory belongs to one writer at a time: the system locks a run's while it runs, and a checkpoint's while it is replaced.

The lock lies on the directory itself and leaves no file; it ends with the process, however that ends. Systems and file
systems without such locks are left as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from firebrick.train.errors import TrainingError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def claimed(folder: Path | None) -> Iterator[None]:
    """Keep a directory for this run during a ``with`` block; None keeps nothing.

    Raises:
        TrainingError: Another run writes there.
    """
    try:
        handle = None if folder is None else lock(folder)
    except BlockingIOError:
        raise TrainingError(
            "a run directory takes one run at a time", f"{folder}, where another run writes now", "name another directory"
        ) from None
    try:
        yield
    finally:
        unlock(handle)


def is_claimed(folder: Path) -> bool:
    """Whether a run writes there now."""
    try:
        with claimed(folder):
            return False
    except TrainingError:
        return True


def lock(folder: Path) -> int | None:
    """Lock a directory; returns what ``unlock`` takes, None where there are no locks.

    Raises:
        BlockingIOError: Another process, or another thread, holds the lock.
        OSError: The directory is not there, or cannot be opened.
    """
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        os.close(handle)
        if isinstance(e, BlockingIOError):
            raise
        return None
    return handle


def unlock(handle: int | None) -> None:
    """Give up a lock; also one that a process forked meanwhile holds a copy of."""
    if handle is not None and fcntl is not None:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
