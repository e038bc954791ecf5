"""The bound of a composition: it lets pass what rounding does on any processor, and nothing that is larger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rounding import exact, rounding, within

import firebrick as fb

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(4, 300)).astype(np.float32), RNG.normal(size=(300, 5)).astype(np.float32)


def loss(x: fb.Tensor, w: fb.Tensor) -> fb.Tensor:
    return fb.sum(fb.tanh(x @ w) ** 2)


def both(x: Any, w: Any) -> Any:
    return fb.value_and_grad(lambda w: loss(fb.asarray(x), w))(fb.asarray(w))


def test_the_bound_grows_with_the_terms_of_a_sum_that_cancels() -> None:
    x = np.asarray([[1000.0, 1.0, -1000.0]], np.float32)
    small = exact(lambda: fb.asarray(x[:, 1:2].astype(np.float64)) @ fb.ones((1, 1), dtype=fb.float64), "float32")
    large = exact(lambda: fb.asarray(x.astype(np.float64)) @ fb.ones((3, 1), dtype=fb.float64), "float32")
    assert small.values[0] == large.values[0] == 1.0
    assert large.errors[0] > 100 * small.errors[0] > 0
    large.check([np.asarray([[1.0 + 2.0**-13]], np.float32)])  # half a unit in the last place of 1000
    with pytest.raises(AssertionError, match=r"result 0: .* units of precision"):
        small.check([np.asarray([[1.0 + 2.0**-13]], np.float32)])


def test_values_and_gradients_in_float32_are_within_it_and_a_small_error_is_not(device: str) -> None:
    truth = exact(lambda: both(X.astype(np.float64), W.astype(np.float64)), "float32")
    with fb.use_device(device):
        value, gradient = both(X, W)
    truth.check((value, gradient), names=["loss", "gradient"])
    wrong = gradient.numpy().copy()
    wrong[7, 3] *= np.float32(1.001)
    with pytest.raises(AssertionError, match=r"(?s)^loss and gradient must be.*\n  gradient: .* at \(7, 3\)"):
        truth.check((value, wrong), "loss and gradient", names=["loss", "gradient"])
    with pytest.raises(AssertionError, match="shape"):
        truth.check((value, gradient[1:]))


def test_equal_values_err_alike_and_exact_ones_do_not_err() -> None:
    x = fb.asarray([0.1, 0.1, 3.0, 0.0], dtype=fb.float64, device="numpy")
    with rounding("float16", 0):
        y = (x * 2.0).numpy()
        same = (fb.maximum(x, 0.0) + 0.0).numpy()
    assert y[0] == y[1] != 0.2
    assert y[2:].tolist() == [6.0, 0.0]
    assert same.tolist() == x.tolist()
    assert (x * 2.0).numpy()[0] == 0.2  # outside, nothing errs


def test_a_bound_of_one_operation_is_in_units_of_its_dtype() -> None:
    within(fb.asarray([1.0 + 2.0**-10], dtype=fb.float16), 1.0, 1)
    with pytest.raises(AssertionError, match="units of precision"):
        within(fb.asarray([1.0 + 2.0**-8], dtype=fb.float16), 1.0, 1)
    with pytest.raises(AssertionError):
        within(fb.asarray([fb.nan]), 1.0, 1e9)
