"""A cache of keys and values that is made and used inside a gradient: under ``jit`` as without it."""

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn

X = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)

pytestmark = pytest.mark.usefixtures("numpy_kernels")


def loss(layer: nn.Module, x: fb.Tensor) -> fb.Tensor:
    cache = nn.KeyValueCache()
    first = layer(x[:, :2], causal=True, cache=cache)
    cache.select(fb.asarray([1, 0], device=x.device))
    return fb.sum(first * first) + fb.sum(layer(x[:, 2:], causal=True, cache=cache) ** 3.0)


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
@pytest.mark.parametrize("wrap", [lambda f: f, fb.checkpoint], ids=["as it is", "checkpointed"])
def test_a_cache_made_inside_a_gradient_is_the_same_under_jit(device: str, wrap: Any) -> None:
    fb.random.seed(0)
    layer, x = nn.MultiheadAttention(8, 2).to(device), fb.asarray(X, device=device)
    step = fb.value_and_grad(wrap(loss))
    compiled = fb.jit(step)
    for _ in range(2):
        (value, grads), (expected, theirs) = compiled(layer, x), step(layer, x)
        np.testing.assert_allclose(value.item(), expected.item(), rtol=1e-6)
        for p in layer.parameters():
            np.testing.assert_allclose(grads[p].numpy(), theirs[p].numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.traces == 1


def test_a_cache_from_outside_of_the_step_is_still_its_state() -> None:
    layer, cache = nn.MultiheadAttention(8, 2), nn.KeyValueCache()
    grow = fb.jit(lambda layer, cache, x: layer(x, causal=True, cache=cache))
    for i in range(3):
        grow(layer, cache, fb.asarray(X[:, i : i + 1]))
    assert cache.length == 3
