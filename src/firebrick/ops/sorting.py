"""Sorting along an axis: stable, NaN last in ascending order and first in descending order."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import int64
from firebrick.core.op import Cost, Sample
from firebrick.ops.declare import REAL, Array, specials, values
from firebrick.ops.indexing import scatter_add, zeros_like_aval
from firebrick.ops.table import register


def _infer(x: Any, *, axis: int, descending: bool) -> tuple[Aval, Aval]:
    return Aval(x.shape, x.dtype), Aval(x.shape, int64)


def _cost(ins: Any, outs: Any, params: Any) -> Cost:
    n = max(2, ins[0].shape[params["axis"]])
    return Cost(ins[0].size * log2(n), ins[0].nbytes + outs[0].nbytes + outs[1].nbytes)


def _samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape, axis in (((3, 5), 1), ((4, 2), 0), ((7,), 0), ((0, 3), 0), ((2, 600), 1)):
        for down in (False, True):
            x = values(rng, name, shape)
            gaps = np.diff(np.sort(x.astype(np.float64), None))
            # a gradient check moves every element a little, and none may overtake another
            apart = bool((gaps > 1e-4).all())
            out.append(Sample((x,), {"axis": axis, "descending": down}, apart, f"{shape} descending={down}"))
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
    samples=_samples, cost=_cost, bound="memory", fusion="opaque", tolerance=0, dtypes=REAL,
)  # fmt: skip
def sort(x: Array, *, axis: int, descending: bool) -> tuple[Array, Array]:
    """Sorted values and the indices they came from; equal elements keep their order."""
    if descending:
        back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        at = np.flip(x.shape[axis] - 1 - back, axis)
    else:
        at = np.argsort(x, axis=axis, kind="stable")
    return np.take_along_axis(x, at, axis), np.ascontiguousarray(at, np.int64)
