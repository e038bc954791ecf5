"""Scaled dot-product attention without dropout or bias, and its gradient: what tiled kernels compute without a score matrix.

With scores s = scale · query keyᵀ and weights p = softmax(s), the cotangent of s is u = p · (w - Σ p · w), where w = g valueᵀ.
The gradient computes the weights again, from scores less their largest: so they are as precise for large scores as for small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, Sample
from firebrick.ops import batch_rules, forward_rules
from firebrick.ops.declare import Array, size_of, values
from firebrick.ops.elementwise import divide, equal, exp, logical_and, multiply, subtract, where
from firebrick.ops.expansions import Build, Rule
from firebrick.ops.matmul import matmul, swap
from firebrick.ops.movement import broadcast_to, permute
from firebrick.ops.reduction import any_, max_, sum_
from firebrick.ops.table import register

_DTYPES = ("float32", "float64")


def _check(name: str, query: Any, key: Any, value: Any, mask: Any) -> tuple[int, ...]:
    """Check the operands; returns the shape of the scores."""
    q, k, v, m = query.shape, key.shape, value.shape, mask.shape
    shown = f"query {q}, key {k}, value {v}"
    if len(q) < 2 or q[:-2] != k[:-2] or k[:-1] != v[:-1] or q[-1] != k[-1]:
        raise ShapeError(
            f"{name}: query [..., n, d], key [..., m, d], value [..., m, e] with equal leading axes", shown, "broadcast them"
        )
    scores = (*q[:-1], k[-2])
    if len(m) > len(scores) or any(a not in (1, b) for a, b in zip(m[::-1], scores[::-1], strict=False)):
        raise ShapeError(f"{name}: a mask that broadcasts to {scores}", f"mask {m}", "reshape it")
    if query.dtype.name not in _DTYPES:
        raise DTypeError(f"{name}: float32 or float64", f"query {query.dtype}{q}", "cast the operands, and the result back")
    return scores


def _infer(query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool) -> Aval:
    scores = _check("attention", query, key, value, mask)
    return Aval((*scores[:-1], value.shape[-1]), query.dtype)


def _cost(first: int, products: int) -> Any:
    """Of so many products, each as long as a query or a value on average; the query is operand ``first``."""

    def cost(ins: Any, outs: Any, params: Any) -> Cost:
        q, k, v = (a.shape for a in ins[first : first + 3])
        pairs = size_of(q[:-1]) * k[-2] * (0.5 if params["causal"] else 1.0)
        return Cost(pairs * (products * (q[-1] + v[-1]) + 14.0), float(sum(a.nbytes for a in (*ins, *outs))))

    return cost


# samples

_SHAPES: tuple[tuple[tuple[int, ...], int, int, int, int, tuple[int, ...], bool], ...] = (
    # leading axes, n, m, d, e, the mask's shape, causal
    ((2,), 3, 3, 4, 4, (), False),
    ((2, 2), 4, 4, 3, 3, (), True),
    ((2,), 3, 5, 2, 4, (3, 5), False),
    ((2, 2), 5, 3, 4, 2, (2, 1, 1, 3), True),
    ((), 1, 7, 4, 3, (1, 7), False),
    ((3, 3), 3, 3, 3, 3, (3, 3), True),
    ((1,), 1, 1, 1, 1, (), False),
    ((0,), 3, 3, 4, 4, (), False),
    ((2,), 0, 3, 4, 4, (), False),
    ((2,), 3, 3, 0, 2, (), True),
    ((2,), 2, 3, 4, 0, (), False),
    ((1, 2), 70, 140, 16, 16, (), True),
    ((3,), 33, 65, 40, 24, (33, 65), False),
)


def _operands(rng: np.random.Generator, name: str, shape: tuple[Any, ...]) -> tuple[Array, ...]:
    lead, n, m, d, e, places, _ = shape
    q, k, v = (values(rng, name, (*lead, *rest)) for rest in ((n, d), (m, d), (m, e)))
    mask = rng.integers(0, 3, places) > 0 if places else np.asarray(True)
    return q, k, v, np.asarray(mask)


def _label(shape: tuple[Any, ...]) -> str:
    lead, n, m, d, e, places, causal = shape
    return f"{lead}: {n} × {m}, {d} and {e}, mask {places}{', causal' if causal else ''}"


def _samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape in _SHAPES:
        params = {"scale": 0.4, "causal": shape[-1]}
        out.append(Sample(_operands(rng, name, shape), params, shape[1] < 30, _label(shape)))
    q, k, v, _ = _operands(rng, name, _SHAPES[0])
    params = {"scale": 0.5, "causal": False}
    out.append(Sample((q, k, v, np.asarray(False)), params, False, "nothing to look at"))
    out.append(Sample((q * 40, k * 40, v, np.asarray(True)), params, False, "large scores"))
    q, k, v = (x.copy() for x in (q, k, v))
    v[0, 1] = np.nan
    k[1, 2] = np.inf
    mask = np.ones((2, 3, 3), np.bool_)
    out.append(Sample((q, k, v, mask), params, False, "NaN and infinite"))
    mask = mask.copy()
    mask[0, 0, 1] = mask[1, :, 2] = False
    out.append(Sample((q, k, v, mask), params, False, "NaN and infinite, hidden from some"))
    return out


# the formulas in tensors, for engines without a kernel and for gradients


def _seen(query: Any, key: Any, mask: Any, causal: bool) -> Any:
    """Where a query may look, in the shape of the scores."""
    n, m = query.shape[-2], key.shape[-2]
    if causal:
        mask = logical_and(mask, hooks.from_host(np.arange(m) <= np.arange(n)[:, None], query.device))
    return broadcast_to(mask, shape=(*query.shape[:-1], m))


def _along(fn: Any, x: Any) -> Any:
    return fn(x, axes=(len(x.shape) - 1,), keepdims=True)


def _weights(q: Any, key: Any, seen: Any) -> Any:
    """softmax of the scores that are seen, 0 elsewhere; NaN in a row that sees scores of -inf only."""
    if 0 in seen.shape:
        return matmul(q, swap(key))
    s = where(seen, matmul(q, swap(key)), -np.inf)
    top = _along(max_, s)
    e = exp(s - where(equal(top, -np.inf), 0.0, top))
    return where(seen, e / _along(sum_, e), 0.0)


def _simple(query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool) -> Any:
    return matmul(_weights(query * scale, key, _seen(query, key, mask, causal)), value)


def _gradient_simple(
    g: Any, query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool
) -> tuple[Any, Any, Any]:  # fmt: skip
    q, seen = query * scale, _seen(query, key, mask, causal)
    p = _weights(q, key, seen)
    w = where(seen, matmul(g, swap(value)), 0.0)
    u = p * (w - _along(sum_, p * w))
    return matmul(u, key) * scale, matmul(swap(u), q), matmul(swap(p), g)


def _vjp(g: Any, r: Any) -> Any:
    return (*attention_gradient(g, *r.inputs, **r.params), None)


def _gradient_vjp(cotangents: Any, r: Any) -> Any:
    """With s, p, w and u as above, and (a, b, c) the cotangents of the results: u has the cotangent
    scale · a keyᵀ + scale · query bᵀ, and p has g cᵀ beside what comes by u."""
    a, b, c = cotangents
    g, query, key, value, mask = r.inputs
    scale = r.params["scale"]
    q, seen = query * scale, _seen(query, key, mask, r.params["causal"])
    p = _weights(q, key, seen)
    w = where(seen, matmul(g, swap(value)), 0.0)
    centred = w - _along(sum_, p * w)
    u, a = p * centred, a * scale
    to_u = where(seen, matmul(a, swap(key)) + matmul(q, swap(b)), 0.0)
    mean = _along(sum_, to_u * p)
    to_w = p * (to_u - mean)
    to_p = where(seen, matmul(g, swap(c)), 0.0) + to_u * centred - w * mean
    to_s = p * (to_p - _along(sum_, p * to_p))
    return (
        matmul(p, c) + matmul(to_w, value),
        (matmul(to_s, key) + matmul(u, b)) * scale,
        matmul(swap(to_s), q) + matmul(swap(u), a),
        matmul(swap(to_w), g),
        None,
    )


# the entries


def _turned(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _parts(query: Array, key: Array, mask: Array, scale: float, causal: bool) -> tuple[Array, Array, Array | None]:
    """Scaled queries, the weights, and where a query may not look; None for nowhere."""
    q = query * np.asarray(scale, query.dtype)
    s = np.matmul(q, _turned(key))
    seen = np.asarray(mask)
    if causal:
        seen = seen & (np.arange(key.shape[-2]) <= np.arange(query.shape[-2])[:, None])
    hidden = None if seen.all() else np.broadcast_to(~seen, s.shape)
    if hidden is not None:
        s[hidden] = -np.inf
    top = np.max(s, -1, keepdims=True, initial=-np.inf)
    top[np.isneginf(top)] = 0
    np.exp(np.subtract(s, top, out=s), out=s)
    total = np.sum(s, -1, keepdims=True)
    if hidden is not None:  # a row that sees nothing has no weights, one that sees scores of -inf only has no mean
        total[hidden.all(-1, keepdims=True)] = 1
    total[total == 0] = np.nan
    return q, np.divide(s, total, out=s), hidden


def _scores(query: Array, key: Array, scale: float) -> Array:
    """By how many parts rounding changes a weight: the magnitude of its row's scores."""
    size = np.matmul(np.abs(query * scale), _turned(np.abs(key)))
    return np.asarray(1 + np.max(np.where(np.isfinite(size), size, 0.0), -1, keepdims=True, initial=0.0))


