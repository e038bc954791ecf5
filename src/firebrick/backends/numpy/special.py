"""Special functions that NumPy lacks.

Sources: in float64, W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation 23
(1969), with the coefficients of his public program CALERF (netlib, specfun); in float32, the odd rational function of degree
13 over 8 on [-4, 4] that the Eigen library uses (``generic_fast_erf_float``), 3.8 eps at most from the exact value. The others
are computed in float64 by the polynomials of the scalar expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from firebrick.ops.declare import Array
from firebrick.scalar.special_coefficients import TABLE

_A = (
    3.16112374387056560e00,
    1.13864154151050156e02,
    3.77485237685302021e02,
    3.20937758913846947e03,
    1.85777706184603153e-1,
)
_B = (2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03)
_C = (
    5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e01, 2.98635138197400131e02, 8.81952221241769090e02,
    1.71204761263407058e03, 2.05107837782607147e03, 1.23033935479799725e03, 2.15311535474403846e-8,
)  # fmt: skip
_D = (
    1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03, 3.29079923573345963e03,
    4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03,
)  # fmt: skip


_P = (
    -1.60960333262415e-02, -2.95459980854025e-03, -7.34990630326855e-04, -5.69250639462346e-05, -2.10102402082508e-06,
    2.77068142495902e-08, -2.72614225801306e-10,
)  # fmt: skip
_Q = (-1.42647390514189e-02, -7.37332916720468e-03, -1.68282697438203e-03, -2.13374055278905e-04, -1.45660718464996e-05)


def _polynomial(z: Array, coefficients: tuple[float, ...]) -> Array:
    """Σ c[i] zⁱ in z's dtype."""
    total = np.full(z.shape, coefficients[-1], z.dtype)
    for c in coefficients[-2::-1]:
        total *= z
        total += z.dtype.type(c)
    return total


def _single(x: Array) -> Array:
    """erf in float32."""
    limited = np.clip(x, np.float32(-4), np.float32(4))
    z = limited * limited
    # the quotient first: x times the numerator would be rounded as a subnormal for the smallest x
    return np.asarray(limited * (_polynomial(z, _P) / _polynomial(z, _Q)))


def _small(x: Array) -> Array:
    """|x| ≤ 0.46875."""
    z = x * x
    num, den = _A[4] * z, z
    for a, b in zip(_A[:3], _B[:3], strict=True):
        num, den = (num + a) * z, (den + b) * z
    return np.asarray(x * (num + _A[3]) / (den + _B[3]))


def _middle(y: Array) -> Array:
    """erfc for 0.46875 < y ≤ 4, and beyond it negligible in 1 - erfc."""
    num, den = _C[8] * y, y
    for c, d in zip(_C[:7], _D[:7], strict=True):
        num, den = (num + c) * y, (den + d) * y
    head = np.trunc(y * 16) / 16
    tail = (y - head) * (y + head)
    return np.asarray(np.exp(-head * head) * np.exp(-tail) * (num + _C[7]) / (den + _D[7]))


_BLOCK = 1 << 14
"""Elements computed at a time, so that the many intermediate arrays stay in the processor's caches."""


def _in_blocks(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """An elementwise kernel of operands of one shape and dtype, run on one block after the other."""

    def run(*operands: Array) -> Array:
        x = operands[0]
        if x.size <= _BLOCK:
            return kernel(*operands)
        rows = [np.ascontiguousarray(v).reshape(-1) for v in operands]
        out = np.empty(x.shape, x.dtype)
        flat = out.reshape(-1)
        for start in range(0, x.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            flat[part] = kernel(*(row[part] for row in rows))
        return out

    return run


@_in_blocks
def erf(x: Array) -> Array:
    """The error function."""
    if x.dtype == np.float32:
        return _single(x)
    wide = np.asarray(x, np.float64)
    y = np.abs(wide)
    small = _small(np.clip(wide, -0.46875, 0.46875))
    large = np.copysign(1.0 - _middle(np.clip(y, 0.46875, 6.0)), wide)
    return np.where(np.isnan(wide), wide, np.where(y <= 0.46875, small, large)).astype(x.dtype)


def _distribution(x: Array) -> Array:
    """Φ(x), the normal distribution function, in x's dtype."""
    half = x.dtype.type(0.5)
    return np.asarray(half + half * erf(x * x.dtype.type(math.sqrt(0.5))))


@_in_blocks
def gelu(x: Array) -> Array:
    """x · Φ(x)."""
    return np.asarray(x * _distribution(x))


@_in_blocks
def gelu_gradient(g: Array, x: Array) -> Array:
    """g · (Φ(x) + x · φ(x))."""
    density = np.exp(x * x * x.dtype.type(-0.5)) * x.dtype.type(1 / math.sqrt(2 * math.pi))
    return np.asarray(g * (_distribution(x) + x * density))


def erfinv(x: Array) -> Array:
    """The inverse of erf in float64, by the polynomials of compiled kernels."""
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    distance = -np.log((1.0 - wide) * (1.0 + wide))
    out = _polynomial(distance - 2.5, TABLE["ERFINV", "float64"])
    if (distance >= 5.0).any():
        root = np.sqrt(distance)
        far = _polynomial(root - 3.125, TABLE["ERFINV_FAR", "float64"])
        end = _polynomial(root - 5.125, TABLE["ERFINV_END", "float64"])
        out = np.where(distance < 5.0, out, np.where(root < 4.015625, far, end))
    found: Array = np.where(size < 1.0, wide * out, np.where(size == 1.0, wide * np.inf, np.nan)).astype(x.dtype)
    return found


def _bessel(x: Array, order: int) -> Array:
    size = np.abs(np.asarray(x, np.float64))
    square = size * size * 0.25
    out = (square * _polynomial(square, TABLE[f"BESSEL_{order}", "float64"]) + 1.0) * (0.5 * size) ** order
    if (size > 8.0).any():
        far = np.clip(size, 8.0, 1500.0)
        half = np.exp(far * 0.5)
        scaled = _polynomial(16.0 / far - 1.0, TABLE[f"BESSEL_{order}_FAR", "float64"]) / np.sqrt(far)
        out = np.where(size > 8.0, half * scaled * half, out)
    return out


def i0(x: Array) -> Array:
    """The Bessel function of order 0 in float64."""
    return _bessel(x, 0).astype(x.dtype)


def i1(x: Array) -> Array:
    """The Bessel function of order 1 in float64."""
    return np.copysign(_bessel(x, 1), x).astype(x.dtype)
