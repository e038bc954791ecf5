"""``check_layer`` on every layer there is, and that it finds each planted fault."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.graph.trace import current
from firebrick.testing import LayerError, check_layer
from firebrick.testing.layer import _Twice

LABELS = fb.asarray([1, 0, 2, 1])
SIGNS = fb.asarray([1.0, -1.0, 1.0, -1.0])
SHARE = fb.asarray(np.random.default_rng(1).uniform(0.05, 0.95, (4, 3)))
IDS = fb.asarray([[1, 2, 0], [3, 3, 1]])
MASK = fb.asarray(np.tril(np.ones((4, 4), np.bool_)))


class Row:
    """How to make a layer, and what to call it with."""

    def __init__(self, make: Callable[[], nn.Module], *inputs: Any, **options: Any) -> None:
        self.make, self.inputs, self.options = make, inputs, options


def activation(name: str, *settings: Any) -> Row:
    return Row(lambda: getattr(nn, name)(*settings), (3, 4))


def recurrent(name: str, **settings: Any) -> Row:
    kw = {"lengths": [2, 1]}
    return Row(lambda: getattr(nn, name)(3, 5, 2, dropout=0.3, bidirectional=True, **settings), (2, 2, 3), keywords=kw)


def loss(name: str, *inputs: Any) -> Row:
    constant = [i for i, v in enumerate(inputs) if v is SIGNS]
    return Row(lambda: getattr(nn, name)(), *inputs, output=(), constant=constant)


X2 = (4, 3)
DIMS = (1, 2, 3)
ROWS: dict[str, Row] = {
    **{n: activation(n) for n in (
        "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU",
        "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softplus",
        "Softshrink", "Softsign", "Tanh", "Tanhshrink",
    )},
    "Threshold": activation("Threshold", 0.1, -1.0),
    "Flatten": Row(nn.Flatten, (2, 3, 4), output=(2, 12)),
    "Unflatten": Row(lambda: nn.Unflatten(1, (2, -1)), (2, 6), output=(2, 2, 3)),
    "Sequential": Row(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2)), X2, output=(4, 2)),
    "Linear": Row(lambda: nn.Linear(3, 2), (4, 5, 3), output=(4, 5, 2)),
    "Bilinear": Row(lambda: nn.Bilinear(3, 2, 5), (4, 3), (4, 2), output=(4, 5)),
    "Embedding": Row(lambda: nn.Embedding(5, 3, padding_index=4), IDS, output=(2, 3, 3)),
    "EmbeddingBag": Row(lambda: nn.EmbeddingBag(5, 3, padding_index=1), IDS, output=(2, 3)),
    "RNN": recurrent("RNN"),
    "GRU": recurrent("GRU"),
    "LSTM": recurrent("LSTM", proj_size=2),
    "RNNCell": Row(lambda: nn.RNNCell(3, 5), X2, (4, 5), output=(4, 5)),
    "GRUCell": Row(lambda: nn.GRUCell(3, 5), X2, (4, 5), output=(4, 5)),
    "LSTMCell": Row(lambda: nn.LSTMCell(3, 5), X2, ((4, 5), (4, 5)), output=[(4, 5), (4, 5)]),
    "MultiheadAttention": Row(
        lambda: nn.MultiheadAttention(8, 2, 0.3, key_features=6, value_features=4, rotary=nn.RotaryPositions(4)),
        (2, 4, 8), (2, 4, 6), (2, 4, 4), keywords={"mask": MASK, "need_weights": True}, output=[(2, 4, 8), (2, 2, 4, 4)],
    ),
    "TransformerEncoderLayer": Row(
        lambda: nn.TransformerEncoderLayer(8, 2, 12, 0.2, activation="geglu"), (2, 4, 8), keywords={"causal": True}
    ),
    "TransformerDecoderLayer": Row(
        lambda: nn.TransformerDecoderLayer(8, 2, 12, 0.2, memory_features=6, norm_first=False), (2, 4, 8), (2, 3, 6)
    ),
    "TransformerEncoder": Row(lambda: nn.TransformerEncoder(8, 2, 2, 12), (2, 4, 8), output=(2, 4, 8)),
    "TransformerDecoder": Row(lambda: nn.TransformerDecoder(8, 2, 2, 12), (2, 4, 8), (2, 3, 8), output=(2, 4, 8)),
    "SwiGLU": Row(lambda: nn.SwiGLU(3, 4, 2, bias=True), X2, output=(4, 2)),
    "SinusoidalPositions": Row(lambda: nn.SinusoidalPositions(4), (2, 3, 4), output=(2, 3, 4)),
    "LearnedPositions": Row(lambda: nn.LearnedPositions(5, 4), (2, 3, 4), output=(2, 3, 4)),
    **{f"Conv{n}d": Row(lambda n=n: getattr(nn, f"Conv{n}d")(4, 6, 2, padding=1, groups=2), (2, 4, *[3] * n)) for n in DIMS},
    **{
        f"ConvTranspose{n}d": Row(lambda n=n: getattr(nn, f"ConvTranspose{n}d")(4, 6, 2, stride=2, groups=2), (2, 4, *[2] * n))
        for n in DIMS
    },
    **{
        name: Row(lambda name=name: getattr(nn, name)(2), (2, 3, *[5] * n))
        for n in DIMS
        for name in (f"AvgPool{n}d", f"MaxPool{n}d", f"AdaptiveAvgPool{n}d", f"AdaptiveMaxPool{n}d")
    },
    **{f"BatchNorm{n}d": Row(lambda n=n: getattr(nn, f"BatchNorm{n}d")(3), (4, 3, *[2] * n)) for n in DIMS},
    **{
        f"InstanceNorm{n}d": Row(lambda n=n: getattr(nn, f"InstanceNorm{n}d")(3, affine=True), (2, 3, *[3] * n)) for n in DIMS
    },
    "Dropout": Row(lambda: nn.Dropout(0.4), X2, output=X2),
    **{f"Dropout{n}d": Row(lambda n=n: getattr(nn, f"Dropout{n}d")(0.4), (2, 3, *[2] * n)) for n in DIMS},
    "AlphaDropout": Row(lambda: nn.AlphaDropout(0.4), X2),
    "LayerNorm": Row(lambda: nn.LayerNorm(3), X2, output=X2),
    "LocalResponseNorm": Row(lambda: nn.LocalResponseNorm(3), (2, 4, 3), output=(2, 4, 3)),
    "RMSNorm": Row(lambda: nn.RMSNorm(3), X2, output=X2),
    "GroupNorm": Row(lambda: nn.GroupNorm(2, 4), (2, 4, 3, 3), output=(2, 4, 3, 3)),
    "Fold": Row(lambda: nn.Fold((3, 3), 2), (2, 8, 4), output=(2, 2, 3, 3)),
    "Unfold": Row(lambda: nn.Unfold(2), (2, 2, 3, 3), output=(2, 8, 4)),
    "PixelShuffle": Row(lambda: nn.PixelShuffle(2), (2, 4, 3, 3), output=(2, 1, 6, 6)),
    "PixelUnshuffle": Row(lambda: nn.PixelUnshuffle(2), (2, 1, 4, 6), output=(2, 4, 2, 3)),
    "Upsample": Row(lambda: nn.Upsample(scale_factor=2), (2, 3, 2, 3), output=(2, 3, 4, 6)),
    "SpectralNorm": Row(lambda: nn.SpectralNorm(nn.Linear(3, 2)), X2, output=(4, 2)),
    "ZeroPad": Row(lambda: nn.ZeroPad(((0, 1), (2, 0))), (2, 3, 2, 3), output=(2, 3, 3, 5)),
    "WeightNorm": Row(lambda: nn.WeightNorm(nn.Linear(3, 2)), X2, output=(4, 2)),
    **{n: loss(n, X2, X2) for n in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "PoissonNLLLoss")},
    "BCEWithLogitsLoss": loss("BCEWithLogitsLoss", X2, SHARE),
    "SoftMarginLoss": loss("SoftMarginLoss", (4,), SIGNS),
    "HingeEmbeddingLoss": loss("HingeEmbeddingLoss", (4,), SIGNS),
    "MarginRankingLoss": loss("MarginRankingLoss", (4,), (4,), SIGNS),
    "CosineEmbeddingLoss": loss("CosineEmbeddingLoss", X2, X2, SIGNS),
    "TripletMarginLoss": loss("TripletMarginLoss", X2, X2, X2),
    "GaussianNLLLoss": loss("GaussianNLLLoss", X2, X2, SHARE),
    "BCELoss": loss("BCELoss", SHARE, fb.astype(SHARE > 0.5, fb.float32)),
    "KLDivLoss": loss("KLDivLoss", X2, SHARE),
    "CrossEntropyLoss": loss("CrossEntropyLoss", X2, LABELS),
    "NLLLoss": loss("NLLLoss", X2, LABELS),
    "CTCLoss": loss("CTCLoss", (6, 2, 4), fb.asarray([[1, 2], [3, 1]]), fb.asarray([6, 5]), fb.asarray([2, 1])),
    "RotaryPositions": Row(lambda: nn.RotaryPositions(4, interleaved=True), (2, 3, 4), output=(2, 3, 4)),
}  # fmt: skip


def layers() -> list[str]:
    """Every layer that ``nn`` exports."""
    found = ((n, getattr(nn, n)) for n in nn.__all__)
    return [n for n, v in found if inspect.isclass(v) and issubclass(v, nn.Module) and v is not nn.Module]


@pytest.mark.parametrize("name", layers())
def test_every_layer_does_what_a_layer_must(name: str) -> None:
    assert name in ROWS, f"nn.{name} has no row in ROWS: say how to make it and what to call it with"
    row = ROWS[name]
    report = check_layer(row.make, *row.inputs, **row.options)
    assert report.ok
    assert report.layer == name


def test_every_row_is_of_a_layer() -> None:
    assert set(ROWS) <= set(layers())


# planted faults


class Good(nn.Module):
    """A layer with parameters, a buffer and randomness that does everything right; subclasses each spoil one thing."""

    def __init__(self) -> None:
        self.weight = nn.initial.normal((3,))
        self.mean = nn.Buffer(fb.zeros(3))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        y = self.dropout((x - self.mean.detach()) * self.weight)
        if self.training:
            self.mean = self.mean.detach() * 0.5 + fb.mean(x.detach(), axis=0) * 0.5
        return y


class ForgetsABuffer(Good):
    def __init__(self) -> None:
        super().__init__()
        self.mean = None
        self.mean = fb.zeros(3)  # no Buffer, so no part of the state

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        self.mean = fb.astype(self.mean, x.dtype).to(x.device)
        return super().forward(x)


class IgnoresEval(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        for _, m in self.modules():
            object.__setattr__(m, "training", True)
        return super().forward(x)


class DropsInEval(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return where_kept(self.dropout.generator, x) * self.weight


class StaysBehind(Good):
    def __init__(self) -> None:
        super().__init__()
        self.offset = fb.ones(3)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return super().forward(x + fb.astype(self.offset, x.dtype).to(x.device))


class Detaches(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.dropout(x * self.weight.detach())


class WritesItsInput(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        y = super().forward(x)
        with fb.no_grad():
            x *= 2.0
        return y


class LosesTies(Good):
    def __deepcopy__(self, memo: dict[int, Any]) -> LosesTies:
        twin = type(self)().astype(self.weight.dtype)
        twin.load_state_dict(self.state_dict())
        twin.dropout = copy.deepcopy(self.dropout, memo)
        return twin


class Narrows(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.astype(super().forward(x), fb.float32)


class GuessesShapes(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        y = super().forward(x)
        return y if y.device.engine == "meta" else y[:1]


class LoadsAnything(Good):
    def load_state_dict(self, state: Any, strict: bool = True) -> Any:
        return super().load_state_dict(state, strict=False)


class DoesNotPickle(Good):
    def __init__(self) -> None:
        super().__init__()
        self.function = lambda x: x


class Counts(Good):
    """A Python counter, which no state holds and no copy resets."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        self.calls += 1
        return super().forward(x)


