"""Tables of buffer addresses, the ``bufs`` of kernels and segments, filled for many arrays in one native call.

An array's address is in NumPy's array object, after the header of every Python object (``PyArrayObject.data``, part of
NumPy's binary interface), and so do its flags; reading them there takes nanoseconds, ``array.ctypes.data`` about a microsecond.
Should they not stand there in some build of Python, the slow way is taken.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from firebrick.backends.cpu.runtime.pool import native
from firebrick.core.errors import OperandError

_HEAD, _TUPLE = object.__basicsize__, tuple.__basicsize__
_FLAGS = _HEAD + 6 * ctypes.sizeof(ctypes.c_void_p)  # after address, rank, sizes, strides, base and dtype
_GOOD = 0x101  # NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED
_ARRAY = id(np.ndarray)  # the class of an array, which stands last in its header


class AddressTable:
    """Addresses of buffers, in memory that kernels read.

    A table belongs to one run of a segment at a time, and does not keep the arrays.

    Args:
        length: How many addresses it holds.
    """

    __slots__ = ("_fill", "_length", "_words", "address")

    def __init__(self, length: int) -> None:
        self._words = np.zeros(max(length, 1), np.uint64)
        self.address = int(self._words.ctypes.data)
        self._length = len(self._words)
        self._fill = native().addresses if _at_head() else None

    def put(self, at: int, arrays: Sequence[np.ndarray[Any, Any]]) -> bool:
        """Write the addresses of arrays, from position ``at`` on.

        Returns:
            Whether all of them are row-major, their elements aligned to their size.

        Raises:
            OperandError: One of them is no NumPy array, or they do not fit.
        """
        held = tuple(arrays)
        count, fill = len(held), self._fill
        if not 0 <= at <= self._length - count:
            raise self._refused(at, held)
        if fill is not None:  # its items, pointers to the arrays, follow its own header
            flags: int = fill(id(held) + _TUPLE, self.address + 8 * at, count, _HEAD, _FLAGS, _ARRAY)
            if flags < 0:
                raise self._refused(at, held)
            return flags & _GOOD == _GOOD
        if any(type(a) is not np.ndarray for a in held):
            raise self._refused(at, held)
        self._words[at : at + count] = [a.ctypes.data for a in held]
        return all(map(_good, held))

    def _refused(self, at: int, given: tuple[Any, ...]) -> OperandError:
        kinds = ", ".join(sorted({type(a).__name__ for a in given})) or "none"
        wanted = f"NumPy arrays for positions in [0, {len(self._words)})"
        return OperandError(wanted, f"{len(given)} of {kinds}, from {at} on")

    def __getitem__(self, at: int) -> int:
        return int(self._words[at])


def _good(array: np.ndarray[Any, Any]) -> bool:
    return bool(array.flags.c_contiguous and array.flags.aligned)


@cache
def _at_head() -> bool:
    """Whether the memory layout of tuples and arrays is the one that this module reads."""
    samples: tuple[np.ndarray[Any, Any], ...] = (
        np.zeros(3), np.zeros((5, 7), np.int8)[1:, ::2], np.zeros(()), np.zeros((2, 3)).T, np.zeros((4, 4))[:2],
        np.zeros(9, np.int8)[1:].view(np.float32),
    )  # fmt: skip
    items = (ctypes.c_void_p * len(samples)).from_address(id(samples) + _TUPLE)
    if list(items) != [id(a) for a in samples]:
        return False
    if {ctypes.c_void_p.from_address(id(a) + _HEAD - ctypes.sizeof(ctypes.c_void_p)).value for a in samples} != {_ARRAY}:
        return False
    flags = [ctypes.c_int.from_address(id(a) + _FLAGS).value & _GOOD for a in samples]
    if [f == _GOOD for f in flags] != [_good(a) for a in samples]:
        return False
    found = [ctypes.c_void_p.from_address(id(a) + _HEAD).value for a in samples]
    return found == [a.ctypes.data for a in samples]
