"""Convolution on NumPy: windows are unfolded into columns, one strided copy for each kernel element, and BLAS does the work.

Columns are [batch, groups, channels / groups · kh · kw, out height · out width], so that results need no transposition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.backends.numpy.blas import matmul
from firebrick.ops.convolution import _out_hw, _windows
from firebrick.ops.declare import Array


def _unfold(x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The windows of x as columns."""
    n, c = x.shape[:2]
    hw = _out_hw(x.shape[2:], kernel, stride, padding, dilation)
    if kernel[0] == kernel[1] == 1 and stride == (1, 1) and not any(map(any, padding)):
        return x.reshape(n, groups, c // groups, hw[0] * hw[1])
    xp = np.pad(x, ((0, 0), (0, 0), *padding)) if any(map(any, padding)) else x
    cols = np.empty((n, c, *kernel, *hw), x.dtype)
    for i, j, at in _windows(kernel, hw, stride, dilation):
        cols[:, :, i, j] = xp[at]
    return cols.reshape(n, groups, (c // groups) * kernel[0] * kernel[1], hw[0] * hw[1])


def conv2d(x: Array, weight: Array, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """conv2d: weight [out, window] times columns [window, places], for each image."""
    n, o = x.shape[0], weight.shape[0]
    hw = _out_hw(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    cols = _unfold(x, weight.shape[2:], stride, padding, dilation, groups)
    return matmul(weight.reshape(groups, o // groups, -1), cols).reshape(n, o, *hw)


def conv2d_weight(x: Array, g: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The weight's gradient: cotangents [out, places] times columns [places, window], summed over images."""
    n, o = g.shape[:2]
    cols = _unfold(x, kernel, stride, padding, dilation, groups)
    gg = g.reshape(n, groups, o // groups, g.shape[2] * g.shape[3])
    each = matmul(gg, cols.transpose(0, 1, 3, 2))
    return np.asarray(np.sum(each, axis=0, dtype=x.dtype)).reshape(o, x.shape[1] // groups, *kernel)


def conv2d_input(g: Array, weight: Array, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The image's gradient: weight [window, out] times cotangents [out, places], folded back by addition."""
    n, o, oh, ow = g.shape
    c = weight.shape[1]
    kernel = weight.shape[2:]
    w = weight.reshape(groups, o // groups, c * kernel[0] * kernel[1]).transpose(0, 2, 1)
    cols = matmul(w, g.reshape(n, groups, o // groups, oh * ow)).reshape(n, groups * c, *kernel, oh, ow)
    (top, bottom), (left, right) = padding
    out = np.zeros((n, groups * c, size[0] + top + bottom, size[1] + left + right), g.dtype)
    for i, j, at in _windows(kernel, (oh, ow), stride, dilation):
        out[at] += cols[:, :, i, j]
    return np.ascontiguousarray(out[:, :, top : top + size[0], left : left + size[1]])
