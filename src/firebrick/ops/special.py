"""Special functions: log Γ and its derivatives, the inverse of the error function, modified Bessel functions.

The references are series in float64 that share no approximation with the scalar expressions.
Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, chapters 6, 7 and 9.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.errors import ConfigError
from firebrick.core.op import Sample
from firebrick.ops.declare import FLOATS, Array, broadcasted, per_result, unary_samples, values
from firebrick.ops.elementwise import abs_, exp, expm1, less, less_equal, minimum, sqrt, unary, where
from firebrick.ops.table import register
from firebrick.scalar import bessel, gamma, inverse_erf

# of log Γ


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_EULER = 0.5772156649015329
# the positive zero of ψ, as a sum of two floats
_ROOT, _ROOT_REST = 1.4616321449683622, 9.549995429965697e-17


def zeta(s: int, x: Any) -> Any:
    """ζ(s, x) = Σ 1 / (x + k)^s for s ≥ 2 and x ≥ 0, an array of any library in float64, by Euler and Maclaurin's sum."""
    terms = 20 + s
    last = 1.0 / (x + terms)
    out, rising = last ** (s - 1) / (s - 1) + 0.5 * last**s, float(s)
    for j, b in enumerate(_BERNOULLI, 1):
        out = out + b / math.factorial(2 * j) * rising * last ** (s + 2 * j - 1)
        rising *= (s + 2 * j - 1) * (s + 2 * j)
    for k in reversed(range(terms)):
        out = out + (1.0 / (x + k)) ** s
    return out


@cache
def _zeta_at(s: int, x: float) -> float:
    return float(zeta(s, np.float64(x)))


def _near_two(d: Array) -> Any:
    """log Γ(2 + d) for |d| ≤ ½: Σ (ζ(k) - 1) (-d)^k / k."""
    out = np.zeros_like(d)
    for k in range(40, 1, -1):
        out = -d * (out + _zeta_at(k, 2.0) / k)
    return d * (1 - _EULER) - d * out


def _lgamma_of_positive(x: Array) -> Array:
    far = x >= 12
    near = np.where(far | np.isnan(x), 2.0, x)
    small, smallest = near < 1.5, near < 0.5
    moved, product = np.where(small, 2.0, near), np.ones_like(near)
    for _ in range(10):
        large = moved > 2.5
        moved = np.where(large, moved - 1, moved)
        product = np.where(large, product * moved, product)
    apart = np.where(smallest, near, np.where(small, near - 1, moved - 2))
    logarithm = np.where(smallest, -np.log(near) - np.log1p(near), np.where(small, -np.log1p(near - 1), np.log(product)))
    inverse, tail = 1 / x, np.zeros_like(x)
    for j in range(10, 0, -1):
        tail = tail * inverse * inverse + _BERNOULLI[j - 1] / (2 * j * (2 * j - 1))
    series = (x - 0.5) * (np.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5 + inverse * tail)
    return np.where(far, series, np.where(np.isnan(x), x, logarithm + _near_two(apart)))


def _sine(part: Array) -> Array:
    """sin(π · part) / π for |part| ≤ ½, also where π · part is denormal."""
    return part * np.sinc(part)


def _cotangent(part: Array) -> Array:
    """cot(π · part) for |part| ≤ ½."""
    return _sine(0.5 - np.abs(part)) / _sine(part)


def _digamma_of_positive(x: Array) -> Array:
    far = x >= 12
    near = np.where(far | np.isnan(x), 1.0, x)
    steps = np.where(near < 1, -1.0 / near, 0.0)
    near = np.where(near < 1, near + 1, near)
    for _ in range(10):
        large = near > 2
        near = np.where(large, near - 1, near)
        steps = np.where(large, steps + 1.0 / near, steps)
    d, series = (near - _ROOT) - _ROOT_REST, np.zeros_like(near)
    for k in range(60, 0, -1):  # Σ (-1)^(k + 1) ζ(k + 1, root) d^k
        series = d * (_zeta_at(k + 1, _ROOT) - series)
    square = 1.0 / (x * x)
    tail = np.zeros_like(x)
    for j in range(10, 0, -1):
        tail = square * (tail + _BERNOULLI[j - 1] / (2 * j))
    return np.where(far, np.log(x) - 0.5 / x - tail, np.where(np.isnan(x), x, series + steps))


