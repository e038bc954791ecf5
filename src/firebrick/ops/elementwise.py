"""Elementwise ops: arithmetic, exponentials, rounding, comparison, logic and selection.

Edges are defined once, here: integer division by zero gives 0, an integer to a negative power truncates towards 0, NaN
propagates through maximum and minimum. Gradient rules multiply by conjugates, which cost real operands nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import real_of
from firebrick.core.op import Laws, Nondifferentiable, Sample
from firebrick.ops import forward_rules
from firebrick.ops.casts import conjugate
from firebrick.ops.declare import (
    ALL,
    COMPARABLE,
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
from firebrick.scalar import complex_functions, complex_numbers, elements, expr, power
from firebrick.scalar import math as scalar_math

_STEPS = Nondifferentiable("piecewise constant: the derivative is 0 wherever it exists")
_BOOL = Nondifferentiable("the result is bool")


INEXACT = FLOATS + COMPLEX


def unary(vjp: Any, *, residuals: Any = ("inputs",), kind: str = "floating", dtypes: Any = FLOATS, analytic: bool = False,
          low: float = -2.0, high: float = 2.0, flops: float = 1, tolerance: float = 2, **more: Any) -> Declare:  # fmt: skip
    """Declare an op of one operand. ``analytic``: see ``unary_samples``."""
    more.setdefault("samples", unary_samples(low, high, analytic=analytic))
    more.setdefault("infer", same)
    return register(
        operands=f"x:{kind}", vjp=vjp, residuals=residuals, cost=per_result(flops), bound="memory", fusion="map",
        tolerance=tolerance, dtypes=dtypes, **more,
    )  # fmt: skip


def analytic(vjp: Any, **more: Any) -> Declare:
    """Declare a function of one real or complex number, with a derivative everywhere but at poles and branch points.

    The function of a complex number is made of two or more real ones (exp, sin and cos; log and atan2), each of which rounds.
    """
    more.setdefault("complex_tolerance", 2 * more.get("tolerance", 2))
    return unary(vjp, kind="inexact", dtypes=INEXACT, analytic=True, **more)


def binary(vjp: Any, *, residuals: Any = ("inputs",), kind: str = "numeric", dtypes: Any = NUMERIC,
           samples: Any = None, flops: float = 1, tolerance: float = 1, **more: Any) -> Declare:  # fmt: skip
    """Declare an op of two operands that broadcast and promote."""
    more.setdefault("infer", broadcasted)
    return register(
        operands=f"x1:{kind}=T x2:{kind}=T", vjp=vjp, residuals=residuals, samples=samples or binary_samples(),
        cost=per_result(flops), bound="memory", fusion="map", tolerance=tolerance, broadcasts=True, dtypes=dtypes, **more,
    )  # fmt: skip


# arithmetic


@binary(
    lambda g, r: (g, g), residuals=(), one_step=True, scalar=elements.add, complex_scalar=complex_numbers.add, exact="all",
    laws=Laws(neutral=(-0.0, 0)), jvp=forward_rules.summed(1, 1),
)  # fmt: skip
def add(x1: Array, x2: Array) -> Array:
    """x1 + x2."""
    return np.add(x1, x2)


@binary(
    lambda g, r: (g, -g), residuals=(), one_step=True, scalar=elements.subtract, complex_scalar=complex_numbers.subtract,
    exact="all", laws=Laws(neutral=(0.0, 0), sides=(1,), of_equals=0), jvp=forward_rules.summed(1, -1),
)  # fmt: skip
def subtract(x1: Array, x2: Array) -> Array:
    """x1 - x2."""
    return np.subtract(x1, x2)


@binary(
    lambda g, r: tuple(g * conjugate(r.inputs[1 - i]) if r.needs[i] else None for i in (0, 1)),
    tolerance=4, one_step=True,
    scalar=elements.multiply, complex_scalar=complex_numbers.multiply,
    exact="real", laws=Laws(neutral=(1.0, 1), absorbing=0),
)  # fmt: skip
def multiply(x1: Array, x2: Array) -> Array:
    """x1 · x2."""
    return np.multiply(x1, x2)


def _divide_vjp(g: Any, r: Any) -> Any:
    x1, x2 = map(conjugate, r.inputs)
    g1 = g / x2
    # not g · x1 / x2²: the square leaves float16 at 256, where the gradient is an ordinary number
    return g1, -(g1 * (x1 / x2)) if r.needs[1] else None


# a complex quotient: six products, three sums and two quotients of reals
@binary(_divide_vjp, kind="inexact", dtypes=INEXACT, samples=binary_samples(low2=0.5, high2=3.0), complex_tolerance=4,
        scalar=elements.divide, complex_scalar=complex_numbers.divide, exact="real",
        laws=Laws(neutral=(1.0, None), sides=(1,)))  # fmt: skip
def divide(x1: Array, x2: Array) -> Array:
    """x1 / x2."""
    if x1.dtype.kind != "c":
        return np.divide(x1, x2)
    # the quotient of real sums that NumPy computes overflows or loses digits where the operands are next to the limits
    if _has_room(x1) and _has_room(x2):
        return np.divide(x1, x2)
    first, second = _into_range(x1), _into_range(x2)
    return _times(np.divide(_times(x1, first), _times(x2, second)), second / first)


def _room(real: Any) -> tuple[float, float]:
    """The sizes between which products and sums of two numbers neither overflow nor lose digits."""
    return float(real.smallest_normal / real.eps**2), float(real.max / 4)


_ROOM = {np.dtype(name): _room(np.finfo(name)) for name in ("float32", "float64")}


def _has_room(x: Array) -> bool:
    low, high = _ROOM[x.real.dtype]
    size = np.maximum(np.abs(x.real), np.abs(x.imag))
    return not size.size or bool(size.min() >= low and size.max() <= high)


def _into_range(x: Array) -> Array:
    """A power of 2 for each complex element, by which its parts can be multiplied with room for products and sums."""
    low, high = _ROOM[x.real.dtype]
    size = np.maximum(np.abs(x.real), np.abs(x.imag))
    factor = np.where((size < low) & (size > 0), np.finfo(size.dtype).eps ** -2.0, np.where(size > high, 0.25, 1.0))
    return np.asarray(factor, size.dtype)


def _times(x: Array, factor: Array) -> Array:
    """Complex x times a real factor, part by part: a product with a complex factor makes NaN of infinite parts."""
    out = np.empty(np.broadcast_shapes(x.shape, factor.shape), x.dtype)
    out.real, out.imag = x.real * factor, x.imag * factor
    return out


@binary(_STEPS, residuals=(), kind="real", dtypes=REAL, samples=binary_samples(low2=0.5, high2=3.0),
        scalar=elements.floor_divide, discontinuous=True, exact="integers",
        laws=Laws(neutral=(None, 1), sides=(1,)))  # fmt: skip
def floor_divide(x1: Array, x2: Array) -> Array:
    """x1 / x2 rounded towards -∞, also if one of them is infinite; 0 for an integer divided by 0."""
    out = np.floor_divide(x1, x2)
    if out.dtype.kind in "iu":
        return out
    # NumPy's is Python's here: NaN for ∞ // 1, -1 for -1 // ∞
    infinite = np.isinf(x1) | np.isinf(x2)
    return np.where(infinite, np.floor(np.divide(x1, x2)), out) if infinite.any() else out


def _remainder_vjp(g: Any, r: Any) -> Any:
    x1, x2 = r.inputs
    if not r.needs[1]:
        return g, None
    # an infinite x2 is added once to an x1 of unlike sign; an infinite x1 has no remainder
    nothing = x1 * 0.0
    added = where(less(x1 * sign(x2), 0.0), -1.0, nothing)
    return g, -(g * (where(isinf(x2), added, floor_divide(x1, x2)) + nothing))


@binary(
    _remainder_vjp, kind="real", dtypes=REAL, samples=binary_samples(low2=0.5, high2=3.0), scale="magnitude",
    scalar=elements.remainder, discontinuous=True, exact="integers",
)  # fmt: skip
def remainder(x1: Array, x2: Array) -> Array:
    """x1 - x2 · floor(x1 / x2), with the sign of x2; 0 for an integer modulo 0."""
    return np.remainder(x1, x2)


def _pow_vjp(g: Any, r: Any) -> Any:
    x1, x2 = r.inputs
    g1 = None
    if r.needs[0]:
        # x1⁰ is 1 also for an x1 of 0 and NaN; elsewhere the rule has its slope along x2, 1 / x1 at an exponent of 0
        constant = logical_and(equal(x2, 0.0), logical_or(equal(x1, 0.0), isnan(x1)))
        g1 = where(constant, 0.0, g * conjugate(x2 * pow_(x1, where(constant, 1.0, x2) - 1.0)))
    if not r.needs[1]:
        return g1, None
    if x1.dtype.kind == "complex":
        zero = equal(x1, 0.0)
        safe = where(zero, 1.0, x1)
        return g1, where(zero, 0.0, g * conjugate(pow_(safe, x2) * log(safe)))
    safe = where(greater(x1, 0.0), x1, 1.0)
    # below 0 the power is complex for nearly every exponent: no derivative
    edge = where(less(x1, 0.0), float("nan"), x1 * 0.0)
    return g1, where(greater(x1, 0.0), g * pow_(safe, x2) * log(safe), edge)


def _pow_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    # an infinity to a complex power: the engines' libraries differ in which parts are NaN
    out = binary_samples(0.3, 2.0, -2.0, 3.0, special=name not in COMPLEX)(rng, name)
    if name in COMPLEX:
        x1, x2 = np.asarray([0, 1, -2, 1j]), np.asarray([0, 1, 2, 0.5, 1 + 1j, -1, -2 + 1j, 1j])
        pair = x1[:, None].astype(name), x2.astype(name)
        out.append(Sample(pair, grad_safe=False, name="zero as base and exponent"))
    return out


def _pow_scale(x1: Array, x2: Array) -> Array:
    """|result|; a complex power is exp(x2 · log x1), whose error grows with its argument."""
    out = np.abs(np.asarray(pow_.reference(x1, x2)))
    return np.asarray(out * (1 + np.abs(x2 * np.log(x1)))) if x1.dtype.kind == "c" else out


@binary(_pow_vjp, dtypes=NUMERIC, samples=_pow_samples, flops=20, tolerance=4, scale=_pow_scale, scalar=power.power,
        complex_scalar=complex_functions.power, exact="integers",
        laws=Laws(neutral=(None, 1), sides=(1,)))  # fmt: skip
def pow_(x1: Array, x2: Array) -> Array:
    """x1 to the power x2, 1 for an exponent of 0; integers wrap, and a negative integer exponent truncates towards 0."""
    if x1.dtype.kind in "iu":
        odd = np.where(np.remainder(x2, 2) != 0, x1, np.ones_like(x1))
        inverse = np.where(x1 == 1, 1, np.where(x1 == -1, odd, 0)).astype(x1.dtype)
        return np.where(x2 < 0, inverse, np.power(x1, np.where(x2 < 0, 0, x2).astype(x2.dtype)))
    out = np.asarray(np.power(x1, x2))
    if out.dtype.kind == "c":  # exp(x2 · log x1), but that 0 to the power 0 is 1
        infinite = np.empty_like(x2)
        infinite.real, infinite.imag = np.where(x2.real < 0, np.inf, np.nan), np.nan
        of_zero = np.where(x2.real > 0, 0, infinite)
        out = np.where(x2 == 0, 1, np.where(x1 == 0, of_zero, out)).astype(out.dtype)
    return out


def _first_larger(a: Any, b: Any) -> Any:
    return logical_or(greater_equal(a, b), isnan(a))


def _first_smaller(a: Any, b: Any) -> Any:
    return logical_or(less_equal(a, b), isnan(a))


def _pick_vjp(first: Any) -> Any:
    def vjp(g: Any, r: Any) -> Any:
        mask = first(*r.inputs)
        return where(mask, g, 0.0), where(mask, 0.0, g)

    return vjp


# engines' libraries differ in which of two zeros is the larger
@binary(
    _pick_vjp(_first_larger), kind="real", dtypes=REAL, one_step=True, samples=binary_samples(edges=False),
    scalar=expr.maximum, exact="integers", laws=Laws(idempotent=True),
)  # fmt: skip
def maximum(x1: Array, x2: Array) -> Array:
    """The larger of x1 and x2, or NaN if either is; x1 takes the gradient of a tie."""
    return np.maximum(x1, x2)


# engines' libraries differ in which of two zeros is the smaller
@binary(
    _pick_vjp(_first_smaller), kind="real", dtypes=REAL, one_step=True, samples=binary_samples(edges=False),
    scalar=expr.minimum, exact="integers", laws=Laws(idempotent=True),
)  # fmt: skip
def minimum(x1: Array, x2: Array) -> Array:
    """The smaller of x1 and x2, or NaN if either is; x1 takes the gradient of a tie."""
    return np.minimum(x1, x2)


# one operand


@unary(lambda g, r: (-g,), residuals=(), kind="numeric", dtypes=NUMERIC, tolerance=0, one_step=True, scalar=elements.negative,
       complex_scalar=complex_numbers.negative, exact="real", laws=Laws(involution=True))  # fmt: skip
def negative(x: Array) -> Array:
    """-x."""
    return np.negative(x)


def direction(x: Any) -> Any:
    """x / |x|, and 0 at 0: the sign of a real or complex tensor."""
    if x.dtype.kind != "complex":
        return sign(x)
    size = abs_(x)
    return x / where(equal(size, 0.0), 1.0, size)


def _abs_vjp(g: Any, r: Any) -> Any:
    return (g * direction(r.inputs[0]),)


@unary(_abs_vjp, kind="numeric", dtypes=NUMERIC, tolerance=0, complex_tolerance=2, one_step=True, scalar=expr.absolute,
       infer=lambda x: Aval(x.shape, real_of(x.dtype)), complex_scalar=complex_numbers.modulus, exact="real")  # fmt: skip
def abs_(x: Array) -> Array:
    """|x|, real also of a complex x; gradient 0 at 0."""
    return np.abs(x)


@unary(_STEPS, residuals=(), kind="real", dtypes=REAL, tolerance=0, scalar=elements.sign, discontinuous=True, exact="integers")
def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN for NaN."""
    return np.sign(x)


