"""Activation functions of neural networks.

All take floating tensors of any shape and are stable: no overflow inside, full precision in the tails. At a kink each takes
the slope that PyTorch takes, which the docstring states where it is not plain.
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.core.bind import unary
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import in_float32
from firebrick.core.settings import number
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import (
    abs,
    expm1,
    logaddexp,
    sigmoid,
    sign,
    tanh,
    where,
)
from firebrick.functions.movement import reshape
from firebrick.ops import OPS

_GELU = OPS["gelu"]
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _check(where_: str, **operands: Any) -> None:
    for name, x in operands.items():
        check_operand(where_, x, "floating", name)
    check_devices(where_, **operands)


def _positive(where_: str, name: str, value: Any) -> None:
    if not number(where_, name, value) > 0:
        raise ConfigError(f"{where_}: {name} is > 0", f"{name}={value!r}", "pass a positive number")


@in_float32
def gelu(x: Tensor, /, *, approximate: str = "none") -> Tensor:
    """x · Φ(x), with Φ the normal distribution function: 0.5 · x · (1 + erf(x / √2)).

    Args:
        x: Floating tensor of any shape.
        approximate: "none", or "tanh" for 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))).

    Source: Hendrycks, Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415.

    Example:
        >>> import firebrick as fb
        >>> fb.gelu(fb.asarray([0.0])).tolist()
        [0.0]
    """
    if approximate == "none":
        return unary(_GELU, x)  # type: ignore[no-any-return]
    if approximate != "tanh":
        raise ConfigError('gelu: approximate is "none" or "tanh"', repr(approximate), "use one of these")
    _check("gelu", x=x)
    return x * 0.5 * (tanh(x * (x * x * 0.044715 + 1.0) * math.sqrt(2 / math.pi)) + 1.0)


@in_float32
def silu(x: Tensor, /) -> Tensor:
    """x · sigmoid(x).

    Args:
        x: Floating tensor of any shape.

    Example:
        >>> import firebrick as fb
        >>> fb.silu(fb.asarray([0.0])).tolist()
        [0.0]
    """
    _check("silu", x=x)
    return x * sigmoid(x)


@in_float32
def softplus(x: Tensor, /, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta · x)) / beta. It needs no threshold beyond which it is linear: it is stable everywhere.

    Args:
        x: Floating tensor of any shape.
        beta: > 0.

    Example:
        >>> import firebrick as fb
        >>> fb.softplus(fb.asarray([1000.0])).tolist()
        [1000.0]
    """
    _check("softplus", x=x)
    _positive("softplus", "beta", beta)
    return logaddexp(x, 0.0) if beta == 1 else logaddexp(x * beta, 0.0) / beta


@in_float32
def log_sigmoid(x: Tensor, /) -> Tensor:
    """log(sigmoid(x)) = -log(1 + exp(-x)).

    Args:
        x: Floating tensor of any shape.

    Example:
        >>> import firebrick as fb
        >>> fb.log_sigmoid(fb.asarray([-1000.0])).tolist()
        [-1000.0]
    """
    _check("log_sigmoid", x=x)
    return -logaddexp(-x, 0.0)


@in_float32
def mish(x: Tensor, /) -> Tensor:
    """x · tanh(softplus(x)).

    Args:
        x: Floating tensor of any shape.

    Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", arXiv:1908.08681.

    Example:
        >>> import firebrick as fb
        >>> fb.mish(fb.asarray([0.0])).tolist()
        [0.0]
    """
    _check("mish", x=x)
    return x * tanh(softplus(x))