def _reflected(x: Array) -> tuple[Array, Array, Array]:
    """Whether x is negative, the positive number that is computed with, and the distance of x from an integer."""
    below = x < 0
    return below, np.where(below, 1 - x, x), x - np.rint(x)


def _lgamma_scale(x: Array) -> Array:
    """|log Γ(x)|, or for negative numbers the terms of the reflection, which may cancel."""
    below, up, part = _reflected(x)
    terms: Array = np.abs(_lgamma_of_positive(up))
    return terms + np.where(below, np.abs(np.log(np.abs(_sine(part)))), 0.0)


def _digamma_scale(x: Array) -> Array:
    below, up, part = _reflected(x)
    return np.abs(_digamma_of_positive(up)) + np.where(below, np.abs(np.pi * _cotangent(part)), 0.0)


def _polygamma_scale(x: Array, *, n: int) -> Any:
    """The terms of the reflection, as often as their powers multiply the error of a quotient."""
    below, up, part = _reflected(x)
    turned = np.polynomial.polynomial.polyval(np.abs(_cotangent(part)), np.abs(gamma.cotangent_polynomial(n)))
    return (n + 1) / 2 * (math.factorial(n) * zeta(n + 1, up) + np.where(below, np.pi ** (n + 1) * turned, 0.0))


def _gamma_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    """Positive numbers, which gradient checks take; negative ones between the poles; those next to zeros."""
    kind = dtype(name).np
    out = unary_samples(0.3, 5.0)(rng, name)
    between = np.floor(rng.uniform(-6, 0, (4, 9))) + rng.uniform(0.1, 0.9, (4, 9))
    near = np.concatenate([c + rng.normal(size=24) * 0.01 for c in (1.0, 2.0, _ROOT)])
    for label, x in (("negative", between), ("next to zeros", near), ("large", np.exp(rng.uniform(1, 8, 40)))):
        out.append(Sample((x.astype(kind),), grad_safe=False, name=label))
    return out


def _lgamma_vjp(g: Any, r: Any) -> Any:
    return (g * digamma(r.inputs[0]),)


@unary(
    _lgamma_vjp, flops=60, tolerance=8, scale=_lgamma_scale,
    samples=_gamma_samples, scalar=gamma.lgamma,
)  # fmt: skip
def lgamma(x: Array) -> Array:
    """The logarithm of the size of Γ(x); that of (x - 1)! for integers x ≥ 1, and infinite for those below."""
    below, up, part = _reflected(np.asarray(x, np.float64))
    out = _lgamma_of_positive(up)
    pole = (part == 0) | np.isinf(x)
    return np.where(below, np.where(pole, np.inf, -np.log(np.abs(_sine(part))) - out), out).astype(x.dtype)


def _digamma_vjp(g: Any, r: Any) -> Any:
    return (g * polygamma(r.inputs[0], n=1),)


@unary(
    _digamma_vjp, flops=60, tolerance=8, scale=_digamma_scale, samples=_gamma_samples,
    scalar=gamma.digamma,
)  # fmt: skip
def digamma(x: Array) -> Array:
    """ψ(x), the derivative of log Γ(x); NaN at negative integers, and infinite at 0, with the sign of -x."""
    below, up, part = _reflected(np.asarray(x, np.float64))
    out = _digamma_of_positive(up)
    reflected = np.where(part == 0, np.nan, out - np.pi * _cotangent(part))
    return np.where(below, reflected, out).astype(x.dtype)


def _polygamma_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    return [
        Sample(s.inputs, {"n": n}, s.grad_safe, f"{s.name}, order {n}", edges=s.edges)
        for n in (1, 2, 4)
        for s in _gamma_samples(rng, name)
    ]


def _polygamma_vjp(g: Any, r: Any) -> Any:
    return (g * polygamma(r.inputs[0], n=r.params["n"] + 1),)


def _infer_polygamma(x: Any, *, n: int) -> Aval:
    if n < 1:
        raise ConfigError("polygamma takes n ≥ 1", f"n={n}", "call fb.digamma for n = 0")
    return Aval(x.shape, x.dtype)


@unary(_polygamma_vjp, flops=150, tolerance=16, scale=_polygamma_scale, samples=_polygamma_samples, scalar=gamma.polygamma,
       infer=_infer_polygamma)  # fmt: skip
