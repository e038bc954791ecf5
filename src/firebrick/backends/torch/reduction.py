"""Kernels along axes: reductions, places of extrema, sorting, softmax and layer norm.

PyTorch reads an empty tuple of axes as "all of them", the op table as "none": each kernel then copies.
"""

from __future__ import annotations

from math import prod as product
from typing import Any

import torch
from torch.nn import functional

from firebrick.backends.torch.precision import HALVES, Kernel, in_float32_on_cpu

Axes = tuple[int, ...]


def sum_(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """In the operand's dtype: PyTorch would widen integers."""
    return torch.sum(x, dim=axes, keepdim=keepdims, dtype=x.dtype) if axes else x.clone()


def mean(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """Half precision in float32, since the sum may overflow where the mean does not."""
    if not axes:
        return x.clone()
    if x.dtype in HALVES:
        return torch.mean(x, dim=axes, keepdim=keepdims, dtype=torch.float32).to(x.dtype)
    return torch.mean(x, dim=axes, keepdim=keepdims)


_ACCUMULATE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def prod(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """Over several axes as over one; relative errors add up, so floats accumulate in the next wider dtype."""
    if not axes:
        return x.clone()
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = x.permute(*kept, *axes).reshape([*(x.shape[i] for i in kept), product(x.shape[i] for i in axes)])
    wide = _ACCUMULATE.get(x.dtype, x.dtype)
    if x.device.type == "mps" and wide is torch.float64:
        wide = x.dtype
    out = torch.prod(rows, dim=-1, dtype=wide).to(x.dtype)
    return out.reshape([1 if i in axes else d for i, d in enumerate(x.shape)]) if keepdims else out


def _over(kernel: Any) -> Kernel:
    """A kernel of PyTorch's that takes ``dim`` and ``keepdim``."""

    def run(x: Any, *, axes: Axes, keepdims: bool) -> Any:
        return kernel(x, dim=axes, keepdim=keepdims) if axes else x.clone()

    return run


def argmax(x: Any, *, axis: int, keepdims: bool) -> Any:
    """The first of equal maxima, and the first NaN before all."""
    return torch.argmax(x, dim=axis, keepdim=keepdims)


def argmin(x: Any, *, axis: int, keepdims: bool) -> Any:
    """The first of equal minima, and the first NaN before all."""
    return torch.argmin(x, dim=axis, keepdim=keepdims)


def sort(x: Any, *, axis: int, descending: bool) -> tuple[Any, Any]:
    """Stable in both directions; PyTorch too holds NaN to be the largest."""
    values, at = torch.sort(x, dim=axis, descending=descending, stable=True)
    return values, at


def _normalised(kernel: Any) -> Kernel:
    """Softmax or its logarithm. Along another axis than the last, PyTorch adds up one term after the other, so long
    axes are moved there."""

    def run(x: Any, *, axis: int) -> Any:
        if axis != x.ndim - 1 and x.shape[axis] > 1024:
            return kernel(x.movedim(axis, -1), -1).movedim(-1, axis)
        return kernel(x, axis)

    return run


@in_float32_on_cpu
def layer_norm(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    """PyTorch's over the last axis."""
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps) if x.numel() else x.clone()


KERNELS: dict[str, Kernel] = {
    "sum": sum_, "mean": mean, "prod": prod, "max": _over(torch.amax), "min": _over(torch.amin),
    "all": _over(torch.all), "any": _over(torch.any), "argmax": argmax, "argmin": argmin, "sort": sort,
    "softmax": _normalised(torch.softmax), "log_softmax": _normalised(torch.log_softmax), "layer_norm": layer_norm,
}  # fmt: skip
