"""Sine, cosine and tangent for every operand.

Operands below ``LIMIT`` are reduced by multiples of π/2, which is a sum of three floats (Cody and Waite, Software Manual for
the Elementary Functions, 1980). For larger operands, a rare branch multiplies the significand by those bits of 2/π that affect
the result, in integers (Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983).
"""

from __future__ import annotations

from firebrick.scalar.coefficients import TWO_OVER_PI
from firebrick.scalar.double_word import ordered_sum, two_product, two_sum
from firebrick.scalar.expr import (
    BITS,
    Expr,
    absolute,
    bitcast,
    cast,
    const,
    eq,
    fma,
    muladd,
    ne,
    nearest,
    nearest_bits,
    polynomial,
    rarely,
    select,
)
from firebrick.scalar.math import FORMATS, INFINITY, NAN, first_term, number, table

LIMIT = {"float32": 65536.0, "float64": 16777216.0}
"""Bound of operands that are reduced by three floats of π/2."""


def sin(x: Expr) -> Expr:
    """Sine of x in radians."""
    near = select(eq(x, 0.0), x, _value(*_near(x)))
    turns, r, _ = _far(x)
    # sin(-a) = -sin(a) = sin(a + π): two quarter turns more
    return first_term(x, _joined(x, _value(select(x < 0.0, turns + 2, turns), r), near))


def cos(x: Expr) -> Expr:
    """Cosine of x in radians."""
    turns, r = _near(x)
    far, s, _ = _far(x)
    return _joined(x, _value(far + 1, s), _value(turns + 1, r))


def tan(x: Expr) -> Expr:
    """Tangent of x in radians."""
    near = select(eq(x, 0.0), x, _ratio(*_near_double(x)))
    far = _ratio(*_far(x))
    return first_term(x, _joined(x, select(x < 0.0, -far, far), near))


def _joined(x: Expr, far: Expr, near: Expr) -> Expr:
    """The value for operands of either size; NaN for infinities."""
    return rarely(~(absolute(x) < LIMIT[x.dtype]), select(absolute(x) < INFINITY, far, const(NAN, x.dtype)), near)


def _value(turns: Expr, r: Expr) -> Expr:
    """sin(turns · π/2 + r)."""
    f = FORMATS[r.dtype]
    out = select(ne(turns & 1, 0), _cosine(r), _sine(r))
    sign = (turns & 2) << (f.fraction_bits + {"float32": 7, "float64": 10}[r.dtype])
    return bitcast(bitcast(out, f.integer) ^ sign, r.dtype)


def _sine(r: Expr) -> Expr:
    square = r * r
    return muladd(r * square, polynomial(square, table("SIN", r)), r)


def _cosine(r: Expr) -> Expr:
    square = r * r
    return muladd(square * square, polynomial(square, table("COS", r)), muladd(square, -0.5, 1.0))


def _ratio(turns: Expr, r: Expr, lost: Expr) -> Expr:
    """tan(turns · π/2 + r + lost): the quotient of sine and cosine, both as sums of two floats."""
    square = r * r
    half = square * 0.5
    # sin(r + e) = sin r + e · cos r, cos(r + e) = cos r - e · sin r
    sine = ordered_sum(r, muladd(r * square, polynomial(square, table("SIN", r)), muladd(-half, lost, lost)))
    below, below_lost = ordered_sum(const(1.0, r.dtype), -half)
    rest = below_lost - muladd(r, lost, fma(r, r, -square) * 0.5)
    cosine = ordered_sum(below, muladd(square * square, polynomial(square, table("COS", r)), rest))
    odd = ne(turns & 1, 0)
    above = [select(odd, -c, s) for s, c in zip(sine, cosine, strict=True)]
    by, by_lost = (select(odd, s, c) for s, c in zip(sine, cosine, strict=True))
    inverse = 1.0 / by
    q = above[0] * inverse
    return q + (fma(-q, by, above[0]) + (above[1] - q * by_lost)) * inverse


def _near(x: Expr) -> tuple[Expr, Expr]:
    """n, an integer, and r with x = n · π/2 + r."""
    first, second, third = number("HALF_PI", x)
    n = nearest(x, 2 / 3.141592653589793)
    return nearest_bits(x, 2 / 3.141592653589793), muladd(n, -third, fma(n, -second, fma(n, -first, x)))


def _near_double(x: Expr) -> tuple[Expr, Expr, Expr]:
    """The same as ``_near``, with r as a sum of two floats."""
    first, second, third = number("HALF_PI", x)
    n = nearest(x, 2 / 3.141592653589793)
    step, step_lost = two_product(n, -second)
    r, lost = two_sum(fma(n, -first, x), step)  # the product with the first float is exact where it cancels
    return nearest_bits(x, 2 / 3.141592653589793), *ordered_sum(r, muladd(n, -third, lost + step_lost))


