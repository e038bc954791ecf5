"""Normalisations: softmax, log-softmax and layer norm over one axis, and ``standardize`` over any, which serves batch,
group and instance norm. Each can be written with simpler ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Sample
from firebrick.core.shapes import broadcast_shapes
from firebrick.ops import batch_rules, expansions, forward_rules, index_maps
from firebrick.ops.declare import FLOATS, Array, per_result, size_of, values
from firebrick.ops.elementwise import exp, log, sqrt
from firebrick.ops.reduction import max_, mean, pairwise_sum, sum_, sum_to
from firebrick.ops.table import register
from firebrick.scalar import rows


def _infer(x: Any, *, axis: int) -> Aval:
    if not 0 <= axis < len(x.shape):
        raise ShapeError("softmax needs an axis", f"axis {axis} of shape {x.shape}", "give a tensor with axes")
    return Aval(x.shape, x.dtype)


def _samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases = [((3, 4), 1), ((3, 4), 0), ((5,), 0), ((2, 3, 4), 1), ((0, 3), 1), ((2, 0), 1), ((3, 1), 1),
             ((4, 4), 0), ((1, 1), 1)]  # fmt: skip
    out = [Sample((values(rng, name, s, -3, 3),), {"axis": a}, name=f"{s} axis {a}") for s, a in cases]
    big = np.asarray([[60000.0, 1.0, -60000.0], [-np.inf, 0.0, 1.0], [300.0, 300.0, 299.0]])
    dt = out[0].inputs[0].dtype
    out.append(Sample((np.asarray(big).astype(dt),), {"axis": 1}, False, "extremes"))
    out.append(Sample((values(rng, name, (2, 2000), -3, 3),), {"axis": 1}, False, "long"))
    out.append(Sample((values(rng, name, (3, 40), -80, 0),), {"axis": 1}, False, "wide"))
    return out


def _along(fn: Any, x: Any, axis: int) -> Any:
    return fn(x, axes=(axis,), keepdims=True)


def _softmax_vjp(g: Any, r: Any) -> Any:
    y = r.outputs[0]
    return (y * (g - _along(sum_, g * y, r.params["axis"])),)


def _softmax_scale(x: Array, *, axis: int) -> Array:
    """|result| · (1 + |x - max|): rounding x - max by one part in 1/eps changes its exponential by |x - max| parts."""
    if x.size == 0:
        return np.array(x)
    far = np.abs(x - np.max(x, axis, keepdims=True))
    return np.asarray(softmax.reference(x, axis=axis) * (1 + np.where(np.isfinite(far), far, 0.0)))


def _softmax_simple(x: Any, *, axis: int) -> Any:
    if 0 in x.shape:
        return exp(x)
    e = exp(x - _along(max_, x, axis))
    return e / _along(sum_, e, axis)


@register(
    operands="x:floating", infer=_infer, vjp=_softmax_vjp, residuals=("outputs",), samples=_samples, cost=per_result(14),
    bound="memory", fusion="row", tolerance=8, scale=_softmax_scale, dtypes=FLOATS, decompose=_softmax_simple,
    index_map=index_maps.row,
    scalar=lambda x, **_: rows.softmax(x),
    jvp=forward_rules.symmetric,
)  # fmt: skip
def softmax(x: Array, *, axis: int) -> Array:
    """exp(x) / Σ exp(x) along an axis, without overflow."""
    if x.size == 0:
        return np.array(x)
    e = np.exp(x - np.max(x, axis, keepdims=True))
    return np.asarray(e / pairwise_sum(e, (axis,), True))


def _log_softmax_vjp(g: Any, r: Any) -> Any:
    return (g - exp(r.outputs[0]) * _along(sum_, g, r.params["axis"]),)


def _log_softmax_simple(x: Any, *, axis: int) -> Any:
    if 0 in x.shape:
        return exp(x)
    shifted = x - _along(max_, x, axis)
    return shifted - log(_along(sum_, exp(shifted), axis))


@register(
    operands="x:floating", infer=_infer, vjp=_log_softmax_vjp, residuals=("outputs",), samples=_samples,
    cost=per_result(14), bound="memory", fusion="row", tolerance=16, scale="magnitude", dtypes=FLOATS,
    decompose=_log_softmax_simple, index_map=index_maps.row,
    scalar=lambda x, **_: rows.log_softmax(x),
    jvp=forward_rules.log_softmax,
)  # fmt: skip
def log_softmax(x: Array, *, axis: int) -> Array:
    """x - log Σ exp(x) along an axis, without overflow."""
    if x.size == 0:
        return np.array(x)
    shifted = x - np.max(x, axis, keepdims=True)
    return np.asarray(shifted - np.log(pairwise_sum(np.exp(shifted), (axis,), True)))


def _centred(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """x - mean, the mean, and the biased variance. The mean of what is left is what the mean's rounding lost."""
    over: dict[str, Any] = {"axis": axes, "keepdims": True, "dtype": x.dtype}
    mu = np.mean(x, **over)
    centred = x - mu
    lost = np.mean(centred, **over)
    centred -= lost
    return centred, mu + lost, np.mean(centred * centred, **over)


