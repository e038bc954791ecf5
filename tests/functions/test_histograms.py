"""Counting into bins against NumPy: edges, weights, densities, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb

rng = np.random.default_rng(11)
X = np.round(rng.normal(size=(30, 20)), 1)
W = rng.random(X.shape)


def close(got: fb.Tensor, want: Any) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("minlength", [0, 3, 20])
def test_counting_integers(minlength: int, device: str) -> None:
    for dtype in (np.int64, np.uint8, np.int32):
        a = rng.integers(0, 9, 100).astype(dtype)
        x = fb.asarray(a, device=device)
        got = fb.bincount(x, minlength=minlength)
        assert got.dtype is fb.int64
        close(got, np.bincount(a, minlength=minlength))
        close(fb.bincount(x, fb.asarray(W.reshape(-1)[:100].copy(), device=device), minlength=minlength),
              np.bincount(a, W.reshape(-1)[:100], minlength))  # fmt: skip
    assert fb.bincount(fb.asarray([], dtype="int64", device=device), minlength=minlength).tolist() == [0] * minlength


def test_the_gradient_of_sums_of_weights(device: str) -> None:
    x, w = fb.asarray([0, 2, 2], device=device), fb.asarray([1.0, 2.0, 3.0], device=device)
    scale = fb.asarray([10.0, 20.0, 30.0], device=device)
    assert fb.grad(lambda v: fb.sum(fb.bincount(x, v) * scale))(w).tolist() == [10.0, 30.0, 30.0]
    edges = fb.asarray([0.0, 1.0, 2.5, 9.0], device=device)
    values = fb.asarray([0.5, 2.0, 99.0], device=device)
    assert fb.grad(lambda v: fb.sum(fb.histogram(values, edges, weights=v).hist * scale))(w).tolist() == [10.0, 20.0, 0.0]


def test_what_cannot_be_counted_is_refused(device: str) -> None:
    x = fb.asarray([0, 1], device=device)
    with pytest.raises(fb.OutOfRangeError, match="bincount counts values ≥ 0"):
        fb.bincount(fb.asarray([1, -1], device=device))
    with pytest.raises(fb.DTypeError, match="bincount: x needs an integer dtype"):
        fb.bincount(fb.asarray([1.0], device=device))
    with pytest.raises(fb.ShapeError, match="one axis"):
        fb.bincount(fb.asarray([[1]], device=device))
    with pytest.raises(fb.ShapeError, match="weights must have the shape of x"):
        fb.bincount(x, fb.ones(3, device=device))
    with pytest.raises(fb.ConfigError, match="bincount: minlength is an int ≥ 0"):
        fb.bincount(x, minlength=-1)


@pytest.mark.parametrize("right", [False, True])
def test_bins_of_elements(right: bool, device: str) -> None:
    edges = np.asarray([-1.0, 0.0, 0.0, 0.5, 2.0])
    x, e = fb.asarray(X, device=device), fb.asarray(edges, device=device)
    close(fb.digitize(x, e, right=right), np.digitize(X, edges, right=right))
    close(fb.digitize(x, fb.flip(e), right=right), np.digitize(X, edges[::-1], right=right))
    close(fb.bucketize(x, e, right=right), np.digitize(X, edges, right=not right))
    assert fb.bucketize(x, e[:0]).shape == X.shape


@pytest.mark.parametrize("name", ["digitize", "bucketize", "histogram"])
def test_edges_in_no_order_are_refused(name: str, device: str) -> None:
    function = getattr(fb, name)
    x = fb.ones(2, device=device)
    for edges in ([1.0, 3.0, 2.0], [1.0, float("nan"), 2.0]):
        with pytest.raises(fb.ConfigError, match=f"{name}: (bins|boundaries) must be in order"):
            function(x, fb.asarray(edges, device=device))
    with pytest.raises(fb.ShapeError, match=f"{name}: (bins|boundaries) must have one axis"):
        function(x, fb.ones((2, 2), device=device))
    with pytest.raises(fb.DTypeError, match="operands need a common dtype"):
        function(x, fb.asarray([1, 2], device=device))


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("bins", "limits"),
    [(10, None), (1, None), (7, (-1.0, 1.0)), (3, (0.5, 0.5)), ([-1.0, 0.0, 0.5, 3.0], None), (np.asarray([-2.0, 0.1]), None)],
)
def test_histograms(bins: Any, limits: Any, weighted: bool, density: bool, device: str) -> None:
    w = W if weighted else None
    want, want_edges = np.histogram(X, bins, limits, density, w)
    given = fb.asarray(bins, device=device) if isinstance(bins, np.ndarray) else bins
    weights = fb.asarray(W, device=device) if weighted else None
    got, edges = fb.histogram(fb.asarray(X, device=device), given, range=limits, weights=weights, density=density)
    np.testing.assert_array_equal(edges.numpy(), want_edges)
    close(got, want)
    assert got.dtype is (fb.float64 if weighted or density else fb.int64)


def test_elements_on_edges_are_counted_where_the_edges_say(device: str) -> None:
    a = np.linspace(0, 1, 11, dtype=np.float32)
    for bins in (10, 5, 3):
        got, edges = fb.histogram(fb.asarray(a, device=device), bins)
        assert got.tolist() == np.histogram(a, edges.numpy())[0].tolist()
        assert fb.sum(got).item() == 11


def test_integers_are_counted_exactly(device: str) -> None:
    a = np.asarray([2**30, 2**30 + 1, 2**30 + 2, 5])
    for bins, limits in ((4, None), (2, (2**30, 2**30 + 2)), ([2**30 + 0.5, 2**30 + 1.5], None)):
        got, edges = fb.histogram(fb.asarray(a, device=device), bins, range=limits)
        want = np.histogram(a, bins, limits)
        assert got.tolist() == want[0].tolist()
        assert edges.dtype is fb.float64
    whole = fb.histogram(fb.asarray(a, device=device), fb.asarray([0, 5, 2**30, 2**31], device=device))
    assert whole.hist.tolist() == [0, 1, 3]


def test_nan_and_what_lies_outside_is_not_counted(device: str) -> None:
    x = fb.asarray([float("nan"), -5.0, 0.5, float("inf")], device=device)
    assert fb.histogram(x, 2, range=(0.0, 1.0)).hist.tolist() == [0, 1]
    assert fb.histogram(x, [0.0, 1.0]).hist.tolist() == [1]
    with pytest.raises(fb.ConfigError, match="range must be finite"):
        fb.histogram(x)
    assert fb.histogram(x[:0], 2).bin_edges.tolist() == [0.0, 0.5, 1.0]


def test_histograms_refuse_what_makes_no_bins(device: str) -> None:
    x = fb.ones(3, device=device)
    for bins in (0, -1, 2.5, True):
        with pytest.raises(fb.ConfigError, match="bins is a number ≥ 1, or the edges"):
            fb.histogram(x, bins)
    for limits in ((1.0, 0.0), (0.0, float("nan"))):
        with pytest.raises(fb.ConfigError, match="range must be finite"):
            fb.histogram(x, range=limits)
    with pytest.raises(fb.ShapeError, match="at least 2 elements"):
        fb.histogram(x, [1.0])
    with pytest.raises(fb.ShapeError, match="weights must have the shape of x"):
        fb.histogram(x, weights=fb.ones(2, device=device))
    with pytest.raises(fb.DTypeError, match="histogram: x needs a real-valued"):
        fb.histogram(x > 0)
