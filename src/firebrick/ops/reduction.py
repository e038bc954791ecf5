"""Reductions over axes. Parameters are normal: ``axes`` a sorted tuple of distinct non-negative ints, ``keepdims`` bool.

A maximum of nothing is an error; a sum of nothing is 0, a product 1, ``all`` True and ``any`` False. NaN propagates
through max and min. Where several elements are extreme, the first one takes the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import bool_, dtype, int64
from firebrick.core.errors import ShapeError
from firebrick.core.op import Nondifferentiable, Op, Sample
from firebrick.core.shapes import reduced_shape
from firebrick.ops import index_maps
from firebrick.ops.casts import conjugate
from firebrick.ops.declare import (
    COMPLEX,
    FLOATS,
    INTS,
    NUMERIC,
    REAL,
    Array,
    Declare,
    per_operand,
    size_of,
    specials,
    values,
)
from firebrick.ops.table import OPS, register
from firebrick.scalar import complex_numbers, rows
from firebrick.scalar.expr import index, reduce


def _infer(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Aval:
    return Aval(reduced_shape(x.shape, axes, keepdims), x.dtype)


def _infer_bool(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Aval:
    return Aval(reduced_shape(x.shape, axes, keepdims), bool_)


def _infer_nonempty(name: str) -> Callable[..., Aval]:
    def infer(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Aval:
        out = _infer(x, axes=axes, keepdims=keepdims)
        if any(x.shape[a] == 0 for a in axes):
            raise ShapeError(
                f"{name} of no elements is undefined",
                f"shape {x.shape} over axes {axes}",
                "check for emptiness first",
            )
        return out

    return infer


def _samples(low: float = -2.0, high: float = 2.0, empty: bool = True, special: bool = False) -> Any:
    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        cases: list[tuple[Any, Any, bool]] = [
            ((3, 4), (0, 1), False), ((3, 4), (1,), False), ((2, 3, 4), (0, 2), True), ((), (), False),
            ((5,), (0,), True), ((2, 3), (), False),
            ((4, 4), (0,), False), ((3, 3, 3), (1,), False), ((1, 1), (1,), False),  # an axis that can be taken for another
        ]  # fmt: skip
        if empty:
            cases += [((0, 3), (0,), False), ((2, 0), (0, 1), True)]
        else:
            cases += [((0, 3), (1,), False)]
        out = [
            Sample(
                (values(rng, name, shape, low, high),),
                {"axes": axes, "keepdims": keep},
                name=f"{shape} over {axes}",
            )
            for shape, axes, keep in cases
        ]
        long = {"axes": (1,), "keepdims": False}
        out.append(Sample((values(rng, name, (2, 3001), low, high),), long, False, "long"))
        lead = {"axes": (0,), "keepdims": False}
        out.append(Sample((values(rng, name, (2999, 3), low, high),), lead, False, "long leading axis"))
        if special:
            s = specials(name)
            out.append(Sample((np.stack([s, s[::-1], np.roll(s, 2)]),), long, False, "special values"))
            ties = np.asarray([[1, 3, 3, 0], [2, 2, 2, 2]]).astype(s.dtype)
            out.append(Sample((ties,), long, False, "ties"))
        return out

    return samples


def _reduction(vjp: Any, *, kind: str, dtypes: Any, samples: Any, residuals: Any = (), infer: Any = _infer,
               tolerance: float = 0, **more: Any) -> Declare:  # fmt: skip
    return register(
        operands=f"x:{kind}", infer=infer, vjp=vjp, residuals=residuals, samples=samples, cost=per_operand(1),
        bound="memory", fusion="row", tolerance=tolerance, dtypes=dtypes, index_map=index_maps.reduction, **more,
    )  # fmt: skip


def spread(g: Any, r: Any) -> Any:
    """A reduction's cotangent back over its operand's shape."""
    from firebrick.ops.movement import broadcast_to, reshape

    shape = r.avals[0].shape
    return broadcast_to(reshape(g, shape=reduced_shape(shape, r.params["axes"], True)), shape=shape)


PAIRWISE = 128
"""Up to so many elements, adding one by one errs little."""


def pairwise_sum(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """NumPy's sum, always by pairs: NumPy itself adds one by one where memory is not contiguous."""
    count = size_of(x.shape[a] for a in axes)
    if x.dtype.kind in "fc" and count > PAIRWISE:
        kept = tuple(i for i in range(x.ndim) if i not in axes)
        rows = np.transpose(x, kept + axes).reshape(*(x.shape[i] for i in kept), count)
        total = np.sum(np.ascontiguousarray(rows), axis=-1, dtype=x.dtype)
        return np.asarray(total).reshape(reduced_shape(x.shape, axes, keepdims))
    return np.asarray(np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype))


