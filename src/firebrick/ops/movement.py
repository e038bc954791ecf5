"""Ops that move elements without computing: reshape, permute, broadcast, slice, pad, flip, concat, device moves.

Parameters are normal: shapes without -1, axes as permutations of non-negative ints, slices as ``starts``, ``stops``,
``steps`` for every axis, where a stop of -1 under a negative step means "up to and with element 0".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval, Shape
from firebrick.core.errors import ShapeError
from firebrick.core.op import Sample
from firebrick.core.shapes import slice_length
from firebrick.core.views import View, row_major
from firebrick.ops import batch_rules, forward_rules, index_maps
from firebrick.ops.declare import ALL, Array, Declare, per_result, same, size_of, values
from firebrick.ops.reduction import sum_to
from firebrick.ops.table import register


def _move(vjp: Any, infer: Any, cases: Any, *, dtypes: Any = ALL, operand: str = "x:any", **more: Any) -> Declare:
    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        return [Sample((values(rng, name, shape),), params, name=f"{shape} {params}") for shape, params in cases]

    return register(
        operands=operand, infer=infer, vjp=vjp, residuals=(), samples=samples, cost=per_result(0), bound="memory",
        fusion="move", tolerance=0, dtypes=dtypes, **more,
    )  # fmt: skip


def _infer_reshape(x: Any, *, shape: tuple[int, ...]) -> Aval:
    if size_of(shape) != size_of(x.shape):
        raise ShapeError("reshape: the new shape must hold as many elements", f"{x.shape} to {shape}", "check the sizes")
    return Aval(tuple(shape), x.dtype)


def _reshape_vjp(g: Any, r: Any) -> Any:
    return (reshape(g, shape=r.avals[0].shape),)


def _view_reshape(x: View, slot: int, to: Shape, **params: Any) -> View | None:
    return x.reshaped(to)


@_move(_reshape_vjp, _infer_reshape,
       [((3, 4), {"shape": (2, 6)}), ((), {"shape": (1, 1)}), ((1,), {"shape": ()}), ((0, 3), {"shape": (3, 0, 2)}),
        ((2, 3, 4), {"shape": (24,)}), ((4, 4), {"shape": (2, 2, 4)})],
       view=_view_reshape, index_map=index_maps.reshape, reshapes=True, batch=batch_rules.reshaped)  # fmt: skip
def reshape(x: Array, *, shape: tuple[int, ...]) -> Array:
    """The same elements, in row-major order, in another shape."""
    return np.reshape(x, shape)


def _infer_permute(x: Any, *, axes: tuple[int, ...]) -> Aval:
    if sorted(axes) != list(range(len(x.shape))):
        raise ShapeError(
            "permute: axes must be a permutation of the tensor's axes",
            f"{axes} for {x.shape}",
            "name each once",
        )
    return Aval(tuple(x.shape[a] for a in axes), x.dtype)


def _permute_vjp(g: Any, r: Any) -> Any:
    return (permute(g, axes=tuple(np.argsort(r.params["axes"]).tolist())),)


def _view_permute(x: View, slot: int, shape: Shape, *, axes: tuple[int, ...]) -> View:
    return x.permuted(axes)


@_move(_permute_vjp, _infer_permute,
       [((3, 4), {"axes": (1, 0)}), ((2, 3, 4), {"axes": (1, 2, 0)}), ((), {"axes": ()}), ((0, 2), {"axes": (1, 0)}),
        ((4, 4), {"axes": (1, 0)}), ((3, 3, 3), {"axes": (2, 0, 1)})],
       view=_view_permute, index_map=index_maps.permute, batch=batch_rules.permuted)  # fmt: skip
def permute(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Axes in another order: axis i of the result is axis axes[i] of x."""
    return np.transpose(x, axes)


def _infer_broadcast(x: Any, *, shape: tuple[int, ...]) -> Aval:
    lead = len(shape) - len(x.shape)
    if lead < 0 or any(d not in (1, shape[lead + i]) for i, d in enumerate(x.shape)):
        raise ShapeError(
            "broadcast_to: every size must be 1 or the target's",
            f"{x.shape} to {tuple(shape)}",
            "reshape it first",
        )
    return Aval(tuple(shape), x.dtype)


