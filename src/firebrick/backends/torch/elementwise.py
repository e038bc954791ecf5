"""Elementwise kernels: PyTorch's own where they mean what the op table says, guarded where they do not.

All take tensors that broadcast, and no parameters (but ``cast``), so each may serve as a fast kernel. A division's
quotient need not be a number of the operands' dtype: floor_divide and remainder compute in the next wider one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from firebrick.backends.torch.memory import TORCH
from firebrick.backends.torch.precision import HALVES, Kernel, in_float32
from firebrick.core.dtypes import DType


def _safe_divisor(x2: Any) -> tuple[Any, Any]:
    """An integer divisor that cannot trap, with 1 for 0 and -1, and where it was -1 (None if unsigned)."""
    if not x2.dtype.is_signed:
        return torch.where(x2 == 0, 1, x2), None
    minus = x2 == -1
    return torch.where((x2 == 0) | minus, 1, x2), minus


def _in_float64(kernel: Kernel, x1: Any, x2: Any) -> Any:
    """``kernel`` on float32 operands, rounded once; MPS has no float64."""
    if x1.dtype is torch.float32 and x1.device.type != "mps":
        return kernel(x1.double(), x2.double()).float()
    return kernel(x1, x2)


@in_float32
def floor_divide(x1: Any, x2: Any) -> Any:
    """Integers: 0 for a divisor of 0, and the least integer divided by -1 wraps."""
    if x1.is_floating_point():
        return _in_float64(torch.floor_divide, x1, x2)
    safe, minus = _safe_divisor(x2)
    out = torch.floor_divide(x1, safe)
    if minus is not None:
        out = torch.where(minus, -x1, out)
    return torch.where(x2 == 0, 0, out)


@in_float32
def remainder(x1: Any, x2: Any) -> Any:
    """Integers: 0 for a divisor of 0; any integer modulo -1 is 0 as modulo 1, so the safe divisor will do."""
    if x1.is_floating_point():
        return _in_float64(_float_remainder, x1, x2)
    return torch.remainder(x1, _safe_divisor(x2)[0])


def _float_remainder(x1: Any, x2: Any) -> Any:
    """PyTorch's CPU kernel gives NaN where the quotient overflows: NumPy computes those elements, exactly."""
    out = torch.remainder(x1, x2)
    if x1.device.type == "cpu" and bool(torch.isnan(out).any()):
        lost = torch.isnan(out) & torch.isfinite(x1) & torch.isfinite(x2) & (x2 != 0)
        if bool(lost.any()):
            a, b = (x.expand(out.shape)[lost].numpy() for x in (x1, x2))
            out[lost] = torch.from_numpy(np.remainder(a, b))
    return out


def sign(x: Any) -> Any:
    """PyTorch's sign of NaN is 0; the table's is NaN."""
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


def sigmoid(x: Any) -> Any:
    """PyTorch's 1 / (1 + exp(-x)) is 0 where exp(-x) overflows, though the result is subnormal: it is exp(x) there."""
    out = torch.sigmoid(x)
    # one cheap pass finds that there is nothing to mend (False for NaN too); elsewhere it would wait for the device
    if x.device.type == "cpu" and x.numel() and bool(x.amin() >= -80.0):
        return out
    return torch.where(x < -80.0, torch.exp(x), out)


_HAS_MKL = torch.backends.mkl.is_available()


@in_float32
def erf(x: Any) -> Any:
    """Without MKL, PyTorch's float32 kernel for x86 has an absolute error of 1e-7, far too much near 0."""
    if x.dtype is torch.float32 and x.device.type == "cpu" and not _HAS_MKL:
        return torch.erf(x.double()).float()
    return torch.erf(x)


def clip(x: Any, low: Any, high: Any) -> Any:
    """min(max(x, low), high), NaN where any of the three is."""
    return torch.minimum(torch.maximum(x, low), high)


def _whole(kernel: Any) -> Kernel:
    """A rounding kernel under which integers stay as they are."""
    return lambda x: kernel(x) if x.is_floating_point() else x.clone()


_BIT_63 = -(2**63)


def _float_to_int(x: Any, dtype: DType) -> Any:
    """Truncates; out of range saturates, NaN becomes 0. PyTorch leaves both undefined."""
    info = np.iinfo(dtype.np)
    low, high = float(info.min), float(info.max) + (1.0 if info.bits < 64 else 0.0)
    wide = x.float() if x.dtype in HALVES else x
    inside = (wide > low - 1) & (wide < high)
    kept = torch.where(inside, wide, 0.0)
    if dtype.name == "uint64":
        top = kept >= 2.0**63
        bits = torch.where(top, kept - 2.0**63, kept).to(torch.int64)
        bits = torch.where(top, bits + _BIT_63, bits).masked_fill(wide >= high, -1)
        return bits.masked_fill(wide <= 0.0, 0).view(torch.uint64)
    whole = kept.to(torch.int64 if info.bits > 16 else torch.int32)
    whole = whole.masked_fill(wide >= high, int(info.max)).masked_fill(wide <= low, int(info.min))
    return whole.to(TORCH[dtype])


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
    "maximum": torch.maximum, "minimum": torch.minimum, "negative": torch.negative, "exp": torch.exp,
    "log": torch.log, "log1p": torch.log1p, "sqrt": torch.sqrt, "sin": torch.sin, "cos": torch.cos,
    "tanh": torch.tanh,
    "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le, "greater": torch.gt,
    "greater_equal": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "logical_not": torch.logical_not,
}  # fmt: skip

PLAIN: dict[str, Kernel] = {
    **INTO,
    "floor_divide": floor_divide, "remainder": remainder, "pow": torch.pow, "abs": torch.abs, "sign": sign,
    "expm1": torch.expm1, "sigmoid": sigmoid, "erf": erf, "relu": torch.relu, "floor": _whole(torch.floor),
    "ceil": _whole(torch.ceil), "round": _whole(torch.round), "isnan": torch.isnan, "isinf": torch.isinf,
    "isfinite": torch.isfinite, "where": torch.where, "clip": clip,
}  # fmt: skip

KERNELS: dict[str, Kernel] = {**PLAIN, "cast": cast}
