"""A journal of the handles that are rebound in a block and of what they showed before: a function can then run without a
lasting effect on tensors, or a second time from where the first time began.

Handles are known weakly: one that nobody else holds any more needs no return, and its old memory is let go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import ref

from firebrick.core.hooks import hooks

_current: ContextVar[Journal | None] = ContextVar("firebrick_journal", default=None)


class Journal:
    """What handles showed when they were first noted; a journal inside another one notes in both."""

    def __init__(self) -> None:
        self._around = _current.get()
        self._noted: dict[int, tuple[ref[Any], tuple[Any, ...]]] = {}

    def note(self, t: Any) -> None:
        """``t`` is about to be rebound."""
        key, noted = id(t), self._noted
        if key not in noted:
            gone = ref(t, lambda _: noted.pop(key, None))
            noted[key] = gone, (t.storage, t.dtype, t.shape, t.device, t.node, t.slot, t.leaf)
        if self._around is not None:
            self._around.note(t)

    def restore(self) -> None:
        """Let every handle show again what it showed, also where Ctrl-C comes in between."""
        try:
            self._restore()
        except BaseException:
            self._restore()
            raise

    def _restore(self) -> None:
        for known, saved in list(self._noted.values()):
            t = known()
            if t is None:
                continue
            _note(t)
            if saved[1:3] != (t.dtype, t.shape):
                hooks.version += 1
            with hooks.rebinding:
                t.storage, t.dtype, t.shape, t.device, t.node, t.slot, t.leaf = saved


def _note(t: Any) -> None:
    journal = _current.get()
    if journal is not None:
        journal.note(t)


@contextmanager
def journaled() -> Iterator[Journal]:
    """Note, for a ``with`` block, which handles this context rebinds."""
    journal = Journal()
    token = _current.set(journal)
    with hooks.rebinding:
        hooks.journals += 1
    try:
        yield journal
    finally:
        with hooks.rebinding:
            hooks.journals -= 1
        _current.reset(token)


@contextmanager
def undone() -> Iterator[None]:
    """Let, at the end of a ``with`` block, every handle that this context rebinds show again what it showed before."""
    with journaled() as journal:
        try:
            yield
        finally:
            journal.restore()


@contextmanager
def undone_on_failure() -> Iterator[None]:
    """Let, where a ``with`` block fails or is interrupted, every handle that this context rebound show again what it showed."""
    with journaled() as journal:
        try:
            yield
        except BaseException:
            journal.restore()
            raise


@contextmanager
def unnoted() -> Iterator[None]:
    """Note nothing in a ``with`` block: who runs it puts back by itself what it rebinds."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


hooks.note = _note
