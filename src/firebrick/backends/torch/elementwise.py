"""Elementwise kernels: PyTorch's own where they mean what the op table says, guarded where they do not.

All take tensors that broadcast, and no parameters (but ``cast``), so each may serve as a fast kernel. A division's
quotient need not be a number of the operands' dtype: floor_divide and remainder compute in the next wider one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from firebrick.backends.torch import special
from firebrick.backends.torch.memory import TORCH
from firebrick.backends.torch.precision import HALVES, Kernel, in_float32
from firebrick.core.dtypes import DType, bfloat16, float8_e4m3fn, float8_e5m2, float16


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


_LAST = 709.0
"""Beyond, PyTorch's float64 kernels of the CPU find that half an exponential overflows a little too early."""


def _hyperbolic(kernel: Kernel) -> Kernel:
    """For functions whose vectorised kernels on the CPU halve an exponential that has overflowed already: float32 in float64,
    and in float64 the square of the root of that exponential."""

    def run(x: Any) -> Any:
        if x.device.type != "cpu" or x.is_complex():
            return kernel(x)
        if x.dtype is torch.float32:
            return kernel(x.double()).float()
        found = kernel(x)
        root = torch.exp(x.abs() * 0.5)
        return torch.where(x.abs() > _LAST, torch.copysign(root * 0.5 * root, found), found)

    return run


@in_float32
def floor_divide(x1: Any, x2: Any) -> Any:
    """Integers: 0 for a divisor of 0, and the least integer divided by -1 wraps."""
    if x1.is_floating_point():
        return _in_float64(_float_floor_divide, x1, x2)
    safe, minus = _safe_divisor(x2)
    out = torch.floor_divide(x1, safe)
    if minus is not None:
        out = torch.where(minus, -x1, out)
    return torch.where(x2 == 0, 0, out)


def _float_floor_divide(x1: Any, x2: Any) -> Any:
    """PyTorch's, but for an infinite operand, of which it makes what Python does."""
    infinite = torch.isinf(x1) | torch.isinf(x2)
    return torch.where(infinite, torch.floor(x1 / x2), torch.floor_divide(x1, x2))


@in_float32
def remainder(x1: Any, x2: Any) -> Any:
    """Integers: 0 for a divisor of 0; any integer modulo -1 is 0 as modulo 1, so the safe divisor will do."""
    if x1.is_floating_point():
        return _in_float64(_float_remainder, x1, x2)
    return torch.remainder(x1, _safe_divisor(x2)[0])


def _float_remainder(x1: Any, x2: Any) -> Any:
    """PyTorch's, but for the sign of a zero, which is that of x2.

    Its CPU kernel gives NaN where the quotient overflows: NumPy computes those elements, exactly.
    """
    out = torch.remainder(x1, x2)
    out = torch.where(out == 0, torch.copysign(out, x2), out)
    if x1.device.type == "cpu" and bool(torch.isnan(out).any()):
        lost = torch.isnan(out) & torch.isfinite(x1) & torch.isfinite(x2) & (x2 != 0)
        if bool(lost.any()):
            a, b = (x.expand(out.shape)[lost].numpy() for x in (x1, x2))
            out[lost] = torch.from_numpy(np.remainder(a, b))
    return out


def _zero_like(x: Any) -> Any:
    """0 with the sign of x; +0 for NaN."""
    return torch.where(torch.isnan(x), 0.0, torch.copysign(torch.zeros_like(x), x))


def _by_parts(kernel: Kernel) -> Kernel:
    """A kernel on real and imaginary parts. PyTorch's own complex kernels multiply what they add by 1 + 0j, which makes NaN of
    infinite parts, and those that negate subtract from 0, which makes +0 of 0."""

    def run(*operands: Any) -> Any:
        out = kernel(*map(torch.view_as_real, operands))
        return torch.view_as_complex(out if out.stride(-1) == 1 else out.contiguous())

    return run


def _complex_pow(x1: Any, x2: Any) -> Any:
    """PyTorch's, but for an exponent or a base of 0."""
    nan = torch.full((), float("nan"), dtype=x1.real.dtype, device=x1.device)
    infinite = torch.complex(torch.where(x2.real < 0, float("inf"), nan), nan)
    of_zero = torch.where(x2.real > 0, 0.0, infinite)
    return torch.where(x2 == 0, 1.0, torch.where(x1 == 0, of_zero, torch.pow(x1, x2)))


