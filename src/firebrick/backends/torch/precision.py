"""Half precision done in float32: for kernels whose own float16 or bfloat16 arithmetic rounds too often."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

Kernel = Callable[..., Any]
HALVES = frozenset({torch.float16, torch.bfloat16})


def _widened(kernel: Kernel, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    half = operands[-1].dtype
    return kernel(*(x.float() if x.dtype is half else x for x in operands), **params).to(half)


def in_float32(kernel: Kernel) -> Kernel:
    """A kernel with one result that computes on half-precision operands in float32 and rounds once."""

    @wraps(kernel)
    def run(*operands: Any, **params: Any) -> Any:
        if operands[-1].dtype in HALVES:
            return _widened(kernel, operands, params)
        return kernel(*operands, **params)

    return run


def in_float32_on_cpu(kernel: Kernel) -> Kernel:
    """Like ``in_float32``, but accelerators keep their half-precision kernels, which accumulate in float32."""

    @wraps(kernel)
    def run(*operands: Any, **params: Any) -> Any:
        if operands[-1].dtype in HALVES and operands[-1].device.type == "cpu":
            return _widened(kernel, operands, params)
        return kernel(*operands, **params)

    return run


def plain(kernel: Kernel) -> Kernel:
    """The kernel that these decorators run on operands that are not of half precision."""
    found: Kernel = getattr(kernel, "__wrapped__", kernel)
    return found