def _far(x: Expr) -> tuple[Expr, Expr, Expr]:
    """n modulo 4, as an integer, and r as a sum of two floats with |x| = n · π/2 + r, for |x| ≥ ``LIMIT``."""
    turn, below = _turn32(x) if x.dtype == "float32" else _turn64(x)
    n = (turn + (1 << 61)) >> 62
    part = cast(turn - (n << 62), "int64")
    negative, size = part < 0, absolute(part)
    rest = (1 << (61 - FORMATS[x.dtype].fraction_bits - 1)) - 1  # the low bits, which a float of this size cannot hold
    high = cast(size & ~rest, x.dtype)
    low = cast(size & rest, x.dtype)
    if below is not None:
        low = low + select(negative, -below, below)
    # times π/2 in units of 2^-62
    first, second, _ = (v * 2.0**-62 for v in number("HALF_PI", x))
    p, lost = two_product(high, first)
    r, lost = ordered_sum(p, lost + muladd(high, second, low * first))
    return cast(n, FORMATS[x.dtype].integer), select(negative, -r, r), select(negative, -lost, lost)


def _window(start: Expr, reach: int, count: int) -> list[Expr]:
    """``count`` + 1 words of the bits of 2/π, after 32 zeros, from the word that holds bit ``start`` on.

    Args:
        start: Number of the first bit, in the first ``reach`` words; the words have its dtype.
        reach: A power of 2.
        count: Number of words that are needed after the bits in front of ``start`` are shifted out.
    """
    width = BITS[start.dtype]
    each = width // 32
    halves = [0, *TWO_OVER_PI, *[0] * ((-1 - len(TWO_OVER_PI)) % each)]
    numbers = [sum(h << 32 * (each - 1 - k) for k, h in enumerate(halves[i : i + each])) for i in range(0, len(halves), each)]
    words = [const(n, start.dtype) for n in numbers]
    which = start >> (width.bit_length() - 1)
    while reach > 1:  # each bit of the first word's index selects one half of the remaining words
        reach //= 2
        upper = ne(which & reach, 0)
        candidates = [words[min(i, len(words) - 1)] for i in range(2 * reach + count)]
        words = [select(upper, candidates[i + reach], candidates[i]) for i in range(reach + count)]
    return words


def _turn32(x: Expr) -> tuple[Expr, None]:
    """|x| · 2/π modulo 4 in units of 2^-62, as uint64, for float32 from 2^16 on. The part below that unit is not needed."""
    bits = bitcast(absolute(x), "uint32")
    significand = cast((bits & 0x7FFFFF) | 0x800000, "uint64")
    # |x| = significand · 2^(e - 150). Bits of 2/π whose products are multiples of 4 are skipped
    start = (bits >> 23) - 120
    shift = cast(start & 31, "uint64")
    w0, w1, w2, w3 = (cast(w, "uint64") for w in _window(start, 8, 3))
    top = (((w0 << 32) | w1) << shift) | ((w2 << shift) >> 32)
    rest = (((w2 << 32) | w3) << shift) >> 32
    return significand * top + ((significand * rest) >> 32), None


def _turn64(x: Expr) -> tuple[Expr, Expr]:
    """|x| · 2/π modulo 4 in units of 2^-62, as uint64, and the part below that unit, for float64 from 2^24 on."""
    bits = bitcast(absolute(x), "uint64")
    significand = (bits & ((1 << 52) - 1)) | (1 << 52)
    low, high = significand & 0xFFFFFFFF, significand >> 32
    # |x| = significand · 2^(e - 1075). Bits of 2/π whose products are multiples of 4 are skipped
    start = (bits >> 52) - 1045
    shift = start & 63
    parts = _window(start, 16, 3)
    aligned = [(parts[i] << shift) | (parts[i + 1] >> (64 - shift)) for i in range(3)]
    words = [h for w in reversed(aligned) for h in (w & 0xFFFFFFFF, w >> 32)]
    # the product modulo 2^192 in words of 32 bits, from the lowest on, by columns as in long multiplication
    by_low, by_high = [w * low for w in words], [w * high for w in words]
    carry: Expr | None = None
    found = []
    for i in range(6):
        terms = [by_low[i] & 0xFFFFFFFF]
        terms += [by_low[i - 1] >> 32, by_high[i - 1] & 0xFFFFFFFF] if i >= 1 else []
        terms += [by_high[i - 2] >> 32] if i >= 2 else []
        column = terms[0] if carry is None else terms[0] + carry
        for term in terms[1:]:
            column = column + term
        found.append(column & 0xFFFFFFFF)
        carry = column >> 32
    below = cast(cast(((found[3] << 32) | found[2]) >> 11, "int64"), "float64") * 2.0**-53
    return (found[5] << 32) | found[4], below
