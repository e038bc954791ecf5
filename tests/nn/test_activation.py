"""Activations, reshaping layers, ``Sequential`` and tables: torch's numbers, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, DTypeError, OperandError, OutOfRangeError, ShapeError

F64 = {"dtype": fb.float64}
# our settings, and torch's where they are called otherwise
SETTINGS: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    *((n, {}, None) for n in (
        "ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Tanh", "Sigmoid", "LogSigmoid", "Hardswish", "Softsign",
        "Tanhshrink", "GELU", "LeakyReLU", "ELU", "CELU", "Softplus", "Hardtanh", "Softshrink", "Hardshrink", "GLU", "Identity",
    )),
    ("GELU", {"approximate": "tanh"}, None),
    ("LeakyReLU", {"negative_slope": 0.3}, None),
    ("ELU", {"alpha": 0.7}, None),
    ("Softplus", {"beta": 3.0}, None),
    ("Hardtanh", {"min_val": -0.5, "max_val": 0.25}, None),
    ("Softshrink", {"lambd": 0.2}, None),
    ("Hardshrink", {"lambd": 0.2}, None),
    ("Threshold", {"threshold": 0.1, "value": -2.0}, None),
    ("GLU", {"axis": 1}, {"dim": 1}),
    ("Softmax", {}, {"dim": -1}),
    ("Softmax", {"axis": 0}, {"dim": 0}),
    ("LogSoftmax", {"axis": 1}, {"dim": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ours", "theirs"), SETTINGS, ids=lambda v: str(v))
def test_an_activation_in_a_model_trains_as_torchs_does(
    name: str, ours: dict[str, Any], theirs: dict[str, Any] | None, train_alike: Callable[..., None]
) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    model = nn.Sequential(nn.Linear(3, 4, **F64), getattr(nn, name)(**ours))
    other = torch.nn.Sequential(
        torch.nn.Linear(3, 4, dtype=torch.float64), getattr(torch.nn, name)(**(ours if theirs is None else theirs))
    )
    names = {f"layers.0.{leaf}": f"0.{leaf}" for leaf in ("weight", "bias")}
    # above 20, torch's softplus is the identity, and its slope off by exp(-20) = 2e-9: smaller inputs do not get there
    size = 1.0 if name == "Softplus" else 3.0
    train_alike(model, other, lambda rng: [size * rng.normal(size=(5, 3))], names=names)


@pytest.mark.parametrize(("name", "settings"), [("Hardsigmoid", {}), ("CELU", {"alpha": 0.7})])
def test_where_torch_rounds_its_constants_to_float32_its_formula_is_the_measure(
    name: str, settings: dict[str, float], train_alike: Callable[..., None]
) -> None:
    """torch's own gradients take 1/6 and 1/alpha in float32, also for float64: they are off by 3e-8."""
    torch = pytest.importorskip("torch", reason="torch, to compare with")

    def formula(x: Any) -> Any:
        if name == "Hardsigmoid":
            return torch.clamp(x / 6.0 + 0.5, 0.0, 1.0)
        return torch.where(x > 0.0, x, 0.7 * torch.expm1(x / 0.7))

    x = torch.asarray(np.linspace(-4.0, 4.0, 31))
    np.testing.assert_allclose(formula(x).numpy(), getattr(torch.nn, name)(**settings)(x).numpy(), rtol=1e-6)
    model = nn.Sequential(nn.Linear(3, 4, **F64), getattr(nn, name)(**settings))
    theirs = torch.nn.Linear(3, 4, dtype=torch.float64)
    names = {f"layers.0.{leaf}": leaf for leaf in ("weight", "bias")}
    train_alike(model, theirs, lambda rng: [3.0 * rng.normal(size=(5, 3))], names=names, theirs_call=lambda m, x: formula(m(x)))


