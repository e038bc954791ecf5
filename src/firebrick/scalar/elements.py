"""What the op table's elementwise entries are as scalar expressions, with the table's edge rules.

Half precision comes in as float32 and is rounded where a result is stored, where something is decided by it and where it is
cast, not between other fused operations. Complex numbers and 8-bit floats have no scalar expressions, nor
has an op that reads other elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firebrick.scalar import math
from firebrick.scalar.expr import (
    FLOATS,
    SIGNED,
    Expr,
    absolute,
    binary,
    bitcast,
    call,
    cast,
    const,
    copysign,
    eq,
    fma,
    maximum,
    minimum,
    ne,
    philox,
    rarely,
    select,
    unary,
)
from firebrick.scalar.storage import HALVES, rounded

Rule = Callable[..., Expr]


def _floating(x: Expr) -> bool:
    return x.dtype in FLOATS


def _divide_down(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Quotient rounded towards -∞, and a - b · quotient with the sign of b."""
    if not _floating(a):
        q, r = binary("div", a, b), binary("rem", a, b)
        if a.dtype not in SIGNED:
            return q, r
        off = ne(r, 0) & ((r ^ b) < 0)
        return select(off, q - 1, q), select(off, r + b, r)
    # a quotient just below a whole number may round up to it, which the remainder's sign shows
    q = unary("floor", a / b)
    r = fma(-q, b, a)
    low = ne(r, 0.0) & ne(r < 0.0, b < 0.0)
    near_q, near_r = select(low, q - 1.0, q), copysign(select(low, r + b, r), b)
    # large quotients, infinities and zero divisors: by the library's exact remainder
    wide_a, wide_b = cast(a, "float64"), cast(b, "float64")
    rest = call("fmod", wide_a, wide_b)
    whole = unary("rint", (wide_a - rest) / wide_b)
    whole = select(eq(whole, 0.0), copysign(whole, wide_a / wide_b), whole)
    off = ne(rest, 0.0) & ne(rest < 0.0, wide_b < 0.0)
    infinite = eq(absolute(wide_a), math.INFINITY) | eq(absolute(wide_b), math.INFINITY)
    exact = unary("floor", wide_a / wide_b)  # of what an infinity or a zero divisor makes: infinite, zero or NaN
    far_q = select(infinite | eq(wide_b, 0.0), exact, select(off, whole - 1.0, whole))
    far_r = copysign(select(off, rest + wide_b, rest), wide_b)
    rare = ~(absolute(q) < 2.0 ** (math.FORMATS[a.dtype].places - 1)) | ~(absolute(b) < math.INFINITY)
    return rarely(rare, cast(far_q, a.dtype), near_q), rarely(rare, cast(far_r, a.dtype), near_r)


def _plain(op: str) -> Rule:
    return lambda x1, x2: binary(op, x1, x2)


def _swapped(op: str) -> Rule:
    return lambda x1, x2: binary(op, x2, x1)


def _rounding(op: str) -> Rule:
    return lambda x: unary(op, x) if _floating(x) else x


def _library(name: str) -> Rule:
    """By the C library, in float64."""

    def rule(*xs: Expr) -> Expr:
        return cast(call(name, *(cast(x, "float64") for x in xs)), xs[0].dtype)

    return rule


def sign(x: Expr) -> Expr:
    one, zero = const(1, x.dtype), const(0, x.dtype)
    if x.dtype not in SIGNED and not _floating(x):
        return select(eq(x, 0), zero, one)
    out = select(x > 0, one, select(x < 0, const(-1, x.dtype), zero))
    return select(ne(x, x), x, out) if _floating(x) else out


def to_dtype(x: Expr, *, dtype: Any) -> Expr:
    name = dtype if isinstance(dtype, str) else dtype.name
    return rounded(_to_odd(x), name) if name in HALVES else cast(x, name)


_WIDE = frozenset({"float64", "int32", "int64", "uint32", "uint64"})
"""What float32 does not hold."""


def _to_odd(x: Expr) -> Expr:
    """x as float32, rounded to odd where inexact, so that the next rounding is as if it were the first (``core.rounding``)."""
    if x.dtype not in _WIDE:
        return cast(x, "float32")
    wide = cast(x, "float64")
    if x.dtype in ("int64", "uint64"):
        high = (x >> 12) | cast(ne(x & 4095, 0), x.dtype)
        small = (x < 2**52) if x.dtype == "uint64" else (x < 2**52) & (x >= -(2**52))
        wide = select(small, wide, cast(high, "float64") * 4096.0)
    near = cast(wide, "float32")
    back = cast(near, "float64")
    bits = bitcast(near, "uint32")
    bits = bits - cast(absolute(back) > absolute(wide), "uint32")
    return bitcast(bits | cast(ne(back, wide) & eq(wide, wide), "uint32"), "float32")


