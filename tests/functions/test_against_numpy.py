"""Public functions against NumPy: names, axes, keepdims, dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb

X = np.asarray(
    [
        [[0.5, -1.5, 2.0, 3.0], [4.0, -0.25, 1.0, 7.0], [2.5, 1.5, -3.0, 0.0]],
        [[1.0, 2.0, 3.5, -4.0], [5.0, 6.0, -7.0, 8.0], [9.5, 0.75, 1.25, 2.0]],
    ]
)
AXES = [None, 0, 1, -1, (0, 2), (0, 1, 2), (-1, 0)]


def close(got: fb.Tensor, want: Any) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min"])
def test_reductions(name: str, axis: Any, keepdims: bool, device: str) -> None:
    x = fb.asarray(X, device=device)
    close(getattr(fb, name)(x, axis=axis, keepdims=keepdims), getattr(np, name)(X, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["all", "any"])
def test_all_and_any(name: str, axis: Any, keepdims: bool, device: str) -> None:
    for a in (X > 0, X, (X * 0).astype(np.int32)):
        got = getattr(fb, name)(fb.asarray(a, device=device), axis=axis, keepdims=keepdims)
        assert got.dtype is fb.bool
        close(got, getattr(np, name)(a, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes(name: str, axis: Any, keepdims: bool, device: str) -> None:
    for a in (X, np.round(X / 4)):
        got = getattr(fb, name)(fb.asarray(a, device=device), axis=axis, keepdims=keepdims)
        assert got.dtype is fb.int64
        close(got, getattr(np, name)(a, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("correction", [0, 1, 1.5])
def test_variance_with_a_correction(correction: float, device: str) -> None:
    x = fb.asarray(X, device=device)
    n = X.shape[1]
    close(fb.var(x, axis=1, correction=correction), np.var(X, axis=1) * n / (n - correction))
    close(fb.std(x, axis=1, correction=correction), np.sqrt(np.var(X, axis=1) * n / (n - correction)))


@pytest.mark.parametrize(
    ("dtype", "want"),
    [
        ("int8", "int64"),
        ("int32", "int64"),
        ("int64", "int64"),
        ("uint8", "uint64"),
        ("bool", "int64"),
        ("float16", "float16"),
        ("float32", "float32"),
        ("bfloat16", "bfloat16"),
        ("complex64", "complex64"),
    ],
)
def test_sums_accumulate_in_the_dtype_of_the_standard(dtype: str, want: str, device: str) -> None:
    x = fb.asarray(np.ones(100), dtype=dtype, device=device)
    total = fb.sum(x)
    assert total.dtype.name == want
    assert complex(total) == 100
    if dtype not in ("bool", "uint8"):
        assert fb.sum(x, dtype="float64" if dtype != "complex64" else "complex128").dtype.itemsize >= 8


def test_reductions_of_nothing(device: str) -> None:
    x = fb.zeros((0, 3), device=device)
    assert fb.sum(x, axis=0).tolist() == [0.0] * 3
    assert fb.prod(x, axis=0).tolist() == [1.0] * 3
    assert fb.all(x).item() is True
    assert fb.any(x).item() is False
    assert np.isnan(fb.mean(x, axis=0).numpy()).all()
    assert fb.max(x, axis=1).shape == (0,)
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(fb.ShapeError, match="of no elements"):
            getattr(fb, name)(x, axis=0)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorting(axis: int, descending: bool, device: str) -> None:
    x = fb.asarray(X, device=device)
    want = np.sort(X, axis=axis)
    close(fb.sort(x, axis=axis, descending=descending), np.flip(want, axis) if descending else want)
    places = fb.argsort(x, axis=axis, descending=descending)
    close(fb.take_along_axis(x, places, axis=axis), np.flip(want, axis) if descending else want)


def test_sorting_is_stable_and_puts_nan_where_the_standard_says(device: str) -> None:
    x = fb.asarray([2.0, 1.0, 2.0, float("nan"), 1.0], device=device)
    assert fb.argsort(x).tolist() == [1, 4, 0, 2, 3]
    assert fb.argsort(x, descending=True).tolist() == [3, 0, 2, 1, 4]


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_concat_and_stack(axis: Any, device: str) -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(2, 3)
    ours = [fb.asarray(v, device=device) for v in (a, b, a)]
    close(fb.concat(ours, axis=axis), np.concatenate([a, b, a], axis=axis))
    if axis is not None:
        close(fb.stack(ours, axis=axis), np.stack([a, b, a], axis=axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split(axis: int, device: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    first = x.shape[axis] - 3
    parts = fb.split(fb.asarray(x, device=device), (first, 0, 3), axis=axis)
    for part, want in zip(parts, np.split(x, [first, first], axis=axis), strict=True):
        close(part, want)
    for sizes in ((1, 1), (-1, 7), (), 3.5):
        with pytest.raises(fb.ShapeError, match="split"):
            fb.split(fb.asarray(x, device=device), sizes, axis=axis)  # type: ignore[arg-type]


def test_concat_promotes(device: str) -> None:
    parts = [fb.ones(2, dtype=d, device=device) for d in (fb.int8, fb.uint8, fb.int16)]
    assert fb.concat(parts).dtype is fb.int16
    assert (
        fb.stack([fb.ones(2, dtype=fb.float32, device=device), fb.ones(2, dtype=fb.float64, device=device)]).dtype is fb.float64
    )


@pytest.mark.parametrize("k", [-4, -1, 0, 1, 5])
def test_triangles(k: int, device: str) -> None:
    for a in (X, X > 0, X.astype(np.int32)):
        x = fb.asarray(a, device=device)
        close(fb.tril(x, k=k), np.tril(a, k))
        close(fb.triu(x, k=k), np.triu(a, k))
        assert fb.tril(x).dtype is x.dtype


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_grids(indexing: Any, n: int, device: str) -> None:
    vectors = [np.arange(float(i + 2)) for i in range(n)]
    got = fb.meshgrid(*(fb.asarray(v, device=device) for v in vectors), indexing=indexing)
    for g, w in zip(got, np.meshgrid(*vectors, indexing=indexing), strict=True):
        close(g, w)


def test_moving_elements(device: str) -> None:
    x = fb.asarray(X, device=device)
    close(fb.permute_dims(x, (2, 0, 1)), X.transpose(2, 0, 1))
    close(fb.matrix_transpose(x), X.swapaxes(-1, -2))
    close(x.mT, X.swapaxes(-1, -2))
    close(fb.moveaxis(x, 0, -1), np.moveaxis(X, 0, -1))
    close(fb.moveaxis(x, (0, 1), (-1, 0)), np.moveaxis(X, (0, 1), (-1, 0)))
    close(fb.flip(x), np.flip(X))
    close(fb.flip(x, axis=(0, 2)), np.flip(X, (0, 2)))
    close(fb.pad(x, ((1, 0), (0, 2), (0, 0)), value=9.0), np.pad(X, ((1, 0), (0, 2), (0, 0)), constant_values=9.0))
    close(fb.expand_dims(x, axis=-1), X[..., None])
    close(fb.squeeze(fb.expand_dims(x, axis=1), 1), X)
    close(fb.broadcast_to(x[:1], (5, 3, 4)), np.broadcast_to(X[:1], (5, 3, 4)))
    for g, w in zip(fb.broadcast_arrays(x, x[0], x[:, :1]), np.broadcast_arrays(X, X[0], X[:, :1]), strict=True):
        close(g, w)
    with pytest.raises(fb.ShapeError, match="squeeze drops axes of size 1"):
        fb.squeeze(x, 0)


@pytest.mark.parametrize(
    "name",
    ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2", "expm1",
     "log", "log2", "log10", "log1p", "sqrt", "square", "reciprocal", "trunc", "floor", "ceil", "signbit", "sign", "abs"],
)  # fmt: skip
def test_functions_of_one_number(name: str, device: str) -> None:
    with np.errstate(all="ignore"):
        x = X / 4 if name in ("asin", "acos", "atanh") else np.abs(X) + 1.0 if name == "acosh" or "log" in name else X
        close(getattr(fb, name)(fb.asarray(x, device=device)), getattr(np, name)(x))


@pytest.mark.parametrize("name", ["atan2", "hypot", "copysign", "logaddexp", "nextafter", "pow", "maximum", "minimum"])
def test_functions_of_two_numbers(name: str, device: str) -> None:
    x, y = np.abs(X) + 0.5, X[:, ::-1]
    close(getattr(fb, name)(fb.asarray(x, device=device), fb.asarray(y, device=device)), getattr(np, name)(x, y))
    close(getattr(fb, name)(fb.asarray(x, device=device), 1.5), getattr(np, name)(x, 1.5))


@pytest.mark.parametrize(
    "name", ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "bitwise_invert"]
)
def test_functions_of_bits(name: str, device: str) -> None:
    x, y = np.arange(-6, 6).reshape(3, 4), np.arange(4)
    operands = (x,) if name == "bitwise_invert" else (x, y)
    close(getattr(fb, name)(*(fb.asarray(v, device=device) for v in operands)), getattr(np, name)(*operands))


def test_choosing_and_limiting(device: str) -> None:
    x = fb.asarray(X, device=device)
    close(fb.where(x > 1, x, -x), np.where(X > 1, X, -X))
    close(fb.where(x > 1, x, 0.0), np.where(X > 1, X, 0.0))
    close(fb.where(x > 1, 1.0, x), np.where(X > 1, 1.0, X))
    close(fb.clip(x, -1, 2), np.clip(X, -1, 2))
    close(fb.clip(x, max=0.5), np.clip(X, None, 0.5))
    close(fb.clip(x, min=0.5), np.clip(X, 0.5, None))
    close(fb.clip(x), X)
    close(fb.clip(x, x[0], x[1]), np.clip(X, X[0], X[1]))
    i = np.asarray([-128, 0, 127], np.int8)
    assert fb.clip(fb.asarray(i, device=device), min=-5).tolist() == [-5, 0, 127]
    with pytest.raises(fb.DTypeError):
        fb.clip(fb.asarray(i, device=device), 0.5, 1.5)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 1, 2, 3), (6, 3, 2)),
        ((3,), (5, 3, 2)),
        ((5, 2, 3), (3,)),
        ((2, 0), (0, 3)),
    ],
)
def test_products(a: tuple[int, ...], b: tuple[int, ...], device: str) -> None:
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=a), rng.normal(size=b)
    close(fb.matmul(fb.asarray(p, device=device), fb.asarray(q, device=device)), np.matmul(p, q))


def test_contractions(device: str) -> None:
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 4, 5))
    x, y = fb.asarray(p, device=device), fb.asarray(q, device=device)
    close(fb.tensordot(x, y), np.tensordot(p, q))
    close(fb.tensordot(x, y, axes=0), np.tensordot(p, q, axes=0))
    close(fb.tensordot(x, y, axes=([1, 2], [0, 1])), np.tensordot(p, q, axes=([1, 2], [0, 1])))
    close(fb.tensordot(x, y, axes=([2, -2], [1, 0])), np.tensordot(p, q, axes=([2, -2], [1, 0])))
    close(fb.vecdot(x, x), np.sum(p * p, -1))
    close(fb.vecdot(x, x, axis=-2), np.sum(p * p, -2))


def test_functions_of_neural_networks(device: str) -> None:
    x = fb.asarray(X, device=device)
    e = np.exp(X - X.max(-1, keepdims=True))
    close(fb.softmax(x), e / e.sum(-1, keepdims=True))
    close(fb.log_softmax(x, axis=0), X - np.log(np.exp(X).sum(0)))
    close(fb.logsumexp(x, axis=1), np.log(np.exp(X).sum(1)))
    assert fb.logsumexp(fb.asarray([-np.inf, -np.inf], device=device)).item() == -np.inf
    assert fb.logsumexp(fb.asarray([np.inf, 0.0], device=device)).item() == np.inf
    close(fb.silu(x), X / (1 + np.exp(-X)))
    close(fb.square(x), X**2)
    labels = np.asarray([1, 0, 3])
    want = -(X[0] - np.log(np.exp(X[0]).sum(-1, keepdims=True)))[np.arange(3), labels]
    for reduction, value in (("mean", want.mean()), ("sum", want.sum()), ("none", want)):
        close(fb.cross_entropy(x[0], fb.asarray(labels, device=device), reduction=reduction), value)
    close(fb.mse_loss(x, x + 1.0, reduction="sum"), X.size)
    mask = np.tri(3, dtype=bool)
    scores = X @ X.swapaxes(-1, -2) / 2.0
    scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    close(fb.scaled_dot_product_attention(x, x, x, mask=fb.asarray(mask, device=device)), weights @ X)


def test_operators_are_pythons(device: str) -> None:
    a, b = np.asarray([7, -7, 5]), np.asarray([2, 2, -3])
    x, y = fb.asarray(a, device=device), fb.asarray(b, device=device)
    for got, want in (
        (x + y, a + b),
        (x - y, a - b),
        (x * y, a * b),
        (x // y, a // b),
        (x % y, a % b),
        (-x, -a),
        (+x, a),
        (abs(x), abs(a)),
        (x < y, a < b),
        (x <= y, a <= b),
        (x > y, a > b),
        (x >= y, a >= b),
        (x == y, a == b),
        (x != y, a != b),
        (2 + x, 2 + a),
        (2 - x, 2 - a),
        (2 * x, 2 * a),
        (20 // x, 20 // a),
        (20 % x, 20 % a),
        (x**2, a**2),
    ):
        close(got, want)
    p, q = x > 0, y > 0
    for got, want in ((p & q, (a > 0) & (b > 0)), (p | q, (a > 0) | (b > 0)), (p ^ q, (a > 0) ^ (b > 0)), (~p, ~(a > 0))):
        close(got, want)
    f = fb.asarray(a / 4, device=device)
    close(1.0 / f, 4 / a)
    close(2.0**f, 2.0 ** (a / 4))
    assert [v.item() for v in x] == [7, -7, 5]
    assert len(x) == 3
    assert int(x[0]) == 7
    assert float(f[0]) == 1.75
    assert bool(p[0])
    assert [10, 11, 12, 13, 14, 15, 16, 17][x[0]] == 17
    with pytest.raises(TypeError):
        len(x[0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_in_place_of_nan_and_infinities(dtype: str, device: str) -> None:
    a = np.asarray([np.nan, np.inf, -np.inf, -0.0, 3.5], dtype)
    x = fb.asarray(a, device=device)
    for settings in ({}, {"nan": 2.0, "posinf": 7.0, "neginf": -7.0}):
        np.testing.assert_array_equal(fb.nan_to_num(x, **settings).numpy(), np.nan_to_num(a, **settings))
    assert fb.grad(lambda x: fb.sum(fb.nan_to_num(x, posinf=1.0, neginf=1.0)))(x).tolist() == [0, 0, 0, 1, 1]
    with pytest.raises(fb.DTypeError, match="nan_to_num: x needs a floating dtype"):
        fb.nan_to_num(fb.asarray([1], device=device))


@pytest.mark.parametrize("equal_nan", [False, True])
def test_closeness(equal_nan: bool, device: str) -> None:
    a = np.asarray([[1.0], [1.0 + 9e-6], [np.inf], [-np.inf], [np.nan], [0.0], [1e300]])
    b = np.asarray([1.0, 1.0 - 2e-6, np.inf, np.nan, 1e-9, -1e300])
    x, y = fb.asarray(a, device=device), fb.asarray(b, device=device)
    for tolerances in ({}, {"rtol": 0.0, "atol": 1e-5}, {"rtol": 1e-7}, {"rtol": 3.0}):
        with np.errstate(all="ignore"):
            want = np.isclose(a, b, equal_nan=equal_nan, **tolerances)
        np.testing.assert_array_equal(fb.isclose(x, y, equal_nan=equal_nan, **tolerances).numpy(), want)
    z = fb.asarray([1 + 1j], device=device)
    assert fb.isclose(z, z + 1e-9j).tolist() == [True]
    assert fb.allclose(x, x, equal_nan=equal_nan) is equal_nan
    assert fb.allclose(x[:2], y[:2], atol=1e-4) is True
    with pytest.raises(fb.ConfigError, match="allclose: rtol is ≥ 0"):
        fb.allclose(x, y, rtol=-1.0)
    with pytest.raises(fb.OperandError, match="isclose: x2 must be a Firebrick tensor"):
        fb.isclose(x, b)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_bools_are_sorted_with_false_first(axis: int, device: str) -> None:
    a = np.array([[True, False, True], [False, False, True]])
    x = fb.asarray(a, device=device)
    found = fb.sort(x, axis=axis)
    assert found.dtype is fb.bool
    assert found.tolist() == np.sort(a, axis=axis).tolist()
    assert fb.sort(x, axis=axis, descending=True).tolist() == np.flip(np.sort(a, axis=axis), axis=axis).tolist()
    assert fb.argsort(x, axis=axis).tolist() == np.argsort(a, axis=axis, stable=True).tolist()
    assert fb.jit(fb.sort)(x).tolist() == np.sort(a).tolist()
    edges = fb.asarray([False, True], device=device)
    assert fb.searchsorted(edges, x, side="right").tolist() == np.searchsorted([False, True], a, side="right").tolist()


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "float64", "complex64"])
def test_numbers_other_than_zero_are_true_to_logical_functions(name: str, dtype: str, device: str) -> None:
    a = np.array([0, 1, 2, 0]).astype(dtype)
    b = np.array([np.nan, 0.0, -0.0, 0.0])
    x, y = fb.asarray(a, device=device), fb.asarray(b, device=device)
    assert getattr(fb, name)(x, y).tolist() == getattr(np, name)(a, b).tolist()
    assert fb.logical_not(x).tolist() == np.logical_not(a).tolist()
    assert fb.jit(getattr(fb, name))(x, y).tolist() == getattr(np, name)(a, b).tolist()
    out = fb.ones(4, dtype=fb.bool, device=device)
    assert getattr(fb, name)(x, y, out=out) is out
    assert out.tolist() == getattr(np, name)(a, b).tolist()
