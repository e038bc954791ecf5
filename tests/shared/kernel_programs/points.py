"""Programs whose items do not depend on each other: iterations of numbers, random numbers, formulas."""
# ruff: noqa: F821, UP037

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

import firebrick as fb
from firebrick.ops.table import OPS
from kernel_programs.program import Program

K = fb.kernel
Array = np.ndarray[Any, Any]


@K
def mandelbrot(re: K.In[fb.float64, "n"], im: K.In[fb.float64, "m"], limit: int, out: K.Out[fb.int32, "m, n"]):
    """After how many steps z² + c is further than 2 from 0."""
    j, i = K.index()
    x, y = re[i], im[j]
    a, b, steps = x, y, 0
    while a * a + b * b <= 4 and steps < limit:
        a, b = a * a - b * b + x, 2 * a * b + y
        steps += 1
    out[j, i] = fb.int32(steps)


def mandelbrot_truth(re: Array, im: Array, limit: int) -> Array:
    """The same on all points at once."""
    x, y = np.broadcast_arrays(re, im[:, None])
    a, b, steps = x.copy(), y.copy(), np.zeros(x.shape, np.int32)
    for _ in range(limit):
        go = a * a + b * b <= 4
        steps += go
        a, b = np.where(go, a * a - b * b + x, a), np.where(go, 2 * a * b + y, b)
    return steps


@K
def collatz(start: K.In[fb.uint64, "n"], steps: K.Out[fb.int32, "n"], peak: K.Out[fb.uint64, "n"]):
    """Length and largest number of Collatz's sequence."""
    i = K.index()
    x, count = start[i], fb.int32(0)
    most = x
    while x > 1:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        most = max(most, x)
        count += 1
    steps[i], peak[i] = count, most


def collatz_truth(start: Array) -> tuple[Array, Array]:
    """The same in Python's integers."""
    lengths, peaks = [], []
    for x in start.tolist():
        count, most = 0, x
        while x > 1:
            x = x // 2 if x % 2 == 0 else 3 * x + 1
            count, most = count + 1, max(most, x)
        lengths.append(count)
        peaks.append(most)
    return np.array(lengths, np.int32), np.array(peaks, np.uint64)


@K.function
def normal_below(x):
    """The probability that a normal number is below x."""
    return 0.5 * (1 + fb.erf(x * 0.7071067811865476))


@K
def black_scholes(
    price: K.In[fb.float64, "n"], strike: K.In[fb.float64, "n"], years: K.In[fb.float64, "n"], rate: float, volatility: float,
    call: K.Out["price", "n"], put: K.Out["price", "n"],
):  # fmt: skip
    """Prices of European options."""
    i = K.index()
    s, k, t = price[i], strike[i], years[i]
    spread = volatility * math.sqrt(t)
    d1 = (math.log(s / k) + (rate + 0.5 * volatility**2) * t) / spread
    d2 = d1 - spread
    discounted = k * math.exp(-rate * t)
    value = s * normal_below(d1) - discounted * normal_below(d2)
    call[i] = value
    put[i] = value - s + discounted


def black_scholes_truth(price: Array, strike: Array, years: Array, rate: float, volatility: float) -> tuple[Array, Array]:
    """The same in NumPy, with ``math.erf``."""
    below = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))), otypes=[float])
    spread = volatility * np.sqrt(years)
    d1 = (np.log(price / strike) + (rate + 0.5 * volatility**2) * years) / spread
    discounted = strike * np.exp(-rate * years)
    value = price * below(d1) - discounted * below(d1 - spread)
    return value, value - price + discounted


@K.function
def corner(x, y, table):
    """The gradient at a corner of a lattice: (1, 1), (-1, 1), (1, -1) or (-1, -1), by a table of permutations."""
    h = table[(table[x & 255] + y) & 255]
    return 1.0 if h & 1 == 0 else -1.0, 1.0 if h & 2 == 0 else -1.0


@K.function
def fade(t):
    """Perlin's curve, whose first and second derivatives are 0 at 0 and 1."""
    return t * t * t * (t * (t * 6 - 15) + 10)


@K
def noise(table: K.In[fb.int32, "256"], n: int, out: K.Out[fb.float64, "n, n"]):
    """Perlin's gradient noise on an image."""
    i, j = K.index()
    y, x = fb.float64(i) * 0.37, fb.float64(j) * 0.37
    y0, x0 = fb.int32(fb.floor(y)), fb.int32(fb.floor(x))
    total = fb.float64(0)
    for a in (0, 1):
        for b in (0, 1):
            gx, gy = corner(x0 + b, y0 + a, table)
            dx, dy = x - fb.float64(x0 + b), y - fb.float64(y0 + a)
            wx = fade(x - fb.float64(x0)) if b == 1 else 1 - fade(x - fb.float64(x0))
            wy = fade(y - fb.float64(y0)) if a == 1 else 1 - fade(y - fb.float64(y0))
            total += wx * wy * (gx * dx + gy * dy)
    out[i, j] = total


