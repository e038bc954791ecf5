"""Quotients of 64-bit integers, and casts of floats to them, in two words by 32-bit integer operations; and quotients of
positive integers of 32 bits by float32, for processors whose vectors have no division of integers."""

from __future__ import annotations

from firebrick.scalar.expr import IN_RANGE, Expr, bitcast, cast, const, eq, ne, node, select
from firebrick.scalar.wide import (
    Words,
    absolute_words,
    less_words,
    negated,
    select_words,
    shifted_left,
    shifted_right,
    subtracted,
    words_of_float64,
)

_ZERO = Words(const(0, "uint32"), const(0, "uint32"))


def divided(a: Words, b: Words, signed: bool) -> tuple[Words, Words]:
    """The truncated quotient and the remainder, which are 0 for a zero divisor; the smallest integer divided by -1 is itself.

    One bit of the quotient after the other, in 64 steps without a branch.
    """
    n, d = (absolute_words(a), absolute_words(b)) if signed else (a, b)
    rest = _ZERO
    high, low = const(0, "uint32"), const(0, "uint32")
    for bit in range(63, -1, -1):
        word = n.high if bit >= 32 else n.low
        carried = rest.high >> 31  # the remainder is below the divisor, so twice of it may have 65 bits
        rest = Words((rest.low << 1) | ((word >> (bit % 32)) & 1), (rest.high << 1) | (rest.low >> 31))
        fits = ~less_words(rest, d, signed=False) | eq(carried, 1)
        rest = select_words(fits, subtracted(rest, d), rest)
        one = select(fits, const(1 << (bit % 32), "uint32"), 0)
        high, low = (high | one, low) if bit >= 32 else (high, low | one)
    quotient = Words(low, high)
    if signed:
        a_negative, b_negative = (bitcast(w.high, "int32") < 0 for w in (a, b))
        quotient = select_words(a_negative ^ b_negative, negated(quotient), quotient)
        rest = select_words(a_negative, negated(rest), rest)
    is_zero = eq(b.low | b.high, 0)
    return select_words(is_zero, _ZERO, quotient), select_words(is_zero, _ZERO, rest)


EXACT = 1 << 21
"""Numerators below this have a quotient by float32 with an error of at most 1."""


def of_positive(a: Expr, b: Expr, largest: int) -> tuple[Expr, Expr]:
    """The quotient and the remainder of an int32 a ≥ 0 by an int32 b ≥ 1.

    The float32 quotient has a relative error of at most 2⁻²¹: roundings of a, b and the product, and 5 · 2⁻²⁴ of the
    reciprocal, which drivers may give an error of 2.5 units in the last place. So below 2²¹ it differs by at most 1 from the
    quotient. Larger ones leave a remainder of at most b + 2¹⁰, which is divided in the same way.

    Args:
        a: Numerator.
        b: Denominator.
        largest: The greatest numerator.
    """
    inverse = 1.0 / cast(b, "float32")

    def nearly(x: Expr) -> Expr:
        return node("cast", "int32", (cast(x, "float32") * inverse,), IN_RANGE)

    q = nearly(a)
    r = a - q * b
    if largest >= EXACT:
        more = nearly(r)
        q, r = q + more, r - more * b
    low, high = r < 0, r >= b
    return select(low, q - 1, select(high, q + 1, q)), select(low, r + b, select(high, r - b, r))


def whole_words(x: Expr, signed: bool) -> Words:
    """A float ``x`` as a 64-bit integer: truncated, saturated, and 0 for NaN."""
    low, top = (const(0, "uint32"), bitcast(x, "uint32")) if x.dtype == "float32" else _float64_words(x)
    shift, bias, fraction_bits = (23, 127, 23) if x.dtype == "float32" else (20, 1023, 52)
    magnitude, negative = top & 0x7FFFFFFF, bitcast(top, "int32") < 0
    exponent = cast(magnitude >> shift, "int32") - (bias + fraction_bits)  # of the last bit of the fraction
    leading = (top & ((1 << shift) - 1)) | (1 << shift)
    fraction = Words(leading, low) if x.dtype == "float32" else Words(low, leading)
    up = Words(cast(select(exponent > 0, exponent, 0), "uint32"), const(0, "uint32"))
    down = Words(cast(select(exponent < 0, -exponent, 0), "uint32"), const(0, "uint32"))
    size = select_words(exponent < 0, shifted_right(fraction, down, signed=False), shifted_left(fraction, up))
    large = magnitude >= ((bias + (63 if signed else 64)) << shift)
    ones = const(0xFFFFFFFF, "uint32")
    if signed:
        out = select_words(negative, negated(size), size)
        least = Words(const(0, "uint32"), const(1 << 31, "uint32"))
        out = select_words(large, select_words(negative, least, Words(ones, const((1 << 31) - 1, "uint32"))), out)
    else:
        out = select_words(negative, _ZERO, select_words(large, Words(ones, ones), size))
    infinity = (2 * bias + 1) << shift
    is_nan = magnitude > infinity
    if x.dtype == "float64":
        is_nan = is_nan | (eq(magnitude, infinity) & ne(low, 0))
    return select_words(is_nan, _ZERO, out)


def _float64_words(x: Expr) -> tuple[Expr, Expr]:
    bits = words_of_float64(x)
    return bits.low, bits.high
