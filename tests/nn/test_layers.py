"""Layers: the same outputs and gradients as torch's in float64, and the same numbers on every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, DTypeError, ShapeError

F64 = {"dtype": fb.float64}
rng = np.random.default_rng(0)


def _torch() -> Any:
    return pytest.importorskip("torch", reason="torch, to compare layers with")


def _same_as_torch(ours: nn.Module, theirs: Any, names: dict[str, str], *inputs: np.ndarray) -> None:
    """Outputs, and gradients of Σ output · weights by parameters, from equal parameters."""
    torch = _torch()
    params = dict(theirs.named_parameters())
    for mine, other in names.items():
        owner, _, leaf = mine.rpartition(".")
        module = ours
        for part in owner.split(".") if owner else []:
            module = getattr(module, part)
        setattr(module, leaf, fb.asarray(params[other].detach().numpy()))
    assert len(ours.parameters()) == len(params) == len(names)
    y = theirs(*(torch.asarray(a) for a in inputs))
    y = y[0] if isinstance(y, tuple) else y
    weights = rng.normal(size=tuple(y.shape))
    (y * torch.asarray(weights)).sum().backward()

    def loss(m: nn.Module) -> tuple[fb.Tensor, fb.Tensor]:
        out = m(*(fb.asarray(a) for a in inputs))
        return fb.sum(out * fb.asarray(weights)), out

    (_, out), grads = fb.value_and_grad(loss, has_aux=True)(ours)
    np.testing.assert_allclose(out.numpy(), y.detach().numpy(), rtol=1e-10, atol=1e-12)
    for n, p in ours.named_parameters():
        np.testing.assert_allclose(grads[p].numpy(), params[names[n]].grad.numpy(), rtol=1e-9, atol=1e-11, err_msg=n)


WB = {"weight": "weight", "bias": "bias"}


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (4,)])
def test_linear_equals_torch(shape: tuple[int, ...]) -> None:
    torch = _torch()
    _same_as_torch(nn.Linear(4, 3, **F64), torch.nn.Linear(4, 3, dtype=torch.float64), WB, rng.normal(size=shape))


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": 3},
        {"kernel": (3, 2), "stride": 2, "padding": 1},
        {"kernel": 3, "padding": (2, 1), "dilation": 2},
        {"kernel": 3, "groups": 2, "bias": False},
        {"kernel": 1, "stride": (1, 2)},
    ],
)
def test_conv2d_equals_torch(settings: dict[str, Any]) -> None:
    torch = _torch()
    other = {("kernel_size" if k == "kernel" else k): v for k, v in settings.items()}
    theirs = torch.nn.Conv2d(4, 6, dtype=torch.float64, **other)
    names = {n: n for n, _ in theirs.named_parameters()}
    _same_as_torch(nn.Conv2d(4, 6, **settings, **F64), theirs, names, rng.normal(size=(2, 4, 7, 8)))


def test_pools_equal_torch() -> None:
    torch = _torch()
    x = rng.normal(size=(2, 3, 7, 8))
    for args in ((2,), ((3, 2), 2), (3, 2, 1)):
        for ours, theirs in ((nn.MaxPool2d, torch.nn.MaxPool2d), (nn.AvgPool2d, torch.nn.AvgPool2d)):
            expected = theirs(*args)(torch.asarray(x)).numpy()
            np.testing.assert_allclose(ours(*args)(fb.asarray(x)).numpy(), expected, rtol=1e-12)


def test_layer_norm_equals_torch() -> None:
    torch = _torch()
    theirs = torch.nn.LayerNorm(6, dtype=torch.float64)
    torch.nn.init.normal_(theirs.weight)
    _same_as_torch(nn.LayerNorm(6, **F64), theirs, WB, rng.normal(size=(2, 3, 6)))


def test_embedding_equals_torch() -> None:
    torch = _torch()
    theirs = torch.nn.Embedding(7, 3, dtype=torch.float64)
    _same_as_torch(nn.Embedding(7, 3, **F64), theirs, {"weight": "weight"}, rng.integers(0, 7, (4, 5)))


@pytest.mark.parametrize("name", ["ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "Identity", "Flatten"])
def test_activations_equal_torch(name: str) -> None:
    torch = _torch()
    x = rng.normal(size=(3, 4, 2))
    expected = getattr(torch.nn, name)()(torch.asarray(x)).numpy()
    np.testing.assert_allclose(getattr(nn, name)()(fb.asarray(x)).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_equal_torch(reduction: str) -> None:
    torch = _torch()
    x, labels, target = rng.normal(size=(5, 4)), rng.integers(0, 4, 5), rng.normal(size=(5, 4))
    for name, y in (("CrossEntropyLoss", labels), ("MSELoss", target)):
        expected = getattr(torch.nn, name)(reduction=reduction)(torch.asarray(x), torch.asarray(y)).numpy()
        got = getattr(nn, name)(reduction)(fb.asarray(x), fb.asarray(y)).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-12)


ATTENTION = {
    "qkv.weight": "in_proj_weight",
    "qkv.bias": "in_proj_bias",
    "out.weight": "out_proj.weight",
    "out.bias": "out_proj.bias",
}


@pytest.mark.parametrize("form", ["self", "key", "key and value"])
def test_attention_equals_torch(form: str) -> None:
    torch = _torch()
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(theirs.in_proj_bias)

    class Call(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = theirs

        def forward(self, q: Any, k: Any = None, v: Any = None) -> Any:
            k = q if k is None else k
            return self.m(q, k, k if v is None else v, need_weights=False)

    inputs = [rng.normal(size=(2, n, 8)) for n in (3, 5, 5)][: 1 + ["self", "key", "key and value"].index(form)]
    names = {k: f"m.{v}" for k, v in ATTENTION.items()}
    _same_as_torch(nn.MultiheadAttention(8, 2, **F64), Call(), names, *inputs)


@pytest.mark.parametrize("axes", ["n m", "batch n m", "batch heads n m"])
def test_a_mask_of_attention_is_true_where_a_query_may_look(axes: str) -> None:
    torch = _torch()
    layer = nn.MultiheadAttention(8, 2, **F64)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for mine, other in ATTENTION.items():
            value = layer.state_dict()[mine].numpy()
            dict(theirs.named_parameters())[other].copy_(torch.asarray(value.copy()))
    x = rng.normal(size=(2, 4, 8))
    shape = {"n m": (4, 4), "batch n m": (2, 4, 4), "batch heads n m": (2, 2, 4, 4)}[axes]
    mask = rng.random(shape) < 0.5
    mask[..., 0] = True
    whole = np.broadcast_to(mask if axes != "batch n m" else mask[:, None], (2, 2, 4, 4)).reshape(4, 4, 4)
    t = torch.asarray(x)
    expected = theirs(t, t, t, attn_mask=torch.asarray(~whole), need_weights=False)[0].detach().numpy()
    np.testing.assert_allclose(layer(fb.asarray(x), mask=fb.asarray(mask)).numpy(), expected, rtol=1e-10, atol=1e-12)


def test_the_encoder_layer_equals_torch() -> None:
    torch = _torch()
    theirs = torch.nn.TransformerEncoderLayer(
        8, 2, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    names = {f"attention.{k}": f"self_attn.{v}" for k, v in ATTENTION.items()}
    names |= {f"{part}.{leaf}": f"{part}.{leaf}" for part in ("norm1", "norm2", "linear1", "linear2") for leaf in WB}
    _same_as_torch(nn.TransformerEncoderLayer(8, 2, 12, **F64), theirs, names, rng.normal(size=(2, 3, 8)))


# dropout


@pytest.mark.parametrize("device", ["cpu", "cpu:1", "torch:cpu"])
def test_dropout_masks_are_equal_on_every_engine(device: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    here, there = nn.Dropout(0.3, seed=5), nn.Dropout(0.3, seed=5)
    for _ in range(2):
        a, b = here(fb.ones((40, 7), device="numpy")), there(fb.ones((40, 7), device=device))
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_dropout_keeps_the_mean_in_training_and_is_the_identity_in_evaluation() -> None:
    layer, x = nn.Dropout(0.25, seed=0), fb.ones((100, 100))
    y = layer(x).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / y.size)
    assert layer.eval()(x) is x
    assert nn.Dropout(0.0)(x) is x


def test_dropout_passes_gradients_where_it_kept_and_draws_anew_each_time() -> None:
    layer, x = nn.Dropout(0.5, seed=0), fb.ones((50,))
    g = fb.grad(lambda x: fb.sum(layer(x)))(x)
    layer.generator.set_state(fb.random.Generator(0).state())
    first = layer(x).tolist()
    assert g.tolist() == first
    assert layer(x).tolist() != first


def test_a_split_batch_drops_what_the_whole_one_would() -> None:
    x = fb.ones((6, 10))
    whole = nn.Dropout(0.5, seed=1)(x).numpy()
    replica = nn.Dropout(0.5, seed=1)
    with fb.random.row_offset(4):
        assert np.array_equal(replica(x[4:]).numpy(), whole[4:])


def test_attention_weights_are_dropped_in_training_only() -> None:
    layer, x = nn.MultiheadAttention(8, 2, dropout=0.5), fb.random.Generator(0).normal((2, 5, 8))
    a, b = layer(x).tolist(), layer(x).tolist()
    assert a != b
    layer.eval()
    assert layer(x).tolist() == layer(x).tolist()


# initial values


@pytest.mark.parametrize(
    "build",
    [
        lambda **how: nn.Linear(5, 3, **how),
        lambda **how: nn.Conv2d(4, 2, 3, **how),
        lambda **how: nn.Embedding(5, 3, **how),
        lambda **how: fb.models.cnn(image=8, **how),
        lambda **how: fb.models.transformer(8, 2, 8, 2, 1, **how),
    ],
)
@pytest.mark.parametrize("device", ["cpu:1", "torch:cpu"])
def test_a_seed_gives_the_same_initial_parameters_everywhere(build: Callable[..., nn.Module], device: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")

    def made(d: str, dtype: fb.DType) -> list[np.ndarray]:
        fb.random.seed(0)
        fb.random.normal((3,), device=d)  # draws on the device do not move the initial parameters
        return [p.numpy() for p in build(device=d, dtype=dtype).parameters()]

    wide = made("numpy", fb.float64)
    for a, b, c in zip(wide, made(device, fb.float64), made(device, fb.float32), strict=True):
        assert a.tobytes() == b.tobytes()
        assert np.array_equal(a.astype(np.float32), c)


def test_a_generator_of_ones_own_fixes_the_initial_parameters() -> None:
    a, b = (nn.Linear(4, 4, generator=fb.random.Generator(1)).state_dict()["weight"].tolist() for _ in range(2))
    assert a == b
    assert a != nn.Linear(4, 4).state_dict()["weight"].tolist()


def test_initial_parameters_have_torchs_distribution() -> None:
    torch = _torch()
    for ours, theirs in (
        (nn.Linear(50, 400), torch.nn.Linear(50, 400)),
        (nn.Conv2d(8, 64, 5, groups=2), torch.nn.Conv2d(8, 64, 5, groups=2)),
        (nn.Embedding(200, 50), torch.nn.Embedding(200, 50)),
    ):
        for (_, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            a, b = p.numpy(), q.detach().numpy()
            assert a.shape == b.shape
            assert abs(a.std() / b.std() - 1) < 4 / np.sqrt(a.size)  # four standard errors of two samples, at least
            if not isinstance(ours, nn.Embedding):
                assert np.abs(a).max() <= np.float32(1 / np.sqrt(np.prod(ours.weight.shape[1:])))


# errors


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.Linear(4, 2)(fb.ones((3, 5))), ShapeError,
         r"Linear: x is \[\.\.\., 4\]\nReceived: x: float32\[3,5\] on cpu:0 and weight: float32\[2,4\] on cpu:0 \(weight\)"),
        (lambda: nn.Conv2d(3, 2, 3)(fb.ones((3, 5, 5))), ShapeError, r"Conv2d: x is \[batch, 3, height, width\]"),
        (lambda: nn.Conv2d(3, 2, 3, groups=2), ConfigError, "Conv2d: groups divides in_channels and out_channels"),
        (lambda: nn.LayerNorm(4)(fb.ones((3, 5))), ShapeError, r"LayerNorm: x is \[\.\.\., 4\]"),
        (lambda: nn.Embedding(4, 2)(fb.ones(3)), DTypeError, "Embedding: indices need an integer dtype"),
        (lambda: nn.Embedding(4, 2)(fb.asarray([4])), IndexError, r"Embedding: indices must lie in \[0, 4\)"),
        (lambda: nn.Dropout(1.0), ConfigError, r"Dropout: p lies in \[0, 1\)\nReceived: p = 1.0"),
        (lambda: nn.MultiheadAttention(8, 3), ConfigError, "MultiheadAttention: heads divides embed"),
        (lambda: nn.MultiheadAttention(8, 2)(fb.ones((3, 8))), ShapeError, r"query is \[batch, length, 8\]"),
        (lambda: nn.CrossEntropyLoss("avg"), ConfigError, 'CrossEntropyLoss: reduction is "mean", "sum" or "none"'),
        (lambda: nn.Linear(2, 2, dtype=fb.int32), DTypeError, "a parameter has a floating dtype\nReceived: int32"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected_and_received(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_loss_shows_its_reduction_and_settings() -> None:
    weighted = nn.CrossEntropyLoss("sum", weight=fb.ones(2), label_smoothing=0.5)
    assert repr(weighted) == "CrossEntropyLoss('sum', label_smoothing=0.5, weight=[…])"
    shown = [repr(getattr(nn, name)()) for name in sorted(nn.__all__) if name.endswith("Loss")]
    assert shown == [
        "BCELoss('mean')", "BCEWithLogitsLoss('mean')", "CTCLoss('mean', blank=0, zero_infinity=False)",
        "CosineEmbeddingLoss('mean', margin=0.0)", "CrossEntropyLoss('mean')", "GaussianNLLLoss('mean', full=False)",
        "HingeEmbeddingLoss('mean', margin=1.0)", "HuberLoss('mean', delta=1.0)", "KLDivLoss('mean', log_target=False)",
        "L1Loss('mean')", "MSELoss('mean')", "MarginRankingLoss('mean', margin=0.0)", "NLLLoss('mean')",
        "PoissonNLLLoss('mean', log_input=True, full=False)", "SmoothL1Loss('mean', beta=1.0)", "SoftMarginLoss('mean')",
        "TripletMarginLoss('mean', margin=1.0, p=2.0, swap=False)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["BCELoss", "BCEWithLogitsLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "PoissonNLLLoss",
     "SmoothL1Loss", "SoftMarginLoss"],
)  # fmt: skip
def test_a_loss_reduces_as_it_is_told(name: str) -> None:
    x, y = fb.asarray([[0.25, 0.5], [0.75, 0.125]]), fb.ones((2, 2))
    each = getattr(nn, name)("none")(x, y).numpy()
    assert each.shape == (2, 2)
    assert each.std() > 0.0
    np.testing.assert_allclose(getattr(nn, name)("sum")(x, y).item(), each.sum(), rtol=1e-6)
    np.testing.assert_allclose(getattr(nn, name)("mean")(x, y).item(), each.mean(), rtol=1e-6)
