"""Layers used in ways that few programs use them: no tensors, other features, attributes deleted, outputs of other kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.nn import initial

X = fb.ones((2, 3, 4))
ARRAY = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.Embedding(3, 2)([0, 1]), fb.OperandError, "Embedding: indices must be a Firebrick tensor"),
        (lambda: nn.EmbeddingBag(3, 2)(fb.asarray(1)), fb.ShapeError, r"EmbeddingBag: indices are \[\.\.\., size\]"),
        (lambda: nn.GRU(4, 2)(X, [0.0]), fb.OperandError, "GRU: state must be a Firebrick tensor"),
        (lambda: nn.LSTM(4, 2)(X, ([0.0], [0.0])), fb.OperandError, r"LSTM: state\[0\] must be a Firebrick tensor"),
        (lambda: nn.LSTMCell(4, 2)(X[0], (fb.zeros((3, 2)), [0.0])), fb.OperandError, r"LSTMCell: state\[1\] must be a"),
        (lambda: nn.Flatten()([1.0]), fb.OperandError, "Flatten: x must be a Firebrick tensor"),
        (lambda: nn.Unflatten(1, (2, 2))([1.0]), fb.OperandError, "Unflatten: x must be a Firebrick tensor"),
        (lambda: nn.Linear(1, 1).load_state_dict([1.0]), nn.StateError, "a mapping from paths to values\nReceived: list"),
        (lambda: nn.Linear(3, 1)(ARRAY), fb.OperandError, "Linear: x must be a Firebrick tensor"),
        (lambda: Named()(x=ARRAY), fb.OperandError, "Named: x must be a Firebrick tensor"),
        (lambda: Named()(x=fb.ones(1), y=fb.ones(1, device="cpu:1")), fb.DeviceMismatchError, "x: .*cpu:0 and y: .*cpu:1"),
        (
            lambda: Named()(x=[fb.ones(1), fb.ones(1, device="cpu:1")]),
            fb.DeviceMismatchError,
            r"Named: all tensors must be on one device\nReceived: x\[0\]: .* and x\[1\]: ",
        ),
        (lambda: fb.models.resnet18(zero_init=1), fb.ConfigError, "zero_init is True or False"),
        (lambda: fb.models.patchtst(2, 24, 4, dim=6, heads=4), fb.ConfigError, "patchtst: heads divides dim"),
        (lambda: fb.models.transformer(8, 2, 6, 4), fb.ConfigError, "transformer: heads divides dim"),
    ],
)
def test_it_is_refused_by_the_layers_name(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


class Named(nn.Module):
    """Takes its inputs by any names."""

    def forward(self, **given: Any) -> Any:
        """All of them."""
        return given


def test_values_alone_may_have_other_features() -> None:
    layer = nn.MultiheadAttention(4, 2, value_features=3, dtype=fb.float64)
    generator = fb.random.Generator(0)
    x, v = (generator.normal((2, 5, n), dtype=fb.float64) for n in (4, 3))

    def heads(t: fb.Tensor) -> np.ndarray:
        return t.numpy().reshape(2, 5, 2, 2).transpose(0, 2, 1, 3)

    scores = heads(layer.q(x)) @ heads(layer.k(x)).swapaxes(2, 3) / np.sqrt(2.0)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    joined = (weights @ heads(layer.v(v))).transpose(0, 2, 1, 3).reshape(2, 5, 4)
    for given in (x, None):
        np.testing.assert_allclose(layer(x, given, v).numpy(), layer.out(fb.asarray(joined)).numpy(), rtol=1e-12)


def test_rotary_positions_turn_queries_and_keys_of_another_sequence() -> None:
    rotary = nn.RotaryPositions(2)
    layer = nn.MultiheadAttention(4, 2, rotary=rotary, dtype=fb.float64)
    generator = fb.random.Generator(0)
    x = generator.normal((2, 5, 4), dtype=fb.float64)
    again = x + 0.0  # the same values, and another sequence for the layer
    np.testing.assert_allclose(layer(x, again).numpy(), layer(x).numpy(), rtol=1e-12)
    moved = layer(x, fb.flip(again, axis=1)).numpy()
    assert np.abs(moved - layer(x).numpy()).max() > 1e-3  # without places, the order of keys would not matter


def test_a_cache_shows_how_many_places_it_holds_and_which_layer_it_lost() -> None:
    layer, cache = nn.MultiheadAttention(4, 2), nn.KeyValueCache()
    assert repr(cache) == "KeyValueCache(length=0)"
    layer(X, cache=cache)
    assert repr(cache) == "KeyValueCache(length=3)"
    del layer
    with pytest.raises(fb.ConfigError, match="a cache of a layer that is there no longer given to MultiheadAttention"):
        nn.MultiheadAttention(4, 2)(X, cache=cache)


def test_parameters_of_ones() -> None:
    made = initial.ones((2, 3), dtype=fb.float64, device="cpu:1")
    assert (made.tolist(), made.dtype, str(made.device)) == ([[1.0] * 3] * 2, fb.float64, "cpu:1")


def test_a_member_that_is_deleted_is_seen_no_more_also_by_what_was_compiled() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.extra = nn.Linear(2, 2)
    compiled = fb.jit(lambda m, x: m.extra(x) if hasattr(m, "extra") else x)
    x = fb.ones((1, 2))
    assert compiled(model, x).tolist() == model.extra(x).tolist()
    del model.extra
    assert [n for n, _ in model.named_parameters()] == ["layers.0.weight", "layers.0.bias"]
    assert compiled(model, x).tolist() == x.tolist()
    with pytest.raises(AttributeError):
        del model.extra


def test_a_summary_shows_outputs_of_every_kind_and_containers_by_their_parts() -> None:
    model = nn.Sequential(nn.Sequential(nn.GRU(4, 2)), Last())
    lines = model.summary((2, 3, 4)).splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == [
        "layer", "layers.0.layers.0 (GRU)", "layers.1 (Last)", "Sequential"
    ]  # fmt: skip
    assert "[2, 3, 2], [1, 2, 2]" in lines[1]
    assert " dict " in lines[2]
    assert Named().summary().splitlines()[0].split() == ["layer", "parameters", "bytes"]


class Last(nn.Module):
    """The last step of a sequence."""

    def forward(self, found: Any) -> dict[str, fb.Tensor]:
        """By name."""
        return {"last": found[0][:, -1]}


def test_weight_norm_shows_what_it_divides() -> None:
    assert repr(nn.weight_norm(nn.Linear(2, 2), axis=None)).startswith("WeightNorm(weight, axis=None\n")
    assert repr(nn.weight_norm(nn.Linear(2, 2), "weight", -1)).startswith("WeightNorm(weight, axis=1\n")


def test_a_mode_that_is_the_default_again_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.ReLU())
    before = [set(vars(m)) for _, m in model.modules()]
    model.eval()
    assert [m.training for _, m in model.modules()] == [False] * 3
    model.train()
    assert [m.training for _, m in model.modules()] == [True] * 3
    assert [set(vars(m)) for _, m in model.modules()] == before


def test_a_subclass_may_have_another_base_that_takes_keywords_of_the_class() -> None:
    class Tagged:
        tag = ""

        def __init_subclass__(cls, *, tag: str = "", **named: Any) -> None:
            super().__init_subclass__(**named)
            cls.tag = tag

    class Mine(nn.Linear, Tagged, tag="mine"):
        """Both."""

    assert Mine.tag == "mine"
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        type("Other", (nn.Linear,), {}, colour="red")
