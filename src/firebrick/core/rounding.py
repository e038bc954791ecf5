"""``rounded``: arrays as another dtype, each number rounded once.

NumPy and ml_dtypes round float64 and wide integers to float32 on the way to bfloat16 and to 8 bits, which may round a second
time the other way: 1 + 2⁻⁸ + 2⁻⁴⁰ became 1 + 2⁻⁸, a tie, and then 1. Here the first rounding is to odd: an inexact float32 gets
an odd last bit, which is never a tie for a format with at least two bits less.

Source: Boldo, Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE
Transactions on Computers 57, 2008.
"""

from __future__ import annotations

from math import ldexp
from typing import Any

import numpy as np

from firebrick.core.dtypes import DType, bfloat16, float8_e4m3fn, float8_e5m2, float16

Array = np.ndarray[Any, Any]

NARROW = frozenset({float16.np, bfloat16.np, float8_e4m3fn.np, float8_e5m2.np})
"""Dtypes that libraries reach by way of float32."""
WIDE = frozenset(np.dtype(d) for d in ("float64", "int32", "int64", "uint32", "uint64"))
"""Dtypes that float32 does not hold."""
EXACT = 53
"""Bits of a float64."""


def rounded(x: Array, dtype: DType) -> Array:
    """``x.astype``, rounded once."""
    if dtype.np not in NARROW or x.dtype not in WIDE:
        return x.astype(dtype.np)
    with np.errstate(all="ignore"):
        return to_odd(x).astype(dtype.np)


def to_odd(x: Array) -> Array:
    """float64 or integers as float32; what is not exact has an odd last bit."""
    if x.dtype.itemsize == 8 and x.dtype.kind in "iu":
        spare = 64 - EXACT + 1
        kept = (x >> spare) | ((x & ((1 << spare) - 1)) != 0)  # rounded to odd to fewer bits than float64 has
        x = np.where((x >> (EXACT - 1)) + (x < 0) == 0, x.astype(np.float64), np.ldexp(kept.astype(np.float64), spare))
    wide = x.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        near = np.array(wide.astype(np.float32))
        back = near.astype(np.float64)
        bits = near.view(np.int32)
        bits -= np.abs(back) > np.abs(wide)
        bits |= (back != wide) & (wide == wide)
    return near


def number(value: bool | int | float | complex) -> bool | float | complex:
    """A Python number, as one that a float64 holds and that rounds to any narrower dtype as the number itself."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    spare = max(0, value.bit_length() - EXACT + 1)
    return ldexp((value >> spare) | (value & ((1 << spare) - 1) != 0), spare) if spare else float(value)
