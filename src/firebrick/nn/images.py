"""Layers that resample images, and that move their elements between channels, places and columns of patches."""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.convolution import Sizes
from firebrick.functions.interpolation import interpolate, pixel_shuffle, pixel_unshuffle
from firebrick.functions.windows import fold2d, unfold2d
from firebrick.nn.checks import check_sizes
from firebrick.nn.module import Module


class Upsample(Module):
    """Images of another size, by interpolation.

    Args:
        size: New sizes, an int or one for each axis.
        scale_factor: In place of ``size``: factors.
        mode: As for ``fb.interpolate``.
        align_corners: As for ``fb.interpolate``.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Upsample(scale_factor=2, mode="bilinear")(fb.ones((1, 3, 4, 4))).shape
        (1, 3, 8, 8)
    """

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False
    ) -> None:  # fmt: skip
        if (size is None) == (scale_factor is None):
            raise ConfigError(
                "Upsample: either size or scale_factor is given", f"size={size!r}, scale_factor={scale_factor!r}", "give one"
            )
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        """Interpolate x [batch, channels, *image].

        Args:
            x: Floating tensor [batch, channels, *image].
        """
        return interpolate(
            x, self.size, scale_factor=self.scale_factor, mode=self.mode, align_corners=self.align_corners
        )  # fmt: skip

    def describe(self) -> str:
        goal = f"size={self.size}" if self.size is not None else f"scale_factor={self.scale_factor}"
        return f"{goal}, mode={self.mode!r}" + (", align_corners=True" if self.align_corners else "")


class PixelShuffle(Module):
    """[batch, channels · factor², h, w] to [batch, channels, h · factor, w · factor].

    Args:
        factor: How much larger the images become.

    Source: Shi et al., arXiv:1609.05158.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.PixelShuffle(2)(fb.ones((1, 12, 4, 4))).shape
        (1, 3, 8, 8)
    """

    def __init__(self, factor: int) -> None:
        check_sizes("PixelShuffle", factor=factor)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Move channels to positions.

        Args:
            x: Tensor [batch, channels · factor², height, width].
        """
        return pixel_shuffle(x, self.factor)

    def describe(self) -> str:
        return f"{self.factor}"


class PixelUnshuffle(Module):
    """[batch, channels, h · factor, w · factor] to [batch, channels · factor², h, w].

    Args:
        factor: How much smaller the images become.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.PixelUnshuffle(2)(fb.ones((1, 3, 8, 8))).shape
        (1, 12, 4, 4)
    """

    def __init__(self, factor: int) -> None:
        check_sizes("PixelUnshuffle", factor=factor)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Move positions to channels.

        Args:
            x: Tensor [batch, channels, height · factor, width · factor].
        """
        return pixel_unshuffle(x, self.factor)

    def describe(self) -> str:
        return f"{self.factor}"


class Unfold(Module):
    """Images [batch, channels, height, width] as columns of patches; arguments as for ``fb.unfold2d``.

    Args:
        kernel: Size of a patch, an int or (height, width).
        stride: Step between patches.
        padding: Padding with zeros.
        dilation: Step between the elements of a patch.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Unfold(2)(fb.ones((1, 3, 4, 4))).shape
        (1, 12, 9)
    """

    def __init__(self, kernel: Sizes, *, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1) -> None:
        self.kernel, self.stride, self.padding, self.dilation = kernel, stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        """Columns [batch, channels · elements of a patch, patches].

        Args:
            x: Floating tensor [batch, channels, height, width].
        """
        return unfold2d(x, self.kernel, stride=self.stride, padding=self.padding, dilation=self.dilation)

    def describe(self) -> str:
        return f"{self.kernel}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}"


class Fold(Module):
    """The sum of columns of patches in images: the transpose of ``Unfold``; arguments as for ``fb.fold2d``.

    Args:
        size: Size of the images, an int or (height, width).
        kernel: Size of a patch.
        stride: Step between patches.
        padding: Padding that the images had.
        dilation: Step between the elements of a patch.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Fold(4, 2, stride=2)(fb.ones((1, 12, 4))).shape
        (1, 3, 4, 4)
    """

    def __init__(self, size: Sizes, kernel: Sizes, *, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1) -> None:
        self.size, self.kernel, self.stride, self.padding, self.dilation = size, kernel, stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        """Images [batch, channels, height, width] from columns [batch, channels · elements of a patch, patches].

        Args:
            x: Floating tensor of the columns.
        """
        how = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return fold2d(x, self.size, self.kernel, **how)

    def describe(self) -> str:
        return f"{self.size}, {self.kernel}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}"
