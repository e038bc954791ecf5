"""Programs over sequences, lists and graphs: counting, searching, sparse arrays, dynamic programming."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import firebrick as fb
from kernel_programs.program import Program

K = fb.kernel
Array = np.ndarray[Any, Any]


@K(grid="n")
def histogram(x: K.In[fb.uint8, "n"], bins: K.Constant[int], counts: K.Out[fb.int32, "bins", 0]):
    """How many bytes are in each of some bins of equal width."""
    i = K.index()
    K.atomic_add(counts, fb.int32(x[i]) * bins // 256, 1)


@K
def edit_distance(
    a: K.In[fb.int8, "n, p"], b: K.In[fb.int8, "n, q"], distance: K.Out[fb.int32, "n"], row: K.Out[fb.int32, "n, q + 1", 0]
):
    """Levenshtein's distance of pairs of words, by a row of the table at a time."""
    i = K.index()
    for t in range(row.shape[1]):
        row[i, t] = fb.int32(t)
    for s in range(a.shape[1]):
        diagonal = row[i, 0]
        row[i, 0] = fb.int32(s + 1)
        for t in range(b.shape[1]):
            above = row[i, t + 1]
            best = min(above + 1, row[i, t] + 1, diagonal + (0 if a[i, s] == b[i, t] else 1))
            row[i, t + 1] = best
            diagonal = above
    distance[i] = row[i, b.shape[1]]


def edit_distance_truth(a: Array, b: Array) -> tuple[Array, Array]:
    """The same by the whole table."""
    n, p, q = len(a), a.shape[1], b.shape[1]
    d = np.zeros((n, p + 1, q + 1), np.int32)
    d[:, :, 0], d[:, 0, :] = np.arange(p + 1), np.arange(q + 1)
    for s in range(1, p + 1):
        for t in range(1, q + 1):
            other = d[:, s - 1, t - 1] + (a[:, s - 1] != b[:, t - 1])
            d[:, s, t] = np.minimum(np.minimum(d[:, s - 1, t], d[:, s, t - 1]) + 1, other)
    return d[:, p, q], d[:, p]


@K(grid="k")
def bresenham(lines: K.In[fb.int32, "k, 4"], image: K.InOut[fb.int32, "n, n"]):
    """Draw lines from (x, y) to (x, y); each point counts how many cross it."""
    i = K.index()
    x, y, x1, y1 = lines[i, 0], lines[i, 1], lines[i, 2], lines[i, 3]
    dx, dy = abs(x1 - x), -abs(y1 - y)
    sx, sy = 1 if x < x1 else -1, 1 if y < y1 else -1
    error = dx + dy
    while True:
        K.atomic_add(image, (y, x), 1)
        if x == x1 and y == y1:
            break
        twice = 2 * error
        if twice >= dy:
            error += dy
            x += sx
        if twice <= dx:
            error += dx
            y += sy


def bresenham_truth(lines: Array, image: Array) -> Array:
    """The same in Python."""
    for x, y, x1, y1 in lines.tolist():
        dx, dy, sx, sy = abs(x1 - x), -abs(y1 - y), 1 if x < x1 else -1, 1 if y < y1 else -1
        error = dx + dy
        while True:
            image[y, x] += 1
            if (x, y) == (x1, y1):
                break
            twice = 2 * error
            error += (dy if twice >= dy else 0) + (dx if twice <= dx else 0)
            x, y = x + (sx if twice >= dy else 0), y + (sy if twice <= dx else 0)
    return image


@K(grid="n")
def k_means(
    points: K.In[fb.float32, "n, d"],
    centres: K.In[fb.float32, "k, d"],
    nearest: K.Out[fb.int32, "n"],
    counts: K.Out[fb.int64, "k", 0],
):
    """The nearest centre of each point, and how many points each centre has."""
    i = K.index()
    best, least = fb.int32(-1), fb.inf
    for c in range(centres.shape[0]):
        far = 0.0
        for j in range(points.shape[1]):
            far += (points[i, j] - centres[c, j]) ** 2
        if far < least:
            best, least = fb.int32(c), far
    nearest[i] = best
    K.atomic_add(counts, best, 1)


def k_means_truth(points: Array, centres: Array) -> tuple[Array, Array]:
    """The same by all distances; sums in float32, in the same order."""
    far = np.zeros((len(points), len(centres)), np.float32)
    for j in range(points.shape[1]):
        far += (points[:, None, j] - centres[None, :, j]) ** 2
    nearest = far.argmin(1).astype(np.int32)
    return nearest, np.bincount(nearest, minlength=len(centres))


@K
def sparse_product(
    starts: K.In[fb.int32, "rows"], columns: K.In[fb.int32, "stored"], values: K.In[fb.float64, "stored"],
    x: K.In["values", "n"], y: K.Out["values", "rows - 1"],
):  # fmt: skip
    """The product of a sparse matrix in CSR form and a vector."""
    row = K.index()
    total = fb.float64(0)
    for k in range(starts[row], starts[row + 1]):
        total += values[k] * x[columns[k]]
    y[row] = total


