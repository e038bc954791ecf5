"""Programs whose axes have equal sizes, or size 1: a kernel must mean the axis that the program means.

Ground truth is NumPy in float64, evaluated directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick import nn

Array = np.ndarray[Any, Any]


def _variance(x: Any, n: Any) -> Any:
    return n.mean((x - n.mean(x, axis=1)[:, None]) ** 2, axis=1)


SQUARE: dict[str, Callable[[Any, Any], Any]] = {
    "rows over columns": lambda n, x: x / n.sum(x, axis=1),
    "row sums and elements": lambda n, x: n.sum(x, axis=1) + x,
    "less the row's largest": lambda n, x: x - n.max(x * x, axis=1),
    "chosen by rows": lambda n, x: n.where(n.any(x > 1.5, axis=1), x, -x),
    "variances of rows": lambda n, x: _variance(x, n) + x,
    "distances": lambda n, x: n.sum(x * x, axis=1)[None] - 2.0 * x,
    "rows in their place": lambda n, x: n.sum(x * x, axis=1)[:, None] - 2.0 * x,
    "centred kernel": lambda n, x: x - n.mean(x, axis=0) - n.mean(x, axis=1)[:, None] + n.mean(x),
    "one Sinkhorn step": lambda n, x: n.exp(x) / n.sum(n.exp(x), axis=1) / n.sum(n.exp(x), axis=0),
}
CUBE: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "(5, 17, 17)": ((5, 17, 17), (0, 2)), "(8, 64, 64)": ((8, 64, 64), (0, 2)), "(4, 3, 20, 20)": ((4, 3, 20, 20), (0, 1, 3)),
}  # fmt: skip


def check(got: fb.Tensor, want: Array, terms: float) -> None:
    """Hold a result against the truth, within ``terms`` roundings of its largest element."""
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=terms * float(np.finfo(np.float32).eps) * np.abs(want).max())


@pytest.mark.parametrize("n", [1, 2, 7, 32, 64])
@pytest.mark.parametrize("name", SQUARE)
def test_a_value_of_each_row_goes_to_the_axis_that_broadcasting_aligns_it_with(name: str, n: int) -> None:
    # failed at n ≥ 32: the row's value was used for the row itself, as with keepdims=True
    x = np.random.default_rng(n).normal(size=(n, n)).astype(np.float32)
    want = SQUARE[name](np, x.astype(np.float64))
    f = fb.jit(lambda t: SQUARE[name](fb, t))
    check(f(fb.asarray(x)), want, 64)
    with kernels_of_any_size():
        check(fb.jit(lambda t: SQUARE[name](fb, t))(fb.asarray(x)), want, 64)


@pytest.mark.parametrize("name", CUBE)
def test_values_of_several_axes_go_where_broadcasting_aligns_them(name: str) -> None:
    shape, axes = CUBE[name]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    wide = x.astype(np.float64)
    check(fb.jit(lambda t: fb.sum(t + t, axis=axes) + t)(fb.asarray(x)), np.sum(wide + wide, axis=axes) + wide, 64)


@pytest.mark.parametrize("n", [1, 33, 64])
def test_gradients_take_the_same_axes(n: int) -> None:
    x = np.random.default_rng(0).uniform(1.0, 2.0, size=(n, n)).astype(np.float32)
    wide = x.astype(np.float64)
    s = wide.sum(axis=1)
    weights = np.arange(n * n).reshape(n, n) % 7 - 3.0
    want = weights / s - ((weights * wide / s**2).sum(axis=0))[:, None]
    w = fb.asarray(weights, dtype=fb.float32)
    got = fb.jit(fb.grad(lambda t: fb.sum(w * (t / fb.sum(t, axis=1)))))(fb.asarray(x))
    check(got, want, 64)


def test_weights_of_a_norm_that_are_sums_of_rows_are_not_taken_for_the_row() -> None:
    n = 64
    x = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)
    wide = x.astype(np.float64)
    mean, var = wide.mean(axis=1, keepdims=True), wide.var(axis=1, keepdims=True)
    want = (wide - mean) / np.sqrt(var + 1e-5) * wide.sum(axis=1) + wide.sum(axis=0)
    got = fb.jit(lambda t: fb.layer_norm(t, weight=fb.sum(t, axis=1), bias=fb.sum(t, axis=0)))(fb.asarray(x))
    check(got, want, 64)


def test_results_of_rows_of_one_element_are_computed_before_any_is_written() -> None:
    # the gradient was 9360: its first term had been written over an operand of its second
    h, w = fb.asarray([[2.0]]), fb.asarray([[3.0]])
    step = fb.value_and_grad(lambda h: fb.sum(fb.square((h @ w) * h)))
    value, gradient = fb.jit(step)(h)
    assert (value.item(), gradient.item()) == (144.0, 288.0)


@pytest.mark.parametrize("features", [1, 3])
def test_a_layer_of_one_unit_trains_alike_on_a_batch_of_one_with_and_without_jit(features: int) -> None:
    fb.random.seed(0)
    first, last = nn.Linear(features, 1), nn.Linear(1, 1)
    x = fb.asarray(np.linspace(0.3, 0.9, features).reshape(1, features).astype(np.float32))

    def loss(model: list[nn.Module]) -> fb.Tensor:
        h = model[0](x)
        return fb.mean(fb.square(fb.sigmoid(model[1](h)) * h - 0.25))

    step = fb.value_and_grad(loss)
    want, got = step([first, last]), fb.jit(step)([first, last])
    assert abs(want[0].item() - got[0].item()) <= 4e-7
    for layer in (first, last):
        for p in layer.parameters():
            check(got[1][p], want[1][p].numpy().astype(np.float64), 64)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_triplets_of_single_rows_have_the_gradients_that_they_have_eagerly(p: float) -> None:
    rng = np.random.default_rng(3)
    a, b, c = (fb.asarray(rng.normal(size=(1, 1, 5)).astype(np.float32)) for _ in range(3))
    step = fb.value_and_grad(lambda a: fb.triplet_margin_loss(a, b, c, p=p, margin=9.0))
    want, got = step(a), fb.jit(step)(a)
    check(got[0], want[0].numpy().astype(np.float64), 64)
    check(got[1], want[1].numpy().astype(np.float64), 64)