def _attention_scale(query: Array, key: Array, value: Array, mask: Array, *, scale: float, causal: bool) -> Array:
    _, p, _ = _parts(query, key, mask, scale, causal)
    return np.asarray(np.matmul(p * _scores(query, key, scale), np.abs(value)))


def _of_one_query(operands: Sequence[Aval], results: Sequence[Aval], *, scale: float, causal: bool) -> Rule | None:
    """Of a single query, as in decoding: two products with vectors and a softmax. Kernels of attention arrange the keys in
    panels for many queries first, which takes longer than all of this."""
    query, key, _, seen = (a.shape for a in operands)
    if query[-2] != 1 or 0 in (*query, *key, *results[0].shape) or (causal and key[-2] > 1):
        return None
    axes = (*range(len(key) - 2), len(key) - 1, len(key) - 2)

    def rule(build: Build, q: int, k: int, v: int, mask: int) -> tuple[int, ...]:
        scores = build(matmul, build(multiply, q, build.constant(scale, q)), build(permute, k, axes=axes))
        some = build(any_, mask, axes=(len(seen) - 1,), keepdims=True) if seen else mask
        # finite in a row that sees nothing, whose weights are 0 and not NaN
        hidden = build(where, some, build.constant(-np.inf, q), build.constant(0.0, q))
        along = {"axes": (len(key) - 1,), "keepdims": True}
        kept = build(where, mask, scores, hidden)
        parts = build(exp, build(subtract, kept, build(max_, kept, **along)))
        weights = build(divide, parts, build(sum_, parts, **along))
        return (build(matmul, build(where, mask, weights, build.constant(0.0, q)), v),)

    return rule


