"""Layers that keep activations in hand: normalisation and dropout."""

from __future__ import annotations

from typing import Any

from firebrick.core.bind import describe
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import where
from firebrick.functions.neural import layer_norm
from firebrick.nn import initial
from firebrick.nn.module import Module
from firebrick.random import Generator, initial_generator


class LayerNorm(Module):
    """y = (x - mean) / √(variance + eps) · weight + bias over the last axis.

    Weight starts from ones, bias from zeros.

    Args:
        features: Size of the last axis.
        eps: Added to the (biased) variance.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [features].
        bias: Parameter [features].

    Source: Ba, Kiros, Hinton, "Layer Normalization", arXiv:1607.06450.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.LayerNorm(2, eps=0.0)(fb.asarray([[1.0, 3.0]])).tolist()
        [[-1.0, 1.0]]
    """

    def __init__(self, features: int, eps: float = 1e-5, *, dtype: Any = None, device: Any = None) -> None:
        self.features, self.eps = features, eps
        self.weight = initial.constant((features,), 1.0, dtype=dtype, device=device)
        self.bias = initial.constant((features,), 0.0, dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., features]."""
        if x.ndim == 0 or x.shape[-1] != self.features:
            raise ShapeError(
                f"LayerNorm: x is [..., {self.features}]",
                f"{describe('x', x)} and {describe('weight', self.weight)}",
                "reshape x, or build the layer with its number of features",
            )
        return layer_norm(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return f"{self.features}, eps={self.eps}"


class Dropout(Module):
    """In training, y = x / (1 - p) where a coin with probability 1 - p shows, else 0; in evaluation, y = x.

    The layer has a generator of its own, so its masks are the same on every engine, whatever else draws there.

    Args:
        p: Probability of dropping an element, in [0, 1).
        seed: Seed of its generator.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.

    Source: Srivastava et al., "Dropout", JMLR 15, 2014.

    Example:
        >>> import firebrick as fb
        >>> drop = fb.nn.Dropout(0.5, seed=1)
        >>> sorted(set(drop(fb.ones(100)).tolist())), drop.eval()(fb.ones(2)).tolist()
        ([0.0, 2.0], [1.0, 1.0])
    """

    def __init__(self, p: float = 0.5, *, seed: int | None = None, generator: Generator | None = None) -> None:
        if not 0.0 <= p < 1.0:
            raise ConfigError("Dropout: p lies in [0, 1)", f"p = {p!r}", "pass the share of elements to drop, e.g. 0.5")
        self.p = p
        self.generator = generator or (initial_generator().fork() if seed is None else Generator(seed))

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of a floating x of any shape."""
        if not self.training or self.p == 0.0:
            return x
        kept = self.generator.bernoulli(x.shape, 1.0 - self.p, device=x.device)
        return where(kept, x * (1.0 / (1.0 - self.p)), 0.0)

    def describe(self) -> str:
        return f"{self.p}"
