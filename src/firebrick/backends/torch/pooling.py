"""2-D pooling. PyTorch's kernels serve where the padding is even and small; NaN and odd paddings take a loop over
the window's elements, each a strided slice of the image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from firebrick.backends.torch.precision import Kernel, in_float32
from firebrick.ops.convolution import out_size


def _native(kernel: Any, padding: Any) -> bool:
    """Whether PyTorch's pooling takes this padding: equal on both sides, at most half the window."""
    return all(a == b and 2 * a <= k for (a, b), k in zip(padding, kernel, strict=True))


def _padded(x: Any, padding: Any, value: float) -> Any:
    (top, bottom), (left, right) = padding
    return functional.pad(x, (left, right, top, bottom), value=value)


def _elements(x: Any, hw: Any, kernel: Any, stride: Any) -> Iterator[tuple[int, int, Any]]:
    """For each element (i, j) of the window: the part of padded images that it meets."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = slice(i, i + stride[0] * (hw[0] - 1) + 1, stride[0])
            yield i, j, x[:, :, rows, j : j + stride[1] * (hw[1] - 1) + 1 : stride[1]]


def max_pool2d_by_element(x: Any, *, kernel: Any, stride: Any, padding: Any) -> tuple[Any, Any]:
    """Any padding; the first maximum stays, or the first NaN."""
    (top, _), (left, _) = padding
    h, w = x.shape[2:]
    hw = [out_size(x.shape[i + 2], kernel[i], stride[i], padding[i], 1) for i in (0, 1)]
    rows = torch.arange(hw[0], device=x.device)[:, None] * stride[0] - top
    cols = torch.arange(hw[1], device=x.device)[None, :] * stride[1] - left
    low = -float("inf")
    best = x.new_full((*x.shape[:2], *hw), low)
    place = torch.full(best.shape, -1, dtype=torch.int64, device=x.device)
    for i, j, part in _elements(_padded(x, padding, low), hw, kernel, stride):
        r, c = rows + i, cols + j
        wins = (part > best) | (place < 0) | (torch.isnan(part) & ~torch.isnan(best))
        wins = wins & (r >= 0) & (r < h) & (c >= 0) & (c < w)
        best = torch.where(wins, part, best)
        place = torch.where(wins, r * w + c, place)
    return best, place


def max_pool2d(x: Any, *, kernel: Any, stride: Any, padding: Any) -> tuple[Any, Any]:
    """PyTorch's kernel keeps the last NaN of a window; the table says the first."""
    if _native(kernel, padding):
        pads = tuple(a for a, _ in padding)
        values, at = functional.max_pool2d(x, kernel, stride, pads, return_indices=True)
        if not bool(torch.isnan(values).any()):
            return values, at
    return max_pool2d_by_element(x, kernel=kernel, stride=stride, padding=padding)


@in_float32
def avg_pool2d(x: Any, *, kernel: Any, stride: Any, padding: Any) -> Any:
    """Padding counts as zeros."""
    if _native(kernel, padding):
        return functional.avg_pool2d(x, kernel, stride, tuple(a for a, _ in padding), False, True)
    return functional.avg_pool2d(_padded(x, padding, 0.0), kernel, stride)


@in_float32
def avg_pool2d_input(g: Any, *, size: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    """Each window's share, added to the elements it came from."""
    (top, bottom), (left, right) = padding
    out = g.new_zeros((*g.shape[:2], size[0] + top + bottom, size[1] + left + right))
    share = g / (kernel[0] * kernel[1])
    for _, _, part in _elements(out, g.shape[2:], kernel, stride):
        part.add_(share)
    return out[:, :, top : top + size[0], left : left + size[1]].contiguous()


KERNELS: dict[str, Kernel] = {
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "avg_pool2d_input": avg_pool2d_input,
}
