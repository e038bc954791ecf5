"""Zeros around images, spectral normalisation, bags by their largest elements, and dropout as a function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn

F64 = {"dtype": fb.float64}


def _torch() -> Any:
    return pytest.importorskip("torch", reason="torch, to compare layers with")


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_zeros_are_where_pytorch_puts_them(rank: int) -> None:
    torch = _torch()
    pairs = ((1, 0), (2, 3), (0, 2))[:rank]
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5, 2)[: rank + 2])
    flat = [n for pair in reversed(pairs) for n in pair]
    want = getattr(torch.nn, f"ZeroPad{rank}d")(flat)(torch.tensor(x)).numpy()
    assert np.array_equal(nn.ZeroPad(pairs)(fb.asarray(x)).numpy(), want)
    assert nn.ZeroPad(1)(fb.asarray(x)).shape == (2, 3, *(n + 2 for n in x.shape[2:]))


def test_images_with_another_number_of_axes_are_refused() -> None:
    with pytest.raises(fb.ShapeError, match="ZeroPad: x is"):
        nn.ZeroPad(((1, 1), (2, 2)))(fb.ones((1, 1, 4)))
    with pytest.raises(fb.ShapeError, match="ZeroPad: x is"):
        nn.ZeroPad(1)(fb.ones((1, 4)))


@pytest.mark.parametrize("axis", [0, 1])
def test_spectral_norm_is_pytorchs_from_equal_vectors(axis: int) -> None:
    torch = _torch()
    theirs = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Conv2d(3, 4, 2, dtype=torch.float64), dim=axis)
    norm = theirs.parametrizations.weight[0]
    layer = nn.Conv2d(3, 4, 2, **F64)
    layer.weight = nn.Parameter(fb.asarray(theirs.parametrizations.weight.original.detach().numpy()))
    layer.bias = nn.Parameter(fb.asarray(theirs.bias.detach().numpy()))
    ours = nn.SpectralNorm(layer, axis=axis)
    ours.u, ours.v = fb.asarray(norm._u.numpy()), fb.asarray(norm._v.numpy())
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 5))
    for _ in range(3):
        y = theirs(torch.tensor(x))
        theirs.zero_grad()
        (y * y).sum().backward()
        out, grads = fb.jit(lambda m: fb.value_and_grad(lambda m: fb.sum(m(fb.asarray(x)) ** 2.0))(m))(ours)
        assert out.item() == pytest.approx((y * y).sum().item(), rel=1e-10)
        want = theirs.parametrizations.weight.original.grad.numpy()
        np.testing.assert_allclose(grads[ours.original].numpy(), want, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(ours.u.numpy(), norm._u.numpy(), rtol=1e-10)
    theirs.eval()
    before = ours.u.numpy()
    np.testing.assert_allclose(ours.eval()(fb.asarray(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-10)
    assert np.array_equal(ours.u.numpy(), before)


def test_spectral_norm_bounds_the_layer_and_is_saved_whole() -> None:
    layer = nn.spectral_norm(nn.Linear(20, 30, bias=False), iterations=5)
    layer(fb.ones((1, 20)))
    assert np.linalg.norm(layer.normalized().numpy(), 2) == pytest.approx(1.0, rel=0.05)
    assert sorted(layer.state_dict()) == ["original", "u", "v"]
    other = nn.spectral_norm(nn.Linear(20, 30, bias=False))
    other.load_state_dict(layer.state_dict())
    x = fb.random.normal((2, 20))
    assert other.eval()(x).tolist() == layer.eval()(x).tolist()
    with pytest.raises(fb.ConfigError, match="two axes or more"):
        nn.SpectralNorm(nn.Linear(2, 2), "bias")


def test_bags_by_their_largest_elements_are_pytorchs() -> None:
    torch = _torch()
    theirs = torch.nn.EmbeddingBag(6, 3, mode="max", padding_idx=1, dtype=torch.float64)
    ours = nn.EmbeddingBag(6, 3, mode="max", padding_index=1, **F64)
    ours.weight[...] = fb.asarray(theirs.weight.detach().numpy())
    rng = np.random.default_rng(0)
    bags, weights = rng.integers(0, 6, (5, 4)), rng.normal(size=(5, 3))
    y = theirs(torch.tensor(bags))
    (y * torch.tensor(weights)).sum().backward()
    found, grads = fb.value_and_grad(lambda m: fb.sum(m(fb.asarray(bags)) * fb.asarray(weights)))(ours)
    assert found.item() == pytest.approx((y * torch.tensor(weights)).sum().item(), rel=1e-12)
    np.testing.assert_allclose(grads[ours.weight].numpy(), theirs.weight.grad.numpy(), rtol=1e-12)
    assert nn.EmbeddingBag(6, 3, mode="max", padding_index=1)(fb.asarray([[1, 1]])).tolist() == [[0.0] * 3]
    assert nn.EmbeddingBag(6, 3, mode="max")(fb.zeros((2, 0), dtype=fb.int64)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("engine", ["numpy", "cpu", "torch:cpu"])
def test_dropout_as_a_function_drops_what_the_layer_drops(engine: str) -> None:
    x = fb.random.normal((64, 8), device=engine)
    layer = nn.Dropout(0.3, seed=5)
    found = fb.dropout(x, 0.3, generator=fb.random.Generator(5))
    assert found.tolist() == layer(x).tolist()
    assert fb.dropout(x, 0.3, training=False) is x
    fb.random.seed(2)
    first = fb.jit(fb.dropout)(x)
    fb.random.seed(2)
    assert fb.dropout(x).tolist() == first.tolist()
    assert fb.jit(fb.dropout)(x).tolist() != first.tolist()


def test_dropout_of_everything_is_refused() -> None:
    for p in (1.0, -0.1, "a"):
        with pytest.raises(fb.ConfigError, match="dropout: p"):
            fb.dropout(fb.ones(2), p)
    with pytest.raises(fb.DTypeError, match="dropout"):
        fb.dropout(fb.asarray([1, 2]))


def test_weights_whose_norm_overflows_are_not_normalised_to_zero() -> None:
    layer = fb.nn.WeightNorm(fb.nn.Linear(4, 1))
    layer.direction = fb.nn.Parameter(layer.direction.detach() * 1e30)
    assert np.isnan(layer.normalized().numpy()).all()
