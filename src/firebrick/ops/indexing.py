"""Indexing ops: take, gather, scatter and slice-update. Indices run over [-n, n); outside is an error, on every engine.

``take`` picks whole slices along an axis; ``gather`` picks single elements, with an index tensor of the result's shape
(``take_along_axis``). Sums and products into equal places are deterministic. Of several values set to one place the last
stays. ``ravel_index`` turns several index tensors into positions, for keys such as ``x[rows, columns]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import int64
from firebrick.core.errors import OutOfRangeError, ShapeError
from firebrick.core.op import Nondifferentiable, Sample
from firebrick.core.shapes import broadcast_shapes, slice_length
from firebrick.core.views import row_major
from firebrick.ops import access, batch_rules, forward_rules, index_maps
from firebrick.ops.declare import ALL, INTS, NUMERIC, REAL, Array, per_operand, per_result, size_of, specials, values
from firebrick.ops.movement import _SLICES, key_of, slice_
from firebrick.ops.reduction import zeros_like
from firebrick.ops.table import register


def _along_axis(inputs: Any, params: Any) -> dict[int, int]:
    """Operand 1 indexes one axis of operand 0."""
    return {1: inputs[0].shape[params["axis"]]}


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


def from_front(indices: Array, size: int, op: str) -> Array:
    """Indices as int64 in [0, size), after ``check_indices``."""
    at = indices.astype(np.int64)
    if not at.size or (int(at.min()) >= 0 and int(at.max()) < size and indices.dtype.kind == "i"):
        return at
    check_indices(indices, size, op)
    return np.where(at < 0, at + size, at)


def _infer_take(x: Any, indices: Any, *, axis: int) -> Aval:
    return Aval((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _take_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases = [
        ((4, 4), (4,), 0),
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
    operands="x:any indices:integer", infer=_infer_take,
    indexes=_along_axis, residuals=("inputs",),
    vjp=_take_vjp,
    samples=_take_samples, cost=per_result(0), bound="memory", fusion="map", tolerance=0, dtypes=ALL,
    index_map=index_maps.take, access=access.TAKE,
    batch=batch_rules.taken,
    jvp=forward_rules.linear(0),
    exact="moved",
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
    operands="x:numeric=T indices:integer updates:numeric=T", infer=_infer_index_add,
    indexes=_along_axis, residuals=("inputs",),
    vjp=_index_add_vjp,
    samples=_index_add_samples, cost=per_operand(1), bound="memory", fusion="scatter", tolerance=8, scale="operands",
    dtypes=NUMERIC,
    facts=lambda operands, results, **_: {"fold": "add", "slices": True},
    batch=batch_rules.added,
    jvp=forward_rules.linear(0, 2),
)  # fmt: skip
def index_add(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """x with updates added to the slices along an axis that indices name; repeats accumulate."""
    at = from_front(indices, x.shape[axis], "index_add").reshape(-1)
    out = np.moveaxis(np.array(x, order="C"), axis, 0)
    lead = np.moveaxis(updates, tuple(range(axis, axis + indices.ndim)), tuple(range(indices.ndim)))
    rows = lead.reshape(indices.size, *lead.shape[indices.ndim :])
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
        ((4, 4), (4, 4), 0),
        ((6,), (9,), 0),
        ((2, 0), (2, 0), 0),
        ((2, 3, 4), (2, 3, 1), 2),
    ]
    return [Sample((values(rng, name, s), rng.integers(-s[a], s[a], k)), {"axis": a}, name=f"{s} at {k}") for s, k, a in cases]


def _gather_vjp(g: Any, r: Any) -> Any:
    return (scatter_add(zeros_like(r.inputs[0]), r.inputs[1], g, axis=r.params["axis"]), None)


@register(
    operands="x:any indices:integer", infer=_infer_gather,
    indexes=_along_axis, residuals=("inputs",),
    vjp=_gather_vjp,
    samples=_along_samples, cost=per_result(0), bound="memory", fusion="map", tolerance=0, dtypes=ALL,
    index_map=index_maps.gather, access=access.GATHER, known_as="take_along_axis",
    batch=batch_rules.leading("axis"),
    jvp=forward_rules.linear(0),
    exact="moved",
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
    operands="x:numeric=T indices:integer updates:numeric=T", infer=_infer_scatter("scatter_add"),
    indexes=_along_axis, residuals=("inputs",),
    vjp=_scatter_add_vjp,
    samples=_scatter_samples, cost=per_operand(1), bound="memory", fusion="scatter", tolerance=8, scale="operands",
    dtypes=NUMERIC, access=access.one_update(lambda x, update: x + update),
    facts=lambda operands, results, **_: {"fold": "add", "slices": False},
    batch=batch_rules.leading("axis"),
    jvp=forward_rules.linear(0, 2),
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
    from firebrick.core.constants import constant
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
    from firebrick.core.constants import constant
    from firebrick.ops.movement import broadcast_to

    return broadcast_to(constant(0, aval.dtype, like.device), shape=aval.shape)


@register(
    operands="x:any=T indices:integer updates:any=T", infer=_infer_scatter("scatter"),
    indexes=_along_axis, residuals=("inputs",),
    vjp=_scatter_vjp, samples=_scatter_samples, cost=per_operand(0), bound="memory", fusion="scatter", tolerance=0,
    dtypes=ALL, access=access.one_update(lambda x, update: update),
    facts=lambda operands, results, **_: {"fold": "set", "slices": False},
    batch=batch_rules.leading("axis"),
    jvp=forward_rules.linear(0, 2),
)  # fmt: skip
def scatter(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """x with the element along an axis that each index names set to its update; the last of several stays."""
    check_indices(indices, x.shape[axis], "scatter")
    out = np.array(x, order="C")
    flat = np.arange(out.size).reshape(out.shape)[_open_grid(indices, axis)].reshape(-1)
    places, first = np.unique(flat[::-1], return_index=True)
    out.reshape(-1)[places] = updates.reshape(-1)[::-1][first]
    return out


# scatter with mul, min and max


_MODES = ("mul", "min", "max")


def _infer_scatter_reduce(x: Any, indices: Any, updates: Any, *, axis: int, mode: str) -> Aval:
    if mode not in _MODES:
        raise ShapeError("scatter_reduce: mode must be mul, min or max", repr(mode), "use scatter or scatter_add for others")
    return _infer_scatter("scatter_reduce")(x, indices, updates, axis=axis)  # type: ignore[no-any-return]


def _scatter_reduce_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for s in _along_samples(rng, name):
        x, at = s.inputs
        for mode in _MODES:
            params = {**s.params, "mode": mode}
            if mode == "mul":
                v = values(rng, name, x.size + at.size)
            else:  # far enough apart for a gradient check
                v = np.asarray(rng.permutation(x.size + at.size) / 8 - 2).astype(x.dtype)
            inputs = (v[: x.size].reshape(x.shape), at, v[x.size :].reshape(at.shape))
            out.append(Sample(inputs, params, name=f"{s.name} {mode}"))
    at = np.asarray([[0, 1, 1, 1, -1]])
    zeros = (np.asarray([[2, 1, 0]]), at, np.asarray([[0, 0, 3, 2, 0]]))
    out.append(Sample(tuple(a.astype(x.dtype) if a is not at else a for a in zeros), {"axis": 1, "mode": "mul"}, name="zeros"))
    for mode in ("min", "max"):
        ties = (np.asarray([[2, 1, 5]]), at, np.asarray([[2, 7, 7, 1, 5]]))
        tied = tuple(a.astype(x.dtype) if a is not at else a for a in ties)
        out.append(Sample(tied, {"axis": 1, "mode": mode}, grad_safe=False, name=f"ties {mode}"))
        special = specials(name)
        where_to = rng.integers(0, 4, special.shape)
        out.append(Sample((special[:4], where_to, special), {"axis": 0, "mode": mode}, False, f"special values {mode}"))
    return out


def _product_scale(x: Array, indices: Array, updates: Array, *, axis: int, mode: str) -> Array:
    """|result| · (1 + √n), as for ``prod``; the others are exact."""
    found = np.abs(scatter_reduce.reference(x, indices, updates, axis=axis, mode=mode))
    return np.asarray(found * (1 + indices.shape[axis] ** 0.5) if mode == "mul" else found)


def flat_places(indices: Any, shape: tuple[int, ...], axis: int) -> Any:
    """For indices along an axis of a tensor of ``shape``: the row-major place of each, as ops."""
    from firebrick.core.hooks import hooks
    from firebrick.ops.elementwise import add

    strides = [size_of(shape[k + 1 :]) for k in range(len(shape))]
    grid = sum(
        (np.arange(n).reshape([-1 if j == k else 1 for j in range(len(shape))]) * strides[k]
         for k, n in enumerate(indices.shape) if k != axis), np.zeros([1] * len(shape), np.int64),
    )  # fmt: skip
    along = ravel_index(indices, sizes=(shape[axis],), strides=(strides[axis],), offset=0)
    return add(along, hooks.from_host(np.asarray(grid), indices.device))


def _earlier_products(x: Any, places: Any, longest: int) -> Any:
    """For sorted places: the product of the elements before each one in its run of equal places, by doubling steps."""
    from firebrick.ops.elementwise import equal, where
    from firebrick.ops.movement import pad

    n = x.shape[0]

    def shifted(v: Any, d: int, fill: Any) -> Any:
        return pad(slice_(v, starts=(0,), stops=(n - d,), steps=(1,)), widths=((d, 0),), value=fill)

    def inside(v: Any, d: int) -> Any:
        return where(equal(shifted(places, d, -1), places), shifted(v, d, 1.0), 1.0)

    if n < 2:
        return x * 0.0 + 1.0
    product, d = inside(x, 1), 1
    while d < min(n, longest):
        product = product * inside(product, d)
        d *= 2
    return product


def _products_of_others(x: Any, places: Any, longest: int) -> Any:
    """For each element the product of all others of its place: exact at zeros, and so are its own derivatives."""
    from firebrick.ops.movement import flip
    from firebrick.ops.sorting import sort

    runs, order = sort(places, axis=0, descending=False)
    back = sort(order, axis=0, descending=False)[1]
    rows = take(x, order, axis=0)
    before = _earlier_products(rows, runs, longest)
    after = flip(_earlier_products(flip(rows, axes=(0,)), flip(runs, axes=(0,)), longest), axes=(0,))
    return take(before * after, back, axis=0)


def _product_vjp(g: Any, r: Any) -> Any:
    from firebrick.core.hooks import hooks
    from firebrick.ops.movement import concat, reshape

    x, indices, updates = r.inputs
    axis = r.params["axis"]
    n, m = size_of(x.shape), size_of(updates.shape)
    own = hooks.from_host(np.arange(n), x.device)
    places = concat(own, reshape(flat_places(indices, x.shape, axis), shape=(m,)), axis=0)
    elements = concat(reshape(x, shape=(n,)), reshape(updates, shape=(m,)), axis=0)
    others = _products_of_others(elements, places, indices.shape[axis] + 1)
    found = take(reshape(g, shape=(n,)), places, axis=0) * others
    gx, gu = (slice_(found, starts=(a,), stops=(b,), steps=(1,)) for a, b in ((0, n), (n, n + m)))
    return reshape(gx, shape=x.shape), None, reshape(gu, shape=updates.shape)


def _extreme_vjp(g: Any, r: Any) -> Any:
    """The first extreme element takes the gradient: x before the updates, and those in their order."""
    from firebrick.core.constants import constant
    from firebrick.core.dtypes import int64
    from firebrick.core.hooks import hooks
    from firebrick.ops.elementwise import equal, isnan, logical_and, logical_not, logical_or, where
    from firebrick.ops.movement import broadcast_to

    (x, indices, updates), (y,) = r.inputs, r.outputs
    axis = r.params["axis"]

    def same(a: Any, b: Any) -> Any:
        return logical_or(equal(a, b), logical_and(isnan(a), isnan(b)))

    kept = same(x, y)
    n = indices.shape[axis]
    shape = tuple(n if k == axis else 1 for k in range(len(x.shape)))
    order = broadcast_to(hooks.from_host(np.arange(n).reshape(shape), g.device), shape=indices.shape)
    extreme = logical_and(same(updates, gather(y, indices, axis=axis)), logical_not(gather(kept, indices, axis=axis)))
    none = broadcast_to(constant(n, int64, g.device), shape=x.shape)
    first = scatter_reduce(none, indices, where(extreme, order, n), axis=axis, mode="min")
    wins = logical_and(extreme, equal(gather(first, indices, axis=axis), order))
    return where(kept, g, 0.0), None, where(wins, gather(g, indices, axis=axis), 0.0)


@register(
    operands="x:real=T indices:integer updates:real=T", infer=_infer_scatter_reduce,
    indexes=_along_axis, residuals=("inputs", "outputs"),
    vjp=lambda g, r: (_product_vjp if r.params["mode"] == "mul" else _extreme_vjp)(g, r),
    samples=_scatter_reduce_samples, cost=per_operand(1), bound="memory", fusion="scatter", tolerance=2,
    scale=_product_scale, dtypes=REAL, access=access.one_update(access.fold),
    facts=lambda operands, results, *, mode, **_: {"fold": mode, "slices": False},
    batch=batch_rules.leading("axis"),
)  # fmt: skip
def scatter_reduce(x: Array, indices: Array, updates: Array, *, axis: int, mode: str) -> Array:
    """x with the element along an axis that each index names multiplied by its update, or its min or max with it."""
    check_indices(indices, x.shape[axis], "scatter_reduce")
    out = np.array(x, order="C")
    flat = np.arange(out.size).reshape(out.shape)[_open_grid(indices, axis)].reshape(-1)
    fold: Any = {"mul": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
    for place in np.unique(flat):
        out.reshape(-1)[place] = fold(out.reshape(-1)[place], fold.reduce(updates.reshape(-1)[flat == place], dtype=x.dtype))
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


def _slice_pieces(operands: Any, results: Any, *, starts: Any, stops: Any, steps: Any) -> dict[str, Any]:
    whole = row_major(results[0].shape)
    return {"pieces": [(0, None, whole), (1, None, whole.sliced(starts, stops, steps))]}


@register(
    operands="x:any=T updates:any=T", infer=_infer_slice_update, residuals=(),
    vjp=_slice_update_vjp,
    samples=_slice_update_samples, cost=per_operand(0), bound="memory", fusion="move", tolerance=0, dtypes=ALL,
    facts=_slice_pieces,
    batch=batch_rules.sliced,
)  # fmt: skip
def slice_update(x: Array, updates: Array, *, starts: Any, stops: Any, steps: Any) -> Array:
    """x with the elements of a slice replaced by updates."""
    out = np.array(x)
    out[key_of(starts, stops, steps)] = updates
    return out


# positions


def _infer_ravel_index(*indices: Any, sizes: Any, strides: Any, offset: int) -> Aval:
    return Aval(broadcast_shapes(*(i.shape for i in indices), op="x[key]: index tensors"), int64)


def _ravel_index_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases: list[tuple[Any, ...]] = [
        (((4,), (4,)), (5, 3), (3, 1), 0),
        (((2, 1), (3,)), (4, 6), (12, 1), 7),
        (((),), (9,), (1,), 0),
        (((0,), (1,)), (2, 3), (3, 1), 0),
        (((3, 1), (1, 2), (3, 2)), (2, 3, 4), (12, 4, 1), 0),
        (((700,),), (100,), (10,), 5),
    ]
    out = []
    for shapes, sizes, strides, offset in cases:
        low = 0 if name[0] == "u" else -1
        at = tuple(np.asarray(rng.integers(low * n, n, s)).astype(name) for s, n in zip(shapes, sizes, strict=True))
        out.append(Sample(at, {"sizes": sizes, "strides": strides, "offset": offset}, name=f"{shapes} in {sizes}"))
    return out


@register(
    operands="*indices:integer", infer=_infer_ravel_index, indexes=lambda inputs, params: dict(enumerate(params["sizes"])),
    vjp=Nondifferentiable("positions are integers"), residuals=(),
    samples=_ravel_index_samples, cost=per_result(2), bound="memory", fusion="map", tolerance=0, dtypes=INTS,
    access=access.RAVEL_INDEX, known_as="x[key]",
    batch=batch_rules.broadcasting,
)  # fmt: skip
def ravel_index(*indices: Array, sizes: Any, strides: Any, offset: int) -> Array:
    """Flat positions offset + Σ strides[k] · indices[k], of index tensors that broadcast; negative ones count from the end."""
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    out = np.full(shape, offset, np.int64)
    for i, n, stride in zip(indices, sizes, strides, strict=True):
        out += from_front(i, n, "x[key]") * stride
    return out
