"""Double-word arithmetic: numbers as unevaluated sums of two floats, of which the second is at most about half a unit in the
last place of the first.

Results are exact if no intermediate overflows or underflows. Sums are ``kept``: a target that reassociates them would compute 0
for their rounding errors.

Source: Dekker, "A floating-point technique for extending the available precision", Numerische Mathematik 18, 1971; Knuth, The
Art of Computer Programming, volume 2, 4.2.2.
"""

from __future__ import annotations

from firebrick.scalar.expr import Expr, Operand, fma, kept, sqrt

Pair = tuple[Expr, Expr]


def two_sum(a: Expr, b: Operand) -> Pair:
    """a + b, exactly."""
    s = kept(a + b)
    back = kept(s - a)
    return s, kept(kept(a - kept(s - back)) + kept(b - back))


def ordered_sum(a: Expr | float, b: Expr) -> Pair:
    """a + b, exactly, for |a| ≥ |b| or a = 0."""
    s = kept(a + b)
    return s, kept(kept(a - s) + b)


def two_product(a: Expr, b: Operand) -> Pair:
    """a · b, exactly."""
    p = a * b
    return p, fma(a, b, -p)


def square_root(high: Expr, low: Expr) -> Pair:
    """√(high + low); the second float is NaN for 0."""
    s = sqrt(high)
    return s, (fma(-s, s, high) + low) / (s + s)


def quotient(high: Expr, low: Expr, by: Expr) -> Pair:
    """(high + low) / by."""
    q = high / by
    return q, (fma(-q, by, high) + low) / by