@register(
    operands="query:floating=T key:floating=T value:floating=T mask:bool", infer=_infer, vjp=_vjp,
    residuals=("inputs",), samples=_samples, cost=_cost(0, 2), bound="compute", fusion="contract", tolerance=16,
    kind="attention", facts=lambda operands, results, **_: {"gradient": False}, scale=_attention_scale, dtypes=_DTYPES,
    decompose=_simple,
    expand=_of_one_query,
    batch=batch_rules.attended(0),
    jvp=forward_rules.decomposed,
)  # fmt: skip
def attention(query: Array, key: Array, value: Array, mask: Array, *, scale: float, causal: bool) -> Array:
    """softmax(scale · query keyᵀ) value over the keys that the mask (and with ``causal`` the order) lets a query see; 0 if it
    sees none."""
    _, p, _ = _parts(query, key, mask, scale, causal)
    return np.asarray(np.matmul(p, value))


def _infer_gradient(
    g: Any, query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool
) -> tuple[Aval, Aval, Aval]:  # fmt: skip
    scores = _check("attention_gradient", query, key, value, mask)
    if g.shape != (*scores[:-1], value.shape[-1]):
        raise ShapeError(
            f"attention_gradient: a cotangent {(*scores[:-1], value.shape[-1])}", f"g {g.shape}", "give it the result's shape"
        )
    return Aval(query.shape, query.dtype), Aval(key.shape, query.dtype), Aval(value.shape, query.dtype)


def _gradient_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for sample in _samples(rng, name):
        q, _, v, _ = sample.inputs
        g = values(rng, name, (*q.shape[:-1], v.shape[-1]))
        out.append(Sample((g, *sample.inputs), sample.params, sample.grad_safe, sample.name))
    return out


def _gradient_scale(
    g: Array, query: Array, key: Array, value: Array, mask: Array, *, scale: float, causal: bool
) -> tuple[Array, ...]:  # fmt: skip
    """The sum of all terms' magnitudes, times what rounding the scores costs."""
    q, p, hidden = _parts(query, key, mask, scale, causal)
    p = p * _scores(query, key, scale)
    w = np.matmul(np.abs(g), _turned(np.abs(value)))
    if hidden is not None:
        w[hidden] = 0
    u = p * (w + np.sum(p * w, -1, keepdims=True))
    return np.matmul(u, np.abs(key)) * abs(scale), np.matmul(_turned(u), np.abs(q)), np.matmul(_turned(p), np.abs(g))


@register(
    operands="g:floating=T query:floating=T key:floating=T value:floating=T mask:bool", infer=_infer_gradient,
    vjp=_gradient_vjp, residuals=("inputs",), samples=_gradient_samples, cost=_cost(1, 5), bound="compute", fusion="contract",
    kind="attention", facts=lambda operands, results, **_: {"gradient": True}, tolerance=16, scale=_gradient_scale,
    dtypes=_DTYPES, decompose=_gradient_simple,
    batch=batch_rules.attended(1),
    jvp=forward_rules.decomposed,
)  # fmt: skip
def attention_gradient(
    g: Array, query: Array, key: Array, value: Array, mask: Array, *, scale: float, causal: bool
) -> tuple[Array, Array, Array]:  # fmt: skip
    """What attention sends a cotangent of its result to: query, key and value."""
    q, p, hidden = _parts(query, key, mask, scale, causal)
    w = np.matmul(g, _turned(value))
    if hidden is not None:
        w[hidden] = 0
    u = p * (w - np.sum(p * w, -1, keepdims=True))
    return np.matmul(u, key) * np.asarray(scale, q.dtype), np.matmul(_turned(u), q), np.matmul(_turned(p), g)
