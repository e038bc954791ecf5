"""Convolution layers over one to three axes, and transposed ones."""

from __future__ import annotations

from math import sqrt
from typing import Any

from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.convolution import (
    AXES,
    Sizes,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    padding_of,
    per_axis,
)
from firebrick.nn import initial
from firebrick.nn.checks import check_sizes
from firebrick.nn.module import Module
from firebrick.ops.declare import size_of
from firebrick.random import Generator

_CONV = {1: conv1d, 2: conv2d, 3: conv3d}
_TRANSPOSED = {1: conv_transpose1d, 2: conv_transpose2d, 3: conv_transpose3d}


class _Convolution(Module):
    """What all convolution layers share: settings, and weight and bias from U(-1/√n, 1/√n)."""

    _rank = 0
    _transposed = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Sizes, stride: Sizes, padding: Any, output_padding: Sizes,
        dilation: Sizes, groups: int, bias: bool, how: dict[str, Any],
    ) -> None:  # fmt: skip
        name, rank = type(self).__name__, self._rank
        check_sizes(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ConfigError(
                f"{name}: groups divides in_channels and out_channels",
                f"groups = {groups}, in_channels = {in_channels}, out_channels = {out_channels}",
                "use groups=1, or in_channels for a depthwise convolution",
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel, self.stride = per_axis(name, "kernel", kernel, rank), per_axis(name, "stride", stride, rank)
        self.padding, self.dilation = padding, per_axis(name, "dilation", dilation, rank)
        padding_of(name, padding, self.kernel, self.stride, self.dilation)
        self.output_padding = per_axis(name, "output_padding", output_padding, rank, 0)
        rows, columns = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        shape = (rows, columns // groups, *self.kernel)
        bound = 1.0 / sqrt(size_of(shape[1:]))
        self.weight = initial.uniform(shape, bound=bound, **how)
        self.bias = initial.uniform((out_channels,), bound=bound, **how) if bias else None

    def _remedy(self, x: Tensor) -> str:
        """What to do about an input of another shape."""
        rank, channels = self._rank, self.in_channels
        if x.ndim == rank + 2 and x.shape[-1] == channels:
            axes = (0, rank + 1, *range(1, rank + 1))
            return f"the channels come second, not last: fb.permute_dims(x, {axes})"
        if x.ndim == rank + 1 and x.shape[0] == channels:
            return "add the batch axis: fb.expand_dims(x, axis=0)"
        return "reshape x, or build the layer with its number of channels"

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, in_channels, *image] to [batch, out_channels, *places].

        Args:
            x: Floating tensor [batch, in_channels, *image], with as many axes of the image as in the name of the layer.
        """
        if x.ndim != self._rank + 2 or x.shape[1] != self.in_channels:
            raise ShapeError(
                f"{type(self).__name__}: x is [batch, {self.in_channels}, {AXES[self._rank]}]",
                f"{describe('x', x)} and {describe('weight', self.weight)}",
                self._remedy(x),
            )
        how: dict[str, Any] = {
            "stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups
        }  # fmt: skip
        if self._transposed:
            return _TRANSPOSED[self._rank](x, self.weight, self.bias, output_padding=self.output_padding, **how)
        return _CONV[self._rank](x, self.weight, self.bias, **how)

    def describe(self) -> str:
        ones, zeros = (1,) * self._rank, (0,) * self._rank
        more = [
            ("stride", self.stride, ones), ("padding", self.padding, 0), ("output_padding", self.output_padding, zeros),
            ("dilation", self.dilation, ones), ("groups", self.groups, 1), ("bias", self.bias is not None, True),
        ]  # fmt: skip
        shown = "".join(f", {n}={v!r}" for n, v, usual in more if v != usual)
        return f"{self.in_channels}, {self.out_channels}, {self.kernel}{shown}"


class Conv1d(_Convolution):
    """y[b, o] = Σ_c W[o, c] ⋆ x[b, c] + bias[o], ⋆ being cross-correlation of signals.

    Weight and bias start from U(-1/√n, 1/√n), n = in_channels / groups · elements of the kernel.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int.
        stride: An int.
        padding: As for ``fb.conv1d``.
        dilation: An int.
        groups: Groups that channels are split into; divides both channel counts.
        bias: Whether there is a bias.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [out_channels, in_channels / groups, length].
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Conv1d(1, 8, 3, padding=1)(fb.ones((2, 1, 5))).shape
        (2, 8, 5)
    """

    _rank = 1

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Sizes, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1,
        groups: int = 1, bias: bool = True, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        how = {"generator": generator, "dtype": dtype, "device": device}
        super().__init__(in_channels, out_channels, kernel, stride, padding, 0, dilation, groups, bias, how)


class Conv2d(_Convolution):
    """y[b, o] = Σ_c W[o, c] ⋆ x[b, c] + bias[o], ⋆ being cross-correlation of images.

    Weight and bias start from U(-1/√n, 1/√n), n = in_channels / groups · elements of the kernel.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int or (height, width).
        stride: An int or (height, width).
        padding: As for ``fb.conv2d``.
        dilation: An int or (height, width).
        groups: Groups that channels are split into; divides both channel counts.
        bias: Whether there is a bias.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [out_channels, in_channels / groups, height, width].
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Conv2d(1, 8, 3, padding=1)(fb.ones((2, 1, 5, 5))).shape
        (2, 8, 5, 5)
    """

    _rank = 2

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Sizes, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1,
        groups: int = 1, bias: bool = True, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        how = {"generator": generator, "dtype": dtype, "device": device}
        super().__init__(in_channels, out_channels, kernel, stride, padding, 0, dilation, groups, bias, how)


class Conv3d(_Convolution):
    """y[b, o] = Σ_c W[o, c] ⋆ x[b, c] + bias[o], ⋆ being cross-correlation of volumes.

    Weight and bias start from U(-1/√n, 1/√n), n = in_channels / groups · elements of the kernel.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int or (depth, height, width).
        stride: An int or (depth, height, width).
        padding: As for ``fb.conv3d``.
        dilation: An int or (depth, height, width).
        groups: Groups that channels are split into; divides both channel counts.
        bias: Whether there is a bias.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [out_channels, in_channels / groups, depth, height, width].
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Conv3d(1, 8, 3, padding=1)(fb.ones((2, 1, 5, 5, 5))).shape
        (2, 8, 5, 5, 5)
    """

    _rank = 3

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Sizes, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1,
        groups: int = 1, bias: bool = True, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        how = {"generator": generator, "dtype": dtype, "device": device}
        super().__init__(in_channels, out_channels, kernel, stride, padding, 0, dilation, groups, bias, how)


class ConvTranspose1d(_Convolution):
    """The transpose of ``Conv1d``: it maps signals of that layer's output sizes back to those of its input.

    Weight and bias start from U(-1/√n, 1/√n), n = out_channels / groups · elements of the kernel.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int.
        stride: An int.
        padding: As for ``fb.conv_transpose1d``: what is cut off y.
        output_padding: An int below the stride or the dilation: how much larger y is at its end.
        dilation: An int.
        groups: Groups that channels are split into; divides both channel counts.
        bias: Whether there is a bias.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [in_channels, out_channels / groups, length].
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.ConvTranspose1d(1, 8, 2, stride=2)(fb.ones((2, 1, 5))).shape
        (2, 8, 10)
    """

    _rank, _transposed = 1, True

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Sizes, stride: Sizes = 1, padding: Any = 0,
        output_padding: Sizes = 0, *, dilation: Sizes = 1, groups: int = 1, bias: bool = True,
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        how = {"generator": generator, "dtype": dtype, "device": device}
        super().__init__(in_channels, out_channels, kernel, stride, padding, output_padding, dilation, groups, bias, how)


class ConvTranspose2d(_Convolution):
    """The transpose of ``Conv2d``: it maps images of that layer's output sizes back to those of its input.

    Weight and bias start from U(-1/√n, 1/√n), n = out_channels / groups · elements of the kernel.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int or (height, width).
        stride: An int or (height, width).
        padding: As for ``fb.conv_transpose2d``: what is cut off y.
        output_padding: An int or (height, width) below the stride or the dilation: how much larger y is at its end.
        dilation: An int or (height, width).
        groups: Groups that channels are split into; divides both channel counts.
        bias: Whether there is a bias.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [in_channels, out_channels / groups, height, width].
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.ConvTranspose2d(1, 8, 2, stride=2)(fb.ones((2, 1, 5, 5))).shape
        (2, 8, 10, 10)
    """

    _rank, _transposed = 2, True

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Sizes, stride: Sizes = 1, padding: Any = 0,
        output_padding: Sizes = 0, *, dilation: Sizes = 1, groups: int = 1, bias: bool = True,
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        how = {"generator": generator, "dtype": dtype, "device": device}
        super().__init__(in_channels, out_channels, kernel, stride, padding, output_padding, dilation, groups, bias, how)


class ConvTranspose3d(_Convolution):
    """The transpose of ``Conv3d``: it maps volumes of that layer's output sizes back to those of its input.

    Weight and bias start from U(-1/√n, 1/√n), n = out_channels / groups · elements of the kernel.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int or (depth, height, width).
        stride: An int or (depth, height, width).
        padding: As for ``fb.conv_transpose3d``: what is cut off y.
        output_padding: An int or (depth, height, width) below the stride or the dilation: how much larger y is at its end.
        dilation: An int or (depth, height, width).
        groups: Groups that channels are split into; divides both channel counts.
        bias: Whether there is a bias.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [in_channels, out_channels / groups, depth, height, width].
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.ConvTranspose3d(1, 8, 2, stride=2)(fb.ones((2, 1, 5, 5, 5))).shape
        (2, 8, 10, 10, 10)
    """

    _rank, _transposed = 3, True

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Sizes, stride: Sizes = 1, padding: Any = 0,
        output_padding: Sizes = 0, *, dilation: Sizes = 1, groups: int = 1, bias: bool = True,
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        how = {"generator": generator, "dtype": dtype, "device": device}
        super().__init__(in_channels, out_channels, kernel, stride, padding, output_padding, dilation, groups, bias, how)
