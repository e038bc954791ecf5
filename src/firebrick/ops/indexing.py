"""Indexing ops: take, gather, scatter and slice-update. Indices run over [-n, n); outside is an error, on every engine.

``take`` picks whole slices along an axis; ``gather`` picks single elements, with an index tensor of the result's shape
(``take_along_axis``). Sums into equal places are deterministic. Of several values set to one place the last stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import OutOfRangeError, ShapeError
from firebrick.core.op import Sample
from firebrick.core.shapes import slice_length
from firebrick.ops.declare import ALL, NUMERIC, Array, per_operand, per_result, size_of, values
from firebrick.ops.movement import _SLICES, key_of, slice_
from firebrick.ops.reduction import zeros_like
from firebrick.ops.table import register


def check_indices(indices: Array, size: int, op: str) -> None:
    """Raise OutOfRangeError unless every index lies in [-size, size)."""
    if indices.size and (int(indices.min()) < -size or int(indices.max()) >= size):
        bad = indices[(indices < -size) | (indices >= size)]
        raise OutOfRangeError(
            f"{op}: indices must lie in [{-size}, {size})",
            f"{bad.size} outside, the first {int(bad.reshape(-1)[0])}",
            "check the index tensor (labels, tokens) against the axis it indexes",
            op=op,
        )


def _infer_take(x: Any, indices: Any, *, axis: int) -> Aval:
    return Aval((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _take_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases = [
        ((5, 3), (4,), 0),
        ((3, 5), (2, 2), 1),
        ((6,), (), 0),
        ((4, 2), (0,), 0),
        ((2, 3, 4), (7,), 1),
        ((300,), (500,), 0),
    ]
    return [Sample((values(rng, name, s), rng.integers(-s[a], s[a], k)), {"axis": a}, name=f"{s} at {k}") for s, k, a in cases]


def _take_vjp(g: Any, r: Any) -> Any:
    return (index_add(zeros_like(r.inputs[0]), r.inputs[1], g, axis=r.params["axis"]), None)


@register(
    operands="x:any indices:integer", infer=_infer_take, residuals=("inputs",),
    vjp=_take_vjp,
    samples=_take_samples, cost=per_result(0), bound="memory", fusion="map", tolerance=0, dtypes=ALL,
)  # fmt: skip
def take(x: Array, indices: Array, *, axis: int) -> Array:
    """Slices of x along an axis, in the order of indices."""
    check_indices(indices, x.shape[axis], "take")
    return np.take(x, indices, axis)


def _infer_index_add(x: Any, indices: Any, updates: Any, *, axis: int) -> Aval:
    want = _infer_take(x, indices, axis=axis).shape
    if updates.shape != want:
        raise ShapeError(
            "index_add: updates must have the shape that take gives",
            f"{updates.shape}, not {want}",
            "reshape them",
        )
    return Aval(x.shape, x.dtype)


def _index_add_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for s in _take_samples(rng, name):
        x, i = s.inputs
        axis = s.params["axis"]
        out.append(
            Sample(
                (x, i, values(rng, name, (*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]))),
                s.params,
                name=s.name,
            )
        )
    return out


def _index_add_vjp(g: Any, r: Any) -> Any:
    return (g, None, take(g, r.inputs[1], axis=r.params["axis"]))


@register(
    operands="x:numeric=T indices:integer updates:numeric=T", infer=_infer_index_add, residuals=("inputs",),
    vjp=_index_add_vjp,
    samples=_index_add_samples, cost=per_operand(1), bound="memory", fusion="scatter", tolerance=8, scale="operands",
    dtypes=NUMERIC,
)  # fmt: skip
def index_add(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """x with updates added to the slices along an axis that indices name; repeats accumulate."""
    check_indices(indices, x.shape[axis], "index_add")
    out = np.moveaxis(np.array(x, order="C"), axis, 0)
    lead = np.moveaxis(updates, tuple(range(axis, axis + indices.ndim)), tuple(range(indices.ndim)))
    rows = lead.reshape(indices.size, *lead.shape[indices.ndim :])
    at = np.where(indices < 0, indices + x.shape[axis], indices).reshape(-1)
    for place in np.unique(at):
        out[place] += total(rows[at == place])
    return np.ascontiguousarray(np.moveaxis(out, 0, axis))


def total(rows: Array) -> Array:
    """The sum over the first axis, in the same dtype, by halves: its error grows with the logarithm of the length."""
    while len(rows) > 1:
        half = len(rows) // 2
        rest = rows[2 * half :]
        rows = np.concatenate([rows[:half] + rows[half : 2 * half], rest])
    return np.asarray(rows[0])


def _infer_gather(x: Any, indices: Any, *, axis: int) -> Aval:
    _check_along("gather", x, indices, axis)
    return Aval(indices.shape, x.dtype)


def _check_along(op: str, x: Any, indices: Any, axis: int) -> None:
    if len(x.shape) != len(indices.shape) or any(
        a != b for k, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)) if k != axis
    ):
        raise ShapeError(
            f"{op}: indices must have x's shape except along axis {axis}", f"x {x.shape}, indices {indices.shape}",
            "broadcast one of them first",
        )  # fmt: skip


def _along_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases = [
        ((3, 4), (3, 2), 1),
        ((3, 4), (5, 4), 0),
        ((6,), (9,), 0),
        ((2, 0), (2, 0), 0),
        ((2, 3, 4), (2, 3, 1), 2),
    ]
    return [Sample((values(rng, name, s), rng.integers(-s[a], s[a], k)), {"axis": a}, name=f"{s} at {k}") for s, k, a in cases]


def _gather_vjp(g: Any, r: Any) -> Any:
    return (scatter_add(zeros_like(r.inputs[0]), r.inputs[1], g, axis=r.params["axis"]), None)


@register(
    operands="x:any indices:integer", infer=_infer_gather, residuals=("inputs",),
    vjp=_gather_vjp,
    samples=_along_samples, cost=per_result(0), bound="memory", fusion="map", tolerance=0, dtypes=ALL,
)  # fmt: skip
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """Elements of x along an axis, one for each index."""
    check_indices(indices, x.shape[axis], "gather")
    return np.take_along_axis(x, indices, axis)


def _infer_scatter(op: str) -> Any:
    def infer(x: Any, indices: Any, updates: Any, *, axis: int) -> Aval:
        _check_along(op, x, indices, axis)
        if updates.shape != indices.shape:
            raise ShapeError(
                f"{op}: updates must have the indices' shape",
                f"{updates.shape} and {indices.shape}",
                "broadcast them",
            )
        return Aval(x.shape, x.dtype)

    return infer


def _scatter_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for s in _along_samples(rng, name):
        x, i = s.inputs
        out.append(Sample((x, i, values(rng, name, i.shape)), s.params, name=s.name))
    return out


def _open_grid(indices: Array, axis: int) -> tuple[Array, ...]:
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = indices
    return tuple(grid)


def _scatter_add_vjp(g: Any, r: Any) -> Any:
    return (g, None, gather(g, r.inputs[1], axis=r.params["axis"]))


@register(
    operands="x:numeric=T indices:integer updates:numeric=T", infer=_infer_scatter("scatter_add"), residuals=("inputs",),
    vjp=_scatter_add_vjp,
    samples=_scatter_samples, cost=per_operand(1), bound="memory", fusion="scatter", tolerance=8, scale="operands",
    dtypes=NUMERIC,
)  # fmt: skip
def scatter_add(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """x with each update added to the element along an axis that its index names; repeats accumulate."""
    check_indices(indices, x.shape[axis], "scatter_add")
    out = np.array(x, order="C")
    flat = np.arange(out.size).reshape(out.shape)[_open_grid(indices, axis)].reshape(-1)
    for place in np.unique(flat):
        out.reshape(-1)[place] += total(updates.reshape(-1)[flat == place])
    return out


def _scatter_vjp(g: Any, r: Any) -> Any:
    from firebrick.core.bind import constant
    from firebrick.core.dtypes import int64
    from firebrick.core.hooks import hooks
    from firebrick.ops.elementwise import equal, where
    from firebrick.ops.movement import broadcast_to

    x, indices, _ = r.inputs
    axis = r.params["axis"]
    gx = scatter(g, indices, zeros_like_aval(r.avals[2], g), axis=axis)
    order = hooks.from_host(np.arange(max(1, size_of(indices.shape))), g.device)
    order = _reshaped(order, indices.shape)
    none = broadcast_to(constant(-1, int64, g.device), shape=x.shape)
    stays = equal(gather(scatter(none, indices, order, axis=axis), indices, axis=axis), order)
    return gx, None, where(stays, gather(g, indices, axis=axis), 0.0)


def _reshaped(order: Any, shape: tuple[int, ...]) -> Any:
    from firebrick.ops.movement import reshape

    n = size_of(shape)
    return reshape(slice_(order, starts=(0,), stops=(n,), steps=(1,)), shape=shape)


def zeros_like_aval(aval: Any, like: Any) -> Any:
    """Zeros of an aval on another tensor's device, as a broadcast constant."""
    from firebrick.core.bind import constant
    from firebrick.ops.movement import broadcast_to

    return broadcast_to(constant(0, aval.dtype, like.device), shape=aval.shape)


