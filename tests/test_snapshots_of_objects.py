"""Snapshots of layers, losses, optimizers, schedules, metrics and distributions with another value for one argument.

``PYTHONPATH=src:tests/shared python tests/test_snapshots_of_objects.py`` writes
``snapshots_of_objects.txt`` anew, where a change is meant; it first compares the results with those of the engine ``torch``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from snapshots import FEW, Call, differences, write

import firebrick as fb
from firebrick import distributions, nn, optim
from firebrick.train import metrics

FILE = Path(__file__).with_name("snapshots_of_objects.txt")


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


def call(name: str, made: Callable[..., Any], given: tuple[Any, ...], used: Callable[[Any], Any]) -> Call:
    """A call that makes an object and uses it."""
    names = [p.name for p in inspect.signature(made).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]

    def run(arguments: dict[str, Any]) -> Any:
        fb.random.seed(1)
        return used(made(**arguments))

    return Call(name, run, dict(zip(names, given, strict=False)), made, settings=FEW)


def updated(made: Any, device: str) -> Callable[[dict[str, Any]], Any]:
    """A function of an optimizer's settings: parameters after two updates."""

    def run(settings: dict[str, Any]) -> Any:
        model = nn.Linear(3, 4, generator=fb.random.Generator(0), device=device)
        rule, x = made(model, **settings), fb.asarray(ramp(2, 3), device=device)
        for scale in (1.0, -2.0):
            _, grads = fb.value_and_grad(lambda m, s=scale: fb.sum(fb.tanh(m(x))) * s)(model)
            rule.update(model, grads)
        return [model.weight.detach(), model.bias.detach()]

    return run


def averaged(settings: dict[str, Any]) -> Any:
    model = nn.Linear(3, 4, generator=fb.random.Generator(0), device=settings.pop("device"))
    rule = optim.EMA(model, **settings)
    for _ in range(3):
        model.load_state_dict({k: v * 2.0 + 1.0 for k, v in model.state_dict().items()})
        rule.update()
    return list(rule.averages.values())


def scheduled(schedule: Any, device: str) -> Any:
    if not callable(schedule):
        return repr(schedule)
    return [schedule(fb.asarray(k, dtype=fb.int64, device=device)) for k in (0, 1, 2, 3, 5, 9)]


def measured(metric: Any, arrays: list[fb.Tensor]) -> Any:
    metric.update(*arrays)
    first = metric.compute()
    metric.update(*(a[:2] for a in arrays))
    return repr(first), repr(metric.compute())


def described(d: Any, device: str) -> Any:
    """Densities and moments; a distribution of numbers lies on the default device."""
    values = [d.log_prob(fb.asarray(v, device=device)) for v in (1.0, 0.5)]
    try:
        entropy = d.entropy()
    except fb.UnsupportedError as e:
        entropy = str(e)[:40]
    return values, d.mean, d.variance, entropy, d.sample((3,), generator=fb.random.Generator(0))


def calls(device: str) -> Iterator[Call]:
    def on(arrays: tuple[Any, ...]) -> list[fb.Tensor]:
        return [fb.asarray(a, device=device) for a in arrays]

    for name, (given, arrays) in LAYERS.items():
        made = getattr(nn, name)
        home = {"device": device} if "device" in inspect.signature(made).parameters else {}

        def used(layer: Any, arrays: Any = arrays) -> Any:
            found = layer(*on(arrays))
            layer.eval()
            return found, layer(*on(arrays)), repr(layer)

        one = call(f"nn.{name}", made, given, used)
        yield one._replace(given=one.given | home)
    for name, given in INITIAL.items():
        made = getattr(nn.initial, name)
        one = call(f"initial.{name}", made, given, lambda p: p if isinstance(p, float) else p.detach())
        yield one._replace(given=one.given | ({"device": device} if name != "gain" else {}))
    for name, given in OPTIMIZERS.items():
        made = getattr(optim, name)
        one = call(f"optim.{name}", made, (None, *given), repr)
        del one.given["model"]
        yield one._replace(run=updated(made, device))
    yield Call("optim.EMA", averaged, {"device": device}, optim.EMA, settings=FEW)
    for name, given in SCHEDULES.items():
        yield call(f"optim.{name}", getattr(optim, name), given, lambda s: scheduled(s, device))
    for name, (given, arrays) in METRICS.items():
        yield call(f"metrics.{name}", getattr(metrics, name), given, lambda m, a=arrays: measured(m, on(a)))
    with fb.config.scope(device=device):
        for name, given in DISTRIBUTIONS.items():
            yield call(f"distributions.{name}", getattr(distributions, name), given, lambda d: described(d, device))


def test_calls_have_the_outcomes_of_their_snapshots() -> None:
    assert differences(FILE, calls("numpy")) == [], f"if this is meant: {__doc__}"


if __name__ == "__main__":
    write(FILE, calls("numpy"), calls("torch:cpu"))
