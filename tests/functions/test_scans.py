"""Running sums, products and extremes against NumPy, and their gradients where they are delicate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb

X = np.asarray([[0.5, -1.5, 2.0, 3.0], [4.0, -0.25, 1.0, 7.0], [2.5, 1.5, -3.0, 0.0]])
NAMES = ["cumulative_sum", "cumulative_prod"]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", NAMES)
def test_running_sums_and_products(name: str, axis: int, device: str) -> None:
    x = fb.asarray(X, device=device)
    want = {"cumulative_sum": np.cumsum, "cumulative_prod": np.cumprod}[name](X, axis=axis)
    np.testing.assert_allclose(getattr(fb, name)(x, axis=axis).numpy(), want, rtol=1e-13)
    one = np.expand_dims(np.take(want, 0, axis), axis)
    initial = np.full_like(one, 0.0 if name == "cumulative_sum" else 1.0)
    with_initial = np.concatenate([initial, want], axis)
    np.testing.assert_allclose(getattr(fb, name)(x, axis=axis, include_initial=True).numpy(), with_initial, rtol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_scans_from_the_end_mirror_those_from_the_start(name: str, device: str) -> None:
    x = fb.asarray(X, device=device)
    scan = getattr(fb, name)
    for initial in (False, True):
        got = scan(x, axis=1, reverse=True, include_initial=initial)
        want = fb.flip(scan(fb.flip(x, axis=1), axis=1, include_initial=initial), axis=1)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    for extreme in (fb.cummax, fb.cummin):
        values, indices = extreme(x, axis=1, reverse=True)
        mirrored = extreme(fb.flip(x, axis=1), axis=1)
        np.testing.assert_array_equal(values.numpy(), fb.flip(mirrored.values, axis=1).numpy())
        np.testing.assert_array_equal(indices.numpy(), 3 - fb.flip(mirrored.indices, axis=1).numpy())


@pytest.mark.parametrize(
    ("dtype", "want"),
    [("int8", "int64"), ("uint8", "uint64"), ("bool", "int64"), ("float16", "float16"), ("complex64", "complex64")],
)
@pytest.mark.parametrize("name", NAMES)
def test_scans_accumulate_in_the_dtype_of_the_standard(name: str, dtype: str, want: str, device: str) -> None:
    x = fb.asarray(np.ones(100), dtype=dtype, device=device)
    got = getattr(fb, name)(x)
    assert got.dtype.name == want
    assert complex(got[-1]) == (100 if name == "cumulative_sum" else 1)
    assert getattr(fb, name)(x, dtype="complex128").dtype is fb.complex128


def test_long_running_sums_keep_their_precision(device: str) -> None:
    x = np.full(2**17, 0.1, np.float32)
    got = fb.cumulative_sum(fb.asarray(x, device=device)).numpy()
    np.testing.assert_allclose(got, np.cumsum(x.astype(np.float64)), rtol=2 * np.finfo(np.float32).eps)


@pytest.mark.parametrize(("name", "ufunc"), [("cummax", np.maximum), ("cummin", np.minimum)])
def test_running_extremes_and_where_they_were_met_first(name: str, ufunc: Any, device: str) -> None:
    for a in (X, np.round(X / 2), np.where(X == 2.0, np.nan, X), X.astype(np.int32)):
        for axis in (0, 1):
            values, indices = getattr(fb, name)(fb.asarray(a, device=device), axis=axis)
            want = ufunc.accumulate(a, axis=axis)
            np.testing.assert_array_equal(values.numpy(), want)
            assert indices.dtype is fb.int64
            first = np.zeros(a.shape, np.int64)
            for at in np.ndindex(a.shape):
                line = np.moveaxis(a, axis, -1)[tuple(k for i, k in enumerate(at) if i != axis)][: at[axis] + 1]
                same = np.isnan(line) if np.isnan(want[at]) else line == want[at]
                first[at] = int(np.argmax(same))
            np.testing.assert_array_equal(indices.numpy(), first)


def test_of_equal_maxima_the_first_takes_the_gradient(device: str) -> None:
    x = fb.asarray([1.0, 3.0, 3.0, 2.0], device=device)
    assert fb.grad(lambda v: fb.sum(fb.cummax(v).values))(x).tolist() == [1.0, 3.0, 0.0, 0.0]
    assert fb.grad(lambda v: fb.sum(fb.cummin(v).values))(-x).tolist() == [1.0, 3.0, 0.0, 0.0]


@pytest.mark.parametrize("x", [[2.0, 0.0, 3.0, 4.0], [0.0, 0.0, 3.0], [1.0, 2.0, 0.0], [5.0], [np.inf]])
def test_the_gradient_of_a_running_product_is_right_at_zeros(x: list[float], device: str) -> None:
    n = len(x)
    rng = np.random.default_rng(0)
    g = rng.normal(size=n)
    # ∂/∂x[i] Σ_j g[j] Π_{k ≤ j} x[k], every product written out
    want = [sum(g[j] * np.prod([x[k] for k in range(j + 1) if k != i]) for j in range(i, n)) for i in range(n)]
    weights = fb.asarray(g, device=device)
    got = fb.grad(lambda v: fb.sum(fb.cumulative_prod(v) * weights))(fb.asarray(np.asarray(x), device=device))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


def test_a_running_product_can_be_differentiated_three_times(device: str) -> None:
    def total(v: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.cumulative_prod(v))

    def once(v: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.grad(total)(v) * fb.asarray([1.0, 2.0, 3.0], dtype="float64", device=device))

    # a + ab + abc → (1 + b + bc) + 2(a + ac) + 3ab → (2 + 2c + 3b, 1 + c + 3a, b + 2a)
    x = fb.asarray(np.asarray([2.0, 0.0, 5.0]), device=device)
    assert fb.grad(once)(x).tolist() == [12.0, 12.0, 4.0]
    assert fb.grad(lambda v: fb.sum(fb.grad(once)(v)))(x).tolist() == [5.0, 4.0, 3.0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_of_exponentials(axis: int, reverse: bool, device: str) -> None:
    x = fb.asarray(X * 300, device=device)
    flipped = np.flip(X * 300, axis) if reverse else X * 300
    want = np.logaddexp.accumulate(flipped, axis=axis)
    got = fb.cumulative_logsumexp(x, axis=axis, reverse=reverse).numpy()
    np.testing.assert_allclose(got, np.flip(want, axis) if reverse else want, rtol=1e-14)


def test_a_running_sum_of_exponentials_has_the_limits_of_its_elements(device: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.asarray([[-inf, -inf, 0.0, 800.0], [800.0, inf, -inf, inf], [1.0, nan, inf, 2.0]])
    want = [[-inf, -inf, 0.0, 800.0], [800.0, inf, inf, inf], [1.0, nan, nan, nan]]
    for dtype in ("float64", "float32"):
        got = fb.cumulative_logsumexp(fb.asarray(x, dtype=dtype, device=device), axis=1)
        np.testing.assert_array_equal(got.numpy(), np.asarray(want, dtype))


def test_a_long_running_sum_of_exponentials_keeps_its_precision(device: str) -> None:
    x = np.full((1, 2**15), -3.0, np.float32)
    got = fb.cumulative_logsumexp(fb.asarray(x, device=device), axis=1).numpy()[0]
    want = np.log(np.arange(1, 2**15 + 1)) - 3.0
    np.testing.assert_allclose(got, want, rtol=0, atol=3 * np.finfo(np.float32).eps * np.abs(want).max())


def test_the_gradient_of_a_running_sum_of_exponentials_is_a_sum_of_softmax(device: str) -> None:
    x, g = np.asarray([1.0, -2.0, 500.0, 500.5, -1.0]), np.asarray([1.0, -2.0, 3.0, 0.5, -1.0])
    want = np.zeros(5)
    for j in range(5):
        part = np.exp(x[: j + 1] - x[: j + 1].max())
        want[: j + 1] += g[j] * part / part.sum()
    weights = fb.asarray(g, device=device)
    got = fb.grad(lambda v: fb.sum(fb.cumulative_logsumexp(v) * weights))(fb.asarray(x, device=device))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-300)


def test_scans_of_nothing_and_wrong_arguments(device: str) -> None:
    assert fb.cumulative_sum(fb.zeros((0,), device=device), include_initial=True).tolist() == [0.0]
    assert fb.cumulative_prod(fb.zeros((0, 2), device=device), axis=0).shape == (0, 2)
    assert fb.cumulative_logsumexp(fb.zeros((2, 0), device=device), axis=1).shape == (2, 0)
    assert fb.cummax(fb.zeros((0, 2), device=device), axis=0).indices.shape == (0, 2)
    x = fb.ones((2, 3), device=device)
    for scan in (fb.cumulative_sum, fb.cumulative_prod, fb.cumulative_logsumexp, fb.cummax, fb.cummin):
        with pytest.raises(fb.ShapeError, match=f"{scan.__name__} needs axis= unless x has one axis"):
            scan(x)
        with pytest.raises(fb.ShapeError, match=f"{scan.__name__} needs at least one axis"):
            scan(fb.ones((), device=device))
        with pytest.raises(fb.OutOfRangeError, match=f"{scan.__name__}: axis must lie in"):
            scan(x, axis=2)
        with pytest.raises(fb.OperandError, match=f"{scan.__name__}: x must be a Firebrick tensor"):
            scan([1.0])
    with pytest.raises(fb.DTypeError, match="cummax: x needs a real-valued numeric dtype"):
        fb.cummax(fb.ones(2, dtype="complex64", device=device))
