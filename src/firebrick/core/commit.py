"""``Commit``: handles, dicts and attributes that change together: an interrupt finds all of them changed, or none.

CPython delivers signals, and exceptions that other threads set, between bytecodes. Each change is therefore a row
of a C function and its arguments, and one C call applies all rows. The old values are kept until it has returned, so that no
finalizer runs in between. Everything that can fail or take long belongs before ``apply``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat, starmap
from operator import call
from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.hooks import hooks
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor

Row = tuple[Any, ...]


def setter(kind: type, slot: str) -> Any:
    """The C function that sets a slot: ``setter(owner, value)``."""
    return kind.__dict__[slot].__set__


SLOTS = ("storage", "dtype", "shape", "device", "node", "slot", "leaf")
SETTERS = tuple(setter(Tensor, s) for s in SLOTS)
_storage, _dtype, _shape, _device, _node, _slot, _leaf = SETTERS
_data = setter(Storage, "data")


def apply_rows(rows: Iterable[Row]) -> None:
    """Call the function of each row, in one step that no interrupt splits."""
    deque(starmap(call, rows), 0)


def fill(storages: Sequence[Storage], buffers: Sequence[Any]) -> None:
    """Let storages hold other buffers, in one step that no interrupt splits; the caller keeps the old buffers until this
    returns."""
    if len(storages) == 1:
        _data(storages[0], buffers[0])
    else:
        deque(map(_data, storages, buffers), 0)


def exchange(
    handles: Sequence[Tensor], storages: Sequence[Any], filled: Sequence[Storage] = (), buffers: Sequence[Any] = (),
    rows: Sequence[Row] = (),
) -> None:  # fmt: skip
    """Let handles show other storages, untracked, and storages hold other buffers, and call the rows, in one step that no
    interrupt splits. For callers that hold ``hooks.rebinding``, have notified the journals, and keep what the storages held."""
    marked = [t for t in handles if t.node is not None or t.leaf > 0]
    replaced = [t.storage for t in handles], [t.node for t in marked]
    if not marked and not rows:
        deque(chain(map(_data, filled, buffers), map(_storage, handles, storages)), 0)
    else:
        deque(
            chain(
                map(_data, filled, buffers),
                map(_storage, handles, storages),
                map(_node, marked, repeat(None)),
                map(_slot, marked, repeat(0)),
                map(_leaf, marked, [-abs(t.leaf) for t in marked]),
                starmap(call, rows),
            ),
            0,
        )
    del replaced


class Commit:
    """Changes that are collected first and applied together.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.core.commit import Commit
        >>> x, held, commit = fb.zeros(1), {}, Commit()
        >>> commit.rebind(x, fb.ones(1))
        >>> commit.call(dict.__setitem__, held, "x", 1)
        >>> x.tolist(), held
        ([0.0], {})
        >>> commit.apply()
        >>> x.tolist(), held
        ([1.0], {'x': 1})
    """

    __slots__ = ("_buffers", "_filled", "_handles", "_others", "_rows", "_storages")

    def __init__(self) -> None:
        # parallel lists, not one list of pairs: fewer objects that stay alive make Python collect garbage less often
        self._handles: list[Tensor] = []
        self._storages: list[Any] = []
        self._others: dict[int, Tensor] = {}  # by handle: what shows more than another storage
        self._rows: list[Row] = []
        self._filled: Sequence[Storage] = ()
        self._buffers: Sequence[Any] = ()

    def rebind(self, t: Tensor, to: Tensor) -> None:
        """Let a handle show ``to``, on its device; what other handles show stays as it is."""
        if hooks.tracing:
            hooks.capture(t)
            hooks.capture(to)
        self._handles.append(t)
        self._storages.append(to.storage)
        if to.dtype is not t.dtype or to.shape != t.shape or to.device is not t.device or to.node is not None:
            self._others[id(t)] = to

    def show(self, handles: Sequence[Tensor], storages: Sequence[Any], avals: Sequence[Aval]) -> None:
        """Let each handle show a storage, of this shape and dtype, on its device."""
        self._handles += handles
        self._storages += storages
        for t, s, (shape, dtype) in zip(handles, storages, avals, strict=True):
            if t.dtype is not dtype or t.shape != shape:
                self._others[id(t)] = Tensor(s, dtype, shape, t.device)

    def fill(self, storages: Sequence[Storage], buffers: Sequence[Any]) -> None:
        """Let storages hold other buffers; the caller keeps the buffers that they held until ``apply`` has returned."""
        self._filled, self._buffers = storages, buffers

    def call(self, *row: Any) -> None:
        """Call a C function that changes its first argument: ``commit.call(dict.__setitem__, d, key, value)``."""
        self._rows.append(row)

    def apply(self) -> None:
        """Make all of the changes."""
        handles, storages, rows = self._handles, self._storages, self._rows
        if hooks.journals:
            for t in handles:
                hooks.note(t)
            for row in rows:
                if type(row[1]) is dict:
                    hooks.note_dict(row[1])
        with hooks.rebinding:
            if hooks.tracing:
                here = [i for i, t in enumerate(handles) if not self._elsewhere(t, storages[i])]
                handles, storages = [handles[i] for i in here], [storages[i] for i in here]
            if self._others:
                hooks.version += 1
                rows = [*rows, *self._further(handles)]
            exchange(handles, storages, self._filled, self._buffers, rows)

    def _further(self, handles: list[Tensor]) -> Iterator[Row]:
        for t in handles:
            to = self._others.get(id(t))
            if to is not None:
                yield _dtype, t, to.dtype
                yield _shape, t, to.shape
                yield _device, t, to.device
                yield _node, t, to.node
                yield _slot, t, to.slot

    def _elsewhere(self, t: Tensor, storage: Any) -> bool:
        """Whether another thread traces with a handle, which will show the new values after the trace."""
        to = self._others.get(id(t))
        if to is None:
            return hooks.elsewhere(t, storage, t.dtype, t.shape, None, 0)
        return hooks.elsewhere(t, storage, to.dtype, to.shape, to.node, to.slot)
