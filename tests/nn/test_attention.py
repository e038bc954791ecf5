"""Attention and transformer blocks: torch's numbers over 20 steps, and decoding step by step equal to one pass."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rounding import within

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, DTypeError, OperandError, ShapeError

F64 = {"dtype": fb.float64}
ATTENTION = {
    "qkv.weight": "in_proj_weight", "qkv.bias": "in_proj_bias", "out.weight": "out_proj.weight", "out.bias": "out_proj.bias",
}  # fmt: skip


def encoder_names(layer: nn.Module, prefix: str = "") -> dict[str, str]:
    """Our names of an encoder's or decoder's parameters → torch's."""
    names = {}
    for n, _ in layer.named_parameters():
        name = n
        for ours, theirs in (("memory_attention", "multihead_attn"), ("attention", "self_attn")):
            for leaf, other in ATTENTION.items():
                name = name.replace(f"{ours}.{leaf}", f"{theirs}.{other}")
        names[n] = prefix + name
    return names


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.normal(size=s) for s in shapes]


def torch_mask(torch: Any, n: int) -> Any:
    return torch.triu(torch.ones(n, n, dtype=torch.bool), 1)


KEYS = np.asarray([[True, True, True, False], [True, True, False, False]])


@pytest.mark.parametrize("form", ["plain", "no bias", "causal", "key_mask", "need_weights", "bias"])
def test_attention_trains_as_torchs_does(form: str, train_alike: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    bias = form != "no bias"
    ours = nn.MultiheadAttention(8, 2, bias=bias, **F64)
    theirs = torch.nn.MultiheadAttention(8, 2, bias=bias, batch_first=True, dtype=torch.float64)
    added = np.random.default_rng(5).normal(size=(4, 4))

    def call(m: nn.Module, x: fb.Tensor) -> fb.Tensor:
        if form == "need_weights":
            y, w = m(x, need_weights=True)
            return fb.concat([y, fb.mean(w, axis=1)], axis=2)
        return m(
            x, causal=form == "causal", key_mask=fb.asarray(KEYS) if form == "key_mask" else None,
            bias=fb.asarray(added) if form == "bias" else None,
        )  # fmt: skip

    def their_call(m: Any, x: Any) -> Any:
        mask = {"causal": torch_mask(torch, 4), "bias": torch.asarray(added)}.get(form)
        keys = torch.asarray(~KEYS) if form == "key_mask" else None
        y, w = m(x, x, x, attn_mask=mask, key_padding_mask=keys, need_weights=form == "need_weights")
        return torch.cat([y, w], 2) if form == "need_weights" else y

    names = {n: ATTENTION[n] for n, _ in ours.named_parameters()}
    train_alike(ours, theirs, normal((2, 4, 8)), names=names, ours_call=call, theirs_call=their_call, lr=0.5)


def test_attention_to_other_features_trains_as_torchs_functions_do(train_alike: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")

    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out = (torch.nn.Linear(n, 8, dtype=torch.float64) for n in (8, 6, 5, 8))

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            q, k, v = (f(t).unflatten(2, (2, 4)).transpose(1, 2) for f, t in ((self.q, q), (self.k, k), (self.v, v)))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).flatten(2))

    ours = nn.MultiheadAttention(8, 2, key_features=6, value_features=5, **F64)
    train_alike(ours, Theirs(), normal((2, 3, 8), (2, 4, 6), (2, 4, 5)), lr=0.5)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_the_encoder_layer_trains_as_torchs_does(
    norm_first: bool, activation: str, train_alike: Callable[..., None]
) -> None:  # fmt: skip
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    theirs = torch.nn.TransformerEncoderLayer(
        8, 2, 12, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    ours = nn.TransformerEncoderLayer(8, 2, 12, activation=activation, norm_first=norm_first, **F64)
    train_alike(ours, theirs, normal((2, 3, 8)), names=encoder_names(ours), lr=0.2)


@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_trains_as_torchs_does(norm_first: bool, train_alike: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    last = torch.nn.LayerNorm(8, dtype=torch.float64) if norm_first else None
    theirs = torch.nn.TransformerEncoder(layer, 2, norm=last, enable_nested_tensor=False)
    ours = nn.TransformerEncoder(8, 2, 2, 12, norm_first=norm_first, **F64)
    train_alike(
        ours, theirs, normal((2, 4, 8)), names=encoder_names(ours), lr=0.2,
        ours_call=lambda m, x: m(x, causal=True), theirs_call=lambda m, x: m(x, mask=torch_mask(torch, 4)),
    )  # fmt: skip


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_decoder_trains_as_torchs_does(norm_first: bool, train_alike: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    layer = torch.nn.TransformerDecoderLayer(
        8, 2, 12, dropout=0.0, activation="relu", batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    last = torch.nn.LayerNorm(8, dtype=torch.float64) if norm_first else None
    theirs = torch.nn.TransformerDecoder(layer, 2, norm=last)
    ours = nn.TransformerDecoder(8, 2, 2, 12, activation="relu", norm_first=norm_first, **F64)
    train_alike(
        ours, theirs, normal((2, 3, 8), (2, 4, 8)), names=encoder_names(ours), lr=0.2,
        ours_call=lambda m, x, memory: m(x, memory, memory_key_mask=fb.asarray(KEYS)),
        theirs_call=lambda m, x, memory: m(
            x, memory, tgt_mask=torch_mask(torch, 3), memory_key_padding_mask=torch.asarray(~KEYS)
        ),
    )  # fmt: skip


@pytest.mark.parametrize("activation", ["silu", "tanh", "swiglu", "geglu", "reglu"])
def test_the_other_activations_are_what_their_names_say(activation: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 6, activation=activation, **F64)
    x = fb.random.Generator(0).normal((1, 3, 8), dtype=fb.float64)
    inner = layer.linear1(layer.norm2(x + layer.attention(layer.norm1(x))))
    if activation in ("silu", "tanh"):
        inner = getattr(fb, activation)(inner)
    else:
        gate, value = fb.split(inner, (6, 6), axis=-1)
        inner = {"swiglu": fb.silu, "geglu": fb.gelu, "reglu": fb.relu}[activation](gate) * value
    want = x + layer.attention(layer.norm1(x)) + layer.linear2(inner)
    np.testing.assert_allclose(layer(x).numpy(), want.numpy(), rtol=1e-12)


@pytest.mark.turns
@pytest.mark.parametrize("activation", ["swiglu", "geglu", "reglu", "silu", "tanh"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_the_activations_of_a_decoder_are_what_their_names_say(activation: str, norm_first: bool, device: str) -> None:
    """Each layer written out; a gated activation halves the features between the dense layers."""
    model = nn.TransformerDecoder(8, 2, 2, 6, activation=activation, norm_first=norm_first, device=device, **F64).eval()
    g = fb.random.Generator(0)
    x, memory = (g.normal((2, n, 8), dtype=fb.float64, device=device) for n in (3, 4))

    def dense(layer: Any, x: Any) -> Any:
        inner = layer.linear1(x)
        if activation in ("silu", "tanh"):
            return layer.linear2(getattr(fb, activation)(inner))
        gate, value = inner[..., :6], inner[..., 6:]
        return layer.linear2({"swiglu": fb.silu, "geglu": fb.gelu, "reglu": fb.relu}[activation](gate) * value)

    want = x
    for layer in model.layers:
        assert layer.linear1.weight.shape == (6 if activation in ("silu", "tanh") else 12, 8)
        parts = (
            (layer.norm1, lambda x, own=layer: own.attention(x, causal=True)),
            (layer.norm2, lambda x, own=layer: own.memory_attention(x, memory)),
            (layer.norm3, lambda x, own=layer: dense(own, x)),
        )
        for norm, branch in parts:
            want = want + branch(norm(want)) if norm_first else norm(want + branch(want))
    want = want if model.norm is None else model.norm(want)
    for run in (model, fb.jit(model)):
        np.testing.assert_allclose(run(x, memory).numpy(), want.numpy(), rtol=1e-10, atol=1e-12)


# decoding


@pytest.mark.parametrize("chunks", [[1] * 6, [4, 1, 1], [2, 3, 1]])
@pytest.mark.parametrize("rotary", [False, True])
def test_an_encoder_in_steps_is_the_encoder_in_one_pass(chunks: list[int], rotary: bool, device: str) -> None:
    turn = nn.RotaryPositions(4) if rotary else None
    model = nn.TransformerEncoder(8, 2, 2, rotary=turn, device=device, **F64).eval()
    x = fb.random.Generator(0).normal((2, 6, 8), dtype=fb.float64, device=device)
    cache, steps = model.new_cache(), []
    for part in fb.split(x, chunks, axis=1):
        steps.append(model(part, causal=True, cache=cache))
    assert [c.length for c in cache] == [6, 6]
    np.testing.assert_allclose(fb.concat(steps, axis=1).numpy(), model(x, causal=True).numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunks", [[1] * 5, [2, 1, 2]])
def test_a_decoder_in_steps_is_the_decoder_in_one_pass(chunks: list[int], device: str) -> None:
    model = nn.TransformerDecoder(8, 2, 2, memory_features=6, device=device, **F64).eval()
    x, memory = (
        fb.random.Generator(i).normal((2, *s), dtype=fb.float64, device=device) for i, s in enumerate(((5, 8), (4, 6)))
    )
    keys = fb.asarray(KEYS, device=device)
    cache, steps = model.new_cache(), []
    for part in fb.split(x, chunks, axis=1):
        steps.append(model(part, memory, memory_key_mask=keys, cache=cache))
    assert [(a.length, b.length) for a, b in cache] == [(5, 4)] * 2
    want = model(x, memory, memory_key_mask=keys)
    np.testing.assert_allclose(fb.concat(steps, axis=1).numpy(), want.numpy(), rtol=1e-10, atol=1e-12)


def test_a_cache_follows_the_rows_that_a_beam_search_keeps() -> None:
    layer = nn.MultiheadAttention(8, 2, **F64)
    x = fb.random.Generator(0).normal((2, 3, 8), dtype=fb.float64)
    cache, rows = nn.KeyValueCache(), fb.asarray([1, 1, 0])
    layer(x[:, :2], causal=True, cache=cache)
    cache.select(rows)
    kept = fb.take(x, rows, axis=0)
    got = layer(kept[:, 2:], causal=True, cache=cache)
    np.testing.assert_allclose(got.numpy(), layer(kept, causal=True)[:, 2:].numpy(), rtol=1e-12, atol=1e-14)


def test_a_cache_of_one_memory_refuses_another() -> None:
    layer, cache = nn.MultiheadAttention(8, 2), nn.KeyValueCache()
    query, memory = fb.ones((1, 2, 8)), fb.ones((1, 3, 8))
    layer(query, memory, cache=cache)
    layer(query, memory, cache=cache)
    with pytest.raises(ConfigError, match="holds the keys and values of the memory it was first used with"):
        layer(query, memory + 1.0, cache=cache)
    for key, value in ((memory + 1.0, memory), (memory, memory + 1.0)):
        with pytest.raises(ConfigError, match="holds the keys and values of the memory it was first used with"):
            layer(query, key, value, cache=cache)
    with pytest.raises(ShapeError, match="a cache belongs to one attention layer and one batch"):
        layer(query, cache=cache)


def test_a_query_that_may_look_nowhere_gets_zeros_and_its_gradients_stay_finite() -> None:
    layer = nn.MultiheadAttention(8, 2, bias=False, **F64)
    x = fb.random.Generator(0).normal((1, 3, 8), dtype=fb.float64)
    mask = fb.asarray(np.asarray([[True, True, True], [False] * 3, [True, False, False]]))
    for need in (False, True):

        def loss(m: nn.Module, need: bool = need) -> tuple[fb.Tensor, fb.Tensor]:
            y = m(x, mask=mask, need_weights=need)
            y = y[0] if need else y
            return fb.sum(y * y), y

        (_, y), grads = fb.value_and_grad(loss, has_aux=True)(layer)
        assert y.numpy()[0, 1].tolist() == [0.0] * 8
        assert np.abs(y.numpy()[0, [0, 2]]).min() > 0
        assert all(np.isfinite(grads[p].numpy()).all() for p in layer.parameters())


def test_attention_weights_sum_to_one_and_do_not_change_the_result() -> None:
    layer, x = nn.MultiheadAttention(8, 2, **F64), fb.random.Generator(0).normal((2, 5, 8), dtype=fb.float64)
    y, weights = layer(x, causal=True, need_weights=True)
    np.testing.assert_allclose(y.numpy(), layer(x, causal=True).numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1.0)
    assert not np.triu(weights.numpy(), 1).any()


def test_large_scores_in_half_precision_stay_finite_with_and_without_weights() -> None:
    layer = fb.nn.MultiheadAttention(8, 2, dtype=fb.float16)
    x = fb.astype(fb.asarray(np.random.default_rng(0).normal(size=(2, 5, 8)) * 3000.0), fb.float16)
    y, weights = layer(x, x, x, need_weights=True)
    assert y.dtype is weights.dtype is fb.float16
    assert np.isfinite(y.numpy()).all()
    np.testing.assert_array_equal(y.numpy(), layer(x, x, x).numpy())
    within(weights.numpy().astype(np.float32).sum(-1).astype(np.float16), 1.0, 2)  # each of them is rounded


def test_masks_are_dropped_alike_with_and_without_weights() -> None:
    layer = nn.MultiheadAttention(8, 2, dropout=0.5, **F64)
    twin, x = layer.fork(), fb.random.Generator(0).normal((2, 5, 8), dtype=fb.float64)
    np.testing.assert_allclose(layer(x).numpy(), twin(x, need_weights=True)[0].numpy(), rtol=1e-12, atol=1e-14)


# positions


def test_sinusoidal_positions_follow_the_papers_formula(device: str) -> None:
    layer = nn.SinusoidalPositions(6)
    x = fb.zeros((1, 300, 6), dtype=fb.float64, device=device)
    t, i = np.arange(300)[:, None], np.arange(6)
    angles = t / 10000.0 ** ((i // 2 * 2) / 6)
    want = np.where(i % 2, np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(layer(x)[0].numpy(), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(layer(x[:, :7], offset=250)[0].numpy(), layer(x)[0].numpy()[250:257])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_positions_turn_pairs_like_complex_numbers(interleaved: bool, device: str) -> None:
    layer = nn.RotaryPositions(6, interleaved=interleaved)
    x = np.random.default_rng(0).normal(size=(2, 5, 6))
    got = layer(fb.asarray(x, device=device), offset=3).numpy()
    pairs = (lambda a: a[..., 0::2] + 1j * a[..., 1::2]) if interleaved else (lambda a: a[..., :3] + 1j * a[..., 3:])
    angles = (np.arange(5) + 3)[:, None] / 10000.0 ** (np.arange(0, 6, 2) / 6)
    np.testing.assert_allclose(pairs(got), pairs(x) * np.exp(1j * angles), rtol=1e-12)


def test_rotary_attention_depends_on_distances_only() -> None:
    turn = nn.RotaryPositions(8)
    q, k = (fb.random.Generator(i).normal((1, 1, 4, 8), dtype=fb.float64) for i in range(2))
    scores = [(turn(q, offset=o) @ turn(k, offset=o).mT).numpy() for o in (0, 117)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-10, atol=1e-12)


def test_learned_positions_are_added_and_trained() -> None:
    layer = nn.LearnedPositions(6, 2)
    x = fb.ones((3, 4, 2))
    np.testing.assert_array_equal(layer(x, offset=2).numpy(), np.broadcast_to(1 + layer.weight.numpy()[2:], (3, 4, 2)))
    _, grads = fb.value_and_grad(lambda m: fb.sum(m(x, offset=2)))(layer)
    assert grads[layer.weight].tolist() == [[0.0, 0.0]] * 2 + [[3.0, 3.0]] * 4


# errors

X = fb.ones((2, 4, 8))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.MultiheadAttention(8, 3), ConfigError, "MultiheadAttention: heads divides embed"),
        (lambda: nn.MultiheadAttention(8, 0), ConfigError, "MultiheadAttention: heads is an int ≥ 1"),
        (lambda: nn.MultiheadAttention(8, 2, 1.0), ConfigError, r"MultiheadAttention: dropout lies in \[0, 1\)"),
        (lambda: nn.MultiheadAttention(8, 2, rotary=nn.RotaryPositions(8)), ConfigError, "turns the 4 features of a head"),
        (lambda: nn.MultiheadAttention(8, 2)(fb.ones((4, 8))), ShapeError, r"query is \[batch, length, 8\]"),
        (lambda: nn.MultiheadAttention(8, 2)(X, fb.ones((3, 4, 8))), ShapeError, "have one batch"),
        (lambda: nn.MultiheadAttention(8, 2)(X, fb.ones((2, 4, 6))), ShapeError, r"key is \[batch, length, 8\]"),
        (lambda: nn.MultiheadAttention(8, 2)(X, mask=fb.ones((4, 4))), DTypeError, "mask needs a bool dtype"),
        (lambda: nn.MultiheadAttention(8, 2)(X, mask=fb.ones((4, 3)) > 0), ShapeError, r"mask is \[4, 4\], \[2, 4, 4\] or"),
        (lambda: nn.MultiheadAttention(8, 2)(X, mask=fb.ones((4,)) > 0), ShapeError, r"mask is \[4, 4\]"),
        (lambda: nn.MultiheadAttention(8, 2)(X, key_mask=fb.ones((2, 3)) > 0), ShapeError, r"key_mask is \[batch, keys\]"),
        (lambda: nn.MultiheadAttention(8, 2)(X, key_mask=fb.ones((2, 4))), DTypeError, r"a bool(.|\n)*mask: float32\[2,4\]"),
        (lambda: nn.MultiheadAttention(8, 2)(X, bias=fb.ones((4, 4)) > 0), DTypeError, "bias needs a float dtype"),
        (lambda: nn.MultiheadAttention(8, 2)(X, fb.ones((2, 3, 8)), causal=True), ShapeError, "at least as many keys"),
        (lambda: nn.MultiheadAttention(8, 2)(X, fb.ones((2, 4, 8), device="cpu:1")), fb.DeviceMismatchError, "all tensors"),
        (lambda: nn.TransformerEncoderLayer(8, 3), ConfigError, "TransformerEncoderLayer: heads divides embed"),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation="selu"), ConfigError, 'activation is "relu", "gelu", "silu"'),
        (lambda: nn.TransformerDecoderLayer(8, 2, dropout=2.0), ConfigError, r"Layer: dropout lies in \[0, 1\)"),
        (lambda: nn.TransformerEncoder(8, 2, 0), ConfigError, "TransformerEncoder: layers is an int ≥ 1"),
        (lambda: nn.TransformerEncoder(8, 2, 1)(fb.ones((2, 4, 6))), ShapeError, r"Encoder: x is \[batch, length, 8\]"),
        (lambda: nn.TransformerEncoder(8, 2, 2)(X, cache=[nn.KeyValueCache()]), ConfigError, "one entry for each of 2 layers"),
        (lambda: nn.TransformerDecoder(8, 2, 1)(X, fb.ones((2, 4, 6))), ShapeError, "memory is"),
        (lambda: nn.SwiGLU(4, 8)(fb.ones((2, 3))), ShapeError, r"SwiGLU: x is \[\.\.\., 4\]"),
        (lambda: nn.SinusoidalPositions(5), ConfigError, "SinusoidalPositions: features is even"),
        (lambda: nn.SinusoidalPositions(4, base=0.0), ConfigError, r"SinusoidalPositions: base is > 0\nReceived: base = 0\.0"),
        (lambda: nn.RotaryPositions(4, base=float("nan")), ConfigError, "RotaryPositions: base is > 0\nReceived: base = nan"),
        (lambda: nn.SinusoidalPositions(4)(fb.asarray([[1, 2, 3, 4]])), DTypeError, "SinusoidalPositions: x needs a floating"),
        (lambda: nn.RotaryPositions(4)(fb.ones(4)), ShapeError, r"RotaryPositions: x is \[\.\.\., length, 4\]"),
        (lambda: nn.RotaryPositions(4)(fb.ones((2, 4)), offset=-1), ConfigError, "offset is an int ≥ 0"),
        (lambda: nn.LearnedPositions(4, 8)(X, offset=1), ShapeError, "LearnedPositions: x lies within 4 places"),
        *(
            (lambda name=name: nn.MultiheadAttention(8, 2)(fb.ones((2, 4, 8)), **{name: [True]}), OperandError,
             f"MultiheadAttention: {name} must be a Firebrick tensor")
            for name in ("mask", "bias", "key_mask")
        ),
        (lambda: nn.LearnedPositions(4, 8)(np.ones((2, 4, 8))), OperandError, "LearnedPositions: x must be a Firebrick tensor"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected_and_received(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_decoding_goes_on_from_a_copy_of_the_cache(copied: Callable[[Any], Any]) -> None:
    model = nn.TransformerDecoder(8, 2, 2, rotary=nn.RotaryPositions(4), dtype="float64").eval()
    x, memory = (fb.random.Generator(i).normal((2, n, 8), dtype=fb.float64) for i, n in enumerate((6, 5)))
    padding = fb.asarray([[True, True, True, False, False], [True] * 5])
    whole = model(x, memory, memory_key_mask=padding).numpy()
    cache = model.new_cache()
    model(x[:, :2], memory, memory_key_mask=padding, cache=cache)
    for taken in (copied(cache), copied(cache)):  # and a copy takes nothing from another
        rest = [model(x[:, t : t + 2], memory, memory_key_mask=padding, cache=taken).numpy() for t in (2, 4)]
        np.testing.assert_allclose(np.concatenate(rest, 1), whole[:, 2:], rtol=1e-12, atol=1e-12)


def test_beams_choose_rows_of_both_caches_and_of_the_memory() -> None:
    model = nn.TransformerDecoder(8, 2, 2, dtype="float64").eval()
    x, memory = (fb.random.Generator(i).normal((2, n, 8), dtype=fb.float64) for i, n in enumerate((4, 5)))
    cache, rows = model.new_cache(), fb.asarray([1, 0, 1])
    model(x[:, :2], memory, cache=cache)
    for own, other in cache:
        own.select(rows), other.select(rows)
    x, memory = fb.take(x, rows, axis=0), fb.take(memory, rows, axis=0)
    later = [model(x[:, t : t + 1], memory, cache=cache).numpy() for t in (2, 3)]
    np.testing.assert_allclose(np.concatenate(later, 1), model(x, memory).numpy()[:, 2:], rtol=1e-12, atol=1e-12)
    with pytest.raises(ConfigError, match="memory it was first used with"):
        model(x[:, :1], memory + 0.0, cache=cache)


def test_a_bias_of_minus_infinity_everywhere_is_a_mask_with_weights_and_without() -> None:
    layer = nn.MultiheadAttention(8, 2, dtype="float64")
    x = fb.random.Generator(0).normal((2, 3, 8), dtype=fb.float64)
    bias = fb.asarray(np.where(np.asarray([[1], [0], [1]]), 0.0, np.full((3, 3), -np.inf)))
    y, weights = layer(x, bias=bias, need_weights=True)
    np.testing.assert_allclose(y.numpy(), layer(x, bias=bias).numpy(), rtol=1e-12, atol=1e-12)
    assert not weights.numpy()[:, :, 1].any()
    grads = fb.grad(lambda m: fb.sum(m(x, bias=bias, need_weights=True)[0] ** 2))(layer)
    assert all(np.isfinite(grads[p].numpy()).all() for p in layer.parameters())


def test_rotary_and_the_cache_of_a_memory_do_not_go_together() -> None:
    layer = nn.MultiheadAttention(8, 2, rotary=nn.RotaryPositions(4))
    with pytest.raises(ConfigError, match="a query has a place, which the cache of a memory does not count"):
        layer(fb.ones((1, 1, 8)), fb.ones((1, 3, 8)), cache=nn.KeyValueCache())
