"""Layers on images [batch, channels, height, width]: convolution and pooling."""

from __future__ import annotations

from math import sqrt
from typing import Any

from firebrick.core.bind import describe
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.tensor import Tensor
from firebrick.functions.neural import avg_pool2d, conv2d, max_pool2d, pair
from firebrick.nn import initial
from firebrick.nn.module import Module
from firebrick.random import Generator

Pair = int | tuple[int, int]


class Conv2d(Module):
    """y[b, o] = Σ_c W[o, c] ⋆ x[b, c] + bias[o], ⋆ being cross-correlation.

    Weight and bias start from U(-1/√n, 1/√n), n = in_channels / groups · kernel height · kernel width.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int or (height, width).
        stride: An int or (vertical, horizontal).
        padding: As for ``fb.conv2d``.
        dilation: An int or (vertical, horizontal).
        groups: Groups that channels are split into; divides both channel counts.
        bias: Whether there is a bias.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [out, in / groups, height, width].
        bias: Parameter [out], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Conv2d(1, 8, 3, padding=1)(fb.ones((2, 1, 5, 5))).shape
        (2, 8, 5, 5)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Pair, stride: Pair = 1, padding: Any = 0, dilation: Pair = 1,
        groups: int = 1, bias: bool = True, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ConfigError(
                "Conv2d: groups divides in_channels and out_channels",
                f"groups = {groups}, in_channels = {in_channels}, out_channels = {out_channels}",
                "use groups=1, or in_channels for a depthwise convolution",
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel, self.stride = pair(kernel, "kernel"), pair(stride, "stride")
        self.padding, self.dilation = padding, pair(dilation, "dilation")
        shape = (out_channels, in_channels // groups, *self.kernel)
        bound = 1.0 / sqrt(max(shape[1] * shape[2] * shape[3], 1))
        how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
        self.weight = initial.uniform(shape, bound, **how)
        self.bias = initial.uniform((out_channels,), bound, **how) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, in, h, w] to [batch, out, h', w']."""
        if x.ndim != 4 or x.shape[1] != self.in_channels:
            raise ShapeError(
                f"Conv2d: x is [batch, {self.in_channels}, height, width]",
                f"{describe('x', x)} and {describe('weight', self.weight)}",
                "reshape x (a single image needs a batch axis), or build the layer with its number of channels",
            )
        return conv2d(
            x, self.weight, self.bias, stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups
        )

    def describe(self) -> str:
        more = [("stride", self.stride, (1, 1)), ("padding", self.padding, 0), ("dilation", self.dilation, (1, 1)),
                ("groups", self.groups, 1), ("bias", self.bias is not None, True)]  # fmt: skip
        shown = "".join(f", {n}={v!r}" for n, v, usual in more if v != usual)
        return f"{self.in_channels}, {self.out_channels}, {self.kernel}{shown}"


class MaxPool2d(Module):
    """The largest value of each window.

    Args:
        kernel: Window size, an int or (height, width).
        stride: Step between windows; the window size by default.
        padding: As for ``fb.max_pool2d``; padding is never a maximum.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MaxPool2d(2)(fb.ones((1, 3, 8, 8))).shape
        (1, 3, 4, 4)
    """

    def __init__(self, kernel: Pair, stride: Pair | None = None, padding: Any = 0) -> None:
        self.kernel, self.padding = pair(kernel, "kernel"), padding
        self.stride = self.kernel if stride is None else pair(stride, "stride")

    def forward(self, x: Tensor) -> Tensor:
        """Pool images [batch, channels, h, w]."""
        return max_pool2d(x, self.kernel, stride=self.stride, padding=self.padding)

    def describe(self) -> str:
        return f"{self.kernel}, stride={self.stride}" + (f", padding={self.padding!r}" if self.padding else "")


class AvgPool2d(Module):
    """The mean of each window; padding counts as zeros.

    Args:
        kernel: Window size, an int or (height, width).
        stride: Step between windows; the window size by default.
        padding: As for ``fb.avg_pool2d``.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AvgPool2d((2, 4))(fb.ones((1, 3, 8, 8))).shape
        (1, 3, 4, 2)
    """

    def __init__(self, kernel: Pair, stride: Pair | None = None, padding: Any = 0) -> None:
        self.kernel, self.padding = pair(kernel, "kernel"), padding
        self.stride = self.kernel if stride is None else pair(stride, "stride")

    def forward(self, x: Tensor) -> Tensor:
        """Pool images [batch, channels, h, w]."""
        return avg_pool2d(x, self.kernel, stride=self.stride, padding=self.padding)

    def describe(self) -> str:
        return f"{self.kernel}, stride={self.stride}" + (f", padding={self.padding!r}" if self.padding else "")
