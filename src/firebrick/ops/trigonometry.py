"""Trigonometric and hyperbolic functions and their inverses, of real and complex numbers, and lengths and angles of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.dtypes import dtype, limits
from firebrick.core.op import Sample
from firebrick.ops.casts import conjugate
from firebrick.ops.declare import FLOATS, Array, binary_samples, unary_samples
from firebrick.ops.elementwise import analytic, binary, equal, sqrt, where
from firebrick.scalar import complex_functions, elements, math, periodic


def _of_input(rule: Any) -> Any:
    """A rule from the function g, x → cotangent, where x is conjugated if complex."""
    return lambda g, r: (rule(g, conjugate(r.inputs[0])),)


def _of_output(rule: Any) -> Any:
    """A rule from the function g, result → cotangent, where the result is conjugated if complex."""
    return lambda g, r: (rule(g, conjugate(r.outputs[0])),)


def _sin_slope(g: Any, x: Any) -> Any:
    return g * cos(x)


@analytic(_of_input(_sin_slope), flops=12, scalar=periodic.sin, complex_scalar=complex_functions.sin)
def sin(x: Array) -> Array:
    """Sine of x in radians."""
    return np.sin(x)


@analytic(_of_input(lambda g, x: -(g * sin(x))), flops=12, scalar=periodic.cos, complex_scalar=complex_functions.cos)
def cos(x: Array) -> Array:
    """Cosine of x in radians."""
    return np.cos(x)


@analytic(
    _of_output(lambda g, y: g * (1.0 + y * y)),
    residuals=("outputs",),
    low=-1.2,
    high=1.2,
    flops=20,
    tolerance=4,
    scalar=periodic.tan,
    complex_scalar=complex_functions.tan,
)
def tan(x: Array) -> Array:
    """Tangent of x in radians."""
    out = np.asarray(np.tan(x))
    if out.dtype.kind == "c":  # -i · tanh(i · x)
        far = np.isinf(x.imag)
        out.real = np.where(far, _zero_like(x.real), out.real)
    return out


def _zero_like(x: Array) -> Array:
    """0 with the sign of x; +0 for NaN."""
    return np.where(np.isnan(x), 0, np.copysign(0, x)).astype(x.dtype)


@analytic(
    _of_input(lambda g, x: g / (sqrt(1.0 - x) * sqrt(1.0 + x))),
    low=-0.95,
    high=0.95,
    flops=20,
    tolerance=3,
    scalar=elements.asin,
    complex_scalar=complex_functions.asin,
)
def asin(x: Array) -> Array:
    """Inverse sine in radians, in [-π/2, π/2]; NaN for a real x outside [-1, 1]."""
    return np.arcsin(x)


@analytic(
    _of_input(lambda g, x: -(g / (sqrt(1.0 - x) * sqrt(1.0 + x)))),
    low=-0.95,
    high=0.95,
    flops=20,
    tolerance=3,
    scalar=elements.acos,
    complex_scalar=complex_functions.acos,
)
def acos(x: Array) -> Array:
    """Inverse cosine in radians, in [0, π]; NaN for a real x outside [-1, 1]."""
    return np.arccos(x)


@analytic(
    _of_input(lambda g, x: g / (x * x + 1.0)),
    flops=20,
    tolerance=3,
    scalar=elements.atan,
    complex_scalar=complex_functions.atan,
)
def atan(x: Array) -> Array:
    """Inverse tangent in radians, in [-π/2, π/2]."""
    return np.arctan(x)


def _hyperbolic_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    """Also the last stretch below overflow, where half an exponential still has room, but not the exponential."""
    out = unary_samples(analytic=True)(rng, name)
    if name in FLOATS:
        last = (np.log(float(limits(dtype(name)).max)) + np.log(2.0)) * np.linspace(0.99, 1.0, 65)[:-1]
        if name == "float64":
            last = np.append(last, [710.404, 710.47])
        out.append(Sample((np.concatenate([last, -last]).astype(dtype(name).np),), grad_safe=False, name="below overflow"))
    return out


def _sinh_slope(g: Any, x: Any) -> Any:
    return g * cosh(x)


@analytic(
    _of_input(_sinh_slope),
    flops=12,
    tolerance=3,
    samples=_hyperbolic_samples,
    scalar=math.sinh,
    complex_scalar=complex_functions.sinh,
)
def sinh(x: Array) -> Array:
    """Hyperbolic sine."""
    return np.sinh(x)


@analytic(
    _of_input(lambda g, x: g * sinh(x)),
    flops=12,
    tolerance=3,
    samples=_hyperbolic_samples,
    scalar=math.cosh,
    complex_scalar=complex_functions.cosh,
)
def cosh(x: Array) -> Array:
    """Hyperbolic cosine."""
    return np.cosh(x)


@analytic(
    _of_output(lambda g, y: g * (1.0 - y * y)),
    residuals=("outputs",),
    flops=12,
    tolerance=3,
    scalar=math.tanh,
    complex_scalar=complex_functions.tanh,
)
def tanh(x: Array) -> Array:
    """Hyperbolic tangent."""
    out = np.asarray(np.tanh(x))
    if out.dtype.kind == "c":
        # the Array API standard has 1 + 0j at ∞ + bj for every b > 0; C, and so NumPy, gives the 0 the sign of sin(2b)
        far = np.isinf(x.real)
        out.imag = np.where(far, _zero_like(x.imag), out.imag)
    return out


def _asinh_slope(g: Any, x: Any) -> Any:
    if x.dtype.kind != "complex":
        return g / hypot(x, 1.0)  # not by the result, whose rounding an exponential would enlarge
    turned = x * 1j
    return g / (sqrt(1.0 - turned) * sqrt(1.0 + turned))


@analytic(_of_input(_asinh_slope), flops=20, tolerance=4, scalar=elements.asinh, complex_scalar=complex_functions.asinh)
def asinh(x: Array) -> Array:
    """Inverse hyperbolic sine."""
    return np.arcsinh(x)


@analytic(
    _of_input(lambda g, x: g / (sqrt(x - 1.0) * sqrt(x + 1.0))),
    low=1.1,
    high=5.0,
    flops=20,
    tolerance=4,
    scalar=elements.acosh,
    complex_scalar=complex_functions.acosh,
)
def acosh(x: Array) -> Array:
    """Inverse hyperbolic cosine, ≥ 0; NaN for a real x < 1."""
    return np.arccosh(x)


@analytic(
    _of_input(lambda g, x: g / ((1.0 - x) * (1.0 + x))),
    low=-0.9,
    high=0.9,
    flops=20,
    tolerance=4,
    scalar=elements.atanh,
    complex_scalar=complex_functions.atanh,
)
def atanh(x: Array) -> Array:
    """Inverse hyperbolic tangent; NaN for a real x outside [-1, 1]."""
    return np.arctanh(x)


# of two numbers


def _hypot_vjp(g: Any, r: Any) -> Any:
    x1, x2 = r.inputs
    out = r.outputs[0]
    safe = where(equal(out, 0.0), 1.0, out)
    return tuple(g * (x / safe) if need else None for x, need in zip((x1, x2), r.needs, strict=True))


@binary(_hypot_vjp, residuals=("inputs", "outputs"), kind="floating", dtypes=FLOATS, flops=6, tolerance=2, scalar=math.hypot)
def hypot(x1: Array, x2: Array) -> Array:
    """√(x1² + x2²), without overflow; gradient 0 at 0."""
    return np.hypot(x1, x2)


def _atan2_vjp(g: Any, r: Any) -> Any:
    y, x = r.inputs
    size = hypot(y, x)
    safe = where(equal(size, 0.0), 1.0, size)
    slope = g / safe
    return slope * (x / safe) if r.needs[0] else None, -(slope * (y / safe)) if r.needs[1] else None


@binary(
    _atan2_vjp,
    kind="floating",
    dtypes=FLOATS,
    flops=25,
    tolerance=3,
    samples=binary_samples(low2=0.3, high2=2.0),
    scalar=elements.atan2,
)
def atan2(x1: Array, x2: Array) -> Array:
    """The angle of the point (x2, x1) in radians, in [-π, π]; gradient 0 at the origin."""
    return np.arctan2(x1, x2)
