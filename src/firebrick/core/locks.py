"""Locks that a forked child finds free: the thread that held one when its parent forked does not exist there.

What such a lock guards is then as the thread left it, so the code that it guards must be one that may stop anywhere: a look
into a table, a draw, a trace that the child drops.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")
_made: WeakSet[Any] = WeakSet()


def forkable(lock: T) -> T:
    """The same lock, which becomes free in every forked child.

    Args:
        lock: A ``threading.Lock`` or ``threading.RLock``.

    Example:
        >>> from threading import Lock
        >>> from firebrick.core.locks import forkable
        >>> with forkable(Lock()):
        ...     pass
    """
    _made.add(lock)
    return lock


def _after_fork() -> None:
    for lock in list(_made):
        lock._at_fork_reinit()  # as the standard library frees its own locks in a child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
