"""Programs that read the neighbours of each element."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import numpy as np

import firebrick as fb
from kernel_programs.program import Program

K = fb.kernel
Array = np.ndarray[Any, Any]


def _f32(*shape: int, seed: np.random.Generator) -> Array:
    return seed.standard_normal(shape).astype(np.float32)


@K
def jacobi(u: K.In[fb.float32, "n, m"], out: K.Out[fb.float32, "n, m"]):
    """A step of Jacobi's method for Laplace's equation; the border keeps its values."""
    i, j = K.index()
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        out[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    else:
        out[i, j] = u[i, j]


def jacobi_truth(u: Array) -> Array:
    """The same by slices."""
    out = u.astype(np.float64)
    v = out.copy()
    out[1:-1, 1:-1] = 0.25 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:])
    return out


@K
def wave(
    u: K.In[fb.float64, "n, m"],
    before: K.In[fb.float64, "n, m"],
    after: K.Out[fb.float64, "n, m"],
    c: float,
    energy: K.Out[fb.float64, "n, m"],
):
    """A step of the wave equation in two dimensions on a torus, and the energy of each point."""
    i, j = K.index()
    n, m = u.shape
    here = u[i, j]
    laplacian = u[(i + 1) % n, j] + u[(i - 1) % n, j] + u[i, (j + 1) % m] + u[i, (j - 1) % m] - 4 * here
    after[i, j] = 2 * here - before[i, j] + c**2 * laplacian
    v = after_of(here, before[i, j])
    energy[i, j] = 0.5 * (v * v + c * c * here * here)


@K.function
def after_of(a, b):
    """The velocity between two times."""
    return a - b


def wave_truth(u: Array, before: Array, c: float) -> tuple[Array, Array]:
    """The same by rolls."""
    laplacian = sum(np.roll(u, d, a) for d in (1, -1) for a in (0, 1)) - 4 * u
    return 2 * u - before + c**2 * laplacian, 0.5 * ((u - before) ** 2 + c * c * u * u)


@K
def heat(u: K.In[fb.float32, "x, y, z"], k: float, out: K.Out[fb.float32, "x, y, z"]):
    """A step of the heat equation in three dimensions; the border is insulated."""
    i, j, k_ = K.index()
    here = u[i, j, k_]
    total = 0.0
    for axis in K.unrolled(3):
        for step in (-1, 1):
            a = i + step if axis == 0 else i
            b = j + step if axis == 1 else j
            c = k_ + step if axis == 2 else k_
            if 0 <= a < u.shape[0] and 0 <= b < u.shape[1] and 0 <= c < u.shape[2]:
                total += u[a, b, c] - here
    out[i, j, k_] = here + k * total


def heat_truth(u: Array, k: float) -> Array:
    """The same with a border of equal values."""
    v = u.astype(np.float64)
    out = v.copy()
    for axis in range(3):
        d = np.diff(v, axis=axis)
        lower = [slice(None)] * 3
        upper = [slice(None)] * 3
        lower[axis], upper[axis] = slice(None, -1), slice(1, None)
        out[tuple(lower)] += np.float32(k) * d
        out[tuple(upper)] -= np.float32(k) * d
    return out


@K
def life(cells: K.In[fb.bool, "n, m"], out: K.Out[fb.bool, "n, m"]):
    """A generation of Conway's game of life, dead outside."""
    i, j = K.index()
    n, m = cells.shape
    count = 0
    for a in range(max(i - 1, 0), min(i + 2, n)):
        for b in range(max(j - 1, 0), min(j + 2, m)):
            if (a != i or b != j) and cells[a, b]:
                count += 1
    out[i, j] = count == 3 or (cells[i, j] and count == 2)


def life_truth(cells: Array) -> Array:
    """The same by a padded sum."""
    n, m = cells.shape
    p = np.pad(cells.astype(int), 1)
    count = sum(p[a : a + n, b : b + m] for a in range(3) for b in range(3)) - cells
    return (count == 3) | (cells & (count == 2))


@K
def convolution(x: K.In[fb.float32, "n"], w: K.In[fb.float32, "k"], out: K.Out[fb.float32, "n"]):
    """A convolution with zeros outside, whose result has the size of the signal."""
    i = K.index()
    total = 0.0
    for t in range(len(w)):
        at = i + w.size // 2 - t
        if at < 0:
            break
        if at >= x.size:
            continue
        total += w[t] * x[at]
    out[i] = total


def convolution_truth(x: Array, w: Array) -> Array:
    """The same by NumPy's."""
    if not x.size:
        return np.zeros(0)
    full = np.convolve(x.astype(np.float64), w.astype(np.float64))
    return full[len(w) // 2 : len(w) // 2 + len(x)]


@K
def bilateral(image: K.In[fb.float32, "n, m"], out: K.Out["image", "n, m"], radius: K.Constant[int], space: float, tone: float):
    """A bilateral filter: a mean of the neighbours, weighted by distance and by difference."""
    i, j = K.index()
    here, total, weight = image[i, j], 0.0, 0.0
    for a in range(-radius, radius + 1):
        for b in range(-radius, radius + 1):
            y, x = min(max(i + a, 0), image.shape[0] - 1), min(max(j + b, 0), image.shape[1] - 1)
            other = image[y, x]
            w = fb.exp(-(fb.float32(a * a + b * b)) / (2 * space**2) - (other - here) ** 2 / (2 * tone**2))
            total += w * other
            weight += w
    out[i, j] = total / weight


def bilateral_truth(image: Array, radius: int, space: float, tone: float) -> Array:
    """The same by shifted images."""
    if not image.size:
        return np.zeros(image.shape)
    n, m = image.shape
    v = image.astype(np.float64)
    p = np.pad(v, radius, mode="edge")
    total, weight = np.zeros_like(v), np.zeros_like(v)
    for a in range(2 * radius + 1):
        for b in range(2 * radius + 1):
            other = p[a : a + n, b : b + m]
            far = (a - radius) ** 2 + (b - radius) ** 2
            w = np.exp(-far / (2 * space**2) - (other - v) ** 2 / (2 * tone**2))
            total, weight = total + w * other, weight + w
    return total / weight


STENCILS = {
    "jacobi": Program(jacobi, lambda g, n: (_f32(n, max(n, 3), seed=g),), jacobi_truth, ulps=2, largest=True),
    "wave": Program(
        wave, lambda g, n: (g.standard_normal((n, 5)), g.standard_normal((n, 5)), 0.3), wave_truth, ulps=4, largest=True
    ),
    "heat": Program(heat, lambda g, n: (_f32(n, 3, max(n, 1), seed=g), 0.1), heat_truth, (0, 1, 2, 7), ulps=4, largest=True),
    "life": Program(life, lambda g, n: (g.random((n, n)) < 0.4,), life_truth),
    "convolution": Program(
        convolution, lambda g, n: (_f32(n, seed=g), _f32(5, seed=g)), convolution_truth, ulps=4, largest=True
    ),
    "bilateral": Program(
        bilateral, lambda g, n: (_f32(n, max(n, 2), seed=g), 2, 1.5, 0.5), bilateral_truth, (0, 1, 2, 11), ulps=16, largest=True
    ),
}  # fmt: skip
