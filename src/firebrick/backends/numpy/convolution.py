"""Convolution on NumPy by unfolding windows into rows and multiplying matrices (BLAS does the work)."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.ops.convolution import _out_hw
from firebrick.ops.declare import Array


def _unfold(x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """Columns [groups, batch · oh · ow, channels / groups · kh · kw] of the windows of x."""
    n, c = x.shape[:2]
    oh, ow = _out_hw(x.shape[2:], kernel, stride, padding, dilation)
    xp = np.pad(x, ((0, 0), (0, 0), *padding)) if any(map(any, padding)) else x
    s = xp.strides
    view = np.lib.stride_tricks.as_strided(
        xp,
        (groups, n, oh, ow, c // groups, *kernel),
        (
            s[1] * (c // groups),
            s[0],
            s[2] * stride[0],
            s[3] * stride[1],
            s[1],
            s[2] * dilation[0],
            s[3] * dilation[1],
        ),
        writeable=False,
    )
    return view.reshape(groups, n * oh * ow, (c // groups) * kernel[0] * kernel[1])


def conv2d(x: Array, weight: Array, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """conv2d as one matrix product a group."""
    n, o = x.shape[0], weight.shape[0]
    oh, ow = _out_hw(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    if not n:
        return np.zeros((n, o, oh, ow), x.dtype)
    cols = _unfold(x, weight.shape[2:], stride, padding, dilation, groups)
    w = weight.reshape(groups, o // groups, -1)
    y = np.matmul(cols, w.transpose(0, 2, 1)).reshape(groups, n, oh, ow, o // groups)
    return np.ascontiguousarray(y.transpose(1, 0, 4, 2, 3)).reshape(n, o, oh, ow)


def _rows_of(g: Array, groups: int) -> Array:
    """A cotangent of the result as [groups, batch · oh · ow, out / groups]."""
    n, o, oh, ow = g.shape
    return g.reshape(n, groups, o // groups, oh, ow).transpose(1, 0, 3, 4, 2).reshape(groups, n * oh * ow, o // groups)


def conv2d_weight(x: Array, g: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The weight's gradient as one matrix product a group."""
    o = g.shape[1]
    shape = (o, x.shape[1] // groups, *kernel)
    if not x.shape[0]:
        return np.zeros(shape, x.dtype)
    cols = _unfold(x, kernel, stride, padding, dilation, groups)
    return np.ascontiguousarray(np.matmul(_rows_of(g, groups).transpose(0, 2, 1), cols).reshape(shape))


def conv2d_input(g: Array, weight: Array, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The image's gradient: one matrix product a group, its columns folded back by addition."""
    n, o, oh, ow = g.shape
    c = weight.shape[1]
    kh, kw = weight.shape[2:]
    (top, bottom), (left, right) = padding
    out = np.zeros((groups, n, size[0] + top + bottom, size[1] + left + right, c), g.dtype)
    if n:
        w = weight.reshape(groups, o // groups, c, kh * kw).transpose(0, 1, 3, 2).reshape(groups, o // groups, -1)
        cols = np.matmul(_rows_of(g, groups), w).reshape(groups, n, oh, ow, kh, kw, c)
        for i in range(kh):
            for j in range(kw):
                a, b = i * dilation[0], j * dilation[1]
                out[
                    :,
                    :,
                    a : a + stride[0] * (oh - 1) + 1 : stride[0],
                    b : b + stride[1] * (ow - 1) + 1 : stride[1],
                ] += cols[:, :, :, :, i, j]
    inner = out[:, :, top : top + size[0], left : left + size[1]]
    return np.ascontiguousarray(inner.transpose(1, 0, 4, 2, 3)).reshape(n, groups * c, *size)