def relu(x: Any) -> Any:
    """max(x, 0); NaN stays, and -0 becomes 0, which PyTorch's relu keeps."""
    return torch.threshold(x, 0, 0)


def _complex_divide(x1: Any, x2: Any) -> Any:
    """PyTorch's, with operands next to the limits brought into a range in which its products and sums have room."""
    if x1.device.type == "cpu" and _has_room(x1) and _has_room(x2):  # elsewhere to ask would wait for the device
        return torch.divide(x1, x2)
    first, second = _into_range(x1), _into_range(x2)
    return _times(torch.divide(_times(x1, first), _times(x2, second)), second / first)


def _has_room(x: Any) -> bool:
    """Whether no element is next to the limits of its dtype, nor 0."""
    if not x.numel():
        return True
    real = torch.finfo(x.dtype)  # of a complex dtype's parts
    low, high = (v.item() for v in torch.aminmax(torch.view_as_real(x).abs().amax(-1)))
    return bool(low >= real.smallest_normal / real.eps**2 and high <= real.max / 4)


def _into_range(x: Any) -> Any:
    """A power of 2 for each complex element, as the reference's."""
    real = torch.finfo(x.dtype)
    size = torch.maximum(x.real.abs(), x.imag.abs())
    small = (size < real.smallest_normal / real.eps**2) & (size > 0)
    factor = torch.ones_like(size).masked_fill(size > real.max / 4, 0.25)
    return factor.masked_fill(small, real.eps**-2)


def _times(x: Any, factor: Any) -> Any:
    """Complex x times a real factor, part by part."""
    return torch.complex(x.real * factor, x.imag * factor)


def _complex_expm1(x: Any) -> Any:
    """PyTorch's is NaN where one of the functions that it is made of is infinite or NaN."""
    out = torch.expm1(x)
    out = torch.complex(out.real + 0.0, out.imag)  # the standard has 0 + 0j at -0 + 0j
    near = (x.real.abs() < 40.0) & torch.isfinite(x.imag)
    if x.device.type == "cpu" and bool(near.all()):
        return out
    far = torch.exp(x)
    return torch.where(near, out, torch.complex(far.real - 1.0, far.imag))  # not far - 1, which makes +0 of an imaginary -0


def _complex_log1p(x: Any) -> Any:
    """As the reference; PyTorch's is NaN at some infinities."""
    re, im = x.real, x.imag
    moved = torch.log(torch.complex(re + 1.0, im))
    near = x.abs() < 0.5
    small = torch.where(near, re * (re + 2.0) + im * im, 0.0)
    return torch.complex(torch.where(near, torch.log1p(small) / 2.0, moved.real), moved.imag)


def _complex_tan(x: Any) -> Any:
    """-i · tanh(i · x)."""
    out = torch.tan(x)
    return torch.complex(torch.where(torch.isinf(x.imag), _zero_like(x.real), out.real), out.imag)


def _complex_tanh(x: Any) -> Any:
    """At ∞ + bj, PyTorch's 0 has the sign of sin(2b), the table's that of b."""
    out = torch.tanh(x)
    return torch.complex(out.real, torch.where(torch.isinf(x.real), _zero_like(x.imag), out.imag))


def _complex_acos(x: Any) -> Any:
    """By acosh, whose parts are those of acos, turned: on the CPU, PyTorch's acos of complex128 loses small parts."""
    turned = torch.acosh(x)
    return torch.complex(turned.imag.abs(), torch.copysign(turned.real, -x.imag))


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


def gelu(x: Any) -> Any:
    """PyTorch's own, whose float32 kernel squares x: where that might overflow, the result is x itself."""
    out = functional.gelu(x)
    # one cheap pass finds that there is nothing to mend (False for NaN too); elsewhere it would wait for the device
    if x.device.type == "cpu" and (not x.numel() or bool(x.amax() <= 1e4)):
        return out
    return torch.where(x > 1e4, x, out)


def gelu_gradient(g: Any, x: Any) -> Any:
    """PyTorch's own kernel of gelu's backward pass."""
    return torch.ops.aten.gelu_backward(g, x, approximate="none")


