"""Scans along an axis: the running sum, product, maximum and minimum, from the first element or (``reverse``) the last.

A running sum or product wraps in integers. NaN propagates through the running extremes, and of equal elements the one
that the scan meets first is the extreme: its index is reported and it takes the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import int64
from firebrick.core.op import Cost, Sample
from firebrick.ops.declare import NUMERIC, REAL, Array, Declare, apart, specials, values
from firebrick.ops.indexing import scatter_add, zeros_like_aval
from firebrick.ops.movement import flip, pad, slice_
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


def _piece(x: Any, axis: int, start: int, stop: int) -> Any:
    """Elements ``start`` to ``stop`` along an axis."""
    n = len(x.shape)
    starts = tuple(start if i == axis else 0 for i in range(n))
    stops = tuple(stop if i == axis else d for i, d in enumerate(x.shape))
    return slice_(x, starts=starts, stops=stops, steps=(1,) * n)


def _recurrence(a: Any, b: Any, axis: int) -> Any:
    """s with s[i] = b[i] + a[i]·s[i+1], where ``a`` has one element less than ``b``: ⌈log₂ n⌉ rounds of doubling.

    Round d knows s up to d terms: s[i] += (a[i]⋯a[i+d-1])·s[i+d]. It divides by nothing, so zeros need no care.
    Source: Kogge, Stone, "A parallel algorithm for the efficient solution of a general class of recurrence
    equations", IEEE Transactions on Computers C-22(8), 1973.
    """
    n, d, s = b.shape[axis], 1, b
    while d < n:
        tail = _piece(s, axis, d, n)
        widths = tuple((0, d) if i == axis else (0, 0) for i in range(len(b.shape)))
        s = s + pad(a * tail, widths=widths, value=0)
        if 2 * d < n:
            a = _piece(a, axis, 0, n - 2 * d) * _piece(a, axis, d, n - d)
        d *= 2
    return s


def _prod_vjp(g: Any, r: Any) -> Any:
    """∂/∂x[i] = (Π of the elements before i) · s[i], where s[i] = g[i] + x[i+1]·s[i+1]."""
    axis, n = r.params["axis"], r.avals[0].shape[r.params["axis"]]
    if n == 0:
        return (g,)
    x = OPS["conj"](r.inputs[0]) if r.avals[0].dtype.kind == "complex" else r.inputs[0]
    if r.params["reverse"]:
        x, g = flip(x, axes=(axis,)), flip(g, axes=(axis,))
    ahead = _recurrence(_piece(x, axis, 1, n), g, axis)
    product = cumulative_prod(_piece(x, axis, 0, n - 1), axis=axis, reverse=False)
    before = pad(product, widths=tuple((1, 0) if i == axis else (0, 0) for i in range(len(x.shape))), value=1)
    found = before * ahead
    return (flip(found, axes=(axis,)) if r.params["reverse"] else found,)


def _prod_scale(x: Array, *, axis: int, reverse: bool) -> Array:
    """|result| · (1 + √n): in whatever order, each of n factors is rounded in once, and roundings add like a random walk."""
    product = _directed(np.cumprod, x, axis, reverse)
    return np.asarray(np.abs(product) * (1 + x.shape[axis] ** 0.5))


_factors = leaving(near_one(_samples(0.99, 1.01)), axis=1, reverse=False)


@_scan(_prod_vjp, fold="prod", residuals=("inputs",), kind="numeric", dtypes=NUMERIC, samples=_factors,
       tolerance=2, scale=_prod_scale)  # fmt: skip
def cumulative_prod(x: Array, *, axis: int, reverse: bool) -> Array:
    """The running product along an axis, in the operand's dtype."""
    return _directed(np.cumprod, x, axis, reverse)


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
       infer=_infer_extreme, tolerance=0)  # fmt: skip
def cumulative_max(x: Array, *, axis: int, reverse: bool) -> tuple[Array, Array]:
    """The running maximum along an axis, NaN once there was one, and the index that it was met at first."""
    return running_extreme(x, axis, reverse, np.maximum)


@_scan(_extreme_vjp, fold="min", residuals=("outputs",), kind="real", dtypes=REAL, samples=_extreme_samples,
       infer=_infer_extreme, tolerance=0)  # fmt: skip
def cumulative_min(x: Array, *, axis: int, reverse: bool) -> tuple[Array, Array]:
    """The running minimum along an axis, NaN once there was one, and the index that it was met at first."""
    return running_extreme(x, axis, reverse, np.minimum)
