"""Quantiles and medians against NumPy, NaN, ties, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rounding import within

import firebrick as fb

X = np.random.default_rng(3).normal(size=(4, 5, 6))
METHODS = ["linear", "lower", "higher", "midpoint", "nearest"]


def holes() -> np.ndarray[Any, Any]:
    x = X.copy()
    x[0, 1, 2] = x[2, :4, 3] = x[3, 0, :5] = np.nan
    return x


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 1)])
def test_quantiles(axis: Any, method: str, device: str) -> None:
    x = fb.asarray(X, device=device)
    for q in (0.0, 1.0, 0.3, [0.1, 0.5, 0.9, 0.25]):
        for keepdims in (False, True):
            got = fb.quantile(x, q, axis=axis, keepdims=keepdims, method=method)
            want = np.quantile(X, q, axis=axis, keepdims=keepdims, method=method)
            assert got.shape == np.shape(want)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-13)
            percent = np.multiply(q, 100).tolist()
            got = fb.percentile(x, percent, axis=axis, keepdims=keepdims, method=method)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
def test_quantiles_of_what_is_not_nan(axis: Any, method: str, device: str) -> None:
    a = holes()
    for q in (0.5, [0.0, 0.2, 1.0]):
        with np.errstate(all="ignore"):
            want = np.nanquantile(a, q, axis=axis, method=method)
        np.testing.assert_allclose(fb.nanquantile(fb.asarray(a, device=device), q, axis=axis, method=method).numpy(), want)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (1, 2)])
def test_medians(axis: Any, device: str) -> None:
    x = fb.asarray(X, device=device)
    for keepdims in (False, True):
        np.testing.assert_allclose(fb.median(x, axis=axis, keepdims=keepdims).numpy(), np.median(X, axis, keepdims=keepdims))
    a = holes()
    want = np.nanmedian(a, axis)
    np.testing.assert_allclose(fb.nanmedian(fb.asarray(a, device=device), axis=axis).numpy(), want)


def test_nan_makes_a_quantile_nan_and_nothing_but_nan_leaves_none(device: str) -> None:
    x = fb.asarray([[1.0, float("nan"), 3.0], [4.0, 6.0, 5.0]], device=device)
    np.testing.assert_array_equal(fb.median(x, axis=1).numpy(), [np.nan, 5.0])
    np.testing.assert_array_equal(fb.quantile(x, [0.0, 1.0], axis=1).numpy(), [[np.nan, 4.0], [np.nan, 6.0]])
    np.testing.assert_array_equal(fb.nanmedian(fb.asarray([float("nan")] * 2, device=device)).numpy(), np.nan)


def test_infinities_are_values_like_any(device: str) -> None:
    x = fb.asarray([-np.inf, 1.0, np.inf, np.inf], device=device)
    assert fb.quantile(x, [0.0, 1 / 3, 0.5, 0.9, 1.0]).tolist()[0] == -np.inf
    assert fb.quantile(x, [0.9, 1.0]).tolist() == [np.inf, np.inf]
    assert fb.quantile(x, 0.1).item() == -np.inf
    assert fb.median(x).item() == np.inf


def test_the_gradient_of_a_quantile_goes_to_its_neighbours(device: str) -> None:
    x = fb.asarray([4.0, 1.0, 3.0, 2.0], device=device)
    assert fb.grad(fb.median)(x).tolist() == [0.0, 0.0, 0.5, 0.5]
    assert fb.grad(lambda v: fb.quantile(v, 0.75))(x).tolist() == [0.25, 0.0, 0.75, 0.0]
    holey = fb.asarray([4.0, float("nan"), 3.0], device=device)
    assert fb.grad(fb.nanmedian)(holey).tolist() == [0.5, 0.0, 0.5]


def test_quantiles_are_differentiable() -> None:
    x = fb.asarray(X[0], device="numpy")
    fb.gradcheck(lambda v: fb.sum(fb.quantile(v, [0.2, 0.7], axis=1)), [x])
    fb.gradcheck(lambda v: fb.sum(fb.nanquantile(v * v, 0.3, axis=0)), [x])


def test_shares_in_a_tensor_have_gradients_and_tangents(device: str) -> None:
    x = fb.asarray([1.0, 2.0, 4.0, 8.0], device=device)
    q = fb.asarray([0.5, 0.9], device=device)
    slopes = [3 * (4.0 - 2.0), 3 * (8.0 - 4.0)]
    for function in (fb.quantile, fb.nanquantile):

        def value(q: fb.Tensor, function=function) -> fb.Tensor:
            return fb.sum(function(x, q)) + fb.sum(q)

        assert fb.grad(value)(q).tolist() == fb.jit(fb.grad(value))(q).tolist() == [slope + 1.0 for slope in slopes]
        assert fb.vmap(fb.grad(value))(q).tolist() == [slope + 1.0 for slope in slopes]
        assert fb.jvp(value, (q,), (fb.ones_like(q),))[1].item() == sum(slopes) + 2.0
    assert fb.grad(lambda q: fb.percentile(x, q))(q[0] * 100.0).item() == pytest.approx(slopes[0] / 100.0)


def test_half_precision_is_interpolated_in_float32(device: str) -> None:
    for name in ("float16", "bfloat16"):
        x = fb.asarray([60000.0, 65000.0, -65000.0], dtype=name, device=device)
        got = fb.quantile(x, 0.9)
        want = np.quantile(x.numpy().astype(np.float64), 0.9)
        assert got.dtype is x.dtype
        within(got, want, 1)


def test_several_shares_may_be_a_tensor(device: str) -> None:
    x = fb.asarray(X, device=device)
    q = fb.asarray([0.25, 0.5], device=device)
    np.testing.assert_allclose(fb.quantile(x, q, axis=0).numpy(), np.quantile(X, [0.25, 0.5], axis=0))
    assert fb.quantile(x, q[0], axis=0).shape == (5, 6)


@pytest.mark.parametrize("name", ["quantile", "nanquantile", "percentile"])
@pytest.mark.parametrize("q", [-0.1, 100.5, [0.5, -1.0], float("nan")])
def test_shares_outside_their_range_are_refused(name: str, q: Any, device: str) -> None:
    with pytest.raises(fb.ConfigError, match=rf"{name}: q must lie in \[0, 1"):
        getattr(fb, name)(fb.ones(3, device=device), q)


def test_what_has_no_quantile_is_refused(device: str) -> None:
    x = fb.zeros((0, 3), device=device)
    for call in (fb.median, fb.nanmedian, lambda v: fb.quantile(v, 0.5, axis=0)):
        with pytest.raises(fb.ShapeError, match="of no elements is undefined"):
            call(x)
    assert fb.median(x, axis=1).shape == (0,)
    with pytest.raises(fb.DTypeError, match="median: x needs a floating dtype"):
        fb.median(fb.ones(3, dtype="int32", device=device))
    with pytest.raises(fb.ConfigError, match="method is one of linear, lower"):
        fb.quantile(fb.ones(3, device=device), 0.5, method="cubic")
    with pytest.raises(fb.OperandError, match="q is a number, a list of numbers"):
        fb.quantile(fb.ones(3, device=device), "half")
    with pytest.raises(fb.OperandError, match="q is a number, a list of numbers"):
        fb.quantile(fb.ones(3, device=device), [[0.5]])
    with pytest.raises(fb.OutOfRangeError, match="quantile: axis must lie in"):
        fb.quantile(fb.ones(3, device=device), 0.5, axis=1)
