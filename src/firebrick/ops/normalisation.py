"""Normalisations over one axis: softmax, log-softmax and layer norm. Each can be written with simpler ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Sample
from firebrick.ops.declare import FLOATS, Array, per_result, values
from firebrick.ops.elementwise import exp, log, sqrt
from firebrick.ops.reduction import max_, mean, sum_, sum_to
from firebrick.ops.table import register


def _infer(x: Any, *, axis: int) -> Aval:
    if not 0 <= axis < len(x.shape):
        raise ShapeError("softmax needs an axis", f"axis {axis} of shape {x.shape}", "give a tensor with axes")
    return Aval(x.shape, x.dtype)


def _samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases = [((3, 4), 1), ((3, 4), 0), ((5,), 0), ((2, 3, 4), 1), ((0, 3), 1), ((2, 0), 1), ((3, 1), 1)]
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
)  # fmt: skip
def softmax(x: Array, *, axis: int) -> Array:
    """exp(x) / Σ exp(x) along an axis, without overflow."""
    if x.size == 0:
        return np.array(x)
    e = np.exp(x - np.max(x, axis, keepdims=True))
    return np.asarray(e / np.sum(e, axis, keepdims=True))


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
    decompose=_log_softmax_simple,
)  # fmt: skip
def log_softmax(x: Array, *, axis: int) -> Array:
    """x - log Σ exp(x) along an axis, without overflow."""
    if x.size == 0:
        return np.array(x)
    shifted = x - np.max(x, axis, keepdims=True)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True)))


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
    for shape in ((3, 4), (2, 3, 5), (7,), (0, 3), (4, 300)):
        n = shape[-1:]
        args = (values(rng, name, shape), values(rng, name, n, 0.5, 1.5), values(rng, name, n))
        out.append(Sample(args, {"eps": 1e-5}, shape != (4, 300), f"{shape}"))
    return out


def _standardised(x: Any, eps: float) -> tuple[Any, Any]:
    last = len(x.shape) - 1
    centred = x - _along(mean, x, last)
    spread = sqrt(_along(mean, centred * centred, last) + eps)
    return centred / spread, spread


def _layer_norm_vjp(g: Any, r: Any) -> Any:
    x, weight, _ = r.inputs
    last = len(x.shape) - 1
    h, spread = _standardised(x, r.params["eps"])
    gx = None
    if r.needs[0]:
        gh = g * weight
        gx = (gh - _along(mean, gh, last) - h * _along(mean, gh * h, last)) / spread
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
    scale=_layer_norm_scale, dtypes=FLOATS, decompose=_layer_norm_simple,
)  # fmt: skip
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    """(x - mean) / √(variance + eps) · weight + bias over the last axis, with the biased variance."""
    centred = x - np.mean(x, -1, keepdims=True, dtype=x.dtype)
    var = np.mean(centred * centred, -1, keepdims=True, dtype=x.dtype)
    return np.asarray(centred / np.sqrt(var + np.asarray(eps, x.dtype)) * weight + bias)
