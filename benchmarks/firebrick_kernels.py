"""The workloads of ``benchmarks.kernels`` as ``fb.kernel``s."""

from __future__ import annotations

from typing import Any

import firebrick as fb

K = fb.kernel
F = fb.float32


@K
def mandelbrot(n: int, limit: int, out: K.Out[fb.int32, "n, n"]):
    """Steps until z² + c is further than 2 from 0."""
    i, j = K.index()
    x0 = F(j) * (3 / F(n)) - 2
    y0 = F(i) * (3 / F(n)) - 1.5
    x = y = F(0)
    steps = fb.int32(0)
    most = fb.int32(limit)
    while steps < most and x * x + y * y <= 4:
        x, y = x * x - y * y + x0, 2 * x * y + y0
        steps += 1
    out[i, j] = steps


@K
def n_body(
    x: K.In[F, "n"], y: K.In[F, "n"], z: K.In[F, "n"], mass: K.In[F, "n"], softening: float, fx: K.Out[F, "n"],
    fy: K.Out[F, "n"], fz: K.Out[F, "n"],
):  # fmt: skip
    """Accelerations by gravitation."""
    i = K.index()
    xi, yi, zi = x[i], y[i], z[i]
    ax = ay = az = F(0)
    for j in range(x.shape[0]):
        dx, dy, dz = x[j] - xi, y[j] - yi, z[j] - zi
        square = dx * dx + dy * dy + dz * dz + softening
        w = mass[j] / (square * fb.sqrt(square))
        ax, ay, az = ax + w * dx, ay + w * dy, az + w * dz
    fx[i] = ax
    fy[i] = ay
    fz[i] = az


@K
def monte_carlo(key: K.In[fb.uint32, "4"], n: int, draws: int, inside: K.Out[fb.int64, "n"]):
    """Points of a square in its inscribed quarter circle."""
    i = K.index()
    hits = fb.int64(0)
    for t in range(draws):
        x = K.random_uniform(key, (i * draws + t) * 2)
        y = K.random_uniform(key, (i * draws + t) * 2 + 1)
        if x * x + y * y < 1:
            hits += 1
    inside[i] = hits


@K
def stencil(u: K.In[F, "n, m"], out: K.Out[F, "n, m"]):
    """A Jacobi step; the border keeps its values."""
    i, j = K.index()
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        out[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    else:
        out[i, j] = u[i, j]


@K
def sparse(
    starts: K.In[fb.int32, "rows"], columns: K.In[fb.int32, "stored"], values: K.In[F, "stored"], x: K.In[F, "n"],
    out: K.Out[F, "rows - 1"],
):  # fmt: skip
    """A CSR matrix by a vector."""
    row = K.index()
    total = F(0)
    for k in range(starts[row], starts[row + 1]):
        total += values[k] * x[columns[k]]
    out[row] = total


KEY = fb.random.Generator(0).key(device="cpu")


def _host(result: Any) -> Any:
    """What a call gives, as a NumPy array of the first result; waits for it."""
    return (result[0] if isinstance(result, tuple) else result).numpy()


CALLS = {
    "mandelbrot": lambda n, limit: _host(mandelbrot(n, limit, device="cpu")),
    "n_body": lambda *given: _host(n_body(*given)),
    "monte_carlo": lambda n, draws: _host(monte_carlo(KEY, n, draws)),
    "stencil": lambda u: _host(stencil(u)),
    "sparse": lambda *given: _host(sparse(*given)),
}
