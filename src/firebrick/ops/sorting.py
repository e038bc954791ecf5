"""Sorting and searching: sort, top-k and binary search.

NaN counts as the largest value: last in ascending order, first in descending order. Of equal elements the one with the
lower index comes first, in both directions.
"""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import int64
from firebrick.core.errors import OutOfRangeError, ShapeError
from firebrick.core.op import Cost, Nondifferentiable, Sample
from firebrick.ops import batch_rules, forward_rules
from firebrick.ops.declare import REAL, Array, apart, specials, values
from firebrick.ops.indexing import gather, scatter_add, zeros_like_aval
from firebrick.ops.table import register


def _infer(x: Any, *, axis: int, descending: bool) -> tuple[Aval, Aval]:
    return Aval(x.shape, x.dtype), Aval(x.shape, int64)


def _cost(ins: Any, outs: Any, params: Any) -> Cost:
    n = max(2, ins[0].shape[params["axis"]])
    return Cost(ins[0].size * log2(n), ins[0].nbytes + outs[0].nbytes + outs[1].nbytes)


def _samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape, axis in (((4, 4), 1), ((4, 2), 0), ((7,), 0), ((0, 3), 0), ((2, 600), 1)):
        for down in (False, True):
            x = values(rng, name, shape)
            out.append(Sample((x,), {"axis": axis, "descending": down}, apart(x), f"{shape} descending={down}"))
    s = specials(name)
    ties = np.stack([s, np.roll(s, 2), s[::-1]])
    out += [Sample((ties,), {"axis": 1, "descending": down}, False, "special values") for down in (False, True)]
    few = values(rng, "int8", (2, 300), -0.2, 0.2).astype(s.dtype)
    out += [Sample((few,), {"axis": 1, "descending": down}, False, "ties") for down in (False, True)]
    return out


def _sort_vjp(g: Any, r: Any) -> Any:
    return (scatter_add(zeros_like_aval(r.avals[0], g[0]), r.outputs[1], g[0], axis=r.params["axis"]),)


@register(
    operands="x:real", infer=_infer, residuals=("outputs",),
    vjp=_sort_vjp,
    samples=_samples, cost=_cost, bound="memory", fusion="sort", tolerance=0, dtypes=REAL,
    facts=lambda operands, results, *, descending, **_: {"descending": descending},
    jvp=forward_rules.picked,
)  # fmt: skip
def sort(x: Array, *, axis: int, descending: bool) -> tuple[Array, Array]:
    """Sorted values and the indices they came from; equal elements keep their order."""
    if descending:
        back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        at = np.flip(x.shape[axis] - 1 - back, axis)
    else:
        at = np.argsort(x, axis=axis, kind="stable")
    return np.take_along_axis(x, at, axis), np.ascontiguousarray(at, np.int64)


# sorted values alone


def _values_vjp(g: Any, r: Any) -> Any:
    _, at = sort(r.inputs[0], **r.params)
    return (scatter_add(zeros_like_aval(r.avals[0], g), at, g, axis=r.params["axis"]),)


def _values_jvp(r: Any) -> Any:
    _, at = sort(r.operands[0], **r.params)
    return gather(r.tangents[0], at, axis=r.params["axis"])


def _values_cost(ins: Any, outs: Any, params: Any) -> Cost:
    n = max(2, ins[0].shape[params["axis"]])
    return Cost(ins[0].size * log2(n), ins[0].nbytes + outs[0].nbytes)


@register(
    operands="x:real", infer=lambda x, *, axis, descending: Aval(x.shape, x.dtype), residuals=("inputs",), vjp=_values_vjp,
    samples=_samples, cost=_values_cost, bound="memory", fusion="sort", tolerance=0, dtypes=REAL,
    facts=lambda operands, results, *, descending, **_: {"descending": descending},
    jvp=_values_jvp,
)  # fmt: skip
def sort_values(x: Array, *, axis: int, descending: bool) -> Array:
    """Sorted values without their indices, which take longer to find; equal elements keep their order."""
    found: Array = sort.reference(x, axis=axis, descending=descending)[0]
    return found


# the k largest or smallest


def _infer_top_k(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Aval, Aval]:
    n = x.shape[axis]
    if not 0 <= k <= n:
        raise OutOfRangeError(f"top_k: k must lie in [0, {n}], the length of axis {axis}", f"k={k}", "take fewer elements")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return Aval(shape, x.dtype), Aval(shape, int64)


