"""Elementwise ops: arithmetic, mathematics, comparison, logic, selection and casts.

Edges are defined once, here: integer division by zero gives 0, an integer to a negative power truncates towards 0, a
float cast to an integer saturates and NaN becomes 0, NaN propagates through maximum and minimum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import Nondifferentiable, Sample
from firebrick.ops.declare import (
    ALL,
    COMPLEX,
    FLOATS,
    NUMERIC,
    REAL,
    Array,
    Declare,
    binary_samples,
    broadcasted,
    per_result,
    predicate,
    same,
    specials,
    unary_samples,
    values,
)
from firebrick.ops.table import register

_STEPS = Nondifferentiable("piecewise constant: the derivative is 0 wherever it exists")
_BOOL = Nondifferentiable("the result is bool")


def _unary(vjp: Any, *, residuals: Any = ("inputs",), kind: str = "floating", dtypes: Any = FLOATS,
           low: float = -2.0, high: float = 2.0, flops: float = 1, tolerance: float = 2, **more: Any) -> Declare:  # fmt: skip
    more.setdefault("infer", same)
    return register(
        operands=f"x:{kind}", vjp=vjp, residuals=residuals, samples=unary_samples(low, high), cost=per_result(flops),
        bound="memory", fusion="map", tolerance=tolerance, dtypes=dtypes, **more,
    )  # fmt: skip


def _binary(vjp: Any, *, residuals: Any = ("inputs",), kind: str = "numeric", dtypes: Any = NUMERIC,
            samples: Any = None, flops: float = 1, tolerance: float = 1, **more: Any) -> Declare:  # fmt: skip
    more.setdefault("infer", broadcasted)
    return register(
        operands=f"x1:{kind}=T x2:{kind}=T", vjp=vjp, residuals=residuals, samples=samples or binary_samples(),
        cost=per_result(flops), bound="memory", fusion="map", tolerance=tolerance, broadcasts=True, dtypes=dtypes, **more,
    )  # fmt: skip


# arithmetic


@_binary(lambda g, r: (g, g), residuals=())
def add(x1: Array, x2: Array) -> Array:
    """x1 + x2."""
    return np.add(x1, x2)


@_binary(lambda g, r: (g, -g), residuals=())
def subtract(x1: Array, x2: Array) -> Array:
    """x1 - x2."""
    return np.subtract(x1, x2)


@_binary(
    lambda g, r: (g * r.inputs[1] if r.needs[0] else None, g * r.inputs[0] if r.needs[1] else None),
    tolerance=4,
)
def multiply(x1: Array, x2: Array) -> Array:
    """x1 · x2."""
    return np.multiply(x1, x2)


def _divide_vjp(g: Any, r: Any) -> Any:
    x1, x2 = r.inputs
    return g / x2, -(g * x1 / (x2 * x2)) if r.needs[1] else None


@_binary(_divide_vjp, kind="inexact", dtypes=FLOATS, samples=binary_samples(low2=0.5, high2=3.0))
def divide(x1: Array, x2: Array) -> Array:
    """x1 / x2."""
    return np.divide(x1, x2)


@_binary(_STEPS, residuals=(), kind="real", dtypes=REAL, samples=binary_samples(low2=0.5, high2=3.0))
def floor_divide(x1: Array, x2: Array) -> Array:
    """x1 / x2 rounded towards -∞; 0 for an integer divided by 0."""
    return np.floor_divide(x1, x2)


def _remainder_vjp(g: Any, r: Any) -> Any:
    x1, x2 = r.inputs
    return g, -(g * floor_divide(x1, x2)) if r.needs[1] else None


@_binary(_remainder_vjp, kind="real", dtypes=REAL, samples=binary_samples(low2=0.5, high2=3.0), scale="magnitude")
def remainder(x1: Array, x2: Array) -> Array:
    """x1 - x2 · floor(x1 / x2), with the sign of x2; 0 for an integer modulo 0."""
    return np.remainder(x1, x2)


def _pow_vjp(g: Any, r: Any) -> Any:
    x1, x2 = r.inputs
    one = where(equal(x2, 0.0), 1.0, x2)
    g1 = where(equal(x2, 0.0), 0.0, g * x2 * pow_(x1, one - 1.0)) if r.needs[0] else None
    if not r.needs[1]:
        return g1, None
    safe = where(greater(x1, 0.0), x1, 1.0)
    # below 0 the power is complex for nearly every exponent: no derivative
    edge = where(less(x1, 0.0), float("nan"), x1 * 0.0)
    return g1, where(greater(x1, 0.0), g * pow_(safe, x2) * log(safe), edge)


@_binary(_pow_vjp, kind="real", dtypes=REAL, samples=binary_samples(0.3, 2.0, -2.0, 3.0), flops=20, tolerance=4)
def pow_(x1: Array, x2: Array) -> Array:
    """x1 to the power x2; integers wrap, and a negative integer exponent truncates towards 0."""
    if x1.dtype.kind in "iu":
        odd = np.where(np.remainder(x2, 2) != 0, x1, np.ones_like(x1))
        inverse = np.where(x1 == 1, 1, np.where(x1 == -1, odd, 0)).astype(x1.dtype)
        return np.where(x2 < 0, inverse, np.power(x1, np.where(x2 < 0, 0, x2).astype(x2.dtype)))
    return np.power(x1, x2)


def _first_larger(a: Any, b: Any) -> Any:
    return logical_or(greater_equal(a, b), isnan(a))


def _first_smaller(a: Any, b: Any) -> Any:
    return logical_or(less_equal(a, b), isnan(a))


def _pick_vjp(first: Any) -> Any:
    def vjp(g: Any, r: Any) -> Any:
        mask = first(*r.inputs)
        return where(mask, g, 0.0), where(mask, 0.0, g)

    return vjp


@_binary(_pick_vjp(_first_larger), kind="real", dtypes=REAL)
def maximum(x1: Array, x2: Array) -> Array:
    """The larger of x1 and x2, or NaN if either is; x1 takes the gradient of a tie."""
    return np.maximum(x1, x2)


@_binary(_pick_vjp(_first_smaller), kind="real", dtypes=REAL)
def minimum(x1: Array, x2: Array) -> Array:
    """The smaller of x1 and x2, or NaN if either is; x1 takes the gradient of a tie."""
    return np.minimum(x1, x2)


# one operand


@_unary(lambda g, r: (-g,), residuals=(), kind="numeric", dtypes=NUMERIC, tolerance=0)
def negative(x: Array) -> Array:
    """-x."""
    return np.negative(x)


def _abs_vjp(g: Any, r: Any) -> Any:
    return (g * sign(r.inputs[0]),)


@_unary(_abs_vjp, kind="real", dtypes=REAL, tolerance=0)
def abs_(x: Array) -> Array:
    """|x|, with gradient 0 at 0."""
    return np.abs(x)


@_unary(_STEPS, residuals=(), kind="real", dtypes=REAL, tolerance=0)
def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN for NaN."""
    return np.sign(x)


