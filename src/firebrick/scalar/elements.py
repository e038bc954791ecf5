"""The op table's elementwise entries as scalar expressions, with the table's edge rules.

Half precision is loaded as float32 and rounded where a result is stored, compared or cast, not between other fused operations.
Those of complex numbers are in ``complex_numbers``. 8-bit floats have no scalar expressions, nor has an op that reads other
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firebrick.scalar import inverse, math
from firebrick.scalar import remainder as remainders
from firebrick.scalar.expr import (
    FLOATS,
    SIGNED,
    Expr,
    absolute,
    binary,
    bitcast,
    cast,
    const,
    eq,
    maximum,
    minimum,
    ne,
    philox,
    select,
    unary,
)
from firebrick.scalar.storage import HALVES, rounded

Rule = Callable[..., Expr]


def _floating(x: Expr) -> bool:
    return x.dtype in FLOATS


def _plain(op: str) -> Rule:
    return lambda x1, x2: binary(op, x1, x2)


def _rounding(op: str) -> Rule:
    return lambda x: unary(op, x) if _floating(x) else x


def sign(x: Expr) -> Expr:
    one, zero = const(1, x.dtype), const(0, x.dtype)
    if x.dtype not in SIGNED and not _floating(x):
        return select(eq(x, 0), zero, one)
    out = select(x > 0, one, select(x < 0, const(-1, x.dtype), zero))
    return select(ne(x, x), x, out) if _floating(x) else out


def to_dtype(x: Expr, *, dtype: Any) -> Expr:
    name = dtype if isinstance(dtype, str) else dtype.name
    return rounded(_to_odd(x), name) if name in HALVES else cast(x, name)


_SHIFTS = {"int32": (8,), "uint32": (8,), "int64": (14, 28, 40), "uint64": (14, 28, 40)}
"""Shifts for integers that float32 cannot represent: each shortens the integers that are too large for the previous one to 24
bits at most, and keeps at least two more bits than half precision."""


def _to_odd(x: Expr) -> Expr:
    """x rounded to odd as float32, so that a second rounding to half precision gives the correctly rounded x
    (``core.rounding``)."""
    if x.dtype in _SHIFTS:
        return _shortened(x)
    if x.dtype != "float64":
        return cast(x, "float32")
    near = cast(x, "float32")
    back = cast(near, "float64")
    bits = bitcast(near, "uint32")
    bits = bits - cast(absolute(back) > absolute(x), "uint32")
    return bitcast(bits | cast(ne(back, x) & eq(x, x), "uint32"), "float32")


def _shortened(x: Expr) -> Expr:
    """An integer's leading bits as a float32; the last one is set if any lower bit is."""
    out, reach = cast(x, "float32"), 24
    for shift in _SHIFTS[x.dtype]:
        high = (x >> shift) | cast(ne(x & ((1 << shift) - 1), 0), x.dtype)
        small = x < (1 << reach) if x.dtype not in SIGNED else (x < (1 << reach)) & (x >= -(1 << reach))
        out = select(small, out, cast(high, "float32") * 2.0**shift)
        reach = 24 + shift
    return out


def relu(x: Expr) -> Expr:
    if _floating(x):  # a maximum may give either of two zeros; relu(-0) is 0, as the reference has it
        return select(x <= 0.0, 0.0, x)
    return maximum(x, 0) if x.dtype not in ("uint8", "uint16", "uint32", "uint64") else x


def _test(float_rule: Callable[[Expr], Expr], other: bool) -> Rule:
    return lambda x: float_rule(x) if _floating(x) else const(other, "bool")


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
asin = inverse.asin
acos = inverse.acos
atan = inverse.atan
atan2 = inverse.atan2
asinh = inverse.asinh
acosh = inverse.acosh
atanh = inverse.atanh
floor_divide = remainders.floor_divide
remainder = remainders.remainder


_M0, _M1, _W0, _W1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85


PHILOX = _M0, _M1, _W0, _W1
"""Multipliers, and increments of the key's words in each of the ten rounds."""


def random_bits(key: Sequence[Expr], position: Expr) -> Expr:
    """Word ``position`` (int64) of a random stream, uint32; ``key`` is its four uint32 words."""
    return philox(key, position)


def philox_word(key: Sequence[Expr], position: Expr) -> Expr:
    """The expansion of ``philox``: a word of a Philox4x32-10 stream.

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
