"""``Attention``: the weights of each query in temporary memory, then products with them, an item for each element.

``weights`` also serves forms that compute the products of queries and keys by other kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from firebrick.compiler.naive.building import INPUT, RESULT, TEMPORARY, Array, Buffer, Builder, Naive, NaiveLaunch
from firebrick.compiler.spec.attention import Attention
from firebrick.core.indexing import strides_of
from firebrick.core.views import View, row_major, strided
from firebrick.scalar import math
from firebrick.scalar.expr import Expr, const, eq, maximum, select
from firebrick.scalar.storage import computed

WEIGHTS, SCORES = Buffer(TEMPORARY, 0), Buffer(TEMPORARY, 1)
"""Weights p, and the cotangents u of the scores; both [*lead, n, m]."""


def attention(spec: Attention) -> Naive:
    """The naive form: weights, then a sum of products for each element of a result."""
    pairs = Array(computed(spec.dtype), prod(spec.lead) * spec.n * spec.m)
    query, key, value = (Buffer(INPUT, k) for k in spec.sources[int(spec.gradient) :][:3])
    n, m, d, e = spec.n, spec.m, spec.d, spec.e
    if not spec.gradient:
        return Naive((weights(spec), _products(spec, "attention", Buffer(RESULT, 0), (n, e), WEIGHTS, True, value)), (pairs,))
    steps = (
        _products(spec, "query", Buffer(RESULT, 0), (n, d), SCORES, True, key, spec.scale),
        _products(spec, "key", Buffer(RESULT, 1), (m, d), SCORES, False, query, spec.scale),
        _products(spec, "value", Buffer(RESULT, 2), (m, e), WEIGHTS, False, Buffer(INPUT, spec.sources[0])),
    )
    return Naive((weights(spec), *steps), (pairs, pairs))


def weights(spec: Attention, multiplied: bool = False) -> NaiveLaunch:
    """An item for each query: softmax of its scores; for gradients the cotangents of the scores too.

    Args:
        spec: Specification.
        multiplied: Whether ``WEIGHTS`` already has the scores, and ``SCORES`` the products of cotangents and values.
    """
    b = Builder("weights", (*spec.lead, spec.n))
    dtype = computed(spec.dtype)
    at = b.positions
    query, key, value = (Buffer(INPUT, k) for k in spec.sources[int(spec.gradient) :][:3])
    m, d = b.numbers([spec.m, spec.d])
    places = {
        name: b.place(row_major((*spec.lead, *shape)))
        for name, shape in {"q": (spec.n, spec.d), "k": (spec.m, spec.d), "p": (spec.n, spec.m)}.items()
    }
    mask = b.place(_mask(spec))

    def weight(j: Expr) -> Expr:
        return b.read(WEIGHTS, dtype, b.address(places["p"], [*at, j]))

    def put(buffer: Buffer, j: Expr, x: Expr) -> None:
        b.store(buffer, dtype, b.address(places["p"], [*at, j]), x)

    def seen(j: Expr) -> Expr:
        out = j <= at[-1] if spec.causal else const(True, "bool")
        if len(spec.sources) == 4 + spec.gradient:
            out = out & b.read(Buffer(INPUT, spec.sources[-1]), "bool", b.address(mask, [*at, j]))
        return b.let(out, "seen")

    largest, total = b.variable(const(float("-inf"), dtype), "largest"), b.variable(const(0, dtype), "total")

    def score(js: list[Expr]) -> None:
        (j,) = js

        def element(cs: list[Expr]) -> Expr:
            q = b.read(query, spec.dtype, b.address(places["q"], [*at, *cs])) * spec.scale
            return q * b.read(key, spec.dtype, b.address(places["k"], [*at[:-1], j, *cs]))

        made = weight(j) if multiplied else _sum(b, dtype, d, element)
        shown = b.let(select(seen(j), made, float("-inf")))
        put(WEIGHTS, j, shown)
        b.assign(largest, maximum(largest.local, shown))

    def exponential(js: list[Expr]) -> None:
        shift = select(eq(largest.local, float("-inf")), 0.0, largest.local)
        x = b.let(math.exp(weight(js[0]) - shift))
        put(WEIGHTS, js[0], x)
        b.assign(total, total.local + x)

    def share(js: list[Expr]) -> None:
        put(WEIGHTS, js[0], b.let(select(seen(js[0]), weight(js[0]) / total.local, 0.0)))

    for write in (score, exponential, share):
        b.loops([m], write)
    if spec.gradient:
        _cotangents(spec, b, value, m, seen, weight, put, multiplied)
    return b.step()


def _sum(b: Builder, dtype: str, count: Expr, element: Callable[[list[Expr]], Expr]) -> Expr:
    """A sum along one axis."""
    total = b.variable(const(0, dtype), "total")
    b.loops([count], lambda counters: b.assign(total, total.local + element(counters)))
    return total.local


def _cotangents(
    spec: Attention, b: Builder, value: Buffer, m: Expr, seen: Callable[[Expr], Expr], weight: Callable[[Expr], Expr],
    put: Callable[[Buffer, Expr, Expr], None], multiplied: bool,
) -> None:  # fmt: skip
    """u = p · (w - Σ p · w) with w = g valueᵀ, for the item's query."""
    dtype, at = computed(spec.dtype), b.positions
    g = Buffer(INPUT, spec.sources[0])
    e = b.number(spec.e)
    to_g, to_value = (b.place(row_major((*spec.lead, rows, spec.e))) for rows in (spec.n, spec.m))
    pairs = b.place(row_major((*spec.lead, spec.n, spec.m)))
    mean = b.variable(const(0, dtype), "mean")

    def product(js: list[Expr]) -> None:
        (j,) = js

        def element(cs: list[Expr]) -> Expr:
            x = b.read(g, spec.dtype, b.address(to_g, [*at, *cs]))
            return x * b.read(value, spec.dtype, b.address(to_value, [*at[:-1], j, *cs]))

        w = b.read(SCORES, dtype, b.address(pairs, [*at, j])) if multiplied else _sum(b, dtype, e, element)
        shown = b.let(select(seen(j), w, 0.0))
        put(SCORES, j, shown)
        b.assign(mean, mean.local + weight(j) * shown)

    def centred(js: list[Expr]) -> None:
        (j,) = js
        w = b.read(SCORES, dtype, b.address(pairs, [*at, j]))
        put(SCORES, j, b.let(weight(j) * (w - mean.local)))

    b.loops([m], product)
    b.loops([m], centred)


