"""``Affine``: an integer as a quasi-affine expression, the sum of a constant and of terms with integer coefficients.

A term is a variable in [0, size), a floor quotient or a remainder by a positive constant, or a number that is known only at
run time. Expressions are normalised by the variables' domains: quotients and remainders are simplified if a number's digits can
be separated, and a quotient and its remainder are combined. Equal expressions are equal integers at every point of the domain;
the converse need not hold.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import gcd
from typing import Any

Term = tuple[Any, ...]
"""``("variable" or "value", name, size)``, ``("unknown", name, 0)``, ``("quotient" or "remainder", Affine, divisor)``."""


class Affine:
    """A quasi-affine expression, with ``+``, ``-``, ``*`` by an integer, and ``//`` and ``%`` by a positive integer."""

    __slots__ = ("_hash", "_range", "constant", "terms")

    def __init__(self, constant: int, terms: Mapping[Term, int]) -> None:
        self.constant, self.terms = constant, terms
        self._hash: int | None = None
        self._range: tuple[int, int] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.constant == other.constant and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.constant, frozenset(self.terms.items())))
        return self._hash

    def __repr__(self) -> str:
        parts = [f"{k}·{_text(t)}" if k != 1 else _text(t) for t, k in self.terms.items()]
        return " + ".join([*parts, *([str(self.constant)] if self.constant or not parts else [])])

    @property
    def range(self) -> tuple[int, int]:
        """A lower and an upper bound of its values."""
        if self._range is None:
            low = high = self.constant
            for t, k in self.terms.items():
                a, b = _range(t)
                low, high = low + min(k * a, k * b), high + max(k * a, k * b)
            self._range = low, high
        return self._range

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.constant + other, self.terms) if other else self
        if not other.terms:
            return self + other.constant
        terms = dict(self.terms)
        for t, k in other.terms.items():
            terms[t] = terms.get(t, 0) + k
        return _normal(self.constant + other.constant, terms)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        return Affine(self.constant * factor, {t: k * factor for t, k in self.terms.items()} if factor else {})

    __rmul__ = __mul__

    def __sub__(self, other: Affine | int) -> Affine:
        return self + other * -1

    def __floordiv__(self, divisor: int) -> Affine:
        whole, rest, _ = _divided(self, divisor)
        return whole + rest if rest is not None else whole

    def __mod__(self, divisor: int) -> Affine:
        return _divided(self, divisor)[2]


def variable(name: Hashable, size: int) -> Affine | int:
    """A variable in [0, size); the number 0 if size is 1."""
    return Affine(0, {("variable", name, size): 1}) if size != 1 else 0


def value(key: Hashable, size: int) -> Affine:
    """A number in [0, size) that is known only at run time; equal keys are equal numbers."""
    return Affine(0, {("value", key, size): 1})


def unknown(key: Hashable) -> Affine:
    """An int64 that is known only at run time; equal keys are equal numbers."""
    return Affine(0, {("unknown", key, 0): 1})


def affine(x: Affine | int) -> Affine:
    """A number as an expression."""
    return x if isinstance(x, Affine) else Affine(x, {})


def _text(t: Term) -> str:
    if t[0] in ("variable", "value", "unknown"):
        return f"{t[1]}"
    return f"({t[1]}) {'//' if t[0] == 'quotient' else '%'} {t[2]}"


def _range(t: Term) -> tuple[int, int]:
    if t[0] in ("variable", "value"):
        return 0, t[2] - 1
    if t[0] == "unknown":
        return -(1 << 63), (1 << 63) - 1
    if t[0] == "remainder":
        return 0, t[2] - 1
    low, high = t[1].range
    return low // t[2], high // t[2]


def _normal(constant: int, terms: dict[Term, int]) -> Affine:
    """A sum without terms that cancel, and without a remainder together with its quotient."""
    terms = {t: k for t, k in terms.items() if k}
    for t, k in terms.items():
        if t[0] != "remainder":
            continue
        inner: Affine = t[1]
        divisor: int = t[2]
        quotient: Affine = inner // divisor
        # k · (inner % divisor) + k · divisor · (inner // divisor) = k · inner
        if quotient.terms and all(terms.get(u) == k * divisor * c for u, c in quotient.terms.items()):
            rest = {u: c for u, c in terms.items() if u != t and u not in quotient.terms}
            return Affine(constant - k * divisor * quotient.constant, rest) + inner * k
    return Affine(constant, terms)


def _divided(x: Affine, divisor: int) -> tuple[Affine, Affine | None, Affine]:
    """The quotient as two summands, the second None for 0, and the remainder, by a positive integer."""
    if divisor <= 0:
        raise ValueError(f"a divisor is positive. Received: {divisor}")
    if divisor == 1:
        return x, None, Affine(0, {})
    whole = Affine(x.constant // divisor, {t: k // divisor for t, k in x.terms.items() if k % divisor == 0})
    rest = Affine(x.constant % divisor, {t: k for t, k in x.terms.items() if k % divisor})
    low, high = rest.range
    if low // divisor == high // divisor:
        return whole + low // divisor, None, rest + -divisor * (low // divisor)
    # rest = g · upper + lower with 0 ≤ lower < g, where g divides the divisor: lower does not carry into the quotient
    g, upper, lower = _digits(rest, divisor)
    if g > 1:
        first, second, remainder = _divided(upper, divisor // g)
        return whole + first, second, remainder * g + lower
    if rest.constant == 0 and len(rest.terms) == 1:
        ((t, k),) = rest.terms.items()
        if k == 1 and t[0] == "quotient":  # (y // a) // b = y // (a · b)
            inner: Affine = t[1] // (t[2] * divisor)
            return whole + inner, None, _term("remainder", rest, divisor)
        if k == 1 and t[0] == "remainder" and t[2] % divisor == 0:  # (y % (a · b)) // a = (y // a) % b
            return whole + (t[1] // divisor) % (t[2] // divisor), None, t[1] % divisor
    return whole, _term("quotient", rest, divisor), _term("remainder", rest, divisor)


def _digits(x: Affine, divisor: int) -> tuple[int, Affine, Affine]:
    """The first g that is found, and ``upper`` and ``lower``; g is 1 if none is found."""
    order = sorted(x.terms.items(), key=lambda item: -abs(item[1]))
    for count in range(len(order), 0, -1):
        g = gcd(divisor, *(k for _, k in order[:count]))
        if g == 1:
            continue
        lower = Affine(x.constant % g, dict(order[count:]))
        low, high = lower.range
        if low >= 0 and high < g:
            return g, Affine(x.constant // g, {t: k // g for t, k in order[:count]}), lower
    return 1, x, Affine(0, {})


def _term(kind: str, x: Affine, divisor: int) -> Affine:
    return Affine(0, {(kind, x, divisor): 1})
