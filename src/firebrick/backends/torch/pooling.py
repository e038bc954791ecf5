"""Pooling. PyTorch's kernels serve where the padding is even and small; NaN and odd paddings take a loop over the window's
elements, each a strided slice of the images."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from firebrick.backends.torch.precision import Kernel, in_float32
from firebrick.backends.torch.structure import scatter_add
from firebrick.ops.convolution import elements
from firebrick.ops.declare import size_of
from firebrick.ops.pooling import image_places

_MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVG = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def _native(kernel: Any, padding: Any) -> bool:
    """Whether PyTorch's pooling takes this padding: equal on both sides, at most half the window."""
    return all(a == b and 2 * a <= k for (a, b), k in zip(padding, kernel, strict=True))


def _padded(x: Any, padding: Any, value: float) -> Any:
    return functional.pad(x, [a for pair in reversed(padding) for a in pair], value=value)


def max_pool_by_element(x: Any, *, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any]:
    """Any padding; the first maximum stays, or the first NaN."""
    xp = _padded(x, padding, -float("inf"))
    best: Any = None
    position: Any = None
    for part, inside, where in image_places(x.shape[2:], kernel, stride, padding, dilation):
        each = xp[part]
        if best is None:
            best = torch.full_like(each, -float("inf"))
            position = torch.full(each.shape, -1, dtype=torch.int64, device=x.device)
        wins = (each > best) | (position < 0) | (torch.isnan(each) & ~torch.isnan(best))
        wins = wins & torch.asarray(inside, device=x.device)
        best = torch.where(wins, each, best)
        position = torch.where(wins, torch.asarray(where, device=x.device), position)
    return best, position


def max_pool(x: Any, *, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any]:
    """PyTorch's kernel keeps the last NaN of a window; the op table requires the first."""
    if _native(kernel, padding) and x.numel():
        pads = tuple(a for a, _ in padding)
        values, at = _MAX[len(kernel)](x, kernel, stride, pads, dilation, return_indices=True)
        if not bool(torch.isnan(values).any()):
            return values, at
    return max_pool_by_element(x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)


def max_pool_gradient(g: Any, at: Any, *, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Each cotangent, added at its position of the flattened image, if that lies in its window."""
    inside, rest = True, at
    for i in range(len(size) - 1, -1, -1):
        line = torch.arange(at.shape[2 + i], device=at.device) * stride[i] - padding[i][0]
        offset = rest % size[i] - line.reshape([-1 if j == i else 1 for j in range(len(size))])
        inside = (offset >= 0) & (offset < kernel[i] * dilation[i]) & (offset % dilation[i] == 0) & inside
        rest = torch.div(rest, size[i], rounding_mode="floor")
    inside = inside & (rest == 0)
    flat = (*g.shape[:2], size_of(g.shape[2:]))
    images = g.new_zeros((*g.shape[:2], size_of(size)))
    positions = torch.where(inside, at, 0).reshape(flat)
    return scatter_add(images, positions, torch.where(inside, g, 0).reshape(flat), axis=2).reshape(*g.shape[:2], *size)


@in_float32
def avg_pool(x: Any, *, kernel: Any, stride: Any, padding: Any) -> Any:
    """Padding counts as zeros."""
    pool = _AVG[len(kernel)]
    if not x.numel():
        return pool(_padded(x.new_zeros((1, 1, *x.shape[2:])), padding, 0.0), kernel, stride).expand(
            *x.shape[:2], *[-1] * len(kernel)
        )
    # PyTorch refuses an image that is smaller than the window without its padding
    if _native(kernel, padding) and all(n >= k for n, k in zip(x.shape[2:], kernel, strict=True)):
        return pool(x, kernel, stride, tuple(a for a, _ in padding), False, True)
    return pool(_padded(x, padding, 0.0), kernel, stride)


@in_float32
def avg_pool_input(g: Any, *, size: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    """Each window's share, added to the elements it came from."""
    out = g.new_zeros((*g.shape[:2], *(n + a + b for n, (a, b) in zip(size, padding, strict=True))))
    share = g / size_of(kernel)
    for _, part in elements(kernel, g.shape[2:], stride, (1,) * len(kernel)):
        out[part].add_(share)
    return out[(..., *(slice(a, a + n) for n, (a, _) in zip(size, padding, strict=True)))].contiguous()


KERNELS: dict[str, Kernel] = {
    "max_pool": max_pool, "max_pool_gradient": max_pool_gradient, "avg_pool": avg_pool, "avg_pool_input": avg_pool_input,
}  # fmt: skip
