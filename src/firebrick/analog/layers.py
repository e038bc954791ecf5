"""``Linear`` with its weights in tiles."""

from __future__ import annotations

from typing import Any

from firebrick.analog.config import RPUConfig
from firebrick.analog.mapping import TileArray, set_attribute
from firebrick.core.dtypes import float32
from firebrick.core.tensor import Tensor
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

    __setattr__ = set_attribute

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, config: RPUConfig | None = None,
        seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = generator or (initial_generator().fork() if seed is None else Generator(seed))
        digital = DigitalLinear(in_features, out_features, bias, generator=own, dtype=float32, device=device)
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
        if layer.weight.frozen:
            made.tiles.freeze()
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
