"""Scaled dot-product attention without dropout or bias, and its gradient: what tiled kernels compute without a score matrix.

With scores s = scale · query keyᵀ and weights p = exp(s - l), where l is the logarithm of a row's Σ exp(s), the cotangent of s
is u = p · (g valueᵀ - δ): δ is Σ g · result along a row, less the cotangent of l.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, Sample
from firebrick.ops.declare import Array, size_of, values
from firebrick.ops.elementwise import equal, exp, log, logical_and, where
from firebrick.ops.matmul import matmul, swap
from firebrick.ops.movement import broadcast_to, reshape
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


def _infer(query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool) -> tuple[Aval, Aval]:
    scores = _check("attention", query, key, value, mask)
    return Aval((*scores[:-1], value.shape[-1]), query.dtype), Aval(scores[:-1], query.dtype)


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


def _column(x: Any) -> Any:
    return reshape(x, shape=(*x.shape, 1))


def _weights(q: Any, key: Any, sums: Any, seen: Any) -> Any:
    return where(seen, exp(matmul(q, swap(key)) - _column(sums)), 0.0)


def _simple(query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool) -> tuple[Any, Any]:
    q, seen = query * scale, _seen(query, key, mask, causal)
    last = len(q.shape) - 1
    if 0 in seen.shape:
        zero = sum_(q, axes=(last,), keepdims=False) * 0.0
        return matmul(where(seen, 0.0 * matmul(q, swap(key)), 0.0), value), zero - np.inf
    s = where(seen, matmul(q, swap(key)), -np.inf)
    top = max_(s, axes=(last,), keepdims=True)
    top = where(equal(top, -np.inf), 0.0, top)
    e = exp(s - top)
    total = sum_(e, axes=(last,), keepdims=True)
    total = where(logical_and(equal(total, 0.0), any_(seen, axes=(last,), keepdims=True)), np.nan, total)
    sums = log(total) + top
    y = matmul(where(seen, e / where(equal(total, 0.0), 1.0, total), 0.0), value)
    return y, reshape(sums, shape=sums.shape[:-1])


def _gradient_simple(
    g: Any, query: Any, key: Any, value: Any, mask: Any, sums: Any, delta: Any, *, scale: float, causal: bool
) -> tuple[Any, Any, Any]:
    q, seen = query * scale, _seen(query, key, mask, causal)
    p = _weights(q, key, sums, seen)
    u = where(seen, p * (matmul(g, swap(value)) - _column(delta)), 0.0)
    return matmul(u, key) * scale, matmul(swap(u), q), matmul(swap(p), g)


def _vjp(g: Any, r: Any) -> Any:
    query, key, value, mask = r.inputs
    y, sums = r.outputs
    delta = sum_(g[0] * y, axes=(len(y.shape) - 1,), keepdims=False)
    if r.given[1]:
        delta = delta - g[1]
    return (*attention_gradient(g[0], query, key, value, mask, sums, delta, **r.params), None)


def _gradient_vjp(cotangents: Any, r: Any) -> Any:
    """With s, p and u as above, w = g valueᵀ - δ, and (a, b, c) the cotangents of the results: u has the cotangent
    scale · (a keyᵀ + query bᵀ), and p has g cᵀ beside what comes by u = p · w."""
    a, b, c = cotangents
    g, query, key, value, mask, sums, delta = r.inputs
    scale = r.params["scale"]
    q, seen = query * scale, _seen(query, key, mask, r.params["causal"])
    last = len(query.shape) - 1
    p = _weights(q, key, sums, seen)
    w = matmul(g, swap(value)) - _column(delta)
    u = where(seen, p * w, 0.0)
    a = a * scale
    to_u = where(seen, matmul(a, swap(key)) + matmul(q, swap(b)), 0.0)
    to_w = to_u * p
    to_s = where(seen, p * (matmul(g, swap(c)) + to_u * w), 0.0)
    to_q = matmul(to_s, key) + matmul(u, b)
    return (
        matmul(p, c) + matmul(to_w, value),
        to_q * scale,
        matmul(swap(to_s), q) + matmul(swap(u), a),
        matmul(swap(to_w), g),
        None,
        -sum_(to_s, axes=(last,), keepdims=False),
        -sum_(to_w, axes=(last,), keepdims=False),
    )


# the entries


def _hidden(query: Array, key: Array, mask: Array, causal: bool) -> Array | None:
    """Where a query may not look, in the shape of the scores; None if nowhere."""
    seen = np.asarray(mask)
    if causal:
        seen = seen & (np.arange(key.shape[-2]) <= np.arange(query.shape[-2])[:, None])
    return None if seen.all() else np.broadcast_to(~seen, (*query.shape[:-1], key.shape[-2]))


def _turned(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _attention_scale(query: Array, key: Array, value: Array, mask: Array, *, scale: float, causal: bool) -> tuple[Array, ...]:
    """Rounding the scores by parts of |query|·|key| changes the weights by as many parts, and these the mean of the values."""
    q = query * scale
    size = np.matmul(np.abs(q), _turned(np.abs(key)))
    y, sums = attention.reference(query, key, np.abs(value), mask, scale=scale, causal=causal)
    worst = np.max(np.where(np.isfinite(size), size, 0.0), -1, initial=0.0)
    finite = np.where(np.isfinite(sums), np.abs(sums), 0.0)
    return y * (1 + worst[..., None]), 1 + worst + finite


@register(
    operands="query:floating=T key:floating=T value:floating=T mask:bool", infer=_infer, vjp=_vjp,
    residuals=("inputs", "outputs"), samples=_samples, cost=_cost(0, 2), bound="compute", fusion="contract", tolerance=16,
    scale=_attention_scale, dtypes=_DTYPES, decompose=_simple,
)  # fmt: skip
def attention(query: Array, key: Array, value: Array, mask: Array, *, scale: float, causal: bool) -> tuple[Array, Array]:
    """softmax(scale · query keyᵀ) value over the keys that the mask (and with ``causal`` the order) lets a query see, 0 if it
    sees none; and log Σ exp of each row's scores, -inf for none."""
    hidden = _hidden(query, key, mask, causal)
    s = np.matmul(query * np.asarray(scale, query.dtype), _turned(key))
    if hidden is not None:
        s[hidden] = -np.inf
    top = np.max(s, -1, keepdims=True, initial=-np.inf)
    top[np.isneginf(top)] = 0
    np.exp(np.subtract(s, top, out=s), out=s)
    total = np.sum(s, -1, keepdims=True)
    blind = np.full_like(total, not s.shape[-1], np.bool_) if hidden is None else hidden.all(-1, keepdims=True)
    total[(total == 0) & ~blind] = np.nan  # what sees keys, but with weight 0, has no mean
    y = np.matmul(s, value) / np.where(blind, np.ones((), s.dtype), total)
    sums = np.where(blind, -np.inf, np.log(np.where(blind, np.ones((), s.dtype), total)) + top)
    return y, sums[..., 0]


