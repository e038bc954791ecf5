"""Dropout: of elements, of whole channels, and for self-normalising networks.

Every layer has a generator of its own, so its masks are the same on every engine, whatever else draws there.
"""

from __future__ import annotations

from math import sqrt

from firebrick.core.errors import ShapeError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.convolution import AXES
from firebrick.functions.elementwise import where
from firebrick.nn.checks import check_probability
from firebrick.nn.module import Module
from firebrick.random import Generator, initial_generator

_SATURATED = -1.7580993408473766
"""What SELU goes to at minus infinity: -scale · alpha."""


class _Dropping(Module):
    """What all dropout layers share: a probability and a generator."""

    def __init__(self, p: float = 0.5, *, seed: int | None = None, generator: Generator | None = None) -> None:
        check_probability(type(self).__name__, p=p)
        self.p = p
        self.generator = generator or (initial_generator().fork() if seed is None else Generator(seed))

    def _kept(self, shape: tuple[int, ...], x: Tensor) -> Tensor:
        return self.generator.bernoulli(shape, p=1.0 - self.p, device=x.device)

    def describe(self) -> str:
        return f"{self.p}"


class Dropout(_Dropping):
    """In training, y = x / (1 - p) with probability 1 - p, else 0, for each element; in evaluation, y = x.

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

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of a floating x of any shape.

        Args:
            x: Floating tensor of any shape.
        """
        if not self.training or self.p == 0.0:
            return x
        return where(self._kept(x.shape, x), x * (1.0 / (1.0 - self.p)), 0.0)


class AlphaDropout(_Dropping):
    """Dropout for self-normalising networks: dropped elements take SELU's value at minus infinity, and an affine map then
    keeps mean 0 and variance 1.

    Args:
        p: Probability of dropping an element, in [0, 1).
        seed: Seed of its generator.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", arXiv:1706.02515.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AlphaDropout(0.5).eval()(fb.ones(2)).tolist()
        [1.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of a floating x of any shape.

        Args:
            x: Floating tensor of any shape.
        """
        if not self.training or self.p == 0.0:
            return x
        scale = 1.0 / sqrt((1.0 - self.p) * (1.0 + self.p * _SATURATED * _SATURATED))
        return where(self._kept(x.shape, x), x, _SATURATED) * scale - scale * self.p * _SATURATED


class _ChannelDropout(_Dropping):
    _rank = 0

    def forward(self, x: Tensor) -> Tensor:
        """Drop channels of a floating x [batch, channels, *image].

        Args:
            x: Floating tensor [batch, channels, *image], with as many axes of the image as in the name of the layer.
        """
        if x.ndim != self._rank + 2:
            raise ShapeError(
                f"{type(self).__name__}: x is [batch, channels, {AXES[self._rank]}]", describe("x", x), "add the missing axes"
            )
        if not self.training or self.p == 0.0:
            return x
        kept = self._kept((*x.shape[:2], *[1] * self._rank), x)
        return where(kept, x * (1.0 / (1.0 - self.p)), 0.0)


class Dropout1d(_ChannelDropout):
    """``Dropout`` of whole channels of signals [batch, channels, length].

    Args:
        p: Probability of dropping a channel, in [0, 1).
        seed: Seed of its generator.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", arXiv:1411.4280.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Dropout1d(0.5, seed=0)(fb.ones((1, 2, 3))).shape
        (1, 2, 3)
    """

    _rank = 1


class Dropout2d(_ChannelDropout):
    """``Dropout`` of whole channels of images [batch, channels, height, width].

    Args:
        p: Probability of dropping a channel, in [0, 1).
        seed: Seed of its generator.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", arXiv:1411.4280.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Dropout2d(0.5, seed=0)(fb.ones((1, 2, 3, 3))).shape
        (1, 2, 3, 3)
    """

    _rank = 2


class Dropout3d(_ChannelDropout):
    """``Dropout`` of whole channels of volumes [batch, channels, depth, height, width].

    Args:
        p: Probability of dropping a channel, in [0, 1).
        seed: Seed of its generator.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", arXiv:1411.4280.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Dropout3d(0.5, seed=0)(fb.ones((1, 2, 3, 3, 3))).shape
        (1, 2, 3, 3, 3)
    """

    _rank = 3