def _mask(spec: Attention) -> View:
    """The address of the mask's element for a query and a key."""
    shape = (1,) * (len(spec.lead) + 2 - len(spec.mask)) + spec.mask
    steps = [0 if size == 1 else stride for size, stride in zip(shape, strides_of(shape), strict=True)]
    return strided((*spec.lead, spec.n, spec.m), steps)


def _products(
    spec: Attention, kind: str, result: Buffer, shape: tuple[int, int], pairs: Buffer, by_query: bool, array: Buffer,
    scale: float = 1.0,
) -> NaiveLaunch:  # fmt: skip
    """Sums of products, an item for each element: Σ_j pairs[i, j] · array[j], or Σ_i pairs[i, j] · array[i].

    Args:
        spec: Specification.
        kind: Name of the kernel.
        result: [*lead, *shape].
        shape: Rows and columns.
        pairs: [*lead, n, m].
        by_query: Whether a row of the result is one of a query.
        array: [*lead, m, columns], or n in place of m.
        scale: Of the sums.
    """
    b = Builder(kind, (*spec.lead, *shape))
    dtype = computed(spec.dtype)
    *lead, i, j = b.positions
    others = spec.m if by_query else spec.n
    of_pairs, of_array, to = (
        b.place(row_major((*spec.lead, *rest))) for rest in ((spec.n, spec.m), (others, shape[1]), shape)
    )  # fmt: skip
    total = b.variable(const(0, dtype), "total")

    def add(ks: list[Expr]) -> None:
        x = b.read(pairs, dtype, b.address(of_pairs, [*lead, i, *ks] if by_query else [*lead, *ks, i]))
        b.assign(total, total.local + x * b.read(array, spec.dtype, b.address(of_array, [*lead, *ks, j])))

    b.loops(b.numbers([others]), add)
    b.store(result, spec.dtype, b.address(to, b.positions), total.local * scale)
    return b.step()
