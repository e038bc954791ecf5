"""Scatter kernels on flat positions: no Python loop over positions, the same order of summation in every run."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from firebrick.ops.declare import Array
from firebrick.ops.indexing import from_front


def _flat(op: str, x: Array, indices: Array, axis: int) -> Array:
    """The row-major position in ``x`` of each index along an axis."""
    strides = [prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    flat: Array = from_front(indices, x.shape[axis], op) * strides[axis]
    for i, n in enumerate(indices.shape):
        if i != axis and n > 1:
            flat += (np.arange(n) * strides[i]).reshape([-1 if k == i else 1 for k in range(x.ndim)])
    return flat.reshape(-1)


def index_add(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """Sorted segment sum: equal indices are brought together and summed in order, once for each position."""
    out = np.moveaxis(np.array(x), axis, 0)
    lead = np.moveaxis(updates, tuple(range(axis, axis + indices.ndim)), tuple(range(indices.ndim)))
    flat = from_front(indices, x.shape[axis], "index_add").reshape(-1)
    if flat.size:
        rows = lead.reshape(flat.size, *lead.shape[indices.ndim :])
        order = np.argsort(flat, kind="stable")
        positions, starts = np.unique(flat[order], return_index=True)
        out[positions] += np.add.reduceat(rows[order], starts, axis=0)
    return np.ascontiguousarray(np.moveaxis(out, 0, axis))


def scatter(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """Assignment in order: of several values for one position NumPy leaves the last."""
    flat = _flat("scatter", x, indices, axis)
    out = np.array(x, order="C")
    out.reshape(-1)[flat] = updates.reshape(-1)
    return out


def scatter_add(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """Summation in the order of the updates, on flat positions."""
    flat = _flat("scatter_add", x, indices, axis)
    out = np.array(x, order="C")
    if not indices.size:
        return out
    if x.dtype.kind == "f" and x.dtype.itemsize >= 4:
        # bincount adds in float64, in order
        out += np.bincount(flat, updates.reshape(-1), out.size).reshape(out.shape).astype(x.dtype)
    else:
        np.add.at(out.reshape(-1), flat, updates.reshape(-1))
    return out


_FOLDS: dict[str, Any] = {"mul": np.multiply, "min": np.minimum, "max": np.maximum}


def scatter_reduce(x: Array, indices: Array, updates: Array, *, axis: int, mode: str) -> Array:
    """One update after the other, on flat positions."""
    flat = _flat("scatter_reduce", x, indices, axis)
    out = np.array(x, order="C")
    _FOLDS[mode].at(out.reshape(-1), flat, updates.reshape(-1))
    return out