@register(
    operands="x:any=T indices:integer updates:any=T", infer=_infer_scatter("scatter"), residuals=("inputs",),
    vjp=_scatter_vjp, samples=_scatter_samples, cost=per_operand(0), bound="memory", fusion="scatter", tolerance=0,
    dtypes=ALL,
)  # fmt: skip
def scatter(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """x with the element along an axis that each index names set to its update; the last of several stays."""
    check_indices(indices, x.shape[axis], "scatter")
    out = np.array(x, order="C")
    flat = np.arange(out.size).reshape(out.shape)[_open_grid(indices, axis)].reshape(-1)
    places, first = np.unique(flat[::-1], return_index=True)
    out.reshape(-1)[places] = updates.reshape(-1)[::-1][first]
    return out


def _infer_slice_update(x: Any, updates: Any, *, starts: Any, stops: Any, steps: Any) -> Aval:
    want = tuple(map(slice_length, starts, stops, steps))
    if updates.shape != want:
        raise ShapeError(
            "slice_update: updates must have the slice's shape",
            f"{updates.shape}, not {want}",
            "broadcast them",
        )
    return Aval(x.shape, x.dtype)


def _slice_update_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape, p in _SLICES:
        want = tuple(map(slice_length, p["starts"], p["stops"], p["steps"]))
        out.append(Sample((values(rng, name, shape), values(rng, name, want)), dict(p), name=f"{shape} {p}"))
    return out


def _slice_update_vjp(g: Any, r: Any) -> Any:
    return (slice_update(g, zeros_like_aval(r.avals[1], g), **r.params), slice_(g, **r.params))


@register(
    operands="x:any=T updates:any=T", infer=_infer_slice_update, residuals=(),
    vjp=_slice_update_vjp,
    samples=_slice_update_samples, cost=per_operand(0), bound="memory", fusion="move", tolerance=0, dtypes=ALL,
)  # fmt: skip
def slice_update(x: Array, updates: Array, *, starts: Any, stops: Any, steps: Any) -> Array:
    """x with the elements of a slice replaced by updates."""
    out = np.array(x)
    out[key_of(starts, stops, steps)] = updates
    return out