@analytic(
    lambda g, r: (g * conjugate(r.outputs[0]),), residuals=("outputs",), flops=10, one_step=True,
    scalar=scalar_math.exp, complex_scalar=complex_functions.exp,
)  # fmt: skip
def exp(x: Array) -> Array:
    """e to the power x."""
    return np.exp(x)


@analytic(
    lambda g, r: (g * (conjugate(r.outputs[0]) + 1.0),), residuals=("outputs",), flops=12, tolerance=3,
    scalar=scalar_math.expm1, complex_scalar=complex_functions.expm1,
)  # fmt: skip
def expm1(x: Array) -> Array:
    """exp(x) - 1, accurate near 0."""
    out = np.asarray(np.expm1(x))
    if out.dtype.kind == "c":
        # NumPy's is made of exp, sin and cos, and NaN where one of them is infinite or NaN
        out.real += 0.0  # the standard has 0 + 0j at -0 + 0j
        near = (np.abs(x.real) < _FLAT) & np.isfinite(x.imag)
        out = out if near.all() else np.where(near, out, np.exp(x) - 1)
    return out


_FLAT = 40.0
"""Beyond, exp(x) - 1 is exp(x) or -1 to the precision of float64."""


@analytic(
    lambda g, r: (g / conjugate(r.inputs[0]),), low=0.2, high=5.0, flops=10,
    scalar=scalar_math.log, complex_scalar=complex_functions.log,
)  # fmt: skip
def log(x: Array) -> Array:
    """Natural logarithm."""
    return np.log(x)


