"""``MultiheadAttention`` with its projections in tiles; scores and sums of values are digital."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firebrick.analog.config import RPUConfig
from firebrick.analog.layers import Linear
from firebrick.core.dtypes import float32
from firebrick.core.tensor import Tensor
from firebrick.nn import Linear as DigitalLinear
from firebrick.nn import MultiheadAttention as DigitalAttention
from firebrick.nn import Parameter, RotaryPositions
from firebrick.random import Generator, initial_generator

PARTS = ("qkv", "q", "k", "v", "out")
"""The layers of an attention."""


class MultiheadAttention(DigitalAttention):
    """``nn.MultiheadAttention`` whose projections are ``analog.Linear`` layers: of queries, keys and values, and of the result.

    Initial weights are those of ``nn.MultiheadAttention``, clipped to the bounds of their devices. Calls are the same.

    Args:
        embed: Features.
        heads: Number of heads, which divides ``embed``.
        dropout: Probability of dropping an attention weight in training.
        bias: Whether the projections have biases.
        key_features: Features of the key; ``embed`` by default.
        value_features: Features of the value; ``key_features`` by default.
        rotary: Rotates queries and keys by their positions.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        q: Of queries, ``analog.Linear`` from ``embed`` to ``embed``.
        k: Of keys, likewise from ``key_features``.
        v: Of values, likewise from ``value_features``.
        out: Of the result, from ``embed`` to ``embed``.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.MultiheadAttention(8, 2, seed=0)(fb.ones((1, 5, 8))).shape
        (1, 5, 8)
    """

    def __init__(
        self, embed: int, heads: int, dropout: float = 0.0, *, bias: bool = True, key_features: int | None = None,
        value_features: int | None = None, rotary: RotaryPositions | None = None, config: RPUConfig | None = None,
        seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = generator or (initial_generator().fork() if seed is None else Generator(seed))
        super().__init__(
            embed, heads, dropout, bias=bias, key_features=key_features, value_features=value_features, rotary=rotary,
            generator=own, dtype=float32, device=device,
        )  # fmt: skip
        self._take({name: config or RPUConfig() for name in PARTS}, own)

    @classmethod
    def of(
        cls, layer: DigitalAttention, config: RPUConfig | Mapping[str, RPUConfig], generator: Generator
    ) -> tuple[MultiheadAttention, int]:
        """A layer with the weights, biases and settings of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of all tiles; or by the names of the digital layer's projections that become analog.
            generator: From which the tiles get their generators.
        """
        made = cls.__new__(cls)
        for name, value in vars(layer.fork()).items():
            setattr(made, name, value)
        return made, made._take(config if isinstance(config, Mapping) else dict.fromkeys(PARTS, config), generator)

    def _take(self, config: Mapping[str, RPUConfig], generator: Generator) -> int:
        clipped = 0
        if self.qkv is not None and "qkv" in config:
            joined, self.qkv = self.qkv, None
            for k, name in enumerate(("q", "k", "v")):
                part = _rows(joined, slice(k * self.embed, (k + 1) * self.embed))
                found, more = Linear.of(part, config["qkv"], generator)
                setattr(self, name, found)
                clipped += more
        for name in ("q", "k", "v", "out"):
            layer = vars(self).get(name)
            if isinstance(layer, DigitalLinear) and name in config:
                found, more = Linear.of(layer, config[name], generator)
                setattr(self, name, found)
                clipped += more
        return clipped

    @property
    def _weight(self) -> Tensor:
        out: Any = self.out
        found: Tensor = out.weight if isinstance(out, DigitalLinear) else out.tiles.tiles[0][0].weight
        return found


def _rows(layer: DigitalLinear, rows: slice) -> DigitalLinear:
    """A digital layer of some outputs of another."""
    weight, bias = layer.weight.detach()[rows], None if layer.bias is None else layer.bias.detach()[rows]
    part = DigitalLinear.__new__(DigitalLinear)
    part.in_features, part.out_features = layer.in_features, weight.shape[0]
    part.weight = Parameter(weight, frozen=layer.weight.frozen)
    part.bias = None if bias is None or layer.bias is None else Parameter(bias, frozen=layer.bias.frozen)
    return part
