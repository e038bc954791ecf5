"""Programs of groups: shared arrays, barriers and shuffles."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import numpy as np

import firebrick as fb
from kernel_programs.program import Program

K = fb.kernel
Array = np.ndarray[Any, Any]


@K(grid="(n + 63) // 64", group=64)
def prefix_sum(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    """Running sums of each 64 elements, by doubling distances."""
    lane, i = K.lane(), K.index()
    s = K.shared(fb.int64, 64)
    s[lane] = x[i] if i < x.size else 0
    K.barrier()
    d = 1
    while d < 64:
        add = s[lane - d] if lane >= d else 0
        K.barrier()
        s[lane] += add
        K.barrier()
        d *= 2
    if i < out.size:
        out[i] = s[lane]


def prefix_sum_truth(x: Array) -> Array:
    """The same by slices."""
    return np.concatenate([np.cumsum(x[k : k + 64]) for k in range(0, len(x), 64)] or [x])


@K(grid="rows", group="width")
def bitonic_sort(x: K.In[fb.float32, "rows, n"], width: K.Constant[int], out: K.Out["x", "rows, n"]):
    """Rows of at most ``width`` elements, sorted."""
    row, lane, n = K.group(), K.lane(), x.shape[1]
    s = K.shared(fb.float32, width)
    s[lane] = x[row, lane] if lane < n else fb.inf
    K.barrier()
    size = 2
    while size <= width:
        stride = size // 2
        while stride > 0:
            other = lane ^ stride
            a, b = s[lane], s[other]
            K.barrier()
            lower = (lane & size == 0) == (lane < other)
            s[lane] = min(a, b) if lower else max(a, b)
            K.barrier()
            stride //= 2
        size *= 2
    if lane < n:
        out[row, lane] = s[lane]


@K(grid="rows", group=32)
def softmax(x: K.In[fb.float32, "rows, n"], out: K.Out["x", "rows, n"]):
    """Softmax of each row: a group's items reduce parts of it, and each other's results."""
    row, lane, n = K.group(), K.lane(), x.shape[1]
    parts = K.shared(fb.float32, 32)
    most = -fb.inf
    for j in range(lane, n, 32):
        most = max(most, x[row, j])
    parts[lane] = most
    K.barrier()
    for k in K.unrolled(5):
        if lane < 16 >> k:
            parts[lane] = max(parts[lane], parts[lane + (16 >> k)])
        K.barrier()
    most = parts[0]
    K.barrier()
    total = 0.0
    for j in range(lane, n, 32):
        total += fb.exp(x[row, j] - most)
    parts[lane] = total
    K.barrier()
    for k in K.unrolled(5):
        if lane < 16 >> k:
            parts[lane] += parts[lane + (16 >> k)]
        K.barrier()
    for j in range(lane, n, 32):
        out[row, j] = fb.exp(x[row, j] - most) / parts[0]


def softmax_truth(x: Array) -> Array:
    """The same in float64."""
    v = np.exp(x.astype(np.float64) - x.max(1, keepdims=True, initial=-np.inf))
    return v / v.sum(1, keepdims=True)


@K(grid="n", group=16)
def row_sums(x: K.In[fb.int32, "n, m"], out: K.Out[fb.int32, "n"]):
    """Sums of rows; the items exchange their values directly."""
    row, lane = K.group(), K.lane()
    total = fb.int32(0)
    for j in range(lane, x.shape[1], 16):
        total += x[row, j]
    for k in K.unrolled(4):
        total += K.shuffle(total, lane ^ (8 >> k), 16)
    if lane == 0:
        out[row] = total


@K(grid="(n + 31) // 32", group=32)
def block_histogram(x: K.In[fb.int32, "n"], counts: K.Out[fb.int32, "8", 0]):
    """Counts of the numbers modulo 8: each group counts in shared memory, and adds its counts."""
    i, lane = K.index(), K.lane()
    own = K.shared(fb.int32, 8)
    if lane < 8:
        own[lane] = 0
    K.barrier()
    if i < x.size:
        K.atomic_add(own, x[i] & 7, 1)
    K.barrier()
    if lane < 8 and own[lane] != 0:
        K.atomic_add(counts, lane, own[lane])


GROUPS = {
    "prefix_sum": Program(prefix_sum, lambda g, n: (g.integers(-99, 99, n),), prefix_sum_truth, (0, 1, 63, 64, 131)),
    "bitonic_sort": Program(
        bitonic_sort, lambda g, n: (g.standard_normal((3, n)).astype(np.float32), 32), lambda x, width: np.sort(x, 1),
        (0, 1, 2, 7, 32),
    ),
    "softmax": Program(
        softmax, lambda g, n: (g.standard_normal((n, n + 1)).astype(np.float32),), softmax_truth, (0, 1, 7, 32, 37), ulps=8
    ),
    "row_sums": Program(
        row_sums, lambda g, n: (g.integers(-99, 99, (n, 2 * n), np.int32),), lambda x: x.sum(1).astype(np.int32), (0, 1, 8, 13)
    ),
    "block_histogram": Program(
        block_histogram, lambda g, n: (g.integers(-99, 99, n, np.int32),),
        lambda x: np.bincount(x & 7, minlength=8).astype(np.int32), (0, 1, 31, 32, 97),
    ),
}  # fmt: skip
