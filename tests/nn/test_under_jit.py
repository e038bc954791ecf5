"""Layers that keep something between calls, under ``jit``; what every layer must do there is in ``check_layer``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rounding import within

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import OutOfRangeError, UnsupportedError

pytestmark = pytest.mark.usefixtures("numpy_kernels")

X = fb.asarray(np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32))


def same(a: fb.Tensor, b: fb.Tensor) -> bool:
    return a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


def test_decoding_with_a_cache_gives_the_same_and_each_length_is_traced_once() -> None:
    layer = nn.MultiheadAttention(8, 2, rotary=nn.RotaryPositions(4)).eval()
    step = fb.jit(lambda x, cache: layer(x, causal=True, cache=cache))
    for sequence in range(3):
        eager, traced = nn.KeyValueCache(), nn.KeyValueCache()
        for t in range(5):
            assert same(step(X[:, t : t + 1], traced), layer(X[:, t : t + 1], causal=True, cache=eager))
            assert traced.length == eager.length == t + 1
            assert traced.keys is not None
            assert eager.keys is not None
            assert same(traced.keys, eager.keys)
        assert step.traces == 5 + sequence  # where a cache begins is looked at anew


def test_a_cache_goes_on_outside_jit_and_chooses_rows_inside() -> None:
    layer = nn.MultiheadAttention(8, 2).eval()
    eager, traced = nn.KeyValueCache(), nn.KeyValueCache()
    rows = fb.asarray([1, 1])
    fb.jit(lambda x: layer(x, cache=traced))(X[:, :2])
    fb.jit(lambda rows: traced.select(rows))(rows)
    layer(X[:, :2], cache=eager)
    eager.select(rows)
    assert same(layer(X[:, 2:3], cache=traced), layer(X[:, 2:3], cache=eager))


def test_the_cache_of_a_memory_is_refused_under_jit() -> None:
    layer = nn.MultiheadAttention(8, 2).eval()
    cache = nn.KeyValueCache()
    with pytest.raises(UnsupportedError, match="the cache of a memory is not used under jit"):
        fb.jit(lambda x, memory: layer(x, memory, cache=cache))(X, X * 2.0)
    assert cache.length == 0


def test_tables_of_positions_may_be_made_inside_and_outside_of_a_trace() -> None:
    layer = nn.SinusoidalPositions(8)
    inside = fb.jit(lambda x: layer(x, offset=200))
    assert same(inside(X), layer(X, offset=200))
    assert same(layer(X), fb.jit(lambda x: layer(x))(X))


@pytest.mark.parametrize("kind", [nn.WeightNorm, nn.SpectralNorm])
def test_a_normalised_weight_is_computed_by_each_call_and_in_every_transformation(kind: type[nn.Module]) -> None:
    eager: Any = kind(nn.Linear(8, 8)).eval()
    traced = eager.fork()
    call = fb.jit(lambda x: traced(x))
    for gain in (1.0, 2.0):
        for layer in (eager, traced):
            part = layer.magnitude if kind is nn.WeightNorm else layer.layer.bias
            part *= gain
        assert same(call(X), eager(X))
        assert same(traced.normalized(), eager.normalized())
    assert call.traces == 1
    x = fb.asarray(np.random.default_rng(0).normal(size=(4, 8)), dtype=fb.float32)
    tolerance: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-5}
    np.testing.assert_allclose(fb.vmap(lambda x: eager(x))(x).numpy(), eager(x).numpy(), **tolerance)
    slopes = fb.vmap(fb.grad(lambda m, x: fb.sum(m(x) ** 2)), in_axes=(None, 0))(eager, x)
    total = fb.grad(lambda m: fb.sum(m(x) ** 2))(eager)
    for p in eager.parameters():
        np.testing.assert_allclose(fb.sum(slopes[p], axis=0).numpy(), total[p].numpy(), atol=1e-4, rtol=1e-4)
    assert fb.hessian(lambda x: fb.sum(eager(x) ** 2))(x[0]).shape == (8, 8)
    thrice = fb.jit(lambda x: fb.scan(lambda h, _: (eager(h), None), x, None, length=3)[0])(x)
    np.testing.assert_allclose(thrice.numpy(), eager(eager(eager(x))).numpy(), **tolerance)
    moved = kind(nn.Linear(8, 3)).fork("numpy:0")
    assert fb.jit(lambda x: moved(x))(x.to("numpy:0")).device.name == "numpy:0"


@pytest.mark.parametrize("jit", [False, True])
def test_a_checkpointed_power_iteration_is_done_once(jit: bool) -> None:
    plain = nn.SpectralNorm(nn.Linear(3, 3))
    again = plain.fork()
    x = fb.asarray(np.random.default_rng(0).normal(size=(4, 3)), dtype=fb.float32)
    first = fb.grad(lambda m: fb.sum(m(x) ** 2))(plain)
    slope = fb.grad(lambda m: fb.sum(fb.checkpoint(m)(x) ** 2))
    second = (fb.jit(slope) if jit else slope)(again)
    for p, q in zip(plain.parameters(), again.parameters(), strict=True):
        np.testing.assert_allclose(second[q].numpy(), first[p].numpy(), rtol=1e-5, atol=1e-6)
    for a, b in ((plain.u, again.u), (plain.v, again.v)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_lengths_may_differ_from_run_to_run(kind: type[nn.Module]) -> None:
    layer = kind(8, 4)
    for given in ([5, 2], fb.asarray([5, 2])):
        call = fb.jit(lambda x, lengths: layer(x, lengths=lengths)[0])
        for lengths in (given, [3, 5] if isinstance(given, list) else fb.asarray([3, 5])):
            within(call(X, lengths), layer(X, lengths=lengths)[0].numpy(), 16, scale=1.0)  # activations of up to 1
        with pytest.raises(OutOfRangeError, match=r"lengths lie in \[1, 5\]"):
            call(X, [6, 1] if isinstance(given, list) else fb.asarray([6, 1]))
        assert call.traces == 1
