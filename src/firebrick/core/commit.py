"""``Commit``: handles, dicts and attributes that change together: an interrupt finds all of them changed, or none.

CPython delivers signals, and exceptions that other threads set, between bytecodes. The changes are therefore rows of a C
function and its arguments, and one C call walks through all of them. What they replace is kept until after, so that no
finalizer runs in between. Everything that can fail or take long belongs before ``apply``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import starmap
from operator import call
from typing import Any

from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor

Row = tuple[Any, ...]


def setter(kind: type, slot: str) -> Any:
    """The C function that sets a slot: ``setter(owner, value)``."""
    return kind.__dict__[slot].__set__


SLOTS = ("storage", "dtype", "shape", "device", "node", "slot", "leaf")
SETTERS = tuple(setter(Tensor, s) for s in SLOTS)
_storage, _dtype, _shape, _device, _node, _slot, _leaf = SETTERS


def apply_rows(rows: Iterable[Row]) -> None:
    """Call the function of each row, in one step that no interrupt splits."""
    deque(starmap(call, rows), 0)


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

    __slots__ = ("_pairs", "_rows")

    def __init__(self) -> None:
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._rows: list[Row] = []

    def rebind(self, t: Tensor, to: Tensor) -> None:
        """Let a handle show ``to``, on its device; what other handles show stays as it is."""
        self._pairs.append((t, to))

    def call(self, *row: Any) -> None:
        """Call a C function that changes its first argument: ``commit.call(dict.__setitem__, d, key, value)``."""
        self._rows.append(row)

    def apply(self) -> None:
        """Make all of the changes."""
        if hooks.tracing:
            for pair in self._pairs:
                for t in pair:
                    hooks.capture(t)
        if hooks.journals:
            for t, _ in self._pairs:
                hooks.note(t)
            for row in self._rows:
                if type(row[1]) is dict:
                    hooks.note_dict(row[1])
        rows, replaced = self._rows.copy(), []
        with hooks.rebinding:
            for t, to in self._pairs:
                if hooks.tracing and hooks.elsewhere(t, to.storage, to.dtype, to.shape, to.node, to.slot):
                    continue
                replaced.append((t.storage, t.node))
                rows.append((_storage, t, to.storage))
                if to.dtype is not t.dtype or to.shape != t.shape or to.device is not t.device:
                    hooks.version += 1
                    rows += [(_dtype, t, to.dtype), (_shape, t, to.shape), (_device, t, to.device)]
                if t.node is not None or to.node is not None:
                    rows += [(_node, t, to.node), (_slot, t, to.slot)]
                if t.leaf > 0:
                    rows.append((_leaf, t, -t.leaf))
            apply_rows(rows)