def _infer_gradient(
    g: Any, query: Any, key: Any, value: Any, mask: Any, sums: Any, delta: Any, *, scale: float, causal: bool
) -> tuple[Aval, Aval, Aval]:
    scores = _check("attention_gradient", query, key, value, mask)
    if g.shape != (*scores[:-1], value.shape[-1]) or sums.shape != scores[:-1] or delta.shape != sums.shape:
        raise ShapeError(
            "attention_gradient: g has the result's shape, sums and delta that of its rows",
            f"g {g.shape}, sums {sums.shape}, delta {delta.shape}", "pass attention's results",
        )  # fmt: skip
    return Aval(query.shape, query.dtype), Aval(key.shape, query.dtype), Aval(value.shape, query.dtype)


def _gradient_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape in _SHAPES:
        q, k, v, mask = _operands(rng, name, shape)
        params = {"scale": 0.4, "causal": shape[-1]}
        y, sums = attention.reference(*(x.astype(np.float64) for x in (q, k, v)), mask, **params)
        g = values(rng, name, y.shape)
        delta = np.sum(g * y, -1)
        args = (g, q, k, v, mask, np.where(np.isneginf(sums), 0, sums).astype(q.dtype), delta.astype(q.dtype))
        out.append(Sample(args, params, shape[1] < 30, _label(shape)))
    return out


def _gradient_scale(
    g: Array, query: Array, key: Array, value: Array, mask: Array, sums: Array, delta: Array, *, scale: float, causal: bool
) -> tuple[Array, ...]:
    """The sum of all terms' magnitudes, times what rounding the scores costs."""
    q, k = np.abs(query * scale), np.abs(key)
    size = np.matmul(q, _turned(k))
    hidden = _hidden(query, key, mask, causal)
    p = np.exp(np.matmul(query * scale, _turned(key)) - sums[..., None]) * (1 + size + np.abs(sums)[..., None])
    if hidden is not None:
        p[hidden] = 0
    u = p * (np.matmul(np.abs(g), _turned(np.abs(value))) + np.abs(delta)[..., None])
    return np.matmul(u, k) * abs(scale), np.matmul(_turned(u), q), np.matmul(_turned(p), np.abs(g))


@register(
    operands="g:floating=T query:floating=T key:floating=T value:floating=T mask:bool sums:floating=T delta:floating=T",
    infer=_infer_gradient, vjp=_gradient_vjp, residuals=("inputs",), samples=_gradient_samples, cost=_cost(1, 5),
    bound="compute", fusion="contract", tolerance=16, scale=_gradient_scale, dtypes=_DTYPES, decompose=_gradient_simple,
)  # fmt: skip
def attention_gradient(
    g: Array, query: Array, key: Array, value: Array, mask: Array, sums: Array, delta: Array, *, scale: float, causal: bool
) -> tuple[Array, Array, Array]:
    """What attention sends a cotangent of its first result to: query, key and value; ``sums`` is its second result, ``delta``
    Σ g · result of each row, less the cotangent of ``sums``."""
    hidden = _hidden(query, key, mask, causal)
    factor = np.asarray(scale, query.dtype)
    q = query * factor
    p = np.exp(np.matmul(q, _turned(key)) - sums[..., None])
    u = np.matmul(g, _turned(value)) - delta[..., None]
    u *= p
    if hidden is not None:
        p[hidden] = u[hidden] = 0
    return np.matmul(u, key) * factor, np.matmul(_turned(u), q), np.matmul(_turned(p), g)
