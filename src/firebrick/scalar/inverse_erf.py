"""The inverse of the error function in the scalar IR: polynomials of the logarithm of 1 - x².

Source: Giles, "Approximating the erfinv function", GPU Computing Gems, 2011.
"""

from __future__ import annotations

from firebrick.scalar.expr import Expr, absolute, const, eq, polynomial, select, sqrt
from firebrick.scalar.math import INFINITY, NAN, log
from firebrick.scalar.special_coefficients import TABLE


def erfinv(x: Expr) -> Expr:
    """The y with erf(y) = x; infinite at ±1, NaN for |x| > 1."""
    distance = -log((1.0 - x) * (1.0 + x))
    root = sqrt(distance)
    out = polynomial(root - 3.125, TABLE["ERFINV_FAR", x.dtype])
    if x.dtype == "float64":  # float32 has no numbers so near 1
        out = select(root < 4.015625, out, polynomial(root - 5.125, TABLE["ERFINV_END", x.dtype]))
    out = x * select(distance < 5.0, polynomial(distance - 2.5, TABLE["ERFINV", x.dtype]), out)
    end = select(eq(absolute(x), 1.0), x * INFINITY, const(NAN, x.dtype))
    return select(absolute(x) < 1.0, out, end)
