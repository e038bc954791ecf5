"""Transformers over patches: of an image, for classification; of a window of a time series, for forecasting."""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import flatten, permute_dims, reshape
from firebrick.functions.statistical import mean, var
from firebrick.models.checks import check_counts, check_heads
from firebrick.nn import LayerNorm, Linear, Module, TransformerEncoderLayer, initial
from firebrick.random import Generator

_POSITION_STD = 0.02


def _check_patch(name: str, whole: str, size: int, patch: int) -> int:
    if size % patch:
        raise ConfigError(f"{name}: patch divides {whole}", f"{whole} = {size}, patch = {patch}", "change one of them")
    return size // patch


class PatchTransformer(Module):
    """Patches of an image, embedded, with learned positions, through encoder blocks; ``transformer`` builds it.

    Args:
        image: Height and width of an image.
        patch: Height and width of a patch; divides ``image``.
        dim: Features of a patch.
        heads: Attention heads; divides ``dim``.
        layers: Encoder blocks.
        classes: Number of logits.
        channels: Channels of an image.
        dropout: Probability of dropping an element inside the blocks in training.
        how: ``generator``, ``dtype`` and ``device`` of the parameters.

    Example:
        >>> import firebrick as fb
        >>> model = fb.models.PatchTransformer(8, 2, dim=8, heads=2, layers=1, classes=10, channels=1, dropout=0.0)
        >>> model(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """

    def __init__(
        self, image: int, patch: int, dim: int, heads: int, layers: int, classes: int, channels: int, dropout: float,
        **how: Any,
    ) -> None:  # fmt: skip
        check_counts("transformer", image=image, patch=patch, dim=dim, heads=heads)
        check_counts("transformer", 0, layers=layers)
        check_counts("transformer", classes=classes, channels=channels)
        check_heads("transformer", dim, heads)
        self.side, self.patch, self.channels = _check_patch("transformer", "image", image, patch), patch, channels
        self.embed = Linear(channels * patch * patch, dim, **how)
        self.position = initial.normal((self.side * self.side, dim), std=_POSITION_STD, **how)
        self.blocks = [TransformerEncoderLayer(dim, heads, dropout=dropout, **how) for _ in range(layers)]
        self.norm = LayerNorm(dim, dtype=how.get("dtype"), device=how.get("device"))
        self.head = Linear(dim, classes, **how)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, channels, image, image] to logits [batch, classes].

        Args:
            x: Floating tensor of the images.
        """
        x = self.embed(self._patches(x)) + self.position
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(mean(self.norm(x), axis=1))
        return logits

    def _patches(self, x: Tensor) -> Tensor:
        """[batch, channels, image, image] as [batch, patches, channels · patch²]."""
        size = self.side * self.patch
        if x.ndim != 4 or x.shape[1:] != (self.channels, size, size):
            raise ShapeError(
                f"transformer: x is [batch, {self.channels}, {size}, {size}]",
                describe("x", x),
                "reshape x, or build the model for its images",
            )
        cut = reshape(x, (x.shape[0], self.channels, self.side, self.patch, self.side, self.patch))
        values = self.channels * self.patch * self.patch
        return reshape(permute_dims(cut, (0, 2, 4, 1, 3, 5)), (x.shape[0], self.side * self.side, values))


@answers_arguments
def transformer(
    image: int = 28, patch: int = 7, dim: int = 64, heads: int = 4, layers: int = 2, classes: int = 10, *,
    channels: int = 1, dropout: float = 0.0, generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> PatchTransformer:  # fmt: skip
    """A transformer on the patches of an image: embedding, learned positions, pre-norm blocks, mean over patches, head.

    Args:
        image: Height and width of an image.
        patch: Height and width of a patch; divides ``image``.
        dim: Features of a patch.
        heads: Attention heads; divides ``dim``.
        layers: Encoder blocks.
        classes: Number of logits.
        channels: Channels of an image.
        dropout: Probability of dropping an element inside the blocks in training.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Returns:
        Module from [batch, channels, image, image] to logits [batch, classes].

    Source: Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv:2010.11929.

    Example:
        >>> import firebrick as fb
        >>> fb.models.transformer(8, 2, dim=16, heads=2, layers=1)(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """
    return PatchTransformer(
        image, patch, dim, heads, layers, classes, channels, dropout, generator=generator, dtype=dtype, device=device
    )


class PatchForecaster(Module):
    """Patches of a window, embedded, through encoder blocks, to the next values; ``patch_transformer_forecaster`` builds it.

    Args:
        window: Values that are seen.
        horizon: Values that are predicted.
        patch: Values of a patch; divides ``window``.
        dim: Features of a patch.
        heads: Attention heads; divides ``dim``.
        layers: Encoder blocks.
        how: ``generator``, ``dtype`` and ``device`` of the parameters.

    Example:
        >>> import firebrick as fb
        >>> fb.models.PatchForecaster(24, 6, patch=4, dim=8, heads=2, layers=1)(fb.ones((3, 24))).shape
        (3, 6)
    """

    def __init__(self, window: int, horizon: int, patch: int, dim: int, heads: int, layers: int, **how: Any) -> None:
        where = "patch_transformer_forecaster"
        check_counts(where, window=window, horizon=horizon, patch=patch, dim=dim, heads=heads)
        check_counts(where, 0, layers=layers)
        check_heads(where, dim, heads)
        self.window, self.patch = window, patch
        self.count = _check_patch(where, "window", window, patch)
        self.embed = Linear(patch, dim, **how)
        self.position = initial.normal((self.count, dim), std=_POSITION_STD, **how)
        self.blocks = [TransformerEncoderLayer(dim, heads, **how) for _ in range(layers)]
        self.norm = LayerNorm(dim, dtype=how.get("dtype"), device=how.get("device"))
        self.head = Linear(self.count * dim, horizon, **how)

    def forward(self, x: Tensor) -> Tensor:
        """Map windows [batch, window] to forecasts [batch, horizon], in the window's own level and scale.

        Args:
            x: Floating tensor of the windows.
        """
        if x.ndim != 2 or x.shape[1] != self.window:
            raise ShapeError(
                f"patch_transformer_forecaster: x is [batch, {self.window}]",
                describe("x", x),
                "cut the series into windows of this length",
            )
        level, scale = mean(x, axis=1, keepdims=True), (var(x, axis=1, keepdims=True) + 1e-5) ** 0.5
        y = self.embed(reshape((x - level) / scale, (x.shape[0], self.count, self.patch))) + self.position
        for block in self.blocks:
            y = block(y)
        forecast: Tensor = self.head(flatten(self.norm(y), start_axis=1))
        return forecast * scale + level


@answers_arguments
def patch_transformer_forecaster(
    window: int, horizon: int, patch: int, dim: int = 32, heads: int = 2, layers: int = 2, *,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> PatchForecaster:  # fmt: skip
    """A small transformer that predicts the next values of a series from patches of a window.

    Args:
        window: Values that are seen.
        horizon: Values that are predicted.
        patch: Values of a patch; divides ``window``.
        dim: Features of a patch.
        heads: Attention heads; divides ``dim``.
        layers: Encoder blocks.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Returns:
        Module from [batch, window] to [batch, horizon].

    Source: Nie et al., "A Time Series is Worth 64 Words", arXiv:2211.14730.

    Example:
        >>> import firebrick as fb
        >>> fb.models.patch_transformer_forecaster(24, 6, patch=4)(fb.ones((3, 24))).shape
        (3, 6)
    """
    return PatchForecaster(window, horizon, patch, dim, heads, layers, generator=generator, dtype=dtype, device=device)