def inverse_spread(variance: Any, eps: Any, root: Any = sqrt) -> Any:
    """1 / √(variance + eps) as √v / v, which is NaN, not 0, of a variance that overflowed: 0 would make any row zeros."""
    v = variance + eps
    return root(v) / v


def _inverse(variance: Array, eps: float) -> Array:
    return np.asarray(inverse_spread(variance, np.asarray(eps, variance.dtype), np.sqrt))


def _infer_layer_norm(x: Any, weight: Any, bias: Any, *, eps: float) -> Aval:
    if not x.shape or weight.shape != x.shape[-1:] or bias.shape != x.shape[-1:]:
        raise ShapeError(
            "layer_norm: weight and bias must have the size of x's last axis",
            f"x {x.shape}, weight {weight.shape}, bias {bias.shape}",
            "check the layer's normalised size",
        )
    return Aval(x.shape, x.dtype)


def _layer_norm_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape in ((3, 4), (2, 3, 5), (7,), (4, 4), (1, 1), (0, 3), (4, 300)):
        n = shape[-1:]
        args = (values(rng, name, shape), values(rng, name, n, 0.5, 1.5), values(rng, name, n))
        out.append(Sample(args, {"eps": 1e-5}, shape != (4, 300), f"{shape}"))
    return out


def _standardised(x: Any, eps: float) -> tuple[Any, Any]:
    last = len(x.shape) - 1
    centred = x - _along(mean, x, last)
    inverse = inverse_spread(_along(mean, centred * centred, last), eps)
    return centred * inverse, inverse


def _layer_norm_vjp(g: Any, r: Any) -> Any:
    x, weight = r.inputs[:2]
    last = len(x.shape) - 1
    h, inverse = _standardised(x, r.params["eps"])
    gx = None
    if r.needs[0]:
        gh = g * weight
        gx = (gh - _along(mean, gh, last) - h * _along(mean, gh * h, last)) * inverse
    gw = sum_to(g * h, weight.shape) if r.needs[1] else None
    return gx, gw, sum_to(g, weight.shape) if r.needs[2] else None


