"""ResNet-18: a stem, then four stages of two residual blocks.

The stem is 3 x 3 without pooling for small images (CIFAR form), or 7 x 7 with stride 2 and pooling for large ones.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import relu
from firebrick.functions.pooling import max_pool2d
from firebrick.functions.statistical import mean
from firebrick.models.checks import check_counts, check_flag
from firebrick.nn import BatchNorm2d, Conv2d, Identity, Linear, Module, Sequential, initial
from firebrick.random import Generator

_STAGES = ((1, 1), (2, 2), (4, 2), (8, 2))  # width in multiples of the first, and stride of its first block


def _conv(inputs: int, outputs: int, kernel: int, stride: int, **how: Any) -> Conv2d:
    """A convolution without bias, its weight from N(0, 2 / (outputs · kernel²))."""
    layer = Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False, **how)
    std = (2.0 / (outputs * kernel * kernel)) ** 0.5
    layer.weight = initial.normal((outputs, inputs, kernel, kernel), std=std, **how)
    return layer


class ResidualBlock(Module):
    """relu(x' + norm(conv(relu(norm(conv(x)))))), with x' = x, or norm(conv1x1(x)) where the shape changes.

    Args:
        inputs: Channels of x.
        outputs: Channels of the result.
        stride: Step of the first convolution.
        zero_init: Whether the second norm's weight starts from zeros, so that the block starts as the identity.
        how: ``generator``, ``dtype`` and ``device`` of the parameters.

    Source: He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, zero_init: bool, **how: Any) -> None:
        place = {"dtype": how["dtype"], "device": how["device"]}
        self.conv1 = _conv(inputs, outputs, 3, stride, **how)
        self.norm1 = BatchNorm2d(outputs, **place)
        self.conv2 = _conv(outputs, outputs, 3, 1, **how)
        self.norm2 = BatchNorm2d(outputs, **place)
        if zero_init:
            self.norm2.weight = initial.constant((outputs,), 0.0, **place)
        same = stride == 1 and inputs == outputs
        self.shortcut: Module = (
            Identity() if same else Sequential(_conv(inputs, outputs, 1, stride, **how), BatchNorm2d(outputs, **place))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, inputs, h, w] to [batch, outputs, ⌈h / stride⌉, ⌈w / stride⌉]."""
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(y + self.shortcut(x))


class ResNet(Module):
    """Stem, stages of residual blocks, mean over the image, dense layer; ``resnet18`` builds it.

    Args:
        channels: Channels of an image.
        classes: Number of logits.
        width: Channels of the stem and the first stage; each later stage has twice as many.
        blocks: Blocks of each stage.
        zero_init: Whether each block starts as the identity.
        large_images: Whether the stem is a convolution of 7 x 7 with stride 2 and a max-pooling; each halves the image.
        how: ``generator``, ``dtype`` and ``device`` of the parameters.

    Example:
        >>> import firebrick as fb
        >>> model = fb.models.ResNet(1, 10, width=4, blocks=1, zero_init=True, generator=None, dtype=None, device=None)
        >>> model(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """

    def __init__(
        self, channels: int, classes: int, width: int, blocks: int, zero_init: bool, large_images: bool = False, **how: Any
    ) -> None:
        check_counts("resnet", channels=channels, classes=classes, width=width, blocks=blocks)
        check_flag("resnet", "zero_init", zero_init)
        check_flag("resnet", "large_images", large_images)
        self.large_images = large_images
        self.conv = _conv(channels, width, 7, 2, **how) if large_images else _conv(channels, width, 3, 1, **how)
        self.norm = BatchNorm2d(width, dtype=how["dtype"], device=how["device"])
        stages, inputs = [], width
        for factor, stride in _STAGES:
            outputs = factor * width
            made: list[Module] = []
            for i in range(blocks):
                made.append(ResidualBlock(inputs, outputs, stride if i == 0 else 1, zero_init, **how))
                inputs = outputs
            stages.append(Sequential(*made))
        self.stages = stages
        self.head = Linear(inputs, classes, **how)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, channels, h, w] to logits [batch, classes].

        Args:
            x: Floating tensor of the images.
        """
        x = relu(self.norm(self.conv(x)))
        if self.large_images:
            x = max_pool2d(x, 3, stride=2, padding=1)
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.head(mean(x, axis=(2, 3)))
        return logits


@answers_arguments
def resnet18(
    channels: int = 3, classes: int = 10, *, width: int = 64, zero_init: bool = False, large_images: bool = False,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> ResNet:  # fmt: skip
    """ResNet-18, by default for small images: four stages of two blocks, 11 173 962 parameters for 3 channels and 10 classes.

    With ``large_images`` it is torchvision's ``resnet18``, whose weights load through ``from_torchvision``.

    Args:
        channels: Channels of an image.
        classes: Number of logits.
        width: Channels of the first stage; 64, 128, 256, 512 by default.
        zero_init: Whether the last norm of each block starts from zeros, so that the block starts as the identity.
        large_images: Whether the stem is that of ImageNet's images: a convolution of 7 x 7 with stride 2, and a max-pooling.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Returns:
        Module from [batch, channels, h, w] to logits [batch, classes].

    Source: He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385; zero_init: Goyal et al., "Accurate,
    Large Minibatch SGD", arXiv:1706.02677.

    Example:
        >>> import firebrick as fb
        >>> fb.models.resnet18(1, width=4)(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """
    place: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
    return ResNet(channels, classes, width, 2, zero_init, large_images, **place)