def _view_broadcast(x: View, slot: int, to: Shape, **params: Any) -> View:
    return x.broadcast_to(to)


@_move(lambda g, r: (sum_to(g, r.avals[0].shape),), _infer_broadcast,
       [((3, 1), {"shape": (2, 3, 4)}), ((), {"shape": (2, 2)}), ((4,), {"shape": (4,)}), ((1, 3), {"shape": (0, 3)}),
        ((3, 1), {"shape": (3, 3, 3)}), ((4,), {"shape": (4, 4)})],
       view=_view_broadcast, index_map=index_maps.broadcast_to, batch=batch_rules.broadcast)  # fmt: skip
def broadcast_to(x: Array, *, shape: tuple[int, ...]) -> Array:
    """x repeated along axes of size 1, and along new leading axes."""
    return np.broadcast_to(x, shape)


def key_of(starts: Any, stops: Any, steps: Any) -> tuple[Any, ...]:
    """The Python slices of a normalised slice; without axes, the key for which NumPy returns a view, not a scalar."""
    found = tuple(slice(a, None if c < 0 and b < 0 else b, c) for a, b, c in zip(starts, stops, steps, strict=True))
    return found or (...,)


def _infer_slice(x: Any, *, starts: Any, stops: Any, steps: Any, shape: Any = None) -> Aval:
    if not len(starts) == len(stops) == len(steps) == len(x.shape):
        raise ShapeError(
            "slice: one start, stop and step an axis",
            f"{len(starts)} for shape {x.shape}",
            "give each axis its own",
        )
    lengths = tuple(map(slice_length, starts, stops, steps))
    if shape is not None and size_of(shape) != size_of(lengths):
        raise ShapeError("slice: shape adds or drops axes of size 1 only", f"{lengths} to {shape}", "reshape the result")
    return Aval(lengths if shape is None else shape, x.dtype)


def _zeros(aval: Any, like: Any) -> Any:
    from firebrick.core.constants import constant

    return broadcast_to(constant(0, aval.dtype, like.device), shape=aval.shape)


def _slice_vjp(g: Any, r: Any) -> Any:
    from firebrick.ops.indexing import slice_update

    where = {k: r.params[k] for k in ("starts", "stops", "steps")}
    if r.params.get("shape") is not None:
        g = reshape(g, shape=tuple(map(slice_length, *where.values())))
    return (slice_update(_zeros(r.avals[0], g), g, **where),)


_SLICES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((5, 6), {"starts": (1, 0), "stops": (4, 6), "steps": (1, 2)}),
    ((5, 6), {"starts": (4, 5), "stops": (-1, 0), "steps": (-1, -2)}),
    ((7,), {"starts": (2,), "stops": (2,), "steps": (1,)}),
    ((), {"starts": (), "stops": (), "steps": ()}),
    ((3, 4), {"starts": (1, 0), "stops": (2, 4), "steps": (1, 1)}),
    ((4, 4), {"starts": (0, 3), "stops": (4, -1), "steps": (1, -1)}),
]


_INDEXED: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), {"starts": (1, 0), "stops": (2, 4), "steps": (1, 1), "shape": (4,)}),
    ((3, 4), {"starts": (2, 3), "stops": (-1, 2), "steps": (-1, -1), "shape": (1, 3, 1)}),
    ((3,), {"starts": (1,), "stops": (2,), "steps": (1,), "shape": ()}),
]


def _view_slice(x: View, slot: int, to: Shape, *, starts: Any, stops: Any, steps: Any, shape: Any = None) -> View | None:
    found = x.sliced(starts, stops, steps)
    return found if found is None or found.shape == to else found.reshaped(to)


@_move(_slice_vjp, _infer_slice, _SLICES + _INDEXED, view=_view_slice, index_map=index_maps.slice_, batch=batch_rules.sliced)
def slice_(x: Array, *, starts: Any, stops: Any, steps: Any, shape: Any = None) -> Array:
    """Elements starts, starts + steps, … before stops, along every axis; ``shape`` drops and adds axes of size 1."""
    found: Array = x[key_of(starts, stops, steps)]
    return found if shape is None else found.reshape(shape)


