"""Powers: of float32 by way of float64, of float64 with a logarithm of twice the precision, of integers by squaring."""

from __future__ import annotations

from firebrick.scalar.coefficients import NUMBERS, TABLE
from firebrick.scalar.expr import (
    BITS,
    SIGNED,
    Expr,
    absolute,
    bitcast,
    cast,
    const,
    eq,
    fma,
    ne,
    polynomial,
    scale,
    select,
    unary,
)
from firebrick.scalar.math import INFINITY, NAN, clamped, exp_minus_one, reduced, split


def power(x: Expr, y: Expr) -> Expr:
    """x to the power y: as IEEE 754's ``pow`` for floats; integers wrap, a negative exponent truncates towards 0."""
    if x.dtype not in ("float32", "float64"):
        return _integer_power(x, y)
    size = absolute(x)
    out = _narrow(size, y) if x.dtype == "float32" else _wide(size, y)
    half = y * 0.5
    whole = eq(unary("floor", y), y)
    odd = whole & ne(unary("floor", half), half)
    bits = "int32" if x.dtype == "float32" else "int64"
    signed = select((bitcast(x, bits) < 0) & odd, -out, out)
    valid = whole | ~((x < 0.0) & (size < INFINITY))
    return select(eq(y, 0.0) | eq(x, 1.0) | (eq(x, -1.0) & eq(absolute(y), INFINITY)), 1.0, select(valid, signed, NAN))


def _ends(size: Expr, logarithm: Expr) -> Expr:
    """The logarithm of 0, infinity and NaN."""
    return select((size > 0.0) & (size < INFINITY), logarithm, select(eq(size, 0.0), const(-INFINITY, size.dtype), size))


def _narrow(size: Expr, y: Expr) -> Expr:
    """exp2(y · log2 |x|) in float64, whose own errors are 2^-38 here."""
    wide = cast(size, "float64")
    k, f = split(wide)
    high = NUMBERS["LOG2E", "float64"][0]
    logarithm = fma(fma(f * f, polynomial(f, TABLE["LOG", "middle"]), f), high, k)
    z = clamped(cast(y, "float64") * _ends(wide, logarithm), -200.0, 200.0)
    n = unary("rint", z)
    r = (z - n) * NUMBERS["LN2", "float64"][0]
    return cast(scale(fma(r * r, polynomial(r, TABLE["EXP", "middle"]), r) + 1.0, n), "float32")


def _wide(size: Expr, y: Expr) -> Expr:
    """exp(y · log |x|) with the logarithm as a sum of two floats, which is good to about 2^-64.

    Source: double-float arithmetic by fused products, Dekker, "A floating-point technique for extending the available
    precision", Numerische Mathematik 18, 1971.
    """
    tiny = size < 2.0**-1022
    k, f = split(select(tiny, size * 2.0**54, size))
    k = k - select(tiny, const(54.0, "float64"), 0.0)
    # s = f / (2 + f), so that log(1 + f) = 2s · (1 + w/3 + w²/5 + …) with w = s² ≤ 0.03
    below = f + 2.0
    below_lost = f - (below - 2.0)
    s = f / below
    s_lost = (fma(-s, below, f) - s * below_lost) / below
    w = s * s
    w_lost = fma(s, s, -w) + (s + s) * s_lost
    third, third_lost, _ = NUMBERS["THIRD", "float64"]
    a = w * third
    a_lost = fma(w, third, -a) + fma(w, third_lost, w_lost * third)
    rest = w * w * polynomial(w, [1 / (2 * i + 5) for i in range(12)])
    c = a + rest
    c_lost = ((a - c) + rest) + a_lost
    double = s + s
    p = double * c
    p_lost = fma(double, c, -p) + fma(double, c_lost, (s_lost + s_lost) * c)
    t = double + p
    t_lost = ((double - t) + p) + (s_lost + s_lost + p_lost)
    high, low, _ = NUMBERS["LN2", "float64"]
    b = k * high
    b_lost = fma(k, high, -b) + k * low
    total = b + t
    lost = ((b - total) + t) + (b_lost + t_lost)
    z = y * _ends(size, total)
    z_lost = fma(y, total, -z) + y * lost
    inside = absolute(z) < 800.0
    n, r = reduced(clamped(z, -800.0, 800.0))
    return scale(exp_minus_one(r + select(inside, z_lost, 0.0)) + 1.0, n)


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
