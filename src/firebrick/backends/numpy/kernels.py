"""NumPy kernels that are faster than an op's reference, or written as one ufunc. Held against the reference like any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from firebrick.backends.numpy.blas import matmul
from firebrick.backends.numpy.convolution import conv2d, conv2d_input, conv2d_weight
from firebrick.backends.numpy.special import erf
from firebrick.ops.declare import Array
from firebrick.ops.indexing import check_indices
from firebrick.ops.normalisation import layer_norm, log_softmax, softmax
from firebrick.ops.pooling import windows


def _relu(x: Array) -> Array:
    return np.maximum(x, np.zeros((), x.dtype))


def index_add(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """Sorted segment sum: equal indices are brought together and summed in order, once for each place."""
    check_indices(indices, x.shape[axis], "index_add")
    out = np.moveaxis(np.array(x), axis, 0)
    lead = np.moveaxis(updates, tuple(range(axis, axis + indices.ndim)), tuple(range(indices.ndim)))
    flat = np.where(indices < 0, indices + x.shape[axis], indices).reshape(-1)
    if flat.size:
        rows = lead.reshape(flat.size, *lead.shape[indices.ndim :])
        order = np.argsort(flat, kind="stable")
        places, starts = np.unique(flat[order], return_index=True)
        out[places] += np.add.reduceat(rows[order], starts, axis=0)
    return np.ascontiguousarray(np.moveaxis(out, 0, axis))


def max_pool2d(x: Array, *, kernel: Any, stride: Any, padding: Any) -> tuple[Array, Array]:
    """One pass over the kernel's elements, each a strided slice of the image."""
    if not any(map(any, padding)):
        return _max_pool2d_unpadded(x, kernel, stride)
    (top, _), (left, _) = padding
    h, w = x.shape[2:]
    low = np.asarray(-np.inf, x.dtype)
    padded = np.pad(x, ((0, 0), (0, 0), *padding), constant_values=low) if any(map(any, padding)) else x
    shape = windows(padded, kernel, stride).shape[:4]
    rows = np.arange(shape[2])[:, None] * stride[0] - top
    cols = np.arange(shape[3])[None, :] * stride[1] - left
    best = np.full(shape, low, x.dtype)
    place = np.full(shape, -1, np.int64)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = padded[
                :,
                :,
                i : i + stride[0] * (shape[2] - 1) + 1 : stride[0],
                j : j + stride[1] * (shape[3] - 1) + 1 : stride[1],
            ]
            inside = (rows + i >= 0) & (rows + i < h) & (cols + j >= 0) & (cols + j < w)
            # later elements win only by being larger (or the first NaN), so the first maximum stays
            wins = ((part > best) | (place < 0) | (np.isnan(part) & ~np.isnan(best))) & inside
            best = np.where(wins, part, best)
            place = np.where(wins, (rows + i) * w + (cols + j), place)
    return best, place


def _max_pool2d_unpadded(x: Array, kernel: Any, stride: Any) -> tuple[Array, Array]:
    h, w = x.shape[2:]
    oh, ow = (h - kernel[0]) // stride[0] + 1, (w - kernel[1]) // stride[1] + 1
    best = np.array(x[:, :, : stride[0] * (oh - 1) + 1 : stride[0], : stride[1] * (ow - 1) + 1 : stride[1]])
    which = np.zeros(best.shape, np.int64)  # place of the best element relative to the window's first
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            if i or j:
                part = x[:, :, i : i + stride[0] * (oh - 1) + 1 : stride[0], j : j + stride[1] * (ow - 1) + 1 : stride[1]]
                # larger, or the first NaN: an equal element that comes later never wins
                np.copyto(which, i * w + j, where=~(part <= best) & (best == best))
                np.maximum(best, part, out=best)
    which += np.arange(oh)[:, None] * (stride[0] * w) + np.arange(ow) * stride[1]
    return best, which


def avg_pool2d(x: Array, *, kernel: Any, stride: Any, padding: Any) -> Array:
    """Sum of one strided slice for each element of the kernel."""
    padded = np.pad(x, ((0, 0), (0, 0), *padding)) if any(map(any, padding)) else x
    shape = windows(padded, kernel, stride).shape[:4]
    total = np.zeros(shape, x.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            total += padded[
                :,
                :,
                i : i + stride[0] * (shape[2] - 1) + 1 : stride[0],
                j : j + stride[1] * (shape[3] - 1) + 1 : stride[1],
            ]
    return np.asarray(total / np.asarray(kernel[0] * kernel[1], x.dtype))


def scatter_add(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """Summation in the order of the updates, on flat places."""
    check_indices(indices, x.shape[axis], "scatter_add")
    out = np.array(x, order="C")
    if not indices.size:
        return out
    at = np.where(indices < 0, indices + x.shape[axis], indices)
    stride = [int(np.prod(x.shape[i + 1 :], dtype=np.int64)) for i in range(x.ndim)]
    flat = at * stride[axis]
    for i, n in enumerate(indices.shape):
        if i != axis:
            flat = flat + (np.arange(n) * stride[i]).reshape([-1 if k == i else 1 for k in range(x.ndim)])
    if x.dtype.kind == "f" and x.dtype.itemsize >= 4:
        # bincount adds in float64, in order
        out += np.bincount(flat.reshape(-1), updates.reshape(-1), out.size).reshape(out.shape).astype(x.dtype)
    else:
        np.add.at(out.reshape(-1), flat.reshape(-1), updates.reshape(-1))
    return out


def _last(reference: Callable[..., Array]) -> Callable[..., Array]:
    """A normalisation along the last axis of contiguous memory, where NumPy adds pairwise."""

    def kernel(x: Array, *, axis: int) -> Array:
        rows = np.ascontiguousarray(np.moveaxis(x, axis, -1))
        return np.moveaxis(reference(rows, axis=x.ndim - 1), -1, axis)

    return kernel


def _layer_norm(x: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    found: Array = layer_norm.reference(np.ascontiguousarray(x), weight, bias, eps=eps)
    return found


KERNELS: dict[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "negative": np.negative, "abs": np.abs, "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sign": np.sign,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor, "logical_not": np.logical_not,
    "relu": _relu, "erf": erf, "matmul": matmul, "conv2d": conv2d, "conv2d_input": conv2d_input, "conv2d_weight": conv2d_weight,
    "index_add": index_add, "scatter_add": scatter_add, "max_pool2d": max_pool2d, "avg_pool2d": avg_pool2d,
    "softmax": _last(softmax.reference), "log_softmax": _last(log_softmax.reference),
    "layer_norm": _layer_norm,
}  # fmt: skip