def _layer_norm_simple(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    return _standardised(x, eps)[0] * weight + bias


def _layer_norm_scale(x: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    """What rounding x costs: its error over the spread, which is small where a row is nearly constant."""
    top = np.max(np.abs(x), -1, keepdims=True, initial=0.0)
    return np.asarray(top / np.sqrt(np.var(x, -1, keepdims=True) + eps) * np.abs(weight) + np.abs(bias))


@register(
    operands="x:floating=T weight:floating=T bias:floating=T", infer=_infer_layer_norm, vjp=_layer_norm_vjp,
    residuals=("inputs",), samples=_layer_norm_samples, cost=per_result(8), bound="memory", fusion="row", tolerance=32,
    scale=_layer_norm_scale, dtypes=FLOATS, decompose=_layer_norm_simple, index_map=index_maps.row,
    scalar=lambda x, weight, bias, *, eps, count: rows.layer_norm(x, weight, bias, count, eps),
    batch=batch_rules.first_only(),
    jvp=forward_rules.decomposed,
)  # fmt: skip
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    """(x - mean) / √(variance + eps) · weight + bias over the last axis, with the biased variance."""
    centred, _, var = _centred(x, (-1,))
    return np.asarray(centred * _inverse(var, eps) * weight + bias)


def _stats(x: Any, axes: tuple[int, ...]) -> Aval:
    return Aval(tuple(1 if i in axes else d for i, d in enumerate(x.shape)), x.dtype)


def _check_standardize(op: str, x: Any, weight: Any, axes: tuple[int, ...]) -> None:
    shape = x.shape
    if len(weight.shape) > len(shape) or broadcast_shapes(weight.shape, shape, op=op) != shape:
        raise ShapeError(f"{op}: weight must broadcast to x's shape", f"x {shape}, weight {weight.shape}", "reshape it")
    if not axes or any(shape[a] == 0 for a in axes):
        raise ShapeError(f"{op}: there must be values to take the mean of", f"axes {axes} of {shape}", "pass some")


def _infer_standardize(x: Any, weight: Any, bias: Any, *, axes: tuple[int, ...], eps: float) -> tuple[Aval, Aval, Aval]:
    _check_standardize("standardize", x, weight, axes)
    if weight.shape != bias.shape:
        raise ShapeError(
            "standardize: weight and bias have one shape", f"weight {weight.shape}, bias {bias.shape}", "broadcast one of them"
        )
    return Aval(x.shape, x.dtype), _stats(x, axes), _stats(x, axes)


_STANDARDIZE = [
    ((4, 3, 5), (0, 2), (1, 3, 1)),
    ((7, 2), (0,), (1, 2)),
    ((3, 2, 3, 4), (0, 2, 3), (1, 2, 1, 1)),
    ((2, 2, 3, 4), (2, 3), (1, 2, 3, 1)),
    ((2, 4, 6), (2,), ()),
    ((3, 0, 5), (0, 2), (1, 0, 1)),
    ((9,), (0,), (9,)),
    ((3, 3, 3), (0, 2), (1, 3, 1)),
    ((4, 4), (0,), (1, 4)),
    ((5, 2, 300), (0, 2), (1, 2, 1)),
]


def _standardize_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape, axes, small in _STANDARDIZE:
        args = (values(rng, name, shape), values(rng, name, small, 0.5, 1.5), values(rng, name, small))
        out.append(Sample(args, {"axes": axes, "eps": 1e-5}, 300 not in shape, f"{shape} over {axes}, weight {small}"))
    return out


def _standardize_vjp(g: Any, r: Any) -> Any:
    gy, g_mean, g_var = g
    x, weight = r.inputs[:2]
    mu, var = (
        _statistics(x, r.params["axes"])[1:] if r.rounded else r.outputs[1:]
    )  # what is centred needs all digits of the mean
    gx, gw, gb = standardize_gradient(gy, x, weight, mu, var, **r.params)
    share = 1.0 / size_of([r.avals[0].shape[a] for a in r.params["axes"]])
    if r.given[1]:
        gx = gx + g_mean * share
    if r.given[2]:
        gx = gx + (x - mu) * (g_var * (2.0 * share))
    return gx, gw, gb


def _statistics(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """x - mean, the mean, and the biased variance."""
    over: dict[str, Any] = {"axes": axes, "keepdims": True}
    mu = mean(x, **over)
    centred = x - mu
    lost = mean(centred, **over)  # by rounding the mean
    centred = centred - lost
    return centred, mu + lost, mean(centred * centred, **over)


def _standardize_simple(x: Any, weight: Any, bias: Any, *, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    centred, mu, var = _statistics(x, axes)
    return centred * inverse_spread(var, eps) * weight + bias, mu, var


def _standardize_scale(x: Array, weight: Array, bias: Array, *, axes: tuple[int, ...], eps: float) -> tuple[Array, ...]:
    """As for layer norm: rounding x costs its error over the spread. Mean and variance are those of the largest value."""
    top = np.max(np.abs(x), axes, keepdims=True, initial=0.0)
    y = top / np.sqrt(np.var(x, axes, keepdims=True) + eps) * np.abs(weight) + np.abs(bias)
    return np.broadcast_to(y, x.shape), top, top * top


@register(
    operands="x:floating=T weight:floating=T bias:floating=T", infer=_infer_standardize, vjp=_standardize_vjp,
    residuals=("inputs", "outputs"), samples=_standardize_samples, cost=per_result(8), bound="memory", fusion="row",
    tolerance=32, scale=_standardize_scale, dtypes=FLOATS, decompose=_standardize_simple,
    expand=expansions.standardize,
    batch=batch_rules.first_only("axes"),
    jvp=forward_rules.decomposed,
)  # fmt: skip
def standardize(x: Array, weight: Array, bias: Array, *, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """(x - mean) / √(variance + eps) · weight + bias over ``axes``, the mean, and the biased variance."""
    centred, mu, var = _centred(x, axes)
    return centred * _inverse(var, eps) * weight + bias, mu, var


def _infer_standardize_gradient(
    g: Any, x: Any, weight: Any, mean: Any, variance: Any, *, axes: tuple[int, ...], eps: float
) -> tuple[Aval, Aval, Aval]:
    _check_standardize("standardize_gradient", x, weight, axes)
    if g.shape != x.shape or mean.shape != _stats(x, axes).shape or variance.shape != mean.shape:
        raise ShapeError(
            "standardize_gradient: g has x's shape, mean and variance that of standardize's",
            f"g {g.shape}, x {x.shape}, mean {mean.shape}, variance {variance.shape}", "pass standardize's results",
        )  # fmt: skip
    small = Aval(weight.shape, x.dtype)
    return Aval(x.shape, x.dtype), small, small


def _standardize_gradient_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape, axes, small in _STANDARDIZE:
        stats = tuple(1 if i in axes else d for i, d in enumerate(shape))
        args = (values(rng, name, shape), values(rng, name, shape), values(rng, name, small, 0.5, 1.5),
                values(rng, name, stats), values(rng, name, stats, 0.5, 1.5))  # fmt: skip
        out.append(Sample(args, {"axes": axes, "eps": 1e-5}, 300 not in shape, f"{shape} over {axes}, weight {small}"))
    return out


def _standardize_gradient_simple(
    g: Any, x: Any, weight: Any, mu: Any, variance: Any, *, axes: tuple[int, ...], eps: float
) -> tuple[Any, Any, Any]:
    over: dict[str, Any] = {"axes": axes, "keepdims": True}
    inverse = inverse_spread(variance, eps)
    h = (x - mu) * inverse
    u = g * weight
    gx = (u - mean(u, **over) - h * mean(u * h, **over)) * inverse
    return gx, sum_to(g * h, weight.shape), sum_to(g, weight.shape)


def _standardize_gradient_vjp(cotangents: Any, r: Any) -> Any:
    """With u = g · weight, c = x - mean and i = 1 / √(variance + eps), the results are gx = i·u - i·mean(u) - i³·mean(u·c)·c,
    gw = Σ g·c·i and gb = Σ g. gx is linear in u, and its own adjoint there."""
    a, b, d = cotangents
    g, x, weight, mu, variance = r.inputs
    over: dict[str, Any] = {"axes": r.params["axes"], "keepdims": True}
    i = inverse_spread(variance, r.params["eps"])
    cube = i * i * i
    c, u = x - mu, g * weight
    mean_a, mean_ac, mean_u, mean_uc = mean(a, **over), mean(a * c, **over), mean(u, **over), mean(u * c, **over)
    to_u = (a - mean_a) * i - c * (cube * mean_ac)
    to_c = g * (b * i) - a * (cube * mean_uc) - u * (cube * mean_ac)
    by_i = a * u - a * mean_u - a * c * (3.0 * i * i * mean_uc) + b * g * c
    to_i = sum_(by_i, **over)
    return (
        to_u * weight + c * (b * i) + d,
        to_c,
        sum_to(to_u * g, weight.shape),
        -sum_(to_c, **over),
        to_i * (-0.5 * cube),
    )


def _standardize_gradient_scale(
    g: Array, x: Array, weight: Array, mu: Array, variance: Array, *, axes: tuple[int, ...], eps: float
) -> tuple[Array, ...]:
    """The sum of all terms' magnitudes."""
    inverse = 1 / np.sqrt(variance + eps)
    h = (np.abs(x) + np.abs(mu)) * inverse
    u = np.abs(g * weight)
    gx = (u + np.mean(u, axes, keepdims=True) + h * np.mean(u * h, axes, keepdims=True)) * inverse
    return gx, _sum_to(np.abs(g) * h, weight.shape), _sum_to(np.abs(g), weight.shape)


def _sum_to(x: Array, shape: tuple[int, ...]) -> Array:
    lead = x.ndim - len(shape)
    axes = tuple(i for i in range(x.ndim) if i < lead or (shape[i - lead] == 1 and x.shape[i] != 1))
    return np.asarray(np.sum(x, axes, dtype=x.dtype)).reshape(shape)


@register(
    operands="g:floating=T x:floating=T weight:floating=T mean:floating=T variance:floating=T",
    infer=_infer_standardize_gradient, vjp=_standardize_gradient_vjp, residuals=("inputs",),
    samples=_standardize_gradient_samples, cost=per_result(12), bound="memory", fusion="row", tolerance=32,
    scale=_standardize_gradient_scale, dtypes=FLOATS, decompose=_standardize_gradient_simple,
    expand=expansions.standardize_gradient,
    batch=batch_rules.decomposed,
    jvp=forward_rules.decomposed,
)  # fmt: skip
def standardize_gradient(
    g: Array, x: Array, weight: Array, mean: Array, variance: Array, *, axes: tuple[int, ...], eps: float
) -> tuple[Array, Array, Array]:
    """What standardize sends a cotangent of its first result to: x, weight and bias, at its mean and variance."""
    inverse = _inverse(variance, eps)
    h = (x - mean) * inverse
    u = g * weight
    over: dict[str, Any] = {"axis": axes, "keepdims": True, "dtype": x.dtype}
    gx = inverse * (u - np.mean(u, **over) - h * np.mean(u * h, **over))
    return gx, _sum_to(g * h, weight.shape), _sum_to(g, weight.shape)


def _infer_rms_norm(x: Any, weight: Any, *, eps: float) -> Aval:
    if not x.shape or weight.shape not in ((), x.shape[-1:]):
        raise ShapeError(
            "rms_norm: weight must have the size of x's last axis, or be 0-d", f"x {x.shape}, weight {weight.shape}",
            "check the layer's normalised size",
        )  # fmt: skip
    return Aval(x.shape, x.dtype)


def _rms_norm_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape in ((3, 4), (2, 3, 5), (7,), (0, 3), (4, 300), (2, 6), (4, 4), (1, 1)):
        weight = values(rng, name, () if shape == (2, 6) else shape[-1:], 0.5, 1.5)
        eps = 0.5 if shape == (1, 1) else 1e-5  # of one element, only eps keeps the terms of the gradient apart
        out.append(Sample((values(rng, name, shape), weight), {"eps": eps}, shape != (4, 300), f"{shape}"))
    out.append(Sample((np.full((2, 3), 1e3, out[0].inputs[0].dtype), out[5].inputs[1]), {"eps": 1e-5}, False, "large"))
    return out


def _rms_norm_vjp(g: Any, r: Any) -> Any:
    x, weight = r.inputs
    last = len(x.shape) - 1
    inverse = inverse_spread(_along(mean, x * x, last), r.params["eps"])
    by_place = g * x
    gx = None
    if r.needs[0]:
        s = _along(mean, by_place * weight, last)
        gx = (g * weight - x * (s * inverse * inverse)) * inverse
    return gx, sum_to(by_place * inverse, weight.shape) if r.needs[1] else None


def _rms_norm_simple(x: Any, weight: Any, *, eps: float) -> Any:
    return x * inverse_spread(_along(mean, x * x, len(x.shape) - 1), eps) * weight


@register(
    operands="x:floating=T weight:floating=T", infer=_infer_rms_norm, vjp=_rms_norm_vjp, residuals=("inputs",),
    samples=_rms_norm_samples, cost=per_result(5), bound="memory", fusion="row", tolerance=16, dtypes=FLOATS,
    decompose=_rms_norm_simple, index_map=index_maps.row,
    scalar=lambda x, weight, *, eps, count: rows.rms_norm(x, weight, count, eps),
    batch=batch_rules.first_only(),
    jvp=forward_rules.decomposed,
)  # fmt: skip
def rms_norm(x: Array, weight: Array, *, eps: float) -> Array:
    """x / √(mean(x²) + eps) · weight over the last axis."""
    square = np.mean(x * x, -1, keepdims=True, dtype=x.dtype)
    return np.asarray(x * _inverse(square, eps) * weight)
