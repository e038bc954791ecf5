"""Classifiers of images: a multilayer perceptron, LeNet, and a small convolutional network."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import relu
from firebrick.functions.movement import flatten
from firebrick.models.checks import check_counts
from firebrick.nn import Conv2d, Dropout, Flatten, Identity, Linear, MaxPool2d, Module, ReLU, Sequential
from firebrick.random import Generator

_SMALL = 16  # height and width from which an image is pooled twice


@answers_arguments
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

    Raises:
        ConfigError: A size is no int of at least 1.

    Example:
        >>> import firebrick as fb
        >>> fb.models.mlp(64)(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """
    given: Any = hidden
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(
            "mlp: hidden is a list of the features of each hidden layer", f"hidden={hidden!r}",
            "pass e.g. [64, 32]; on the command line --set 'hidden=[64, 32]'",
        )  # fmt: skip
    check_counts("mlp", in_features=in_features, classes=classes, **{f"hidden[{i}]": n for i, n in enumerate(hidden)})
    how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
    sizes = (in_features, *hidden)
    layers: list[Module] = [Flatten()]
    for n, m in pairwise(sizes):
        layers += [Linear(n, m, **how), ReLU()]
    return Sequential(*layers, Linear(sizes[-1], classes, **how))


@answers_arguments
def lenet(
    channels: int = 1, image: int = 28, classes: int = 10, *, generator: Generator | None = None, dtype: Any = None,
    device: Any = None,
) -> Sequential:  # fmt: skip
    """LeNet-5 in its present form: two 5 x 5 convolutions with ReLU and 2 x 2 max-pooling, then dense 120, 84, classes.

    Images of 28 are padded by 2 in the first convolution, as the 32 x 32 originals were; other sizes are as well.

    Args:
        channels: Channels of an image.
        image: Height and width of an image, at least 12.
        classes: Number of logits.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Returns:
        Module from [batch, channels, image, image] to logits [batch, classes].

    Source: LeCun, Bottou, Bengio, Haffner, "Gradient-Based Learning Applied to Document Recognition", 1998.

    Example:
        >>> import firebrick as fb
        >>> fb.models.lenet()(fb.zeros((2, 1, 28, 28))).shape
        (2, 10)
    """
    check_counts("lenet", channels=channels, image=image, classes=classes)
    if image < 12:
        raise ConfigError("lenet: image is a height and width of at least 12", f"image = {image!r}", "use models.cnn or mlp")
    how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
    side = (image // 2 - 4) // 2
    return Sequential(
        Conv2d(channels, 6, 5, padding=2, **how), ReLU(), MaxPool2d(2), Conv2d(6, 16, 5, **how), ReLU(), MaxPool2d(2),
        Flatten(), Linear(16 * side * side, 120, **how), ReLU(), Linear(120, 84, **how), ReLU(), Linear(84, classes, **how),
    )  # fmt: skip


class CNN(Module):
    """Two convolutions with ReLU and 2 x 2 pooling, then two dense layers, each after dropout; ``cnn`` builds it.

    Images smaller than 16 are pooled after the second convolution only: a digit of 8 x 8 has nothing to spare before.

    Args:
        channels: Channels of an image.
        image: Height and width of an image, at least 4.
        classes: Number of logits.
        width: Channels after the first convolution; twice as many after the second.
        features: Features between the dense layers.
        dropout: Probability of dropping an input of a dense layer in training.
        generator: Source of initial values.
        how: ``dtype`` and ``device`` of the parameters.

    Example:
        >>> import firebrick as fb
        >>> fb.models.CNN(1, 8, 10, width=4, features=16, dropout=0.0, generator=None)(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """

    def __init__(
        self, channels: int, image: int, classes: int, width: int, features: int, dropout: float,
        generator: Generator | None, **how: Any,
    ) -> None:  # fmt: skip
        check_counts("cnn", channels=channels, image=image, classes=classes, width=width, features=features)
        if image < 4:
            raise ConfigError("cnn: image is a height and width of at least 4", f"image = {image!r}", "use models.mlp")
        early = image >= _SMALL
        side = image // 4 if early else image // 2
        self.conv1 = Conv2d(channels, width, 3, padding=1, generator=generator, **how)
        self.pool1 = MaxPool2d(2) if early else Identity()
        self.conv2 = Conv2d(width, 2 * width, 3, padding=1, generator=generator, **how)
        self.pool2 = MaxPool2d(2)
        self.linear1 = Linear(2 * width * side * side, features, generator=generator, **how)
        self.linear2 = Linear(features, classes, generator=generator, **how)
        self.dropout = Dropout(dropout, generator=None if generator is None else generator.fork())

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, channels, image, image] to logits [batch, classes].

        Args:
            x: Floating tensor of the images.
        """
        x = self.pool1(relu(self.conv1(x)))
        x = self.pool2(relu(self.conv2(x)))
        x = relu(self.linear1(self.dropout(flatten(x, start_axis=1))))
        logits: Tensor = self.linear2(self.dropout(x))
        return logits


@answers_arguments
def cnn(
    channels: int = 1, image: int = 28, classes: int = 10, *, width: int = 16, features: int = 128, dropout: float = 0.25,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> CNN:  # fmt: skip
    """A small convolutional network: conv, pool, conv, pool, dense, dense (below 16 x 16 pixels: without the first pool).

    Args:
        channels: Channels of an image.
        image: Height and width of an image, at least 4.
        classes: Number of logits.
        width: Channels after the first convolution; twice as many after the second.
        features: Features between the dense layers.
        dropout: Probability of dropping an input of a dense layer in training.
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
    return CNN(channels, image, classes, width, features, dropout, generator, dtype=dtype, device=device)
