"""Ops of the table by GPU templates: (launches, operands, parameters) → results.

Around launches, elements are only moved, reinterpreted and cast, as kernels of other kinds would do. What the templates do not
take raises ``Unserved`` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

import numpy as np
from template_launches import Launches, Unserved, computed_in

from firebrick.compiler.kernel.language.calls import HelperFunction, InlinedExpression
from firebrick.compiler.templates import (
    attention,
    convolution,
    deltas,
    digit_counts,
    digit_scatter,
    input_gradient,
    key_gradients,
    product,
    query_gradient,
    row_reduction,
    scan,
    segmented_scatter,
    weight_gradient,
    window,
)
from firebrick.compiler.templates.epilogues import add, larger, same
from firebrick.scalar.expr import load

Array = np.ndarray[Any, Any]
Params = dict[str, Any]
Results = tuple[Array, ...]


@HelperFunction
def smaller(a: Any, b: Any) -> Any:
    return min(a, b)


@HelperFunction
def times(a: Any, b: Any) -> Any:
    return a * b


def lines(x: Array, vector: int) -> Array:
    """An array whose last axis is in vectors."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // vector, vector)


def fold_of(kind: str, of: np.dtype[Any]) -> tuple[Any, float]:
    """An operation of two numbers, and its neutral element."""
    limits = np.iinfo(of) if of.kind in "iu" else None
    return {
        "sum": (add, 0), "prod": (times, 1), "max": (larger, limits.min if limits else -inf),
        "min": (smaller, limits.max if limits else inf),
    }[kind]  # fmt: skip


def divided(of: Any, count: int) -> Any:
    """The epilogue that makes a mean of a sum."""
    return InlinedExpression("divided", load(0, of.name) / float(count)) if of.kind == "float" else same


# products and convolutions

_TILES = (
    {"group_size": 16, "tile_m": 16, "tile_n": 16, "tile_k": 4, "rows": 4, "columns": 4},
    {"group_size": 16, "tile_m": 32, "tile_n": 32, "tile_k": 8, "rows": 8, "columns": 8},
    {"group_size": 64, "tile_m": 32, "tile_n": 32, "tile_k": 8, "rows": 4, "columns": 4},
    {"group_size": 16, "tile_m": 16, "tile_n": 32, "tile_k": 4, "rows": 4, "columns": 8},
)