def _infer_pad(x: Any, *, widths: Any, value: Any) -> Aval:
    if len(widths) != len(x.shape) or any(a < 0 or b < 0 for a, b in widths):
        raise ShapeError("pad: two widths ≥ 0 an axis", f"{widths} for shape {x.shape}", "pass ((before, after), …)")
    return Aval(tuple(a + d + b for d, (a, b) in zip(x.shape, widths, strict=True)), x.dtype)


def _pad_vjp(g: Any, r: Any) -> Any:
    widths, shape = r.params["widths"], r.avals[0].shape
    starts = tuple(a for a, _ in widths)
    stops = tuple(a + d for a, d in zip(starts, shape, strict=True))
    return (slice_(g, starts=starts, stops=stops, steps=(1,) * len(shape)),)


def _pad_pieces(operands: Any, results: Any, *, widths: Any, value: Any) -> dict[str, Any]:
    """Slabs in front and behind, axis by axis, each of the axes before it without theirs; then what is in the middle."""
    x, shape = operands[0].shape, list(results[0].shape)
    whole, starts, pieces = row_major(shape), [0] * len(x), []
    for axis, (before, after) in enumerate(widths):
        for width, at in ((before, 0), (after, before + x[axis])):
            first = [at if a == axis else s for a, s in enumerate(starts)]
            stops = [s + (width if a == axis else d) for a, (s, d) in enumerate(zip(first, shape, strict=True))]
            pieces.append((None, value, whole.sliced(first, stops, [1] * len(x))))
        starts[axis], shape[axis] = before, x[axis]
    stops = [s + d for s, d in zip(starts, x, strict=True)]
    return {"pieces": [*pieces, (0, None, whole.sliced(starts, stops, [1] * len(x)))]}


@_move(_pad_vjp, _infer_pad,
       [((3, 4), {"widths": ((1, 0), (2, 3)), "value": 1}), ((), {"widths": (), "value": 0}),
        ((0, 2), {"widths": ((1, 1), (0, 0)), "value": 0}), ((2, 2), {"widths": ((0, 0), (0, 0)), "value": 0}),
        ((3, 3), {"widths": ((1, 0), (0, 1)), "value": 2})], facts=_pad_pieces, batch=batch_rules.padded,
       jvp=forward_rules.linear(value=0))  # fmt: skip
def pad(x: Array, *, widths: Any, value: Any) -> Array:
    """x with ``widths`` elements of ``value`` before and after, along every axis."""
    out = np.full([a + d + b for d, (a, b) in zip(x.shape, widths, strict=True)], np.asarray(value).astype(x.dtype))
    out[tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, widths, strict=True))] = x
    return out


def _flip_vjp(g: Any, r: Any) -> Any:
    return (flip(g, axes=r.params["axes"]),)


def _view_flip(x: View, slot: int, shape: Shape, *, axes: tuple[int, ...]) -> View:
    return x.flipped(axes)


@_move(_flip_vjp, lambda x, *, axes: same(x),
       [((3, 4), {"axes": (0, 1)}), ((5,), {"axes": (0,)}), ((2, 3), {"axes": ()}), ((0, 3), {"axes": (1,)}),
        ((4, 4), {"axes": (1,)})],
       view=_view_flip, index_map=index_maps.flip)  # fmt: skip
