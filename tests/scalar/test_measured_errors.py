"""Errors of functions in float32 at many numbers, as they were measured: a change of the arithmetic that stays within the
limits of ``test_math`` changes these."""

from __future__ import annotations

import math as of_python
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from firebrick.scalar import evaluate, inverse, math, periodic
from firebrick.scalar.expr import Expr, load

Array = np.ndarray[Any, Any]
COUNT = 40_000

# name → (expression, reference in float64, worst and mean error in units of the last place)
MEASURED: dict[str, tuple[Callable[[Expr], Expr], Callable[[Array], Array], float, float]] = {
    "exp": (math.exp, np.exp, 0.8668, 0.2548),
    "exp2": (math.exp2, np.exp2, 0.8861, 0.2562),
    "expm1": (math.expm1, np.expm1, 1.5311, 0.2581),
    "log": (math.log, np.log, 0.8673, 0.2579),
    "log1p": (math.log1p, np.log1p, 1.3029, 0.2605),
    "log2": (math.log2, np.log2, 0.8917, 0.2596),
    "log10": (math.log10, np.log10, 0.9376, 0.2635),
    "tanh": (math.tanh, np.tanh, 1.2575, 0.2198),
    "sinh": (math.sinh, np.sinh, 1.6198, 0.2691),
    "cosh": (math.cosh, np.cosh, 1.2639, 0.2708),
    "sigmoid": (math.sigmoid, lambda x: 1 / (1 + np.exp(-x)), 1.9602, 0.4190),
    "erf": (math.erf, np.vectorize(of_python.erf), 0.9204, 0.2326),
    "rsqrt": (math.rsqrt, lambda x: 1 / np.sqrt(x), 1.4681, 0.3534),
    "sin": (periodic.sin, np.sin, 1.3755, 0.2758),
    "cos": (periodic.cos, np.cos, 1.5040, 0.2999),
    "tan": (periodic.tan, np.tan, 0.7837, 0.2290),
    "asin": (inverse.asin, np.arcsin, 1.0537, 0.2162),
    "acos": (inverse.acos, np.arccos, 1.0014, 0.2653),
    "atan": (inverse.atan, np.arctan, 1.1214, 0.2483),
    "asinh": (inverse.asinh, np.arcsinh, 0.8820, 0.2345),
    "acosh": (inverse.acosh, np.arccosh, 0.8693, 0.2591),
    "atanh": (inverse.atanh, np.arctanh, 0.7156, 0.2051),
}


def numbers(name: str) -> Array:
    """Of the function's domain, most of them where its value is neither 0 nor infinite."""
    rng = np.random.default_rng(2)
    sizes = np.exp(rng.uniform(-12, 5 if name in ("sin", "cos", "tan", "atan", "asinh") else 4, COUNT))
    x = np.concatenate([sizes, rng.uniform(0, 3, COUNT)])
    if name in ("asin", "acos", "atanh"):
        x = x[x < 1]
    if name == "acosh":
        return (1 + x).astype(np.float32)
    if name in ("log", "log2", "log10", "rsqrt"):
        return x.astype(np.float32)
    x = (x * np.where(rng.random(x.size) < 0.5, -1, 1)).astype(np.float32)
    return x[x > -1] if name == "log1p" else x


def errors(name: str) -> tuple[float, float]:
    """The worst and the mean error of a function in units of the last place."""
    function, reference, *_ = MEASURED[name]
    x = numbers(name)
    (got,) = evaluate([function(load(0, "float32"))], [x])
    want = reference(x.astype(np.float64))
    found = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
    return float(found.max()), float(found.mean())


@pytest.mark.parametrize("name", MEASURED)
def test_errors_are_as_measured(name: str) -> None:
    *_, worst, mean = MEASURED[name]
    assert errors(name) == pytest.approx((worst, mean), abs=5e-5)
