"""Convolution on NumPy: windows are unfolded into columns, one strided copy for each kernel element, and BLAS does the work.

Columns are [batch, groups, channels / groups · kernel size, places], so that results need no transposition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.backends.numpy.blas import matmul
from firebrick.ops.convolution import elements, padded_to, places_of, without
from firebrick.ops.declare import Array, size_of


def _columns(at: Any) -> Any:
    """The key of a kernel element's columns."""
    return (slice(None), slice(None), *at[1:])


def _unfold(x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The windows of x as columns."""
    n, c = x.shape[:2]
    places = places_of(x.shape[2:], kernel, stride, padding, dilation)
    shape = (n, groups, (c // groups) * size_of(kernel), size_of(places))
    if size_of(kernel) == 1 and size_of(stride) == 1 and not any(map(any, padding)):
        return x.reshape(shape)
    xp = padded_to(x, padding)
    cols = np.empty((n, c, *kernel, *places), x.dtype)
    for at, part in elements(kernel, places, stride, dilation):
        cols[_columns(at)] = xp[part]
    return cols.reshape(shape)


def conv(x: Array, weight: Array, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """conv: weight [out, window] times columns [window, places], for each image."""
    o, kernel = weight.shape[0], weight.shape[2:]
    cols = _unfold(x, kernel, stride, padding, dilation, groups)
    places = places_of(x.shape[2:], kernel, stride, padding, dilation)
    window = size_of(weight.shape[1:])
    return matmul(weight.reshape(groups, o // groups, window), cols).reshape(x.shape[0], o, *places)


def conv_weight(x: Array, g: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The weight's gradient: cotangents [out, places] times columns [places, window], summed over images."""
    n, o = g.shape[:2]
    cols = _unfold(x, kernel, stride, padding, dilation, groups)
    rows = g.reshape(n, groups, o // groups, size_of(g.shape[2:]))
    each = matmul(rows, cols.transpose(0, 1, 3, 2))
    return np.asarray(np.sum(each, axis=0, dtype=x.dtype)).reshape(o, x.shape[1] // groups, *kernel)


def conv_input(g: Array, weight: Array, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The image's gradient: weight [window, out] times cotangents [out, places], folded back by addition."""
    n, o, places = g.shape[0], g.shape[1], g.shape[2:]
    c, kernel = weight.shape[1], weight.shape[2:]
    w = weight.reshape(groups, o // groups, c * size_of(kernel)).transpose(0, 2, 1)
    flat = matmul(w, g.reshape(n, groups, o // groups, size_of(places)))
    cols = flat.reshape(n, groups * c, *kernel, *places)
    out = np.zeros((n, groups * c, *(d + sum(p) for d, p in zip(size, padding, strict=True))), g.dtype)
    for at, part in elements(kernel, places, stride, dilation):
        out[part] += cols[_columns(at)]
    return without(out, padding, size)
