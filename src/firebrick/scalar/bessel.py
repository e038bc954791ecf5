"""Modified Bessel functions of the first kind in the scalar IR: a polynomial of x² below 8, one of 1 / x above.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, sections 9.6 and 9.7.
"""

from __future__ import annotations

from firebrick.scalar.expr import Expr, absolute, copysign, minimum, muladd, polynomial, select, sqrt
from firebrick.scalar.math import exp
from firebrick.scalar.special_coefficients import TABLE

_END = {"float32": 200.0, "float64": 1500.0}
"""Beyond, both functions are infinite."""


def _near(x: Expr, order: int) -> Expr:
    """The function's value at |x| ≤ 8, without its factor (x / 2)^order."""
    square = x * x * 0.25
    return muladd(square, polynomial(square, TABLE[f"BESSEL_{order}", x.dtype]), 1.0)


def _far(size: Expr, order: int) -> Expr:
    size = minimum(size, _END[size.dtype])
    # exp(x) may overflow where the result does not
    half = exp(size * 0.5)
    return half * (polynomial(16.0 / size - 1.0, TABLE[f"BESSEL_{order}_FAR", size.dtype]) / sqrt(size)) * half


def i0(x: Expr) -> Expr:
    """I₀(x)."""
    size = absolute(x)
    return select(size > 8.0, _far(size, 0), _near(x, 0))


def i1(x: Expr) -> Expr:
    """I₁(x)."""
    size = absolute(x)
    return select(size > 8.0, copysign(_far(size, 1), x), x * 0.5 * _near(x, 1))
