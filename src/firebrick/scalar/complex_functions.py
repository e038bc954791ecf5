"""Functions of one complex number, made of functions of its parts.

Special values are those of C's Annex G, and of the NumPy references where it leaves a choice; errors are relative to the
result's modulus, and nothing overflows where the result does not. Branch cuts follow the signs of zeros. Source: Kahan, "Branch
cuts for complex elementary functions, or much ado about nothing's sign bit", in The State of the Art in Numerical Analysis,
1987.
"""

from __future__ import annotations

from firebrick.scalar import inverse, math
from firebrick.scalar.complex_numbers import Parts, multiply, scaled
from firebrick.scalar.expr import (
    Expr,
    absolute,
    const,
    copysign,
    eq,
    maximum,
    minimum,
    muladd,
    ne,
    scale,
    select,
    where_flushed,
)
from firebrick.scalar.expr import sqrt as root
from firebrick.scalar.math import FORMATS, INFINITY, NAN, clamped, exp_near, number, reduced
from firebrick.scalar.periodic import cos as cosine
from firebrick.scalar.periodic import sin as sine

_ROOM = {"float32": 169.0, "float64": 1380.0}
"""Bound of operands whose exponential, times a number below 1 that may be small, ``scale`` computes in one step."""


def _finite(x: Expr) -> Expr:
    return absolute(x) < INFINITY


def _infinite(x: Expr) -> Expr:
    return eq(absolute(x), INFINITY)


def _exp_times(x: Expr, factor: Expr, less: float = 0.0) -> Expr:
    """exp(x) · factor / 2^less for |factor| ≤ 1, where the exponential alone may overflow."""
    most = _ROOM[x.dtype]
    n, r = reduced(clamped(x, FORMATS[x.dtype].low, most))
    return select(x > most, factor * INFINITY, scale(exp_near(r) * factor, n - less if less else n))


# exponentials


def exp(z: Parts) -> Parts:
    """e to the power z."""
    x, y = z
    re, im = _exp_times(x, cosine(y)), select(eq(y, 0.0), y, _exp_times(x, sine(y)))
    no_angle = ~_finite(y)
    zero, infinite = no_angle & eq(x, -INFINITY), no_angle & eq(x, INFINITY)
    return Parts(select(zero, 0.0, select(infinite, INFINITY, re)), select(zero, copysign(const(0.0, x.dtype), y), im))


def expm1(z: Parts) -> Parts:
    """exp(z) - 1, accurate near 0."""
    x, y = z
    half = sine(y * 0.5)
    near = muladd(math.expm1(x), cosine(y), half * half * -2.0) + 0.0  # -0.0 becomes 0.0
    re, im = exp(z)
    re = select((absolute(x) < FORMATS[x.dtype].flat) & _finite(y), near, re - 1.0)
    return Parts(select(eq(y, 0.0), math.expm1(x) + 0.0, re), im)


