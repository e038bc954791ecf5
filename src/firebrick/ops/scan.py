"""Scans along an axis: the running sum, product, maximum, minimum and log Σ exp, and linear recurrences, from the first
element or (``reverse``) the last.

A running sum or product wraps in integers. NaN propagates through the running extremes, and of equal elements the one
that the scan meets first is the extreme: its index is reported and it takes the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import int64
from firebrick.core.errors import ShapeError
from firebrick.core.op import Cost, Sample
from firebrick.ops import forward_rules
from firebrick.ops.batch_rules import leading
from firebrick.ops.declare import COMPLEX, FLOATS, NUMERIC, REAL, Array, Declare, apart, specials, values
from firebrick.ops.elementwise import equal, exp, isinf, logical_and, where
from firebrick.ops.indexing import scatter_add, zeros_like_aval
from firebrick.ops.movement import pad, slice_
from firebrick.ops.reduction import leaving, near_one
from firebrick.ops.table import OPS, register


def _infer(x: Any, *, axis: int, reverse: bool) -> Aval:
    return Aval(x.shape, x.dtype)


def _infer_extreme(x: Any, *, axis: int, reverse: bool) -> tuple[Aval, Aval]:
    return Aval(x.shape, x.dtype), Aval(x.shape, int64)


def _cost(ins: Any, outs: Any, params: Any) -> Cost:
    return Cost(float(ins[0].size), float(ins[0].nbytes + sum(o.nbytes for o in outs)))


_SHAPES = (((4, 4), 1), ((4, 3), 0), ((5,), 0), ((2, 3, 4), 1), ((0, 3), 0), ((3, 0), 0), ((1, 2), 0))


def _ways(x: Array, axis: int, name: str, grad_safe: bool = True) -> list[Sample]:
    """The scan of ``x`` in both directions."""
    return [Sample((x,), {"axis": axis, "reverse": r}, grad_safe, f"{name} reverse={r}") for r in (False, True)]


def _samples(low: float = -2.0, high: float = 2.0) -> Callable[..., list[Sample]]:
    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        out = []
        for shape, axis in _SHAPES:
            out += _ways(values(rng, name, shape, low, high), axis, f"{shape} along {axis}")
        dt = out[0].inputs[0].dtype
        if dt.kind != "c":
            zeros = np.asarray([[2, 0, 3, 0, 2], [1, 2, 3, 2, 0], [0, 1, 2, 1, 3]]).astype(dt)
            out += _ways(zeros, 1, "zeros")
        if dt.kind not in "iuc":
            odd = np.asarray([[1, np.nan, 2], [np.inf, 1, 2], [1, -np.inf, np.inf]]).astype(dt)
            out += _ways(odd, 1, "special values", False)
        out += _ways(values(rng, name, (2, 3001), low, high), 1, "long", False)
        out += _ways(values(rng, name, (2999, 3), low, high), 0, "long leading axis", False)
        return out

    return samples


def _extreme_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape, axis in _SHAPES:
        x = values(rng, name, shape)
        out += _ways(x, axis, f"{shape} along {axis}", apart(x))
    s = specials(name)
    out += _ways(np.stack([s, s[::-1], np.roll(s, 3), np.roll(s, 5)]), 1, "special values", False)
    out += _ways(np.asarray([[1, 3, 3, 0, 4, 4], [2, 2, 2, 2, 1, 1], [0, 0, 1, 1, 1, 0]]).astype(s.dtype), 1, "ties", False)
    out += _ways(values(rng, name, (2, 2000)), 1, "long", False)
    return out


def _scan(vjp: Any, *, fold: str, kind: str, dtypes: Any, samples: Any, infer: Any = _infer, **more: Any) -> Declare:
    return register(
        operands=f"x:{kind}", infer=infer, vjp=vjp, samples=samples, cost=_cost, bound="memory", fusion="prefix",
        dtypes=dtypes, facts=lambda operands, results, **_: {"fold": fold}, **more,
    )  # fmt: skip


def _directed(scan: Callable[..., Array], x: Array, axis: int, reverse: bool) -> Array:
    """NumPy's scan from the first element or the last, accumulated in double precision: it adds one by one."""
    wide = {"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype)
    found = np.flip(scan(np.flip(x, axis), axis, wide), axis) if reverse else scan(x, axis, wide)
    return np.asarray(found, x.dtype)


def _sum_vjp(g: Any, r: Any) -> Any:
    return (cumulative_sum(g, axis=r.params["axis"], reverse=not r.params["reverse"]),)


@_scan(_sum_vjp, fold="sum", residuals=(), kind="numeric", dtypes=NUMERIC, samples=_samples(), tolerance=8, scale="operands",
       one_step=True)  # fmt: skip
def cumulative_sum(x: Array, *, axis: int, reverse: bool) -> Array:
    """The running sum along an axis, in the operand's dtype."""
    return _directed(np.cumsum, x, axis, reverse)


# linear recurrences


def _infer_recurrence(a: Any, b: Any, *, axis: int, reverse: bool, shifted: bool) -> Aval:
    if a.shape != b.shape:
        raise ShapeError("linear_recurrence takes operands of one shape", f"{a} and {b}", "broadcast them")
    return Aval(b.shape, b.dtype)


def _recurrence_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    pairs = [(shape, axis, True, f"{shape} along {axis}") for shape, axis in _SHAPES]
    pairs += [((2, 3001), 1, False, "long"), ((2999, 3), 0, False, "long leading axis"), ((2, 70), 0, False, "wide")]
    out = []
    most = 0.69 if name in COMPLEX else 0.99  # both parts: no factor is larger than 1
    for shape, axis, safe, label in pairs:
        x = values(rng, name, shape, -most, most), values(rng, name, shape)
        for reverse, shifted in ((False, False), (False, True), (True, False), (True, True)):
            params = {"axis": axis, "reverse": reverse, "shifted": shifted}
            out.append(Sample(x, params, safe, f"{label} reverse={reverse} shifted={shifted}"))
    if name not in COMPLEX:
        a, b = (np.asarray(v, out[0].inputs[0].dtype) for v in ([[0, 2, np.nan, 1]], [[np.inf, 1, -np.inf, 2]]))
        out.append(Sample((a, b), {"axis": 1, "reverse": False, "shifted": False}, False, "special values"))
    return out


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    """Elements ``start`` to ``stop`` along an axis."""
    n = len(x.shape)
    starts = tuple(start if i == axis else 0 for i in range(n))
    stops = tuple(stop if i == axis else d for i, d in enumerate(x.shape))
    return slice_(x, starts=starts, stops=stops, steps=(1,) * n)


def _moved(x: Any, axis: int, by: int, value: int = 0) -> Any:
    """Elements moved along an axis by one index, up or down, with a number in the place of the first or the last."""
    n = x.shape[axis]
    kept = _part(x, axis, 0, n - 1) if by > 0 else _part(x, axis, 1, n)
    ends = (1, 0) if by > 0 else (0, 1)
    return pad(kept, widths=tuple(ends if i == axis else (0, 0) for i in range(len(x.shape))), value=value)


def _recurrence_vjp(g: Any, r: Any) -> Any:
    """The cotangents of b are the recurrence of those of s in the other direction; those of a multiply the state before."""
    axis, reverse, shifted = (r.params[name] for name in ("axis", "reverse", "shifted"))
    if not r.avals[0].shape[axis]:
        return g if r.needs[0] else None, g if r.needs[1] else None
    a = OPS["conj"](r.inputs[0]) if r.avals[0].dtype.kind == "complex" else r.inputs[0]
    t = linear_recurrence(a, g, axis=axis, reverse=not reverse, shifted=not shifted)
    if not r.needs[0]:
        return None, t if r.needs[1] else None
    s = OPS["conj"](r.outputs[0]) if r.avals[0].dtype.kind == "complex" else r.outputs[0]
    onward = -1 if reverse else 1
    ga = s * _moved(t, axis, -onward) if shifted else _moved(s, axis, onward) * t
    return ga, t if r.needs[1] else None


def _recurrence_jvp(r: Any) -> Any:
    """The same recurrence with ḃ[i] + ȧ[i]·s[i-1] for b."""
    (a, b), (ta, tb), (s,) = r.operands, r.tangents, r.results
    axis, reverse, shifted = (r.params[name] for name in ("axis", "reverse", "shifted"))
    if ta is None or not s.shape[axis]:
        return linear_recurrence(a, zeros_like_aval(b.aval, b) if tb is None else tb, **r.params)
    onward = -1 if reverse else 1
    moved = _moved(ta * s, axis, onward) if shifted else ta * _moved(s, axis, onward)
    return linear_recurrence(a, moved if tb is None else tb + moved, **r.params)


def _by_doubling(a: Any, b: Any, *, axis: int, reverse: bool, shifted: bool) -> Any:
    """⌈log₂ n⌉ rounds of doubling, for engines without a kernel.

    Round d knows s up to d terms: s[i] += (a[i]⋯a[i-d+1])·s[i-d]. It divides by nothing, so zeros need no care.
    Source: Kogge, Stone, "A parallel algorithm for the efficient solution of a general class of recurrence
    equations", IEEE Transactions on Computers C-22(8), 1973.
    """
    n, d, s = b.shape[axis], 1, b
    if n < 2:
        return b * 1
    inner = (0, n - 1) if reverse is not shifted else (1, n)
    a = _part(a, axis, *inner)  # without the factor of no state
    while d < n:
        tail = _part(s, axis, d, n) if reverse else _part(s, axis, 0, n - d)
        ends = (0, d) if reverse else (d, 0)
        s = s + pad(a * tail, widths=tuple(ends if i == axis else (0, 0) for i in range(len(b.shape))), value=0)
        if 2 * d < n:
            a = _part(a, axis, 0, n - 2 * d) * _part(a, axis, d, n - d)
        d *= 2
    return s


@register(
    operands="a:inexact=T b:inexact=T", infer=_infer_recurrence, vjp=_recurrence_vjp, residuals=("inputs", "outputs"),
    samples=_recurrence_samples, cost=_cost, bound="memory", fusion="prefix", dtypes=FLOATS + COMPLEX, tolerance=8,
    scale="operands", decompose=_by_doubling,
    facts=lambda operands, results, *, shifted, **_: {"fold": "shifted_recurrence" if shifted else "recurrence"},
    batch=leading("axis"), jvp=_recurrence_jvp,
)  # fmt: skip
def linear_recurrence(a: Array, b: Array, *, axis: int, reverse: bool, shifted: bool) -> Array:
    """s with s[i] = b[i] + a[i]·s[i-1] along an axis, or with ``shifted`` s[i] = b[i] + a[i-1]·s[i-1]; the first is b's."""
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    factors, terms = (np.moveaxis(np.asarray(x, wide), axis, 0) for x in (a, b))
    if reverse:
        factors, terms = factors[::-1], terms[::-1]
    s = terms.copy()
    for i in range(1, len(s)):
        s[i] += factors[i - shifted] * s[i - 1]
    return np.asarray(np.moveaxis(s[::-1] if reverse else s, 0, axis), b.dtype)


# running products


def _prod_vjp(g: Any, r: Any) -> Any:
    """∂/∂x[i] = (Π of the elements before i) · s[i], where s[i] = g[i] + x[i+1]·s[i+1]."""
    axis, reverse = r.params["axis"], r.params["reverse"]
    if r.avals[0].shape[axis] == 0:
        return (g,)
    x = OPS["conj"](r.inputs[0]) if r.avals[0].dtype.kind == "complex" else r.inputs[0]
    ahead = linear_recurrence(x, g, axis=axis, reverse=not reverse, shifted=True)
    product = cumulative_prod(x, axis=axis, reverse=reverse)
    return (_moved(product, axis, -1 if reverse else 1, 1) * ahead,)


def _prod_jvp(r: Any) -> Any:
    """ẏ[i] = ẋ[i]·y[i-1] + x[i]·ẏ[i-1], a linear recurrence."""
    (x,), (t,), (y,) = r.operands, r.tangents, r.results
    axis, reverse = r.params["axis"], r.params["reverse"]
    if not x.shape[axis]:
        return t
    return linear_recurrence(x, t * _moved(y, axis, -1 if reverse else 1, 1), axis=axis, reverse=reverse, shifted=False)


def _prod_scale(x: Array, *, axis: int, reverse: bool) -> Array:
    """|result| · (1 + √n): in whatever order, each of n factors is rounded in once, and roundings add like a random walk."""
    product = _directed(np.cumprod, x, axis, reverse)
    return np.asarray(np.abs(product) * (1 + x.shape[axis] ** 0.5))


_factors = leaving(near_one(_samples(0.99, 1.01)), axis=1, reverse=False)


@_scan(_prod_vjp, fold="prod", residuals=("inputs",), kind="numeric", dtypes=NUMERIC, samples=_factors,
       tolerance=2, scale=_prod_scale, jvp=_prod_jvp)  # fmt: skip
def cumulative_prod(x: Array, *, axis: int, reverse: bool) -> Array:
    """The running product along an axis, in the operand's dtype."""
    return _directed(np.cumprod, x, axis, reverse)


# running log Σ exp


def _sums_of_exp(x: Array, axis: int, reverse: bool) -> tuple[Array, Array]:
    """Running maxima, and the running sums of the exponentials of the differences from them, in float64."""
    lines = np.moveaxis(np.asarray(x, np.float64), axis, 0)
    lines = lines[::-1] if reverse else lines
    top = np.maximum.accumulate(lines, axis=0)
    with np.errstate(invalid="ignore"):
        total = np.exp(np.where(lines == top, 0.0, lines - top))
        # total[i] = total[i-1] · scale[i-1] + total[i], where the scale is 1 unless a line has a new maximum in i
        scale = np.exp(np.where(top[:-1] == top[1:], 0.0, top[:-1] - top[1:]))
        changed = np.flatnonzero((scale != 1.0).any(axis=tuple(range(1, lines.ndim)))) + 1
        for first, end in pairwise([0, *changed.tolist(), len(lines)]):
            if first:
                total[first] += total[first - 1] * scale[first - 1]
            np.cumsum(total[first:end], axis=0, out=total[first:end])
    found = (np.moveaxis(v[::-1] if reverse else v, 0, axis) for v in (top, total))
    top, total = found
    return top, total


def _logsumexp_vjp(g: Any, r: Any) -> Any:
    """∂/∂x[i] = p[i] · s[i], where p[i] is the part of element i in its sum, and s[i] = g[i] + (1 - p[i+1])·s[i+1].

    1 - p[i+1] is the part of all elements before i+1 in their sum. Sums are of exponentials less the running maximum, since
    exp(x[i] - y[i]) is not the part where |y| is so large that its rounding is no small part of log 2.
    """
    (x,) = r.inputs
    axis, reverse = r.params["axis"], r.params["reverse"]
    if not x.shape[axis]:
        return (g,)
    top, _ = cumulative_max(x.detach(), axis=axis, reverse=reverse)
    before = _moved(top, axis, -1 if reverse else 1)
    # less infinity: 1 where both are; elsewhere x - top, whose slope is that of x even where it is 0
    lines = exp(where(logical_and(equal(x, top), isinf(x)), 0.0, x - top))
    decay = exp(where(equal(before, top), 0.0, before - top))
    part = lines / linear_recurrence(decay, lines, axis=axis, reverse=reverse, shifted=False)
    ahead = linear_recurrence(1.0 - part, g, axis=axis, reverse=not reverse, shifted=True)
    return (part * ahead,)


def _logsumexp_scale(x: Array, *, axis: int, reverse: bool) -> Array:
    """The largest of |result| and the sizes of the elements that are finite: differences of elements round."""
    top, total = _sums_of_exp(x, axis, reverse)
    sizes = np.where(np.isfinite(x), np.abs(np.asarray(x, np.float64)), 0.0)
    sizes = np.flip(sizes, axis) if reverse else sizes
    largest = np.maximum.accumulate(sizes, axis)
    largest = np.flip(largest, axis) if reverse else largest
    return np.asarray(np.maximum(np.abs(top + np.log(total)), largest))


@_scan(_logsumexp_vjp, fold="logsumexp", residuals=("inputs",), kind="floating", dtypes=FLOATS, samples=_samples(),
       tolerance=4, scale=_logsumexp_scale)  # fmt: skip
def cumulative_logsumexp(x: Array, *, axis: int, reverse: bool) -> Array:
    """log Σ exp of the elements along an axis up to each of them, without overflow."""
    top, total = _sums_of_exp(x, axis, reverse)
    return np.asarray(top + np.log(total), x.dtype)


# running extremes, with the places they came from


def running_extreme(x: Array, axis: int, reverse: bool, extreme: Any) -> tuple[Array, Array]:
    """The running extreme by a ufunc, and the place where the scan met it first."""
    if reverse:
        v, at = running_extreme(np.flip(x, axis), axis, False, extreme)
        return np.flip(v, axis), np.flip(x.shape[axis] - 1 - at, axis)
    n = x.shape[axis]
    best = extreme.accumulate(x, axis=axis)
    here = np.arange(n).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    now, past = (np.take(best, k, axis) for k in (range(1, n), range(n - 1)))
    new = np.zeros(x.shape, np.bool_)
    # a running extreme changes for better, or to NaN, once
    np.moveaxis(new, axis, 0)[1:] = np.moveaxis((now != past) & ~((now != now) & (past != past)), axis, 0)
    at = np.maximum.accumulate(np.where(new, here, 0), axis=axis)
    return np.take_along_axis(x, at, axis), at


def _extreme_vjp(g: Any, r: Any) -> Any:
    return (scatter_add(zeros_like_aval(r.avals[0], g[0]), r.outputs[1], g[0], axis=r.params["axis"]),)


@_scan(_extreme_vjp, fold="max", residuals=("outputs",), kind="real", dtypes=REAL, samples=_extreme_samples,
       infer=_infer_extreme, tolerance=0, jvp=forward_rules.picked)  # fmt: skip
def cumulative_max(x: Array, *, axis: int, reverse: bool) -> tuple[Array, Array]:
    """The running maximum along an axis, NaN once there was one, and the index that it was met at first."""
    return running_extreme(x, axis, reverse, np.maximum)


@_scan(_extreme_vjp, fold="min", residuals=("outputs",), kind="real", dtypes=REAL, samples=_extreme_samples,
       infer=_infer_extreme, tolerance=0, jvp=forward_rules.picked)  # fmt: skip
def cumulative_min(x: Array, *, axis: int, reverse: bool) -> tuple[Array, Array]:
    """The running minimum along an axis, NaN once there was one, and the index that it was met at first."""
    return running_extreme(x, axis, reverse, np.minimum)
