"""A run directory belongs to one run at a time: it is locked while a run writes there, by the system, which forgets no lock.

The lock lies on the directory itself and leaves no file; it ends with the process, however that ends. Systems and file
systems without such locks are left as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
    handle = None if folder is None else _lock(folder)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def is_claimed(folder: Path) -> bool:
    """Whether a run writes there now."""
    try:
        with claimed(folder):
            return False
    except TrainingError:
        return True


def _lock(folder: Path) -> int | None:
    """An open handle that holds the lock; None where there are no locks."""
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise TrainingError(
            "a run directory takes one run at a time", f"{folder}, where another run writes now", "name another directory"
        ) from None
    except OSError:
        os.close(handle)
        return None
    return handle