def _hyperbolic(x: Expr, y: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """sinh x · cos y, cosh x · sin y, cosh x · cos y and sinh x · sin y."""
    c, s, size = cosine(y), sine(y), absolute(x)
    far = size > FORMATS[x.dtype].flat
    sinh, cosh = math.sinh(x), math.cosh(x)
    far_c, far_s = _exp_times(size, c, 1.0), _exp_times(size, s, 1.0)
    sign = copysign(const(1.0, x.dtype), x)
    return (
        select(far, sign * far_c, sinh * c), select(far, far_s, cosh * s), select(far, far_c, cosh * c),
        select(far, sign * far_s, sinh * s),
    )  # fmt: skip


def sinh(z: Parts) -> Parts:
    """Hyperbolic sine."""
    x, y = z
    re, im, _, _ = _hyperbolic(x, y)
    no_angle = ~_finite(y)
    re = select(no_angle & eq(x, 0.0), x, select(no_angle & _infinite(x), INFINITY, re))
    return Parts(re, select(eq(y, 0.0), y, im))


def cosh(z: Parts) -> Parts:
    """Hyperbolic cosine."""
    x, y = z
    _, _, re, im = _hyperbolic(x, y)
    no_angle = ~_finite(y)
    real = y * copysign(const(1.0, x.dtype), select(eq(x, x), x, 1.0))
    re = select(no_angle & _infinite(x), INFINITY, re)
    return Parts(re, select(eq(y, 0.0), real, select(no_angle & eq(x, 0.0), 0.0, im)))


def tanh(z: Parts) -> Parts:
    """Hyperbolic tangent: (sinh x · cosh x + i · sin y · cos y) / (sinh² x + cos² y)."""
    x, y = z
    f = FORMATS[x.dtype]
    size, c, s = absolute(x), cosine(y), sine(y)
    far = size > f.flat / 2
    sinh, cosh = math.sinh(minimum(size, f.flat)), math.cosh(minimum(size, f.flat))
    divisor = muladd(sinh, sinh, c * c)
    sign = copysign(const(1.0, x.dtype), x)
    re = select(far, sign, sign * (sinh * cosh / divisor))
    # for large x, 4 · sin y · cos y · exp(-2x)
    im = select(far, s * c * (math.exp_down(maximum(size * -2.0, f.low)) * 4.0), s * c / divisor)
    re = select(_finite(y) | _infinite(x), re, select(eq(x, 0.0), x, NAN))
    zero = copysign(const(0.0, x.dtype), select(eq(y, y), y, 0.0))
    return Parts(re, select(_infinite(x), zero, select(eq(y, 0.0), y, im)))


# logarithms and roots


def _limits(x: Expr) -> tuple[float, float]:
    """Numbers between these have squares that are normal, with all digits of a sum of two."""
    f = FORMATS[x.dtype]
    return 2.0 ** -(f.bias // 2 - f.fraction_bits // 2 - 4), 2.0 ** (f.bias // 2 - 2)


def _square_sum(x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """(x² + y²) / 2^2k, which neither overflows nor loses digits, and k."""
    f = FORMATS[x.dtype]
    low, high = _limits(x)
    size = maximum(absolute(x), absolute(y))
    down, up = f.bias // 2 + 8, f.bias // 2 + f.fraction_bits + 24
    k = select(size > high, const(down, x.dtype), select(size < low, const(-up, x.dtype), 0.0))
    factor = select(size > high, const(2.0**-down, x.dtype), select(size < low, const(2.0**up, x.dtype), 1.0))
    a, b = x * factor, y * factor
    return muladd(a, a, b * b), k


def _log_size(x: Expr, y: Expr) -> Expr:
    """log |x + iy|, accurate where that is near 1."""
    a, b = maximum(absolute(x), absolute(y)), minimum(absolute(x), absolute(y))
    near = (a > 0.5) & (a < 2.0) & (b < 1.0)
    total, k = _square_sum(x, y)
    high, low, _ = number("LN2", x)
    far = muladd(k, high, muladd(math.log(total), 0.5, k * low))
    out = select(near, math.log1p(muladd(a - 1.0, a + 1.0, b * b)) * 0.5, far)
    return select(_infinite(x) | _infinite(y), INFINITY, out)


def log(z: Parts) -> Parts:
    """Natural logarithm, its imaginary part in [-π, π]."""
    return Parts(_log_size(z.re, z.im), inverse.atan2(z.im, z.re))


def log2(z: Parts) -> Parts:
    """Logarithm to base 2."""
    return scaled(log(z), const(number("LOG2E", z.re)[0], z.re.dtype))


def log10(z: Parts) -> Parts:
    """Logarithm to base 10."""
    return scaled(log(z), const(number("LOG10_E", z.re)[0], z.re.dtype))


def log1p(z: Parts) -> Parts:
    """log(1 + z), accurate near 0."""
    x, y = z
    moved = x + 1.0
    near = math.log1p(muladd(x, x + 2.0, y * y)) * 0.5
    small = maximum(absolute(x), absolute(y)) < 0.4
    return Parts(select(small, near, _log_size(moved, y)), inverse.atan2(y, moved))


def sqrt(z: Parts) -> Parts:
    """Square root, with a real part of at least 0."""
    x, y = z
    f = FORMATS[x.dtype]
    low, high = _limits(x)
    size = maximum(absolute(x), absolute(y))
    # scaled by a power of 4, the larger part has a square that is normal, with all digits of the sum
    down, up = f.bias // 4 + 16, f.bias // 4 + f.fraction_bits
    factor = select(size > high, const(4.0**-down, x.dtype), select(size < low, const(4.0**up, x.dtype), 1.0))
    back = select(size > high, const(2.0**down, x.dtype), select(size < low, const(2.0**-up, x.dtype), 1.0))
    a, b = x * factor, y * factor
    larger = root((absolute(a) + root(muladd(a, a, b * b))) * 0.5)
    other = b / (larger + larger)
    left = x < 0.0
    re, im = select(left, absolute(other), larger) * back, select(left, copysign(larger, b), other) * back
    zero = copysign(const(0.0, x.dtype), y)
    infinity = copysign(const(INFINITY, x.dtype), y)
    re = select(_infinite(x), select(left, y - y, INFINITY), re)
    im = select(_infinite(x), select(left, infinity, select(eq(y, y), zero, y)), im)
    re, im = select(eq(size, 0.0), 0.0, re), select(eq(size, 0.0), y, im)
    return Parts(select(_infinite(y), INFINITY, re), select(_infinite(y), y, im))


def power(z: Parts, w: Parts) -> Parts:
    """z to the power w: exp(w · log z), but 1 for an exponent of 0."""
    re, im = exp(multiply(w, log(z)))
    zero_base, zero_exponent = eq(z.re, 0.0) & eq(z.im, 0.0), eq(w.re, 0.0) & eq(w.im, 0.0)
    positive, negative = w.re > 0.0, w.re < 0.0
    nan = const(NAN, w.re.dtype)
    re = select(zero_base, select(positive, 0.0, select(negative, INFINITY, nan)), re)
    im = select(zero_base, select(positive, 0.0, nan), im)
    return Parts(select(zero_exponent, 1.0, re), select(zero_exponent, 0.0, im))


# inverses


def _is_infinite(z: Parts) -> Expr:
    """Whether a number is infinite."""
    return _infinite(z.re) | _infinite(z.im)


def _infinity_like(y: Expr) -> Expr:
    """Infinity with the sign of y; positive for NaN."""
    return copysign(const(INFINITY, y.dtype), select(eq(y, y), y, 1.0))


def asin(z: Parts) -> Parts:
    """Inverse sine."""
    x, y = z
    a, b = sqrt(Parts(1.0 - x, -y)), sqrt(Parts(x + 1.0, y))
    infinite = _is_infinite(z)
    re = inverse.atan2(x, select(infinite, absolute(y), muladd(a.re, b.re, -(a.im * b.im))))
    im = inverse.asinh(muladd(a.re, b.im, -(a.im * b.re)))
    linear = (absolute(y) < math.NEAR_ZERO) & (absolute(x) < 1.0)
    im = where_flushed(linear, y / root((1.0 - x) * (x + 1.0)), im)
    re = where_flushed(absolute(x) < math.NEAR_ZERO, x / root(muladd(y, y, 1.0)), re)
    return Parts(select(eq(x, 0.0), x, re), select(infinite, _infinity_like(y), im))


def acos(z: Parts) -> Parts:
    """Inverse cosine."""
    x, y = z
    a, b = sqrt(Parts(1.0 - x, -y)), sqrt(Parts(x + 1.0, y))
    infinite = _is_infinite(z)
    angle = inverse.atan2(select(infinite, absolute(y), a.re), select(infinite, x, b.re))
    re = select(infinite, angle, angle * 2.0)
    im = inverse.asinh(muladd(b.re, a.im, -(b.im * a.re)))
    return Parts(select(_imaginary_nan(z), number("HALF_PI", x)[0], re), select(infinite, -_infinity_like(y), im))


def acosh(z: Parts) -> Parts:
    """Inverse hyperbolic cosine, with a real part of at least 0."""
    x, y = z
    a, b = sqrt(Parts(x - 1.0, y)), sqrt(Parts(x + 1.0, y))
    infinite = _is_infinite(z)
    re = inverse.asinh(muladd(a.re, b.re, a.im * b.im))
    angle = inverse.atan2(select(infinite, y, a.im), select(infinite, x, b.re))
    im = select(_imaginary_nan(z), number("HALF_PI", x)[0], select(infinite, angle, angle * 2.0))
    return Parts(select(infinite, INFINITY, re), im)


def _imaginary_nan(z: Parts) -> Expr:
    """Whether the real part is 0 and the imaginary part NaN."""
    return eq(z.re, 0.0) & ne(z.im, z.im)


def atanh(z: Parts) -> Parts:
    """Inverse hyperbolic tangent."""
    x, y = z
    size, difference = absolute(x), 1.0 - absolute(x)
    re = math.log1p(size / muladd(difference, difference, y * y) * 4.0) * 0.25
    # the square of a small y underflows where x is 1, and is nothing beside 4
    at_one = (number("LN2", x)[0] - math.log(absolute(y))) * 0.5
    re = select(eq(size, 1.0) & (absolute(y) < 2.0**-30), at_one, re)
    im = inverse.atan2(y, muladd(difference, size + 1.0, -(y * y)) * 0.5) * 0.5
    infinite, right_angle = _is_infinite(z), const(number("HALF_PI", x)[0], x.dtype)
    re = copysign(const(1.0, x.dtype), x) * select(infinite | eq(x, 0.0), 0.0, re)
    return Parts(re, select(infinite & eq(y, y), copysign(right_angle, y), im))


# with the parts exchanged: sin(x + iy) is b + ia where sinh(y + ix) is a + ib, and so of the other odd functions


def _exchanged(z: Parts) -> Parts:
    return Parts(z.im, z.re)


def sin(z: Parts) -> Parts:
    """Sine."""
    return _exchanged(sinh(_exchanged(z)))


def cos(z: Parts) -> Parts:
    """Cosine."""
    return cosh(Parts(-z.im, z.re))


def tan(z: Parts) -> Parts:
    """Tangent."""
    return _exchanged(tanh(_exchanged(z)))


def atan(z: Parts) -> Parts:
    """Inverse tangent."""
    return _exchanged(atanh(_exchanged(z)))


def asinh(z: Parts) -> Parts:
    """Inverse hyperbolic sine."""
    return _exchanged(asin(_exchanged(z)))