@_unary(lambda g, r: (g * r.outputs[0],), residuals=("outputs",), flops=10)
def exp(x: Array) -> Array:
    """e to the power x."""
    return np.exp(x)


@_unary(lambda g, r: (g * (r.outputs[0] + 1.0),), residuals=("outputs",), flops=12, tolerance=3)
def expm1(x: Array) -> Array:
    """exp(x) - 1, accurate near 0."""
    return np.expm1(x)


@_unary(lambda g, r: (g / r.inputs[0],), low=0.2, high=5.0, flops=10)
def log(x: Array) -> Array:
    """Natural logarithm."""
    return np.log(x)


@_unary(lambda g, r: (g / (r.inputs[0] + 1.0),), low=-0.6, high=4.0, flops=12)
def log1p(x: Array) -> Array:
    """log(1 + x), accurate near 0."""
    return np.log1p(x)


@_unary(lambda g, r: (g / (r.outputs[0] * 2.0),), residuals=("outputs",), low=0.2, high=5.0, flops=4)
def sqrt(x: Array) -> Array:
    """Square root."""
    return np.sqrt(x)


def _sin_vjp(g: Any, r: Any) -> Any:
    return (g * cos(r.inputs[0]),)


@_unary(_sin_vjp, flops=12)
def sin(x: Array) -> Array:
    """Sine of x in radians."""
    return np.sin(x)


@_unary(lambda g, r: (-(g * sin(r.inputs[0])),), flops=12)
def cos(x: Array) -> Array:
    """Cosine of x in radians."""
    return np.cos(x)


