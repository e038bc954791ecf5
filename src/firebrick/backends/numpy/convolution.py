"""Convolution on NumPy: windows are unfolded into columns, one strided copy for each kernel element, and BLAS does the work.

Columns are [batch, groups, channels / groups · kernel size, positions], so that results need no transposition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from firebrick.backends.numpy.blas import matmul
from firebrick.ops.convolution import elements, padded_to, places_of, without
from firebrick.ops.declare import Array, size_of

_COLUMNS = 1 << 22  # bytes of the columns held at once, unless those of one image are more


def _columns(at: Any) -> Any:
    """The key of a kernel element's columns."""
    return (slice(None), slice(None), *at[1:])


def _unfold(x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The windows of x as columns."""
    n, c = x.shape[:2]
    positions = places_of(x.shape[2:], kernel, stride, padding, dilation)
    shape = (n, groups, (c // groups) * size_of(kernel), size_of(positions))
    if size_of(kernel) == 1 and size_of(stride) == 1 and not any(map(any, padding)):
        return x.reshape(shape)
    xp = padded_to(x, padding)
    cols = np.empty((n, c, *kernel, *positions), x.dtype)
    for at, part in elements(kernel, positions, stride, dilation):
        cols[_columns(at)] = xp[part]
    return cols.reshape(shape)


def _batches(count: int, each: int) -> Iterator[slice]:
    """Parts of ``count`` images whose columns, ``each`` bytes an image, are written and read while they are in the cache."""
    step = max(1, _COLUMNS // max(1, each))
    return (slice(start, start + step) for start in range(0, count, step))


def conv(x: Array, weight: Array, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """conv: weight [out, window] times columns [window, positions], for each image."""
    o, kernel = weight.shape[0], weight.shape[2:]
    positions = places_of(x.shape[2:], kernel, stride, padding, dilation)
    window = size_of(weight.shape[1:])
    w = weight.reshape(groups, o // groups, window)
    out = np.empty((x.shape[0], groups, o // groups, size_of(positions)), x.dtype)
    for part in _batches(x.shape[0], groups * window * size_of(positions) * x.itemsize):
        out[part] = matmul(w, _unfold(x[part], kernel, stride, padding, dilation, groups))
    return out.reshape(x.shape[0], o, *positions)


def conv_weight(x: Array, g: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The weight's gradient: cotangents [out, positions] times columns [positions, window], summed over images."""
    n, o = g.shape[:2]
    window = x.shape[1] // groups * size_of(kernel)
    rows = g.reshape(n, groups, o // groups, size_of(g.shape[2:]))
    out = np.zeros((groups, o // groups, window), x.dtype)
    for part in _batches(n, groups * window * rows.shape[3] * x.itemsize):
        cols = _unfold(x[part], kernel, stride, padding, dilation, groups)
        out += np.sum(matmul(rows[part], cols.transpose(0, 1, 3, 2)), axis=0, dtype=x.dtype)
    return out.reshape(o, x.shape[1] // groups, *kernel)


def conv_input(g: Array, weight: Array, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The image's gradient: weight [window, out] times cotangents [out, positions], folded back by addition."""
    n, o, positions = g.shape[0], g.shape[1], g.shape[2:]
    c, kernel = weight.shape[1], weight.shape[2:]
    w = weight.reshape(groups, o // groups, c * size_of(kernel)).transpose(0, 2, 1)
    rows = g.reshape(n, groups, o // groups, size_of(positions))
    out = np.zeros((n, groups * c, *(d + sum(p) for d, p in zip(size, padding, strict=True))), g.dtype)
    for part in _batches(n, groups * c * size_of(kernel) * rows.shape[3] * g.itemsize):
        folded = out[part]
        cols = matmul(w, rows[part]).reshape(len(folded), groups * c, *kernel, *positions)
        for at, inside in elements(kernel, positions, stride, dilation):
            folded[inside] += cols[_columns(at)]
    return without(out, padding, size)
