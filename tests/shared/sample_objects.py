"""Layers, losses, initial values, optimizers, schedules, metrics and distributions, with what each is made and called with."""

from __future__ import annotations

from typing import Any

import numpy as np


def ramp(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers of both signs, none twice."""
    return np.sin(np.arange(np.prod(shape), dtype=np.float32) * 1.7 + 0.3).reshape(shape)


ROWS, SERIES, IMAGE, SPACE = ramp(4, 6), ramp(2, 4, 6), ramp(2, 4, 6, 6), ramp(1, 4, 4, 4, 4)
OF_RANK = {1: SERIES, 2: IMAGE, 3: SPACE}
LABELS, MASKS = np.asarray([0, 2, 1, 5]), (ramp(4, 6) > 0).astype(np.float32)
SIGNS = np.where(ramp(4) > 0, 1.0, -1.0).astype(np.float32)
INDICES = np.asarray([[0, 2, 1], [1, 4, 3]])

# class → what it is made with, and the arrays that it is called with
LAYERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    **dict.fromkeys(("CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
        "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax",
        "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Dropout", "AlphaDropout", "Identity"), ((), (ROWS,))),
    **{f"Dropout{r}d": ((), (OF_RANK[r],)) for r in (1, 2, 3)},
    **{f"Adaptive{k}Pool{r}d": ((2,), (OF_RANK[r],)) for k in ("Avg", "Max") for r in (1, 2, 3)},
    **{f"{k}Pool{r}d": ((2,), (OF_RANK[r],)) for k in ("Avg", "Max") for r in (1, 2, 3)},
    **{f"{k}Norm{r}d": ((4,), (OF_RANK[r],)) for k in ("Batch", "Instance") for r in (1, 2, 3)},
    **{f"Conv{r}d": ((4, 2, 3), (OF_RANK[r],)) for r in (1, 2, 3)},
    **{f"ConvTranspose{r}d": ((4, 2, 3, 2), (OF_RANK[r],)) for r in (1, 2, 3)},
    "Threshold": ((0.1, 2.0), (ROWS,)), "Bilinear": ((6, 6, 2), (ROWS, ROWS[::-1].copy())), "Linear": ((6, 2), (ROWS,)),
    "Embedding": ((5, 3), (INDICES,)), "EmbeddingBag": ((5, 3), (INDICES,)), "Flatten": ((), (IMAGE,)),
    "Unflatten": ((1, (2, 2)), (IMAGE,)), "Unfold": ((2,), (IMAGE,)), "Fold": ((3, 2), (ramp(2, 8, 4),)),
    "PixelShuffle": ((2,), (IMAGE,)), "PixelUnshuffle": ((2,), (IMAGE,)), "ZeroPad": ((1,), (IMAGE,)),
    "Upsample": ((None, 2), (IMAGE,)), "GroupNorm": ((2, 4), (IMAGE,)), "LayerNorm": ((6,), (ROWS,)),
    "RMSNorm": ((6,), (ROWS,)),
    "LocalResponseNorm": ((3,), (IMAGE,)), "SwiGLU": ((6, 4), (ROWS,)), "LearnedPositions": ((8, 6), (SERIES,)),
    "SinusoidalPositions": ((6,), (SERIES,)), "RNN": ((6, 4), (SERIES,)), "GRU": ((6, 4), (SERIES,)),
    "LSTM": ((6, 4), (SERIES,)),
    "RNNCell": ((6, 4), (ROWS, ramp(4, 4))), "GRUCell": ((6, 4), (ROWS, ramp(4, 4))), "LSTMCell": ((6, 4), (ROWS,)),
    "MultiheadAttention": ((6, 2), (SERIES, SERIES, SERIES)), "TransformerEncoderLayer": ((6, 2), (SERIES,)),
    "TransformerDecoderLayer": ((6, 2), (SERIES, SERIES)),
    **dict.fromkeys(("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss", "PoissonNLLLoss"), ((),
        (ROWS, MASKS))),
    "BCELoss": ((), (np.abs(ROWS), MASKS)), "KLDivLoss": ((), (-np.abs(ROWS), np.abs(ROWS))),
    "CrossEntropyLoss": ((), (ROWS, LABELS)), "NLLLoss": ((), (ROWS, LABELS)),
    "GaussianNLLLoss": ((), (ROWS, MASKS, np.abs(ROWS))), "HingeEmbeddingLoss": ((), (ROWS[:, 0].copy(), SIGNS)),
    "SoftMarginLoss": ((), (ROWS[:, 0].copy(), SIGNS)), "MarginRankingLoss": ((), (ROWS[:, 0].copy(), ROWS[:,
        1].copy(), SIGNS)),
    "CosineEmbeddingLoss": ((), (ROWS, ROWS[::-1].copy(), SIGNS)),
    "TripletMarginLoss": ((), (ROWS, ROWS[::-1].copy(), MASKS)),
    "CTCLoss": ((), (ramp(5, 2, 4), np.asarray([[1, 2], [3, 1]]), np.asarray([5, 4]), np.asarray([2, 1]))),
}  # fmt: skip
INITIAL: dict[str, tuple[Any, ...]] = {
    "gain": ("leaky_relu",), "uniform": ((3, 4),), "normal": ((3, 4),), "trunc_normal": ((3, 4),), "xavier_uniform": ((3, 4),),
    "xavier_normal": ((3, 4),), "kaiming_uniform": ((3, 4),), "kaiming_normal": ((3, 4),), "orthogonal": ((3, 4),),
    "sparse": ((3, 4), 0.5), "constant": ((3, 4), 2.0), "dirac": ((3, 4, 3),),
}  # fmt: skip
OPTIMIZERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "LAMB", "Lion", "Muon", "NAdam", "RAdam",
        "RMSprop", "SGD"), (0.1,)),
}  # fmt: skip
SCHEDULES: dict[str, tuple[Any, ...]] = {
    "constant": (0.5,), "cosine": (0.5, 6), "cosine_restarts": (0.5, 3), "exponential": (0.5, 0.9), "linear": (0.5, 6),
    "multi_step": (0.5, (2, 4)), "one_cycle": (0.5, 6), "one_cycle_momentum": (0.8, 0.9, 6), "polynomial": (0.5, 6),
    "product": ((0.5, 0.25),), "sequential": ((0.5, 0.25), (3,)), "step": (0.5, 2), "warmup": (0.5, 3),
}  # fmt: skip
METRICS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    **dict.fromkeys(("AUROC", "AveragePrecision", "ConfusionMatrix", "F1", "Precision", "Recall"), ((6,), (ROWS, LABELS))),
    "Accuracy": ((), (ROWS, LABELS)), "Perplexity": ((), (ROWS, LABELS)), "TopKAccuracy": ((2,), (ROWS, LABELS)),
    "MeanAbsoluteError": ((), (ROWS, MASKS)), "MeanSquaredError": ((), (ROWS, MASKS)), "R2Score": ((6,), (ROWS, MASKS)),
}  # fmt: skip
DISTRIBUTIONS: dict[str, tuple[Any, ...]] = {
    "Bernoulli": (0.25,), "Beta": (1.5, 2.5), "Binomial": (4, 0.25), "Cauchy": (0.5, 1.5), "Exponential": (1.5,),
    "Gamma": (1.5, 2.5),
    "Geometric": (0.25,), "Gumbel": (0.5, 1.5), "HalfNormal": (1.5,), "Laplace": (0.5, 1.5), "LogNormal": (0.5, 0.25),
    "Normal": (0.5, 1.5), "Poisson": (1.5,), "StudentT": (3.5, 0.5, 1.5), "Uniform": (-0.5, 4.5),
}  # fmt: skip
