"""The NumPy interpreter of scalar expressions: it defines the meaning of each node, and is the reference of code generators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from firebrick.scalar.expr import BITS, FLOATS, INTEGERS, SIGNED, Expr, load, steps, walk

Array = np.ndarray[Any, Any]


def evaluate(
    roots: Sequence[Expr],
    operands: Sequence[Array] = (),
    indices: Mapping[int, Array] | None = None,
    locals: Mapping[str, Array] | None = None,
    element: Callable[[Expr, Array], Array] | None = None,
) -> list[Array]:
    """The values of expressions.

    Args:
        roots: Expressions.
        operands: Arrays that ``load`` reads, which broadcast together, of any dtype that casts to the load's.
        indices: Values of ``index`` for each axis, int64. Offsets of ``gather`` are from an operand's first element.
        locals: Values of ``local`` for each name, of its dtype.
        element: The value of an ``element`` node at given indices.
    """
    values: dict[Expr, Array] = {}
    with np.errstate(all="ignore"):
        for e in walk(roots):
            if e.op == "load":
                assert isinstance(e.value, int)
                values[e] = np.asarray(operands[e.value]).astype(e.dtype)
            elif e.op == "index":
                assert indices is not None
                parts = [indices[a] * step for a, step in enumerate(steps(e, len(indices))) if step]
                values[e] = np.asarray(sum(parts, np.zeros((), np.int64)))
            elif e.op == "gather":
                assert isinstance(e.value, int)
                values[e] = operands[e.value].reshape(-1)[values[e.args[0]]].astype(e.dtype)
            elif e.op == "local":
                assert locals is not None
                values[e] = locals[str(e.value)]
            elif e.op == "element":
                assert element is not None
                values[e] = element(e, values[e.args[0]])
            elif e.op == "const":
                values[e] = np.asarray(e.value, e.dtype)
            else:
                values[e] = _applied(e.op, e.dtype, [values[a] for a in e.args], e.value)
    return [values[r] for r in roots]


def apply(op: str, dtype: str, args: Sequence[Array], value: Any) -> Array:
    """One node's value from those of its operands."""
    with np.errstate(all="ignore"):
        return _applied(op, dtype, args, value)


def _applied(op: str, dtype: str, args: Sequence[Array], value: Any) -> Array:
    if op == "cast":
        return _cast(args[0], dtype)
    if op == "bounded":
        size = int(value.split(":")[0])
        return np.clip(np.where(args[0] < 0, args[0] + size, args[0]), 0, size - 1)
    if op == "philox":
        return evaluate([_philox_word()], args)[0]
    if op == "bitcast":
        return np.ascontiguousarray(args[0]).view(dtype).reshape(args[0].shape)
    if op in ("low_word", "high_word"):
        return np.ascontiguousarray(args[0]).view(np.uint32).reshape(*args[0].shape, 2)[..., int(op == "high_word")]
    if op == "from_words":
        return np.ascontiguousarray(np.stack(np.broadcast_arrays(*args), -1)).view(np.float64)[..., 0]
    if op in ("nearest", "nearest_bits"):
        from firebrick.scalar.expr import by_magic, node

        parts = tuple(load(i, a.dtype.name) for i, a in enumerate(args))
        return evaluate([by_magic(node(op, dtype, parts))], args)[0]
    if op == "reduce":
        return np.asarray(_REDUCE[value](args[0], axis=-1, keepdims=True, dtype=dtype) if value in ("sum", "prod")
                          else _REDUCE[value](args[0], axis=-1, keepdims=True))  # fmt: skip
    if dtype in INTEGERS and op in _INTEGER:
        return _INTEGER[op](*args)
    return np.asarray(_PLAIN[op](*args)).astype(dtype, copy=False)


@cache
def _philox_word() -> Expr:
    """The expansion of ``philox``, of operands 0 to 4."""
    from firebrick.scalar.elements import philox_word

    return philox_word([load(i, "uint32") for i in range(4)], load(4, "int64"))


