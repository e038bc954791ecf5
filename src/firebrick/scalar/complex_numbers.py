"""Complex numbers as pairs of real expressions: their parts, and the arithmetic of the op table's entries.

An expression of a complex dtype is a ``pair`` node of its real and imaginary part, which the nodes around it take apart again.
So all arithmetic is of reals: a kernel reads parts, and writes pairs. Rules take ``Parts`` where an operand is complex, and an
expression where it is real. Signs of zeros and parts that are not finite are those of C's Annex G and of the NumPy references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from firebrick.scalar import elements
from firebrick.scalar.expr import (
    COMPLEX,
    Expr,
    absolute,
    cast,
    const,
    eq,
    maximum,
    ne,
    node,
    reduce,
    select,
)
from firebrick.scalar.math import FORMATS, hypot

_OF_PARTS = {part: dtype for dtype, part in COMPLEX.items()}


class Parts(NamedTuple):
    """A complex number.

    Attributes:
        re: Its real part, float32 or float64.
        im: Its imaginary part, of the same dtype.
    """

    re: Expr
    im: Expr


def paired(x: Parts) -> Expr:
    """A complex number as one expression."""
    return node("pair", _OF_PARTS[x.re.dtype], (x.re, x.im))


def parts(e: Expr) -> Parts:
    """The parts of a complex expression: those of a ``pair``, else ``real`` and ``imag`` nodes."""
    if e.op == "pair":
        return Parts(*e.args)
    part = COMPLEX[e.dtype]
    return Parts(node("real", part, (e,)), node("imag", part, (e,)))


def by_parts(f: Callable[..., Expr], *elements: Expr) -> Expr:
    """``f`` of elements; of complex ones, of their real and of their imaginary parts."""
    if elements[0].dtype not in COMPLEX:
        return f(*elements)
    return paired(Parts(*(f(*each) for each in zip(*map(parts, elements), strict=True))))


def number(value: Any, dtype: str) -> Expr:
    """A constant of any dtype, complex ones among them."""
    if dtype not in COMPLEX:
        return const(value, dtype)
    part = COMPLEX[dtype]
    return paired(Parts(const(value.real, part), const(value.imag, part)))


# parts and casts


def real(x: Parts) -> Expr:
    """The real part."""
    return x.re


def imag(x: Parts) -> Expr:
    """The imaginary part."""
    return x.im


def conj(x: Parts) -> Parts:
    """The complex conjugate."""
    return Parts(x.re, -x.im)


def joined(re: Expr, im: Expr) -> Parts:
    """re + i · im; halves of elements that are computed in float32."""
    return Parts(re, im)


def to_dtype(x: Parts | Expr, *, dtype: Any) -> Parts | Expr:
    """A cast from or to a complex dtype; a complex number as a real one is its real part."""
    if dtype.kind == "complex":
        part = COMPLEX[dtype.name]
        if isinstance(x, Parts):
            return Parts(cast(x.re, part), cast(x.im, part))
        return Parts(cast(x, part), const(0.0, part))
    assert isinstance(x, Parts)
    if dtype.kind == "bool":
        return ne(x.re, 0.0) | ne(x.im, 0.0)
    return elements.to_dtype(x.re, dtype=dtype)


# arithmetic


def add(x: Parts, y: Parts) -> Parts:
    """x + y."""
    return Parts(x.re + y.re, x.im + y.im)


def subtract(x: Parts, y: Parts) -> Parts:
    """x - y."""
    return Parts(x.re - y.re, x.im - y.im)


def negative(x: Parts) -> Parts:
    """-x."""
    return Parts(-x.re, -x.im)


def multiply(x: Parts, y: Parts) -> Parts:
    """x · y."""
    return Parts(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def scaled(x: Parts, factor: Expr) -> Parts:
    """x times a real factor."""
    return Parts(x.re * factor, x.im * factor)


def divide(x: Parts, y: Parts) -> Parts:
    """x / y, without overflow or loss of digits in what the quotient is made of.

    Source: Smith, "Algorithm 116: complex division", CACM 5, 1962; operands next to the limits are brought into range first.
    """
    first, second = _into_range(x), _into_range(y)
    a, b = scaled(x, first)
    c, d = scaled(y, second)
    flat = absolute(c) >= absolute(d)
    large, small = select(flat, c, d), select(flat, d, c)
    u, v = select(flat, a, b), select(flat, b, a)
    ratio = small / large
    inverse = 1.0 / (large + small * ratio)
    re, across, back = u + v * ratio, v - u * ratio, u * ratio - v
    zero, size = eq(large, 0.0), absolute(c)
    back_in_range = second / first
    return scaled(
        Parts(select(zero, a / size, re * inverse), select(zero, b / size, select(flat, across, back) * inverse)), back_in_range
    )  # fmt: skip


def _into_range(x: Parts) -> Expr:
    """A power of 2 by which the parts can be multiplied with room for products and sums."""
    dtype = x.re.dtype
    eps = 2.0 ** -FORMATS[dtype].fraction_bits
    size = maximum(absolute(x.re), absolute(x.im))
    low, high = FORMATS[dtype].smallest / eps**2, 2.0 ** (FORMATS[dtype].bias - 2)
    one = const(1.0, dtype)
    return select((size < low) & (size > 0.0), const(eps**-2.0, dtype), select(size > high, const(0.25, dtype), one))


def modulus(x: Parts) -> Expr:
    """|x|, without overflow or underflow of the squares."""
    return hypot(x.re, x.im)


# comparison and selection


def isnan(x: Parts) -> Expr:
    """Whether a part is NaN."""
    return elements.isnan(x.re) | elements.isnan(x.im)


def isinf(x: Parts) -> Expr:
    """Whether a part is infinite."""
    return elements.isinf(x.re) | elements.isinf(x.im)


def isfinite(x: Parts) -> Expr:
    """Whether both parts are finite."""
    return elements.isfinite(x.re) & elements.isfinite(x.im)


def equal(x: Parts, y: Parts) -> Expr:
    """x = y."""
    return eq(x.re, y.re) & eq(x.im, y.im)


def not_equal(x: Parts, y: Parts) -> Expr:
    """x ≠ y."""
    return ne(x.re, y.re) | ne(x.im, y.im)


def where(condition: Expr, x: Parts, y: Parts) -> Parts:
    """x where the condition holds, else y."""
    return Parts(select(condition, x.re, y.re), select(condition, x.im, y.im))


# reductions


def total(x: Parts) -> Parts:
    """Σ x."""
    return Parts(reduce("sum", x.re), reduce("sum", x.im))


def average(x: Parts, count: int) -> Parts:
    """Σ x / count."""
    return Parts(reduce("sum", x.re) / float(count), reduce("sum", x.im) / float(count))
