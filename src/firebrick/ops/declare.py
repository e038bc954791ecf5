"""Building blocks of declarations: shape rules, costs and test samples that many entries share."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import bool_, dtype, limits
from firebrick.core.op import Cost, Op, Sample
from firebrick.core.shapes import broadcast_shapes

Array = np.ndarray[Any, Any]
Declare = Callable[[Callable[..., Any]], Op]

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8")
COMPLEX = ("complex64", "complex128")
REAL = FLOATS + INTS
NUMERIC = REAL + COMPLEX
COMPARABLE = ("bool", *NUMERIC)
STORAGE8 = ("float8_e4m3fn", "float8_e5m2")
WIDE = ("uint16", "uint32", "uint64")  # only of casts: elsewhere their arithmetic is that of the other integers
ALL = (*COMPARABLE, *STORAGE8)

# shape rules


def same(x: Any, **_: Any) -> Aval:
    """The operand's own shape and dtype."""
    return Aval(x.shape, x.dtype)


def broadcasted(*xs: Any, **_: Any) -> Aval:
    """All operands broadcast together; the dtype of the last one."""
    return Aval(broadcast_shapes(*[x.shape for x in xs], op="operands"), xs[-1].dtype)


def predicate(*xs: Any, **_: Any) -> Aval:
    """All operands broadcast together, as bool."""
    return Aval(broadcasted(*xs).shape, bool_)


# costs


def _nbytes(ins: Any, outs: Any) -> float:
    return float(sum(a.nbytes for a in ins) + sum(a.nbytes for a in outs))


def per_result(flops: float) -> Callable[..., Cost]:
    """``flops`` for each element of the result; every operand read and result written once."""
    return lambda ins, outs, params: Cost(flops * outs[0].size, _nbytes(ins, outs))


def per_operand(flops: float) -> Callable[..., Cost]:
    """``flops`` for each element of the first operand."""
    return lambda ins, outs, params: Cost(flops * ins[0].size, _nbytes(ins, outs))


# samples


def values(rng: np.random.Generator, name: str, shape: Any, low: float = -2.0, high: float = 2.0) -> Array:
    """Random values of dtype ``name`` in [low, high]; integers get a range ten times as wide, inside their limits."""
    dt = dtype(name)
    if dt.kind == "bool":
        return np.asarray(rng.integers(0, 2, shape), np.bool_)
    if dt.is_integer:
        info = np.iinfo(dt.np)
        lo, hi = max(int(10 * low), int(info.min)), min(int(10 * high), int(info.max))
        return np.asarray(rng.integers(lo, hi + 1, shape), dt.np)
    x = np.asarray(rng.uniform(low, high, shape))
    if dt.kind == "complex":
        return np.asarray(x + 1j * rng.uniform(low, high, shape), dt.np)
    return np.asarray(x, dt.np)


def apart(x: Array) -> bool:
    """Whether a gradient check, which moves every element a little, lets none overtake another."""
    return bool((np.diff(np.sort(x.astype(np.float64), None)) > 1e-4).all())


def specials(name: str) -> Array:
    """The values where mathematics and machines disagree."""
    dt = dtype(name)
    if dt.kind == "bool":
        return np.asarray([False, True])
    if dt.is_integer:
        info = np.iinfo(dt.np)
        return np.asarray([info.min, info.max, 0, 1, info.max - 1, 7], dt.np)
    if dt.kind == "complex":
        return np.asarray([0, -0.0, 1, 1j, -1 - 1j, 3e4 + 2e-3j], dt.np)
    top, tiny = float(limits(dt).max), float(limits(dt).smallest_normal)
    return np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, top, -top, tiny, -tiny, 1e-3, 7.25], dt.np)


def _plane_edges(name: str) -> Array:
    """Complex numbers whose parts are zeros, infinities, NaN and finite numbers, of either sign, all with all."""
    dt = dtype(name)
    info = limits(dt)
    sizes = [0.0, 1.0, 2.5, float(info.smallest_normal), float(info.max) / 2, np.inf]
    parts = np.asarray([*sizes, *(-s for s in sizes), np.nan])
    out = np.empty((parts.size, parts.size), dt.np)
    out.real, out.imag = parts[:, None], parts  # not re + 1j · im, in which infinite parts make NaN
    return out


def unary_samples(
    low: float = -2.0, high: float = 2.0, special: bool = True, analytic: bool = False
) -> Callable[..., list[Sample]]:
    """Matrix, 0-d, empty, long and special-value cases for one operand drawn from [low, high].

    ``analytic`` says that the op continues a real function to complex numbers. Those are drawn from the square of radius 2
    whatever the real function's domain.
    """

    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        plane = analytic and name in COMPLEX
        a, b = (-2.0, 2.0) if plane else (low, high)
        out = [
            Sample((values(rng, name, shape, a, b),), name=label)
            for label, shape in (("matrix", (3, 4)), ("0-d", ()), ("empty", (0, 3)), ("cube", (2, 3, 5)))
        ]
        out.append(Sample((values(rng, name, (1037,), a, b),), grad_safe=False, name="long"))
        if plane:
            out.append(Sample((values(rng, name, (5, 5)) * dtype(name).np.type(1e-6),), grad_safe=False, name="near zero"))
        if special:
            edges = _plane_edges(name) if name in COMPLEX else specials(name)
            out.append(Sample((edges,), grad_safe=False, name="special values", edges=True))
        return out

    return samples


def binary_samples(
    low: float = -2.0,
    high: float = 2.0,
    low2: float | None = None,
    high2: float | None = None,
    special: bool = True,
    edges: bool = True,
) -> Callable[..., list[Sample]]:
    """Equal, broadcast, 0-d, empty, long and special-value cases for two operands; rows and columns of one size among them.

    ``edges`` says whether signs of zeros count among special values.
    """
    l2, h2 = low if low2 is None else low2, high if high2 is None else high2

    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        cases = (
            ("equal shapes", (3, 4), (3, 4)),
            ("row", (3, 4), (4,)),
            ("row of a square", (4, 4), (4,)),
            ("outer", (4, 1), (1, 4)),
            ("scalar left", (), (2, 3)),
            ("0-d", (), ()),
            ("empty", (0, 3), (1, 3)),
        )
        out = [Sample((values(rng, name, a, low, high), values(rng, name, b, l2, h2)), name=label) for label, a, b in cases]
        long = (values(rng, name, (2, 517), low, high), values(rng, name, (2, 517), l2, h2))
        out.append(Sample(long, grad_safe=False, name="long"))
        if special:
            s = specials(name)
            out.append(Sample((s[:, None], s[None, :]), grad_safe=False, name="special values", edges=edges))
        return out

    return samples


def size_of(shape: Any) -> int:
    """Number of elements of ``shape``."""
    return prod(shape)