def _cast(x: Array, dtype: str) -> Array:
    if x.dtype.kind != "f" or dtype in FLOATS:
        return np.asarray(x).astype(dtype)
    info = np.iinfo(dtype)
    low, high = float(info.min), 2.0 ** (BITS[dtype] - (dtype in SIGNED))
    wide = x.astype(np.float64)
    inside = (wide > low - 1) & (wide < high)
    whole = np.trunc(np.where(inside, wide, 0.0)).astype(dtype)
    return np.where(wide >= high, info.max, np.where(wide <= low, info.min, whole)).astype(dtype)


def _divide(a: Array, b: Array) -> Array:
    """Truncated quotient; 0 for a zero divisor."""
    down = np.floor_divide(a, b)
    up = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(np.where(b == 0, 0, down + up), a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    return np.asarray(np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))), a.dtype)


def _negative(a: Array) -> Array:
    return np.asarray(np.subtract(np.zeros((), a.dtype), a), a.dtype)


_INTEGER: dict[str, Callable[..., Array]] = {
    "div": _divide, "rem": _remainder, "neg": _negative,
    "shl": lambda a, b: np.asarray(np.left_shift(a, b)), "shr": lambda a, b: np.asarray(np.right_shift(a, b)),
}  # fmt: skip


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b and its rounding error. Source: Knuth, The Art of Computer Programming, volume 2, 4.2.2."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _split(a: Array) -> tuple[Array, Array]:
    t = a * 134217729.0
    high = t - (t - a)
    return high, a - high


def _odd(s: Array, lost: Array) -> Array:
    """s + lost, rounded to odd: if the sum is not exact, the neighbour whose last bit is 1."""
    bits = s.view(np.int64)
    away = np.where((lost > 0) == (s > 0), 1, -1)
    move = (lost != 0) & (bits & 1 == 0) & np.isfinite(s)
    return np.where(move, (bits + np.where(move, away, 0)).view(np.float64), s)


def fused(a: Array, b: Array, c: Array) -> Array:
    """a · b + c with one rounding; near overflow and underflow of float64, with exact fractions.

    Source: Boldo, Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd",
    IEEE Transactions on Computers 57, 2008.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    dtype = a.dtype
    x, y, z = (np.array(v, np.float64) for v in (a, b, c))
    product = x * y
    if dtype == np.float32:  # the product is exact in float64
        s, lost = _two_sum(product, z)
        out = _odd(s, lost)
    else:
        (xh, xl), (yh, yl) = _split(x), _split(y)
        low = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
        th, tl = _two_sum(z, low)
        vh, vl = _two_sum(product, th)
        out = vh + _odd(*_two_sum(tl, vl))
    plain = product + z
    out = np.asarray(np.where(np.isfinite(out) & (out != 0), out, plain))
    if dtype == np.float64:
        sizes = np.abs(product), np.abs(x), np.abs(y), np.abs(z)
        extreme = (sizes[0] < _EXTREME[0]) | (np.maximum.reduce(sizes) > _EXTREME[1])
        extreme &= np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (x != 0) & (y != 0)
        if extreme.any():
            out[extreme] = [_exact(*v) for v in zip(x[extreme].tolist(), y[extreme].tolist(), z[extreme].tolist(), strict=True)]
    return out.astype(dtype)


_EXTREME = 1e-270, 1e290
"""Between these magnitudes, the steps of ``fused`` neither overflow nor lose a rounding error."""


def _exact(x: float, y: float, z: float) -> float:
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if not total:
        return x * y + z  # for the sign of zero
    sign = 1.0 if total > 0 else -1.0
    try:
        return math.copysign(float(total), sign)
    except OverflowError:
        return sign * math.inf


def _scaled(a: Array, n: Array) -> Array:
    whole = np.where(np.isnan(n), 0, n).astype(np.int64)
    return np.asarray(np.where(np.isnan(n), n, np.ldexp(a, whole)))


_PLAIN: dict[str, Callable[..., Any]] = {
    "scale": _scaled,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "fma": fused,
    "muladd": fused, "kept": np.asarray,
    "min": np.minimum, "max": np.maximum, "abs": np.abs, "sqrt": np.sqrt, "copysign": np.copysign, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.bitwise_not, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "select": np.where, "rarely": np.where,
    "where_flushed": lambda condition, a, b: b,
}  # fmt: skip
_REDUCE: dict[str, Callable[..., Any]] = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
