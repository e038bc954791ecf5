"""Selection on NumPy: a choice against 0 (dropout, its gradient, that of relu) by a mask of bits.

NumPy's own ``where`` branches at each element, which a random mask makes some ten times as slow as a product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.ops.declare import Array

BITS: dict[Any, Any] = {np.dtype(np.float32): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.int64)}
FEW = 1024
"""Up to this number of elements, NumPy's own is no slower."""


def where(condition: Array, x1: Array, x2: Array) -> Array:
    """x1 where condition holds, else x2."""
    if condition.size > FEW and x1.dtype in BITS:
        if x2.ndim == 0 and x1.shape == condition.shape and is_zero(x2):
            return masked(x1, condition)
        if x1.ndim == 0 and x2.shape == condition.shape and is_zero(x1):
            return masked(x2, ~condition)
    return np.where(condition, x1, x2)


def is_zero(x: Array) -> bool:
    """Whether an array without axes is +0, whose bits are all 0."""
    return bool(x == 0) and not np.signbit(x)


def masked(x: Array, keep: Array) -> Array:
    """x where ``keep`` holds, else +0: by bits, so that NaN keeps its own and does not spread."""
    bits = keep.astype(BITS[x.dtype])
    np.negative(bits, bits)
    np.bitwise_and(bits, x.view(bits.dtype), bits)
    found: Array = bits.view(x.dtype)
    return found
