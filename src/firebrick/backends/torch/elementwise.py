"""Elementwise kernels: PyTorch's own where they mean what the op table says, guarded where they do not.

All take tensors that broadcast, and no parameters (but ``cast``), so each may serve as a fast kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from firebrick.backends.torch.memory import TORCH
from firebrick.backends.torch.precision import HALVES, Kernel, in_float32
from firebrick.core.dtypes import DType


def _safe_divisor(x2: Any) -> tuple[Any, Any]:
    """An integer divisor that cannot trap, 1 in place of 0 and -1, and where it was -1 (None for unsigned integers)."""
    if not x2.dtype.is_signed:
        return torch.where(x2 == 0, 1, x2), None
    minus = x2 == -1
    return torch.where((x2 == 0) | minus, 1, x2), minus


@in_float32
def floor_divide(x1: Any, x2: Any) -> Any:
    """Integers: 0 for a divisor of 0, and the least integer divided by -1 wraps."""
    if x1.is_floating_point():
        return torch.floor_divide(x1, x2)
    safe, minus = _safe_divisor(x2)
    out = torch.floor_divide(x1, safe)
    if minus is not None:
        out = torch.where(minus, -x1, out)
    return torch.where(x2 == 0, 0, out)


@in_float32
def remainder(x1: Any, x2: Any) -> Any:
    """Integers: 0 for a divisor of 0 (any integer modulo ±1 is 0, so the replaced divisor needs no second look)."""
    return torch.remainder(x1, x2) if x1.is_floating_point() else torch.remainder(x1, _safe_divisor(x2)[0])


def sign(x: Any) -> Any:
    """PyTorch's sign of NaN is 0; the table's is NaN."""
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) is 0 where exp(-x) overflows though the result is a subnormal number: there it equals exp(x)."""
    return torch.where(x < -80.0, torch.exp(x), torch.sigmoid(x))


def clip(x: Any, low: Any, high: Any) -> Any:
    """min(max(x, low), high), NaN where any of the three is."""
    return torch.minimum(torch.maximum(x, low), high)


def _whole(kernel: Any) -> Kernel:
    """A rounding kernel under which integers stay as they are."""
    return lambda x: kernel(x) if x.is_floating_point() else x.clone()


def _float_to_int(x: Any, dtype: DType) -> Any:
    """Truncates; out of range saturates, NaN becomes 0. PyTorch leaves both undefined."""
    info = np.iinfo(dtype.np)
    low, high = float(info.min), float(info.max) + (1.0 if info.bits < 64 else 0.0)
    wide = x.float() if x.dtype in HALVES else x
    inside = (wide > low - 1) & (wide < high)
    kept = torch.where(inside, wide, 0.0)
    if dtype.name == "uint64":
        top = kept >= 2.0**63
        signed = torch.where(top, kept - 2.0**63, kept).to(torch.int64)
        whole = torch.where(top, signed ^ info_min64(), signed)
        whole = whole.masked_fill(wide >= high, -1)
        return whole.view(torch.uint64)
    whole = kept.to(torch.int64 if info.bits > 16 else torch.int32)
    return whole.masked_fill(wide >= high, int(info.max)).masked_fill(wide <= low, int(info.min)).to(TORCH[dtype])


def info_min64() -> int:
    """The bit pattern of 2^63 as a signed integer."""
    return int(np.iinfo(np.int64).min)


def cast(x: Any, *, dtype: DType) -> Any:
    """A copy as another dtype."""
    to = TORCH[dtype]
    if x.dtype is to:
        return x.clone()
    if dtype.kind == "bool":
        return x.to(torch.bool)
    if x.is_complex() and dtype.kind != "complex":
        x = x.real
    if x.is_floating_point() and dtype.is_integer:
        return _float_to_int(x, dtype)
    return x.to(to, copy=True)


# kernels that are PyTorch's own functions; those of INTO also write into ``out=``
INTO: dict[str, Kernel] = {
    "add": torch.add, "subtract": torch.subtract, "multiply": torch.multiply, "divide": torch.divide,
    "maximum": torch.maximum, "minimum": torch.minimum, "negative": torch.negative, "exp": torch.exp, "log": torch.log,
    "log1p": torch.log1p, "sqrt": torch.sqrt, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh,
    "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le, "greater": torch.gt,
    "greater_equal": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "logical_not": torch.logical_not,
}  # fmt: skip

PLAIN: dict[str, Kernel] = {
    **INTO,
    "floor_divide": floor_divide, "remainder": remainder, "pow": torch.pow, "abs": torch.abs, "sign": sign,
    "expm1": torch.expm1, "sigmoid": sigmoid, "erf": torch.erf, "relu": torch.relu, "floor": _whole(torch.floor),
    "ceil": _whole(torch.ceil), "round": _whole(torch.round), "isnan": torch.isnan, "isinf": torch.isinf,
    "isfinite": torch.isfinite, "where": torch.where, "clip": clip,
}  # fmt: skip

KERNELS: dict[str, Kernel] = {**PLAIN, "cast": cast}