def _shift(kernel: Any, out_of_width: Any) -> Kernel:
    """A shift under which amounts that are negative or too large, undefined in C, shift everything out."""

    def run(x1: Any, x2: Any) -> Any:
        width = 8 * x1.element_size()
        beyond = (x2 < 0) | (x2 >= width)
        shifted = kernel(x1, torch.where(beyond, 0, x2))
        return torch.where(beyond, out_of_width(x1), shifted)

    return run


def nextafter(x1: Any, x2: Any, *, dtype: DType) -> Any:
    """Half precision by its bits, in which neighbours of one sign are neighbouring integers."""
    if x1.dtype not in HALVES:
        return torch.nextafter(x1, x2)
    x1, x2 = torch.broadcast_tensors(x1, x2)
    bits = x1.contiguous().view(torch.int16)
    away = (x1 < x2) == (x1 > 0)
    stepped = torch.where(away, bits + 1, bits - 1).view(x1.dtype)
    least = torch.where(x2 > 0, 1, -32767).to(torch.int16).view(x1.dtype)
    moved = torch.where(x1 == 0, least, stepped)
    nan = torch.isnan(x1) | torch.isnan(x2)
    return torch.where(nan, float("nan"), torch.where(x1 == x2, x2, moved))


def _complex(re: Any, im: Any) -> Any:
    return torch.complex(re.float(), im.float()) if re.dtype in HALVES else torch.complex(re, im)


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


_NARROW = frozenset({float16, bfloat16, float8_e4m3fn, float8_e5m2})
_WIDE = frozenset({torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64})
_BYTES = frozenset({TORCH[float8_e4m3fn], TORCH[float8_e5m2]})
_E4M3_TOP = 464.0  # numbers past this, half a step above the largest, have no e4m3fn


def _to_odd(x: Any) -> Any:
    """float64 or integers as float32, rounded to odd where inexact, so that the next rounding is as if it were the first
    (``core.rounding``)."""
    if x.dtype in (torch.int64, torch.uint64):
        i = x.view(torch.int64)  # PyTorch has no shifts of unsigned integers
        high = i >> 12 if x.dtype is torch.int64 else (i >> 12) & (2**52 - 1)
        kept = (high | ((i & 4095) != 0)).double() * 4096.0
        x = torch.where((i >= -(2**52) if x.dtype is torch.int64 else i >= 0) & (i < 2**52), i.double(), kept)
    wide = x.double()
    near = wide.float()
    back = near.double()
    bits = near.view(torch.int32) - (back.abs() > wide.abs()).int()
    return (bits | ((back != wide) & (wide == wide)).int()).view(torch.float32)


def _to_bytes(x: Any, dtype: DType) -> Any:
    """An 8-bit float, by way of float32. PyTorch's e4m3fn saturates; the table's overflows to NaN."""
    wide = x.float()
    out = wide.to(TORCH[dtype])
    if dtype is float8_e4m3fn:
        bits = out.view(torch.uint8)
        lost = torch.where(torch.signbit(wide), 0xFF, 0x7F).to(torch.uint8)
        out = torch.where(wide.abs() > _E4M3_TOP, lost, bits).view(out.dtype)
    return out


def cast(x: Any, *, dtype: DType) -> Any:
    """A copy as another dtype."""
    to = TORCH[dtype]
    if x.dtype is to:
        return x.clone()
    if dtype.kind == "bool":
        return x.to(torch.bool)
    if dtype.is_integer and x.dtype in _BYTES:
        x = x.float()
    if dtype in _NARROW and x.dtype in _WIDE:
        x = _to_odd(x)
    if x.is_floating_point() and dtype.is_integer:
        return _float_to_int(x, dtype)
    if dtype.kind == "storage":
        return _to_bytes(x, dtype)
    if x.dtype in _BYTES:
        x = x.float()
    return x.to(to, copy=True)


