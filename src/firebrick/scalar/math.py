"""Functions of floats, float32 or float64, in the scalar IR: a range reduction and a polynomial, valid for every operand.

Errors are at most 2 units in the last place (measured: see the tests), special values are IEEE 754's, denormals are supported.
Methods: exponentials and logarithms by the reductions of Muller, Elementary Functions, 3rd edition, 2016, chapter 11, with
fused steps; the tails of ``erf`` and ``gelu`` as exp(-x²) times a smooth factor (Cody, "Rational Chebyshev approximations for
the error function", Mathematics of Computation 23, 1969). ``periodic`` has sine and cosine, ``power`` powers.
"""

from __future__ import annotations

from dataclasses import dataclass

from firebrick.scalar.coefficients import NUMBERS, TABLE, TAIL_END
from firebrick.scalar.expr import (
    Expr,
    absolute,
    bitcast,
    cancelling_fma,
    cast,
    const,
    copysign,
    eq,
    fma,
    kept,
    maximum,
    minimum,
    muladd,
    nearest,
    polynomial,
    scale,
    select,
    sqrt,
    where_flushed,
)


@dataclass(frozen=True, slots=True)
class Format:
    """A float format.

    Attributes:
        integer: Integer dtype of its bits.
        fraction_bits: Number of bits of its fraction.
        bias: Bias of its exponent.
        low, high: exp(x) is 0 below ``low``, and infinite above ``high``.
        flat: For larger x, expm1(-x) is -1 and tanh(x) is 1.
        smallest: The smallest normal number.
    """

    integer: str
    fraction_bits: int
    bias: int
    low: float
    high: float
    flat: float
    smallest: float


FORMATS = {
    "float32": Format("int32", 23, 127, -105.0, 89.0, 20.0, 2.0**-126),
    "float64": Format("int64", 52, 1023, -746.0, 710.0, 40.0, 2.0**-1022),
}
INFINITY, NAN = float("inf"), float("nan")
NEAR_ZERO = 2.0**-60
"""For smaller |x|, x + c · x³ and x + c · x² round to x in float32, whose denormal steps ``where_flushed`` avoids."""


def table(name: str, x: Expr) -> tuple[float, ...]:
    """A polynomial's coefficients for the dtype of ``x``."""
    return TABLE[name, x.dtype]


def number(name: str, x: Expr) -> tuple[float, float, float]:
    """A constant as a sum of three floats of the dtype of ``x``."""
    return NUMBERS[name, x.dtype]


def first_term(x: Expr, out: Expr) -> Expr:
    """A function that is x + c · x² or x + c · x³ near 0, without denormal steps on targets that flush them."""
    return where_flushed(absolute(x) < NEAR_ZERO, x, out)


def clamped(x: Expr, low: float, high: float) -> Expr:
    """x clamped to [low, high]; NaN stays NaN."""
    return minimum(maximum(x, low), high)


# exponentials


def reduced(x: Expr) -> tuple[Expr, Expr]:
    """n, an integer as a float, and r in [-log(2)/2, log(2)/2] with x = n · log 2 + r, for |x| < 2^11."""
    high, low, _ = number("LN2", x)
    n = nearest(x, number("LOG2E", x)[0])
    return n, muladd(n, -low, cancelling_fma(n, -high, x))


def exp_minus_one(r: Expr) -> Expr:
    """exp(r) - 1 for |r| ≤ log(2)/2."""
    return muladd(r * r, polynomial(r, table("EXP", r)), r)


def exp_near(r: Expr) -> Expr:
    """exp(r) for |r| ≤ log(2)/2."""
    return muladd(muladd(polynomial(r, table("EXP", r)), r, 1.0), r, 1.0)


def exp(x: Expr) -> Expr:
    """e to the power x."""
    f = FORMATS[x.dtype]
    n, r = reduced(clamped(x, f.low, f.high))
    return scale(exp_near(r), n)


def exp_down(x: Expr) -> Expr:
    """e to the power x, for x ≤ 0 and NaN."""
    n, r = reduced(maximum(x, FORMATS[x.dtype].low))
    return scale(exp_near(r), n)


def exp2(x: Expr) -> Expr:
    """2 to the power x."""
    f = FORMATS[x.dtype]
    x = clamped(x, -f.bias - f.fraction_bits - 2.0, f.bias + 1.0)
    n = nearest(x)
    rest = x - n
    high, low, _ = number("LN2", x)
    return scale(exp_near(muladd(rest, high, rest * low)), n)