def relu(x: Expr) -> Expr:
    if _floating(x):  # a maximum may give either of two zeros; relu(-0) is 0, as the reference has it
        return select(x <= 0.0, 0.0, x)
    return maximum(x, 0) if x.dtype not in ("uint8", "uint16", "uint32", "uint64") else x


def _test(float_rule: Callable[[Expr], Expr], other: bool) -> Rule:
    return lambda x: float_rule(x) if _floating(x) else const(other, "bool")


def floor_divide(x1: Expr, x2: Expr) -> Expr:
    """⌊x1 / x2⌋."""
    return _divide_down(x1, x2)[0]


def remainder(x1: Expr, x2: Expr) -> Expr:
    """x1 - x2 · ⌊x1 / x2⌋."""
    return _divide_down(x1, x2)[1]


def negative(x: Expr) -> Expr:
    """-x."""
    return -x


def invert(x: Expr) -> Expr:
    """The bits of x inverted."""
    return ~x


def clip(x: Expr, low: Expr, high: Expr) -> Expr:
    """The minimum of high and the maximum of low and x."""
    return minimum(maximum(x, low), high)


add = _plain("add")
subtract = _plain("sub")
multiply = _plain("mul")
divide = _plain("div")
floor = _rounding("floor")
ceil = _rounding("ceil")
trunc = _rounding("trunc")
round = _rounding("rint")
isnan = _test(lambda x: ne(x, x), False)
isinf = _test(lambda x: eq(absolute(x), math.INFINITY), False)
isfinite = _test(lambda x: absolute(x) < math.INFINITY, True)
less = _plain("lt")
less_equal = _plain("le")
greater = _plain("gt")
greater_equal = _plain("ge")
logical_and = _plain("and")
logical_or = _plain("or")
logical_xor = _plain("xor")
bitwise_and = _plain("and")
bitwise_or = _plain("or")
bitwise_xor = _plain("xor")
bitwise_left_shift = _plain("shl")
bitwise_right_shift = _plain("shr")
asin = _library("asin")
acos = _library("acos")
atan = _library("atan")
atan2 = _library("atan2")
asinh = _library("asinh")
acosh = _library("acosh")
atanh = _library("atanh")


_M0, _M1, _W0, _W1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85


PHILOX = _M0, _M1, _W0, _W1
"""Multipliers, and what the key's words grow by in each of the ten rounds."""


def random_bits(key: Sequence[Expr], position: Expr) -> Expr:
    """Word ``position`` (int64) of a random stream, uint32; ``key`` is its four uint32 words."""
    return philox(key, position)


def philox_word(key: Sequence[Expr], position: Expr) -> Expr:
    """What ``philox`` stands for: a word of a Philox4x32-10 stream.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    place = bitcast(position, "uint64")
    block = place >> 2
    c = [cast(block, "uint32"), cast(block >> 32, "uint32"), key[2], key[3]]
    k0, k1 = key[0], key[1]
    for _ in range(10):
        p0, p1 = cast(c[0], "uint64") * _M0, cast(c[2], "uint64") * _M1
        c = [
            cast(p1 >> 32, "uint32") ^ c[1] ^ k0, cast(p1, "uint32"),
            cast(p0 >> 32, "uint32") ^ c[3] ^ k1, cast(p0, "uint32"),
        ]  # fmt: skip
        k0, k1 = k0 + _W0, k1 + _W1
    word = cast(place & 3, "uint32")
    return select(eq(word & 2, 0), select(eq(word & 1, 0), c[0], c[1]), select(eq(word & 1, 0), c[2], c[3]))


def random_uniform(key: Sequence[Expr], position: Expr, dtype: str) -> Expr:
    """Number ``position`` (int64) of a stream of uniform numbers in [0, 1), float32 or float64."""
    if dtype == "float32":
        return cast(random_bits(key, position) >> 8, "float32") * 2.0**-24
    high, low = (cast(random_bits(key, position * 2 + i), "uint64") for i in (0, 1))
    return cast((high >> 5) * (1 << 26) + (low >> 6), "float64") * 2.0**-53
