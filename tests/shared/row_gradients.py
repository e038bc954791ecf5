"""Gradients of ops along rows as expressions with several reductions, which kernels of rows are tried with."""

from firebrick.scalar import math
from firebrick.scalar.expr import Expr, const, eq, reduce, select, sqrt
from firebrick.scalar.rows import average, statistics


def _shifted(x: Expr) -> tuple[Expr, Expr]:
    """x - max x, and the sum of its exponentials."""
    centred = x - reduce("max", x)
    return centred, reduce("sum", math.exp_down(centred))


def softmax_gradient(g: Expr, y: Expr) -> Expr:
    """y · (g - Σ g · y), of softmax's result y."""
    return y * (g - reduce("sum", g * y))


def log_softmax_gradient(g: Expr, y: Expr) -> Expr:
    """g - exp(y) · Σ g, of log-softmax's result y."""
    return g - math.exp(y) * reduce("sum", g)


def standardized(x: Expr, count: int, eps: float) -> tuple[Expr, Expr]:
    """(x - mean) · i, and i = 1 / √(variance + eps)."""
    mean, variance = statistics(x, count)
    inverse = 1.0 / sqrt(variance + eps)
    return (x - mean) * inverse, inverse


def layer_norm_gradient(g: Expr, x: Expr, weight: Expr, count: int, eps: float) -> Expr:
    """The cotangent of layer norm's x: (u - mean u - h · mean(u · h)) · i with u = g · weight and h the standardized x."""
    h, inverse = standardized(x, count, eps)
    u = g * weight
    return (u - average(u, count) - h * average(u * h, count)) * inverse


def rms_norm_gradient(g: Expr, x: Expr, weight: Expr, count: int, eps: float) -> Expr:
    """The cotangent of RMS norm's x."""
    inverse = 1.0 / sqrt(average(x * x, count) + eps)
    u = g * weight
    return (u - x * (average(u * x, count) * inverse * inverse)) * inverse


def cross_entropy(x: Expr, label: Expr, position: Expr) -> Expr:
    """-log softmax(x) at ``label``: one value a row; ``position`` is the index along it, of the label's dtype."""
    centred, scale = _shifted(x)
    return math.log(scale) - reduce("sum", select(eq(position, label), centred, 0.0))


def cross_entropy_gradient(g: Expr, x: Expr, label: Expr, position: Expr) -> Expr:
    """The cotangent of x for the row's cotangent g: g · (softmax(x) - 1 at the label)."""
    centred, scale = _shifted(x)
    return g * (math.exp_down(centred) * (1.0 / scale) - select(eq(position, label), const(1.0, x.dtype), 0.0))