@pytest.mark.parametrize("channels", [1, 4])
def test_prelu_trains_as_torchs_does(channels: int, train_alike: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    theirs = torch.nn.PReLU(channels, dtype=torch.float64)
    train_alike(nn.PReLU(channels, **F64), theirs, lambda rng: [rng.normal(size=(3, 4, 2))])


def test_bilinear_trains_as_torchs_does(train_alike: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    theirs = torch.nn.Bilinear(3, 2, 4, dtype=torch.float64)
    train_alike(nn.Bilinear(3, 2, 4, **F64), theirs, lambda rng: [rng.normal(size=(5, 6, n)) for n in (3, 2)], lr=0.5)


@pytest.mark.parametrize("padding", [None, 2, -1])
def test_an_embedding_trains_as_torchs_does(padding: int | None, train_alike: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    theirs = torch.nn.Embedding(5, 3, padding_idx=padding, dtype=torch.float64)
    ours = nn.Embedding(5, 3, padding, **F64)
    train_alike(ours, theirs, lambda rng: [rng.integers(0, 5, (4, 6))], lr=0.5)
    if padding is not None:
        assert ours.weight[padding].tolist() == [0.0, 0.0, 0.0]
        assert nn.Embedding(5, 3, padding).weight[padding].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("mode", "padding"), [("mean", None), ("sum", None), ("mean", 1), ("sum", 1)])
def test_an_embedding_bag_trains_as_torchs_does(
    mode: str, padding: int | None, train_alike: Callable[..., None]
) -> None:  # fmt: skip
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    theirs = torch.nn.EmbeddingBag(5, 3, mode=mode, padding_idx=padding, dtype=torch.float64)
    ours = nn.EmbeddingBag(5, 3, mode=mode, padding_index=padding, **F64)
    train_alike(ours, theirs, lambda rng: [rng.integers(0, 5, (4, 3))], lr=0.5)
    if mode == "sum" and padding is None:
        train_alike(
            ours, theirs, lambda rng: [rng.integers(0, 5, (4, 3)), rng.normal(size=(4, 3))], steps=3,
            ours_call=lambda m, i, w: m(i, weights=w), theirs_call=lambda m, i, w: m(i, per_sample_weights=w),
        )  # fmt: skip
    if padding is not None:
        assert ours(fb.asarray([[padding, padding]])).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("axes", [(1, -1), (0, 1), (2, 3), (1, 1), (-2, -1)])
def test_flatten_and_unflatten_are_torchs(axes: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    x = np.arange(24.0).reshape(2, 3, 2, 2)
    want = torch.nn.Flatten(*axes)(torch.asarray(x))
    np.testing.assert_array_equal(nn.Flatten(*axes)(fb.asarray(x)).numpy(), want.numpy())
    for sizes in ((3, 4), (-1, 2), (2, 2, 3)):
        flat = x.reshape(2, 12)
        got = nn.Unflatten(1, sizes)(fb.asarray(flat)).numpy()
        np.testing.assert_array_equal(got, torch.nn.Unflatten(1, sizes)(torch.asarray(flat)).numpy())
    assert nn.Unflatten(-1, (3, -1))(fb.zeros((0, 6))).shape == (0, 3, 2)


def test_a_sequential_is_a_sequence_of_layers() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    assert model.append(nn.Linear(3, 1)) is model
    assert len(model) == 3
    assert model[-1] is model.layers[2]
    assert list(model) == list(model.layers)
    head = model[:2]
    assert isinstance(head, nn.Sequential)
    assert [layer is own for layer, own in zip(head, model, strict=False)] == [True, True]
    assert [n for n, _ in model.named_parameters()] == ["layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"]
    model[1] = nn.Tanh()
    assert isinstance(model[1], nn.Tanh)
    assert model(fb.ones((4, 2))).shape == (4, 1)
    model.append(nn.Linear(7, 7))
    with pytest.raises(ShapeError, match=r"layers\.3\.weight"):
        model(fb.ones((4, 2)))
    model[0] = nn.Linear(7, 7)
    with pytest.raises(ShapeError, match=r"layers\.0\.weight"):
        model(fb.ones((4, 2)))


def test_lists_and_dicts_of_layers_are_parts() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            self.listed = [nn.Linear(1, 1), nn.Linear(1, 1)]
            self.named = {"a": nn.Linear(1, 1)}

    found = [n for n, _ in Parts().named_parameters()]
    assert found == [f"{p}.{leaf}" for p in ("listed.0", "listed.1", "named.a") for leaf in ("weight", "bias")]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.GELU("fast"), ConfigError, 'GELU: approximate is "none" or "tanh"'),
        (lambda: nn.PReLU(0), ConfigError, "PReLU: channels is an int ≥ 1"),
        (lambda: nn.PReLU(3)(fb.ones((2, 4))), ShapeError, "prelu: weight holds 1 number or one for each"),
        (lambda: nn.GLU()(fb.ones((2, 3))), ShapeError, "glu: axis -1 of x must have an even size"),
        (lambda: nn.Flatten(2, 1)(fb.ones((1, 2, 3))), ShapeError, "Flatten: start_axis comes before end_axis"),
        (lambda: nn.Flatten(1, 3)(fb.ones((1, 2, 3))), IndexError, "Flatten"),
        (lambda: nn.Unflatten(1, (2, 4))(fb.ones((1, 6))), ShapeError, "Unflatten: axis 1 of x holds as many"),
        (lambda: nn.Unflatten(1, (4, -1))(fb.ones((1, 6))), ShapeError, "Unflatten: axis 1 of x holds"),
        (lambda: nn.Unflatten(1, (-1, -1)), ConfigError, "of which one may be -1"),
        (lambda: nn.Sequential(nn.ReLU())[1], OutOfRangeError, r"Sequential: an index lies in \[-1, 1\)"),
        (lambda: nn.Sequential(fb.relu), ConfigError, r"Sequential takes modules\nReceived: layers\[0\]"),
        (lambda: nn.Sequential().append(fb.relu), ConfigError, "Sequential takes modules"),
        (lambda: nn.Linear(3, 2)(fb.asarray([1, 2, 3])), DTypeError, "Linear: x needs a floating dtype"),
        (lambda: nn.Linear(3, 2)([1.0, 2.0, 3.0]), OperandError, "Linear: x must be a Firebrick tensor"),
        (lambda: nn.Linear(-1, 2), ConfigError, "Linear: in_features is an int ≥ 0"),
        (lambda: nn.Embedding(5, 3, 5), OutOfRangeError, r"Embedding: padding_index lies in \[-5, 5\)"),
        (lambda: nn.EmbeddingBag(5, 3, mode="min"), ConfigError, 'EmbeddingBag: mode is "mean", "sum" or "max"'),
        (lambda: nn.EmbeddingBag(5, 3)(fb.asarray([5])), IndexError, r"EmbeddingBag: indices must lie in \[0, 5\)"),
        (lambda: nn.Embedding(5, 3, -1)(fb.asarray([2, -1])), IndexError, r"Embedding: indices must lie(.|\n)*from -1 to 2"),
        (lambda: nn.EmbeddingBag(5, 3)(fb.asarray([1]), weights=fb.ones(1)), ShapeError, 'in mode "sum"'),
        (lambda: nn.Bilinear(3, 2, 1)(fb.ones((4, 3)), fb.ones((5, 2))), ShapeError, "x1 and x2 have equal axes but the last"),
        (lambda: nn.Bilinear(3, 2, 1)(fb.ones((4, 2)), fb.ones((4, 2))), ShapeError, r"x1 is \[\.\.\., 3\]"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected_and_received(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_indices_of_a_narrow_dtype_serve_larger_tables(device: str) -> None:
    layer = nn.Embedding(300, 2, padding_index=299).to(device)
    indices = np.asarray([1, 200], np.uint8)
    want = layer(fb.asarray(indices.astype(np.int64), device=device)).numpy()
    np.testing.assert_array_equal(layer(fb.asarray(indices, device=device)).numpy(), want)


def test_flatten_makes_one_feature_of_each_sample_that_has_no_axis_of_its_own() -> None:
    assert nn.Flatten()(fb.ones(3)).shape == (3, 1)
    assert nn.Flatten()(fb.ones(())).shape == (1, 1)
    with pytest.raises(IndexError, match="Flatten"):
        nn.Flatten(1, 0)(fb.ones(3))
