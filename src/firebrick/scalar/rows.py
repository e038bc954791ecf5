"""The ops along rows as expressions with ``reduce`` nodes, of operands' elements along the innermost axis."""

from __future__ import annotations

from firebrick.scalar import math
from firebrick.scalar.expr import FLOATS, Expr, cast, eq, ne, reduce, select, sqrt


def total(x: Expr) -> Expr:
    """Σ x."""
    return reduce("sum", x)


def average(x: Expr, count: int) -> Expr:
    """Σ x / count."""
    return reduce("sum", x) / float(count)


def product(x: Expr) -> Expr:
    """Π x. float32 is computed in float64: the rounding errors of equal factors are equal, and accumulate."""
    return cast(reduce("prod", cast(x, "float64")), "float32") if x.dtype == "float32" else reduce("prod", x)


def all_true(x: Expr) -> Expr:
    """Whether bool x is true for all elements of the row."""
    return ne(reduce("min", cast(x, "uint8")), 0)


def any_true(x: Expr) -> Expr:
    """Whether bool x is true for any element of the row."""
    return ne(reduce("max", cast(x, "uint8")), 0)


def _shifted(x: Expr) -> tuple[Expr, Expr]:
    """x - max x, and the sum of its exponentials."""
    centred = x - reduce("max", x)
    return centred, reduce("sum", math.exp_down(centred))


def softmax(x: Expr) -> Expr:
    """exp(x) / Σ exp(x)."""
    centred, scale = _shifted(x)
    return math.exp_down(centred) * (1.0 / scale)


def log_softmax(x: Expr) -> Expr:
    """x - log Σ exp(x)."""
    centred, scale = _shifted(x)
    return centred - math.log(scale)


def statistics(x: Expr, count: int) -> tuple[Expr, Expr]:
    """The mean, and the biased variance, in two passes."""
    mean = average(x, count)
    centred = x - mean
    return mean, average(centred * centred, count)


def _inverse(variance: Expr, eps: float) -> Expr:
    """1 / √(variance + eps) as √v / v, which is NaN of a variance that overflowed."""
    v = variance + eps
    return sqrt(v) / v


def layer_norm(x: Expr, weight: Expr, bias: Expr, count: int, eps: float) -> Expr:
    """(x - mean) / √(variance + eps) · weight + bias."""
    mean, variance = statistics(x, count)
    return (x - mean) * _inverse(variance, eps) * weight + bias


def rms_norm(x: Expr, weight: Expr, count: int, eps: float) -> Expr:
    """x / √(mean x² + eps) · weight."""
    return x * _inverse(average(x * x, count), eps) * weight


def first_extreme(kind: str, x: Expr, position: Expr) -> Expr:
    """The first ``position`` (index along the row, int64) of the maximum or minimum of x, or of a NaN if there is one."""
    best = reduce(kind, x)
    is_extreme = eq(x, best)
    if x.dtype in FLOATS:
        is_extreme = is_extreme | ne(x, x)
    return reduce("min", select(is_extreme, position, (1 << 63) - 1))
