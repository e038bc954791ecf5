"""Casts between all dtypes, and complex numbers: made of parts, taken apart, conjugated.

Gradients of complex numbers follow the convention in which ``x - lr * gradient`` descends: the gradient of a real L by z is
∂L/∂Re z + i ∂L/∂Im z, so a rule multiplies a cotangent by the conjugate of a derivative. What a real number becomes when it
is cast to a complex one has a complex cotangent, of which the real number gets the real part.

A float cast to an integer truncates and saturates, and NaN becomes 0; an integer cast to a narrower one wraps. A float or an
integer cast to a narrower float rounds to nearest even, once, also where the engines' libraries round to float32 on the way.
What is too large for a float becomes infinite, for ``float8_e4m3fn``, which has no infinity, NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import complex_of, limits, real_of
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import Laws, Sample
from firebrick.core.rounding import rounded
from firebrick.core.shapes import broadcast_shapes
from firebrick.ops.declare import (
    ALL,
    COMPLEX,
    FLOATS,
    STORAGE8,
    WIDE,
    Array,
    Declare,
    binary_samples,
    per_result,
    same,
    specials,
    unary_samples,
    values,
)
from firebrick.ops.table import register
from firebrick.scalar import complex_numbers, elements


def _near_ties(name: str, goal: str) -> Array:
    """Numbers of a dtype just above and below the middle between two of ``goal``, which rounding twice would take for it."""
    own, to = as_dtype(name), as_dtype(goal)
    bits = {"float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}[goal]
    if own.is_integer and own.itemsize >= 4:
        tops = [t for t in range(bits + 2, 8 * own.itemsize - 2) if 2.0**t < float(limits(to).max)]
        whole = [2**t + k * 2 ** (t - bits) + 2 ** (t - bits - 1) for t in tops for k in (0, 1)]
        about = [w + off for w in whole for off in (-1, 0, 1)]
        return np.asarray(about + [-w for w in about if own.kind == "int"], own.np)
    if name != "float64" or to.itemsize >= 8:
        return np.empty(0)
    middle = (1 + np.asarray([0.5, 1.5]) * 2.0**-bits) * 2.0 ** np.asarray([[0], [3], [-5]])
    tiny = float(limits(to).smallest_normal) * 2.0**-bits * np.asarray([0.5, 1.5, 2.5])  # between denormals
    at = np.concatenate([middle.reshape(-1), tiny])
    near = np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf), at * (1 + 2.0**-40), at * (1 - 2.0**-40)])
    return np.concatenate([near, -near])


def _cast_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    goals: tuple[str, ...] = (
        "float32", "float64", "float16", "bfloat16", "int32", "int8", "uint8", "int64", "int16", "bool",
        *WIDE, *STORAGE8, *COMPLEX,
    )  # fmt: skip
    if name in COMPLEX:
        goals = COMPLEX
    itself = {"dtype": as_dtype(name)}
    out = [Sample((values(rng, name, (3, 5)),), itself, name in FLOATS + COMPLEX, "to itself"),
           Sample((values(rng, name, (700,)),), itself, False, "long to itself")]  # fmt: skip
    for goal in goals:
        exact = name in FLOATS and goal in FLOATS + COMPLEX
        safe = (exact and real_of(as_dtype(goal)).itemsize >= as_dtype(name).itemsize) or name == goal == "complex128"
        x = values(rng, name, (3, 4), -3, 3)
        out.append(Sample((x,), {"dtype": as_dtype(goal)}, safe, f"to {goal}"))
        out.append(Sample((specials(name),), {"dtype": as_dtype(goal)}, False, f"special values to {goal}"))
    for goal in ("float32", "float16", "bfloat16", *STORAGE8):
        ties = _near_ties(name, goal)
        if ties.size:
            out.append(Sample((ties,), {"dtype": as_dtype(goal)}, False, f"next to ties of {goal}"))
    out.append(Sample((values(rng, name, ()),), {"dtype": as_dtype(goals[0])}, False, "0-d"))
    out.append(Sample((values(rng, name, (0,)),), {"dtype": as_dtype(goals[0])}, False, "empty"))
    return out


def _cast_vjp(g: Any, r: Any) -> Any:
    to = r.avals[0].dtype
    if g.dtype.kind == "complex" and to.kind != "complex":
        g = real(g)
    return (g if g.dtype is to else cast(g, dtype=to),)


@register(
    operands="x:any", infer=lambda x, *, dtype: Aval(x.shape, dtype), residuals=(),
    vjp=_cast_vjp, samples=_cast_samples, cost=per_result(1), bound="memory",
    fusion="map", tolerance=0, dtypes=(*ALL, *WIDE), one_step=True,
    scalar=elements.to_dtype, complex_scalar=complex_numbers.to_dtype, discontinuous=True,
    exact="all",
)  # fmt: skip
def cast(x: Array, *, dtype: Any) -> Array:
    """x as another dtype: floats round to nearest even; float → integer truncates, saturates, NaN becomes 0; integers wrap."""
    to = dtype.np
    if x.dtype.kind in "fV" and dtype.is_integer:
        wide = x.astype(np.float64)
        info = np.iinfo(to)
        low, high = float(info.min), float(info.max) + (1.0 if info.bits < 64 else 0.0)
        inside = (wide > low - 1) & (wide < high)
        whole = np.trunc(np.where(inside, wide, 0.0)).astype(to)
        return np.where(wide >= high, info.max, np.where(wide <= low, info.min, whole)).astype(to)
    return rounded(x, dtype)


# complex numbers


def conjugate(x: Any) -> Any:
    """The conjugate of a complex tensor; a real one as it is. Gradient rules use it."""
    return conj(x) if x.dtype.kind == "complex" else x


def _part(vjp: Any, complex_scalar: Any, **more: Any) -> Declare:
    return register(
        operands="x:complex", infer=lambda x: Aval(x.shape, real_of(x.dtype)), vjp=vjp, residuals=(),
        samples=unary_samples(), cost=per_result(0), bound="memory", fusion="map", tolerance=0, dtypes=COMPLEX, one_step=True,
        complex_scalar=complex_scalar, **more,
    )  # fmt: skip


@_part(lambda g, r: (cast(g, dtype=r.avals[0].dtype),), complex_numbers.real, exact="moved")
def real(x: Array) -> Array:
    """The real part of x."""
    return np.array(x.real)


def _imag_vjp(g: Any, r: Any) -> Any:
    return (complex_(0.0, g),)


@_part(_imag_vjp, complex_numbers.imag, exact="moved")
def imag(x: Array) -> Array:
    """The imaginary part of x."""
    return np.array(x.imag)


def _conj_vjp(g: Any, r: Any) -> Any:
    return (conj(g),)


@register(
    operands="x:complex", infer=same, vjp=_conj_vjp, residuals=(), samples=unary_samples(), cost=per_result(1),
    bound="memory", fusion="map", tolerance=0, dtypes=COMPLEX, one_step=True, complex_scalar=complex_numbers.conj,
    exact="all", laws=Laws(involution=True),
)  # fmt: skip
def conj(x: Array) -> Array:
    """The complex conjugate of x."""
    return np.conjugate(x)


def _infer_complex(re: Any, im: Any) -> Aval:
    return Aval(broadcast_shapes(re.shape, im.shape, op="complex"), complex_of(im.dtype))


def _complex_vjp(g: Any, r: Any) -> Any:
    parts = (real(g), imag(g))
    return tuple(p if p.dtype is a.dtype else cast(p, dtype=a.dtype) for p, a in zip(parts, r.avals, strict=True))


@register(
    operands="re:floating=T im:floating=T", infer=_infer_complex, vjp=_complex_vjp, residuals=(), samples=binary_samples(),
    cost=per_result(0), bound="memory", fusion="map", tolerance=0, broadcasts=True, dtypes=FLOATS,
    one_step=True, complex_scalar=complex_numbers.joined,
    exact="moved",
)  # fmt: skip
def complex_(re: Array, im: Array) -> Array:
    """re + i · im; complex64, or complex128 from float64."""
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), complex_of(as_dtype(im.dtype)).np)
    out.real, out.imag = re, im
    return out
