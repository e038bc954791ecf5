"""The workloads of ``benchmarks.kernels`` as parallel loops of numba, in the same dtype, without ``fastmath``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

Array = np.ndarray[Any, Any]
F = np.float32


@njit(parallel=True)
def mandelbrot(n: int, limit: int) -> Array:
    """Steps until z² + c is further than 2 from 0."""
    out = np.empty((n, n), np.int32)
    scale = F(3) / F(n)
    for i in prange(n):
        y0 = F(i) * scale - F(1.5)
        for j in range(n):
            x0 = F(j) * scale - F(2)
            x = y = F(0)
            steps = 0
            while steps < limit and x * x + y * y <= F(4):
                x, y = x * x - y * y + x0, F(2) * x * y + y0
                steps += 1
            out[i, j] = steps
    return out


@njit(parallel=True)
def n_body(x: Array, y: Array, z: Array, mass: Array, softening: float) -> Array:
    """Accelerations by gravitation."""
    n = len(x)
    fx, fy, fz = np.empty(n, F), np.empty(n, F), np.empty(n, F)
    soft = F(softening)
    for i in prange(n):
        ax = ay = az = F(0)
        for j in range(n):
            dx, dy, dz = x[j] - x[i], y[j] - y[i], z[j] - z[i]
            square = dx * dx + dy * dy + dz * dz + soft
            w = mass[j] / (square * np.sqrt(square))
            ax += w * dx
            ay += w * dy
            az += w * dz
        fx[i], fy[i], fz[i] = ax, ay, az
    return fx


@njit(parallel=True)
def monte_carlo(n: int, draws: int) -> Array:
    """Points of a square in its inscribed quarter circle, by numba's own random numbers."""
    out = np.empty(n, np.int64)
    for i in prange(n):
        hits = 0
        for _ in range(draws):
            x, y = F(np.random.random()), F(np.random.random())
            if x * x + y * y < F(1):
                hits += 1
        out[i] = hits
    return out


@njit(parallel=True)
def stencil(u: Array) -> Array:
    """A Jacobi step; the border keeps its values."""
    n, m = u.shape
    out = np.empty((n, m), F)
    for i in prange(n):
        if 0 < i < n - 1:
            out[i, 0], out[i, m - 1] = u[i, 0], u[i, m - 1]
            for j in range(1, m - 1):
                out[i, j] = F(0.25) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
        else:
            for j in range(m):
                out[i, j] = u[i, j]
    return out


@njit(parallel=True)
def sparse(starts: Array, columns: Array, values: Array, x: Array) -> Array:
    """A CSR matrix by a vector."""
    rows = len(starts) - 1
    out = np.empty(rows, F)
    for row in prange(rows):
        total = F(0)
        for k in range(starts[row], starts[row + 1]):
            total += values[k] * x[columns[k]]
        out[row] = total
    return out


CALLS = {"mandelbrot": mandelbrot, "n_body": n_body, "monte_carlo": monte_carlo, "stencil": stencil, "sparse": sparse}
