"""An interpreter of scalar expressions that does what a driver with given capabilities may do at its worst.

It computes nothing that the capabilities lack, drops denormal numbers, splits fused products, moves quotients and square roots
by up to two units, gives the wrong answer wherever NaN is compared or chosen, adds up sums of real numbers and any number
where a shift, a quotient or a cast is left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from firebrick.scalar.capabilities import Capabilities
from firebrick.scalar.expr import COMPARISONS, FLOATS, INTEGERS, Expr, steps, walk
from firebrick.scalar.interpret import apply
from firebrick.scalar.legalize import missing

Array = np.ndarray[Any, Any]
_FLUSHED = frozenset(
    {"add", "sub", "mul", "div", "fma", "muladd", "sqrt", "min", "max", "rint", "floor", "ceil", "cast", "kept", "scale"}
)


def evaluate_loosely(
    roots: Sequence[Expr], operands: Sequence[Array], capabilities: Capabilities, indices: Mapping[int, Array] | None = None,
    cancels: bool = True,
) -> list[Array]:  # fmt: skip
    """The values that a target may compute; see ``scalar.evaluate``.

    Args:
        roots: Expressions.
        operands: What ``load`` reads.
        capabilities: What the target has.
        indices: What ``index`` gives for each axis.
        cancels: A target that reassociates computes sums of sums as of real numbers; else from the largest term to the
            smallest, by which small sums of large terms are lost.

    Raises:
        AssertionError: A node is none the target has.
    """
    absent = missing(roots, capabilities)
    assert not absent, f"the target has no {absent}"
    values: dict[Expr, Array] = {}
    sums: dict[Expr, dict[Expr, int]] = {}
    with np.errstate(all="ignore"):
        for e in walk(roots):
            if e.op == "load":
                values[e] = np.asarray(operands[int(e.value or 0)]).astype(e.dtype)
            elif e.op == "index":
                assert indices is not None
                parts = [indices[a] * step for a, step in enumerate(steps(e, len(indices))) if step]
                values[e] = np.asarray(sum(parts, np.zeros((), np.int64))).astype(e.dtype)
            elif e.op == "gather":
                values[e] = operands[int(e.value or 0)].reshape(-1)[values[e.args[0]]].astype(e.dtype)
            elif e.op == "const":
                values[e] = np.asarray(e.value, e.dtype)
            elif e.op in ("add", "sub") and e.dtype in FLOATS and capabilities.reassociates:
                values[e] = _reordered(e, values, sums, cancels)
            else:
                values[e] = _node(e, [values[a] for a in e.args], capabilities)
            if not capabilities.denormals and e.op in _FLUSHED and e.dtype in FLOATS:
                values[e] = _flushed(values[e])
    return [values[r] for r in roots]


def _reordered(e: Expr, values: dict[Expr, Array], sums: dict[Expr, dict[Expr, int]], cancels: bool) -> Array:
    """A sum of sums without the rounding between, terms of unlike sign cancelled."""
    terms: dict[Expr, int] = {}
    for a, sign in ((e.args[0], 1), (e.args[1], 1 if e.op == "add" else -1)):
        for term, count in sums.get(a, {a: 1}).items():
            terms[term] = terms.get(term, 0) + sign * count
    sums[e] = {t: n for t, n in terms.items() if n}
    if not cancels:
        scaled = [values[t] * np.asarray(n, e.dtype) for t, n in sums[e].items()]
        ordered = np.sort(np.stack(np.broadcast_arrays(*scaled)), axis=0)[::-1] if scaled else np.zeros((1,), e.dtype)
        total = ordered[0]
        for term in ordered[1:]:
            total = (total + term).astype(e.dtype)
        return np.asarray(total)
    exact = sum((values[t].astype(np.longdouble) * n for t, n in sums[e].items()), np.zeros((), np.longdouble))
    plain = apply(e.op, e.dtype, [values[a] for a in e.args], None)
    return np.where(np.isfinite(plain), np.asarray(exact).astype(e.dtype), plain).astype(e.dtype)


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.finfo(x.dtype).smallest_normal, np.copysign(np.zeros((), x.dtype), x), x)


def _noise(x: Array) -> Array:
    """-2 to 2, by the bits of the value."""
    bits = np.ascontiguousarray(x).view(f"u{x.itemsize}")
    return ((bits ^ (bits >> np.asarray(7, bits.dtype))) % 5).astype(np.int64) - 2


def _moved(x: Array) -> Array:
    """Floats moved by up to two units, but for 0, infinities and NaN."""
    ordinary = np.isfinite(x) & (x != 0) & (np.abs(x) < np.finfo(x.dtype).max / 2)
    moved = (np.ascontiguousarray(x).view(f"i{x.itemsize}") + _noise(x).astype(f"i{x.itemsize}")).view(x.dtype)
    return np.where(ordinary, moved.reshape(x.shape), x)


def _node(e: Expr, args: list[Array], c: Capabilities) -> Array:
    op, dtype = e.op, e.dtype
    floats = bool(args) and args[-1].dtype.kind == "f"
    if floats and not c.denormals and op in (*_FLUSHED, *COMPARISONS):
        args = [_flushed(a) if a.dtype.kind == "f" else a for a in args]
    if op == "muladd" and not c.exact_fma:
        return apply("add", dtype, [apply("mul", dtype, args[:2], None), args[2]], None)
    out = apply(op, dtype, args, e.value)
    if floats and ((op == "div" and not c.exact_division) or (op == "sqrt" and not c.exact_sqrt)):
        out = _moved(out)
    if floats and op in COMPARISONS and not c.nan_comparisons:
        nan = np.isnan(args[0]) | np.isnan(args[1])
        out = np.where(nan, ~out, out)
    if floats and op in ("min", "max") and not c.nan_min_max:
        other = np.where(np.isnan(args[0]), args[1], args[0])
        out = np.where(np.isnan(args[0]) != np.isnan(args[1]), other, out)
    if op == "cast" and dtype in INTEGERS and floats and not c.saturating_casts:
        wide = np.trunc(args[0].astype(np.float64))
        info = np.iinfo(dtype)
        out = np.where((wide >= info.min) & (wide <= info.max), out, np.asarray(77, dtype))
    if dtype in INTEGERS and op in ("shl", "shr", "div", "rem") and not c.total_integers:
        by = args[1]
        bits = args[0].dtype.itemsize * 8
        open_ = (by < 0) | (by >= bits) if op in ("shl", "shr") else (by == 0) | ((by == -1) & (args[0].dtype.kind == "i"))
        out = np.where(open_, np.asarray(55, dtype), out)
    return np.asarray(out)