_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def where(condition: Any, x1: Any, x2: Any) -> Any:
    """x1 where condition holds, else x2.

    PyTorch's own kernel branches at each element on the CPU, which a random mask makes five times as slow as a product; a
    choice against 0 (dropout, its gradient, that of relu) is therefore made by a mask of bits there, to the same bits.
    """
    if x1.device.type == "cpu" and x1.dtype in _BITS:
        if x2.ndim == 0 and x1.shape == condition.shape and _is_zero(x2):
            return _masked(x1, condition)
        if x1.ndim == 0 and x2.shape == condition.shape and _is_zero(x1):
            return _masked(x2, ~condition)
    return torch.where(condition, x1, x2)


def _is_zero(x: Any) -> bool:
    """Whether a 0-d tensor is +0, whose bits are all 0."""
    value = x.item()
    return value == 0 and not np.signbit(value)


def _masked(x: Any, keep: Any) -> Any:
    bits = _BITS[x.dtype]
    return keep.to(bits).neg_().bitwise_and_(x.view(bits)).view(x.dtype)


# kernels that are PyTorch's own functions; those of INTO also write into ``out=``
INTO: dict[str, Kernel] = {
    "add": torch.add, "subtract": torch.subtract, "multiply": torch.multiply, "divide": torch.divide,
    "maximum": torch.maximum, "minimum": torch.minimum, "negative": torch.negative, "exp": torch.exp,
    "log": torch.log, "log1p": torch.log1p, "log2": torch.log2, "log10": torch.log10, "sqrt": torch.sqrt, "sin": torch.sin,
    "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "atan2": torch.atan2,
    "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh,
    "atanh": torch.atanh, "copysign": torch.copysign, "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor, "bitwise_invert": torch.bitwise_not,
    "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le, "greater": torch.gt,
    "greater_equal": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "logical_not": torch.logical_not,
}  # fmt: skip

PLAIN: dict[str, Kernel] = {
    **INTO,
    "floor_divide": floor_divide, "remainder": remainder, "pow": torch.pow, "abs": torch.abs, "sign": sign,
    "expm1": torch.expm1, "sigmoid": sigmoid, "erf": erf, "relu": relu, "floor": _whole(torch.floor),
    "ceil": _whole(torch.ceil), "trunc": _whole(torch.trunc), "hypot": in_float32(torch.hypot),
    "sinh": in_float32(_hyperbolic(torch.sinh)), "cosh": in_float32(_hyperbolic(torch.cosh)),
    "logaddexp": in_float32(torch.logaddexp), "gelu": in_float32(gelu), "gelu_gradient": in_float32(gelu_gradient),
    "bitwise_left_shift": _shift(torch.bitwise_left_shift, torch.zeros_like),
    "bitwise_right_shift": _shift(torch.bitwise_right_shift, lambda x: torch.where(x < 0, -1, 0).to(x.dtype)),
    "real": lambda x: x.real.clone(), "imag": lambda x: x.imag.clone(), "conj": torch.conj_physical, "complex": _complex,
    "round": _whole(torch.round), "isnan": torch.isnan, "isinf": torch.isinf,
    "isfinite": torch.isfinite, "where": where, "clip": clip, **special.PLAIN,
}  # fmt: skip

# replaces these if the operand is complex
_OF_COMPLEX: dict[str, Kernel] = {
    "add": _by_parts(torch.add), "subtract": _by_parts(torch.subtract), "negative": _by_parts(torch.negative),
    "pow": _complex_pow, "divide": _complex_divide, "expm1": _complex_expm1,
    "log1p": _complex_log1p, "tan": _complex_tan, "tanh": _complex_tanh, "acos": _complex_acos,
}  # fmt: skip


def plain(name: str, plane: bool) -> Kernel | None:
    """The kernel of ``PLAIN`` on real operands, or on complex ones (``plane``)."""
    return (plane and _OF_COMPLEX.get(name)) or PLAIN.get(name)


def into(name: str, plane: bool) -> Kernel | None:
    """The same of ``INTO``."""
    return None if plane and name in _OF_COMPLEX else INTO.get(name)


def _of_either(of_real: Kernel, of_complex: Kernel) -> Kernel:
    return lambda *xs: of_complex(*xs) if xs[0].is_complex() else of_real(*xs)


KERNELS: dict[str, Kernel] = {
    **PLAIN, **{name: _of_either(PLAIN[name], kernel) for name, kernel in _OF_COMPLEX.items()},
    "cast": cast, "nextafter": nextafter,
}  # fmt: skip
