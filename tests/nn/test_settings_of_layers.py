"""Settings of layers: which values each takes at its limits and which it refuses, and that a layer shows them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
from limits import check_limit

import firebrick as fb
from firebrick import nn
from firebrick.nn import initial

LAST = math.nextafter(1.0, 0.0)
V, M, I = fb.ones(3), fb.ones((2, 3)), fb.asarray([0, 2])  # noqa: E741
ROWS, STATE = fb.ones((2, 3, 4)), fb.zeros((1, 2, 2))


def call(layer: nn.Module, *inputs: fb.Tensor) -> Any:
    return layer(*inputs)


# a call with one setting; values that are allowed, and values that are not
LIMITS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "Linear in": (lambda v: nn.Linear(v, 2), (0, 1), (-1, 1.0, True, None)),
    "Linear out": (lambda v: nn.Linear(2, v), (0, 1), (-1, 1.0, True, None)),
    "Bilinear in1": (lambda v: nn.Bilinear(v, 2, 2), (1,), (0, True)),
    "Bilinear in2": (lambda v: nn.Bilinear(2, v, 2), (1,), (0, True)),
    "Bilinear out": (lambda v: nn.Bilinear(2, 2, v), (1,), (0, True)),
    "Embedding count": (lambda v: nn.Embedding(v, 2), (1,), (0, True)),
    "Embedding features": (lambda v: nn.Embedding(2, v), (1,), (0, True)),
    "Embedding padding_index": (lambda v: nn.Embedding(3, 2, v), (2, -3, None), (3, -4, True, 1.0)),
    "Embedding indices": (lambda v: call(nn.Embedding(3, 2), fb.asarray([v])), (0, 2), (-1, 3)),
    "EmbeddingBag count": (lambda v: nn.EmbeddingBag(v, 2), (1,), (0, True)),
    "EmbeddingBag features": (lambda v: nn.EmbeddingBag(2, v), (1,), (0, True)),
    "EmbeddingBag padding_index": (lambda v: nn.EmbeddingBag(3, 2, padding_index=v), (2, -3, None), (3, -4, True)),
    "EmbeddingBag mode": (lambda v: nn.EmbeddingBag(3, 2, mode=v), ("mean", "sum", "max"), ("min", None)),
    "EmbeddingBag weights": (lambda v: nn.EmbeddingBag(3, 2, mode=v)(I, weights=fb.ones(2)), ("sum",), ("mean",)),
    "EmbeddingBag shape of weights": (lambda v: nn.EmbeddingBag(3, 2, mode="sum")(I, weights=fb.ones(v)), (2,), (3, (1, 2))),
    "Conv2d in": (lambda v: nn.Conv2d(v, 2, 3), (1,), (0, True)),
    "Conv2d out": (lambda v: nn.Conv2d(2, v, 3), (1,), (0, True)),
    "Conv2d groups": (lambda v: nn.Conv2d(4, 2, 3, groups=v), (1, 2), (0, 4, 3, True)),
    "Conv2d groups of more results": (lambda v: nn.Conv2d(2, 4, 3, groups=v), (1, 2), (0, 4)),
    "Conv2d kernel": (lambda v: nn.Conv2d(2, 2, v), (1, (1, 2)), (0, (1,), (1, 2, 3), True)),
    "Conv2d stride": (lambda v: nn.Conv2d(2, 2, 3, v), (1, (1, 2)), (0, (1, 0))),
    "Conv2d dilation": (lambda v: nn.Conv2d(2, 2, 3, dilation=v), (1, (1, 2)), (0, (1, 0))),
    "Conv2d padding": (
        lambda v: nn.Conv2d(2, 2, 3, padding=v), (0, "same", "valid", ((0, 1), (1, 0))), (-1, "full", (1, 2, 3))
    ),
    "ConvTranspose2d output_padding": (lambda v: nn.ConvTranspose2d(2, 2, 3, 2, output_padding=v), (0, 1), (-1, (1,))),
    "Dropout p": (lambda v: nn.Dropout(v), (0.0, 0, LAST), (-1e-9, 1.0, True, "0.5", math.nan)),
    "SpectralNorm iterations": (lambda v: nn.SpectralNorm(nn.Linear(2, 3), iterations=v), (1, 3), (0, True, 1.5)),
    "SpectralNorm axis": (lambda v: nn.SpectralNorm(nn.Linear(2, 3), axis=v), (1, -1), (2, -3)),
    "ZeroPad": (lambda v: nn.ZeroPad(v), (0, ((1, 2),), (1, 2)), (-1, True, 1.5, ((1, 2, 3),), "1")),
    "AlphaDropout p": (lambda v: nn.AlphaDropout(v), (0.0, LAST), (-1e-9, 1.0, True)),
    "Dropout2d axes": (lambda v: call(nn.Dropout2d(0.0), fb.ones((1,) * v)), (4,), (3, 5)),
    "Dropout1d axes": (lambda v: call(nn.Dropout1d(0.0), fb.ones((1,) * v)), (3,), (2, 4)),
    "Dropout3d axes": (lambda v: call(nn.Dropout3d(0.0), fb.ones((1,) * v)), (5,), (4, 6)),
    "PixelShuffle": (lambda v: nn.PixelShuffle(v), (1,), (0, True)),
    "PixelUnshuffle": (lambda v: nn.PixelUnshuffle(v), (1,), (0, True)),
    "Upsample": (lambda v: nn.Upsample(**v), ({"size": 2}, {"scale_factor": 2}), ({}, {"size": 2, "scale_factor": 2})),
    "PReLU channels": (lambda v: nn.PReLU(v), (1,), (0, True)),
    "GELU": (lambda v: nn.GELU(v), ("none", "tanh"), ("erf", None)),
    "CrossEntropyLoss": (lambda v: nn.CrossEntropyLoss(label_smoothing=v), (0.0, 1.0), (-1e-9, math.nextafter(1.0, 2.0))),
    "HuberLoss": (lambda v: nn.HuberLoss(delta=v), (1e-9,), (0.0, math.inf, True)),
    "SmoothL1Loss": (lambda v: nn.SmoothL1Loss(beta=v), (0.0,), (-1e-9, math.inf, True)),
    "PoissonNLLLoss": (lambda v: nn.PoissonNLLLoss(eps=v), (0.0,), (-1e-9, math.inf, True)),
    "GaussianNLLLoss": (lambda v: nn.GaussianNLLLoss(eps=v), (1e-9,), (0.0, math.inf, True)),
    "TripletMarginLoss margin": (lambda v: nn.TripletMarginLoss(margin=v), (1e-9,), (0.0, math.inf, True)),
    "TripletMarginLoss eps": (lambda v: nn.TripletMarginLoss(eps=v), (0.0,), (-1e-9, math.inf, True)),
    "KLDivLoss": (lambda v: nn.KLDivLoss(v), ("batchmean", "mean", "sum", "none"), ("avg",)),
    "MSELoss": (lambda v: nn.MSELoss(v), ("mean", "sum", "none"), ("batchmean",)),
    "BatchNorm1d features": (lambda v: nn.BatchNorm1d(v), (0, 1), (-1, True)),
    "BatchNorm1d momentum": (lambda v: nn.BatchNorm1d(2, momentum=v), (0.0, 1.0, None), (-1e-9, 1.0 + 1e-9)),
    "BatchNorm1d axes": (lambda v: call(nn.BatchNorm1d(2), fb.ones((2,) * v)), (2, 3), (1, 4)),
    "BatchNorm2d axes": (lambda v: call(nn.BatchNorm2d(2), fb.ones((2,) * v)), (4,), (3, 5)),
    "BatchNorm3d axes": (lambda v: call(nn.BatchNorm3d(2), fb.ones((2,) * v)), (5,), (4, 6)),
    "InstanceNorm1d axes": (lambda v: call(nn.InstanceNorm1d(2), fb.ones((2,) * v)), (3,), (2, 4)),
    "InstanceNorm2d axes": (lambda v: call(nn.InstanceNorm2d(2), fb.ones((2,) * v)), (4,), (3, 5)),
    "InstanceNorm3d axes": (lambda v: call(nn.InstanceNorm3d(2), fb.ones((2,) * v)), (5,), (4, 6)),
    "GroupNorm groups": (lambda v: nn.GroupNorm(v, 4), (1, 4), (0, 3, 8, True)),
    "GroupNorm features": (lambda v: nn.GroupNorm(1, v), (1,), (0, True)),
    "GroupNorm axes": (lambda v: call(nn.GroupNorm(1, 2), fb.ones((2,) * v)), (2, 3), (1,)),
    "LocalResponseNorm": (lambda v: nn.LocalResponseNorm(v), (1,), (0, True)),
    "LayerNorm": (lambda v: nn.LayerNorm(v), (1, (2, 3)), ((), -1)),
    "LayerNorm axes": (lambda v: call(nn.LayerNorm((3, 4)), fb.ones(v)), ((3, 4), (2, 3, 4)), (4, (4, 3), (4, 4))),
    "RMSNorm": (lambda v: nn.RMSNorm(v), (1, (2, 3)), ((), -1)),
    "MaxPool2d kernel": (lambda v: nn.MaxPool2d(v), (1, (1, 2)), (0, (1,), (1, 2, 3), True)),
    "MaxPool2d stride": (lambda v: nn.MaxPool2d(2, v), (1, None), (0, (1, 0))),
    "MaxPool2d dilation": (lambda v: nn.MaxPool2d(2, dilation=v), (1,), (0,)),
    "AvgPool2d padding": (lambda v: nn.AvgPool2d(2, padding=v), (0, (0, 1)), (-1, "same", (1, 2, 3))),
    "AdaptiveAvgPool2d": (lambda v: nn.AdaptiveAvgPool2d(v), (1, (None, 2)), (0, (1,), (1, 2, 3))),
    "SinusoidalPositions": (lambda v: nn.SinusoidalPositions(v), (2,), (0, 1, 3, True)),
    "SinusoidalPositions base": (lambda v: nn.SinusoidalPositions(2, v), (1e-9,), (0.0, -1.0, math.nan)),
    "RotaryPositions": (lambda v: nn.RotaryPositions(v), (2,), (0, 3, True)),
    "RotaryPositions base": (lambda v: nn.RotaryPositions(2, v), (1e-9,), (0.0, math.nan)),
    "RotaryPositions offset": (lambda v: nn.RotaryPositions(4)(ROWS, offset=v), (0, 5), (-1, 1.0, True)),
    "LearnedPositions length": (lambda v: nn.LearnedPositions(v, 2), (1,), (0, True)),
    "LearnedPositions features": (lambda v: nn.LearnedPositions(2, v), (1,), (0, True)),
    "LearnedPositions offset": (lambda v: nn.LearnedPositions(5, 4)(ROWS, offset=v), (0, 2), (-1, 3, True)),
    "MultiheadAttention embed": (lambda v: nn.MultiheadAttention(v, 1), (1,), (0, True)),
    "MultiheadAttention heads": (lambda v: nn.MultiheadAttention(4, v), (1, 4), (0, 3, 8, True)),
    "MultiheadAttention dropout": (lambda v: nn.MultiheadAttention(4, 1, v), (0.0, LAST), (-1e-9, 1.0)),
    "MultiheadAttention key_features": (lambda v: nn.MultiheadAttention(4, 1, key_features=v), (1, None), (0, True)),
    "MultiheadAttention value_features": (lambda v: nn.MultiheadAttention(4, 1, value_features=v), (1, None), (0, True)),
    "MultiheadAttention rotary": (lambda v: nn.MultiheadAttention(8, 2, rotary=nn.RotaryPositions(v)), (4,), (2, 8)),
    "encoder embed": (lambda v: nn.TransformerEncoderLayer(v, 1), (1,), (0, True)),
    "encoder heads": (lambda v: nn.TransformerEncoderLayer(4, v), (1, 4), (0, 3, 8)),
    "encoder hidden": (lambda v: nn.TransformerEncoderLayer(4, 1, v), (1, None), (0, True)),
    "encoder dropout": (lambda v: nn.TransformerEncoderLayer(4, 1, dropout=v), (0.0, LAST), (-1e-9, 1.0)),
    "encoder activation": (lambda v: nn.TransformerEncoderLayer(4, 1, activation=v), ("relu", "reglu"), ("glu", None)),
    "decoder heads": (lambda v: nn.TransformerDecoderLayer(4, v), (1, 4), (0, 3, 8)),
    "decoder hidden": (lambda v: nn.TransformerDecoderLayer(4, 1, v), (1, None), (0, True)),
    "encoder layers": (lambda v: nn.TransformerEncoder(4, 1, v), (1,), (0, True)),
    "decoder layers": (lambda v: nn.TransformerDecoder(4, 1, v), (1,), (0, True)),
    "SwiGLU in": (lambda v: nn.SwiGLU(v, 2), (1,), (0, True)),
    "SwiGLU hidden": (lambda v: nn.SwiGLU(2, v), (1,), (0, True)),
    "SwiGLU out": (lambda v: nn.SwiGLU(2, 2, v), (1, None), (0, True)),
    "LSTM input": (lambda v: nn.LSTM(v, 2), (1,), (0, True)),
    "LSTM hidden": (lambda v: nn.LSTM(2, v), (1,), (0, True)),
    "LSTM layers": (lambda v: nn.LSTM(2, 2, v), (1,), (0, True)),
    "LSTM proj_size": (lambda v: nn.LSTM(2, 3, proj_size=v), (0, 2), (-1, 3, True)),
    "LSTM dropout": (lambda v: nn.LSTM(2, 2, dropout=v), (0.0, LAST), (-1e-9, 1.0)),
    "GRU dropout": (lambda v: nn.GRU(2, 2, dropout=v), (0.0, LAST), (-1e-9, 1.0)),
    "RNN nonlinearity": (lambda v: nn.RNN(2, 2, nonlinearity=v), ("tanh", "relu"), ("gelu", None)),
    "RNNCell nonlinearity": (lambda v: nn.RNNCell(2, 2, nonlinearity=v), ("tanh", "relu"), ("gelu", None)),
    "GRUCell input": (lambda v: nn.GRUCell(v, 2), (1,), (0, True)),
    "LSTMCell hidden": (lambda v: nn.LSTMCell(2, v), (1,), (0, True)),
    "lengths": (lambda v: nn.GRU(4, 2)(ROWS, lengths=v), ([1, 3], [3, 3]), ([0, 3], [1, 4], [1], [1, True], [1, 2.0], 3)),
    "LSTM state": (lambda v: nn.LSTM(4, 2)(ROWS, v), (None, [STATE] * 2), ([STATE], [STATE] * 3, STATE)),
    "GRU state": (lambda v: nn.GRU(4, 2)(ROWS, fb.zeros(v)), ((1, 2, 2),), ((2, 2), (1, 2, 3), (2, 2, 2))),
    "steps": (lambda v: nn.GRU(4, 2)(ROWS[:, :v]), (1, 3), (0,)),
    "Unflatten": (
        lambda v: call(nn.Unflatten(1, v), M), ((3, 1), (-1, 1), (1, -1, 3)),
        ((-2, 3), (), (-1, -1), (2, -1), (2,), (0, -1)),
    ),
    "Flatten": (lambda v: call(nn.Flatten(*v), ROWS), ((0, 2), (1, 1), (-1, -1)), ((2, 1), (0, 3), (-4, 0))),
    "Sequential index": (lambda v: nn.Sequential(nn.ReLU(), nn.ReLU())[v], (0, 1, -2), (2, -3)),
    "Parameter dtype": (lambda v: nn.Parameter(fb.zeros(2, dtype=v)), ("float16", "float64"), ("int32", "complex64", "bool")),
    "module dtype": (lambda v: nn.Linear(1, 1).astype(v), ("float16", "float64"), ("int32", "complex64", "bool")),
    "fans": (lambda v: initial.fans(v), ((2, 3), (2, 3, 4)), ((2,), ())),
    "orthogonal": (lambda v: initial.orthogonal(v), ((2, 3), (3, 2, 1)), ((2,), ())),
    "identity": (lambda v: initial.identity(v), ((2, 3),), ((2,), (2, 2, 2))),
    "sparse shape": (lambda v: initial.sparse(v, 0.5), ((2, 3),), ((2,), (2, 2, 2))),
    "sparsity": (lambda v: initial.sparse((2, 2), v), (0.0, 1.0), (-1e-9, 1.0 + 1e-9)),
    "dirac": (lambda v: initial.dirac((4, 2, 3), v), (1, 2, 4), (0, 3, True)),
    "dirac shape": (lambda v: initial.dirac(v), ((2, 2, 1),), ((2, 2), (2,))),
    "trunc_normal": (
        lambda v: initial.trunc_normal((2,), **v), ({"std": 1e-9}, {"low": 1.9}),
        ({"std": 0.0}, {"low": 2.0}, {"low": 40.0, "high": 41.0}),
    ),
    "mode": (lambda v: initial.kaiming_uniform((2, 2), mode=v), ("fan_in", "fan_out"), ("fan", None)),
    "gain": (lambda v: initial.gain(v), ("linear", "leaky_relu"), ("gelu", None)),
}  # fmt: skip


@pytest.mark.parametrize("what", LIMITS)
def test_the_last_allowed_value_is_taken_and_the_next_is_refused(what: str) -> None:
    check_limit(LIMITS[what])


SHOWN = [
    "AdaptiveAvgPool2d(2)", "AdaptiveMaxPool1d(2, return_indices=True)",
    "AvgPool2d((2, 2), stride=(2, 2), count_include_pad=False)", "Bilinear(2, 3, 4)", "Bilinear(2, 3, 4, bias=False)",
    "CELU(0.5)", "Conv1d(1, 2, (3,))", "Conv2d(2, 2, (3, 3), bias=False)",
    "Conv2d(2, 2, (3, 3), stride=(2, 2), padding=1, dilation=(2, 2), groups=2)",
    "ConvTranspose2d(2, 2, (3, 3), stride=(2, 2), output_padding=(1, 1))", "Dropout(0.25)", "ELU(2.0)", "Embedding(3, 2)",
    "Embedding(3, 2, padding_index=1)", "EmbeddingBag(3, 2, mode='mean', padding_index=0)", "EmbeddingBag(3, 2, mode='sum')",
    "Flatten()", "Flatten(0, 1)", "Fold(4, 2, stride=2, padding=0, dilation=1)", "GELU('tanh')", "GLU(0)", "GRU(2, 3)",
    "GRU(2, 3, num_layers=2, bias=False, batch_first=False, bidirectional=True)", "GroupNorm(2, 4, eps=0.5)",
    "GroupNorm(2, 4, eps=1e-05, affine=False)", "Hardshrink(0.25)", "Hardtanh(-2.0, 3.0)", "Identity()",
    "InstanceNorm1d(2)", "InstanceNorm1d(2, affine=True, track_running_stats=True)", "LayerNorm((2, 3), eps=0.5, affine=False)",
    "LayerNorm(3, eps=1e-05)", "LeakyReLU(0.5)", "LearnedPositions(5, 4)", "Linear(2, 3)", "Linear(2, 3, bias=False)",
    "LocalResponseNorm(3, alpha=0.1, beta=0.5, k=2.0)", "LogSoftmax(0)", "MaxPool1d((2,), stride=(2,))",
    "MaxPool2d((2, 2), stride=(1, 1), padding=1, dilation=(2, 2), ceil_mode=True, return_indices=True)", "PReLU(3)",
    "PixelShuffle(2)", "PixelUnshuffle(3)", "RMSNorm(3, eps=0.5, affine=False)", "RMSNorm(3, eps=None)",
    "RotaryPositions(4)", "RotaryPositions(4, interleaved=True)", "SinusoidalPositions(4)", "Softmax(0)", "Softplus(2.0)",
    "Softshrink(0.25)", "Threshold(0.5, 2.0)", "Unflatten(1, (2, -1))", "Unfold(2, stride=1, padding=0, dilation=1)",
    "Upsample(scale_factor=2.0, mode='bilinear', align_corners=True)", "Upsample(size=4, mode='nearest')",
]  # fmt: skip


@pytest.mark.parametrize("shown", SHOWN)
def test_a_layer_shows_the_settings_that_it_was_built_with(shown: str) -> None:
    keywords = shown.replace("eps=1e-05, ", "").replace(", eps=1e-05", "").replace(", eps=None", "")
    assert repr(eval(f"nn.{keywords}", {"nn": nn})) == shown


def test_attention_shows_other_features_of_keys_and_values() -> None:
    def shown(**settings: Any) -> str:
        return repr(nn.MultiheadAttention(4, 2, **settings)).partition("\n")[0]

    assert shown() == "MultiheadAttention(4, 2"
    assert shown(key_features=3) == "MultiheadAttention(4, 2, key_features=3"
    assert shown(value_features=3) == "MultiheadAttention(4, 2, value_features=3"
    assert shown(key_features=5, value_features=3) == "MultiheadAttention(4, 2, key_features=5, value_features=3"
    assert repr(nn.SwiGLU(2, 3)).startswith("SwiGLU(2, 3, 2\n")


WINDOWS = {f"{kind}{n}d": n for kind in ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool") for n in (1, 2, 3)}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_pooling_layer_takes_as_many_sizes_as_it_has_axes(name: str) -> None:
    rank, make = WINDOWS[name], getattr(nn, name)
    images = fb.ones((1, 2, *[4] * rank))
    assert make(2)(images).shape == make((2,) * rank)(images).shape == (1, 2, *[2] * rank)
    for wrong in (rank - 1, rank + 1):
        with pytest.raises(fb.FirebrickError, match=name):
            make((2,) * wrong)


LABELS, LOGITS, SHARES = fb.asarray([1, 0]), fb.asarray([[0.2, -1.0], [0.4, 1.5]]), fb.asarray([[0.2, 0.8], [0.6, 0.4]])
SIGNS, SCORES = fb.asarray([1.0, -1.0]), fb.log_softmax(fb.asarray([[[0.1, 0.5, -1.0]], [[1.0, 0.2, 0.3]], [[0.0, 2.0, 0.1]]]))
WEIGHT, FAR = fb.asarray([0.3, 2.0]), fb.asarray([[3.0, 0.1], [0.5, -2.0]])
# inputs, the function, and other values of each setting than the default
LOSSES: dict[str, tuple[tuple[Any, ...], Callable[..., fb.Tensor], dict[str, Any]]] = {
    "CrossEntropyLoss": (
        (LOGITS, LABELS), fb.cross_entropy, {"reduction": "sum", "weight": WEIGHT, "label_smoothing": 0.3, "ignore_index": 0}
    ),
    "NLLLoss": ((LOGITS, LABELS), fb.nll_loss, {"reduction": "sum", "weight": WEIGHT, "ignore_index": 0}),
    "BCEWithLogitsLoss": (
        (LOGITS, SHARES), fb.binary_cross_entropy_with_logits, {"reduction": "sum", "weight": WEIGHT, "pos_weight": WEIGHT}
    ),
    "BCELoss": ((SHARES, SHARES), fb.binary_cross_entropy, {"reduction": "sum", "weight": WEIGHT}),
    "KLDivLoss": ((LOGITS, SHARES), fb.kl_div, {"reduction": "sum", "log_target": True}),
    "MSELoss": ((LOGITS, FAR), fb.mse_loss, {"reduction": "sum"}),
    "L1Loss": ((LOGITS, FAR), fb.l1_loss, {"reduction": "sum"}),
    "HuberLoss": ((LOGITS, FAR), fb.huber_loss, {"reduction": "sum", "delta": 0.4}),
    "SmoothL1Loss": ((LOGITS, FAR), fb.smooth_l1_loss, {"reduction": "sum", "beta": 0.4}),
    "PoissonNLLLoss": (
        (SHARES, fb.abs(FAR)), fb.poisson_nll_loss, {"reduction": "sum", "log_input": False, "full": True, "eps": 0.5}
    ),
    "GaussianNLLLoss": ((LOGITS, FAR, SHARES), fb.gaussian_nll_loss, {"reduction": "sum", "full": True, "eps": 0.5}),
    "CosineEmbeddingLoss": ((LOGITS, FAR, SIGNS), fb.cosine_embedding_loss, {"reduction": "sum", "margin": -0.9}),
    "TripletMarginLoss": (
        (LOGITS, LOGITS + 0.1, LOGITS + 0.3), fb.triplet_margin_loss,
        {"reduction": "sum", "margin": 0.7, "p": 1.0, "eps": 0.5, "swap": True},
    ),
    "MarginRankingLoss": ((LOGITS[0], FAR[0], SIGNS), fb.margin_ranking_loss, {"reduction": "sum", "margin": 5.0}),
    "HingeEmbeddingLoss": ((LOGITS[0], SIGNS), fb.hinge_embedding_loss, {"reduction": "sum", "margin": 0.3}),
    "SoftMarginLoss": ((LOGITS[0], SIGNS), fb.soft_margin_loss, {"reduction": "sum"}),
    "CTCLoss": ((SCORES, fb.asarray([[1, 1]]), [3], [2]), fb.ctc_loss, {"reduction": "sum", "blank": 2, "zero_infinity": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(n for n in nn.__all__ if n.endswith("Loss")))
def test_a_loss_hands_each_of_its_settings_to_its_function(name: str) -> None:
    inputs, function, settings = LOSSES[name]
    assert set(settings) == set(inspect.signature(getattr(nn, name).__init__).parameters) - {"self"}
    for setting, value in settings.items():
        others = {"log_input": False} if (name, setting) == ("PoissonNLLLoss", "eps") else {}  # without effect otherwise
        found = getattr(nn, name)(**{setting: value}, **others)(*inputs)
        assert found.tolist() == function(*inputs, **{setting: value}, **others).tolist(), setting
        if setting != "zero_infinity":  # of a loss that is not
            assert found.tolist() != function(*inputs, **others).tolist(), setting


def test_a_ctc_loss_without_a_path_is_zero_where_that_is_wanted() -> None:
    inputs = SCORES, fb.asarray([[1, 1]]), [2], [2]
    assert nn.CTCLoss()(*inputs).item() == math.inf
    assert nn.CTCLoss(zero_infinity=True)(*inputs).item() == 0.0
