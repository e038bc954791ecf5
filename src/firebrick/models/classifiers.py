"""Classifiers of images: a multilayer perceptron and a small convolutional network."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import relu
from firebrick.functions.movement import reshape
from firebrick.nn import Conv2d, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential
from firebrick.random import Generator


def mlp(
    in_features: int, hidden: Sequence[int] = (256, 128), classes: int = 10, *, generator: Generator | None = None,
    dtype: Any = None, device: Any = None,
) -> Sequential:  # fmt: skip
    """A multilayer perceptron: dense layers with ReLU between them, on the flattened input.

    Args:
        in_features: Elements of one input, all its axes together.
        hidden: Features after each hidden layer.
        classes: Number of logits.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Returns:
        Module from [batch, …] to logits [batch, classes].

    Example:
        >>> import firebrick as fb
        >>> fb.models.mlp(64)(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """
    how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
    sizes = (in_features, *hidden)
    layers: list[Module] = [Flatten()]
    for n, m in pairwise(sizes):
        layers += [Linear(n, m, **how), ReLU()]
    return Sequential(*layers, Linear(sizes[-1], classes, **how))


class CNN(Module):
    """Two convolutions, each with ReLU and 2 x 2 pooling, then two dense layers; ``cnn`` builds it.

    Args:
        channels: Channels of an image.
        image: Height and width of an image, at least 4.
        classes: Number of logits.
        width: Channels after the first convolution; twice as many after the second.
        features: Features between the dense layers.
        how: ``generator``, ``dtype`` and ``device`` of the parameters.
    """

    def __init__(self, channels: int, image: int, classes: int, width: int, features: int, **how: Any) -> None:
        if image < 4:
            raise ConfigError("cnn: image is a height and width of at least 4", f"image = {image!r}", "use models.mlp")
        self.conv1 = Conv2d(channels, width, 3, padding=1, **how)
        self.conv2 = Conv2d(width, 2 * width, 3, padding=1, **how)
        self.pool = MaxPool2d(2)
        self.linear1 = Linear(2 * width * (image // 4) ** 2, features, **how)
        self.linear2 = Linear(features, classes, **how)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, channels, image, image] to logits [batch, classes]."""
        x = self.pool(relu(self.conv1(x)))
        x = self.pool(relu(self.conv2(x)))
        x = relu(self.linear1(reshape(x, (x.shape[0], -1))))
        logits: Tensor = self.linear2(x)
        return logits


def cnn(
    channels: int = 1, image: int = 28, classes: int = 10, *, width: int = 16, features: int = 128,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> CNN:  # fmt: skip
    """A small convolutional network: conv, pool, conv, pool, dense, dense.

    Args:
        channels: Channels of an image.
        image: Height and width of an image, at least 4.
        classes: Number of logits.
        width: Channels after the first convolution; twice as many after the second.
        features: Features between the dense layers.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Returns:
        Module from [batch, channels, image, image] to logits [batch, classes].

    Example:
        >>> import firebrick as fb
        >>> fb.models.cnn(image=8)(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """
    return CNN(channels, image, classes, width, features, generator=generator, dtype=dtype, device=device)
