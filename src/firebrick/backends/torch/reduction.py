"""Kernels along axes: reductions, scans, positions of extrema, sorting, searching, softmax and layer norm.

PyTorch reads an empty tuple of axes as "all of them", the op table as "none": each kernel then copies.
"""

from __future__ import annotations

from math import prod as product
from typing import Any

import torch

from firebrick.backends.torch.precision import HALVES, Kernel, in_float32, in_float32_on_cpu
from firebrick.ops.normalisation import inverse_spread

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


_ACCUMULATE = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}  # fmt: skip
"""What products of a dtype, and running sums and products, are computed in."""


def prod(x: Any, *, axes: Axes, keepdims: bool) -> Any:
    """Over several axes as over one; relative errors add up, and partial products may leave the range of the dtype, so
    floats accumulate in a wider dtype."""
    if not axes:
        return x.clone()
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = x.permute(*kept, *axes).reshape([*(x.shape[i] for i in kept), product(x.shape[i] for i in axes)])
    wide = _ACCUMULATE.get(x.dtype, x.dtype)
    if x.device.type == "mps" and wide in (torch.float64, torch.complex128):
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


def sort_values(x: Any, *, axis: int, descending: bool) -> Any:
    """Those of ``sort``: PyTorch finds the indices in any case."""
    return sort(x, axis=axis, descending=descending)[0]