@_reduction(lambda g, r: (spread(g, r),), kind="numeric", dtypes=NUMERIC, samples=_samples(), tolerance=8,
            scale="operands", one_step=True, scalar=lambda x, count, **_: rows.total(x),
            complex_scalar=lambda x, count, **_: complex_numbers.total(x), exact="integers")  # fmt: skip
def sum_(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Sum over axes, in the operand's dtype; 0 for none."""
    return pairwise_sum(x, axes, keepdims)


def sum_to(g: Any, shape: tuple[int, ...]) -> Any:
    """``g`` summed over the axes along which ``shape`` was broadcast: the transpose of ``broadcast_to``."""
    from firebrick.ops.movement import reshape

    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(i + lead for i, d in enumerate(shape) if d == 1 and g.shape[i + lead] != 1)
    return reshape(sum_(g, axes=axes, keepdims=False), shape=shape)


def near_one(samples: Callable[..., list[Sample]]) -> Callable[..., list[Sample]]:
    """Samples of factors near 1, complex ones brought to that magnitude, so that long products stay finite."""

    def scaled(rng: np.random.Generator, name: str) -> list[Sample]:
        out = samples(rng, name)
        for s in out:
            x = s.inputs[0]
            if x.dtype.kind == "c":
                s.inputs = (x / np.asarray(2**0.5, x.dtype),)
        return out

    return scaled


def leaving(samples: Callable[..., list[Sample]], **params: Any) -> Callable[..., list[Sample]]:
    """``samples``, and factors whose partial products leave the range of the dtype, but not that of float64."""

    def more(rng: np.random.Generator, name: str) -> list[Sample]:
        out = samples(rng, name)
        if name in ("float32", "float16", "bfloat16", "complex64"):
            a = 4e4 if name == "float16" else 1e30
            row = [a, -a, a, -a, 1 / a, 1 / a, -1 / a, -1.5 / a]
            for ones in (0, 300):
                x = np.asarray([row + [1.0] * ones, [1.0] * ones + row[::-1]]).astype(dtype(name).np)
                out.append(Sample((x,), params, False, f"beyond the dtype on the way, {x.shape}"))
        return out

    return more


def _mean_vjp(g: Any, r: Any) -> Any:
    n = size_of(r.avals[0].shape[a] for a in r.params["axes"])
    return (spread(g, r) / float(max(n, 1)),)


@_reduction(_mean_vjp, kind="inexact", dtypes=FLOATS + COMPLEX, samples=_samples(empty=False), tolerance=8, scale="operands",
            one_step=True, scalar=lambda x, count, **_: rows.average(x, count),
            complex_scalar=lambda x, count, **_: complex_numbers.average(x, count))  # fmt: skip
def mean(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Arithmetic mean over axes; NaN for none."""
    count = size_of(x.shape[a] for a in axes)
    with np.errstate(invalid="ignore"):
        return np.asarray(pairwise_sum(x, axes, keepdims) / np.asarray(count, x.dtype))


def _exclusive_products(x: Any) -> Any:
    """Along the last axis, the product of all the other elements: a tree of pairwise products, exact at zeros."""
    from firebrick.ops.movement import concat, pad, reshape, slice_

    n = x.shape[-1]
    if n <= 1:
        return zeros_like(x) + 1.0 if n else x
    lead = x.shape[:-1]
    if n % 2:
        x = pad(x, widths=((0, 0),) * len(lead) + ((0, 1),), value=1.0)
    pairs = reshape(x, shape=(*lead, -(-n // 2), 2))

    def half(i: int) -> Any:
        s = pairs.shape
        part = slice_(pairs, starts=(0,) * len(lead) + (0, i), stops=(*s[:-1], i + 1), steps=(1,) * len(s))
        return reshape(part, shape=s[:-1])

    a, b = half(0), half(1)
    e = _exclusive_products(a * b)
    both = concat(*(reshape(v, shape=(*e.shape, 1)) for v in (e * b, e * a)), axis=len(e.shape))
    flat = reshape(both, shape=(*lead, 2 * e.shape[-1]))
    return slice_(flat, starts=(0,) * (len(lead) + 1), stops=(*lead, n), steps=(1,) * (len(lead) + 1))


def _rows(x: Any, axes: tuple[int, ...]) -> tuple[Any, Callable[[Any], Any]]:
    """``x`` with ``axes`` moved last and flattened into one, and the way back."""
    from firebrick.ops.movement import permute, reshape

    kept = tuple(i for i in range(len(x.shape)) if i not in axes)
    order = kept + axes
    moved = permute(x, axes=order)
    lead = tuple(x.shape[i] for i in kept)
    rows = reshape(moved, shape=(*lead, size_of(x.shape[a] for a in axes)))
    inverse = tuple(order.index(i) for i in range(len(order)))
    return rows, lambda y: permute(reshape(y, shape=moved.shape), axes=inverse)


def _prod_vjp(g: Any, r: Any) -> Any:
    rows, back = _rows(conjugate(r.inputs[0]), r.params["axes"])
    return (spread(g, r) * back(_exclusive_products(rows)),)


def _prod_scale(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    """|result| · (1 + √n): in whatever order, each of n factors is rounded in once, and roundings add like a random walk."""
    n = size_of(x.shape[a] for a in axes)
    return np.asarray(np.abs(np.prod(x, axis=axes, keepdims=keepdims)) * (1 + n**0.5))


_factors = leaving(near_one(_samples(0.99, 1.01)), axes=(1,), keepdims=False)


@_reduction(_prod_vjp, residuals=("inputs",), kind="numeric", dtypes=NUMERIC, samples=_factors, tolerance=2, scale=_prod_scale,
            scalar=lambda x, count, **_: rows.product(x), exact="integers")  # fmt: skip
def prod(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Product over axes, in the operand's dtype; 1 for none. Equal factors round alike, and their errors add up: inexact
    dtypes multiply at the reference's precision."""
    wide = np.result_type(x.dtype, np.float64) if x.dtype.kind in "fc" else x.dtype
    return np.asarray(np.prod(x, axis=axes, keepdims=keepdims, dtype=wide)).astype(x.dtype, copy=False)


def _extremum_vjp(arg: str) -> Any:
    def vjp(g: Any, r: Any) -> Any:
        from firebrick.ops.indexing import scatter_add
        from firebrick.ops.movement import reshape

        rows, back = _rows(r.inputs[0], r.params["axes"])
        if 0 in rows.shape:
            return (r.inputs[0] * 0.0,)
        last = rows.ndim - 1
        at = OPS[arg](rows, axis=last, keepdims=True)
        return (back(scatter_add(zeros_like(rows), at, reshape(g, shape=at.shape), axis=last)),)

    return vjp


def zeros_like(x: Any) -> Any:
    """Zeros of the operand's shape, dtype and device, as a broadcast constant."""
    from firebrick.core.constants import constant
    from firebrick.ops.movement import broadcast_to

    return broadcast_to(constant(0, x.dtype, x.device), shape=x.shape)


@_reduction(_extremum_vjp("argmax"), residuals=("inputs",), kind="real", dtypes=REAL,
            infer=_infer_nonempty("max"), samples=_samples(empty=False, special=True), one_step=True,
            scalar=lambda x, count, **_: reduce("max", x), exact="integers")  # fmt: skip
def max_(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Largest element over axes; NaN if there is one; the first largest takes the gradient."""
    return np.asarray(np.max(x, axis=axes, keepdims=keepdims))


@_reduction(_extremum_vjp("argmin"), residuals=("inputs",), kind="real", dtypes=REAL,
            infer=_infer_nonempty("min"), samples=_samples(empty=False, special=True), one_step=True,
            scalar=lambda x, count, **_: reduce("min", x), exact="integers")  # fmt: skip
def min_(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Smallest element over axes; NaN if there is one; the first smallest takes the gradient."""
    return np.asarray(np.min(x, axis=axes, keepdims=keepdims))


_LOGIC = Nondifferentiable("the result is bool")


@_reduction(
    _LOGIC, kind="bool", dtypes=("bool",), infer=_infer_bool, samples=_samples(), scalar=lambda x, count, **_:
    rows.all_true(x), exact="all",
)  # fmt: skip
def all_(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Whether every element over axes is True; True for none."""
    return np.asarray(np.all(x, axis=axes, keepdims=keepdims))


@_reduction(
    _LOGIC, kind="bool", dtypes=("bool",), infer=_infer_bool, samples=_samples(), scalar=lambda x, count, **_:
    rows.any_true(x), exact="all",
)  # fmt: skip
def any_(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Whether some element over axes is True; False for none."""
    return np.asarray(np.any(x, axis=axes, keepdims=keepdims))


# the place of the extremum, along one axis


def _infer_arg(x: Any, *, axis: int, keepdims: bool) -> Aval:
    out = _infer_nonempty("argmax and argmin")(x, axes=(axis,), keepdims=keepdims)
    return Aval(out.shape, int64)


def _arg_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases = [
        ((3, 4), 1, False),
        ((3, 4), 0, True),
        ((5,), 0, False),
        ((2, 3, 4), 1, False),
        ((4, 4), 0, False),
        ((1, 1), 1, False),
        ((0, 3), 1, False),
    ]
    out = [Sample((values(rng, name, s),), {"axis": a, "keepdims": k}, name=f"{s} axis {a}") for s, a, k in cases]
    s = specials(name)
    last: dict[str, Any] = {"axis": 1, "keepdims": False}
    out.append(Sample((np.stack([s, s[::-1], np.roll(s, 3)]),), last, name="special values"))
    ties = np.asarray([[1, 3, 3, 0], [2, 2, 2, 2], [0, 0, 1, 1]]).astype(s.dtype)
    out.append(Sample((ties,), last, name="ties"))
    out.append(Sample((values(rng, name, (2, 2000)),), last, name="long"))
    return out


def _arg(kind: str, **more: Any) -> Callable[[Callable[..., Any]], Op]:
    return register(
        operands="x:real", infer=_infer_arg, vjp=Nondifferentiable("the result is an index"), residuals=(),
        samples=_arg_samples, cost=per_operand(1), bound="memory", fusion="row", tolerance=0, dtypes=FLOATS + INTS,
        index_map=index_maps.extreme, scalar=lambda x, axis, **_: rows.first_extreme(kind, x, index(axis)), **more,
    )  # fmt: skip


@_arg("max", exact="integers")
def argmax(x: Array, *, axis: int, keepdims: bool) -> Array:
    """The lowest index of the largest element along an axis; NaN counts as largest."""
    return np.asarray(np.argmax(x, axis=axis, keepdims=keepdims), np.int64)


@_arg("min", exact="integers")
def argmin(x: Array, *, axis: int, keepdims: bool) -> Array:
    """The lowest index of the smallest element along an axis; NaN counts as smallest."""
    return np.asarray(np.argmin(x, axis=axis, keepdims=keepdims), np.int64)
