"""GPU templates of attention and its gradients: by the interpreter they compute what torch does in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from firebrick.compiler.templates import attention, deltas, key_gradients, query_gradient
from firebrick.core.dtypes import float32

Array = np.ndarray[Any, Any]
SMALL = {"group_size": 32, "tile_m": 16, "tile_n": 16, "features": 16, "vector": 1, "of": float32}
DTYPES = {"query": "float32", "scale": "float32"}
SCALE = np.float32(0.5)


class Heads:
    """Random arrays of some sizes, a mask, and torch's results in float64."""

    def __init__(self, batch: int, n: int, m: int, d: int, e: int, causal: bool, seen: float, vector: int = 1) -> None:
        rng = np.random.default_rng(n * m)
        shapes = ((batch, n, d), (batch, m, d), (batch, m, e), (batch, n, e))
        self.query, self.key, self.value, self.cotangent = (rng.normal(size=s).astype(np.float32) for s in shapes)
        self.mask = rng.random((batch, n, m)) < seen if seen < 1 else np.ones((1, 1, 1), np.bool_)
        self.constants = SMALL | {"causal": causal, "vector": vector, "features": max(16, 16 * vector)}
        self.leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (self.query, self.key, self.value)]
        shown = torch.tensor(np.broadcast_to(self.mask, (batch, n, m)).copy())
        if causal:
            shown &= torch.arange(m)[None, None] <= torch.arange(n)[None, :, None]
        scores = (self.leaves[0] @ self.leaves[1].transpose(1, 2) * 0.5).masked_fill(~shown, -1e30)
        weights = torch.softmax(scores, -1) * shown  # a row that sees nothing is 0
        self.want = weights @ self.leaves[2]
        self.want.backward(torch.tensor(self.cotangent, dtype=torch.float64))

    def vectors(self, x: Array) -> Array:
        return x.reshape(*x.shape[:-1], -1, self.constants["vector"])

    def forward(self) -> tuple[Array, Array]:
        arrays = [*map(self.vectors, (self.query, self.key, self.value)), self.mask, SCALE]
        out, logarithms = attention().program(DTYPES, **self.constants).interpreted(arrays, {}, checked=True)
        return out, logarithms

    def backward(self) -> list[Array]:
        out, logarithms = self.forward()
        g, heads = self.vectors(self.cotangent), [*map(self.vectors, (self.query, self.key, self.value))]
        constants = {n: self.constants[n] for n in ("vector", "causal", "of")}
        sums = deltas().program(DTYPES, group_size=32, **constants)
        delta = sums.interpreted([*heads, g, out, logarithms, self.mask, SCALE], {}, checked=True)[0]
        arrays = [*heads, g, logarithms, delta, self.mask, SCALE]
        found = query_gradient().program(DTYPES, **self.constants).interpreted(arrays, {}, checked=True)
        found += key_gradients().program(DTYPES, **self.constants).interpreted(arrays, {}, checked=True)
        return list(found)


CASES = {
    "one element": (1, 1, 1, 1, 1, False, 1.0),
    "odd sizes": (2, 17, 19, 5, 7, False, 1.0),
    "causal": (2, 17, 37, 16, 16, True, 1.0),
    "a mask": (2, 33, 19, 5, 7, False, 0.5),
    "rows that see nothing": (1, 33, 20, 5, 7, True, 0.1),
    "vectors": (1, 20, 20, 16, 12, True, 0.8, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_and_its_gradients_are_those_of_torch(name: str) -> None:
    heads = Heads(*CASES[name])
    out, logarithms = heads.forward()
    np.testing.assert_allclose(out.reshape(heads.want.shape), heads.want.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert np.isfinite(logarithms).all() or name == "rows that see nothing"
    for found, leaf in zip(heads.backward(), heads.leaves, strict=True):
        np.testing.assert_allclose(found.reshape(leaf.shape), leaf.grad.numpy(), rtol=1e-5, atol=3e-6)


def test_a_row_that_sees_nothing_is_0_and_one_that_sees_scores_of_minus_infinity_only_is_nan() -> None:
    heads = Heads(1, 3, 2, 1, 1, False, 0.5)
    heads.query[...], heads.key[...] = 1.0, -np.inf
    heads.mask = np.array([[[False, False], [True, False], [True, True]]])
    out = heads.forward()[0].ravel()
    assert out[0] == 0
    assert np.isnan(out[1:]).all()


@pytest.mark.parametrize("hidden", [np.nan, np.inf])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_a_query_do_not_depend_on_values_that_are_hidden_from_it(hidden: float, causal: bool) -> None:
    heads = Heads(1, 3, 3, 2, 4, causal, 1.0)
    heads.mask = np.tril(np.ones((1, 3, 3), np.bool_)) if not causal else heads.mask
    by_query, _, by_value = heads.backward()
    heads.value[0, 2] = hidden  # the last query sees it
    found = heads.backward()
    np.testing.assert_allclose(found[0][0, :2], by_query[0, :2], rtol=1e-5, atol=1e-6)
    assert np.isnan(found[0][0, 2]).all()
    assert np.isnan(found[1]).all()
    assert np.array_equal(found[2], by_value)
