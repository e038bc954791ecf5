"""One slot of many tensors at once: its values, or whether each is None; and whether two tuples hold the same objects.

Calls of compiled functions read the storages of thousands of tensors, each time anew. A compiled engine installs native
functions for long sequences (``install``). Such a function gives up, by returning None, where it finds an object or a value of
another kind than it was made for; then, and without one, the slots are read here, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple

from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor

LONG = 48
"""Minimum length of a sequence for which native functions are called: a call of one takes as long as reading so many slots."""

Contents = tuple[list[Any], list[Any], set[type]]


class Native(NamedTuple):
    """The functions that an engine installs.

    Attributes:
        contents: ``contents`` of tensors; None if it gives up.
        untracked: ``untracked`` of tensors; None if it gives up.
        identical: ``(a, b) -> bool`` of two tuples of one length.
    """

    contents: Callable[[tuple[Any, ...]], Contents | None]
    untracked: Callable[[tuple[Any, ...]], bool | None]
    identical: Callable[[tuple[Any, ...], tuple[Any, ...]], bool]


_native: Native | None = None


def install(native: Native | None) -> Native | None:
    """Let these functions read long sequences from now on, or none; returns those that did."""
    global _native
    before, _native = _native, native
    return before


def contents(handles: Sequence[Tensor]) -> Contents:
    """The storage of each tensor, the data of each storage, and the classes that data have.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.core.slots import contents
        >>> x = fb.ones(2)
        >>> storages, data, classes = contents([x, x])
        >>> storages[1] is x.storage, data[0] is x.storage.data, classes == {type(data[0])}
        (True, True, True)
    """
    if _native is not None and len(handles) >= LONG:
        found = _native.contents(tuple(handles))
        if found is not None:
            return found
    storages: list[Storage] = [t.storage for t in handles]
    data = [s.data for s in storages]
    return storages, data, set(map(type, data))


def untracked(handles: Sequence[Tensor]) -> bool:
    """Whether none of the tensors is on a tape.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.core.slots import untracked
        >>> untracked([fb.ones(2)]), untracked([fb.ones(2), fb.ones(2).require_grad()])
        (True, False)
    """
    if _native is not None and len(handles) >= LONG:
        found = _native.untracked(tuple(handles))
        if found is not None:
            return found
    nodes = [t.node for t in handles]
    return nodes.count(None) == len(nodes)  # which compares identities first: a few nanoseconds each


def identical(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two tuples hold the same objects in the same order.

    Example:
        >>> from firebrick.core.slots import identical
        >>> one, other = [1.5], [1.5]
        >>> identical((one, other), (one, other)), identical((one,), (other,)), identical((one,), (one, one))
        (True, False, False)
    """
    if len(a) != len(b):
        return False
    if _native is not None and len(a) >= LONG:
        return _native.identical(a, b)
    return all(map(is_, a, b))