def _sparse(g: np.random.Generator, n: int) -> tuple[Array, ...]:
    dense = g.standard_normal((n, n + 3)) * (g.random((n, n + 3)) < 0.3)
    rows, columns = np.nonzero(dense)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int32)
    return starts, columns.astype(np.int32), dense[rows, columns], g.standard_normal(n + 3)


def sparse_product_truth(starts: Array, columns: Array, values: Array, x: Array) -> Array:
    """The same row by row."""
    return np.array([(values[a:b] * x[columns[a:b]]).sum() for a, b in pairwise(starts)])


@K
def floyd_warshall(d: K.In[fb.int32, "n, n"], k: int, out: K.Out[fb.int32, "n, n"]):
    """The step of all shortest paths that allows paths through node k."""
    i, j = K.index()
    a, b = d[i, k], d[k, j]
    way = d[i, j]
    if a >= 0 and b >= 0 and (way < 0 or a + b < way):
        way = a + b
    out[i, j] = way


def floyd_warshall_truth(d: Array, k: int) -> Array:
    """The same on the whole matrix; -1 is no path."""
    far = np.where(d < 0, 1 << 20, d)
    far = np.minimum(far, far[:, k : k + 1] + far[k : k + 1, :])
    return np.where(far >= 1 << 20, -1, far)


@K.function
def first_above(x, v):
    """The position of the first element of a sorted array that is above a number."""
    low, high = 0, len(x)
    while low < high:
        middle = (low + high) // 2
        if x[middle] > v:
            high = middle
        else:
            low = middle + 1
    return low


@K
def in_union(starts: K.In[fb.float64, "k"], ends: K.In[fb.float64, "k"], x: K.In[fb.float64, "n"], which: K.Out[fb.int64, "n"]):
    """Which of some disjoint sorted intervals each number is in; -1 for none."""
    i = K.index()
    at = first_above(starts, x[i]) - 1
    which[i] = at if at >= 0 and x[i] < ends[at] else -1


def in_union_truth(starts: Array, ends: Array, x: Array) -> Array:
    """The same by ``searchsorted``."""
    at = np.searchsorted(starts, x, side="right") - 1
    return np.where((at >= 0) & (x < np.append(ends, -np.inf)[at]), at, -1)


def _intervals(g: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    edges = np.sort(g.random(2 * (n // 2)))
    return edges[::2].copy(), edges[1::2].copy(), g.uniform(-0.2, 1.2, n)


@K
def quantised_dot(
    a: K.In[fb.int8, "n, k"], b: K.In[fb.int8, "k"], scale: float, out: K.Out[fb.float32, "n"], total: K.Out[fb.int32, "n"]
):
    """Products of int8 numbers, summed in int32, as floats."""
    i = K.index()
    s = fb.int32(0)
    for j in range(len(b)):
        s += fb.int32(a[i, j]) * fb.int32(b[j])
    total[i] = s
    out[i] = scale * fb.float32(s)


def quantised_dot_truth(a: Array, b: Array, scale: float) -> tuple[Array, Array]:
    """The same as a product of matrices."""
    s = a.astype(np.int32) @ b.astype(np.int32)
    return np.float64(np.float32(scale)) * s, s.astype(np.int32)


def _bytes(g: np.random.Generator, *shape: int) -> Array:
    return g.integers(-128, 128, shape, np.int8)


SEQUENCES = {
    "histogram": Program(
        histogram, lambda g, n: (g.integers(0, 256, n, np.uint8), 5),
        lambda x, bins: np.bincount(x.astype(int) * bins // 256, minlength=bins).astype(np.int32), (0, 1, 2, 7, 311),
    ),
    "edit_distance": Program(
        edit_distance, lambda g, n: (g.integers(0, 3, (n, 7), np.int8), g.integers(0, 3, (n, n), np.int8)), edit_distance_truth,
        (0, 1, 2, 7, 13),
    ),
    "bresenham": Program(
        bresenham, lambda g, n: (g.integers(0, n + 1, (n, 4), np.int32), np.zeros((n + 1, n + 1), np.int32)), bresenham_truth
    ),
    "k_means": Program(k_means, lambda g, n: (*(g.standard_normal((k, 3)).astype(np.float32) for k in (n, 5)),), k_means_truth),
    "sparse_product": Program(sparse_product, _sparse, sparse_product_truth, ulps=16, largest=True),
    "floyd_warshall": Program(
        floyd_warshall, lambda g, n: (g.integers(-1, 20, (n, n), np.int32), n // 2), floyd_warshall_truth, (1, 2, 7, 31)
    ),
    "in_union": Program(in_union, _intervals, in_union_truth),
    "quantised_dot": Program(quantised_dot, lambda g, n: (_bytes(g, n, 37), _bytes(g, 37), 0.01), quantised_dot_truth, ulps=1),
}  # fmt: skip