class KeepsItsLastInput(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        self.kept = {"x": x.detach()}
        return super().forward(x)


class FillsAnEmptyPlace(Good):
    def __init__(self) -> None:
        super().__init__()
        self.kept: Any = None

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        self.kept = x.detach()
        return super().forward(x)


class _Outside:
    """Where a layer may hide what it keeps."""

    def __init__(self) -> None:
        self.rows: int | None = None


class FixesTheBatch(Good):
    """The first batch's size, kept where no attribute shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.outside = _Outside()

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        self.outside.rows = self.outside.rows or x.shape[0]
        return fb.reshape(super().forward(x), (self.outside.rows, 3))


class ForgetsAGradient(Good):
    """In training only, by one parameter of two."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.initial.normal((3,))

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return super().forward(x) + (self.bias.detach() if self.training else self.bias)


class ComputesInFloat32(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.astype(super().forward(fb.astype(fb.astype(x, fb.float32), x.dtype)), x.dtype)


class Promotes(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return super().forward(x) + fb.zeros(3, dtype=fb.float64, device=x.device)


class ReadsItsInput(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return super().forward(x) * (1.0 if x.device.engine == "meta" or fb.max(x).item() < 1e9 else 2.0)


class DiffersInAGraph(Good):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return super().forward(x) * (1.0 if current.get() is None else 1.0 + 1e-8)


class ForgetsABufferInAGraph(Good):
    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Buffer(fb.zeros(()))

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        if self.training and current.get() is None:
            self.seen += 1.0
        return super().forward(x)


class ReturnsMoreInAGraph(Good):
    def forward(self, x: fb.Tensor) -> Any:
        y = super().forward(x)
        return y if current.get() is None else (y, y)


class DrawsMoreInAGraph(Good):
    def __init__(self) -> None:
        super().__init__()
        self.generator = fb.random.Generator(0)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        if self.training and current.get() is not None:
            self.generator.uniform((2,), device=x.device)
        return super().forward(x)


class ScalesInTraining(nn.Module):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x * 2.0 if self.training else x


class Anonymous(Good):
    def __repr__(self) -> str:
        return "a layer"


def where_kept(generator: Any, x: fb.Tensor) -> fb.Tensor:
    return fb.where(generator.bernoulli(x.shape, p=0.5, device=x.device), x, 0.0)


def test_a_layer_without_a_fault_passes() -> None:
    assert check_layer(Good, (4, 3), output=(4, 3)).ok
    assert check_layer(Good(), (4, 3), dtypes=(fb.float64, fb.float16)).ok


@pytest.mark.parametrize(
    ("kind", "check", "text"),
    [
        (ForgetsABuffer, "state", "something that counts is no Parameter or Buffer"),
        (IgnoresEval, "modes", "two calls in evaluation differ"),
        (DropsInEval, "modes", "two calls in evaluation differ"),
        (ScalesInTraining, "modes", "training differs from evaluation, but there is no randomness and no buffer"),
        (StaysBehind, "devices", r"offset \(a tensor that is no Parameter or Buffer\) stays on cpu:0 when the layer moves"),
        (Detaches, "gradient", "in train mode: the gradient by weight must equal the slope of output 0"),
        (WritesItsInput, "inputs", "input 0 is another after the call"),
        (LosesTies, "ties", "fork\\(\\) unties a shared layer's parameters"),
        (Narrows, "outputs", "output 0 is float32 for inputs and parameters of float64"),
        (GuessesShapes, "outputs", r"the meta engine infers \[\(\(4, 3\)"),
        (LoadsAnything, "state", "an unknown path loads without an error"),
        (DoesNotPickle, "pickle", "pickle"),
        (Counts, "calls", "a call in train mode changes calls: what a call keeps is a Buffer"),
        (KeepsItsLastInput, "calls", "a call in train mode changes kept"),
        (FillsAnEmptyPlace, "calls", "a call in train mode changes kept"),
        (FixesTheBatch, "calls", "after a call, one with twice the batch raises ShapeError"),
        (ForgetsAGradient, "gradient", "in train mode: the gradient by bias must equal the slope of output 0"),
        (ComputesInFloat32, "gradient", "must equal the slope of output 0"),
        (Promotes, "outputs", "output 0 is float64 for inputs and parameters of float32"),
        (Anonymous, "repr", "does not name it"),
        (ReadsItsInput, "jit", "DataDependentError: item"),
        (DiffersInAGraph, "jit", "in train mode, tensor 0 differs under jit"),
        (ForgetsABufferInAGraph, "jit", "in train mode, the call leaves another seen under jit"),
        (ReturnsMoreInAGraph, "jit", "in train mode, there are 2 tensors under jit and 1 without"),
        (DrawsMoreInAGraph, "jit", "in train mode, its generators stand elsewhere after a call under jit"),
    ],
)
def test_a_planted_fault_is_found(kind: type[nn.Module], check: str, text: str) -> None:
    with pytest.raises(LayerError, match=rf"  {check}: .*({text})"):
        check_layer(kind, (4, 3))


def test_a_wrong_output_shape_is_found() -> None:
    with pytest.raises(LayerError, match=r"outputs have the shapes \[\(4, 3\)\], not \[\(4, 2\)\]"):
        check_layer(Good, (4, 3), output=(4, 2))


def test_devices_that_are_not_here_are_left_out_and_the_others_are_checked() -> None:
    assert check_layer(Good, (4, 3), devices=("poor", "cpu:1"), skip=("gradient", "jit")).ok
    with pytest.raises(LayerError, match=r"  devices: .*stays on cpu:0 when the layer moves"):
        check_layer(StaysBehind, (4, 3), devices=("poor", "cpu:1"), skip=("gradient", "jit"))


def test_checks_can_be_left_out_by_name() -> None:
    report = check_layer(Detaches, (4, 3), skip=("gradient",))
    assert "gradient" not in report.checked
    assert str(report) == "Detaches: 10 checks, 0 failed"


def test_a_class_inside_a_function_is_checked_without_pickle() -> None:
    class Local(nn.Module):
        def __init__(self) -> None:
            self.gain = nn.Parameter(fb.ones(3))

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            return x * self.gain

    with pytest.raises(LayerError, match=r"  pickle: .*Local"):
        check_layer(Local, (4, 3))
    assert "ties" in check_layer(Local, (4, 3), skip=("pickle",)).checked


def test_parameters_that_two_places_share_are_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(self: Any) -> list[nn.Parameter]:
        return [*self.a.parameters(), *self.b.parameters()]

    others = [c for c in check_layer(lambda: nn.Linear(2, 2), (3, 2), skip=("gradient", "jit")).checked if c != "ties"]
    monkeypatch.setattr(_Twice, "parameters", one_by_one)
    with pytest.raises(LayerError, match="ties: a layer in two places are there twice"):
        check_layer(lambda: nn.Linear(2, 2), (3, 2), skip=("gradient", "jit", *others))