def top_k(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    """PyTorch's, which leaves open which of the k-th value's equals come along, and in what order equals come."""
    n = x.shape[axis]
    if not 0 < k <= n // 8 or not x.numel():
        values, at = sort(x, axis=axis, descending=largest)
        return values.narrow(axis, 0, k).clone(), at.narrow(axis, 0, k).clone()
    rows = x.movedim(axis, -1)
    values, at = torch.topk(rows, k, -1, largest=largest, sorted=True)
    edge = values[..., -1:]
    if bool((((rows == edge).sum(-1) > (values == edge).sum(-1)) | edge.isnan().squeeze(-1)).any()):
        at = _first_k(rows, edge, k, largest)
    at = torch.sort(at, -1).values
    values, order = sort(rows.gather(-1, at), axis=-1, descending=largest)
    return values.movedim(-1, axis), at.gather(-1, order).movedim(-1, axis)


def _first_k(rows: Any, edge: Any, k: int, largest: bool) -> Any:
    """The positions of all elements beyond the k-th value, and of the first of its equals, NaN being one of them."""
    odd, odd_edge = rows != rows, edge != edge
    beyond = (rows > edge) | (odd & ~odd_edge) if largest else (rows < edge) | (~odd & odd_edge)
    level = (rows == edge) | (odd & odd_edge)
    room = k - beyond.sum(-1, keepdim=True)
    chosen = beyond | (level & (level.cumsum(-1) <= room))
    return chosen.nonzero()[:, -1].reshape(*rows.shape[:-1], k)


def searchsorted(x1: Any, x2: Any, *, right: bool) -> Any:
    """PyTorch's search, which orders no NaN, on values in which NaN is the largest."""
    x1, x2 = x1.contiguous(), x2.contiguous()
    if not x1.is_floating_point():
        return torch.searchsorted(x1, x2, right=right)
    odd = x1.isnan()
    numbers = x1.numel() - odd.sum()
    at = torch.searchsorted(x1.masked_fill(odd, torch.inf), x2, right=right).minimum(numbers)
    return torch.where(x2.isnan(), x1.numel() if right else numbers, at)


def _scan(kernel: Kernel) -> Kernel:
    """A scan of PyTorch's, from the first element or the last. On the CPU it keeps a float32 in float64, and halves in float32
    only, so these are widened before."""

    def run(x: Any, *, axis: int, reverse: bool) -> Any:
        if reverse:
            return run(x.flip(axis), axis=axis, reverse=False).flip(axis)
        wide = _ACCUMULATE[x.dtype] if x.dtype in HALVES and x.device.type == "cpu" else x.dtype
        return kernel(x, axis, dtype=wide).to(x.dtype)

    return run


def cumulative_logsumexp(x: Any, *, axis: int, reverse: bool) -> Any:
    """PyTorch's, which on the CPU keeps float32 in float64; float64 by doubling, so that few roundings add up."""
    if reverse:
        return cumulative_logsumexp(x.flip(axis), axis=axis, reverse=False).flip(axis)
    if x.dtype != torch.float64:
        return in_float32(torch.logcumsumexp)(x, dim=axis)
    n, d, top, total = x.shape[axis], 1, x, torch.ones_like(x)
    while d < n:  # of each element and the d - 1 before it: their largest, and the sum of the exponentials less that
        tops, totals = ([v.narrow(axis, at, n - d) for at in (0, d)] for v in (top, total))
        largest = torch.maximum(*tops)
        shares = [t * torch.exp(torch.where(v == largest, 0.0, v - largest)) for v, t in zip(tops, totals, strict=True)]
        top = torch.cat([top.narrow(axis, 0, d), largest], axis)
        total = torch.cat([total.narrow(axis, 0, d), shares[0] + shares[1]], axis)
        d *= 2
    return top + torch.log(total)


def linear_recurrence(a: Any, b: Any, *, axis: int, reverse: bool, shifted: bool) -> Any:
    """⌈log₂ n⌉ rounds of doubling, as the op's decomposition has them."""
    n, d, s = b.shape[axis], 1, b
    if n < 2:
        return b.clone()
    a = a.narrow(axis, 0 if reverse is not shifted else 1, n - 1)  # without the factor of no state
    while d < n:
        moved = a * s.narrow(axis, d if reverse else 0, n - d)
        sums = s.narrow(axis, 0 if reverse else d, n - d) + moved
        kept = s.narrow(axis, n - d if reverse else 0, d)
        s = torch.cat([sums, kept] if reverse else [kept, sums], axis)
        if 2 * d < n:
            a = a.narrow(axis, 0, n - 2 * d) * a.narrow(axis, d, n - 2 * d)
        d *= 2
    return s


def _running(kernel: Kernel) -> Kernel:
    """A running extreme of PyTorch's, and the position it was met at first (PyTorch returns the last)."""

    def run(x: Any, *, axis: int, reverse: bool) -> tuple[Any, Any]:
        if reverse:
            values, at = run(x.flip(axis), axis=axis, reverse=False)
            return values.flip(axis), x.shape[axis] - 1 - at.flip(axis)
        n = x.shape[axis]
        if not x.numel():
            return x.clone(), torch.zeros(x.shape, dtype=torch.int64, device=x.device)
        best = kernel(x, axis).values
        now, past = best.narrow(axis, 1, n - 1), best.narrow(axis, 0, n - 1)
        new = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        new.narrow(axis, 1, n - 1).copy_((now != past) & ~((now != now) & (past != past)))
        here = torch.arange(n, device=x.device).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        at = torch.cummax(torch.where(new, here, 0), axis).values
        return x.gather(axis, at), at

    return run


LONG = 1024
"""Axes longer than this are moved to the end before a softmax."""


def _normalised(kernel: Any) -> Kernel:
    """Softmax or its logarithm. Along another axis than the last, PyTorch adds up one term after the other, so long
    axes are moved there."""

    def run(x: Any, *, axis: int) -> Any:
        if axis != x.ndim - 1 and x.shape[axis] > LONG:
            return kernel(x.movedim(axis, -1), -1).movedim(-1, axis)
        return kernel(x, axis)

    return run


@in_float32_on_cpu
def layer_norm(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    """PyTorch's over the last axis."""
    if not x.numel():
        return x.clone()
    y, _, inverse = torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)
    return _not_of_infinity(y, inverse)


def _not_of_infinity(y: Any, inverse: Any) -> Any:
    """y, NaN where 1 / √(variance + eps) is 0, since the variance overflowed. On a CPU, a look at the factors is less work than
    a pass over y."""
    return y if y.device.type == "cpu" and float(inverse.min()) > 0 else y.add_(0.0 / inverse)


def _flat(x: Any) -> Any:
    """A vector whose elements follow each other in memory: PyTorch's batch norm reads past those that do not."""
    return x.reshape(-1).contiguous()


def standardize(x: Any, weight: Any, bias: Any, *, axes: Any, eps: float) -> tuple[Any, Any, Any]:
    """PyTorch's batch norm where the axes are its own, else means over the axes."""
    if x.dtype in HALVES:
        wide = standardize(x.float(), weight.float(), bias.float(), axes=axes, eps=eps)
        return wide[0].to(x.dtype), wide[1].to(x.dtype), wide[2].to(x.dtype)
    by_channel = (1, *x.shape[1:2], *[1] * (x.ndim - 2))
    n = x.numel() // max(1, x.shape[1]) if x.ndim > 1 else 0
    if axes == (0, *range(2, x.ndim)) and weight.shape == bias.shape == by_channel and n > 1 and x.dtype not in HALVES:
        mean, var = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
        # with momentum 1 the running statistics become those of the batch
        y, _, inverse = torch.native_batch_norm(x.contiguous(), _flat(weight), _flat(bias), mean, var, True, 1.0, eps)
        y = _not_of_infinity(y, inverse.reshape(by_channel))
        return y, mean.reshape(by_channel), var.mul_((n - 1) / n).reshape(by_channel)
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    lost = centred.mean(axes, keepdim=True)  # by rounding the mean
    centred -= lost
    var = centred.square().mean(axes, keepdim=True)
    return torch.addcmul(bias, centred, inverse_spread(var, eps, torch.sqrt) * weight), mean + lost, var


def standardize_gradient(
    g: Any, x: Any, weight: Any, mean: Any, variance: Any, *, axes: Any, eps: float
) -> tuple[Any, Any, Any]:
    """PyTorch's backward pass of batch norm where the axes are its own, else means over the axes."""
    if x.dtype in HALVES:
        wide = standardize_gradient(*(t.float() for t in (g, x, weight, mean, variance)), axes=axes, eps=eps)
        return wide[0].to(x.dtype), wide[1].to(x.dtype), wide[2].to(x.dtype)
    by_channel = (1, *x.shape[1:2], *[1] * (x.ndim - 2))
    inverse = inverse_spread(variance, eps, torch.sqrt)
    if axes == (0, *range(2, x.ndim)) and weight.shape == by_channel and x.numel():
        flat = (_flat(weight), None, None, _flat(mean), _flat(inverse))
        found = torch.ops.aten.native_batch_norm_backward(
            g.contiguous(), x.contiguous(), *flat, True, eps, [True, True, True]
        )  # fmt: skip
        return found[0], found[1].reshape(by_channel), found[2].reshape(by_channel)
    h = (x - mean) * inverse
    u = g * weight
    by_place = torch.mean(u * h, axes, keepdim=True)
    gx = (u - torch.mean(u, axes, keepdim=True)).addcmul_(h, by_place, value=-1).mul_(inverse)
    return gx, (g * h).sum_to_size(weight.shape), g.sum_to_size(weight.shape).clone()


@in_float32
def rms_norm(x: Any, weight: Any, *, eps: float) -> Any:
    """Half precision in float32, as the sum of squares may overflow where the mean does not."""
    return x * (inverse_spread(x.square().mean(-1, keepdim=True), eps, torch.sqrt) * weight)


KERNELS: dict[str, Kernel] = {
    "standardize": standardize, "standardize_gradient": standardize_gradient, "rms_norm": rms_norm,
    "sum": sum_, "mean": mean, "prod": prod, "max": _over(torch.amax), "min": _over(torch.amin),
    "all": _over(torch.all), "any": _over(torch.any), "argmax": argmax, "argmin": argmin, "sort": sort,
    "sort_values": sort_values, "top_k": top_k, "searchsorted": searchsorted, "cumulative_sum": _scan(torch.cumsum),
    "cumulative_prod": _scan(torch.cumprod), "cumulative_max": _running(torch.cummax),
    "cumulative_min": _running(torch.cummin), "cumulative_logsumexp": cumulative_logsumexp,
    "linear_recurrence": in_float32(linear_recurrence),
    "softmax": _normalised(torch.softmax), "log_softmax": in_float32_on_cpu(_normalised(torch.log_softmax)),
    "layer_norm": layer_norm,
}  # fmt: skip
