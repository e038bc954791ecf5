"""The losses of random networks: texts, and the targets that go with an output of some shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Targets = Callable[[np.random.Generator, Shape], list[np.ndarray]]


@dataclass(frozen=True)
class Loss:
    """One kind.

    Attributes:
        texts: Of the module, for both libraries; ``{r}`` is the reduction.
        targets: Draws what else it takes.
        before: What the output goes through first: ``log_softmax``, ``sigmoid``, ``time_first`` or nothing.
        ranks: Of outputs that it takes.
        reductions: That both libraries have.
    """

    texts: tuple[str, ...]
    targets: Targets
    before: str = ""
    ranks: tuple[int, ...] = (2, 3, 4, 5)
    reductions: tuple[str, ...] = ("mean", "mean", "sum")

    def draw_text(self, d: Any) -> str:
        return d.choice(self.texts).format(r=repr(d.choice(self.reductions)))


def _like(rng: np.random.Generator, s: Shape) -> list[np.ndarray]:
    return [rng.normal(size=s)]


def _labels(rng: np.random.Generator, s: Shape) -> list[np.ndarray]:
    return [rng.integers(0, s[1], (s[0], *s[2:]))]


def _shares(rng: np.random.Generator, s: Shape) -> list[np.ndarray]:
    return [rng.uniform(0.1, 0.9, s)]


def _probabilities(rng: np.random.Generator, s: Shape) -> list[np.ndarray]:
    p = rng.uniform(0.1, 1.0, s)
    return [p / p.sum(1, keepdims=True)]


def _signs(rng: np.random.Generator, s: Shape) -> np.ndarray:
    return np.where(rng.random(s) < 0.5, -1.0, 1.0)


def _ctc(rng: np.random.Generator, s: Shape) -> list[np.ndarray]:
    n, length, classes = s
    count = (length + 1) // 2
    return [rng.integers(1, classes, (n, count)), np.full(n, length), np.full(n, count)]


LOSSES: dict[str, Loss] = {
    "MSELoss": Loss(("nn.MSELoss(reduction={r})",), _like),
    "L1Loss": Loss(("nn.L1Loss(reduction={r})",), _like),
    "SmoothL1Loss": Loss(("nn.SmoothL1Loss(reduction={r})", "nn.SmoothL1Loss(reduction={r}, beta=0.3)"), _like),
    "HuberLoss": Loss(("nn.HuberLoss(reduction={r})", "nn.HuberLoss(reduction={r}, delta=0.5)"), _like),
    "CrossEntropyLoss": Loss(
        ("nn.CrossEntropyLoss(reduction={r})", "nn.CrossEntropyLoss(reduction={r}, label_smoothing=0.2)"), _labels
    ),
    "CrossEntropyLoss of probabilities": Loss(("nn.CrossEntropyLoss(reduction={r})",), _probabilities),
    "NLLLoss": Loss(("nn.NLLLoss(reduction={r})",), _labels, "log_softmax"),
    "BCEWithLogitsLoss": Loss(("nn.BCEWithLogitsLoss(reduction={r})",), _shares),
    "BCELoss": Loss(("nn.BCELoss(reduction={r})",), _shares, "sigmoid"),
    "KLDivLoss": Loss(
        ("nn.KLDivLoss(reduction={r})",), _probabilities, "log_softmax", reductions=("mean", "sum", "batchmean")
    ),
    "PoissonNLLLoss": Loss(
        ("nn.PoissonNLLLoss(reduction={r})", "nn.PoissonNLLLoss(reduction={r}, full=True)"),
        lambda rng, s: [rng.integers(0, 4, s).astype(np.float64)],
    ),
    "GaussianNLLLoss": Loss(
        ("nn.GaussianNLLLoss(reduction={r})",), lambda rng, s: [rng.normal(size=s), rng.uniform(0.5, 2.0, s)]
    ),
    "CosineEmbeddingLoss": Loss(
        ("nn.CosineEmbeddingLoss(reduction={r}, margin=-0.3)",),
        lambda rng, s: [rng.normal(size=s), _signs(rng, s[:1])], ranks=(2,),
    ),
    "TripletMarginLoss": Loss(
        (
            "nn.TripletMarginLoss(reduction={r})", "nn.TripletMarginLoss(reduction={r}, p=1.0)",
            "nn.TripletMarginLoss(reduction={r}, swap=True)",
        ),
        lambda rng, s: [rng.normal(size=s), rng.normal(size=s)],
    ),
    "MarginRankingLoss": Loss(
        ("nn.MarginRankingLoss(reduction={r}, margin=0.5)",), lambda rng, s: [rng.normal(size=s), _signs(rng, s)]
    ),
    "HingeEmbeddingLoss": Loss(("nn.HingeEmbeddingLoss(reduction={r})",), lambda rng, s: [_signs(rng, s)]),
    "SoftMarginLoss": Loss(("nn.SoftMarginLoss(reduction={r})",), lambda rng, s: [_signs(rng, s)]),
    "CTCLoss": Loss(("nn.CTCLoss(reduction={r})",), _ctc, "time_first", (3,), ("sum", "sum", "mean")),
}  # fmt: skip


def takes(name: str, shape: Shape) -> bool:
    """Whether a loss takes outputs of a shape."""
    if name == "CTCLoss":
        return len(shape) == 3 and shape[2] > 1 and shape[1] <= 12
    if name == "CrossEntropyLoss of probabilities" and shape[1:2] == (1,):  # refused: it is 0 for any output
        return False
    return len(shape) in LOSSES[name].ranks
