"""All that is compared, with its targets: training steps, inference, functions of arrays, products of matrices, a chain."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.models import NETWORKS
from benchmarks.work import Work

ROWS = ("softmax", "layer_norm", "gelu", "cross_entropy")
SQUARES = {256: (10, 10), 512: (2, 2), 1024: (1, 1), 2048: (1, 1)}
"""Sides of square products, and how many factors there are on the left and on the right."""
SHAPES = {
    "MLP hidden": (64, 784, 256), "MLP weight": (784, 64, 256), "MLP large batch": (512, 784, 256), "CNN dense": (64, 512, 128),
    "transformer qkv": (1024, 128, 384), "transformer out": (1024, 128, 128), "transformer hidden": (1024, 128, 256),
    "transformer weight": (128, 1024, 384), "transformer scores": (128, 64, 16, 64), "transformer values": (128, 64, 64, 16),
    "LSTM step": (32, 128, 512), "PatchTST qkv": (37632, 16, 48), "PatchTST hidden": (37632, 16, 128),
    "PatchTST head": (896, 672, 96),
}  # fmt: skip
"""Products of the networks: (m, k, n), or (batch, m, k, n)."""
FUNCTIONS: dict[str, tuple[tuple[int, ...], bool, float]] = {
    **{f"cumulative {fold} along {axis}": ((2048, 1024), fold != "max", 0.9)
       for fold in ("sum", "product", "logsumexp", "max") for axis in (0, 1)},
    "sort": ((2048, 1024), False, 0.8), "argsort": ((2048, 1024), False, 0.8), "sort of 2 M": ((1 << 21,), False, 0.8),
    "argsort of 2 M": ((1 << 21,), False, 0.8), "32 largest": ((2048, 1024), False, 0.8), "median": ((2048, 1024), False, 0.8),
    "depthwise 16²": ((32, 64, 16, 16), True, 0.9), "depthwise 8²": ((32, 128, 8, 8), True, 0.9),
    "depthwise 16² stride 2": ((32, 64, 16, 16), True, 0.9), "grouped 16²": ((32, 64, 16, 16), True, 0.9),
    "grouped 8²": ((32, 64, 8, 8), True, 0.9), "grouped 16² stride 2": ((32, 64, 16, 16), True, 0.9),
    "bilinear": ((16, 16, 64, 64), False, 0.9),
    "causal attention 128": ((8, 8, 128, 64), True, 0.85), "causal attention 512": ((2, 8, 512, 64), True, 0.85),
    "causal attention 2048": ((1, 4, 2048, 64), True, 0.85),
}  # fmt: skip
"""Other functions of one array: its shape, whether the gradient is measured too, and the target."""
MOST = 1 << 24
"""Elements of all results of one call; shapes with more get fewer than 100 products."""


def trainings(threads: int) -> Iterator[Work]:
    """A training step of each network."""
    for name, net in NETWORKS.items():
        for batch, ratio in zip(net.batches, net.ratio, strict=True):
            yield Work(f"train/{name}/{batch}", "training", name, batch, threads, ratio, dropout=net.dropout)


def eager_trainings(threads: int) -> Iterator[Work]:
    """Training steps without ``jit``."""
    for name in ("cnn", "two blocks"):
        for batch in (1, 32):
            yield Work(f"eager/{name}/{batch}", "training", name, batch, threads, 1.5, eager=True)


def inferences(threads: int) -> Iterator[Work]:
    """Inference of each network, with one input, with 32, and with the batch that it is trained with."""
    for name, net in NETWORKS.items():
        if not net.batches or net.rows:
            continue
        for batch in sorted({1, 32, *net.batches}):
            yield Work(f"infer/{name}/{batch}", "inference", name, batch, threads, 0.75)


def rows(threads: int) -> Iterator[Work]:
    """Functions of 4096 rows of 1024, forward, and forward with the gradient."""
    for name in ROWS:
        for gradient in (False, True):
            how = "forward and backward" if gradient else "forward"
            yield Work(f"rows/{name}/{how}", "rows", name, 0, threads, 0.75, gradient=gradient, shape=(4096, 1024))


def functions(threads: int) -> Iterator[Work]:
    """Running folds, sorts, depthwise convolutions, interpolation and causal attention."""
    for name, (shape, differentiated, ratio) in FUNCTIONS.items():
        for gradient in (False, True)[: 1 + differentiated]:
            how = "forward and backward" if gradient else "forward"
            yield Work(f"functions/{name}/{how}", "rows", name, 0, threads, ratio, gradient=gradient, shape=shape)


def products(threads: int) -> Iterator[Work]:
    """Square products, and those of the networks: 100 in one plan unless they are large."""
    for n, count in SQUARES.items():
        yield Work(f"gemm/{n}", "products", "", 0, threads, 1.05, shape=(n, n, n), count=count)
    for name, shape in SHAPES.items():
        *batch, m, _, n = shape
        size = m * n * (batch[0] if batch else 1)
        side = next(s for s in (10, 5, 2, 1) if s * s * size <= MOST or s == 1)
        yield Work(
            f"gemm/{name} {'×'.join(map(str, shape))}", "products", "", 0, threads, 1.05, shape=shape, count=(side, side)
        )


def chains(threads: int) -> Iterator[Work]:
    """relu(2x + 1) · sigmoid(x) on 8 million elements."""
    yield Work("chain/relu(2x+1)*sigmoid(x)", "rows", "chain", 0, threads, share=0.75, shape=(1 << 23,))


def everything(threads: int) -> list[Work]:
    """All of it, as listed in the documents."""
    return [w for part in (trainings, eager_trainings, inferences, rows, functions, products, chains) for w in part(threads)]
