"""Arrays whose elements all have the same bits: kept as one element and a broadcast, and recognised under it."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.graph.passes.rewriter import BROADCAST_TO, Rewriter
from firebrick.ir import CONSTANT, Node

Array = np.ndarray[Any, Any]


def uniform(value: Array) -> Array | None:
    """The 0-d array of the one value that all elements have, bit for bit; None if they differ or there are none."""
    if value.size == 0:
        return None
    first = value[(0,) * value.ndim]
    scalar = np.asarray(first, value.dtype)
    if value.size > 1:
        last = np.asarray(value[(-1,) * value.ndim], value.dtype)
        if scalar.tobytes() != last.tobytes():
            return None
        bits = np.ascontiguousarray(value).reshape(-1).view(np.uint8).reshape(value.size, value.itemsize)
        if not (bits == bits[0]).all():
            return None
    return scalar


def splat(r: Rewriter, value: int) -> Array | None:
    """The 0-d array that a value of the graph repeats, if it is a uniform constant or a broadcast of one."""
    made = r.maker(value)
    while made is not None and made.op is BROADCAST_TO:
        value = made.inputs[0]
        made = r.maker(value)
    return uniform(made.params["value"]) if made is not None and made.op is CONSTANT else None


def place(r: Rewriter, value: Array, like: Node) -> int:
    """A new constant; of a uniform one its element, broadcast."""
    one = uniform(value) if value.size > 1 else None
    if one is None:
        return r.constant(np.array(value, order="C"), like)
    return r.emit(BROADCAST_TO, (r.constant(one, like),), {"shape": value.shape}, like)
