"""Smooth functions that neural networks use at every step, as one op with a gradient of one op each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.op import Sample
from firebrick.ops.declare import FLOATS, Array, binary_samples, per_result
from firebrick.ops.elementwise import binary, equal, exp, isinf, logical_and, sigmoid, unary, where
from firebrick.ops.table import register
from firebrick.scalar import math as scalar_math

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)


def _normal_distribution(x: Array) -> Array:
    """Φ(x) in float64, accurate also where it is tiny."""
    tail = np.frompyfunc(math.erfc, 1, 1)
    return np.asarray(0.5 * np.asarray(tail(np.asarray(-x * _ROOT_HALF, np.float64)), np.float64))


def _gelu_vjp(g: Any, r: Any) -> Any:
    return (gelu_gradient(g, r.inputs[0]),)


@unary(_gelu_vjp, flops=18, tolerance=4, scale=lambda x: np.abs(x), scalar=scalar_math.gelu)
def gelu(x: Array) -> Array:
    """x · Φ(x), with Φ the normal distribution function: 0.5 · x · (1 + erf(x / √2))."""
    return (x * _normal_distribution(x)).astype(x.dtype)


def _equal_shapes(rng: np.random.Generator, name: str) -> list[Sample]:
    return [s for s in binary_samples()(rng, name) if s.inputs[0].shape == s.inputs[1].shape]


def _gelu_gradient_vjp(g: Any, r: Any) -> Any:
    cotangent, x = r.inputs
    first = gelu_gradient(g, x) if r.needs[0] else None
    curvature = exp(x * x * -0.5) * (2.0 - x * x) * _DENSITY
    return first, g * cotangent * curvature if r.needs[1] else None


@register(
    operands="g:floating=T x:floating=T", infer=lambda g, x: Aval(x.shape, x.dtype), vjp=_gelu_gradient_vjp,
    residuals=("inputs",), samples=_equal_shapes,
    cost=per_result(24), bound="memory", fusion="map", tolerance=4, scale=lambda g, x: np.abs(g), dtypes=FLOATS,
    scalar=scalar_math.gelu_gradient,
)  # fmt: skip
def gelu_gradient(g: Array, x: Array) -> Array:
    """g · (Φ(x) + x · φ(x)): the cotangent of ``gelu``'s operand."""
    return (g * (_normal_distribution(x) + x * (np.exp(-0.5 * x * x) * _DENSITY))).astype(x.dtype)


def _logaddexp_vjp(g: Any, r: Any) -> Any:
    x1, x2 = r.inputs
    # equal infinities share alike; equal numbers do too, by their difference, on which the second derivative depends
    apart = where(logical_and(equal(x1, x2), isinf(x1)), 0.0, x1 - x2)
    return g * sigmoid(apart) if r.needs[0] else None, g * sigmoid(-apart) if r.needs[1] else None


@binary(_logaddexp_vjp, kind="floating", dtypes=FLOATS, flops=24, tolerance=2,
        scale=lambda x1, x2: np.maximum(np.abs(x1), np.abs(x2)), scalar=scalar_math.logaddexp)  # fmt: skip
def logaddexp(x1: Array, x2: Array) -> Array:
    """log(exp(x1) + exp(x2)), without overflow."""
    return np.logaddexp(x1, x2)
