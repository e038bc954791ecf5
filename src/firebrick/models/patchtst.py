"""PatchTST: a transformer on the patches of each series of a multivariate window, each series by itself.

The series of a window share all weights and never see one another (channel independence), so a batch of windows is one
batch of series. Each is normalised by its own mean and deviation, cut into overlapping patches, encoded, and mapped to the
next values by one dense layer; the level and scale taken away at the beginning are given back at the end.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.activation import gelu
from firebrick.functions.indexing import take
from firebrick.functions.linear import matmul
from firebrick.functions.movement import flatten, matrix_transpose, permute_dims, reshape
from firebrick.functions.normalisation import softmax
from firebrick.functions.statistical import mean, var
from firebrick.models.checks import check_counts, check_heads
from firebrick.nn import BatchNorm1d, Dropout, Linear, Module, initial
from firebrick.random import Generator, initial_generator

_POSITION_BOUND = 0.02
_NORM_EPS = 1e-5


class ResidualAttention(Module):
    """Self-attention whose scores are added to those of the layer before: softmax(Q Kᵀ / √d + scores) V.

    Args:
        dim: Features of a patch.
        heads: Attention heads; divides ``dim``.
        how: ``generator``, ``dtype`` and ``device`` of the parameters.

    Source: He et al., "RealFormer: Transformer Likes Residual Attention", arXiv:2012.11747.
    """

    def __init__(self, dim: int, heads: int, **how: Any) -> None:
        self.dim, self.heads = dim, heads
        self.qkv = Linear(dim, 3 * dim, **how)
        self.out = Linear(dim, dim, **how)

    def forward(self, x: Tensor, scores: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map x [batch, n, dim] and scores [batch, heads, n, n] to the same shapes."""
        batch, n, _ = x.shape
        parts = permute_dims(reshape(self.qkv(x), (batch, n, 3, self.heads, self.dim // self.heads)), (2, 0, 3, 1, 4))
        q, k, v = parts[0], parts[1], parts[2]
        own = matmul(q * (1.0 / sqrt(self.dim // self.heads)), matrix_transpose(k))
        scores = own if scores is None else own + scores
        y = permute_dims(matmul(softmax(scores), v), (0, 2, 1, 3))
        return self.out(reshape(y, (batch, n, self.dim))), scores


def _dropped(dropout: Dropout, x: Tensor, series: int) -> Tensor:
    """Dropout of x [batch · series, …], drawn as [batch, series, …]: a part of a batch drops what the whole batch would."""
    if not dropout.training or dropout.p == 0.0:
        return x
    return reshape(dropout(reshape(x, (x.shape[0] // series, series, *x.shape[1:]))), x.shape)


class PatchEncoderLayer(Module):
    """norm(x + attention(x)), then norm(x + dense(x)) with a GELU between two dense layers; batch norm over features.

    Args:
        series: Number of series of a window.
        dim: Features of a patch.
        heads: Attention heads; divides ``dim``.
        hidden: Features between the dense layers.
        dropout: Probability of dropping an element of the attention's projection, of both branches and of the hidden
            features in training.
        seeds: Source of the dropout's masks.
        how: ``generator``, ``dtype`` and ``device`` of the parameters.
    """

    def __init__(
        self, series: int, dim: int, heads: int, hidden: int, dropout: float, seeds: Generator, **how: Any
    ) -> None:  # fmt: skip
        self.series = series
        where_ = {"dtype": how["dtype"], "device": how["device"]}
        self.attention = ResidualAttention(dim, heads, **how)
        self.norm1 = BatchNorm1d(dim, **where_)
        self.linear1 = Linear(dim, hidden, **how)
        self.linear2 = Linear(hidden, dim, **how)
        self.norm2 = BatchNorm1d(dim, **where_)
        self.dropout = Dropout(dropout, generator=seeds.fork())

    def forward(self, x: Tensor, scores: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map x [batch · series, n, dim] and the scores of the layer before to this layer's."""
        attended, scores = self.attention(x, scores)
        x = self._norm(self.norm1, x + self._drop(self._drop(attended)))
        y = self.linear2(self._drop(gelu(self.linear1(x))))
        return self._norm(self.norm2, x + self._drop(y)), scores

    def _drop(self, x: Tensor) -> Tensor:
        return _dropped(self.dropout, x, self.series)

    def _norm(self, norm: BatchNorm1d, x: Tensor) -> Tensor:
        """Batch norm of each feature over all patches: as [batch · n, dim], which moves nothing."""
        return reshape(norm(reshape(x, (-1, x.shape[-1]))), x.shape)


class PatchTST(Module):
    """PatchTST, supervised form; ``patchtst`` builds it.

    Args:
        series: Number of series of a window; fixed by nothing but the check of the input.
        window: Values of each series that are seen.
        horizon: Values of each series that are predicted.
        patch: Values of a patch.
        stride: Values from one patch to the next.
        dim: Features of a patch.
        heads: Attention heads; divides ``dim``.
        hidden: Features between the dense layers of a block.
        layers: Encoder blocks.
        dropout: Probability of dropping an element inside the blocks in training.
        generator: Source of initial values.
        how: ``dtype`` and ``device`` of the parameters.

    Example:
        >>> import firebrick as fb
        >>> model = fb.models.PatchTST(
        ...     series=2,
        ...     window=32,
        ...     horizon=4,
        ...     patch=16,
        ...     stride=8,
        ...     dim=8,
        ...     heads=2,
        ...     hidden=16,
        ...     layers=1,
        ...     dropout=0.0,
        ...     generator=None,
        ...     dtype=None,
        ...     device=None,
        ... )
        >>> model(fb.ones((3, 32, 2))).shape
        (3, 4, 2)
    """

    def __init__(
        self, series: int, window: int, horizon: int, patch: int, stride: int, dim: int, heads: int, hidden: int, layers: int,
        dropout: float, generator: Generator | None, **how: Any,
    ) -> None:  # fmt: skip
        check_counts("patchtst", series=series, window=window, horizon=horizon, patch=patch, stride=stride)
        check_counts("patchtst", dim=dim, heads=heads, hidden=hidden, layers=layers)
        check_heads("patchtst", dim, heads)
        if patch > window:
            raise ConfigError(
                "patchtst: a patch is no longer than the window", f"patch = {patch}, window = {window}", "change one of them"
            )
        generator = generator or initial_generator()
        with_ = {"generator": generator, **how}
        self.series, self.window, self.horizon, self.stride = series, window, horizon, stride
        # the last value is repeated `stride` times at the end, so that it is in two patches as all the others are
        self.count = (window - patch) // stride + 2
        starts = np.arange(self.count)[:, None] * stride + np.arange(patch)
        self._places = np.minimum(starts, window - 1).reshape(-1)
        self.embed = Linear(patch, dim, **with_)
        self.position = initial.uniform((self.count, dim), bound=_POSITION_BOUND, **with_)
        self.dropout = Dropout(dropout, generator=generator.fork())
        self.blocks = [PatchEncoderLayer(series, dim, heads, hidden, dropout, generator, **with_) for _ in range(layers)]
        self.head = Linear(self.count * dim, horizon, **with_)

    def forward(self, x: Tensor) -> Tensor:
        """Map windows [batch, window, series] to forecasts [batch, horizon, series].

        Args:
            x: Floating tensor of the windows.
        """
        if x.ndim != 3 or x.shape[1:] != (self.window, self.series):
            raise ShapeError(
                f"patchtst: x is [batch, {self.window}, {self.series}]",
                describe("x", x),
                "cut the series into windows of this length, or build the model for them",
            )
        level = mean(x, axis=1, keepdims=True)
        scale = (var(x, axis=1, keepdims=True) + _NORM_EPS) ** 0.5
        rows = reshape(permute_dims((x - level) / scale, (0, 2, 1)), (-1, self.window))
        y = _dropped(self.dropout, self.embed(self._patches(rows)) + self.position, self.series)
        scores = None
        for block in self.blocks:
            y, scores = block(y, scores)
        forecast = reshape(self.head(flatten(y, start_axis=1)), (-1, self.series, self.horizon))
        return permute_dims(forecast, (0, 2, 1)) * scale + level

    def _patches(self, rows: Tensor) -> Tensor:
        """Series [n, window] as patches [n, count, patch]."""
        places: Tensor = hooks.from_host(self._places, rows.device)
        return reshape(take(rows, places, axis=1), (rows.shape[0], self.count, len(self._places) // self.count))


@answers_arguments
def patchtst(
    series: int = 7, window: int = 336, horizon: int = 96, *, patch: int = 16, stride: int = 8, dim: int = 16, heads: int = 4,
    hidden: int = 128, layers: int = 3, dropout: float = 0.3, generator: Generator | None = None, dtype: Any = None,
    device: Any = None,
) -> PatchTST:  # fmt: skip
    """PatchTST/42 in its small form, as it was published for the ETTh data sets.

    Args:
        series: Number of series of a window.
        window: Values of each series that are seen (the look-back).
        horizon: Values of each series that are predicted.
        patch: Values of a patch.
        stride: Values from one patch to the next.
        dim: Features of a patch.
        heads: Attention heads; divides ``dim``.
        hidden: Features between the dense layers of a block.
        layers: Encoder blocks.
        dropout: Probability of dropping an element inside the blocks in training.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Returns:
        Module from [batch, window, series] to [batch, horizon, series], in the level and scale of each window's series.

    Source: Nie et al., "A Time Series is Worth 64 Words", arXiv:2211.14730.

    Example:
        >>> import firebrick as fb
        >>> fb.models.patchtst(series=2, window=32, horizon=4, layers=1)(fb.ones((3, 32, 2))).shape
        (3, 4, 2)
    """
    return PatchTST(
        series, window, horizon, patch, stride, dim, heads, hidden, layers, dropout, generator, dtype=dtype, device=device
    )
