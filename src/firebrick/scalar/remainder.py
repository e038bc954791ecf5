"""Division rounded towards -∞ and its remainder, exact for every operand."""

from __future__ import annotations

from firebrick.scalar.expr import (
    FLOATS,
    SIGNED,
    Expr,
    absolute,
    binary,
    bitcast,
    cast,
    const,
    copysign,
    eq,
    fma,
    maximum,
    ne,
    rarely,
    scale,
    select,
    unary,
    vast_fma,
    where_flushed,
)
from firebrick.scalar.math import FORMATS, INFINITY, NAN

_SQUARINGS = {"float32": 4, "float64": 6}
"""Number of squarings. The difference of two exponents, shifted right by it, is the exponent of a power of 2 that is exact."""

_LARGEST_SCALED = 2.0**60
"""Operands below it, of divisors below its reciprocal, are scaled where denormal numbers are flushed,"""
_UP = 66.0
"""by this power of 2."""


def floor_divide(x1: Expr, x2: Expr) -> Expr:
    """⌊x1 / x2⌋."""
    return _divide_down(x1, x2)[0]


def remainder(x1: Expr, x2: Expr) -> Expr:
    """x1 - x2 · ⌊x1 / x2⌋, with the sign of x2."""
    return _divide_down(x1, x2)[1]


def _divide_down(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Quotient rounded towards -∞, and a - b · quotient with the sign of b."""
    if a.dtype not in FLOATS:
        q, r = binary("div", a, b), binary("rem", a, b)
        if a.dtype not in SIGNED:
            return q, r
        off = ne(r, 0) & ((r ^ b) < 0)
        return select(off, q - 1, q), select(off, r + b, r)
    # where denormal numbers are flushed, small operands are scaled, and an operand that is its own remainder is left as it is
    tiny, vast = absolute(b) < 1.0 / _LARGEST_SCALED, absolute(a) >= _LARGEST_SCALED
    small, far_apart = tiny & ~vast, tiny & vast
    up, down = (const(n, a.dtype) for n in (_UP, -_UP))
    a, b = where_flushed(small, scale(a, up), a), where_flushed(small, scale(b, up), b)
    less = absolute(a) < absolute(b)
    ratio = a / b
    # a quotient just below an integer may be rounded up to it, which the sign of the remainder shows
    q = where_flushed(less, copysign(const(0.0, a.dtype), ratio), unary("floor", ratio))
    r = where_flushed(less, a, vast_fma(-q, b, a))
    low = _between(r, b)
    near_q, near_r = select(low, q - 1.0, q), copysign(select(low, r + b, r), b)
    far_q, far_r = _far(a, b, far_apart)
    rare = ~(absolute(q) < 2.0 ** (FORMATS[a.dtype].fraction_bits - 1)) | ~(absolute(b) < INFINITY)
    q, r = rarely(rare, far_q, near_q), rarely(rare, far_r, near_r)
    return q, where_flushed(tiny, scale(r, down), r)


def _between(r: Expr, b: Expr) -> Expr:
    """Whether the remainder r, rounded towards -∞, is r + b."""
    return ne(r, 0.0) & ne(r < 0.0, b < 0.0)


def _far(a: Expr, b: Expr, apart: Expr) -> tuple[Expr, Expr]:
    """Quotient and remainder for large quotients, infinities and divisors of 0. Where denormal numbers are flushed and operands
    are ``apart``, the remainder is scaled up."""
    ratio = a / b
    infinite = eq(absolute(a), INFINITY) | eq(absolute(b), INFINITY)
    modulo = _modulo(a, b, apart)
    r = where_flushed(apart, scale(modulo, const(-_UP, a.dtype)), modulo)
    # ``whole`` is a / b up to about half a unit in the last place, so a - whole · b is exact, and is r plus a multiple of b
    whole = unary("rint", ratio)
    more = unary("rint", (vast_fma(-whole, b, a) - r) / b) - select(_between(r, b), const(1.0, a.dtype), 0.0)
    q = select(infinite | eq(b, 0.0) | eq(absolute(ratio), INFINITY), unary("floor", ratio), whole + more)
    undefined = ~(absolute(a) < INFINITY) | eq(b, 0.0) | ne(b, b)
    rest = select(undefined, const(NAN, a.dtype), select(infinite, a, modulo))
    more_b = where_flushed(apart, scale(b, const(_UP, a.dtype)), b)
    return q, copysign(select(_between(rest, b), rest + more_b, rest), b)


def _modulo(a: Expr, b: Expr, apart: Expr) -> Expr:
    """a - b · k, exactly, with an integer k that makes its magnitude about |b| / 2 or less, for finite |a| ≥ |b| > 0; scaled up
    where ``_far`` says so.

    With a = m · 2^d · 2^e and b = n · 2^e, this is m · 2^d modulo n, times 2^e; 2^d is computed by squaring. All numbers are
    integers of magnitude at most n; products are sums of two floats.
    """
    f = FORMATS[a.dtype]
    (m, upper), (n, lower) = _parts(a), _parts(b)
    d = maximum(upper - lower, 0)

    def centred(x: Expr) -> Expr:
        return fma(-unary("rint", x / n), n, x)

    def product(x: Expr, y: Expr) -> Expr:
        p = x * y
        return fma(-unary("rint", p / n), n, p) + fma(x, y, -p)

    count = _SQUARINGS[a.dtype]
    power = centred(bitcast(((d >> count) + f.bias) << f.fraction_bits, a.dtype))
    for bit in reversed(range(count)):
        square = product(power, power)
        power = centred(select(ne(d & (1 << bit), 0), square + square, square))
    exponent = cast(lower - (f.bias + f.fraction_bits), a.dtype)
    exponent = where_flushed(apart, exponent + _UP, exponent)
    out = scale(centred(product(centred(m), power)), exponent)
    return select(a < 0.0, -out, out)


def _parts(x: Expr) -> tuple[Expr, Expr]:
    """m, an integer as a float, and e, an integer, with |x| = m · 2^(e - bias - fraction_bits), for finite x."""
    f = FORMATS[x.dtype]
    bits = bitcast(absolute(x), f.integer)
    exponent = bits >> f.fraction_bits
    fraction = bits & ((1 << f.fraction_bits) - 1)
    whole = select(eq(exponent, 0), fraction, fraction | (1 << f.fraction_bits))
    return cast(whole, x.dtype), maximum(exponent, 1)
