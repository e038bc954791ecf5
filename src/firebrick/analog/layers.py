"""Layers whose weights are those of tiles."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from firebrick.analog.config import RPUConfig
from firebrick.analog.mapping import TileArray
from firebrick.core.errors import UnsupportedError
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import permute_dims, reshape
from firebrick.functions.windows import unfold2d
from firebrick.nn import Conv2d as DigitalConv2d
from firebrick.nn import Linear as DigitalLinear
from firebrick.nn import Module, Parameter
from firebrick.nn.checks import check_shape
from firebrick.random import Generator, initial_generator


class Linear(Module):
    """y = x Wᵀ + b with W in tiles; the bias b is digital.

    Weights and bias start from U(-1/√in, 1/√in), as those of ``nn.Linear``; weights are clipped to the bounds of their devices.

    Args:
        in_features: Size of the last axis of x.
        out_features: Size of the last axis of y.
        bias: Whether b is there.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        tiles: The tiles, a ``TileArray``.
        bias: Parameter [out], or None.

    Example:
        >>> import firebrick as fb
        >>> layer = fb.analog.Linear(4, 2, config=fb.analog.RPUConfig(fb.analog.SoftBoundsDevice()), seed=0)
        >>> layer(fb.ones((3, 4))).shape
        (3, 2)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, config: RPUConfig | None = None,
        seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = generator or (initial_generator().fork() if seed is None else Generator(seed))
        digital = DigitalLinear(in_features, out_features, bias, generator=own, device=device)
        self.in_features, self.out_features = in_features, out_features
        self.tiles = TileArray(out_features, in_features, config or RPUConfig(), own, device)
        self.tiles.set_weights(digital.weight.detach())
        self.bias = digital.bias

    @classmethod
    def of(cls, layer: DigitalLinear, config: RPUConfig, generator: Generator) -> tuple[Linear, int]:
        """A layer with the weights and the bias of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.
        """
        made = cls.__new__(cls)
        made.in_features, made.out_features = layer.in_features, layer.out_features
        made.tiles = TileArray(layer.out_features, layer.in_features, config, generator, layer.weight.device)
        made.bias = None if layer.bias is None else Parameter(layer.bias.detach(), frozen=layer.bias.frozen)
        return made, made.tiles.set_weights(layer.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in] to [..., out].

        Args:
            x: Float32 tensor [..., in_features].
        """
        check_shape("analog.Linear", "x", x, f"..., {self.in_features}", self.in_features)
        y: Tensor = self.tiles(x)
        return y if self.bias is None else y + self.bias

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


class Conv2d(Module):
    """Cross-correlation of images with the weights in tiles: each patch of x is a vector; the bias is digital.

    Weights and bias start like those of ``nn.Conv2d``; weights are clipped to the bounds of their devices.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int or (height, width).
        stride: An int or (height, width).
        padding: Zeros around the image, an int or (height, width).
        dilation: An int or (height, width).
        bias: Whether there is a bias.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        tiles: The tiles of the matrix [out_channels, in_channels · height · width], a ``TileArray``.
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.Conv2d(1, 8, 3, padding=1, seed=0)(fb.ones((2, 1, 5, 5))).shape
        (2, 8, 5, 5)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        bias: bool = True, *, config: RPUConfig | None = None, seed: int | None = None, generator: Generator | None = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        own = generator or (initial_generator().fork() if seed is None else Generator(seed))
        digital = DigitalConv2d(
            in_channels, out_channels, kernel, stride, padding, dilation, bias=bias, generator=own, device=device
        )
        self._take(digital, config or RPUConfig(), own)
        self.bias = digital.bias

    def _take(self, layer: DigitalConv2d, config: RPUConfig, generator: Generator) -> int:
        if layer.groups != 1:
            raise UnsupportedError(
                "analog.Conv2d: one group of channels", f"groups={layer.groups}", "leave this layer digital: exclude it by name"
            )
        if isinstance(layer.padding, str) or not all(isinstance(p, int) for p in _sizes(layer.padding)):
            raise UnsupportedError(
                "analog.Conv2d: padding is an int or (height, width)", repr(layer.padding)[:60], "write the padding as numbers"
            )
        out_channels, in_channels, *kernel = layer.weight.shape
        self.in_channels, self.out_channels, self.kernel = in_channels, out_channels, tuple(kernel)
        self.stride, self.padding, self.dilation = layer.stride, layer.padding, layer.dilation
        self.tiles = TileArray(out_channels, in_channels * prod(kernel), config, generator, layer.weight.device)
        return self.tiles.set_weights(np.reshape(layer.weight.detach().numpy(), (out_channels, -1)))

    @classmethod
    def of(cls, layer: DigitalConv2d, config: RPUConfig, generator: Generator) -> tuple[Conv2d, int]:
        """A layer with the weights and the bias of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.

        Raises:
            UnsupportedError: It has several groups of channels, or padding of another kind.
        """
        made = cls.__new__(cls)
        clipped = made._take(layer, config, generator)
        made.bias = None if layer.bias is None else Parameter(layer.bias.detach(), frozen=layer.bias.frozen)
        return made, clipped

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, in_channels, height, width] to [batch, out_channels, …].

        Args:
            x: Float32 tensor.
        """
        patches = unfold2d(x, self.kernel, stride=self.stride, padding=self.padding, dilation=self.dilation)
        y = permute_dims(self.tiles(permute_dims(patches, (0, 2, 1))), (0, 2, 1))
        sizes = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(
                x.shape[2:], self.kernel, _sizes(self.stride), _sizes(self.padding), _sizes(self.dilation), strict=True
            )
        ]
        y = reshape(y, (x.shape[0], self.out_channels, *sizes))
        return y if self.bias is None else y + reshape(self.bias, (self.out_channels, 1, 1))

    def describe(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, {self.kernel}"


def _sizes(value: Any) -> tuple[Any, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)
