"""Searching, sorting and sets against NumPy: order, ties, NaN, shapes that depend on values, and fixed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb

rng = np.random.default_rng(7)
FEW = rng.integers(-3, 4, (5, 8))
ARRAYS = [FEW, FEW.astype(np.float32), FEW > 0, rng.normal(size=(3, 0)), FEW[:, :1].astype(np.uint8)]
ids = [f"{a.dtype}{a.shape}" for a in ARRAYS]


def equal(got: fb.Tensor, want: Any) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_array_equal(got.numpy(), want)


# top_k


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(6, 200), (200, 6), (40,), (2, 3, 100)])
def test_the_k_largest_are_the_head_of_the_sorted_elements(shape: tuple[int, ...], largest: bool, device: str) -> None:
    for a in (
        rng.normal(size=shape),
        rng.integers(0, 5, shape),
        np.where(rng.random(shape) < 0.1, np.nan, rng.integers(0, 9, shape)),
    ):
        x = fb.asarray(a, device=device)
        for axis in range(len(shape)):
            ordered, order = fb.sort(x, axis=axis, descending=largest), fb.argsort(x, axis=axis, descending=largest)
            for k in (0, 1, min(4, shape[axis]), shape[axis]):
                values, indices = fb.top_k(x, k, axis=axis, largest=largest)
                head = (slice(None),) * axis + (slice(0, k),)
                equal(values, ordered.numpy()[head])
                equal(indices, order.numpy()[head])


def test_the_gradient_of_the_k_largest_goes_to_them(device: str) -> None:
    x = fb.asarray([[1.0, 5.0, 5.0, 2.0]], device=device)
    weights = fb.asarray([[10.0, 1.0]], device=device)
    assert fb.grad(lambda v: fb.sum(fb.top_k(v, 2).values * weights))(x).tolist() == [[0.0, 10.0, 1.0, 0.0]]


def test_more_than_there_are_cannot_be_chosen(device: str) -> None:
    x = fb.ones((2, 3), device=device)
    for k in (4, -1):
        with pytest.raises(fb.OutOfRangeError, match=r"top_k: k must lie in \[0, 3\]"):
            fb.top_k(x, k)
    with pytest.raises(fb.OutOfRangeError, match="top_k: k must be an int"):
        fb.top_k(x, 1.5)
    with pytest.raises(fb.OutOfRangeError, match="top_k: axis must lie in"):
        fb.top_k(x, 1, axis=2)
    with pytest.raises(fb.DTypeError, match="top_k: x needs a real-valued"):
        fb.top_k(x > 0, 1)


# searchsorted


@pytest.mark.parametrize("side", ["left", "right"])
def test_binary_search(side: Any, device: str) -> None:
    for edges in (np.sort(FEW[0]), np.asarray([-1.0, 0.0, 0.0, 2.5, np.inf, np.nan, np.nan]), np.zeros(0)):
        wanted = FEW if edges.dtype.kind == "i" else np.append(FEW.astype(edges.dtype), [np.nan, np.inf, -np.inf])
        got = fb.searchsorted(fb.asarray(edges, device=device), fb.asarray(wanted, device=device), side=side)
        assert got.dtype is fb.int64
        equal(got, np.searchsorted(edges, wanted, side))
    order = np.argsort(FEW[1], kind="stable")
    x, v = fb.asarray(FEW[1], device=device), fb.asarray(FEW[2], device=device)
    equal(fb.searchsorted(x, v, side=side, sorter=fb.argsort(x)), np.searchsorted(FEW[1], FEW[2], side, order))


def test_what_cannot_be_searched_is_refused(device: str) -> None:
    x, y = fb.asarray([1.0, 2.0], device=device), fb.asarray([[1.0]], device=device)
    with pytest.raises(fb.ShapeError, match="searchsorted: x1 must have one axis"):
        fb.searchsorted(y, x)
    with pytest.raises(fb.ConfigError, match='side is "left" or "right"'):
        fb.searchsorted(x, y, side="middle")
    with pytest.raises(fb.ShapeError, match="sorter must have the shape of x1"):
        fb.searchsorted(x, y, sorter=fb.asarray([0], device=device))
    with pytest.raises(fb.DTypeError, match="sorter needs an integer dtype"):
        fb.searchsorted(x, y, sorter=x)
    with pytest.raises(fb.DTypeError, match="x1 needs a real-valued"):
        fb.searchsorted(x > 0, y)
    with pytest.raises(fb.DTypeError, match="need a common dtype"):
        fb.searchsorted(x, fb.asarray([1], device=device))


# non-zero elements


@pytest.mark.parametrize("a", ARRAYS, ids=ids)
def test_places_of_non_zero_elements(a: Any, device: str) -> None:
    x = fb.asarray(a, device=device)
    for got, want in zip(fb.nonzero(x), np.nonzero(a), strict=True):
        equal(got, want)
    equal(fb.argwhere(x), np.argwhere(a))
    equal(fb.flatnonzero(x), np.flatnonzero(a))
    for axis in (None, 0, -1, (0, 1)):
        for keepdims in (False, True):
            got = fb.count_nonzero(x, axis=axis, keepdims=keepdims)
            equal(got, np.count_nonzero(a, axis, keepdims=keepdims))
            assert got.dtype is fb.int64


def test_places_in_a_fixed_shape(device: str) -> None:
    x = fb.asarray([[0, 5, 0], [6, 7, 0]], device=device)
    assert [i.tolist() for i in fb.nonzero(x, size=5)] == [[0, 1, 1, 0, 0], [1, 0, 1, 0, 0]]
    assert [i.tolist() for i in fb.nonzero(x, size=2, fill_value=-1)] == [[0, 1], [1, 0]]
    assert fb.argwhere(x, size=4, fill_value=9).tolist() == [[0, 1], [1, 0], [1, 1], [9, 9]]
    assert fb.flatnonzero(x, size=4, fill_value=6).tolist() == [1, 3, 4, 6]
    assert fb.flatnonzero(x[:0], size=2, fill_value=3).tolist() == [3, 3]
    assert fb.flatnonzero(fb.asarray([0.0, float("nan"), 1j], dtype="complex64", device=device)).tolist() == [1, 2]
    for size in (-1, 2.5, "all"):
        with pytest.raises(fb.ConfigError, match="nonzero: size must be an int ≥ 0"):
            fb.nonzero(x, size=size)
    for function in (fb.nonzero, fb.argwhere):
        with pytest.raises(fb.ShapeError, match=f"{function.__name__} needs at least one axis"):
            function(x[0, 0])


# sets


@pytest.mark.parametrize("a", ARRAYS, ids=ids)
def test_distinct_elements(a: Any, device: str) -> None:
    x = fb.asarray(a, device=device)
    values, indices, inverse, counts = np.unique(a, return_index=True, return_inverse=True, return_counts=True)
    found = fb.unique_all(x)
    for got, want in zip(found, (values, indices, inverse.reshape(a.shape), counts), strict=True):
        equal(got, want)
    assert found.values.dtype is x.dtype
    equal(fb.unique_values(x), values)
    equal(fb.unique(x), values)
    asked = fb.unique(x, return_index=True, return_counts=True)
    for got, want in zip(asked, (values, indices, counts), strict=True):
        equal(got, want)
    equal(fb.unique_counts(x).counts, counts)
    equal(fb.take(found.values, fb.unique_inverse(x).inverse_indices), a)


def test_every_nan_is_distinct_and_zeros_are_one(device: str) -> None:
    x = fb.asarray([2.0, float("nan"), 0.0, float("nan"), -0.0], device=device)
    found = fb.unique_all(x)
    np.testing.assert_array_equal(found.values.numpy(), [0.0, 2.0, np.nan, np.nan])
    assert found.indices.tolist() == [2, 0, 1, 3]
    assert found.inverse_indices.tolist() == [1, 2, 0, 3, 0]
    assert found.counts.tolist() == [2, 1, 1, 1]


def test_distinct_complex_numbers(device: str) -> None:
    z = (FEW[:2] + 1j * FEW[2:4]).astype(np.complex64)
    values, counts = np.unique(z, return_counts=True)
    found = fb.unique_counts(fb.asarray(z, device=device))
    equal(found.values, values)
    equal(found.counts, counts)


def test_distinct_elements_in_a_fixed_shape(device: str) -> None:
    x = fb.asarray([5, 2, 5, 9], device=device)
    found = fb.unique_all(x, size=5)
    assert found.values.tolist() == [2, 5, 9, 2, 2]
    assert found.indices.tolist() == [1, 0, 3, 1, 1]
    assert found.counts.tolist() == [1, 2, 1, 0, 0]
    assert found.inverse_indices.tolist() == [1, 0, 1, 2]
    assert fb.unique_counts(x, size=4, fill_value=-7).values.tolist() == [2, 5, 9, -7]
    assert fb.unique_counts(x, size=2).counts.tolist() == [1, 2]
    assert fb.unique_values(x[:0]).shape == (0,)
    assert fb.unique_values(x[:0], size=0).shape == (0,)
    with pytest.raises(fb.ShapeError, match="unique_values: x has no element to fill 2 places with"):
        fb.unique_values(x[:0], size=2)
    with pytest.raises(fb.ConfigError, match="unique_counts: size must be an int"):
        fb.unique_counts(x, size=-2)


def test_the_gradient_of_distinct_values_goes_to_where_they_are_first(device: str) -> None:
    x = fb.asarray([3.0, 1.0, 3.0], device=device)
    assert fb.grad(lambda v: fb.sum(fb.unique_values(v)))(x).tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("invert", [False, True])
def test_membership(invert: bool, device: str) -> None:
    for a, b in (
        (FEW, FEW[0, :3]),
        (FEW.astype(np.float64), np.asarray([[2.0, np.nan], [0.0, -0.5]])),
        (np.asarray([np.nan, 1.0]), np.asarray([np.nan])),
        (FEW > 0, np.asarray([True])),
        (FEW, FEW[0, :0]),
        (FEW.astype(np.int8), np.asarray([200], np.uint8)),
    ):
        equal(fb.isin(fb.asarray(a, device=device), fb.asarray(b, device=device), invert=invert), np.isin(a, b, invert=invert))
    with pytest.raises(fb.DTypeError, match="isin: x1 needs a real-valued"):
        fb.isin(fb.ones(1, dtype="complex64", device=device), fb.ones(1, device=device))
