"""Inverses of the trigonometric and hyperbolic functions, with errors of at most 2 units in the last place.

Each is one polynomial of a reduced operand, with selections instead of branches, so that vectors compute it without divergence.
The inverse hyperbolic functions are logarithms of a double-word number, which keeps them accurate where the logarithm is
near 0. Methods: Muller, Elementary Functions, 3rd edition, 2016, chapter 11; Cody and Waite, Software Manual for the
Elementary Functions, 1980, chapters 9 to 11.
"""

from __future__ import annotations

from firebrick.scalar.double_word import ordered_sum, quotient, square_root, two_product, two_sum
from firebrick.scalar.expr import (
    Expr,
    Operand,
    absolute,
    bitcast,
    cast,
    const,
    copysign,
    eq,
    kept,
    maximum,
    minimum,
    muladd,
    ne,
    polynomial,
    select,
    sqrt,
)
from firebrick.scalar.math import FORMATS, INFINITY, NAN, first_term, number, table


def asin(x: Expr) -> Expr:
    """The angle in [-π/2, π/2] whose sine is x, in radians; NaN for |x| > 1."""
    far, base, rest = _arc(x)
    high, low, _ = number("HALF_PI", x)
    # π/2 - 2 · (base + rest), without rounding base + rest, which may be as large as the result
    left, lost = ordered_sum(high, base * -2.0)
    return first_term(x, copysign(select(far, left + muladd(rest, -2.0, lost + low), base + rest), x))


def acos(x: Expr) -> Expr:
    """The angle in [0, π] whose cosine is x, in radians; NaN for |x| > 1."""
    far, base, rest = _arc(x)
    high, low, _ = number("HALF_PI", x)
    angle = base + rest
    twice = angle + angle
    outer = select(x < 0.0, 2 * high - (twice - 2 * low), twice)
    return select(far, outer, high - (copysign(angle, x) - low))


def _arc(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether |x| is above ½, and two floats whose sum is asin |x|, or asin √((1 - |x|) / 2) above ½."""
    size = absolute(x)
    far = size > 0.5
    square = select(far, muladd(size, -0.5, 0.5), x * x)
    base = select(far, sqrt(square), size)
    return far, base, base * square * polynomial(square, table("ASIN", x))


def atan(x: Expr) -> Expr:
    """The angle in [-π/2, π/2] whose tangent is x, in radians."""
    size = absolute(x)
    far = size > 1.0
    high, low, _ = number("HALF_PI", x)
    angle = _short_atan(select(far, 1.0 / size, size))
    return first_term(x, copysign(select(far, high - (angle - low), angle), x))


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y) in [-π, π], in radians; special values are IEEE 754's."""
    high, low, _ = number("HALF_PI", x)
    f = FORMATS[x.dtype]
    across, up = absolute(x), absolute(y)
    large, small = maximum(across, up), minimum(across, up)
    ratio = select(eq(large, 0.0), large, select(eq(small, INFINITY), 1.0, small / large))
    angle = _short_atan(ratio)
    steep, left = up > across, bitcast(x, f.integer) < 0
    # the angle of the axis nearest to the point, plus or minus the angle between that axis and the point
    axis = select(steep, const(high, x.dtype), select(left, const(2 * high, x.dtype), 0.0))
    rest = select(steep, const(low, x.dtype), select(left, const(2 * low, x.dtype), 0.0))
    return copysign(axis + (select(ne(steep, left), -angle, angle) + rest), y)


def _short_atan(t: Expr) -> Expr:
    """atan(t) for 0 ≤ t ≤ 1."""
    square = t * t
    return muladd(t * square, polynomial(square, table("ATAN", t)), t)


def asinh(x: Expr) -> Expr:
    """The number whose hyperbolic sine is x."""
    size, f = absolute(x), FORMATS[x.dtype]
    square, lost = two_product(size, size)
    below, below_lost = two_sum(square, 1.0)
    root, root_lost = square_root(below, below_lost + lost)
    total, total_lost = ordered_sum(root, size)
    out = _log_of_double(size, total, total_lost + root_lost)
    # x - x³/6 where the next term is less than 1/16 of a unit in the last place
    tiny = size < 2.0 ** -((f.fraction_bits + 5) // 4)
    return first_term(x, copysign(select(tiny, muladd(size * square, -1 / 6, size), out), x))


def acosh(x: Expr) -> Expr:
    """The number, at least 0, whose hyperbolic cosine is x; NaN below 1."""
    square, lost = two_product(x, x)
    below, below_lost = ordered_sum(square, const(-1.0, x.dtype))
    root, root_lost = square_root(below, below_lost + lost)
    total, total_lost = ordered_sum(x, root)
    out = _log_of_double(x, total, total_lost + root_lost)
    return select(x > 1.0, out, select(eq(x, 1.0), const(0.0, x.dtype), NAN))


def _log_of_double(size: Expr, total: Expr, lost: Expr) -> Expr:
    """log(total + lost), or log(2 · size) where ``size``² + 1 rounds to ``size``²."""
    f = FORMATS[size.dtype]
    vast = size > 2.0 ** (f.fraction_bits // 2 + 3)
    out = _log_of_sum(select(vast, size, total), select(vast, 0.0, lost), select(vast, const(1.0, size.dtype), 0.0))
    return select(absolute(size) < INFINITY, out, size)


def atanh(x: Expr) -> Expr:
    """The number whose hyperbolic tangent is x; infinite for |x| = 1, NaN for |x| > 1."""
    size = absolute(x)
    square = size * size
    near = muladd(size * square, polynomial(square, table("ATANH", x)), size)
    above, lost = ordered_sum(1.0, size)
    far = _log_of_sum(*quotient(above, lost, 1.0 - size), const(0.0, x.dtype)) * 0.5
    edge = select(eq(size, 1.0), const(INFINITY, x.dtype), NAN)
    return first_term(x, copysign(select(size < 0.5, near, select(size < 1.0, far, edge)), x))


def _log_of_sum(high: Expr, low: Expr, more: Operand) -> Expr:
    """log(high + low) + more · log 2, for positive normal ``high``; relative to the sum's distance from 1."""
    f = FORMATS[high.dtype]
    offset = bitcast(const(0.5**0.5, high.dtype), f.integer)
    bits = bitcast(high, f.integer)
    k = (bits - offset) >> f.fraction_bits
    # high + low = 2^k · (1 + r + lost); 1 is subtracted from the fraction exactly
    fraction = kept(bitcast(bits - (k << f.fraction_bits), high.dtype) - 1.0)
    part = low * bitcast(maximum(f.bias - k, 0) << f.fraction_bits, high.dtype)  # low is 0 for sums from 2^bias on
    r, lost = ordered_sum(fraction, part)
    near = muladd(r * r, polynomial(r, table("LOG", r)), lost)
    power = cast(k, high.dtype) + more
    first, second, _ = number("LN2", high)
    return muladd(power, first, muladd(power, second, r + near))