def flip(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Elements in reverse order along axes."""
    return np.flip(x, axes)


def _infer_concat(*xs: Any, axis: int) -> Aval:
    first = xs[0].shape
    for i, x in enumerate(xs):
        if len(x.shape) != len(first) or any(a != b for k, (a, b) in enumerate(zip(x.shape, first, strict=True)) if k != axis):
            raise ShapeError(
                f"concat: shapes must be equal except along axis {axis}",
                f"arrays[0]: {first} and arrays[{i}]: {x.shape}",
                "reshape or pad one of them",
            )
    total = sum(x.shape[axis] for x in xs)
    return Aval((*first[:axis], total, *first[axis + 1 :]), xs[0].dtype)


def _concat_vjp(g: Any, r: Any) -> Any:
    axis = r.params["axis"]
    return split(g, sizes=tuple(aval.shape[axis] for aval in r.avals), axis=axis)


def _concat_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases: list[tuple[list[tuple[int, ...]], int]] = [
        ([(2, 3), (4, 3)], 0),
        ([(2, 3), (2, 1), (2, 2)], 1),
        ([(3,)], 0),
        ([(0, 2), (3, 2)], 0),
        ([(2, 1, 2)] * 4, 1),
        ([(3, 3)] * 2, 1),
    ]
    return [Sample(tuple(values(rng, name, s) for s in shapes), {"axis": a}, name=f"{shapes}") for shapes, a in cases]


def _concat_pieces(operands: Any, results: Any, *, axis: int) -> dict[str, Any]:
    shape, pieces, at = results[0].shape, [], 0
    for i, x in enumerate(operands):
        starts = [at if a == axis else 0 for a in range(len(shape))]
        at += x.shape[axis]
        stops = [at if a == axis else d for a, d in enumerate(shape)]
        pieces.append((i, None, row_major(shape).sliced(starts, stops, [1] * len(shape))))
    return {"pieces": pieces}


@register(
    operands="*arrays:any=T", infer=_infer_concat, vjp=_concat_vjp, residuals=(), samples=_concat_samples,
    cost=per_result(0), bound="memory", fusion="move", tolerance=0, dtypes=ALL,
    facts=_concat_pieces,
)  # fmt: skip
def concat(*arrays: Array, axis: int) -> Array:
    """Tensors joined along an axis."""
    return np.concatenate(arrays, axis)


def _infer_split(x: Any, *, sizes: tuple[int, ...], axis: int) -> tuple[Aval, ...]:
    if any(n < 0 for n in sizes) or sum(sizes) != x.shape[axis]:
        raise ShapeError(
            f"split: the sizes of the parts are ints ≥ 0 that add up to axis {axis}, of size {x.shape[axis]}",
            f"sizes {sizes} for shape {x.shape}",
            "for a number of parts, or positions of the cuts as NumPy has them, write fb.array_split",
        )
    return tuple(Aval((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype) for n in sizes)


def _split_vjp(g: Any, r: Any) -> Any:
    return (concat(*(g if isinstance(g, tuple) else (g,)), axis=r.params["axis"]),)


def _view_split(x: View, slot: int, shape: Shape, *, sizes: tuple[int, ...], axis: int) -> View | None:
    whole, first = x.shape, sum(sizes[:slot])
    starts = [first if a == axis else 0 for a in range(len(whole))]
    stops = [first + sizes[slot] if a == axis else d for a, d in enumerate(whole)]
    return x.sliced(starts, stops, [1] * len(whole))


@_move(_split_vjp, _infer_split,
       [((6, 3), {"sizes": (2, 1, 3), "axis": 0}), ((4, 4, 4), {"sizes": (1, 3), "axis": 1}),
        ((3,), {"sizes": (1, 2), "axis": 0}), ((1, 3), {"sizes": (1,), "axis": 0}), ((2, 3), {"sizes": (0, 2, 1), "axis": 1}),
        ((0, 2), {"sizes": (1, 1), "axis": 1})],
       view=_view_split, index_map=index_maps.split)  # fmt: skip
def split(x: Array, *, sizes: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """Consecutive parts of x along an axis, of the given sizes: what ``concat`` joins again."""
    ends = np.cumsum(sizes).tolist()
    lead = (slice(None),) * axis
    return tuple(x[(*lead, slice(end - n, end))] for n, end in zip(sizes, ends, strict=True))


def _to_device_vjp(g: Any, r: Any) -> Any:
    return (to_device(g, device=r.params["source"], source=r.params["device"]),)


_NOWHERE = {"device": None, "source": None}


@_move(_to_device_vjp, lambda x, *, device, source: same(x), [((3, 4), _NOWHERE), ((), _NOWHERE)],
       transfers=True, batch=batch_rules.leading())  # fmt: skip
def to_device(x: Array, *, device: Any, source: Any) -> Array:
    """The same tensor on another device."""
    return np.array(x)