def noise_truth(table: Array, n: int) -> Array:
    """The same on all points at once."""
    y, x = np.meshgrid(np.arange(n) * 0.37, np.arange(n) * 0.37, indexing="ij")
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    total = np.zeros((n, n))
    for a in (0, 1):
        for b in (0, 1):
            h = table[(table[(x0 + b) & 255] + y0 + a) & 255]
            gx, gy = np.where(h & 1, -1.0, 1.0), np.where(h & 2, -1.0, 1.0)
            weights = []
            for t, one in ((x - x0, b), (y - y0, a)):
                curve = t**3 * (t * (t * 6 - 15) + 10)
                weights.append(curve if one else 1 - curve)
            total += weights[0] * weights[1] * (gx * (x - x0 - b) + gy * (y - y0 - a))
    return total


@K
def random_walk(key: K.In[fb.uint32, "4"], n: int, steps: int, out: K.Out[fb.int32, "n, 2"], grid_of: K.Out[fb.bool, "n"]):
    """Walks on a square lattice, and whether each came back to its beginning."""
    i = K.index(0)
    if K.index(1) == 0:
        x, y, back = fb.int32(0), fb.int32(0), False
        for t in range(steps):
            way = K.random_bits(key, i * steps + t) >> 30
            if way == 0:
                x += 1
            elif way == 1:
                x -= 1
            elif way == 2:
                y += 1
            else:
                y -= 1
            back = back or (x == 0 and y == 0)
        out[i, 0] = x
        out[i, 1] = y
        grid_of[i] = back


def random_walk_truth(key: Array, n: int, steps: int) -> tuple[Array, Array]:
    """The same by sums of steps."""
    way = (OPS["random_bits"].reference(key, shape=(n * steps,), offset=0) >> 30).reshape(n, steps)
    x = np.cumsum((way == 0).astype(int) - (way == 1), 1)
    y = np.cumsum((way == 2).astype(int) - (way == 3), 1)
    return np.stack([x[:, -1], y[:, -1]], 1).astype(np.int32), ((x == 0) & (y == 0)).any(1)


@K
def monte_carlo(key: K.In[fb.uint32, "4"], draws: int, n: int, inside: K.Out[fb.int64, "n"]):
    """How many of some random points of a square lie in its inscribed quarter circle."""
    i = K.index()
    hits = 0
    for t in range(draws):
        x = K.random_uniform(key, (i * draws + t) * 2)
        y = K.random_uniform(key, (i * draws + t) * 2 + 1)
        if x * x + y * y < 1:
            hits += 1
    inside[i] = hits


def monte_carlo_truth(key: Array, draws: int, n: int) -> Array:
    """The same from the numbers of the stream; squares in float32."""
    u = OPS["random_uniform"].reference(key, shape=(n, draws, 2), offset=0, dtype=fb.float32)
    return (u[..., 0] * u[..., 0] + u[..., 1] * u[..., 1] < np.float32(1)).sum(1)


@K
def crc(rows: K.In[fb.uint8, "n, m"], out: K.Out[fb.uint32, "n"]):
    """CRC-32 of each row."""
    i = K.index()
    c = fb.uint32(0xFFFFFFFF)
    for j in range(rows.shape[1]):
        c ^= fb.uint32(rows[i, j])
        for _ in K.unrolled(8):
            c = (c >> 1) ^ 0xEDB88320 if c & 1 != 0 else c >> 1
    out[i] = ~c


def _key(g: np.random.Generator) -> Array:
    return g.integers(0, 1 << 32, 4, np.uint32)


POINTS = {
    "mandelbrot": Program(
        mandelbrot, lambda g, n: (np.linspace(-2, 1, n), np.linspace(-1.2, 1.2, max(n - 1, 0)), 40), mandelbrot_truth
    ),
    "collatz": Program(collatz, lambda g, n: (g.integers(0, 5000, n, np.uint64),), collatz_truth),
    "black_scholes": Program(
        black_scholes, lambda g, n: (*(g.uniform(0.5, 2, n) for _ in range(3)), 0.03, 0.4), black_scholes_truth, ulps=16,
        largest=True,
    ),
    "noise": Program(
        noise, lambda g, n: (g.permutation(256).astype(np.int32), n), noise_truth, (0, 1, 2, 13), ulps=8, largest=True
    ),
    "random_walk": Program(random_walk, lambda g, n: (_key(g), n, 40), random_walk_truth),
    "monte_carlo": Program(monte_carlo, lambda g, n: (_key(g), 30, n), monte_carlo_truth),
    "crc": Program(
        crc, lambda g, n: (g.integers(0, 256, (n, 2 * n), np.uint8),),
        lambda rows: np.array([zlib.crc32(r.tobytes()) for r in rows], np.uint32),
    ),
}  # fmt: skip