def _top_k_cost(ins: Any, outs: Any, params: Any) -> Cost:
    return Cost(2.0 * ins[0].size, ins[0].nbytes + outs[0].nbytes + outs[1].nbytes)


def _top_k_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape, axis, k in (((3, 5), 1, 2), ((4, 2), 0, 4), ((7,), 0, 1), ((0, 3), 1, 2), ((3, 2), 0, 0), ((2, 600), 1, 9)):
        x = values(rng, name, shape)
        for largest in (True, False):
            label = f"{k} of {shape} largest={largest}"
            out.append(Sample((x,), {"k": k, "axis": axis, "largest": largest}, apart(x), label))
    s = specials(name)
    odd = np.stack([s, np.roll(s, 2), s[::-1]])
    few = values(rng, "int8", (3, 300), -0.2, 0.2).astype(s.dtype)
    for largest in (True, False):
        for k in (1, 3, 5):
            out.append(Sample((odd,), {"k": k, "axis": 1, "largest": largest}, False, "special values"))
        out.append(Sample((few,), {"k": 80, "axis": 1, "largest": largest}, False, "ties"))
    return out


@register(
    operands="x:real", infer=_infer_top_k, residuals=("outputs",), vjp=_sort_vjp, samples=_top_k_samples,
    cost=_top_k_cost, bound="memory", fusion="sort", tolerance=0, dtypes=REAL,
    facts=lambda operands, results, *, largest, **_: {"descending": largest},
    jvp=forward_rules.picked,
)  # fmt: skip
def top_k(x: Array, *, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """The k largest (or smallest) values along an axis, the most extreme first, and the indices they came from."""
    ordered, at = sort.reference(x, axis=axis, descending=largest)
    return np.take(ordered, range(k), axis), np.take(at, range(k), axis)


# binary search


def _infer_searchsorted(x1: Any, x2: Any, *, right: bool) -> Aval:
    if len(x1.shape) != 1:
        raise ShapeError("searchsorted: x1 must have one axis", f"{len(x1.shape)} axes", "search each row by itself")
    return Aval(x2.shape, int64)


def _searchsorted_cost(ins: Any, outs: Any, params: Any) -> Cost:
    steps = log2(max(2, ins[0].size))
    return Cost(ins[1].size * steps, ins[0].nbytes + ins[1].nbytes + outs[0].nbytes)


def _ascending(x: Array) -> Array:
    """``x`` in order; NumPy sorts bfloat16 without regard to NaN."""
    return np.sort(x) if x.dtype.kind in "iu" else np.sort(x.astype(np.float64)).astype(x.dtype)


def _searchsorted_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    s = _ascending(specials(name))
    few = _ascending(values(rng, "int8", (30,), -0.3, 0.3).astype(s.dtype))
    cases = [
        ("in order", _ascending(values(rng, name, (9,))), values(rng, name, (3, 4))),
        ("0-d", _ascending(values(rng, name, (5,))), values(rng, name, ())),
        ("in nothing", values(rng, name, (0,)), values(rng, name, (3,))),
        ("of nothing", _ascending(values(rng, name, (4,))), values(rng, name, (0, 2))),
        ("ties", few, values(rng, "int8", (40,), -0.4, 0.4).astype(s.dtype)),
        ("special values", s, specials(name)),
        ("long", _ascending(values(rng, name, (1500,))), values(rng, name, (700,))),
    ]
    return [Sample((x1, x2), {"right": r}, False, f"{label} right={r}") for label, x1, x2 in cases for r in (False, True)]


@register(
    operands="x1:real=T x2:real=T", infer=_infer_searchsorted, residuals=(),
    vjp=Nondifferentiable("the result is an index"), samples=_searchsorted_samples, cost=_searchsorted_cost,
    bound="memory", fusion="search", tolerance=0, dtypes=REAL, facts=lambda operands, results, *, right: {"right": right},
    batch=batch_rules.searched,
)  # fmt: skip
def searchsorted(x1: Array, x2: Array, *, right: bool) -> Array:
    """Where each element of x2 would go into x1, which is in ascending order: before its equals, or (right) behind them."""
    return np.asarray(np.searchsorted(x1, x2, "right" if right else "left"), np.int64)
