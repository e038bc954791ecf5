"""Convolution layers with their weights in tiles: each patch of x is a vector."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from firebrick.analog.config import RPUConfig
from firebrick.analog.mapping import TileArray, set_attribute
from firebrick.analog.patches import patches
from firebrick.core.autocast import wide
from firebrick.core.dtypes import float32
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.convolution import AXES, padding_of
from firebrick.functions.movement import concat, permute_dims, reshape
from firebrick.nn import Conv1d as DigitalConv1d
from firebrick.nn import Conv2d as DigitalConv2d
from firebrick.nn import Conv3d as DigitalConv3d
from firebrick.nn import Module, Parameter
from firebrick.random import Generator, initial_generator

Digital = DigitalConv1d | DigitalConv2d | DigitalConv3d


class _Convolution(Module):
    """What all convolution layers share."""

    _digital: ClassVar[type[Digital]]

    __setattr__ = set_attribute

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int,
        bias: bool, config: RPUConfig | None, seed: int | None, generator: Generator | None, device: Any,
    ) -> None:  # fmt: skip
        own = generator or (initial_generator().fork() if seed is None else Generator(seed))
        digital = self._digital(
            in_channels, out_channels, kernel, stride, padding, dilation, groups, bias, generator=own, dtype=float32,
            device=device,
        )  # fmt: skip
        self._take(digital, config or RPUConfig(), own)
        self.bias = digital.bias

    def _take(self, layer: Digital, config: RPUConfig, generator: Generator) -> int:
        """Take settings and weights of a digital layer; the number of weights that were clipped."""
        self.in_channels, self.out_channels, self.groups = layer.in_channels, layer.out_channels, layer.groups
        self.kernel, self.stride, self.dilation = layer.kernel, layer.stride, layer.dilation
        self.padding = layer.padding
        padding_of(f"analog.{type(self).__name__}", layer.padding, layer.kernel, layer.stride, layer.dilation)
        rows, columns = layer.out_channels // layer.groups, layer.in_channels // layer.groups * prod(layer.kernel)
        made = [TileArray(rows, columns, config, generator, layer.weight.device) for _ in range(layer.groups)]
        self.tiles = made[0] if layer.groups == 1 else made
        for array in made if layer.weight.frozen else ():
            array.freeze()
        weights = np.reshape(layer.weight.detach().numpy(), (layer.groups, rows, columns))
        return sum(array.set_weights(w) for array, w in zip(made, weights, strict=True))

    @classmethod
    def of(cls, layer: Any, config: RPUConfig, generator: Generator) -> tuple[Any, int]:
        """A layer with the weights and the bias of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.
        """
        made = cls.__new__(cls)
        clipped = made._take(layer, config, generator)
        made.bias = None if layer.bias is None else Parameter(layer.bias.detach(), frozen=layer.bias.frozen)
        return made, clipped

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, in_channels, *image] to [batch, out_channels, *places].

        Args:
            x: Float32 tensor, with as many axes of the image as in the name of the layer.
        """
        name, rank = f"analog.{type(self).__name__}", len(self.kernel)
        if x.ndim != rank + 2 or x.shape[1] != self.in_channels:
            raise ShapeError(
                f"{name}: x is [batch, {self.in_channels}, {AXES[rank]}]", describe("x", x),
                "reshape x, or build the layer with its number of channels",
            )  # fmt: skip
        x = wide(x)  # as tiles do
        if x.dtype is not float32:
            raise DTypeError(f"{name}: x is float32", describe("x", x), "cast it: fb.astype(x, fb.float32)")
        padding = padding_of(name, self.padding, self.kernel, self.stride, self.dilation)
        vectors, sizes = patches(name, x, self.kernel, self.stride, padding, self.dilation)
        if isinstance(self.tiles, TileArray):
            y = self.tiles(vectors)
        else:
            n = vectors.shape[2] // self.groups
            y = concat([array(vectors[..., k * n : (k + 1) * n]) for k, array in enumerate(self.tiles)], axis=2)
        y = y if self.bias is None else y + self.bias
        return reshape(permute_dims(y, (0, 2, 1)), (x.shape[0], self.out_channels, *sizes))

    def describe(self) -> str:
        rank = len(self.kernel)
        more = [
            ("stride", self.stride, (1,) * rank), ("padding", self.padding, 0), ("dilation", self.dilation, (1,) * rank),
            ("groups", self.groups, 1), ("bias", self.bias is not None, True),
        ]  # fmt: skip
        shown = "".join(f", {n}={v!r}" for n, v, usual in more if v != usual)
        return f"{self.in_channels}, {self.out_channels}, {self.kernel}{shown}"


