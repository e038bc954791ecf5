"""Statistics beyond plain reductions, against NumPy: those that skip NaN, weighted means, covariance, areas."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from rounding import within

import firebrick as fb
from firebrick.functions.axes import widest

X = np.random.default_rng(5).normal(size=(3, 4, 5))
HOLES = np.where(np.random.default_rng(6).random(X.shape) < 0.4, np.nan, X)
HOLES[0, :, 1] = np.nan
AXES = [None, 0, 1, -1, (0, 2), (0, 1, 2)]


def close(got: fb.Tensor, want: Any) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin"])
def test_reductions_that_skip_nan(name: str, axis: Any, keepdims: bool, device: str) -> None:
    for a in (HOLES, X):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns of slices that are all NaN
            want = getattr(np, name)(a, axis=axis, keepdims=keepdims)
        close(getattr(fb, name)(fb.asarray(a, device=device), axis=axis, keepdims=keepdims), want)


@pytest.mark.parametrize("name", ["nanargmax", "nanargmin"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_places_of_extremes_that_are_not_nan(name: str, axis: Any, device: str) -> None:
    a = np.where(np.arange(60).reshape(3, 4, 5) % 7 == 0, np.nan, np.round(X))
    x = fb.asarray(a, device=device)
    for keepdims in (False, True):
        close(getattr(fb, name)(x, axis=axis, keepdims=keepdims), getattr(np, name)(a, axis, keepdims=keepdims))


def test_an_infinity_is_found_behind_nan(device: str) -> None:
    x = fb.asarray([float("nan"), -np.inf, float("nan")], device=device)
    assert fb.nanargmax(x).item() == 1
    assert fb.nanmax(x).item() == -np.inf
    assert fb.nanargmin(-x).item() == 1


def test_where_nothing_but_nan_is_left(device: str) -> None:
    x = fb.asarray([[float("nan")] * 2, [1.0, float("nan")]], device=device)
    assert fb.nansum(x, axis=1).tolist() == [0.0, 1.0]
    assert fb.nanprod(x, axis=1).tolist() == [1.0, 1.0]
    for name in ("nanmean", "nanmax", "nanmin", "nanvar", "nanstd", "nanmedian"):
        assert np.isnan(getattr(fb, name)(x, axis=1).numpy()).tolist() == [True, False], name
    assert np.isnan(fb.nanvar(x, axis=1, correction=1).numpy()).tolist() == [True, True]
    for name in ("nanargmax", "nanargmin"):
        with pytest.raises(fb.ShapeError, match=f"{name} of nothing but NaN is undefined"):
            getattr(fb, name)(x, axis=1)
        with pytest.raises(fb.ShapeError, match="of no elements is undefined"):
            getattr(fb, name)(fb.zeros(0, device=device))


def test_variance_of_infinite_elements_is_nan(device: str) -> None:
    x = fb.asarray([1.0, np.inf, np.nan], device=device)
    assert np.isnan(fb.nanvar(x).item())


def test_elements_that_are_nan_take_no_gradient(device: str) -> None:
    x = fb.asarray([1.0, np.nan, 3.0], dtype="float64", device=device)
    assert fb.grad(fb.nansum)(x).tolist() == [1.0, 0.0, 1.0]
    assert fb.grad(fb.nanprod)(x).tolist() == [3.0, 0.0, 1.0]
    assert fb.grad(fb.nanmean)(x).tolist() == [0.5, 0.0, 0.5]
    assert fb.grad(fb.nanmax)(x).tolist() == [0.0, 0.0, 1.0]
    assert fb.grad(fb.nanmin)(x).tolist() == [1.0, 0.0, 0.0]
    assert fb.grad(fb.nanvar)(x).tolist() == [-1.0, 0.0, 1.0]
    assert fb.grad(fb.nanstd)(x).tolist() == [-0.5, 0.0, 0.5]


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmax", "nanmin", "nanargmax"])
def test_integers_have_no_nan(name: str, device: str) -> None:
    a = np.asarray([[3, 1], [2, 5]], np.int32)
    close(getattr(fb, name)(fb.asarray(a, device=device), axis=0), getattr(np, name)(a, axis=0))


def test_half_precision_does_not_overflow_on_the_way(device: str) -> None:
    x = fb.asarray(np.tile(np.asarray([300.0, 100.0], np.float16), 2000), device=device)
    for name, want in (("mean", 200), ("nanmean", 200), ("var", 10000), ("nanvar", 10000), ("std", 100), ("nanstd", 100)):
        assert float(getattr(fb, name)(x)) == want, name
    assert float(fb.average(x, weights=fb.ones(4000, dtype="float16", device=device))) == 200
    assert float(fb.cov(x, correction=0)) == 10000


def test_a_large_mean_costs_the_variance_no_digits(device: str) -> None:
    a = 1e9 + np.asarray([0.0, 1.0, 2.0])
    assert fb.var(fb.asarray(a, device=device)).item() == pytest.approx(2 / 3, rel=1e-12)


def test_the_deviation_of_equal_elements_has_the_gradient_zero(device: str) -> None:
    x = fb.asarray([2.0, 2.0, 2.0], device=device)
    for name in ("std", "nanstd"):
        assert getattr(fb, name)(x).item() == 0.0
        assert fb.grad(getattr(fb, name))(x).tolist() == [0.0] * 3, name


def test_a_variance_with_too_large_a_correction(device: str) -> None:
    x = fb.asarray([1.0, 2.0], device=device)
    assert fb.var(x, correction=2).item() == np.inf
    assert np.isnan(fb.var(x[:1], correction=1).item())


def test_means_and_products_of_complex_numbers(device: str) -> None:
    z = X[0] + 1j * X[1]
    x = fb.asarray(z, device=device)
    for name in ("sum", "prod", "mean"):
        for axis in (None, 0):
            np.testing.assert_allclose(getattr(fb, name)(x, axis=axis).numpy(), getattr(np, name)(z, axis=axis), rtol=1e-12)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
def test_peak_to_peak(axis: Any, device: str) -> None:
    close(fb.ptp(fb.asarray(X, device=device), axis=axis), np.ptp(X, axis=axis))


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_differences(axis: int, n: int, device: str) -> None:
    close(fb.diff(fb.asarray(X, device=device), axis=axis, n=n), np.diff(X, n=n, axis=axis))


def test_differences_with_ends(device: str) -> None:
    a, ends = np.asarray([3, 1, 4, 1]), np.asarray([9, 8])
    x, e = fb.asarray(a, device=device), fb.asarray(ends, device=device)
    for n in (0, 1, 2):
        close(fb.diff(x, n=n, prepend=e, append=e[:1]), np.diff(a, n=n, prepend=ends, append=ends[:1]))
    with pytest.raises(fb.ConfigError, match="diff: n is an int ≥ 0"):
        fb.diff(x, n=-1)
    with pytest.raises(fb.ShapeError, match="diff needs at least one axis"):
        fb.diff(x[0])
    with pytest.raises(fb.OperandError, match="diff: append must be a Firebrick tensor"):
        fb.diff(x, append=3)


def test_areas_under_curves(device: str) -> None:
    y, at = fb.asarray(X, device=device), np.cumsum(np.abs(X[0, 0]))
    close(fb.trapezoid(y), np.trapezoid(X))
    close(fb.trapezoid(y, dx=0.5, axis=0), np.trapezoid(X, dx=0.5, axis=0))
    close(fb.trapezoid(y, fb.asarray(at, device=device)), np.trapezoid(X, at))
    whole = np.cumsum(np.abs(X), axis=1)
    close(fb.trapezoid(y, fb.asarray(whole, device=device), axis=1), np.trapezoid(X, whole, axis=1))
    with pytest.raises(fb.ShapeError, match="trapezoid: x must have the shape of y or"):
        fb.trapezoid(y, fb.ones(2, dtype="float64", device=device))


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
def test_weighted_means(axis: Any, device: str) -> None:
    w = np.abs(X) + 0.1
    x = fb.asarray(X, device=device)
    close(fb.average(x, axis=axis), np.average(X, axis=axis))
    for keepdims in (False, True):
        got = fb.average(x, axis=axis, weights=fb.asarray(w, device=device), keepdims=keepdims)
        close(got, np.average(X, axis=axis, weights=w, keepdims=keepdims))
    close(fb.average(x, axis=1, weights=fb.asarray(w[0, :, 0].copy(), device=device)), np.average(X, 1, w[0, :, 0]))
    with pytest.raises(fb.ShapeError, match="average: weights must have the shape of x"):
        fb.average(x, axis=1, weights=fb.ones(7, dtype="float64", device=device))


def test_covariance_and_correlation(device: str) -> None:
    for a in (X[0], X[:, 0, 0]):
        x = fb.asarray(a.copy(), device=device)
        close(fb.cov(x), np.cov(a))
        close(fb.cov(x, correction=0), np.cov(a, ddof=0))
        close(fb.corrcoef(x), np.corrcoef(a))
    with pytest.raises(fb.ConfigError, match="correction must be less than the 1 observations"):
        fb.cov(fb.ones((2, 1), device=device))
    with pytest.raises(fb.ShapeError, match="cov takes one variable"):
        fb.cov(fb.ones((2, 2, 2), device=device))
    still = fb.corrcoef(fb.asarray([[1.0, 1.0], [1.0, 2.0]], device=device))
    assert np.isnan(still.numpy()).tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("scale", [1e-25, 1e-19, 1e19, 1e25])
def test_correlations_know_no_unit(scale: float, device: str) -> None:
    a = np.asarray([[1.0, 2.0, 4.0, 3.0], [-2.0, 0.5, 1.0, 0.0]])
    x = fb.asarray((a * scale).astype(np.float32), device=device)
    np.testing.assert_allclose(fb.corrcoef(x).numpy(), np.corrcoef(a), rtol=1e-5)
    gradient = fb.grad(lambda v: fb.corrcoef(v)[0, 1])
    want = gradient(fb.asarray(a, device=device)).numpy()
    np.testing.assert_allclose(gradient(x).numpy().astype(np.float64) * scale, want, rtol=1e-4, atol=1e-5)


def test_statistics_are_differentiable() -> None:
    x, w = fb.asarray(X[0], device="numpy"), fb.asarray(np.abs(X[1]) + 0.5, device="numpy")
    for function in (fb.cov, fb.corrcoef, fb.ptp, lambda v: fb.diff(v, n=2), fb.trapezoid, fb.nanvar, fb.var):
        fb.gradcheck(lambda v, f=function: fb.sum(f(v) * f(v)), [x])
    fb.gradcheck(lambda v, u: fb.average(v, weights=u), [x, w])


@pytest.mark.parametrize("name", ["nanmean", "nanvar", "nanstd", "cov", "corrcoef", "average", "trapezoid", "var", "std"])
def test_integers_must_be_cast_by_the_name_of_the_function(name: str, device: str) -> None:
    with pytest.raises(fb.DTypeError, match=f"{name}: . needs a floating dtype"):
        getattr(fb, name)(fb.ones((2, 3), dtype="int32", device=device))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["std", "nanstd"])
@pytest.mark.parametrize("scale", [1e-3, 400.0])
def test_the_deviation_of_half_precision_survives_squares_that_it_cannot_hold(
    name: str, dtype: str, scale: float, device: str
) -> None:
    x = fb.astype(fb.asarray(np.linspace(-scale, scale, 64), device=device), dtype)
    want = np.std(np.asarray(x.numpy(), np.float64))
    within(getattr(fb, name)(x), want, 1)
    gradient = fb.grad(getattr(fb, name))(x)
    assert gradient.dtype is x.dtype
    wide = np.asarray(x.numpy(), np.float64)
    within(gradient, (wide - wide.mean()) / 64 / want, 3, scale=np.abs(wide) / 64 / want)


@pytest.mark.parametrize("values", [[3e38, 0.0, 0.0, 3.0], [1e30, -2.5, 0.5, 1e30, 0.0, 0.0, 3.0]])
def test_a_variance_that_overflows_is_infinite(values: list[float], device: str) -> None:
    x = fb.asarray(values, dtype=fb.float32, device=device)
    for transform in (lambda f: f, fb.jit):
        assert transform(fb.var)(x).item() == float("inf")
        assert np.isfinite(transform(fb.std)(x).item())
        assert transform(lambda x: fb.nanvar(x))(x).item() == float("inf")


def test_one_outlier_does_not_overflow_the_variance_of_half_precision(device: str) -> None:
    x = fb.asarray(np.asarray([300.0] + [0.0] * 63, np.float16), device=device)
    within(fb.var(x), 300.0**2 / 64 * 63 / 64, 1)
    out = fb.zeros((), dtype=fb.float16, device=device)
    assert fb.var(x, out=out) is out
    assert out.item() == fb.var(x).item()


@pytest.mark.parametrize("call", [
    lambda x, yes: fb.sort(x, descending=yes), lambda x, yes: fb.sum(x, axis=0, keepdims=yes),
    lambda x, yes: fb.argmax(x, axis=0, keepdims=yes), lambda x, yes: fb.top_k(x, 2, largest=yes).values,
    lambda x, yes: fb.cumulative_sum(x, axis=0, reverse=yes),
])  # fmt: skip
def test_a_flag_may_be_any_true_or_false_value_on_every_engine(call: Any, device: str) -> None:
    x = fb.asarray(X[0], device=device)
    for given in (0, 1, np.True_):
        assert call(x, given).tolist() == call(x, bool(given)).tolist()


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "median"])
def test_an_extreme_along_an_empty_axis_is_refused_whatever_the_other_axes(name: str, device: str) -> None:
    for shape, axis in (((0, 0), 0), ((0, 3), 0), ((2, 0), 1), ((0,), 0)):
        with pytest.raises(fb.ShapeError, match=f"{name}"):
            getattr(fb, name)(fb.zeros(shape, device=device), axis=axis)
    assert getattr(fb, name)(fb.zeros((0, 3), device=device), axis=1).shape == (0,)


# rounding of the mean, and magnitudes whose squares float32 does not have

DEVICES = ["numpy", "cpu", "torch:cpu"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_the_rounding_of_a_large_mean_is_no_part_of_a_deviation(name: str, device: str) -> None:
    function = getattr(fb, name)
    rows = (np.random.default_rng(0).normal(size=(3, 20_000)) + 1e5).astype(np.float32)
    wide = rows.astype(np.float64)
    want = getattr(np, name)(wide, axis=1)
    centred = wide - wide.mean(1, keepdims=True)
    slope = 2 * centred / 20_000 / (1 if name.endswith("var") else 2 * want[:, None])
    x = fb.asarray(rows, device=device)
    for compiled in (False, True):
        run = fb.jit(lambda x: function(x, axis=1)) if compiled else lambda x: function(x, axis=1)
        np.testing.assert_allclose(run(x).numpy(), want, rtol=1e-6)
        gradient = fb.grad(lambda x: fb.sum(run(x)))(x).numpy()  # noqa: B023
        np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-6 * np.abs(slope).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1e-40, 1e-30, 1e30])
@pytest.mark.parametrize("dtype", [fb.float32, fb.bfloat16])
def test_deviations_and_norms_reach_as_far_as_the_dtype(dtype: fb.dtype, size: float, device: str) -> None:
    x = fb.asarray([[1.0, 2.0, -3.0], [4.0, 4.0, 4.0]], dtype=dtype, device=device) * size
    wide = fb.astype(x, fb.float64).numpy()
    norm = fb.linalg.vector_norm
    functions: list[tuple[Any, Any]] = [
        (lambda x: fb.std(x, axis=1), wide.std(1)),
        (lambda x: fb.nanstd(x, axis=1), wide.std(1)),
        (lambda x: norm(x, axis=1), np.sqrt((wide**2).sum(1))),
        (lambda x: norm(x, axis=1, ord=3), (np.abs(wide) ** 3).sum(1) ** (1 / 3)),
        (lambda x: fb.linalg.matrix_norm(x), np.sqrt((wide**2).sum())),
    ]
    for function, want in functions:
        for run in (function, fb.jit(function)):
            got = fb.astype(run(x), fb.float64).numpy()
            np.testing.assert_allclose(
                got, want, rtol=4 * float(dtype.eps), atol=float(fb.finfo(dtype).smallest_normal * dtype.eps)
            )
        slopes = fb.astype(fb.grad(lambda x: fb.sum(function(x)))(x), fb.float64).numpy()  # noqa: B023
        assert np.isfinite(slopes).all()
        assert 0.05 < np.abs(slopes[0]).max() < 1.1


@pytest.mark.parametrize("device", DEVICES)
def test_columns_far_from_zero_are_normalised_to_what_float32_can_tell_apart(device: str) -> None:
    rows = (np.random.default_rng(0).normal(size=(20_000, 4)) + 1e5).astype(np.float32)
    wide = rows.astype(np.float64)
    want = (wide - wide.mean(0)) / wide.std(0)
    x = fb.asarray(rows, device=device)
    for function in (fb.batch_norm, fb.jit(lambda x: fb.batch_norm(x))):
        np.testing.assert_allclose(function(x).numpy(), want, atol=2 * 1e5 * fb.float32.eps)


def test_the_widest_dtype_is_one_that_the_device_computes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fb.ones(2, device="numpy")
    assert widest(x) is fb.float64
    monkeypatch.setattr(x.device.backend, "supports_dtype", lambda device, dtype: dtype is not fb.float64)
    assert widest(x) is fb.float32
