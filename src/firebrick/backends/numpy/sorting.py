"""The k largest values without sorting the rest: NumPy's partition finds the k-th, one pass the elements beyond it."""

from __future__ import annotations

import numpy as np

from firebrick.ops import sorting
from firebrick.ops.declare import Array

_FEW = 8
"""Partition is faster than sorting if at most one element in this number is selected."""


def top_k(x: Array, *, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """NumPy's partition leaves open which of the k-th value's equals come along; only what is chosen is sorted."""
    n = x.shape[axis]
    if not 0 < k <= n // _FEW:
        found: tuple[Array, Array] = sorting.top_k.reference(x, k=k, axis=axis, largest=largest)
        return found
    rows = np.moveaxis(x, axis, -1)
    position = n - k if largest else k - 1
    parted = np.argpartition(rows, position, -1)
    at = parted[..., n - k :] if largest else parted[..., :k]
    edge = np.take_along_axis(rows, parted[..., position : position + 1], -1)
    held = (np.take_along_axis(rows, at, -1) == edge).sum(-1)
    if (((rows == edge).sum(-1) > held) | (edge != edge)[..., 0]).any():
        at = _first_k(rows, edge, k, largest)
    at = np.sort(at, -1)
    values, order = sorting.sort.reference(np.take_along_axis(rows, at, -1), axis=rows.ndim - 1, descending=largest)
    at = np.take_along_axis(at, order, -1)
    return np.moveaxis(values, -1, axis), np.ascontiguousarray(np.moveaxis(at, -1, axis), np.int64)


def _first_k(rows: Array, edge: Array, k: int, largest: bool) -> Array:
    """The positions of all elements beyond the k-th value, and of the first of its equals, NaN being one of them."""
    odd, odd_edge = rows != rows, edge != edge
    beyond = (rows > edge) | (odd & ~odd_edge) if largest else (rows < edge) | (~odd & odd_edge)
    level = (rows == edge) | (odd & odd_edge)
    room = k - beyond.sum(-1, keepdims=True)
    chosen = beyond | (level & (np.cumsum(level, -1) <= room))
    return np.nonzero(chosen)[-1].reshape(*rows.shape[:-1], k)