class Conv1d(_Convolution):
    """Cross-correlation of signals with the weights in tiles: each patch of x is a vector; the bias is digital.

    Weights and bias start like those of ``nn.Conv1d``; weights are clipped to the bounds of their devices.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int.
        stride: An int.
        padding: As for ``fb.conv1d``.
        dilation: An int.
        bias: Whether there is a bias.
        groups: Groups that channels are split into, each with tiles of its own; divides both channel counts.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        tiles: The tiles of the matrix [out_channels, in_channels · length], a ``TileArray``; a list of them,
            one for each group, where there are several.
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.Conv1d(1, 8, 3, padding=1, seed=0)(fb.ones((2, 1, 5))).shape
        (2, 8, 5)
    """

    _digital = DigitalConv1d

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        bias: bool = True, *, groups: int = 1, config: RPUConfig | None = None, seed: int | None = None,
        generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel, stride, padding, dilation, groups, bias, config, seed, generator, device
        )


class Conv2d(_Convolution):
    """Cross-correlation of images with the weights in tiles: each patch of x is a vector; the bias is digital.

    Weights and bias start like those of ``nn.Conv2d``; weights are clipped to the bounds of their devices.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int or (height, width).
        stride: An int or (height, width).
        padding: As for ``fb.conv2d``.
        dilation: An int or (height, width).
        bias: Whether there is a bias.
        groups: Groups that channels are split into, each with tiles of its own; divides both channel counts.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        tiles: The tiles of the matrix [out_channels, in_channels · height · width], a ``TileArray``; a list of them,
            one for each group, where there are several.
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.Conv2d(1, 8, 3, padding=1, seed=0)(fb.ones((2, 1, 5, 5))).shape
        (2, 8, 5, 5)
    """

    _digital = DigitalConv2d

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        bias: bool = True, *, groups: int = 1, config: RPUConfig | None = None, seed: int | None = None,
        generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel, stride, padding, dilation, groups, bias, config, seed, generator, device
        )


class Conv3d(_Convolution):
    """Cross-correlation of volumes with the weights in tiles: each patch of x is a vector; the bias is digital.

    Weights and bias start like those of ``nn.Conv3d``; weights are clipped to the bounds of their devices.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel: Kernel size, an int or (depth, height, width).
        stride: An int or (depth, height, width).
        padding: As for ``fb.conv3d``.
        dilation: An int or (depth, height, width).
        bias: Whether there is a bias.
        groups: Groups that channels are split into, each with tiles of its own; divides both channel counts.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        tiles: The tiles of the matrix [out_channels, in_channels · depth · height · width], a ``TileArray``; a list of them,
            one for each group, where there are several.
        bias: Parameter [out_channels], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.Conv3d(1, 8, 3, padding=1, seed=0)(fb.ones((2, 1, 5, 5, 5))).shape
        (2, 8, 5, 5, 5)
    """

    _digital = DigitalConv3d

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        bias: bool = True, *, groups: int = 1, config: RPUConfig | None = None, seed: int | None = None,
        generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel, stride, padding, dilation, groups, bias, config, seed, generator, device
        )
