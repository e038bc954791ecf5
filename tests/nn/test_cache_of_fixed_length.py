"""A cache of a fixed length: the values of one call, one graph for all tokens, and no token more than it has positions for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError, UnsupportedError

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
DEVICES = ["numpy", "cpu", "torch:cpu"]
CLOSE = {"rtol": 1e-5, "atol": 1e-6}

pytestmark = pytest.mark.usefixtures("numpy_kernels")
devices = pytest.mark.parametrize("device", DEVICES)
ways = pytest.mark.parametrize("wrap", [lambda f: f, fb.jit], ids=["eager", "jit"])


def attention(device: str = "cpu", **settings: Any) -> tuple[nn.MultiheadAttention, fb.Tensor]:
    fb.random.seed(0)
    layer = nn.MultiheadAttention(8, 2, rotary=nn.RotaryPositions(4), **settings).eval()
    return layer.to(device), fb.asarray(X, device=device)


@devices
@ways
@pytest.mark.parametrize("parts", [(1,) * 6, (3, 1, 2), (6,)])
@pytest.mark.parametrize("length", [6, 9])
def test_parts_of_a_sequence_give_what_the_whole_gives(device: str, wrap: Any, parts: tuple[int, ...], length: int) -> None:
    layer, x = attention(device)
    whole, cache, start = layer(x, causal=True).numpy(), nn.KeyValueCache(length), 0
    step = wrap(lambda x, cache: layer(x, causal=True, cache=cache))
    for n in parts:
        got = step(x[:, start : start + n], cache)
        np.testing.assert_allclose(got.numpy(), whole[:, start : start + n], **CLOSE)
        start += n
        assert cache.length == start
    assert cache.keys is not None
    assert cache.keys.shape == (2, 2, length, 4)
    if wrap is fb.jit:
        assert step.traces == len(set(parts))


def test_all_tokens_and_later_sequences_are_one_graph() -> None:
    layer, x = attention()
    whole, cache = layer(x, causal=True).numpy(), nn.KeyValueCache(6)
    step = fb.jit(lambda x, cache: layer(x, causal=True, cache=cache))
    for _ in range(3):
        layer(x[:, :2], causal=True, cache=cache)
        for t in range(2, 6):
            np.testing.assert_allclose(step(x[:, t : t + 1], cache).numpy(), whole[:, t : t + 1], **CLOSE)
        cache.reset()
        assert cache.length == 0
    assert step.traces == 1


@pytest.mark.parametrize("length", [6, None])
@pytest.mark.parametrize("used", [False, True])
def test_a_cache_from_outside_is_not_changed_by_examples_or_tangents(length: int | None, used: bool) -> None:
    layer, x = attention()
    whole = layer(x, causal=True).numpy()
    cache = nn.KeyValueCache(length)
    if used:
        layer(x[:1, :2], causal=True, cache=cache)

    def one(x: fb.Tensor) -> fb.Tensor:
        return layer(x[None], causal=True, cache=cache)[0]

    for call in (
        lambda: fb.vmap(one)(x[:, :2]),
        lambda: fb.jit(fb.vmap(one))(x[:, :2]),
        lambda: fb.jvp(one, (x[0, :2],), (x[0, :2],)),
    ):
        with pytest.raises(fb.StateChangedError, match="make the cache inside of one"):
            call()
    assert cache.length == 2 * used
    got = layer(x[:1, cache.length :], causal=True, cache=cache)
    np.testing.assert_allclose(got.numpy(), whole[:1, 2 * used :], **CLOSE)

    def decoded(x: fb.Tensor) -> fb.Tensor:
        own = nn.KeyValueCache(length)
        first = layer(x[None, :2], causal=True, cache=own)
        return fb.concat([first, layer(x[None, 2:], causal=True, cache=copy.deepcopy(own))], axis=1)[0]

    np.testing.assert_allclose(fb.vmap(decoded)(x).numpy(), whole, **CLOSE)


@devices
@ways
def test_a_sequence_of_nan_does_not_reach_the_next_one(device: str, wrap: Any) -> None:
    layer, x = attention(device)
    whole, cache = layer(x, causal=True).numpy(), nn.KeyValueCache(6)
    step = wrap(lambda x, cache: layer(x, causal=True, cache=cache))
    step(fb.full_like(x, float("nan")), cache)
    cache.reset()
    for t in range(2):
        np.testing.assert_allclose(step(x[:, t : t + 1], cache).numpy(), whole[:, t : t + 1], **CLOSE)
    assert not fb.any(cache.state().keys[:, :, 2:]).item()


@devices
@ways
def test_a_token_more_than_there_are_positions_is_refused_and_changes_nothing(device: str, wrap: Any) -> None:
    layer, x = attention(device)
    cache = nn.KeyValueCache(5)
    step = wrap(lambda x: layer(x, causal=True, cache=cache))
    for t in range(4):
        step(x[:, t : t + 1])
    for n in (2, 6):
        with pytest.raises(OutOfRangeError, match="a cache of a fixed length has 5 positions"):
            step(x[:, :n]).numpy()
        assert cache.length == 4
    np.testing.assert_allclose(step(x[:, 4:5]).numpy(), layer(x[:, :5], causal=True).numpy()[:, 4:], **CLOSE)
    with pytest.raises(OutOfRangeError, match=r"use a longer nn\.KeyValueCache than 5"):
        step(x[:, 5:]).numpy()


@devices
@ways
@pytest.mark.parametrize("causal", [True, False])
def test_masks_count_all_positions_and_empty_ones_are_never_seen(device: str, wrap: Any, causal: bool) -> None:
    layer, x = attention(device)
    real = np.ones((2, 8), bool)
    real[1, 1] = False
    masks = fb.asarray(real, device=device), fb.asarray(real[:, :6], device=device)
    cache, growing = nn.KeyValueCache(8), nn.KeyValueCache()
    step = wrap(lambda x, cache, key_mask: layer(x, causal=causal, cache=cache, key_mask=key_mask, need_weights=True))
    for a, b in ((0, 4), (4, 6)):
        y, weights = step(x[:, a:b], cache, masks[0])
        want, theirs = layer(x[:, a:b], causal=causal, cache=growing, key_mask=masks[1][:, :b], need_weights=True)
        np.testing.assert_allclose(y.numpy(), want.numpy(), **CLOSE)
        np.testing.assert_allclose(weights.numpy()[..., :b], theirs.numpy(), **CLOSE)
        assert not weights.numpy()[..., b:].any()
    with pytest.raises(ShapeError, match=r"key_mask is \[batch, keys\], here \[2, 8\]"):
        layer(x[:, :1], cache=cache, key_mask=masks[1])


def through_scan(layer: nn.Module, x: fb.Tensor) -> fb.Tensor:
    """Two tokens at once, and the others in a scan."""
    cache = nn.KeyValueCache(7)
    first = layer(x[:, :2], causal=True, cache=cache)

    def step(state: nn.CacheState, token: fb.Tensor) -> tuple[nn.CacheState, fb.Tensor]:
        cache = nn.KeyValueCache.from_state(state)
        y = layer(expanded(token), causal=True, cache=cache)
        return cache.state(), y[:, 0]

    def expanded(token: fb.Tensor) -> fb.Tensor:
        return fb.reshape(token, (2, 1, 8))

    _, others = fb.scan(step, cache.state(), fb.permute_dims(x[:, 2:], (1, 0, 2)))
    return fb.concat([first, fb.permute_dims(others, (1, 0, 2))], axis=1)


@devices
@ways
def test_a_scan_and_its_gradient_are_those_of_one_call(device: str, wrap: Any) -> None:
    layer, x = attention(device)
    np.testing.assert_allclose(wrap(through_scan)(layer, x).numpy(), layer(x, causal=True).numpy(), **CLOSE)

    def gradient(run: Callable[..., Any]) -> Any:
        return fb.value_and_grad(lambda layer, x: fb.sum(run(layer, x) ** 3.0))

    _, want = gradient(lambda layer, x: layer(x, causal=True))(layer, x)
    _, got = wrap(gradient(through_scan))(layer, x)
    for p in layer.parameters():
        np.testing.assert_allclose(got[p].numpy(), want[p].numpy(), rtol=1e-4, atol=1e-5)


@ways
def test_a_scan_stops_at_the_end_of_the_cache(wrap: Any) -> None:
    layer, x = attention()

    def run(x: fb.Tensor) -> fb.Tensor:
        cache = nn.KeyValueCache(5)
        layer(x[:, :2], causal=True, cache=cache)

        def step(state: nn.CacheState, _: None) -> tuple[nn.CacheState, fb.Tensor]:
            cache = nn.KeyValueCache.from_state(state)
            y = layer(x[:, 2:3], causal=True, cache=cache)
            return cache.state(), y

        return fb.scan(step, cache.state(), length=4)[1]

    with pytest.raises(OutOfRangeError, match="a cache of a fixed length has 5 positions"):
        wrap(run)(x).numpy()


@ways
def test_models_decode_with_caches_of_a_fixed_length(wrap: Any) -> None:
    fb.random.seed(0)
    x, memory = fb.asarray(X), fb.asarray(X[:, :4] * 2.0)
    encoder, decoder = nn.TransformerEncoder(8, 2, 2).eval(), nn.TransformerDecoder(8, 2, 2).eval()
    for model, more in ((encoder, {"causal": True}), (decoder, {"memory": memory})):
        whole = model(x, **more).numpy()
        for first in (0, 2):  # positions that a call without ``jit`` fills
            cache: Any = model.new_cache(6)
            step = wrap(lambda x, cache, model=model, more=more: model(x, **more, cache=cache))
            if first:
                model(x[:, :first], **more, cache=cache)
            for t in range(first, 6):
                np.testing.assert_allclose(step(x[:, t : t + 1], cache).numpy(), whole[:, t : t + 1], **CLOSE)
            if wrap is fb.jit:
                assert step.traces == 1


def test_caches_of_layers_that_hold_other_numbers_of_tokens_are_refused() -> None:
    model, x = nn.TransformerEncoder(8, 2, 2).eval(), fb.asarray(X)
    caches = model.new_cache(8)
    model(x[:, :2], causal=True, cache=caches)
    model.layers[0](x[:, 2:3], causal=True, cache=caches[0])
    with pytest.raises(ConfigError, match="lengths 3, 2"):
        model(x[:, 2:3], causal=True, cache=caches)


def test_copies_and_chosen_rows_go_on() -> None:
    layer, x = attention()
    cache = nn.KeyValueCache(6)
    layer(x[:, :4], causal=True, cache=cache)
    other = copy.deepcopy(cache)
    rows = fb.asarray([1, 1, 0])
    other.select(rows)
    chosen = fb.take(x, rows, axis=0)
    np.testing.assert_allclose(
        layer(chosen[:, 4:], causal=True, cache=other).numpy(), layer(chosen, causal=True).numpy()[:, 4:], **CLOSE
    )
    assert (cache.length, other.length) == (4, 6)


def test_what_does_not_go_together_is_refused() -> None:
    layer, x = attention()
    cache = nn.KeyValueCache(6)
    calls: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: nn.KeyValueCache(0), ConfigError, "length is an int ≥ 1"),
        (lambda: nn.KeyValueCache(2.0), ConfigError, "length is an int ≥ 1"),  # type: ignore[arg-type]
        (lambda: cache.state(), ConfigError, "a cache of a fixed length has a state after its first call"),
        (lambda: nn.KeyValueCache().state(), ConfigError, "Received: a cache that grows"),
        (lambda: nn.KeyValueCache.from_state((x, x, x)), ConfigError, "takes the state of a cache"),  # type: ignore[arg-type]
        (lambda: layer(x, x * 2.0, cache=cache), ConfigError, "a cache of a fixed length is for self-attention"),
        (lambda: layer.rotary(x[..., :4], offset=fb.asarray(1)), ConfigError, "needs a length"),  # type: ignore[misc]
        (lambda: layer.rotary(x[..., :4], offset=fb.asarray(1.0), length=9), DTypeError, "offset is an int"),  # type: ignore[misc]
        (lambda: layer.rotary(x[..., :4], offset=fb.asarray([1]), length=9), ShapeError, "offset is an int"),  # type: ignore[misc]
    ]
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            call()
    layer(x[:, :2], causal=True, cache=cache)
    with pytest.raises(ShapeError, match="a cache belongs to one attention layer and one batch"):
        layer(x[:1, :1], causal=True, cache=cache)
    with pytest.raises(ConfigError, match="a cache belongs to one attention layer, the first"):
        attention()[0](x[:, :1], causal=True, cache=cache)
    for cached in (cache, nn.KeyValueCache()):
        with pytest.raises(ShapeError, match=r"a cache takes keys \[batch, heads, n, d\]"):
            cached.append(fb.ones((2, 2, 2, 4)), fb.ones((2, 2, 1, 4)))
    with pytest.raises(ShapeError, match=r"select takes rows \[n\]"):
        cache.select(fb.asarray(0))
    assert cache.keys is not None
    assert cache.keys.shape == (2, 2, 6, 4)
    assert nn.KeyValueCache(np.int64(4)).capacity == 4  # type: ignore[arg-type]
    with fb.autocast("bfloat16"), pytest.raises(DTypeError, match="keeps the dtype of its first call"):
        layer(x[:, :1], causal=True, cache=cache)
    assert cache.length == 2
    growing = nn.KeyValueCache()
    layer(x[:, :2], causal=True, cache=growing)
    with pytest.raises(UnsupportedError, match="a cache that grows is not reset"):
        fb.jit(lambda cache: cache.reset())(growing)
    growing.reset()
    assert growing.length == 0


@ways
def test_positions_from_a_tensor_are_those_from_an_int(wrap: Any) -> None:
    x = fb.asarray(X)
    for layer, more in (
        (nn.RotaryPositions(8), {"length": 200}),
        (nn.SinusoidalPositions(8), {"length": 200}),
        (nn.LearnedPositions(200, 8), {}),
    ):  # fmt: skip
        at = wrap(lambda x, offset, layer=layer, more=more: layer(x, offset=offset, **more))
        for offset in (0, 3, 194):
            np.testing.assert_array_equal(at(x, fb.asarray(offset)).numpy(), layer(x, offset=offset).numpy())
        with pytest.raises(OutOfRangeError):
            at(x, fb.asarray(195)).numpy()


def test_a_cache_takes_keys_and_values_itself_and_is_reset_before_its_first_use() -> None:
    cache = nn.KeyValueCache(4)
    assert fb.jit(lambda x: (cache.reset(), x)[1])(fb.ones(1)).item() == 1.0
    assert cache.length == 0
    first, second = fb.ones((1, 2, 3, 5)), fb.ones((1, 2, 1, 5)) * 2.0
    cache.append(first, first * 3.0)
    keys, values = cache.append(second, second * 3.0)
    want = np.concatenate([first.numpy(), second.numpy()], axis=2)
    assert cache.length == 4
    assert np.array_equal(keys.numpy(), want)
    assert np.array_equal(values.numpy(), 3.0 * want)
    with pytest.raises(OutOfRangeError, match="a cache of a fixed length has 4 positions"):
        cache.append(second, second)


def test_a_cache_without_values_is_filled_without_a_count() -> None:
    cache, x = nn.KeyValueCache(4), fb.ones((1, 2, 2, 3), device="meta")
    for _ in range(3):
        assert cache.append(x, x)[0].shape == (1, 2, 4, 3)
