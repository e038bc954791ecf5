"""How ``compiler.scalar.coefficients`` was made: run this file to print it again; a test compares.

Each polynomial interpolates its function at Chebyshev's points, which errs little more than the best polynomial of the degree.
Source: Trefethen, Approximation Theory and Approximation Practice, 2013, theorem 16.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath import mp, mpf

mp.dps = 60

TAIL_SLOPE = {"float32": mpf("0.3"), "float64": mpf("0.2")}
TAIL_END = {"float32": mpf("14.5"), "float64": mpf("39")}


def tail(t: Any, slope: Any) -> Any:
    """Φ(-a) · exp(a²/2) / u with u = 1 / (1 + slope · a) and t = 2u - 1."""
    u = (t + 1) / 2
    a = (1 / u - 1) / slope
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2) / u


# name → function, interval, degree for float32 and for float64
FITS: dict[str, tuple[Callable[[Any], Any], Any, Any, int, int]] = {
    "EXP": (lambda r: mp.hyp1f1(1, 3, r) / 2, -mp.log(2) / 2, mp.log(2) / 2, 5, 10),  # (exp(r) - 1 - r) / r²
    "LOG": (lambda f: -mp.hyp2f1(1, 2, 3, -f) / 2, mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1, 9, 21),  # (log(1 + f) - f) / f²
    "TANH": (lambda s: (mp.tanh(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf("0.4"), 5, 12),
    "SINH": (lambda s: (mp.sinh(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf(1), 4, 8),
    "ERF": (lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1, mpf(0), mpf(1), 6, 12),
    "SIN": (lambda s: (mp.sin(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf("0.6169"), 3, 6),
    "COS": (lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2, mpf(0), mpf("0.6169"), 2, 5),
}


def fit(f: Callable[[Any], Any], low: Any, high: Any, degree: int) -> list[Any]:
    """Coefficients, lowest first, of the polynomial through f at Chebyshev's points of [low, high]."""
    n = degree + 1
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    matrix = mp.matrix(n, n)
    for i, x in enumerate(points):
        for j in range(n):
            matrix[i, j] = x**j
    return list(mp.lu_solve(matrix, mp.matrix([f(x) for x in points])))


def coefficients(name: str, dtype: str) -> list[float]:
    """One row of the table: coefficients as float64, to be rounded to ``dtype`` where they are used."""
    if name == "TAIL":
        slope = TAIL_SLOPE[dtype]
        low = 2 / (1 + slope * TAIL_END[dtype]) - 1
        return [float(c) for c in fit(lambda t: tail(t, slope), low, mpf(1), 9 if dtype == "float32" else 24)]
    f, low, high, narrow, wide = FITS[name]
    degree = MIDDLE[name] if dtype == "middle" else narrow if dtype == "float32" else wide
    return [float(c) for c in fit(f, low, high, degree)]


MIDDLE = {"EXP": 6, "LOG": 14}  # degrees for computing float32 functions in float64

# numbers as sums of floats, each the rest rounded
NUMBERS = {
    "LN2": mp.log(2), "LOG2E": 1 / mp.log(2), "LOG10_2": mp.log10(2), "LOG10_E": 1 / mp.log(10), "HALF_PI": mp.pi / 2,
    "THIRD": mpf(1) / 3,
}  # fmt: skip


def split(x: Any, dtype: str) -> list[float]:
    """Three floats of ``dtype`` whose sum is x."""
    out = []
    for _ in range(3):
        out.append(float(np.dtype(dtype).type(float(x))))
        x = x - mpf(out[-1])
    return out


def two_over_pi(words: int) -> list[int]:
    """The first bits of 2/π behind the point, 32 at a time."""
    with mp.workdps(400):
        return [int(mp.floor(2 / mp.pi * mpf(2) ** (32 * (i + 1)))) % 2**32 for i in range(words)]


NAMES = (*FITS, "TAIL")


def main() -> None:
    """Print the tables."""
    for dtype in ("float32", "float64"):
        for name, x in NUMBERS.items():
            print(f'    ("{name}", "{dtype}"): {tuple(split(x, dtype))},')
    print("TWO_OVER_PI = (", ", ".join(map(hex, two_over_pi(7))), ")")
    for name in MIDDLE:
        print(f'    ("{name}", "middle"): ({", ".join(map(repr, coefficients(name, "middle")))}),')
    for dtype in ("float32", "float64"):
        for name in NAMES:
            row = ", ".join(map(repr, coefficients(name, dtype)))
            print(f'    ("{name}", "{dtype}"): ({row}),')


if __name__ == "__main__":
    main()
