"""Sine, cosine and tangent for every operand.

Operands of ordinary size are reduced by multiples of π/2 held as a sum of three floats (Cody and Waite, Software Manual for
the Elementary Functions, 1980). Beyond, a rare branch multiplies a float32's integer significand with those bits of 2/π that
matter, in integers (Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983); float64
calls the C library there.
"""

from __future__ import annotations

from firebrick.scalar.coefficients import TWO_OVER_PI
from firebrick.scalar.expr import (
    Expr,
    absolute,
    bitcast,
    call,
    cast,
    const,
    eq,
    fma,
    ne,
    polynomial,
    rarely,
    select,
)
from firebrick.scalar.math import FORMATS, INFINITY, NAN, number, table

LIMIT = {"float32": 65536.0, "float64": 16777216.0}
"""Up to where three floats of π/2 are enough."""


def sin(x: Expr) -> Expr:
    """Sine of x in radians."""
    return _of(x, 0, "sin")


def cos(x: Expr) -> Expr:
    """Cosine of x in radians."""
    return _of(x, 1, "cos")


def tan(x: Expr) -> Expr:
    """Tangent of x in radians; of float32, by way of float64."""
    if x.dtype == "float32":
        return cast(tan(cast(x, "float64")), "float32")
    turns, r = _near(x)
    sine, cosine = _sine(r), _cosine(r)
    odd = ne(turns & 1, 0)
    out = select(odd, -cosine, sine) / select(odd, sine, cosine)
    return rarely(~(absolute(x) < LIMIT[x.dtype]), call("tan", x), select(eq(x, 0.0), x, out))


def _of(x: Expr, quarter: int, name: str) -> Expr:
    turns, r = _near(x)
    near = _value(turns + quarter, r)
    if name == "sin":
        near = select(eq(x, 0.0), x, near)
    far = _value(*_far(x, quarter)) if x.dtype == "float32" else call(name, x)
    if x.dtype == "float32":
        far = select(absolute(x) < INFINITY, far, const(NAN, x.dtype))
    return rarely(~(absolute(x) < LIMIT[x.dtype]), far, near)


def _value(turns: Expr, r: Expr) -> Expr:
    """sin(turns · π/2 + r)."""
    f = FORMATS[r.dtype]
    out = select(ne(turns & 1, 0), _cosine(r), _sine(r))
    sign = (turns & 2) << (f.places + {"float32": 7, "float64": 10}[r.dtype])
    return bitcast(bitcast(out, f.integer) ^ sign, r.dtype)


def _sine(r: Expr) -> Expr:
    square = r * r
    return fma(r * square, polynomial(square, table("SIN", r)), r)


def _cosine(r: Expr) -> Expr:
    square = r * r
    return fma(square * square, polynomial(square, table("COS", r)), fma(square, -0.5, 1.0))


def _near(x: Expr) -> tuple[Expr, Expr]:
    """A whole number n, as an integer, and r with x = n · π/2 + r."""
    f = FORMATS[x.dtype]
    first, second, third = number("HALF_PI", x)
    moved = fma(x, 2 / 3.141592653589793, f.magic)
    n = moved - f.magic
    return bitcast(moved, f.integer), fma(n, -third, fma(n, -second, fma(n, -first, x)))


def _far(x: Expr, quarter: int) -> tuple[Expr, Expr]:
    """The same for float32 from 2^16 on, n modulo 4; ``quarter`` is added to n."""
    bits = bitcast(absolute(x), "uint32")
    significand = cast((bits & 0x7FFFFF) | 0x800000, "uint64")
    # x = significand · 2^(e - 150). Bits of 2/π that give multiples of 4 are left out; 32 zeros stand in front of the rest.
    start = (bits >> 23) - 120
    words = [const(w, "uint32") for w in (0, *TWO_OVER_PI)]
    which, shift = start >> 5, cast(start & 31, "uint64")

    def word(k: int) -> Expr:
        out = words[min(4 + k, len(words) - 1)]
        for i in range(3, -1, -1):
            out = select(eq(which, i), words[i + k], out)
        return cast(out, "uint64")

    w0, w1, w2, w3 = (word(k) for k in range(4))
    top = (((w0 << 32) | w1) << shift) | ((w2 << shift) >> 32)
    rest = (((w2 << 32) | w3) << shift) >> 32
    turn = significand * top + ((significand * rest) >> 32)  # x · 2/π modulo 4, in units of 2^-62
    n = (turn + (1 << 61)) >> 62
    part = cast(cast(turn - (n << 62), "int64"), "float64")
    r = cast(part * (3.141592653589793 / 2 * 2.0**-62), "float32")
    negative = x < 0.0
    # sin(-a) = -sin(a): two quarters more; cos is even
    n32 = cast(n, "int32")
    turned = select(negative, (n32 + 2) if quarter == 0 else n32, n32) + quarter
    return turned, r
