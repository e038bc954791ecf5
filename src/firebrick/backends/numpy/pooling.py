"""Max pooling on NumPy: one pass over the kernel's elements, each a strided slice of the images. Averages need no more
than the table's reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.ops.convolution import elements, padded_to, places_of
from firebrick.ops.declare import Array
from firebrick.ops.pooling import image_places


def max_pool(x: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Array, Array]:
    """The largest value of each window and its position; of equal ones the first, and the first NaN before all."""
    if not any(map(any, padding)):
        return _unpadded(x, kernel, stride, dilation)
    xp = padded_to(x, padding, -np.inf)
    shape = (*x.shape[:2], *places_of(x.shape[2:], kernel, stride, padding, dilation))
    best = np.full(shape, -np.inf, x.dtype)
    position = np.full(shape, -1, np.int64)
    for part, inside, where in image_places(x.shape[2:], kernel, stride, padding, dilation):
        each = xp[part]
        # later elements win only by being larger (or the first NaN), so the first maximum stays
        wins = ((each > best) | (position < 0) | (np.isnan(each) & ~np.isnan(best))) & inside
        np.copyto(best, each, where=wins)
        np.copyto(position, where, where=wins)
    return best, position


def _unpadded(x: Array, kernel: Any, stride: Any, dilation: Any) -> tuple[Array, Array]:
    image = x.shape[2:]
    positions = places_of(image, kernel, stride, ((0, 0),) * len(image), dilation)
    steps = [int(np.prod(image[i + 1 :], dtype=np.int64)) for i in range(len(image))]
    (_, first), *others = elements(kernel, positions, stride, dilation)
    best = np.array(x[first])
    which = np.zeros(best.shape, np.int64)  # position of the best element relative to the window's first
    for at, part in others:
        each = x[part]
        offset = sum(i * d * n for i, d, n in zip(at[1:], dilation, steps, strict=True))
        # larger, or the first NaN: an equal element that comes later never wins
        np.copyto(which, offset, where=~(each <= best) & (best == best))
        np.maximum(best, each, out=best)
    for i, n in enumerate(positions):
        line = np.arange(n) * (stride[i] * steps[i])
        which += line.reshape([-1 if j == i else 1 for j in range(len(image))])
    return best, which