@answers_arguments
def leaky_relu(x: Tensor, /, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, else negative_slope · x; at 0 the slope is ``negative_slope``.

    Args:
        x: Floating tensor.
        negative_slope: Slope where x is negative.

    Example:
        >>> import firebrick as fb
        >>> fb.leaky_relu(fb.asarray([-2.0, 2.0]), negative_slope=0.5).tolist()
        [-1.0, 2.0]
    """
    _check("leaky_relu", x=x)
    negative_slope = number("leaky_relu", "negative_slope", negative_slope)
    return where(x > 0.0, x, x * negative_slope)


@answers_arguments
def prelu(x: Tensor, weight: Tensor, /) -> Tensor:
    """x where it is positive, else weight · x, with a learned weight for all channels or one each.

    Args:
        x: Floating tensor [batch, channels, …], or of any shape with one weight.
        weight: Tensor [channels] or [1].

    Source: He et al., "Delving Deep into Rectifiers", arXiv:1502.01852.

    Example:
        >>> import firebrick as fb
        >>> fb.prelu(fb.asarray([-2.0, 2.0]), fb.asarray([0.25])).tolist()
        [-0.5, 2.0]
    """
    _check("prelu", x=x, weight=weight)
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.ndim > 1 or not weight.size or weight.size not in (1, channels):
        raise ShapeError(
            f"prelu: weight holds 1 number or one for each of the {channels} channels, axis 1 of x",
            f"{describe('x', x)} and {describe('weight', weight)}",
            "give weight the shape (1,) or (channels,)",
        )
    shape = (-1,) + (1,) * (x.ndim - 2) if weight.size > 1 else ()
    return where(x > 0.0, x, x * reshape(weight, shape))


def _below(x: Tensor) -> Tensor:
    """x where it is negative, a zero of x's sign or NaN, else 0: unlike ``minimum``, of whose two zeros either may come."""
    return where(x > 0.0, 0.0, x)


@in_float32
def elu(x: Tensor, /, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha · (exp(x) - 1).

    Args:
        x: Floating tensor.
        alpha: Minus the limit at -∞.

    Source: Clevert, Unterthiner, Hochreiter, "Exponential Linear Units", arXiv:1511.07289.

    Example:
        >>> import firebrick as fb
        >>> fb.elu(fb.asarray([float("-inf"), 2.0])).tolist()
        [-1.0, 2.0]
    """
    _check("elu", x=x)
    alpha = number("elu", "alpha", alpha)
    return where(x > 0.0, x, expm1(_below(x)) * alpha)


@in_float32
def celu(x: Tensor, /, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha · (exp(x / alpha) - 1), whose slope is continuous for every alpha > 0.

    Args:
        x: Floating tensor.
        alpha: Minus the limit at -∞; not 0.

    Source: Barron, "Continuously Differentiable Exponential Linear Units", arXiv:1704.07483.

    Example:
        >>> import firebrick as fb
        >>> fb.celu(fb.asarray([float("-inf"), 2.0]), alpha=0.5).tolist()
        [-0.5, 2.0]
    """
    _check("celu", x=x)
    _positive("celu", "alpha", alpha)
    return where(x > 0.0, x, expm1(_below(x) / alpha) * alpha)


@in_float32
def selu(x: Tensor, /) -> Tensor:
    """scale · elu(x, alpha), with the constants that keep mean 0 and variance 1 through layers.

    Args:
        x: Floating tensor of any shape.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", arXiv:1706.02515.

    Example:
        >>> import firebrick as fb
        >>> round(fb.selu(fb.asarray([1.0])).item(), 4)
        1.0507
    """
    _check("selu", x=x)
    return where(x > 0.0, x * _SELU_SCALE, expm1(_below(x)) * (_SELU_ALPHA * _SELU_SCALE))


@answers_arguments
def hardtanh(x: Tensor, /, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val]; the slope at a limit is 0 (``fb.clip`` passes gradients there).

    Args:
        x: Floating tensor.
        min_val: Lower limit.
        max_val: Upper limit.

    Example:
        >>> import firebrick as fb
        >>> fb.hardtanh(fb.asarray([-3.0, 0.5, 3.0])).tolist()
        [-1.0, 0.5, 1.0]
    """
    _check("hardtanh", x=x)
    if not number("hardtanh", "min_val", min_val) < number("hardtanh", "max_val", max_val):
        raise ConfigError("hardtanh: min_val is smaller than max_val", f"{min_val!r} and {max_val!r}", "exchange them")
    # not clip, whose zeros may have either sign where a bound is 0
    return where(x <= min_val, min_val, where(x >= max_val, max_val, x))


@answers_arguments
def relu6(x: Tensor, /) -> Tensor:
    """x limited to [0, 6]; the slope at a limit is 0.

    Args:
        x: Floating tensor of any shape.

    Example:
        >>> import firebrick as fb
        >>> fb.relu6(fb.asarray([-1.0, 3.0, 9.0])).tolist()
        [0.0, 3.0, 6.0]
    """
    _check("relu6", x=x)
    return hardtanh(x, min_val=0.0, max_val=6.0)


@in_float32
def hardsigmoid(x: Tensor, /) -> Tensor:
    """relu6(x + 3) / 6: a sigmoid of straight lines.

    Args:
        x: Floating tensor of any shape.

    Example:
        >>> import firebrick as fb
        >>> fb.hardsigmoid(fb.asarray([-4.0, 0.0, 4.0])).tolist()
        [0.0, 0.5, 1.0]
    """
    _check("hardsigmoid", x=x)
    return hardtanh(x, min_val=-3.0, max_val=3.0) / 6.0 + 0.5


@in_float32
def hardswish(x: Tensor, /) -> Tensor:
    """x · relu6(x + 3) / 6.

    Args:
        x: Floating tensor of any shape.

    Source: Howard et al., "Searching for MobileNetV3", arXiv:1905.02244.

    Example:
        >>> import firebrick as fb
        >>> fb.hardswish(fb.asarray([0.0, 4.0])).tolist()
        [0.0, 4.0]
    """
    _check("hardswish", x=x)
    return x * hardsigmoid(x)


@in_float32
def softsign(x: Tensor, /) -> Tensor:
    """x / (1 + |x|).

    Args:
        x: Floating tensor of any shape.

    Example:
        >>> import firebrick as fb
        >>> fb.softsign(fb.asarray([-1.0, 3.0])).tolist()
        [-0.5, 0.75]
    """
    _check("softsign", x=x)
    small = 1.0 / (abs(x) + 1.0)
    near = small > 0.5  # farther out the two terms of the gradient of x · small cancel
    return where(near, where(near, x, 0.0) * small, sign(x) * (1.0 - small))


@in_float32
def tanhshrink(x: Tensor, /) -> Tensor:
    """x - tanh(x).

    Args:
        x: Floating tensor of any shape.

    Example:
        >>> import firebrick as fb
        >>> fb.tanhshrink(fb.asarray([0.0])).tolist()
        [0.0]
    """
    _check("tanhshrink", x=x)
    return x - tanh(x)


def _check_threshold(name: str, lambd: float) -> None:
    if not number(name, "lambd", lambd) >= 0:
        raise ConfigError(f"{name}: lambd is ≥ 0", f"lambd={lambd!r}", "pass 0.5 or another number ≥ 0")


@answers_arguments
def softshrink(x: Tensor, /, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by ``lambd``, and 0 where it is nearer; the slope at ±lambd is 0.

    Args:
        x: Floating tensor.
        lambd: What is taken off the magnitude, at least 0.

    Example:
        >>> import firebrick as fb
        >>> fb.softshrink(fb.asarray([-2.0, 0.25, 2.0])).tolist()
        [-1.5, 0.0, 1.5]
    """
    _check("softshrink", x=x)
    _check_threshold("softshrink", lambd)
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, where(x != x, x, 0.0)))


