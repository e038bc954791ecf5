"""Atomic operations of many items at once, with the results that they have one after the other in a given order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_COMBINE: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def update(op: str, memory: Array, at: Array, values: Array) -> None:
    """``Atomic`` without results.

    Args:
        op: Its operation.
        memory: Elements; changed.
        at: Which element each item accesses, in the order of the operations.
        values: Of the items.
    """
    if op == "exchange":
        memory[at] = values  # of equal indices the last one stays
    else:
        _COMBINE[op].at(memory, at, values)


def fetch(op: str, memory: Array, at: Array, values: Array) -> Array:
    """``update``, and what each item found."""
    if op == "exchange":
        return _by_element(memory, at, _exchanged, lambda old, v: v, values)
    combine = _COMBINE[op]

    def run(old: Any, v: Array) -> tuple[Array, Any]:
        after = combine.accumulate(np.concatenate([[old], v]), dtype=v.dtype)
        return after[:-1], after[-1]

    return _by_element(memory, at, run, combine, values)


def _exchanged(old: Any, v: Array) -> tuple[Array, Any]:
    return np.concatenate([[old], v[:-1]]), v[-1]


def compare_exchange(memory: Array, at: Array, expected: Array, values: Array) -> Array:
    """``CompareExchange``; what each item found. Arguments as of ``update``."""

    def run(old: Any, wanted: Array, v: Array) -> tuple[Array, Any]:
        found, begin = np.empty_like(v), 0
        while begin < v.size:  # from one exchange to the next the element stays the same
            hit = np.flatnonzero(wanted[begin:] == old)[:1]
            end = begin + int(hit[0]) + 1 if hit.size else v.size
            found[begin:end] = old
            old, begin = v[end - 1] if hit.size else old, end
        return found, old

    return _by_element(memory, at, run, lambda old, wanted, v: np.asarray(np.where(old == wanted, v, old)), expected, values)


def _by_element(
    memory: Array, at: Array, run: Callable[..., tuple[Array, Any]], once: Callable[..., Array], *operands: Array
) -> Array:
    """What each item found.

    Args:
        memory: Elements; changed.
        at: Which element each item accesses, in order; there is an item, as blocks without one are not executed.
        run: The results of items that access one element, and its last value, from its first and their operands.
        once: The elements after one item accessed each, from those before and the items' operands.
        operands: Of the items.
    """
    out = np.empty(at.shape, memory.dtype)
    order = np.argsort(at, kind="stable")
    at, operands = at[order], tuple(v[order] for v in operands)
    first = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1]]))
    counts = np.diff(np.append(first, at.size))
    found = np.empty(at.shape, memory.dtype)
    if counts.max() <= first.size:
        for places in _rounds(first, counts):
            old = found[places] = memory[at[places]]
            memory[at[places]] = once(old, *(v[places] for v in operands))
    else:
        for begin, count in zip(first.tolist(), counts.tolist(), strict=True):
            piece = slice(begin, begin + count)
            found[piece], memory[at[begin]] = run(memory[at[begin]], *(v[piece] for v in operands))
    out[order] = found
    return out


def _rounds(first: Array, counts: Array) -> Iterator[Array]:
    """The places of the first items of all elements, then of the second ones, …"""
    turn = 0
    while first.size:
        yield first + turn
        turn += 1
        more = counts > turn
        first, counts = first[more], counts[more]
