"""Powers: of floats by a logarithm of twice the precision, of integers by squaring."""

from __future__ import annotations

from firebrick.scalar.double_word import ordered_sum, two_product
from firebrick.scalar.expr import (
    BITS,
    SIGNED,
    Expr,
    absolute,
    bitcast,
    const,
    copysign,
    eq,
    fma,
    muladd,
    ne,
    nearest,
    polynomial,
    scale,
    select,
    unary,
    where_flushed,
)
from firebrick.scalar.math import FORMATS, INFINITY, NAN, clamped, number, split, table

_TERMS = {"float32": 5, "float64": 12}
"""Number of terms of the logarithm's series after the first two."""
_BEYOND = {"float32": 110.0, "float64": 800.0}
"""Magnitude of exponents, beyond which the exponential is infinite or 0."""


def power(x: Expr, y: Expr) -> Expr:
    """x to the power y. Floats follow IEEE 754's ``pow``. Integers wrap; with negative exponents, they are truncated."""
    if x.dtype not in ("float32", "float64"):
        return _integer_power(x, y)
    exact_y = y
    # any power of such a small exponent rounds to 1, but for those of 0 and infinity
    y = where_flushed(absolute(y) < 2.0**-100, copysign(const(2.0**-100, y.dtype), y), y)
    size = absolute(x)
    out = _of_size(size, y)
    half = y * 0.5
    whole = eq(unary("floor", y), y)
    odd = whole & ne(unary("floor", half), half)
    signed = select((bitcast(x, FORMATS[x.dtype].integer) < 0) & odd, -out, out)
    valid = whole | ~((x < 0.0) & (size < INFINITY))
    return select(eq(exact_y, 0.0) | eq(x, 1.0) | (eq(x, -1.0) & eq(absolute(y), INFINITY)), 1.0, select(valid, signed, NAN))


def _ends(size: Expr, logarithm: Expr) -> Expr:
    """The logarithm with its special values: of 0, infinity and NaN."""
    return select((size > 0.0) & (size < INFINITY), logarithm, select(eq(size, 0.0), const(-INFINITY, size.dtype), size))


def _of_size(size: Expr, y: Expr) -> Expr:
    """exp(y · log |x|), with the logarithm as a sum of two floats, whose error is 2^-36 for float32 and 2^-64 for float64."""
    f = FORMATS[size.dtype]
    tiny = size < f.smallest
    shift = float(f.fraction_bits + 2)
    k, r = split(select(tiny, size * 2.0**shift, size))
    k = k - select(tiny, const(shift, size.dtype), 0.0)
    # s = r / (2 + r), so that log(1 + r) = 2s · (1 + w/3 + w²/5 + …) with w = s² ≤ 0.03
    below, below_lost = ordered_sum(const(2.0, size.dtype), r)
    s = r / below
    s_lost = (fma(-s, below, r) - s * below_lost) / below
    w, w_lost = two_product(s, s)
    w_lost = w_lost + (s + s) * s_lost
    third, third_lost, _ = number("THIRD", size)
    a, a_lost = two_product(w, third)
    a_lost = a_lost + muladd(w, third_lost, w_lost * third)
    rest = w * w * polynomial(w, [1 / (2 * i + 5) for i in range(_TERMS[size.dtype])])
    c, c_lost = ordered_sum(a, rest)
    c_lost = c_lost + a_lost
    double = s + s
    p, p_lost = two_product(double, c)
    p_lost = p_lost + muladd(double, c_lost, (s_lost + s_lost) * c)
    t, t_lost = ordered_sum(double, p)
    t_lost = t_lost + (s_lost + s_lost + p_lost)
    high, low, _ = number("LN2", size)
    b, b_lost = two_product(k, high)
    b_lost = b_lost + k * low
    total, lost = ordered_sum(b, t)
    lost = lost + (b_lost + t_lost)
    z = y * _ends(size, total)
    z_lost = fma(y, total, -z) + y * lost
    inside = absolute(z) < _BEYOND[size.dtype]
    z = clamped(z, -_BEYOND[size.dtype], _BEYOND[size.dtype])
    n = nearest(z, number("LOG2E", size)[0])
    # exp(e + rest) = 1 + e + (e² · P(e) + rest · (1 + e)); only the last sum is rounded, so that exact powers are exact
    e, rest = ordered_sum(fma(n, -high, z), muladd(n, -low, select(inside, z_lost, 0.0)))
    one, one_lost = ordered_sum(const(1.0, size.dtype), e)
    more = muladd(e * e, polynomial(e, table("EXP", e)), muladd(rest, e, rest))
    return scale(one + (one_lost + more), n)


def _integer_power(x: Expr, y: Expr) -> Expr:
    if y.op == "const" and int(y.value or 0) >= 0:
        return _squarings(x, int(y.value or 0))
    signed = x.dtype in SIGNED
    out: Expr = const(1, x.dtype)
    base, bits = x, BITS[y.dtype] - signed
    for i in range(bits):
        out = select(ne(y & (1 << i), 0), out * base, out)
        base = base * base if i < bits - 1 else base
    if not signed:
        return out
    unit = select(ne(y & 1, 0), x, 1)
    inverse = select(eq(x, 1), const(1, x.dtype), select(eq(x, -1), unit, 0))
    return select(y < 0, inverse, out)


def _squarings(x: Expr, n: int) -> Expr:
    out: Expr | None = None
    while n:
        if n & 1:
            out = x if out is None else out * x
        n >>= 1
        x = x * x if n else x
    return const(1, x.dtype) if out is None else out
