"""Programs over small dense arrays and bodies: elimination, forces, products in registers."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import numpy as np

import firebrick as fb
from kernel_programs.program import Program

K = fb.kernel
Array = np.ndarray[Any, Any]


@K
def lu(a: K.In[fb.float64, "b, 4, 4"], out: K.Out[fb.float64, "b, 4, 4"], grid_of: K.Out[fb.float64, "b"]):
    """LU factors of 4 × 4 matrices without pivots, in registers, and the determinants."""
    b = K.index(0)
    if K.index(1) == 0 and K.index(2) == 0:
        r = K.registers(fb.float64(0), (4, 4))
        for i in K.unrolled(4):
            for j in K.unrolled(4):
                r[i, j] = a[b, i, j]
        for k in K.unrolled(4):
            for i in K.unrolled(k + 1, 4):
                r[i, k] = r[i, k] / r[k, k]
                for j in K.unrolled(k + 1, 4):
                    r[i, j] -= r[i, k] * r[k, j]
        determinant = fb.float64(1)
        for i in K.unrolled(4):
            determinant *= r[i, i]
            for j in K.unrolled(4):
                out[b, i, j] = r[i, j]
        grid_of[b] = determinant


def lu_truth(a: Array) -> tuple[Array, Array]:
    """The same on all matrices at once."""
    out = a.copy()
    for k in range(4):
        for i in range(k + 1, 4):
            out[:, i, k] /= out[:, k, k]
            out[:, i, k + 1 :] -= out[:, i, k, None] * out[:, k, k + 1 :]
    return out, np.prod([out[:, i, i] for i in range(4)], 0)


@K(grid="n")
def n_body(at: K.In[fb.float64, "n, 3"], mass: K.In[fb.float64, "n"], softening: float, force: K.Out[fb.float64, "n, 3"]):
    """The acceleration of each body by the gravitation of the others."""
    i = K.index()
    x, y, z = at[i, 0], at[i, 1], at[i, 2]
    fx = fy = fz = fb.float64(0)
    for j in range(mass.size):
        dx, dy, dz = at[j, 0] - x, at[j, 1] - y, at[j, 2] - z
        square = dx * dx + dy * dy + dz * dz + softening
        w = mass[j] / (square * fb.sqrt(square))
        fx, fy, fz = fx + w * dx, fy + w * dy, fz + w * dz
    force[i, 0], force[i, 1], force[i, 2] = fx, fy, fz


def n_body_truth(at: Array, mass: Array, softening: float) -> Array:
    """The same by all pairs."""
    d = at[None] - at[:, None]
    square = (d * d).sum(-1) + softening
    return (d * (mass / square**1.5)[..., None]).sum(1)


@K(group=64, grid="(n + 7) // 8, (m + 7) // 8")
def tiled_product(a: K.In[fb.float32, "n, k"], b: K.In[fb.float32, "k, m"], c: K.Out[fb.float32, "n, m"]):
    """A product of matrices by tiles of 8 × 8 in shared memory."""
    left, right = K.shared(fb.float32, (8, 8)), K.shared(fb.float32, (8, 8))
    lane = K.lane()
    i, j = lane // 8, lane % 8
    row, column = K.group(0) * 8 + i, K.group(1) * 8 + j
    total = 0.0
    for first in range(0, a.shape[1], 8):
        left[i, j] = a[row, first + j] if row < a.shape[0] and first + j < a.shape[1] else 0.0
        right[i, j] = b[first + i, column] if first + i < b.shape[0] and column < b.shape[1] else 0.0
        K.barrier()
        for k in K.unrolled(8):
            total += left[i, k] * right[k, j]
        K.barrier()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


MATRICES = {
    "lu": Program(lu, lambda g, n: (g.standard_normal((n, 4, 4)) + 4 * np.eye(4),), lu_truth, ulps=32, largest=True),
    "n_body": Program(
        n_body, lambda g, n: (g.standard_normal((n, 3)), g.random(n), 0.01), n_body_truth, ulps=64, largest=True
    ),
    "tiled_product": Program(
        tiled_product, lambda g, n: (*(g.standard_normal(s).astype(np.float32) for s in ((n, 11), (11, n + 2))),),
        lambda a, b: a.astype(np.float64) @ b.astype(np.float64), (0, 1, 7, 8, 17), ulps=16, largest=True,
    ),
}  # fmt: skip
