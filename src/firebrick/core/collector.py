"""``fewer_collections``: a pass of Python's garbage collector after 400,000 new objects, not after seven hundred.

To trace and compile a program makes millions of objects that stay: by default the collector looks through them again and again,
which is a sixth of the time. It is not switched off, since other threads may make garbage meanwhile.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

_YOUNG = 400_000  # new containers before a pass; a pass over so many takes some fifty milliseconds
_lock = Lock()
_inside: list[int] = []  # the threads in a block, once for each
_before: tuple[int, int, int] | None = None  # the process's thresholds, while they are replaced
_ours: tuple[int, int, int] | None = None


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Raise the collector's first threshold for a ``with`` block.

    The threshold belongs to the process, so the last of several threads restores it. One that somebody else sets meanwhile
    stays, and so does one of 0 (a collector that is off) or a higher one.
    """
    with _lock:
        _inside.append(get_ident())
        _raise()
    try:
        yield
    finally:
        with _lock:
            _inside.remove(get_ident())
            _restore()


def _raise() -> None:
    global _before, _ours
    found = gc.get_threshold()
    if len(_inside) == 1 and 0 < found[0] < _YOUNG:
        _before, _ours = found, (_YOUNG, *found[1:])
        gc.set_threshold(*_ours)


def _restore() -> None:
    global _before, _ours
    if not _inside and _before is not None:
        if gc.get_threshold() == _ours:
            gc.set_threshold(*_before)
        _before = _ours = None


def _after_fork() -> None:
    """A child process has only the thread that forked."""
    global _lock
    _lock = Lock()
    _inside[:] = [thread for thread in _inside if thread == get_ident()]
    _restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
