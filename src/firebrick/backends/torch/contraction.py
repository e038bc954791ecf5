"""Matrix products, and convolution with its two adjoints.

float32 stays float32: TF32, which cuDNN would use by default, has 10 bits of fraction. Asymmetric padding, which
PyTorch's convolutions lack, is written out before and cut off after.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.nn import functional, grad

from firebrick.backends.torch.precision import Kernel, in_float32_on_cpu


def _limbs(x: Any) -> list[Any]:
    """Integers as float64 limbs of 16 bits, lowest first; the highest has the sign."""
    wide = x.to(torch.int64)
    count = max(1, x.element_size() // 2)
    low = [((wide >> (16 * i)) & 0xFFFF).double() for i in range(count - 1)]
    return [*low, (wide >> (16 * (count - 1))).double()]


def integer_matmul(x1: Any, x2: Any) -> Any:
    """A wrapping integer product where PyTorch has none: sums of 2^20 products of 16-bit limbs fit into float64."""
    total = torch.zeros((), dtype=torch.int64, device=x1.device)
    most = 1 << 20
    for start in range(0, max(1, x1.shape[-1]), most):
        a, b = _limbs(x1[..., start : start + most]), _limbs(x2[..., start : start + most, :])
        for i, left in enumerate(a):
            for j, right in enumerate(b[: 4 - i]):
                total = total + (torch.matmul(left, right).to(torch.int64) << (16 * (i + j)))
    return total.to(x1.dtype)


# PyTorch's CPU kernels add the products of a thin matrix (few rows or columns) one after the other, those of others in
# several sums at once: the most products of one sum that err by a few units of precision at most
_THIN, _IN_THIN, _IN_OTHERS = 16, 256, 32768


def is_one_product(shape1: tuple[int, ...], shape2: tuple[int, ...], inexact: bool) -> bool:
    """Whether ``matmul`` on the CPU is one call of PyTorch's."""
    (m, k), n = shape1[-2:], shape2[-1]
    return not inexact or k <= (_IN_THIN if m < _THIN or n < _THIN else _IN_OTHERS)


@in_float32_on_cpu
def matmul(x1: Any, x2: Any) -> Any:
    """Matrix product over the last two axes; long sums are cut into blocks, so that errors do not grow with the length."""
    inexact = x1.is_floating_point() or x1.is_complex()
    if x1.device.type != "cpu":
        return torch.matmul(x1, x2) if inexact else integer_matmul(x1, x2)
    (m, k), n = x1.shape[-2:], x2.shape[-1]
    most = _IN_THIN if m < _THIN or n < _THIN else _IN_OTHERS
    if not inexact or k <= most:
        return torch.matmul(x1, x2)
    if m == n == 1:
        return (x1 * x2.mT).sum(-1, keepdim=True)
    blocks = [torch.matmul(a, b) for a, b in zip(x1.split(most, -1), x2.split(most, -2), strict=True)]
    return torch.stack(blocks).sum(0)


@contextmanager
def _exact_cudnn() -> Iterator[None]:
    """cuDNN at float32 precision, choosing deterministic algorithms without timing them."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


def _exact(x: Any) -> Any:
    return _exact_cudnn() if x.device.type == "cuda" else nullcontext()


def _symmetric(padding: Any) -> bool:
    return all(a == b for a, b in padding)


def _padded(x: Any, padding: Any) -> Any:
    return functional.pad(x, [a for pair in reversed(padding) for a in pair])


_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_INPUT = {1: grad.conv1d_input, 2: grad.conv2d_input, 3: grad.conv3d_input}
_WEIGHT = {1: grad.conv1d_weight, 2: grad.conv2d_weight, 3: grad.conv3d_weight}


@in_float32_on_cpu
def conv(x: Any, weight: Any, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Cross-correlation of images with kernels."""
    even = _symmetric(padding)
    image = x if even else _padded(x, padding)
    pads = tuple(a for a, _ in padding) if even else 0
    with _exact(x):
        return _CONV[len(stride)](image, weight, None, stride, pads, dilation, groups)


@in_float32_on_cpu
def conv_input(g: Any, weight: Any, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The adjoint in the images."""
    shape = (g.shape[0], weight.shape[1] * groups)
    if not g.numel() or not weight.numel():
        return g.new_zeros((*shape, *size))
    even = _symmetric(padding)
    whole = (*shape, *(n if even else n + a + b for n, (a, b) in zip(size, padding, strict=True)))
    pads = tuple(a for a, _ in padding) if even else 0
    with _exact(g):
        spread = _INPUT[len(stride)](whole, weight, g, stride, pads, dilation, groups)
    if even:
        return spread
    return spread[(..., *(slice(a, a + n) for n, (a, _) in zip(size, padding, strict=True)))].contiguous()


@in_float32_on_cpu
def conv_weight(x: Any, g: Any, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The adjoint in the weight."""
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    if not g.numel() or not x.numel():
        return g.new_zeros(shape)
    even = _symmetric(padding)
    image = x if even else _padded(x, padding)
    pads = tuple(a for a, _ in padding) if even else 0
    with _exact(x):
        return _WEIGHT[len(stride)](image, shape, g, stride, pads, dilation, groups)


KERNELS: dict[str, Kernel] = {"matmul": matmul, "conv": conv, "conv_input": conv_input, "conv_weight": conv_weight}