@answers_arguments
def hardshrink(x: Tensor, /, lambd: float = 0.5) -> Tensor:
    """x, and 0 where |x| ≤ lambd.

    Args:
        x: Floating tensor.
        lambd: Half the width of what becomes 0.

    Example:
        >>> import firebrick as fb
        >>> fb.hardshrink(fb.asarray([-2.0, 0.25, 2.0])).tolist()
        [-2.0, 0.0, 2.0]
    """
    _check("hardshrink", x=x)
    _check_threshold("hardshrink", lambd)
    return where(abs(x) <= lambd, 0.0, x)


@answers_arguments
def threshold(x: Tensor, /, threshold: float, value: float) -> Tensor:
    """x where it is above ``threshold``, else ``value``.

    Args:
        x: Floating tensor.
        threshold: Values above it stay.
        value: What the others become.

    Example:
        >>> import firebrick as fb
        >>> fb.threshold(fb.asarray([0.5, 2.0]), 1.0, -1.0).tolist()
        [-1.0, 2.0]
    """
    _check("threshold", x=x)
    threshold = number("threshold", "threshold", threshold)
    value = number("threshold", "value", value)
    return where(x <= threshold, value, x)


def _halves(where_: str, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    _check(where_, x=x)
    at = normalize_axis(axis, x.ndim, where_)
    if not x.ndim or x.shape[at] % 2:
        raise ShapeError(f"{where_}: axis {axis} of x must have an even size", describe("x", x), "project to twice the width")
    half = x.shape[at] // 2
    lead = (slice(None),) * at
    return x[(*lead, slice(None, half))], x[(*lead, slice(half, None))]


@in_float32
def glu(x: Tensor, /, axis: int = -1) -> Tensor:
    """a · sigmoid(b), where a and b are the first and second half of x along an axis.

    Args:
        x: Floating tensor whose ``axis`` has an even size.
        axis: Axis that is halved.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks", arXiv:1612.08083.

    Example:
        >>> import firebrick as fb
        >>> fb.glu(fb.asarray([3.0, 0.0])).tolist()
        [1.5]
    """
    a, b = _halves("glu", x, axis)
    return a * sigmoid(b)


@in_float32
def swiglu(x: Tensor, /, axis: int = -1) -> Tensor:
    """silu(a) · b, where a and b are the first and second half of x along an axis.

    Args:
        x: Floating tensor whose ``axis`` has an even size: the gates, then the values.
        axis: Axis that is halved.

    Source: Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202.

    Example:
        >>> import firebrick as fb
        >>> fb.swiglu(fb.asarray([0.0, 3.0])).tolist()
        [0.0]
    """
    a, b = _halves("swiglu", x, axis)
    return silu(a) * b


__all__ = [
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid", "mish",
    "prelu", "relu6", "selu", "silu", "softplus", "softshrink", "softsign", "swiglu", "tanhshrink", "threshold",
]  # fmt: skip
