"""A journal of the handles that are rebound in a block and of what they showed before: a function can then run without a
lasting effect on tensors, a second time from where the first time began, or completely or not at all (``all_or_none``).

Handles are known weakly: a handle that nothing else holds any more is not restored, and its old memory is freed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar
from weakref import ref

from firebrick.core.commit import SETTERS, SLOTS, Row, apply_rows
from firebrick.core.hooks import hooks

R = TypeVar("R")
_current: ContextVar[Journal | None] = ContextVar("firebrick_journal", default=None)


class _Known(ref[Any]):
    """A weak reference to a handle, with the key that it has in a journal."""

    __slots__ = ("key",)
    key: int


def _gone(journal: ref[Journal], known: _Known) -> None:
    found = journal()  # weakly, too: old memory is freed with the journal, not when Python collects garbage
    if found is not None:
        found._noted.pop(known.key, None)


class Journal:
    """What handles showed when they were first noted; a journal inside another one notes in both.

    Args:
        draws: Whether it also notes how far random generators are drawn.
    """

    def __init__(self, *, draws: bool = False) -> None:
        self._around = _current.get()
        self._noted: dict[int, tuple[_Known, tuple[Any, ...]]] = {}
        self._gone = partial(_gone, ref(self))
        self._draws: dict[int, tuple[Any, Any, tuple[Any, ...]]] | None = {} if draws else None
        self._dicts: dict[int, tuple[dict[Any, Any], dict[Any, Any]]] = {}

    def note(self, t: Any) -> None:
        """``t`` is about to be rebound."""
        if id(t) not in self._noted:
            known = _Known(t, self._gone)
            known.key = id(t)
            self._noted[known.key] = known, tuple([getattr(t, f) for f in SLOTS])
        if self._around is not None:
            self._around.note(t)

    def correct(self, t: Any, field: str, value: Any, before: dict[str, Any]) -> None:
        """Where ``t`` first showed ``value``, which a call that ends now put there, let it have shown what it did before."""
        entry = self._noted.get(id(t))
        if entry is not None and entry[1][SLOTS.index(field)] is value:
            self._noted[id(t)] = entry[0], tuple(before.get(f, v) for f, v in zip(SLOTS, entry[1], strict=True))
        if self._around is not None:
            self._around.correct(t, field, value, before)

    def note_draw(self, generator: Any, before: Any, after: Any) -> None:
        """``generator`` is about to go from one mark to another. One that others move meanwhile is left where they moved it,
        so that nobody draws the same numbers again."""
        if self._draws is not None:
            _, first, last = self._draws.get(id(generator), (None, before, (before,)))
            self._draws[id(generator)] = generator, first, (before, after) if before in last else ()
        if self._around is not None:
            self._around.note_draw(generator, before, after)

    def note_dict(self, d: dict[Any, Any]) -> None:
        """``d``, which may be the attributes of an object, is about to change."""
        if id(d) not in self._dicts:
            self._dicts[id(d)] = d, d.copy()
        if self._around is not None:
            self._around.note_dict(d)

    def rebound(self) -> list[Any]:
        """The handles that were noted and are still alive."""
        return [t for known, _ in list(self._noted.values()) if (t := known()) is not None]

    def rebound_from(self) -> list[tuple[Any, Any]]:
        """The same, each with the storage that it showed first."""
        return [(t, saved[0]) for known, saved in list(self._noted.values()) if (t := known()) is not None]

    def restore(self) -> None:
        """Let every handle show again what it showed, every generator draw again what it drew, every dict hold what it held:
        all of them or, by an interrupt, none yet."""
        rows: list[Row] = []
        replaced: list[Any] = []  # kept until all is done: no finalizer runs in between
        for known, saved in list(self._noted.values()):
            t = known()
            if t is None:
                continue
            _note(t)
            if saved[1:3] != (t.dtype, t.shape):
                hooks.version += 1
            replaced.append((t, t.storage, t.node))
            rows += [(put, t, value) for put, value in zip(SETTERS, saved, strict=True)]
        for generator, first, last in [] if self._draws is None else list(self._draws.values()):
            if generator.mark() in last:
                rows += generator.rows_to(first)
        for d, content in self._dicts.values():
            replaced.append(d.copy())
            rows += [(dict.clear, d), (dict.update, d, content)]
            hooks.version += 1
        with hooks.rebinding:
            apply_rows(rows)

    def enter(self) -> None:
        """Begin to note the handles that this context rebinds."""
        hooks.journals.add(self)
        _current.set(self)

    def leave(self) -> None:
        """Note nothing more; also a second time."""
        _current.set(self._around)
        hooks.journals.discard(self)


def _note(t: Any) -> None:
    journal = _current.get()
    if journal is not None:
        journal.note(t)


def _note_draw(generator: Any, before: Any, after: Any) -> None:
    journal = _current.get()
    if journal is not None:
        journal.note_draw(generator, before, after)


def note_dict(d: dict[Any, Any]) -> None:
    """Notify the journal of this context that a dict is about to change."""
    journal = _current.get()
    if journal is not None:
        journal.note_dict(d)


def all_or_none(body: Callable[[], R], release: Callable[[], None] | None = None) -> R:
    """``body()``; if it raises, by an interrupt too, tensors and generators are as they were before it.

    Inside a trace, which restores what it changed, nothing is noted.

    Args:
        body: Called in this context.
        release: Called after it in any case, once or twice: an interrupt may come at the beginning of the first time.
    """
    journal = None if hooks.trace() is not None else Journal(draws=True)
    try:
        try:
            if journal is not None:
                journal.enter()
            return body()
        finally:
            if journal is not None:
                journal.leave()
            if release is not None:
                release()
    except BaseException:
        if journal is not None:
            journal.leave()
            journal.restore()
        if release is not None:
            release()
        raise


def correct(t: Any, field: str, value: Any, before: dict[str, Any]) -> None:
    """``Journal.correct`` for the journals of this context. A call that shows other values in the caller's handles while it
    runs corrects what was noted meanwhile: the caller would restore values of a call that is over."""
    journal = _current.get()
    if journal is not None:
        journal.correct(t, field, value, before)


@contextmanager
def journaled() -> Iterator[Journal]:
    """Note, for a ``with`` block, which handles this context rebinds."""
    journal = Journal()
    try:
        journal.enter()
        yield journal
    finally:
        journal.leave()


@contextmanager
def undone() -> Iterator[None]:
    """Let, at the end of a ``with`` block, every handle that this context rebinds show again what it showed before."""
    with journaled() as journal:
        try:
            yield
        finally:
            journal.restore()


@contextmanager
def unnoted() -> Iterator[None]:
    """Note nothing in a ``with`` block: its caller restores what it rebinds."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


hooks.note = _note
hooks.note_draw = _note_draw
hooks.note_dict = note_dict
