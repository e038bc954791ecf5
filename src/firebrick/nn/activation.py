"""Activations as layers, thin over the functions of the same names."""

from __future__ import annotations

from typing import Any

from firebrick.core.settings import number
from firebrick.core.tensor import Tensor
from firebrick.functions import activation, elementwise, normalisation
from firebrick.nn import initial
from firebrick.nn.checks import check_choice, check_sizes
from firebrick.nn.module import Module


class ReLU(Module):
    """max(x, 0).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.ReLU()(fb.asarray([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return elementwise.relu(x)


class ReLU6(Module):
    """min(max(x, 0), 6).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.ReLU6()(fb.asarray([-1.0, 2.0, 8.0])).tolist()
        [0.0, 2.0, 6.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.relu6(x)


class SiLU(Module):
    """x · sigmoid(x).

    Source: Elfwing, Uchibe, Doya, "Sigmoid-weighted linear units", arXiv:1702.03118.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.SiLU()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.silu(x)


class Mish(Module):
    """x · tanh(softplus(x)).

    Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", arXiv:1908.08681.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Mish()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.mish(x)


class SELU(Module):
    """scale · (max(x, 0) + min(0, alpha · (exp(x) - 1))), with the scale and alpha that keep mean 0 and variance 1.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", arXiv:1706.02515.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.SELU()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.selu(x)


class Tanh(Module):
    """Hyperbolic tangent.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Tanh()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return elementwise.tanh(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Sigmoid()(fb.asarray([0.0])).tolist()
        [0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        return elementwise.sigmoid(x)


class LogSigmoid(Module):
    """log(sigmoid(x)).

    Example:
        >>> import firebrick as fb
        >>> round(fb.nn.LogSigmoid()(fb.asarray(0.0)).item(), 4)
        -0.6931
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.log_sigmoid(x)


class Hardsigmoid(Module):
    """min(max(x / 6 + 1 / 2, 0), 1).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Hardsigmoid()(fb.asarray([-3.0, 0.0, 3.0])).tolist()
        [0.0, 0.5, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.hardsigmoid(x)


class Hardswish(Module):
    """x · hardsigmoid(x).

    Source: Howard et al., "Searching for MobileNetV3", arXiv:1905.02244.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Hardswish()(fb.asarray([0.0, 3.0])).tolist()
        [0.0, 3.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.hardswish(x)


class Softsign(Module):
    """x / (1 + |x|).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Softsign()(fb.asarray([-1.0, 3.0])).tolist()
        [-0.5, 0.75]
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.softsign(x)


class Tanhshrink(Module):
    """x - tanh(x).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Tanhshrink()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return activation.tanhshrink(x)


class GELU(Module):
    """x · Φ(x), with Φ the normal distribution function.

    Args:
        approximate: "none", or "tanh" for the approximation by a hyperbolic tangent.

    Source: Hendrycks, Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.GELU()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        check_choice("GELU", "approximate", approximate, ("none", "tanh"))
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return activation.gelu(x, approximate=self.approximate)

    def describe(self) -> str:
        return repr(self.approximate)


class LeakyReLU(Module):
    """x where it is positive, else negative_slope · x.

    Args:
        negative_slope: Slope below 0.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.LeakyReLU(0.5)(fb.asarray([-2.0, 2.0])).tolist()
        [-1.0, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return activation.leaky_relu(x, negative_slope=self.negative_slope)

    def describe(self) -> str:
        return f"{self.negative_slope}"


class ELU(Module):
    """x where it is positive, else alpha · (exp(x) - 1).

    Args:
        alpha: Distance of the lower bound from 0.

    Source: Clevert, Unterthiner, Hochreiter, "Exponential Linear Units", arXiv:1511.07289.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.ELU()(fb.asarray([0.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return activation.elu(x, alpha=self.alpha)

    def describe(self) -> str:
        return f"{self.alpha}"


class CELU(Module):
    """x where it is positive, else alpha · (exp(x / alpha) - 1).

    Args:
        alpha: Distance of the lower bound from 0.

    Source: Barron, "Continuously Differentiable Exponential Linear Units", arXiv:1704.07483.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.CELU()(fb.asarray([0.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return activation.celu(x, alpha=self.alpha)

    def describe(self) -> str:
        return f"{self.alpha}"


class Softplus(Module):
    """log(1 + exp(beta · x)) / beta.

    Args:
        beta: How sharp the bend at 0 is.

    Example:
        >>> import firebrick as fb
        >>> round(fb.nn.Softplus()(fb.asarray(0.0)).item(), 4)
        0.6931
    """

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        return activation.softplus(x, beta=self.beta)

    def describe(self) -> str:
        return f"{self.beta}"


class Hardtanh(Module):
    """min(max(x, min_val), max_val).

    Args:
        min_val: Least value.
        max_val: Largest value.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Hardtanh()(fb.asarray([-2.0, 0.5, 2.0])).tolist()
        [-1.0, 0.5, 1.0]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        return activation.hardtanh(x, min_val=self.min_val, max_val=self.max_val)

    def describe(self) -> str:
        return f"{self.min_val}, {self.max_val}"


class Softshrink(Module):
    """x moved towards 0 by lambd, and 0 where it is nearer.

    Args:
        lambd: How far, ≥ 0.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Softshrink()(fb.asarray([-2.0, 0.25, 2.0])).tolist()
        [-1.5, 0.0, 1.5]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return activation.softshrink(x, lambd=self.lambd)

    def describe(self) -> str:
        return f"{self.lambd}"


class Hardshrink(Module):
    """x, and 0 where |x| ≤ lambd.

    Args:
        lambd: Bound, ≥ 0.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Hardshrink()(fb.asarray([-2.0, 0.25, 2.0])).tolist()
        [-2.0, 0.0, 2.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return activation.hardshrink(x, lambd=self.lambd)

    def describe(self) -> str:
        return f"{self.lambd}"


class GLU(Module):
    """a · sigmoid(b), where a and b are the first and second half of x along an axis.

    Args:
        axis: Axis that is halved; of even size.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks", arXiv:1612.08083.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.GLU()(fb.asarray([3.0, 0.0])).tolist()
        [1.5]
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return activation.glu(x, axis=self.axis)

    def describe(self) -> str:
        return f"{self.axis}"


class Softmax(Module):
    """exp(x) / Σ exp(x) along an axis.

    Args:
        axis: Axis whose elements sum to 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Softmax()(fb.zeros((1, 4))).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return normalisation.softmax(x, axis=self.axis)

    def describe(self) -> str:
        return f"{self.axis}"


class LogSoftmax(Module):
    """x - log Σ exp(x) along an axis.

    Args:
        axis: Axis over which is summed.

    Example:
        >>> import firebrick as fb
        >>> round(fb.nn.LogSoftmax()(fb.zeros(2))[0].item(), 4)
        -0.6931
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return normalisation.log_softmax(x, axis=self.axis)

    def describe(self) -> str:
        return f"{self.axis}"


class Threshold(Module):
    """x where it is above a threshold, else a value.

    Args:
        threshold: The threshold.
        value: What takes the place of x at or below it.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Threshold(1.0, -1.0)(fb.asarray([0.5, 2.0])).tolist()
        [-1.0, 2.0]
    """

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold, self.value = threshold, value

    def forward(self, x: Tensor) -> Tensor:
        return activation.threshold(x, self.threshold, self.value)

    def describe(self) -> str:
        return f"{self.threshold}, {self.value}"


class PReLU(Module):
    """x where it is positive, else weight · x, with a learned weight.

    Args:
        channels: Number of weights: 1 for all, or one for each of x's channels (axis 1).
        init: Their first value.
        dtype: Dtype of the weight; the device's default float by default.
        device: Device of the weight.

    Attributes:
        weight: Parameter [channels].

    Source: He et al., "Delving Deep into Rectifiers", arXiv:1502.01852.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.PReLU()(fb.asarray([-2.0, 2.0])).tolist()
        [-0.5, 2.0]
    """

    def __init__(self, channels: int = 1, init: float = 0.25, *, dtype: Any = None, device: Any = None) -> None:
        check_sizes("PReLU", channels=channels)
        self.channels = channels
        self.weight = initial.constant((channels,), number("PReLU", "init", init), dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return activation.prelu(x, self.weight)

    def describe(self) -> str:
        return f"{self.channels}"