def matmul(e: Launches, operands: Results, params: Params) -> Results:
    """A stack times one matrix is one tall matrix times it, as in a linear layer."""
    x, y = operands
    (m, k), n = x.shape[-2:], y.shape[-1]
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if y.ndim == 2:
        x, y = x.reshape(1, prod(x.shape[:-1]), k), y[None]
    else:
        x, y = (np.broadcast_to(a, (*lead, *a.shape[-2:])).reshape(prod(lead), *a.shape[-2:]) for a in (x, y))
    v = e.vector(x.dtype, k, n)
    shape = (len(x), x.shape[1], n // v, v)
    arrays = {"x": lines(x, v), "y": lines(y, v)}
    (out,) = e.launch(product(), arrays, {"out": (shape, x.dtype)}, vector=v, of=computed_in(x.dtype), **e.one_of(*_TILES))
    return (out.reshape(*lead, m, n),)


class Plane:
    """The geometry of images of one or two axes, as images of two: what the padding before and after has in common is the
    template's, the rest is written out.

    Args:
        image: Sizes.
        kernel: Sizes.
        params: Stride, padding and, if there is one, dilation.
    """

    def __init__(self, image: Any, kernel: Any, params: Params) -> None:
        if len(image) > 2:
            raise Unserved("images of three axes")
        more = 2 - len(image)
        self.image, self.kernel = ((1,) * more + tuple(x) for x in (image, kernel))
        padding = ((0, 0),) * more + tuple(params["padding"])
        self.rest = [(before - min(before, after), after - min(before, after)) for before, after in padding]
        self.size = [n + sum(r) for n, r in zip(self.image, self.rest, strict=True)]
        ones = (1,) * len(image)
        given = {
            "kernel": self.kernel, "stride": (1,) * more + tuple(params["stride"]), "padding": tuple(map(min, padding)),
            "dilation": (1,) * more + tuple(params.get("dilation", ones)),
        }  # fmt: skip
        self.constants = {f"{what}_{axis}": n for what, pair in given.items() for axis, n in zip("hw", pair, strict=True)}

    def planes(self, x: Array) -> Array:
        """Images or weights of one or two axes, with two."""
        return x if x.ndim == 4 else x[:, :, None]

    def padded(self, x: Array, value: float = 0.0) -> Array:
        """Images with the padding that is written out."""
        return np.pad(self.planes(x), ((0, 0), (0, 0), *self.rest), constant_values=np.asarray(value, x.dtype))

    def inner(self, x: Array) -> Array:
        """The images without it."""
        (top, _), (left, _) = self.rest
        return x[:, :, top : top + self.image[0], left : left + self.image[1]]


def conv(e: Launches, operands: Results, params: Params) -> Results:
    x, w = operands
    plane = Plane(x.shape[2:], w.shape[2:], params)
    x, count = plane.padded(x), params["groups"]
    places = _places(plane)
    found = []
    for xs, ws in zip(np.split(x, count, 1), np.split(w, count), strict=True):
        arrays = {"x": xs, "weight": ws.reshape(len(ws), -1)}
        shape = (len(x), len(ws), prod(places))
        found += e.launch(
            convolution(), arrays, {"out": (shape, x.dtype)}, of=computed_in(x.dtype), **e.one_of(*_TILES), **plane.constants
        )
    out = np.concatenate(found, 1)
    return (out.reshape(*out.shape[:2], *places[4 - operands[0].ndim :]),)


def _places(plane: Plane) -> tuple[int, ...]:
    c = plane.constants
    return tuple(
        (n + 2 * c[f"padding_{a}"] - c[f"dilation_{a}"] * (c[f"kernel_{a}"] - 1) - 1) // c[f"stride_{a}"] + 1
        for n, a in zip(plane.size, "hw", strict=True)
    )


def conv_input(e: Launches, operands: Results, params: Params) -> Results:
    g, w = operands
    plane = Plane(params["size"], w.shape[2:], params)
    if not np.isfinite(w.astype(np.float64)).all():
        raise Unserved("weights that are not finite")
    (height, width), count = plane.size, params["groups"]
    found = []
    for gs, ws in zip(np.split(plane.planes(g), count, 1), np.split(w, count), strict=True):
        arrays = {"cotangent": gs, "weight": ws.reshape(*ws.shape[:2], -1)}
        (out,) = e.launch(
            input_gradient(), arrays, {"out": ((len(g), ws.shape[1], height * width), g.dtype)},
            {"height": height, "width": width}, of=computed_in(g.dtype), **e.one_of(*_TILES), **plane.constants,
        )  # fmt: skip
        found.append(out.reshape(*out.shape[:2], height, width))
    return (plane.inner(np.concatenate(found, 1)).reshape(len(g), w.shape[1] * count, *params["size"]),)


def conv_weight(e: Launches, operands: Results, params: Params) -> Results:
    """The positions of all images in one to three parts, whose sums are rows of a reduction."""
    x, g = operands
    kernel = params["kernel"]
    plane = Plane(x.shape[2:], kernel, params)
    splits, of = e.one_of(1, 3, 2), computed_in(x.dtype)
    found = []
    for xs, gs in zip(*(np.split(a, params["groups"], 1) for a in (plane.padded(x), plane.planes(g))), strict=True):
        shape = (splits, gs.shape[1], xs.shape[1] * prod(kernel))
        (out,) = e.launch(
            weight_gradient(), {"cotangent": gs, "x": xs}, {"out": (shape, x.dtype)}, of=of, splits=splits,
            **e.one_of(*_TILES), **plane.constants,
        )  # fmt: skip
        if splits > 1:
            out = _reduced(e, "sum", out.reshape(splits, -1).T)
        found.append(out.reshape(shape[1], xs.shape[1], *kernel))
    return (np.concatenate(found),)


# attention


def _heads(e: Launches, query: Array, value: Array, mask: Array, params: Params) -> tuple[Params, Array, int]:
    """Constants, the mask with one leading axis, and the number of leading elements."""
    lead, d, f = query.shape[:-2], query.shape[-1], value.shape[-1]
    small = query.dtype.itemsize < 8
    v = e.vector(query.dtype, d, f, options=(4, 1) if small else (2, 1))
    features = max(1, -(-max(d, f) // (16 * v))) * 16 * v
    tiles = [{"group_size": 32, "tile_m": 16, "tile_n": 16}]
    if small and features <= 32:
        tiles.append({"group_size": 64, "tile_m": 16, "tile_n": 32})
    constants = {"features": features, "vector": v, "causal": params["causal"], "of": computed_in(query.dtype)}
    mask = mask.reshape((1,) * (len(lead) + 2 - mask.ndim) + mask.shape)
    if prod(mask.shape[:-2]) > 1:
        mask = np.broadcast_to(mask, (*lead, *mask.shape[-2:]))
    return constants | e.one_of(*tiles), mask.reshape(prod(mask.shape[:-2]), *mask.shape[-2:]), prod(lead)


def _forward(e: Launches, operands: Results, params: Params) -> tuple[dict[str, Array], Params, Array, Array]:
    """Operands and constants of the templates; result and logarithms."""
    query, key, value, mask = operands
    constants, mask, batch = _heads(e, query, value, mask, params)
    v = constants["vector"]
    arrays = {n: lines(x.reshape(batch, *x.shape[-2:]), v) for n, x in (("query", query), ("key", key), ("value", value))}
    arrays |= {"mask": mask, "scale": np.asarray(params["scale"], query.dtype)}
    rows = (batch, query.shape[-2])
    results = {"out": ((*rows, value.shape[-1] // v, v), query.dtype), "logarithms": (rows, query.dtype)}
    return arrays, constants, *e.launch(attention(), arrays, results, **constants)


def attention_forward(e: Launches, operands: Results, params: Params) -> Results:
    out = _forward(e, operands, params)[2]
    return (out.reshape(*operands[0].shape[:-1], operands[2].shape[-1]),)


def attention_backward(e: Launches, operands: Results, params: Params) -> Results:
    g, query, key, value, mask = operands
    arrays, constants, out, logarithms = _forward(e, (query, key, value, mask), params)
    g, of = lines(g.reshape(*logarithms.shape, g.shape[-1]), constants["vector"]), query.dtype
    arrays |= {"cotangent": g, "logarithms": logarithms}
    more = {n: constants[n] for n in ("vector", "of", "causal")} | {"group_size": e.one_of(32, 64)}
    (delta,) = e.launch(deltas(), arrays | {"result": out}, {"out": (logarithms.shape, of)}, **more)
    arrays |= {"delta": delta}
    (by_query,) = e.launch(query_gradient(), arrays, {"out": (arrays["query"].shape, of)}, **constants)
    results = {"key_out": (arrays["key"].shape, of), "value_out": (arrays["value"].shape, of)}
    by_key, by_value = e.launch(key_gradients(), arrays, results, **constants)
    return by_query.reshape(query.shape), by_key.reshape(key.shape), by_value.reshape(value.shape)


# rows


def _reduced(e: Launches, kind: str, x: Array, mean: bool = False) -> Array:
    """One number of each row of a matrix."""
    of, v = computed_in(x.dtype), e.vector(x.dtype, x.shape[1])
    template = row_reduction(*fold_of(kind, x.dtype), epilogue=divided(of, x.shape[1]) if mean else same)
    size, lanes = e.one_of((64, 32), (32, 8), (128, 64), (64, 1))
    results = {"out": ((len(x),), x.dtype)}
    (out,) = e.launch(template, {"x": lines(x, v)}, results, group_size=size, lanes=lanes, vector=v, of=of)
    return out


def _wide(kind: str, x: Array) -> Array:
    """Factors in float64: their products may leave the range of the dtype on the way."""
    return x.astype(np.float64) if kind == "prod" and computed_in(x.dtype).kind == "float" else x


def reduction(kind: str, mean: bool = False) -> Callable[[Launches, Results, Params], Results]:
    """The op of a fold of the elements of some axes; those of bool are bytes."""

    def run(e: Launches, operands: Results, params: Params) -> Results:
        (x,) = operands
        axes = params["axes"]
        kept = tuple(i for i in range(x.ndim) if i not in axes)
        rows = x.transpose(kept + axes).reshape(prod(x.shape[i] for i in kept), prod(x.shape[i] for i in axes))
        rows = rows.view(np.uint8) if x.dtype == np.bool_ else _wide(kind, rows)
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if i not in axes or params["keepdims"]]
        out = _reduced(e, kind, rows, mean).reshape(shape)
        with np.errstate(over="ignore"):
            return (out.view(np.bool_) if x.dtype == np.bool_ else out.astype(x.dtype),)

    return run


def cumulation(kind: str) -> Callable[[Launches, Results, Params], Results]:
    """The op of a scan along an axis; of running extremes the values."""

    def run(e: Launches, operands: Results, params: Params) -> Results:
        (x,), axis = operands, params["axis"]
        moved = np.moveaxis(np.flip(x, axis) if params["reverse"] else x, axis, -1)
        rows = _wide(kind, moved.reshape(prod(moved.shape[:-1]), moved.shape[-1]))
        fold, first = fold_of(kind, rows.dtype)
        v = e.vector(rows.dtype, rows.shape[1])
        arrays = {"x": lines(rows, v), "start": np.full(len(rows), first, rows.dtype)}
        (out,) = e.launch(
            scan(fold, first), arrays, {"out": (arrays["x"].shape, rows.dtype)}, group_size=e.one_of(32, 64), vector=v,
            exclusive=False, of=computed_in(rows.dtype),
        )  # fmt: skip
        with np.errstate(over="ignore"):
            out = np.moveaxis(out.reshape(moved.shape).astype(x.dtype), -1, axis)
        return (np.flip(out, axis) if params["reverse"] else out,)

    return run


# sorts


def ordered(x: Array, descending: bool) -> tuple[Array, int]:
    """Unsigned integers in the order of the elements, equal ones for equal elements, NaN last; and their number of bits."""
    width = 8 * x.dtype.itemsize
    unsigned = np.dtype(f"uint{width}")
    top, full = unsigned.type(1 << (width - 1)), unsigned.type((1 << width) - 1)
    if x.dtype.kind == "u":
        keys = x
    elif x.dtype.kind == "i":
        keys = x.view(unsigned) ^ top
    else:
        found = np.where(x == 0, np.zeros((), x.dtype), x).view(unsigned)  # of both signs
        keys = np.where(found & top, ~found, found | top)
        keys = np.where(np.isnan(x), full, keys)
    return (keys ^ full if descending else keys).astype(unsigned), width


def _by_digits(e: Launches, keys: Array, width: int, places: Array) -> Array:
    """The places of keys of up to 32 bits, sorted by them."""
    size, each = e.one_of((32, 3), (64, 2))
    keys, groups = keys.astype(np.uint32), -(-len(keys) // (size * each))
    sizes, counted = {"group_size": size, "each": each}, ((16, groups), np.int32)
    for shift in range(0, width, 4):
        (counts,) = e.launch(digit_counts(), {"keys": keys}, {"counts": counted}, shift=shift, **sizes)
        row = {"x": counts.reshape(1, -1, 1), "start": np.zeros(1, np.int32)}
        constants = {"group_size": 32, "vector": 1, "exclusive": True, "of": computed_in(np.dtype(np.int32))}
        (starts,) = e.launch(scan(add, 0), row, {"out": (row["x"].shape, np.int32)}, **constants)
        arrays = {"keys": keys, "values": places, "starts": starts.reshape(16, groups)}
        results = {"keys_out": (keys.shape, np.uint32), "values_out": (keys.shape, np.int32)}
        keys, places = e.launch(digit_scatter(), arrays, results, shift=shift, **sizes)
    return places


def sort(e: Launches, operands: Results, params: Params) -> Results:
    """Rows of keys one by one; those of 64 bits by their lower half, and then by their upper half."""
    (x,), axis = operands, params["axis"]
    moved = np.moveaxis(x, axis, -1)
    rows = moved.reshape(prod(moved.shape[:-1]), moved.shape[-1])
    at = np.empty(rows.shape, np.int64)
    for row, out in zip(rows, at, strict=True):
        keys, width = ordered(row, params["descending"])
        places = np.arange(len(row), dtype=np.int32)
        for low in range(0, width, 32):
            part = (keys >> np.asarray(low, keys.dtype))[places]
            places = _by_digits(e, part if width <= 32 else part & np.uint64(0xFFFFFFFF), min(width, 32), places)
        out[...] = places
    found = np.take_along_axis(rows, at, -1)
    return tuple(np.moveaxis(a.reshape(moved.shape), -1, axis) for a in (found, at))


def top_k(e: Launches, operands: Results, params: Params) -> Results:
    found = sort(e, operands, {"axis": params["axis"], "descending": params["largest"]})
    return tuple(np.take(a, range(params["k"]), params["axis"]) for a in found)


# scatters


def _scattered(e: Launches, kind: str, target: Array, to: Array, values: Array) -> Array:
    """Rows of a matrix combined into those of ``target`` that ``to`` says, which a sort and a search make segments of."""
    order = np.argsort(to, kind="stable")
    starts = np.searchsorted(to[order], np.arange(len(target) + 1))
    size, across = e.one_of((32, 4), (64, 1), (64, 64), (32, 32))
    arrays = {"target": target, "values": values, "order": order, "starts": starts}
    results = {"out": (target.shape, target.dtype)}
    template = segmented_scatter(*fold_of(kind, target.dtype))
    (out,) = e.launch(template, arrays, results, group_size=size, across=across, of=computed_in(target.dtype))
    return out


def index_add(e: Launches, operands: Results, params: Params) -> Results:
    x, at, updates = operands
    axis = params["axis"]
    lead = np.moveaxis(x, axis, 0)
    rows = np.moveaxis(updates, tuple(range(axis, axis + at.ndim)), tuple(range(at.ndim)))
    columns = prod(lead.shape[1:])
    target, values = lead.reshape(len(lead), columns), rows.reshape(at.size, columns)
    out = _scattered(e, "sum", target, at.reshape(-1) % max(1, len(lead)), values)
    return (np.moveaxis(out.reshape(lead.shape), 0, axis),)


def elements_scattered(e: Launches, operands: Results, params: Params) -> Results:
    """``scatter_add`` and ``scatter_reduce``: each element is a row."""
    x, at, updates = operands
    axis = params["axis"]
    grid = list(np.indices(at.shape))
    grid[axis] = at % max(1, x.shape[axis])
    to = np.ravel_multi_index(tuple(grid), x.shape).reshape(-1) if at.size else np.zeros(0, np.int64)
    kind = {"mul": "prod"}.get(params.get("mode", "sum"), params.get("mode", "sum"))
    return (_scattered(e, kind, x.reshape(-1, 1), to, updates.reshape(-1, 1)).reshape(x.shape),)


# windows


def pooling(kind: str, mean: bool = False) -> Callable[[Launches, Results, Params], Results]:
    """The op of a fold of windows; of largest elements the values."""

    def run(e: Launches, operands: Results, params: Params) -> Results:
        (x,) = operands
        plane = Plane(x.shape[2:], params["kernel"], params)
        fold, first = fold_of(kind, x.dtype)
        planes = plane.padded(x, first)
        of, places = computed_in(x.dtype), _places(plane)
        template = window(fold, first, epilogue=divided(of, prod(params["kernel"])) if mean else same)
        count = prod(planes.shape[:2])
        arrays = {"x": planes.reshape(count, *planes.shape[2:])}
        results = {"out": ((count, prod(places)), x.dtype)}
        (out,) = e.launch(template, arrays, results, group_size=e.one_of(32, 7), of=of, **plane.constants)
        return (out.reshape(*x.shape[:2], *places[4 - x.ndim :]),)

    return run


def max_pool_gradient(e: Launches, operands: Results, params: Params) -> Results:
    """Each cotangent is scattered to its window's place; the number of axes does not matter."""
    g, at = operands
    size = prod(params["size"])
    planes = prod(g.shape[:2])
    to = (at.reshape(planes, prod(at.shape[2:])) + size * np.arange(planes)[:, None]).reshape(-1)
    out = _scattered(e, "sum", np.zeros((planes * size, 1), g.dtype), to, g.reshape(-1, 1))
    return (out.reshape(*g.shape[:2], *params["size"]),)


OPS_BY_TEMPLATES: dict[str, Callable[[Launches, Results, Params], Results]] = {
    "matmul": matmul, "conv": conv, "conv_input": conv_input, "conv_weight": conv_weight, "attention": attention_forward,
    "attention_gradient": attention_backward, "sum": reduction("sum"), "mean": reduction("sum", mean=True),
    "prod": reduction("prod"), "max": reduction("max"), "min": reduction("min"), "any": reduction("max"),
    "all": reduction("min"), "cumulative_sum": cumulation("sum"), "cumulative_prod": cumulation("prod"),
    "cumulative_max": cumulation("max"), "cumulative_min": cumulation("min"), "sort": sort, "top_k": top_k,
    "index_add": index_add, "scatter_add": elements_scattered, "scatter_reduce": elements_scattered,
    "max_pool": pooling("max"), "avg_pool": pooling("sum", mean=True), "max_pool_gradient": max_pool_gradient,
}  # fmt: skip
"""The ops that templates are for."""

FIRST_RESULT = ("cumulative_max", "cumulative_min", "max_pool")
"""Ops whose second result, the place of an extreme, no template gives."""
