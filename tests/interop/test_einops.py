"""einops' functions and layers take tensors, on every engine, in gradients and in compiled functions."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from extras import imported

import firebrick as fb

einops = imported("einops")

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7

CASES: dict[str, Callable[[Any], Any]] = {
    "rearrange": lambda x: einops.rearrange(x, "a b c -> c (a b)"),
    "rearrange of a list": lambda x: einops.rearrange([x, x], "n a b c -> a b (n c)"),
    "rearrange with an ellipsis": lambda x: einops.rearrange(x, "... (c d) -> d ... c", d=2),
    "rearrange with new axes": lambda x: einops.rearrange(x, "a b c -> a 1 c b 1"),
    **{
        f"reduce by {how}": lambda x, how=how: einops.reduce(x, "a b (c d) -> a d", how, d=2)
        for how in ("sum", "mean", "max", "min", "prod")
    },
    "reduce by any": lambda x: einops.reduce(x > 0, "a b c -> a c", "any"),
    "reduce by all": lambda x: einops.reduce(x > 0, "a b c -> a c", "all"),
    "reduce to nothing": lambda x: einops.reduce(x, "a b c ->", "sum"),
    "repeat": lambda x: einops.repeat(x, "a b c -> a n b (c m)", n=2, m=3),
    "repeat by zero": lambda x: einops.repeat(x, "a b c -> a n b c", n=0),
    "pack": lambda x: einops.pack([x, x[:, 0]], "a * c")[0],
    "unpack": lambda x: einops.unpack(x, [(1,), (2,)], "a * c")[1],
    "einsum": lambda x: einops.einsum(x, x, "a b c, a d c -> a b d"),
    "of no elements": lambda x: einops.rearrange(x[:0], "a b c -> (a b) c"),
}


@pytest.mark.parametrize("name", CASES)
def test_einops_computes_what_it_computes_of_arrays(name: str, device: str) -> None:
    found = CASES[name](fb.asarray(X, device=device))
    assert isinstance(found, fb.Tensor)
    assert found.device is fb.device(device)
    np.testing.assert_allclose(found.numpy(), CASES[name](X), rtol=1e-6)


def test_einops_shows_shapes_and_gives_arrays(device: str) -> None:
    x = fb.asarray(X, device=device)
    assert einops.parse_shape(x, "a _ c") == {"a": 2, "c": 4}
    assert np.array_equal(einops.asnumpy(x), X)


def test_einops_works_on_parameters_and_buffers() -> None:
    for kind in (fb.nn.Parameter, fb.nn.Buffer):
        assert einops.rearrange(kind(fb.asarray(X)), "a b c -> (a b c)").shape == (24,)


def test_gradients_and_compiled_functions_go_through_einops(device: str) -> None:
    x = fb.asarray(X, device=device)

    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(einops.reduce(x, "a b c -> b", "mean") ** 2)

    expected = np.broadcast_to(X.mean((0, 2))[:, None] * 2 / 8, X.shape)
    np.testing.assert_allclose(fb.grad(loss)(x).numpy(), expected, rtol=1e-5)
    compiled = fb.jit(fb.grad(loss))
    with fb.testing.assert_max_traces(1):
        for _ in range(3):
            np.testing.assert_allclose(compiled(x).numpy(), expected, rtol=1e-5)


def test_a_wrong_pattern_is_einops_own_error() -> None:
    with pytest.raises(einops.EinopsError, match="expected 2 dims"):
        einops.rearrange(fb.asarray(X), "a b -> b a")


def test_layers_are_modules_that_copy_pickle_and_summarize() -> None:
    from firebrick.interop.einops import EinMix, Rearrange, Reduce

    model = fb.nn.Sequential(
        Rearrange("b (c p) -> b p c", p=2),
        EinMix("b p c -> b d p", "c d", "d", c=6, d=4),
        Reduce("b d p -> b d", "mean"),
    )
    x = fb.ones((5, 12))
    expected = model(x).tolist()
    assert [n for n, _ in model.named_parameters()] == ["layers.1.weight", "layers.1.bias"]
    assert copy.deepcopy(model)(x).tolist() == expected
    assert pickle.loads(pickle.dumps(model))(x).tolist() == expected
    assert fb.allclose(fb.jit(model)(x), model(x))
    assert "Rearrange('b (c p) -> b p c', p=2)" in repr(model)
    assert "layers.2 (Reduce)" in model.summary((5, 12))


def test_a_layer_checks_its_pattern_when_it_is_made() -> None:
    from firebrick.interop.einops import EinMix, Rearrange, Reduce

    for wrong in (
        lambda: Rearrange("a b -> a"),
        lambda: Reduce("a b -> a", "median"),
        lambda: EinMix("a b -> a c", "b c", b=3),
    ):
        with pytest.raises(einops.EinopsError):
            wrong()


def test_einmix_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from einops.layers.torch import EinMix as Theirs

    from firebrick.interop.einops import EinMix

    pattern = "b (p q) (h c) -> b q h d p", "h c d q", "d"
    sizes = {"h": 2, "c": 3, "d": 4, "q": 2, "p": 1}
    ours, theirs = EinMix(*pattern, **sizes), Theirs(*pattern, **sizes)
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(ours.weight.numpy()))
        theirs.bias.copy_(torch.tensor(ours.bias.numpy()))
    x = np.random.default_rng(0).random((5, 2, 6), np.float32)
    np.testing.assert_allclose(ours(fb.asarray(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