def expm1(x: Expr) -> Expr:
    """exp(x) - 1, accurate near 0."""
    f = FORMATS[x.dtype]
    n, r = reduced(clamped(x, -f.flat, f.high))
    half = scale(1.0, n - 1.0)  # 2^n may overflow although the result does not
    out = muladd(half, exp_minus_one(r), kept(half - 0.5)) * 2.0
    return first_term(x, select(absolute(x) < f.smallest, x, out))


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent."""
    f = FORMATS[x.dtype]
    size = minimum(absolute(x), f.flat / 2)
    n, r = reduced(size + size)
    far = 1.0 - 2.0 / (scale(exp_near(r), n) + 1.0)
    square = size * size
    near = muladd(size * square, polynomial(square, table("TANH", x)), size)
    return first_term(x, copysign(select(square < 0.4, near, far), x))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)), without overflow."""
    f = FORMATS[x.dtype]
    n, r = reduced(clamped(x, f.low, f.high - 1.0))
    power = scale(1.0, n)  # exp(-x) = exp(-r) / power, neither of which overflows
    signed_coefficients = [-c if i % 2 else c for i, c in enumerate(table("EXP", x))]
    rest = muladd(r * r, polynomial(r, signed_coefficients), -r)  # exp(-r) - 1
    return power / ((power + rest) + 1.0)  # in this order the smaller terms are added first, for a smaller error


def sinh(x: Expr) -> Expr:
    """Hyperbolic sine."""
    size, half = _half_exp(x)
    square = size * size
    near = muladd(size * square, polynomial(square, table("SINH", x)), size)
    return first_term(x, copysign(select(size < 1.0, near, half - 0.25 / half), x))


def cosh(x: Expr) -> Expr:
    """Hyperbolic cosine."""
    _, half = _half_exp(x)
    return half + 0.25 / half


def _half_exp(x: Expr) -> tuple[Expr, Expr]:
    """|x| and exp(|x|) / 2, which may be finite although exp(|x|) is not."""
    size = minimum(absolute(x), FORMATS[x.dtype].high + 1.0)
    n, r = reduced(size)
    return size, scale(exp_near(r), n - 1.0)


# logarithms


def split(x: Expr) -> tuple[Expr, Expr]:
    """k, an integer as a float, and f in [√½ - 1, √2 - 1] with x = 2^k · (1 + f), for positive normal x."""
    f = FORMATS[x.dtype]
    offset = bitcast(const(0.5**0.5, x.dtype), f.integer)
    bits = bitcast(x, f.integer)
    k = (bits - offset) >> f.fraction_bits
    return cast(k, x.dtype), kept(bitcast(bits - (k << f.fraction_bits), x.dtype) - 1.0)


def _split_any(x: Expr) -> tuple[Expr, Expr]:
    """``split`` for positive x, denormal or not."""
    f = FORMATS[x.dtype]
    tiny = x < f.smallest
    shift = float(f.fraction_bits + 2)
    k, rest = split(select(tiny, x * 2.0**shift, x))
    return k - select(tiny, const(shift, x.dtype), 0.0), rest


def _edges(x: Expr, out: Expr) -> Expr:
    """A logarithm with its special values: of 0, negative numbers, infinity and NaN."""
    special = select(eq(x, 0.0), const(-INFINITY, x.dtype), select(x < 0.0, const(NAN, x.dtype), x))
    return select((x > 0.0) & (x < INFINITY), out, special)


def _log_of_sum(k: Expr, f: Expr) -> Expr:
    """k · log 2 + log(1 + f)."""
    high, low, _ = number("LN2", f)
    return muladd(k, high, muladd(k, low, muladd(f * f, polynomial(f, table("LOG", f)), f)))


def log(x: Expr) -> Expr:
    """Natural logarithm."""
    return _edges(x, _log_of_sum(*_split_any(x)))


def log_of_normal(x: Expr) -> Expr:
    """Natural logarithm of positive normal numbers, without special values."""
    return _log_of_sum(*split(x))


def log1p(x: Expr) -> Expr:
    """log(1 + x), accurate near 0."""
    k, _ = split(x + 1.0)
    part = scale(1.0, -k)
    out = _log_of_sum(k, muladd(part, x, kept(part - 1.0)))  # f of 1 + x, computed without rounding 1 + x
    special = select(eq(x, -1.0), const(-INFINITY, x.dtype), select(x < -1.0, const(NAN, x.dtype), x))
    return first_term(x, select((x > -1.0) & (x < INFINITY), select(eq(x, 0.0), x, out), special))


def _log_to(f: Expr, name: str) -> Expr:
    """log(1 + f) times a constant."""
    high, low, _ = number(name, f)
    return muladd(f, high, muladd(f, low, f * f * polynomial(f, table("LOG", f)) * high))


def log2(x: Expr) -> Expr:
    """Logarithm to base 2."""
    k, f = _split_any(x)
    return _edges(x, k + _log_to(f, "LOG2E"))


def log10(x: Expr) -> Expr:
    """Logarithm to base 10."""
    k, f = _split_any(x)
    high, low, _ = number("LOG10_2", x)
    return _edges(x, muladd(k, high, muladd(k, low, _log_to(f, "LOG10_E"))))


