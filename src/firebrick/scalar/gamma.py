"""The logarithm of the gamma function and its derivatives in the scalar IR, for every float32 or float64.

Positive numbers below 8 are moved by whole steps to an interval of one polynomial; Stirling's series follows above. Negative
numbers are reflected. Near the zeros at 1 and 2 (and, of the derivative, at 1.46) errors are relative to the result; near the
zeros of negative numbers to the terms that cancel there. The higher derivatives are Euler and Maclaurin's sum.
Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, sections 6.1, 6.3 and 6.4.
"""

from __future__ import annotations

from math import factorial, pi
from math import log as log_of

from firebrick.scalar.expr import Expr, absolute, const, eq, kept, muladd, polynomial, select, unary
from firebrick.scalar.math import INFINITY, NAN, first_term, log
from firebrick.scalar.special_coefficients import DIGAMMA_ROOT, TABLE

_FAR = 8.0
"""Stirling's series serves from here on."""


def _table(name: str, x: Expr) -> tuple[float, ...]:
    return TABLE[name, x.dtype]


def _sine(f: Expr) -> Expr:
    """sin(πf) / π for |f| ≤ ½."""
    square = f * f
    return first_term(f, f * muladd(square, polynomial(square, _table("SINPI", f)), 1.0))


def _from_integer(x: Expr) -> Expr:
    """x less the nearest integer."""
    return first_term(x, x - unary("rint", x))


def _lgamma_of_positive(x: Expr) -> Expr:
    low, lowest, far = x < 1.25, x < 0.5, x >= _FAR
    # x = moved + k with moved in [1.25, 2.5): each step is exact, and so is the distance from 2
    moved, product = x, const(1.0, x.dtype)
    for _ in range(6):
        large = moved >= 2.5
        less = moved - 1.0
        product, moved = select(large, product * less, product), select(large, less, moved)
    apart = select(lowest, x, select(low, x - 1.0, moved - 2.0))
    argument = select(lowest, first_term(x, x * (x + 1.0)), select(low, x, product))
    logarithm = log(select(far, x, argument))
    near = apart * polynomial(apart, _table("GAMMA", x)) + select(low, -logarithm, logarithm)
    inverse = 1.0 / x
    series = muladd(inverse, polynomial(inverse * inverse, _table("STIRLING", x)), 0.5 * log_of(2 * pi) - 0.5)
    return select(far, muladd(x - 0.5, logarithm - 1.0, series), near)


def lgamma(x: Expr) -> Expr:
    """log |Γ(x)|; infinite at 0 and at negative integers."""
    below = x < 0.0
    out = _lgamma_of_positive(select(below, 1.0 - x, x))
    part = _from_integer(x)
    reflected = -log(absolute(_sine(part))) - out
    pole = eq(part, 0.0) | eq(absolute(x), INFINITY)
    return select(below, select(pole, const(INFINITY, x.dtype), reflected), out)


def _digamma_of_positive(x: Expr) -> Expr:
    low, far = x < 1.0, x >= _FAR
    moved, top, below = select(low, x + 1.0, x), const(0.0, x.dtype), const(1.0, x.dtype)
    for _ in range(6):  # ψ(x) = ψ(x - 1) + 1 / (x - 1); the sum of reciprocals as one quotient
        large = moved > 2.0
        less = moved - 1.0
        top, below = select(large, muladd(top, less, below), top), select(large, below * less, below)
        moved = select(large, less, moved)
    first, second = DIGAMMA_ROOT[x.dtype]
    near = (kept(moved - first) - second) * polynomial(moved - 1.5, _table("DIGAMMA", x))
    inverse = 1.0 / x
    steps = select(low, -inverse, top / below)
    square = inverse * inverse
    series = log(x) - muladd(square, polynomial(square, _table("DIGAMMA_FAR", x)), inverse * 0.5)
    return select(far, series, near + steps)


def _cotangent(part: Expr) -> Expr:
    """π · cot(π · part) for |part| ≤ ½."""
    return _sine(0.5 - absolute(part)) * pi / _sine(part)


def digamma(x: Expr) -> Expr:
    """ψ(x), the derivative of log Γ(x); NaN at negative integers, infinite at 0 with the sign of -x."""
    below = x < 0.0
    out = _digamma_of_positive(select(below, 1.0 - x, x))
    part = _from_integer(x)
    reflected = select(eq(part, 0.0), const(NAN, x.dtype), out - _cotangent(part))
    return select(below, reflected, out)


# terms summed, and terms of the correction, of the Hurwitz zeta function
_TERMS = {"float32": (6, 5), "float64": (10, 10)}
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
)  # fmt: skip


def _zeta_of_positive(s: int, x: Expr) -> Expr:
    """ζ(s, x) = Σ 1 / (x + k)^s for s ≥ 2."""
    terms, corrections = _TERMS[x.dtype]
    terms += s // 2
    inverse = 1.0 / (x + float(terms))
    square = inverse * inverse
    rising, series = float(s), []
    for j in range(1, corrections + 1):  # B_2j / (2j)! · s (s + 1) … (s + 2j - 2)
        series.append(_BERNOULLI[j - 1] / factorial(2 * j) * rising)
        rising *= (s + 2 * j - 1) * (s + 2 * j)
    tail = muladd(inverse, polynomial(square, series), 0.5)
    out = _power(inverse, s - 1) * muladd(inverse, tail, 1 / (s - 1))
    for k in reversed(range(terms)):
        out = out + _power(1.0 / (x + float(k)), s)
    return out


def _power(x: Expr, n: int) -> Expr:
    """x^n for n ≥ 1, by squares."""
    if n == 1:
        return x
    half = _power(x, n // 2)
    return half * half * x if n % 2 else half * half


def cotangent_polynomial(n: int) -> list[float]:
    """Coefficients, lowest first, of the polynomial q with dⁿ/dxⁿ cot(x) = q(cot(x))."""
    q = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(q)][1:]
        q = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return q


def polygamma(x: Expr, *, n: int) -> Expr:
    """The derivative number n ≥ 1 of ψ(x); at 0 and at negative integers infinite, or NaN if n is even and x < 0."""
    below = x < 0.0
    odd = n % 2 == 1
    size = _zeta_of_positive(n + 1, select(below, 1.0 - x, x)) * float(factorial(n))
    part = _from_integer(x)
    ratio = _sine(0.5 - absolute(part)) / _sine(part)
    q = cotangent_polynomial(n)
    # of the polynomial's powers every second one is 0
    turned = polynomial(ratio * ratio, q[(n + 1) % 2 :: 2])
    turned = turned * pi ** (n + 1) if odd else turned * ratio * pi ** (n + 1)
    reflected = -size - turned
    pole = const(INFINITY if odd else NAN, x.dtype)
    return select(below, select(eq(part, 0.0), pole, reflected), size if odd else -size)