def polygamma(x: Array, *, n: int) -> Array:
    """The derivative number n ≥ 1 of ψ(x); at 0 and below, at integers, infinite, or NaN if n is even and x < 0."""
    below, up, part = _reflected(np.asarray(x, np.float64))
    size = math.factorial(n) * zeta(n + 1, up)
    turned = np.polynomial.polynomial.polyval(_cotangent(part), gamma.cotangent_polynomial(n))
    reflected = -size - np.pi ** (n + 1) * turned
    reflected = np.where(part == 0, np.inf if n % 2 else np.nan, reflected)
    return np.where(below, reflected, size if n % 2 else -size).astype(x.dtype)


# draws of the gamma distribution

_STEP = 1 / 6
# nodes and weights of a quadrature over (0, ∞), with v = exp(t - exp(-t)).
# Source: Takahasi, Mori, "Double exponential formulas for numerical integration", 1974
_NODES = tuple(
    (math.exp(t - math.exp(-t)), _STEP * math.exp(t - math.exp(-t)) * (1 + math.exp(-t)))
    for t in (k * _STEP for k in range(-21, 28))
)


def gamma_slope(alpha: Any, log_z: Any) -> Any:
    """(dz/dα) / z for a gamma-distributed z of the shape α ≥ 1, at one value of the distribution function.

    With P(α, z) the distribution function and p its density, dz/dα = -(∂P/∂α) / p, an integral over (0, z), or, with the other
    sign, over (z, ∞); of the two, the exponent of this one decreases:

        dz/dα = z ∫₀^∞ (ψ(α) - log z + v) exp(z (1 - e^-v) - α v) dv       for z ≤ α
        dz/dα = z ∫₀^∞ (log z + v - ψ(α)) exp(α v - z (e^v - 1)) dv        for z > α

    The relative error of the 49 nodes is about 10⁻⁹ in float64.
    """
    z, psi = exp(log_z), digamma(alpha)
    low = less_equal(z, alpha)
    scale = 1.0 / (abs_(alpha - z) + minimum(sqrt(z), alpha))
    start = where(low, psi - log_z, log_z - psi)
    sign = where(low, -1.0, alpha * 0.0 + 1.0)
    total = alpha * 0.0
    for node, weight in _NODES:
        v = scale * node
        total = total + (start + v) * exp(expm1(sign * v) * -z + sign * alpha * v) * weight
    return total * scale


def _gamma_path_vjp(g: Any, r: Any) -> Any:
    return g * gamma_slope(r.inputs[0], r.outputs[0]) if r.needs[0] else None, g if r.needs[1] else None


def _gamma_path_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    kind = dtype(name).np
    out = []
    for label, shape, other in (
        ("equal shapes", (3, 4), (3, 4)),
        ("row", (4,), (3, 4)),
        ("0-d", (), ()),
        ("empty", (0, 3), (0, 3)),
        ("long", (1037,), (1037,)),
    ):
        alpha = np.asarray(rng.uniform(1.0, 6.0, shape))
        log_z = np.asarray(np.log(rng.uniform(0.3, 8.0, other)))
        out.append(Sample((alpha.astype(kind), log_z.astype(kind)), grad_safe=label != "long", name=label))
    return out


@register(
    operands="alpha:floating=T log_z:floating=T", infer=broadcasted, vjp=_gamma_path_vjp, residuals=("inputs", "outputs"),
    samples=_gamma_path_samples, cost=per_result(1), bound="memory", fusion="map", tolerance=64, broadcasts=True, dtypes=FLOATS,
    scalar=lambda alpha, log_z: log_z,
)  # fmt: skip
def gamma_path(alpha: Array, log_z: Array) -> Array:
    """log_z, of a number that was drawn from the gamma distribution of shape alpha ≥ 1, with the slope of the draw by alpha."""
    return np.array(np.broadcast_to(log_z, np.broadcast_shapes(alpha.shape, log_z.shape)))


# of the error function