@_unary(lambda g, r: (g * (1.0 - r.outputs[0] * r.outputs[0]),), residuals=("outputs",), flops=12, tolerance=3)
def tanh(x: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(x)


@_unary(lambda g, r: (g * r.outputs[0] * (1.0 - r.outputs[0]),), residuals=("outputs",), flops=12, tolerance=4)
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


@_unary(lambda g, r: (g * exp(-(r.inputs[0] * r.inputs[0])) * (2 / math.sqrt(math.pi)),), flops=16, tolerance=4)
def erf(x: Array) -> Array:
    """The error function, 2/√π ∫₀ˣ exp(-t²) dt."""
    exact = np.frompyfunc(math.erf, 1, 1)
    return np.asarray(exact(np.asarray(x, np.float64)), np.float64).astype(x.dtype)


def _relu_vjp(g: Any, r: Any) -> Any:
    return (where(greater(r.outputs[0], 0.0), g, 0.0),)


@_unary(_relu_vjp, residuals=("outputs",), kind="real", dtypes=REAL,
        tolerance=0)  # fmt: skip
def relu(x: Array) -> Array:
    """max(x, 0), with gradient 0 at 0."""
    return np.maximum(x, np.zeros((), x.dtype))


@_unary(_STEPS, residuals=(), kind="real", dtypes=REAL, low=-3, high=3, tolerance=0)
def floor(x: Array) -> Array:
    """The largest integer ≤ x."""
    return np.floor(x) if x.dtype.kind not in "iu" else np.array(x)


@_unary(_STEPS, residuals=(), kind="real", dtypes=REAL, low=-3, high=3, tolerance=0)
def ceil(x: Array) -> Array:
    """The smallest integer ≥ x."""
    return np.ceil(x) if x.dtype.kind not in "iu" else np.array(x)


@_unary(_STEPS, residuals=(), kind="real", dtypes=REAL, low=-3, high=3, tolerance=0)
def round_(x: Array) -> Array:
    """The nearest integer; halves go to the even one."""
    return np.rint(x) if x.dtype.kind not in "iu" else np.array(x)


def _test(**more: Any) -> Declare:
    return _unary(_BOOL, residuals=(), kind="numeric", dtypes=REAL, tolerance=0, infer=predicate, **more)


@_test()
def isnan(x: Array) -> Array:
    """Whether x is NaN."""
    return np.isnan(x)


@_test()
def isinf(x: Array) -> Array:
    """Whether x is +∞ or -∞."""
    return np.isinf(x)


@_test()
def isfinite(x: Array) -> Array:
    """Whether x is neither NaN nor infinite."""
    return np.isfinite(x)


# comparison and logic


def _compare(kind: str = "real", dtypes: Any = REAL) -> Declare:
    return _binary(_BOOL, residuals=(), kind=kind, dtypes=dtypes, tolerance=0, infer=predicate)


@_compare("any", ALL)
def equal(x1: Array, x2: Array) -> Array:
    """x1 = x2."""
    return np.equal(x1, x2)


@_compare("any", ALL)
def not_equal(x1: Array, x2: Array) -> Array:
    """x1 ≠ x2."""
    return np.not_equal(x1, x2)


@_compare()
def less(x1: Array, x2: Array) -> Array:
    """x1 < x2."""
    return np.less(x1, x2)


@_compare()
def less_equal(x1: Array, x2: Array) -> Array:
    """x1 ≤ x2."""
    return np.less_equal(x1, x2)


@_compare()
def greater(x1: Array, x2: Array) -> Array:
    """x1 > x2."""
    return np.greater(x1, x2)


@_compare()
def greater_equal(x1: Array, x2: Array) -> Array:
    """x1 ≥ x2."""
    return np.greater_equal(x1, x2)


@_compare("bool", ("bool",))
def logical_and(x1: Array, x2: Array) -> Array:
    """x1 and x2."""
    return np.logical_and(x1, x2)


@_compare("bool", ("bool",))
def logical_or(x1: Array, x2: Array) -> Array:
    """x1 or x2."""
    return np.logical_or(x1, x2)


@_compare("bool", ("bool",))
def logical_xor(x1: Array, x2: Array) -> Array:
    """Either x1 or x2."""
    return np.logical_xor(x1, x2)


@_unary(_BOOL, residuals=(), kind="bool", dtypes=("bool",), tolerance=0)
def logical_not(x: Array) -> Array:
    """not x."""
    return np.logical_not(x)


# selection


def _where_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    shapes = (
        ((3, 4), (3, 4), (3, 4)),
        ((3, 1), (4,), ()),
        ((), (), ()),
        ((0, 2), (2,), (1, 2)),
        ((700,), (700,), (1,)),
    )
    return [
        Sample((values(rng, "bool", c), values(rng, name, a), values(rng, name, b)), name=str((c, a, b))) for c, a, b in shapes
    ]


def _where_vjp(g: Any, r: Any) -> Any:
    return (None, where(r.inputs[0], g, 0.0), where(r.inputs[0], 0.0, g))


@register(
    operands="condition:bool x1:any=T x2:any=T", infer=broadcasted, residuals=("inputs",),
    vjp=_where_vjp,
    samples=_where_samples, cost=per_result(1), bound="memory", fusion="map", tolerance=0, broadcasts=True, dtypes=ALL,
)  # fmt: skip
def where(condition: Array, x1: Array, x2: Array) -> Array:
    """x1 where condition holds, else x2."""
    return np.where(condition, x1, x2)


def _clip_vjp(g: Any, r: Any) -> Any:
    x, low, high = r.inputs
    below, above = less(x, low), greater(x, high)
    inside = logical_not(logical_or(below, above))
    top = logical_or(above, greater(low, high))
    return where(inside, g, 0.0), where(logical_and(below, logical_not(top)), g, 0.0), where(top, g, 0.0)


def _clip_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    def case(label: str, x: Array, safe: bool = True) -> Sample:
        low, high = np.asarray(0 if name[0] == "u" else -1, x.dtype), np.asarray(1, x.dtype)
        return Sample((x, low, high), grad_safe=safe, name=label)

    x = values(rng, name, (3, 4))
    rows = Sample((x, x[:1] - x.dtype.type(1) if name[0] != "u" else x[:1], x[:, :1]), grad_safe=False, name="rows")
    return [case("matrix", x), case("0-d", values(rng, name, ())), case("empty", values(rng, name, (0, 2))), rows,
            case("special values", specials(name), False)]  # fmt: skip


@register(
    operands="x:real=T min:real=T max:real=T", infer=lambda x, lo, hi: broadcasted(lo, hi, x), residuals=("inputs",),
    vjp=_clip_vjp, samples=_clip_samples, cost=per_result(2), bound="memory", fusion="map", tolerance=0, broadcasts=True,
    dtypes=REAL,
)  # fmt: skip
def clip(x: Array, min_: Array, max_: Array) -> Array:
    """min(max(x, min), max); x at a bound passes its gradient."""
    return np.minimum(np.maximum(x, min_), max_)


# casts


def _cast_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    goals: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16", "int32", "int8", "uint8", "int64", "bool")
    if name in COMPLEX:
        goals = COMPLEX
    out = []
    for goal in goals:
        exact = name in FLOATS and goal in FLOATS
        safe = exact and as_dtype(goal).itemsize >= as_dtype(name).itemsize
        x = values(rng, name, (3, 4), -3, 3)
        out.append(Sample((x,), {"dtype": as_dtype(goal)}, safe, f"to {goal}"))
        out.append(Sample((specials(name),), {"dtype": as_dtype(goal)}, False, f"special values to {goal}"))
    out.append(Sample((values(rng, name, ()),), {"dtype": as_dtype(goals[0])}, False, "0-d"))
    out.append(Sample((values(rng, name, (0,)),), {"dtype": as_dtype(goals[0])}, False, "empty"))
    return out


def _cast_vjp(g: Any, r: Any) -> Any:
    return (cast(g, dtype=r.avals[0].dtype),)


@register(
    operands="x:any", infer=lambda x, *, dtype: Aval(x.shape, dtype), residuals=(),
    vjp=_cast_vjp, samples=_cast_samples, cost=per_result(1), bound="memory",
    fusion="map", tolerance=1, dtypes=ALL,
)  # fmt: skip
def cast(x: Array, *, dtype: Any) -> Array:
    """x as another dtype: floats round to nearest even, float → integer truncates and saturates, NaN becomes 0."""
    to = dtype.np
    if x.dtype.kind in "fV" and dtype.is_integer:
        wide = x.astype(np.float64)
        info = np.iinfo(to)
        low, high = float(info.min), float(info.max) + (1.0 if info.bits < 64 else 0.0)
        inside = (wide > low - 1) & (wide < high)
        whole = np.trunc(np.where(inside, wide, 0.0)).astype(to)
        return np.where(wide >= high, info.max, np.where(wide <= low, info.min, whole)).astype(to)
    return x.astype(to)
