"""The networks of the benchmarks: how each is built, on what it is trained, and its initial parameters.

Firebrick's form is the model of record: its parameters, under their names, are what every contender starts from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import firebrick as fb
from firebrick import nn

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Network:
    """A network and how it is trained.

    Attributes:
        build: Makes the module, given the probability of dropout.
        shape: Of one input.
        target: Of one target: () for a class, else the shape of the values.
        batches: Sizes of the batch that it is trained with under ``jit``; inference has them and 1.
        ratio: A training step's target against the best peer, for each size of the batch.
        lr: Learning rate.
        momentum: Of SGD; None for Adam.
        dropout: Probability in training.
        images: Whether inputs are images, for which layouts are tried.
        rows: Inputs are indices below it; 0 for floating inputs.
    """

    build: Callable[[float], nn.Module]
    shape: tuple[int, ...]
    batches: tuple[int, ...]
    ratio: tuple[float, ...]
    target: tuple[int, ...] = ()
    lr: float = 1e-3
    momentum: float | None = None
    dropout: float = 0.0
    images: bool = False
    rows: int = 0

    def data(self, batch: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Inputs [batch, *shape], float32 or int64, and targets: classes [batch], int64, or values [batch, *target]."""
        rng = np.random.default_rng(1)
        shape = (batch, *self.shape)
        x = rng.integers(0, self.rows, shape) if self.rows else rng.normal(size=shape).astype(np.float32)
        if self.target:
            return x, rng.normal(size=(batch, *self.target)).astype(np.float32)
        return x, rng.integers(0, 10, batch)

    def arrays(self) -> Arrays:
        """Initial parameters by name, drawn by the reference engine."""
        with fb.use_device("numpy"):
            fb.random.seed(0)
            return {name: p.numpy().copy() for name, p in self.build(0.0).named_parameters()}


def _cnn(_: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


class Transformer(nn.Module):
    """Tokens of 16 features, embedded in 128, through pre-norm blocks of 8 heads; classes from the tokens' mean.

    Args:
        blocks: Number of blocks.
    """

    def __init__(self, blocks: int = 3) -> None:
        self.embed = nn.Linear(16, 128)
        self.encoder = nn.TransformerEncoder(128, 8, blocks, 256)
        self.head = nn.Linear(128, 10)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map [batch, tokens, 16] to logits [batch, 10]."""
        logits: fb.Tensor = self.head(fb.mean(self.encoder(self.embed(x)), axis=1))
        return logits


class LastOfLSTM(nn.Module):
    """An LSTM over rows of 32, and a dense layer on its last output.

    Args:
        hidden: Number of its features.
    """

    def __init__(self, hidden: int = 128) -> None:
        self.lstm, self.head = nn.LSTM(32, hidden), nn.Linear(hidden, 10)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map [batch, time, 32] to logits [batch, 10]."""
        logits: fb.Tensor = self.head(self.lstm(x)[0][:, -1])
        return logits


class LastOfGRU(nn.Module):
    """The same with a GRU.

    Args:
        hidden: Number of its features.
    """

    def __init__(self, hidden: int) -> None:
        self.gru, self.head = nn.GRU(32, hidden), nn.Linear(hidden, 10)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map [batch, time, 32] to logits [batch, 10]."""
        logits: fb.Tensor = self.head(self.gru(x)[0][:, -1])
        return logits


class Inverted(nn.Module):
    """An inverted residual block: four times the channels, a depthwise convolution of them, and back.

    Args:
        channels: Channels of its input and its result.
    """

    def __init__(self, channels: int) -> None:
        wide = 4 * channels
        self.expand, self.norm1 = nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.depthwise, self.norm2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide)
        self.project, self.norm3 = nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map images [batch, channels, height, width] to images of the same shape."""
        y = fb.relu(self.norm1(self.expand(x)))
        y = fb.relu(self.norm2(self.depthwise(y)))
        return x + self.norm3(self.project(y))


class MobileBlocks(nn.Module):
    """Three inverted residual blocks of 32 channels, and a dense layer on the mean of the image."""

    def __init__(self) -> None:
        self.blocks, self.head = [Inverted(32) for _ in range(3)], nn.Linear(32, 10)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map images [batch, 32, height, width] to logits [batch, 10]."""
        for block in self.blocks:
            x = block(x)
        logits: fb.Tensor = self.head(fb.mean(x, axis=(2, 3)))
        return logits


class Tables(nn.Module):
    """Three tables of 100,000 rows of 32, a row of each for an input, and a dense layer on the rows."""

    def __init__(self) -> None:
        self.tables = [nn.Embedding(100_000, 32) for _ in range(3)]
        self.head = nn.Linear(96, 1)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map indices [batch, 3] to [batch, 1]."""
        found: fb.Tensor = self.head(fb.concat([table(x[:, k]) for k, table in enumerate(self.tables)], axis=1))
        return found


NETWORKS = {
    "mlp": Network(lambda _: fb.models.mlp(784), (784,), (64, 512, 1024), (0.80, 1.0, 0.85)),
    "cnn": Network(_cnn, (1, 28, 28), (64,), (0.50,), images=True),
    "resnet18": Network(lambda _: fb.models.resnet18(), (3, 32, 32), (32,), (0.80,), lr=0.01, momentum=0.9, images=True),
    "transformer": Network(lambda _: Transformer(), (64, 16), (16,), (0.70,)),
    "two blocks": Network(lambda _: Transformer(2), (64, 16), (), ()),
    "lstm": Network(lambda _: LastOfLSTM(), (64, 32), (32,), (0.50,)),
    "lstm 64": Network(lambda _: LastOfLSTM(64), (64, 32), (32,), (0.50,)),
    "lstm 512": Network(lambda _: LastOfLSTM(512), (64, 32), (32,), (0.50,)),
    "gru 64": Network(lambda _: LastOfGRU(64), (64, 32), (32,), (0.50,)),
    "gru 128": Network(lambda _: LastOfGRU(128), (64, 32), (32,), (0.50,)),
    "gru 512": Network(lambda _: LastOfGRU(512), (64, 32), (32,), (0.50,)),
    "mobile blocks": Network(lambda _: MobileBlocks(), (32, 16, 16), (32,), (0.85,), lr=0.01, momentum=0.9, images=True),
    "patchtst": Network(
        lambda p: fb.models.patchtst(dropout=p), (336, 7), (128,), (0.70,), target=(96, 7), lr=1e-4, dropout=0.3
    ),
    "embedding": Network(lambda _: Tables(), (3,), (1024,), (0.80,), target=(1,), lr=0.01, momentum=0.0, rows=100_000),
    "embedding adam": Network(lambda _: Tables(), (3,), (1024,), (1.0,), target=(1,), rows=100_000),
}  # fmt: skip