def _erfinv_of(x: float) -> float:
    """Halley's iteration; next to ±1 on the complement, which is exact there."""
    size = abs(x)
    if not size < 1:
        return math.copysign(math.inf, x) if size == 1 else math.nan
    # Winitzki's approximation, with an error of 2e-3
    part = math.log1p(-size * size)
    half = 2 / (math.pi * 0.147) + part / 2
    y = math.sqrt(max(math.sqrt(half * half - part / 0.147) - half, 0.0)) if size > 1e-4 else size * 0.886
    for _ in range(4):
        error = math.erf(y) - size if size < 0.5 else (1 - size) - math.erfc(y)
        step = error / (2 / math.sqrt(math.pi) * math.exp(-y * y))
        y -= step / (1 + y * step)
    return math.copysign(y, x)


def _erfinv_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    kind = dtype(name).np
    end = (1 - np.exp(-rng.uniform(1, 36, 60))) * np.where(rng.random(60) < 0.5, -1, 1)
    ends = Sample((end.astype(kind),), grad_safe=False, name="next to the ends")
    tiny = Sample((values(rng, name, (40,)) * kind.type(1e-3),), grad_safe=False, name="near zero")
    return [*unary_samples(-0.95, 0.95)(rng, name), ends, tiny]


@unary(
    lambda g, r: (g * exp(r.outputs[0] * r.outputs[0]) * (math.sqrt(math.pi) / 2),), residuals=("outputs",), flops=60,
    tolerance=4, samples=_erfinv_samples, scalar=inverse_erf.erfinv,
)  # fmt: skip
def erfinv(x: Array) -> Array:
    """The inverse of ``erf``; infinite at ±1, NaN beyond."""
    found = np.frompyfunc(_erfinv_of, 1, 1)
    return np.asarray(found(np.asarray(x, np.float64)), np.float64).astype(x.dtype)


# Bessel functions


def _bessel(x: Array, order: int) -> Array:
    """I_order(|x|), for order 0 or 1."""
    size = np.abs(np.asarray(x, np.float64))
    square = np.asarray(np.minimum(size, 20.0), np.longdouble) ** 2 / 4
    total = np.zeros_like(square)
    for k in range(70, 0, -1):
        total = (total + 1) * (square / (k * (k + order)))
    near = np.asarray((total + 1) * np.sqrt(square) ** order, np.float64)
    far = np.asarray(np.clip(size, 20.0, 1500.0), np.longdouble)
    series = part = np.ones_like(far)
    for k in range(1, 40):
        part = part * -((4 * order * order - (2 * k - 1) ** 2) / (8 * k * far))
        series = series + part
    half = np.exp(far / 2)
    found: Array = np.where(size < 20, near, np.asarray(half * (series / np.sqrt(2 * np.pi * far)) * half, np.float64))
    return np.where(np.isnan(size), size, found)


def _bessel_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    large = rng.uniform(6, 80, 60) * np.where(rng.random(60) < 0.5, -1, 1)
    return [
        *unary_samples(-4.0, 4.0)(rng, name),
        Sample((large.astype(dtype(name).np),), grad_safe=False, name="large"),
    ]


def _i0_vjp(g: Any, r: Any) -> Any:
    return (g * i1(r.inputs[0]),)


@unary(_i0_vjp, flops=60, tolerance=6, samples=_bessel_samples, scalar=bessel.i0)
def i0(x: Array) -> Array:
    """I₀(x), the modified Bessel function of the first kind of order 0."""
    return _bessel(x, 0).astype(x.dtype)


_I1_SLOPE = tuple((2 * k + 1) / (2.0 ** (2 * k + 1) * math.factorial(k) * math.factorial(k + 1)) for k in range(10))
"""Coefficients of x²ᵏ in the derivative of I₁. Source: its power series, DLMF 10.25.2."""


def _i1_vjp(g: Any, r: Any) -> Any:
    """I₀ - I₁ / x, of which derivatives near 0 are differences of large numbers: there the power series."""
    x, y = r.inputs[0], r.outputs[0]
    near = less(abs_(x), 0.5)
    square = where(near, x * x, 0.0)
    series = square * 0.0
    for coefficient in reversed(_I1_SLOPE):
        series = series * square + coefficient
    return (g * where(near, series, i0(x) - y / where(near, 1.0, x)),)


@unary(_i1_vjp, residuals=("inputs", "outputs"), flops=60, tolerance=6, samples=_bessel_samples, scalar=bessel.i1)
def i1(x: Array) -> Array:
    """I₁(x), the modified Bessel function of the first kind of order 1, the derivative of I₀."""
    return np.copysign(_bessel(x, 1), x).astype(x.dtype)
