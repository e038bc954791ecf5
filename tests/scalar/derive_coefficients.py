"""How ``scalar.coefficients`` and ``scalar.special_coefficients`` were made: run this file to print it again; a test compares.

Each polynomial interpolates its function at Chebyshev's points, which errs little more than the best polynomial of the degree.
Source: Trefethen, Approximation Theory and Approximation Practice, 2013, theorem 16.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath import mp, mpf

mp.dps = 60

# of the tail: the end, the slope that says where the points lie, and the numerator's degree
TAIL = {"float32": (mpf("14.5"), mpf("0.3"), 4), "float64": (mpf("39"), mpf("0.2"), 10)}


def tail(a: Any) -> Any:
    """Φ(-a) · exp(a²/2)."""
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2)


def tail_fit(end: Any, slope: Any, degree: int) -> tuple[list[Any], list[Any], list[Any]]:
    """P, R and L with tail(a) = P(a) / (P(a) · L(a) + R(a)) at the Chebyshev points of 2 / (1 + slope · a) - 1 for a in
    [0, end]: P of ``degree``, R of one less, L linear."""
    n = 2 * degree + 2
    low = 2 / (1 + slope * end) - 1
    points = [(low + 1) / 2 + (1 - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    matrix, values = mp.matrix(n, n), mp.matrix(n, 1)
    for i, t in enumerate(points):
        a = (2 / (t + 1) - 1) / slope
        values[i] = tail(a)
        for j in range(degree + 1):  # P(a) - tail(a) · (Q(a) - 1) = tail(a)
            matrix[i, j] = a**j
            matrix[i, degree + 1 + j] = -values[i] * a ** (j + 1)
    found = list(mp.lu_solve(matrix, values))
    p, q = found[: degree + 1], [mpf(1), *found[degree + 1 :]]
    steep = q[-1] / p[-1]
    line = [(q[-2] - steep * p[-2]) / p[-1], steep]
    rest = [q[i] - line[0] * p[i] - (steep * p[i - 1] if i else 0) for i in range(degree)]
    return p, rest, line


HALF = mpf(1) / 2
ROOT = mp.findroot(mp.digamma, 1.4616)


def near_two(d: Any) -> Any:
    """log Γ(2 + d) / d."""
    return mp.loggamma(2 + d) / d if abs(d) > 1e-30 else 1 - mp.euler


def stirling(s: Any) -> Any:
    """x · (log Γ(x) - (x - ½) · log x + x - ½ · log 2π) for s = 1 / x²."""
    x = 1 / mp.sqrt(s)
    return (mp.loggamma(x) - (x - HALF) * mp.log(x) + x - mp.log(2 * mp.pi) / 2) * x


def digamma_far(s: Any) -> Any:
    """x² · (log x - 1 / (2 x) - ψ(x)) for s = 1 / x²."""
    x = 1 / mp.sqrt(s)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) * x * x


def erfinv_by_log(w: Any) -> Any:
    """erf⁻¹(x) / x for w = -log(1 - x²)."""
    x = mp.sqrt(-mp.expm1(-w))
    rest = mp.exp(-w) / (1 + x)  # 1 - x
    y = mp.erfinv(x) if w < 20 else mp.findroot(lambda v: mp.log(mp.erfc(v)) - mp.log(rest), mp.sqrt(w) * mpf("0.9"))
    return y / x


def bessel_far(n: int) -> Callable[[Any], Any]:
    """I_n(x) · exp(-x) · √x for t = 16 / x - 1."""

    def f(t: Any) -> Any:
        x = 16 / (t + 1)
        return mp.besseli(n, x) * mp.exp(-x) * mp.sqrt(x)

    return f


# name → function, interval, degree for float32 and for float64
FITS: dict[str, tuple[Callable[[Any], Any], Any, Any, int, int]] = {
    "EXP": (lambda r: mp.hyp1f1(1, 3, r) / 2, -mp.log(2) / 2, mp.log(2) / 2, 4, 10),  # (exp(r) - 1 - r) / r²
    "LOG": (lambda f: -mp.hyp2f1(1, 2, 3, -f) / 2, mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1, 9, 21),  # (log(1 + f) - f) / f²
    "TANH": (lambda s: (mp.tanh(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf("0.4"), 5, 12),
    "SINH": (lambda s: (mp.sinh(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf(1), 4, 8),
    "ASIN": (lambda s: (mp.asin(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf("0.25"), 5, 12),
    "ATAN": (lambda s: (mp.atan(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf(1), 9, 20),
    "ATANH": (lambda s: (mp.atanh(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf("0.25"), 5, 12),
    "ERF": (lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1, mpf(0), mpf(1), 6, 12),
    "SIN": (lambda s: (mp.sin(mp.sqrt(s)) / mp.sqrt(s) - 1) / s, mpf(0), mpf("0.6169"), 3, 6),
    "COS": (lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2, mpf(0), mpf("0.6169"), 2, 5),
}
# those of ``scalar.special_coefficients``
SPECIAL: dict[str, tuple[Callable[[Any], Any], Any, Any, int, int]] = {
    "GAMMA": (near_two, -3 * HALF / 2, HALF, 11, 22),
    "STIRLING": (stirling, mpf(0), mpf(1) / 64, 3, 5),
    "DIGAMMA": (lambda t: mp.digamma(t + 3 * HALF) / (t + 3 * HALF - ROOT), -HALF, HALF, 12, 22),
    "DIGAMMA_FAR": (digamma_far, mpf(0), mpf(1) / 64, 2, 5),
    "SINPI": (lambda s: (mp.sinpi(mp.sqrt(s)) / (mp.pi * mp.sqrt(s)) - 1) / s, mpf(0), HALF / 2, 4, 7),
    "ERFINV": (lambda u: erfinv_by_log(u + 5 * HALF), -5 * HALF, 5 * HALF, 12, 22),
    "ERFINV_FAR": (lambda u: erfinv_by_log((u + 25 * HALF / 4) ** 2), -mpf("0.9"), mpf("0.9"), 11, 22),
    "ERFINV_END": (lambda u: erfinv_by_log((u + 41 * HALF / 4) ** 2), -9 * HALF / 4, mpf(1), 4, 19),
    "BESSEL_0": (lambda a: (mp.besseli(0, 2 * mp.sqrt(a)) - 1) / a, mpf(0), mpf(16), 10, 14),
    "BESSEL_1": (lambda a: (mp.besseli(1, 2 * mp.sqrt(a)) / mp.sqrt(a) - 1) / a, mpf(0), mpf(16), 9, 14),
    "BESSEL_0_FAR": (bessel_far(0), mpf(-1), mpf(1), 7, 24),
    "BESSEL_1_FAR": (bessel_far(1), mpf(-1), mpf(1), 7, 24),
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
    if name in TAILS:
        return [float(c) for c in tail_fit(*TAIL[dtype])[TAILS.index(name)]]
    f, low, high, narrow, wide = FITS[name] if name in FITS else SPECIAL[name]
    degree = narrow if dtype == "float32" else wide
    return [float(c) for c in fit(f, low, high, degree)]


TAILS = ("TAIL", "TAIL_REST", "TAIL_LINE")

# numbers as sums of floats, each the rest rounded
NUMBERS = {
    "LN2": mp.log(2),
    "LOG2E": 1 / mp.log(2),
    "LOG10_2": mp.log10(2),
    "LOG10_E": 1 / mp.log(10),
    "HALF_PI": mp.pi / 2,
    "THIRD": mpf(1) / 3,
}
DIGAMMA_ROOT = ROOT  # fmt: skip


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


NAMES = (*FITS, *TAILS, *SPECIAL)


def main() -> None:
    """Print the tables."""
    for dtype in ("float32", "float64"):
        for name, x in NUMBERS.items():
            print(f'    ("{name}", "{dtype}"): {tuple(split(x, dtype))},')
    print("TWO_OVER_PI = (", ", ".join(map(hex, two_over_pi(37))), ")")
    for dtype in ("float32", "float64"):
        for name in NAMES:
            row = ", ".join(map(repr, coefficients(name, dtype)))
            print(f'    ("{name}", "{dtype}"): ({row}),')


if __name__ == "__main__":
    main()