def _log_of(base: float) -> Any:
    return lambda g, r: (g / (conjugate(r.inputs[0]) * math.log(base)),)


@analytic(_log_of(2), low=0.2, high=5.0, flops=10, scalar=scalar_math.log2, complex_scalar=complex_functions.log2)
def log2(x: Array) -> Array:
    """Logarithm to base 2."""
    return np.log2(x)


@analytic(_log_of(10), low=0.2, high=5.0, flops=10, scalar=scalar_math.log10, complex_scalar=complex_functions.log10)
def log10(x: Array) -> Array:
    """Logarithm to base 10."""
    return np.log10(x)


@analytic(
    lambda g, r: (g / (conjugate(r.inputs[0]) + 1.0),), low=-0.6, high=4.0, flops=12,
    scalar=scalar_math.log1p, complex_scalar=complex_functions.log1p,
)  # fmt: skip
def log1p(x: Array) -> Array:
    """log(1 + x), accurate near 0."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    re, im = x.real, x.imag  # NumPy's own complex function loses every digit near 0
    moved = np.array(x)
    moved.real += 1  # not x + 1, in which an imaginary -0 is lost
    out = np.asarray(np.log(moved))
    near = np.abs(x) < 0.5
    small = np.where(near, re * (re + 2) + im * im, 0)
    out.real = np.where(near, np.log1p(small) / 2, out.real)
    return out


@analytic(
    lambda g, r: (g / (conjugate(r.outputs[0]) * 2.0),), residuals=("outputs",), low=0.2, high=5.0, flops=4,
    scalar=expr.sqrt, complex_scalar=complex_functions.sqrt,
    exact="real",
)  # fmt: skip
def sqrt(x: Array) -> Array:
    """Square root."""
    return np.sqrt(x)


@unary(
    lambda g, r: (g * r.outputs[0] * (1.0 - r.outputs[0]),),
    residuals=("outputs",),
    flops=12,
    tolerance=4,
    scalar=scalar_math.sigmoid,
)
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


@unary(
    lambda g, r: (g * exp(-(r.inputs[0] * r.inputs[0])) * (2 / math.sqrt(math.pi)),),
    flops=16,
    tolerance=4,
    scalar=scalar_math.erf,
)
def erf(x: Array) -> Array:
    """The error function, 2/√π ∫₀ˣ exp(-t²) dt."""
    exact = np.frompyfunc(math.erf, 1, 1)
    return np.asarray(exact(np.asarray(x, np.float64)), np.float64).astype(x.dtype)


def _relu_vjp(g: Any, r: Any) -> Any:
    return (where(greater(r.outputs[0], 0.0), g, 0.0),)


@unary(
    _relu_vjp, residuals=("outputs",), kind="real", dtypes=REAL, tolerance=0, one_step=True, scalar=elements.relu,
    exact="integers",
)  # fmt: skip
def relu(x: Array) -> Array:
    """max(x, 0), with gradient 0 at 0."""
    return np.maximum(x, np.zeros((), x.dtype))


@unary(
    _STEPS, residuals=(), kind="real", dtypes=REAL, low=-3, high=3, tolerance=0, scalar=elements.floor, discontinuous=True,
    exact="real",
)  # fmt: skip
def floor(x: Array) -> Array:
    """The largest integer ≤ x."""
    return np.floor(x) if x.dtype.kind not in "iu" else np.array(x)


@unary(
    _STEPS, residuals=(), kind="real", dtypes=REAL, low=-3, high=3, tolerance=0, scalar=elements.ceil, discontinuous=True,
    exact="real",
)  # fmt: skip
def ceil(x: Array) -> Array:
    """The smallest integer ≥ x."""
    return np.ceil(x) if x.dtype.kind not in "iu" else np.array(x)


@unary(
    _STEPS, residuals=(), kind="real", dtypes=REAL, low=-3, high=3, tolerance=0, scalar=elements.trunc, discontinuous=True,
    exact="real",
)  # fmt: skip
def trunc(x: Array) -> Array:
    """The nearest integer towards 0."""
    return np.trunc(x) if x.dtype.kind not in "iu" else np.array(x)


@unary(
    _STEPS, residuals=(), kind="real", dtypes=REAL, low=-3, high=3, tolerance=0, scalar=elements.round, discontinuous=True,
    exact="real",
)  # fmt: skip
def round_(x: Array) -> Array:
    """The nearest integer; halves go to the even one."""
    return np.rint(x) if x.dtype.kind not in "iu" else np.array(x)


def _test(**more: Any) -> Declare:
    return unary(_BOOL, residuals=(), kind="numeric", dtypes=NUMERIC, tolerance=0, infer=predicate, **more)


@_test(scalar=elements.isnan, complex_scalar=complex_numbers.isnan, exact="all")
def isnan(x: Array) -> Array:
    """Whether x is NaN."""
    return np.isnan(x)


@_test(scalar=elements.isinf, complex_scalar=complex_numbers.isinf, exact="all")
def isinf(x: Array) -> Array:
    """Whether x is +∞ or -∞."""
    return np.isinf(x)


@_test(scalar=elements.isfinite, complex_scalar=complex_numbers.isfinite, exact="all")
def isfinite(x: Array) -> Array:
    """Whether x is neither NaN nor infinite."""
    return np.isfinite(x)


# comparison and logic


def _compare(scalar: Any, kind: str = "real", dtypes: Any = REAL, **more: Any) -> Declare:
    return binary(_BOOL, residuals=(), kind=kind, dtypes=dtypes, tolerance=0, infer=predicate, scalar=scalar, **more)


@_compare(expr.eq, "comparable", COMPARABLE, complex_scalar=complex_numbers.equal, exact="all", laws=Laws(of_equals=True))
def equal(x1: Array, x2: Array) -> Array:
    """x1 = x2."""
    return np.equal(x1, x2)


@_compare(expr.ne, "comparable", COMPARABLE, complex_scalar=complex_numbers.not_equal, exact="all", laws=Laws(of_equals=False))
def not_equal(x1: Array, x2: Array) -> Array:
    """x1 ≠ x2."""
    return np.not_equal(x1, x2)


@_compare(elements.less, exact="all", laws=Laws(of_equals=False))
def less(x1: Array, x2: Array) -> Array:
    """x1 < x2."""
    return np.less(x1, x2)


@_compare(elements.less_equal, exact="all", laws=Laws(of_equals=True))
def less_equal(x1: Array, x2: Array) -> Array:
    """x1 ≤ x2."""
    return np.less_equal(x1, x2)


@_compare(elements.greater, exact="all", laws=Laws(of_equals=False))
def greater(x1: Array, x2: Array) -> Array:
    """x1 > x2."""
    return np.greater(x1, x2)


@_compare(elements.greater_equal, exact="all", laws=Laws(of_equals=True))
def greater_equal(x1: Array, x2: Array) -> Array:
    """x1 ≥ x2."""
    return np.greater_equal(x1, x2)


@_compare(
    elements.logical_and, "bool", ("bool",), exact="all", laws=Laws(neutral=(None, True), absorbing=False, idempotent=True)
)
def logical_and(x1: Array, x2: Array) -> Array:
    """x1 and x2."""
    return np.logical_and(x1, x2)


@_compare(
    elements.logical_or, "bool", ("bool",), exact="all", laws=Laws(neutral=(None, False), absorbing=True, idempotent=True)
)
def logical_or(x1: Array, x2: Array) -> Array:
    """x1 or x2."""
    return np.logical_or(x1, x2)


@_compare(elements.logical_xor, "bool", ("bool",), exact="all", laws=Laws(neutral=(None, False), of_equals=False))
def logical_xor(x1: Array, x2: Array) -> Array:
    """Either x1 or x2."""
    return np.logical_xor(x1, x2)


@unary(
    _BOOL, residuals=(), kind="bool", dtypes=("bool",), tolerance=0, scalar=elements.invert, exact="all",
    laws=Laws(involution=True),
)  # fmt: skip
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
    condition = r.inputs[0]
    return (None, where(condition, g, 0.0) if r.needs[1] else None, where(condition, 0.0, g) if r.needs[2] else None)


@register(
    operands="condition:bool x1:any=T x2:any=T", infer=broadcasted, residuals=("inputs",),
    vjp=_where_vjp,
    samples=_where_samples, cost=per_result(1), bound="memory", fusion="map", tolerance=0, broadcasts=True, dtypes=ALL,
    one_step=True,
    scalar=expr.select, complex_scalar=complex_numbers.where,
    exact="moved",
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
    dtypes=REAL, one_step=True,
    scalar=elements.clip,
    exact="integers",
)  # fmt: skip
def clip(x: Array, min_: Array, max_: Array) -> Array:
    """min(max(x, min), max); x at a bound passes its gradient."""
    return np.minimum(np.maximum(x, min_), max_)
