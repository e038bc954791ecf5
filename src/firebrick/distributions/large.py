"""Formulas with gamma functions for parameters of any size: their terms grow with the parameters, and cancel.

Above ``_LARGE`` they are written with what is left of log Γ and ψ when their leading terms are taken away. Source: Abramowitz
and Stegun, "Handbook of Mathematical Functions" (1964), 6.1.41 and 6.3.18.
"""

from __future__ import annotations

import math
from typing import TypeVar

from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import greater_equal, less, log, log1p, logical_and, where
from firebrick.functions.special import digamma, lgamma

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LARGE = 16.0
_LOG_GAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_ATANH = tuple(1 / (2 * k + 3) for k in range(12))
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)


Number = TypeVar("Number", float, Tensor)


def _series(coefficients: tuple[float, ...], r: Number) -> Number:
    """Σ coefficients[k] · r^(2k)."""
    rr = r * r
    total = rr * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        total = (total + c) * rr
    return total + coefficients[0]


def _log_gamma_rest(x: Number) -> Number:
    """log Γ(x) - (x - 1/2) log x + x - log √(2π), of large x."""
    r = 1.0 / x
    return r * _series(_LOG_GAMMA, r)


def _digamma_rest(x: Tensor) -> Tensor:
    """log x - ψ(x), of large x."""
    r = 1.0 / x
    return r * 0.5 + r * r * _series(_DIGAMMA, r)


def spread(x: Tensor) -> Tensor:
    """log Γ(x) + x - (x - 1) ψ(x): the entropy of gamma numbers of shape x, which grows like log √x."""
    large = greater_equal(x, _LARGE)
    b, c = where(large, x, _LARGE), where(large, _LARGE, x)
    series = 0.5 * log(b) + HALF_LOG_2PI + _log_gamma_rest(b) + (b - 1.0) * _digamma_rest(b)
    return where(large, series, lgamma(c) + c - (c - 1.0) * digamma(c))


def digamma_half_step(x: Tensor) -> Tensor:
    """ψ(x + 1/2) - ψ(x)."""
    large = greater_equal(x, _LARGE)
    b, c = where(large, x, _LARGE), where(large, _LARGE, x)
    series = log1p(0.5 / b) + _digamma_rest(b) - _digamma_rest(b + 0.5)
    return where(large, series, digamma(c + 0.5) - digamma(c))


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """log B(a, b)."""
    first = less(a, b)  # minimum and maximum would share the slopes of equal parameters in halves, or give both to one
    p, q = where(first, a, b), where(first, b, a)
    one, two = greater_equal(q, _LARGE), greater_equal(p, _LARGE)
    big = where(one, q, _LARGE)
    total = big + p
    step = _log_gamma_rest(big) - _log_gamma_rest(total) - (big - 0.5) * log1p(p / big)
    many = where(two, p, _LARGE)
    both = HALF_LOG_2PI + _log_gamma_rest(many) - 0.5 * log(many) + many * log(many / (big + many)) + step
    small = where(two, 1.0, p)
    mixed = lgamma(small) + small - small * log(big + small) + step
    rest = where(one, 1.0, q)
    plain = lgamma(small) + lgamma(rest) - lgamma(small + rest)
    return where(two, both, where(one, mixed, plain))


def comparable(k: Tensor, m: Tensor) -> Tensor:
    """Where ``log_poisson`` is for k and m: k is large, and m is not many times larger or smaller."""
    return logical_and(greater_equal(k, _LARGE), logical_and(less(k, 8.0 * m), less(m, 8.0 * k)))


def log_poisson(k: Tensor, m: Tensor) -> Tensor:
    """k log m - m - log Γ(k + 1), the logarithm of a Poisson probability, where k and m are ``comparable``. Its terms grow like
    k log k, and cancel. Source: C. Loader, "Fast and accurate computation of binomial probabilities" (2000)."""
    return -(k * log_excess((m - k) / k, m / k)) - 0.5 * log(k) - HALF_LOG_2PI - _log_gamma_rest(k)


def log_poisson_of_mean(n: float) -> float:
    """n log n - n - log Γ(n + 1) of large n."""
    return -0.5 * math.log(n) - HALF_LOG_2PI - _log_gamma_rest(n)


_NEAR = 0.25


def _is_near(t: Tensor) -> Tensor:
    return less(absolute(t), _NEAR)


def log_ratio(t: Tensor, ratio: Tensor) -> Tensor:
    """The logarithm of a ratio, of which t = ratio - 1 is known without the rounding of the ratio."""
    near = _is_near(t)
    return where(near, log1p(where(near, t, 0.0)), log(where(near, 1.0, ratio)))


def log_excess(t: Tensor, ratio: Tensor) -> Tensor:
    """t - log(ratio), where t = ratio - 1: about t² / 2 where t is small."""
    near = _is_near(t)
    b = where(near, t, 0.0)
    s = b / (b + 2.0)  # log(1 + t) is 2 atanh(s)
    rest = s * s * s * 2.0 * _series(_ATANH, s)
    return where(near, b * s - rest, t - log(where(near, 1.0, ratio)))


def log_gamma_excess(a: Tensor, b: Tensor) -> Tensor:
    """log Γ(b) - log Γ(a) - (b - a) ψ(a): how far log Γ is above its tangent at a, about (b - a)² ψ'(a) / 2 near a."""
    large = logical_and(greater_equal(a, _LARGE), greater_equal(b, _LARGE))
    x, y = where(large, a, _LARGE), where(large, b, _LARGE)
    t, ratio, r = (y - x) / x, y / x, 1.0 / x
    near, excess = _is_near(t), log_excess(t, ratio)
    n = where(near, t, 0.0)
    curve = where(near, n * n - (n + 1.0) * excess, ratio * log(where(near, 1.0, ratio)) - t)
    series = x * curve + 0.5 * excess + t * r * _series(_DIGAMMA, r) + _log_gamma_rest(y) - _log_gamma_rest(x)
    c, d = where(large, _LARGE, a), where(large, _LARGE, b)
    return where(large, series, lgamma(d) - lgamma(c) - (d - c) * digamma(c))
