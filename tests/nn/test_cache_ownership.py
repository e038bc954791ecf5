"""A cache of keys and values serves one layer, and one sequence of calls that all succeeded; anything else is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, ShapeError

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
DEVICES = ["numpy", "cpu", "torch:cpu"]

pytestmark = pytest.mark.usefixtures("numpy_kernels")


class Tail(nn.Module):
    """Fails when it is told to."""

    def __init__(self) -> None:
        self.fails = False

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        if self.fails:
            raise RuntimeError("interrupted")
        return x


class Stack(nn.Module):
    """Two attention layers, and a part between them that may fail."""

    def __init__(self) -> None:
        self.first, self.between, self.second = nn.MultiheadAttention(8, 2), Tail(), nn.MultiheadAttention(8, 2)

    def forward(self, x: fb.Tensor, caches: list[nn.KeyValueCache]) -> fb.Tensor:
        x = self.between(x + self.first(x, causal=True, cache=caches[0]))
        y: fb.Tensor = x + self.second(x, causal=True, cache=caches[1])
        return y


def stack(device: str) -> tuple[Stack, fb.Tensor]:
    fb.random.seed(0)
    return Stack().to(device).eval(), fb.asarray(X, device=device)


def as_it_is(fn: Any) -> Any:
    return fn


ways = pytest.mark.parametrize("wrap", [as_it_is, fb.jit], ids=["eager", "jit"])
devices = pytest.mark.parametrize("device", DEVICES)


@devices
@ways
def test_one_cache_is_not_shared_by_two_layers(device: str, wrap: Any) -> None:
    model, x = stack(device)
    shared = nn.KeyValueCache()
    with pytest.raises(ConfigError, match="a cache of MultiheadAttention 'first' given to MultiheadAttention 'second'"):
        wrap(lambda x: model(x, [shared, shared]))(x)


@devices
def test_a_compiled_step_refuses_caches_that_changed_places(device: str) -> None:
    model, x = stack(device)
    step = fb.jit(lambda model, x, caches: model(x, caches))
    for _ in range(2):  # the second time it is a graph that is there
        caches = [nn.KeyValueCache(), nn.KeyValueCache()]
        step(model, x[:, :1], caches)
        step(model, x[:, 1:2], caches)
    caches = [nn.KeyValueCache(), nn.KeyValueCache()]
    step(model, x[:, :1], caches)
    with pytest.raises(ConfigError, match="a cache belongs to one attention layer"):
        step(model, x[:, 1:2], caches[::-1])
    whole = model(x[:, :2], [nn.KeyValueCache(), nn.KeyValueCache()]).numpy()
    np.testing.assert_allclose(step(model, x[:, 1:2], caches).numpy(), whole[:, 1:], rtol=1e-5, atol=1e-6)


def test_the_cache_of_a_memory_is_not_shared_by_two_layers() -> None:
    first, second, cache = nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2), nn.KeyValueCache()
    query, memory = fb.asarray(X[:, :1]), fb.asarray(X)
    first(query, memory, cache=cache)
    with pytest.raises(ConfigError, match="a cache of MultiheadAttention given to another MultiheadAttention"):
        second(query, memory, cache=cache)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_copies_and_states_that_are_loaded_back_go_on(copied: Callable[[Any], Any]) -> None:
    model, x = stack("cpu")
    whole = model(x, [nn.KeyValueCache(), nn.KeyValueCache()]).numpy()
    caches = [nn.KeyValueCache(), nn.KeyValueCache()]
    model(x[:, :2], caches)
    for other, held in ((copied(model), copied(caches)), copied((model, caches)), (model, copied(caches))):
        np.testing.assert_allclose(other(x[:, 2:], held).numpy(), whole[:, 2:], rtol=1e-5, atol=1e-6)
        with pytest.raises(ConfigError, match="a cache belongs to one attention layer"):
            other(x[:, 2:], held[::-1])
    model.load_state_dict(model.state_dict())
    model.to("cpu")
    np.testing.assert_allclose(model(x[:, 2:], caches).numpy(), whole[:, 2:], rtol=1e-5, atol=1e-6)


@devices
@ways
def test_a_call_that_failed_between_two_layers_is_not_repeated_with_the_same_caches(device: str, wrap: Any) -> None:
    model, x = stack(device)
    whole = model(x, [nn.KeyValueCache(), nn.KeyValueCache()]).numpy()
    caches = [nn.KeyValueCache(), nn.KeyValueCache()]
    step = wrap(lambda x: model(x, caches))
    step(x[:, :4])
    model.between.fails = True
    with pytest.raises(RuntimeError, match="interrupted"):
        step(x[:, 4:])
    model.between.fails = False
    if wrap is fb.jit:  # a trace that fails changes nothing
        np.testing.assert_allclose(step(x[:, 4:]).numpy(), whole[:, 4:], rtol=1e-5, atol=1e-6)
    else:
        for again in (step, fb.jit(step)):
            with pytest.raises(ConfigError, match="begin the sequence again with new caches"):
                again(x[:, 4:])


@ways
def test_a_call_that_a_layer_refuses_adds_nothing(wrap: Any) -> None:
    layer, x, cache = nn.MultiheadAttention(8, 2).eval(), fb.asarray(X), nn.KeyValueCache()
    whole = layer(x, causal=True).numpy()
    step = wrap(lambda x, mask: layer(x, causal=True, cache=cache, mask=mask))
    step(x[:, :4], None)
    with pytest.raises(ShapeError):
        step(x[:, 4:], fb.ones((3, 3), dtype="bool"))
    assert cache.length == 4
    np.testing.assert_allclose(step(x[:, 4:], None).numpy(), whole[:, 4:], rtol=1e-5, atol=1e-6)


def test_caches_of_different_lengths_are_refused_by_an_encoder() -> None:
    model, x = nn.TransformerEncoder(8, 2, 2).eval(), fb.asarray(X)
    caches = model.new_cache()
    model(x[:, :2], causal=True, cache=caches)
    model.layers[0](x[:, 2:3], causal=True, cache=caches[0])
    with pytest.raises(ConfigError, match="lengths 3, 2"):
        model(x[:, 2:3], causal=True, cache=caches)


@pytest.mark.parametrize("length", [None, 8])
@pytest.mark.parametrize("change", ["load_state_dict", "update", "assignment"])
def test_keys_of_weights_that_were_replaced_are_refused_until_a_reset(change: str, length: int | None) -> None:
    layer, other, x = nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2), fb.asarray(X)
    cache, kept = nn.KeyValueCache(length), layer.qkv
    layer(x[:, :2], causal=True, cache=cache)
    layer(x[:, 2:3], causal=True, cache=cache)
    if change == "load_state_dict":
        layer.load_state_dict(other.state_dict())
    elif change == "update":
        _, gradients = fb.value_and_grad(lambda m: fb.sum(m(x)))(layer)
        fb.optim.SGD(layer, lr=0.1).update(layer, gradients)
    else:
        layer.qkv = other.qkv
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"computed with one state of the layer's weights\n.*before the weights of"):
            layer(x[:, 3:4], causal=True, cache=cache)
    assert cache.length == 3
    cache.reset()
    y = layer(x[:, :2], causal=True, cache=cache)
    np.testing.assert_allclose(y.numpy(), layer(x[:, :2], causal=True).numpy(), rtol=1e-5, atol=1e-6)
    assert kept is not None


def test_keys_of_a_memory_go_with_the_weights_too() -> None:
    layer, x, memory = nn.MultiheadAttention(8, 2), fb.asarray(X), fb.asarray(X * 2)
    cache = nn.KeyValueCache()
    layer(x[:, :1], memory, cache=cache)
    layer.load_state_dict(nn.MultiheadAttention(8, 2).state_dict())
    with pytest.raises(ConfigError, match="one state of the layer's weights"):
        layer(x[:, 1:2], memory, cache=cache)


def test_a_cache_is_used_on_where_weights_are_the_same_or_computed() -> None:
    layer, x = nn.MultiheadAttention(8, 2), fb.asarray(X)
    cache = nn.KeyValueCache()
    layer(x[:, :1], causal=True, cache=cache)
    fb.value_and_grad(lambda m: fb.sum(m(x)))(layer)
    layer.load_state_dict(layer.state_dict())
    layer.eval().to(x.device)
    layer(x[:, 1:2], causal=True, cache=cache)
    normed, cache = nn.weight_norm(nn.MultiheadAttention(8, 2).qkv), nn.KeyValueCache()
    layer.qkv = normed
    for i in range(3):
        layer(x[:, i : i + 1], causal=True, cache=cache)
    assert cache.length == 3
