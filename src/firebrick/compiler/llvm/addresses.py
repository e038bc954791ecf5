"""Tables of buffer addresses, the ``bufs`` of kernels and segments, filled for many arrays in one native call.

An array's address stands in NumPy's array object behind the head of every Python object (``PyArrayObject.data``, part of
NumPy's binary interface); reading it there takes nanoseconds, ``array.ctypes.data`` about a microsecond. Should it not stand
there in some build of Python, the slow way is taken.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from firebrick.compiler.llvm.pool import native
from firebrick.core.errors import OperandError

_HEAD, _TUPLE = object.__basicsize__, tuple.__basicsize__
_ARRAYS = {np.ndarray}


class AddressTable:
    """Addresses of buffers, in memory where kernels read them.

    A table belongs to one run of a segment at a time, and does not keep the arrays.

    Args:
        length: How many addresses it holds.
    """

    __slots__ = ("_words", "address")

    def __init__(self, length: int) -> None:
        self._words = np.zeros(max(length, 1), np.uint64)
        self.address = int(self._words.ctypes.data)

    def put(self, at: int, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Write the addresses of arrays, from position ``at`` on.

        Raises:
            OperandError: One of them is no NumPy array, or they do not fit.
        """
        if not _ARRAYS.issuperset(map(type, arrays)) or not 0 <= at <= len(self._words) - len(arrays):
            kinds = ", ".join(sorted({type(a).__name__ for a in arrays})) or "none"
            raise OperandError(
                f"NumPy arrays for positions in [0, {len(self._words)})", f"{len(arrays)} of {kinds}, from {at} on"
            )
        if _at_head():
            held = tuple(arrays)  # its items, pointers to the arrays, stand behind its own head
            native().addresses(id(held) + _TUPLE, self.address + 8 * at, len(held), _HEAD)
        else:
            self._words[at : at + len(arrays)] = [a.ctypes.data for a in arrays]

    def put_address(self, at: int, address: int) -> None:
        """Write one address."""
        self._words[at] = address

    def __getitem__(self, at: int) -> int:
        return int(self._words[at])


@cache
def _at_head() -> bool:
    """Whether tuples hold their items, and arrays their address, where this module reads them."""
    samples: tuple[np.ndarray[Any, Any], ...] = (np.zeros(3), np.zeros((5, 7), np.int8)[1:, ::2], np.zeros(()))
    items = (ctypes.c_void_p * len(samples)).from_address(id(samples) + _TUPLE)
    if list(items) != [id(a) for a in samples]:
        return False
    found = [ctypes.c_void_p.from_address(id(a) + _HEAD).value for a in samples]
    return found == [a.ctypes.data for a in samples]
