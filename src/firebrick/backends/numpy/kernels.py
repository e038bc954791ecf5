"""NumPy kernels that are faster than an op's reference, or written as one ufunc. Held against the reference like any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from firebrick.backends.numpy import linalg
from firebrick.backends.numpy.blas import matmul
from firebrick.backends.numpy.convolution import conv, conv_input, conv_weight
from firebrick.backends.numpy.indexing import index_add, scatter, scatter_add, scatter_reduce
from firebrick.backends.numpy.pooling import max_pool
from firebrick.backends.numpy.scans import cumulative_logsumexp, linear_recurrence
from firebrick.backends.numpy.selection import where
from firebrick.backends.numpy.sorting import sort, sort_values, top_k
from firebrick.backends.numpy.special import erf, erfinv, gelu, gelu_gradient, i0, i1
from firebrick.ops.attention import attention
from firebrick.ops.declare import Array
from firebrick.ops.normalisation import inverse_spread, layer_norm, log_softmax, softmax
from firebrick.ops.normalisation import standardize_gradient as gradient_of_standardize


def _relu(x: Array) -> Array:
    return np.maximum(x, np.zeros((), x.dtype))


def _last(reference: Callable[..., Array]) -> Callable[..., Array]:
    """A normalisation along the last axis of contiguous memory, where NumPy adds pairwise."""

    def kernel(x: Array, *, axis: int) -> Array:
        rows = np.ascontiguousarray(np.moveaxis(x, axis, -1))
        return np.moveaxis(reference(rows, axis=x.ndim - 1), -1, axis)

    return kernel


def _layer_norm(x: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    found: Array = layer_norm.reference(np.ascontiguousarray(x), weight, bias, eps=eps)
    return found


def _attention(query: Array, key: Array, value: Array, mask: Array, *, scale: float, causal: bool) -> Array:
    return np.ascontiguousarray(attention.reference(query, key, value, mask, scale=scale, causal=causal))


def standardize(x: Array, weight: Array, bias: Array, *, axes: Any, eps: float) -> tuple[Array, Array, Array]:
    """The reference in fewer passes, on contiguous memory, where NumPy adds pairwise."""
    x = np.ascontiguousarray(x)
    mean = np.mean(x, axes, keepdims=True, dtype=x.dtype)
    y = x - mean
    lost = np.mean(y, axes, keepdims=True, dtype=x.dtype)  # what the mean's rounding left
    y -= lost
    var = np.mean(y * y, axes, keepdims=True, dtype=x.dtype)
    y *= inverse_spread(var, np.asarray(eps, x.dtype), np.sqrt) * weight
    y += bias
    return y, mean + lost, var


def standardize_gradient(
    g: Array, x: Array, weight: Array, mean: Array, variance: Array, *, axes: Any, eps: float
) -> tuple[Array, Array, Array]:
    """The reference in fewer passes where weight and bias are the same for all values that share a mean."""
    lead = x.ndim - weight.ndim
    if any(a >= lead and weight.shape[a - lead] > 1 for a in axes):
        found: tuple[Array, Array, Array] = gradient_of_standardize.reference(g, x, weight, mean, variance, axes=axes, eps=eps)
        return found
    over: dict[str, Any] = {"axis": axes, "keepdims": True, "dtype": x.dtype}
    inverse = inverse_spread(variance, np.asarray(eps, x.dtype), np.sqrt)
    c = x - mean
    by_place = g * c
    total, along = np.sum(g, **over), np.sum(by_place, **over) * inverse
    share = np.asarray(1 / (x.size / total.size), x.dtype) if total.size else x.dtype.type(0)
    gx = np.subtract(g, total * share, out=by_place)
    c *= along * inverse * share
    gx -= c
    gx *= weight * inverse
    axes = tuple(i for i in range(x.ndim) if i < lead or weight.shape[i - lead] == 1)
    small = (np.sum(s, axes, dtype=x.dtype).reshape(weight.shape) for s in (along, total))
    return gx, *small


KERNELS: dict[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "negative": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log,
    "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "hypot": np.hypot,
    "logaddexp": np.logaddexp, "copysign": np.copysign, "sign": np.sign, "conj": np.conjugate,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "bitwise_invert": np.bitwise_invert, "bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift,
    "gelu": gelu, "gelu_gradient": gelu_gradient,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor, "logical_not": np.logical_not,
    "relu": _relu, "erf": erf, "erfinv": erfinv, "i0": i0, "i1": i1, "matmul": matmul,
    "conv": conv, "conv_input": conv_input, "conv_weight": conv_weight,
    "index_add": index_add, "scatter": scatter, "scatter_add": scatter_add, "scatter_reduce": scatter_reduce,
    "max_pool": max_pool, "where": where,
    "softmax": _last(softmax.reference), "log_softmax": _last(log_softmax.reference),
    "attention": _attention, "layer_norm": _layer_norm, "standardize": standardize,
    "cumulative_logsumexp": cumulative_logsumexp, "linear_recurrence": linear_recurrence,
    "sort": sort, "sort_values": sort_values, "top_k": top_k,
    "standardize_gradient": standardize_gradient, **linalg.KERNELS,
}  # fmt: skip

REAL_UFUNCS: dict[str, np.ufunc] = {"divide": np.divide, "expm1": np.expm1, "log1p": np.log1p, "tan": np.tan, "tanh": np.tanh}
"""Fast kernels for real operands of references that treat complex operands in another way."""