def logaddexp(x: Expr, y: Expr) -> Expr:
    """log(exp(x) + exp(y)), without overflow."""
    apart = absolute(x - y)
    return select(eq(x, y), x + number("LN2", x)[0], maximum(x, y) + log1p(exp(-apart)))


# the normal distribution


def _tail(size: Expr, n: Expr, rest: Expr) -> Expr:
    """Φ(-a) · exp(a²/2) · 2^n · (1 + rest), with Φ the normal distribution function, for 0 ≤ a ≤ ``TAIL_END``.

    It is P / (P · L + R): P is both in the numerator and in the denominator, so that its rounding errors nearly cancel.
    """
    top = polynomial(size, table("TAIL", size))
    below = muladd(top, polynomial(size, table("TAIL_LINE", size)), polynomial(size, table("TAIL_REST", size)))
    return scale(muladd(top, rest, top), n) / below


def _bell(x: Expr) -> tuple[Expr, Expr, Expr]:
    """a = |x|, and n and s with exp(-a²/2) = 2^n · (1 + s)."""
    size = minimum(absolute(x), TAIL_END[x.dtype])
    minus = size * -0.5
    # a² is not rounded before n · log 2 is subtracted: n · high is exact, and so is the fused product
    high, low = _short_log2(x.dtype)
    n = nearest(minus * size, number("LOG2E", x)[0])
    return size, n, exp_minus_one(muladd(n, -low, fma(minus, size, n * -high)))


def _short_log2(dtype: str) -> tuple[float, float]:
    """log 2 as a sum of two floats, the first with 11 bits fewer, so that its products with small integers are exact."""
    unit = 2.0 ** (FORMATS[dtype].fraction_bits - 10)
    first, second, third = NUMBERS["LN2", dtype]
    high = int(first * unit) / unit
    return high, (first - high) + (second + third)


def gelu(x: Expr) -> Expr:
    """x · Φ(x), with Φ the normal distribution function; NaN at -∞, like the product.

    The error is at most 2 units in the last place of |x|. For very negative x, where the result is near 0, it is up to 5 units
    of the result, and more near denormal results.
    """
    size, n, rest = _bell(x)
    # x · tail for negative x, x - |x| · tail for positive x, whose |x| is clamped: infinity times 0 would be NaN
    out = copysign(muladd(minimum(x, -size), _tail(size, n, rest), maximum(x, 0.0)), x)
    return where_flushed(absolute(x) < NEAR_ZERO, x * 0.5, out)


def gelu_gradient(g: Expr, x: Expr) -> Expr:
    """g · (Φ(x) + x · φ(x))."""
    size, n, rest = _bell(x)
    tail = _tail(size, n, rest)
    return g * muladd(x * 0.3989422804014327, scale(rest + 1.0, n), select(x > 0.0, 1.0 - tail, tail))


def erf(x: Expr) -> Expr:
    """The error function."""
    size = minimum(absolute(x), 4.0 if x.dtype == "float32" else 6.0)
    n, r = reduced(-(size * size))
    far = muladd(_tail(size * 2.0**0.5, n, exp_minus_one(r)), -2.0, 1.0)
    coefficients = table("ERF", x)
    near = muladd(size, polynomial(size * size, coefficients), size)
    large = scale(size, const(66.0, x.dtype))
    tiny = scale(muladd(large, coefficients[0], large), const(-66.0, x.dtype))
    return copysign(where_flushed(size < NEAR_ZERO, tiny, select(size < 1.0, near, far)), x)


# roots


def rsqrt(x: Expr) -> Expr:
    """1 / √x."""
    return 1.0 / sqrt(x)


def hypot(x: Expr, y: Expr) -> Expr:
    """√(x² + y²), without overflow or underflow of the squares."""
    a, b = absolute(x), absolute(y)
    large = maximum(a, b)
    half_bias = FORMATS[x.dtype].bias // 2
    # a power of 2 scales the operands so that the squares do not overflow, and the larger one is not denormal
    down, up = 2.0 ** -(half_bias + 8), 2.0 ** (half_bias + 24)
    vast, tiny = large > 2.0 ** (half_bias - 2), large < 2.0 ** -(half_bias - FORMATS[x.dtype].fraction_bits // 2 - 4)
    factor = select(vast, const(down, x.dtype), select(tiny, const(up, x.dtype), 1.0))
    unscale = select(vast, const(1 / down, x.dtype), select(tiny, const(1 / up, x.dtype), 1.0))
    a, b = a * factor, b * factor
    out = sqrt(muladd(a, a, b * b)) * unscale
    infinite = eq(absolute(x), INFINITY) | eq(absolute(y), INFINITY)
    return select(infinite, const(INFINITY, x.dtype), out)
