"""take, gather and scatter in their public forms, against NumPy and PyTorch; ties and zeros in their gradients."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import firebrick as fb
from firebrick.core.errors import DTypeError

X = np.asarray([[0.5, -1.5, 2.0], [4.0, -0.25, 1.0]])
AT = np.asarray([[0, -1, 0, 1], [2, 2, 1, 0]])
U = np.asarray([[3.0, 0.0, -2.0, 5.0], [0.5, 1.5, 2.0, -1.0]])
FOLDS: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def grid(at: np.ndarray[Any, Any], axis: int) -> tuple[Any, ...]:
    places: list[Any] = list(np.ogrid[tuple(map(slice, at.shape))])
    places[axis] = at
    return tuple(places)


@pytest.mark.parametrize("reduce", ["set", *FOLDS])
@given(data=st.data())
def test_scatter_is_the_loop_over_its_updates(reduce: str, device: str, data: st.DataObject) -> None:
    shape = data.draw(npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    many = list(shape)
    many[axis] = data.draw(st.integers(0, 6))
    at = data.draw(npst.arrays(np.int64, tuple(many), elements=st.integers(-shape[axis], shape[axis] - 1)))
    dtype = data.draw(st.sampled_from(["float64", "int16", "int64"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    x, u = (rng.integers(-4, 5, s).astype(dtype) for s in (shape, tuple(many)))
    want = x.copy()
    if reduce == "set":
        want[grid(at, axis)] = u
    else:
        FOLDS[reduce].at(want, grid(at, axis), u)
    got = fb.scatter(*(fb.asarray(a, device=device) for a in (x, at, u)), axis=axis, reduce=reduce)
    assert got.dtype.name == dtype
    np.testing.assert_array_equal(got.numpy(), want)


def test_extremes_are_exact_and_keep_nan(device: str) -> None:
    x = fb.asarray([1.0, 1.0, float("nan"), 0.1], dtype=fb.float32, device=device)
    at = fb.asarray([0, 1, 2, 3, 3], device=device)
    u = fb.asarray([float("nan"), 0.3, 5.0, 0.7, 0.2], dtype=fb.float32, device=device)
    got = fb.scatter(x, at, u, reduce="max").numpy()
    np.testing.assert_array_equal(got, np.asarray([np.nan, 1.0, np.nan, 0.7], np.float32))


@pytest.mark.parametrize("reduce", ["set", *FOLDS])
def test_gradients_of_scatter_with_repeats(reduce: str) -> None:
    x, at, u = (fb.asarray(a, device="numpy") for a in (X, AT, U + 0.125))
    fb.gradcheck(lambda x, u: fb.scatter(x, at, u, axis=1, reduce=reduce), [x, u])
    fb.gradcheck(lambda x, u: fb.scatter(x, at, u, axis=1, reduce=reduce), [x, u], order=2)


@pytest.mark.parametrize("zeros", [(0,), (1,), (0, 1), (1, 2), (0, 1, 2, 3)])
def test_the_gradient_of_a_product_is_exact_at_zeros(zeros: tuple[int, ...], device: str) -> None:
    factors = np.asarray([2.0, 3.0, 5.0, 7.0])
    factors[list(zeros)] = 0.0
    x = fb.asarray(factors[:1], device=device)
    u = fb.asarray(factors[1:], device=device)
    at = fb.asarray([0, 0, 0], device=device)

    def product(x: fb.Tensor, u: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.scatter(x, at, u, reduce="mul"))

    of_x, of_u = fb.grad(lambda p: product(*p))((x, u))
    want = [np.prod(np.delete(factors, i)) for i in range(4)]
    assert [*of_x.tolist(), *of_u.tolist()] == want
    # the second derivatives are products of the other two
    second = fb.grad(lambda u: fb.sum(fb.grad(lambda p: product(*p))((x, u))[0]))(u)
    assert second.tolist() == [np.prod(np.delete(factors, [0, i])) for i in (1, 2, 3)]


@pytest.mark.parametrize(("reduce", "sign"), [("max", 1.0), ("min", -1.0)])
def test_the_first_of_equal_extremes_takes_the_gradient(reduce: str, sign: float, device: str) -> None:
    x = fb.asarray([sign * v for v in (1.0, 5.0, 0.0, float("nan"))], device=device)
    at = fb.asarray([0, 0, 0, 1, 1, 3], device=device)
    u = fb.asarray([sign * v for v in (0.0, 3.0, 3.0, 5.0, 2.0, 1.0)], device=device)
    of_x, of_u = fb.grad(lambda p: fb.sum(fb.scatter(p[0], at, p[1], reduce=reduce)[:3] * 2.0))((x, u))
    assert of_x.tolist() == [0.0, 2.0, 2.0, 0.0]
    assert of_u.tolist() == [0.0, 2.0, 0.0, 0.0, 0.0, 0.0]


def test_elements_along_an_axis_are_read_and_put_as_in_numpy(device: str) -> None:
    x = fb.asarray(X, device=device)
    for at, axis in ((AT, 1), (AT[:1], 1), (np.asarray([[1], [0]]), 0), (np.asarray([[0, 1, 1]]), 0), (AT[:, :1], -1)):
        shape = list(X.shape)
        shape[axis] = at.shape[axis]
        wide = np.broadcast_to(at, shape)
        got = fb.take_along_axis(x, fb.asarray(at, device=device), axis=axis)
        np.testing.assert_array_equal(got.numpy(), np.take_along_axis(X, wide, axis))
        want = X.copy()
        np.put_along_axis(want, wide, 9.0, axis)
        np.testing.assert_array_equal(fb.put_along_axis(x, fb.asarray(at, device=device), 9.0, axis=axis).numpy(), want)
    assert x.tolist() == X.tolist()


def test_slices_are_added_and_copied_as_in_pytorch(device: str) -> None:
    torch = pytest.importorskip("torch")
    at = np.asarray([1, 0, 1])
    for axis, u in ((0, np.arange(9.0).reshape(3, 3)), (1, np.arange(6.0).reshape(2, 3))):
        x, i, v = (fb.asarray(a, device=device) for a in (X, at, u))
        want = torch.asarray(X).index_add(axis, torch.asarray(at), torch.asarray(u))
        np.testing.assert_array_equal(fb.index_add(x, i, v, axis=axis).numpy(), want.numpy())
        want_copy = X.copy()
        want_copy[(slice(None),) * axis + (at,)] = u
        np.testing.assert_array_equal(fb.index_copy(x, i, v, axis=axis).numpy(), want_copy)


def test_masks_fill_and_select(device: str) -> None:
    x, mask = fb.asarray(X, device=device), np.asarray([True, False, True])
    m = fb.asarray(mask, device=device)
    np.testing.assert_array_equal(fb.masked_fill(x, m, 7.0).numpy(), np.where(mask, 7.0, X))
    np.testing.assert_array_equal(fb.masked_fill(x, m, x[0]).numpy(), np.where(mask, X[0], X))
    np.testing.assert_array_equal(fb.masked_select(x, m).numpy(), X[:, mask].reshape(-1))
    np.testing.assert_array_equal(fb.masked_select(x[0], x > 0).numpy(), np.broadcast_to(X[0], X.shape)[X > 0])
    assert fb.masked_fill(fb.asarray([1, 2], dtype=fb.int8, device=device), fb.asarray(True, device=device), 3).tolist() == [
        3,
        3,
    ]


def test_gradients_of_masks_and_slices() -> None:
    x = fb.asarray(X, device="numpy")
    mask, at = fb.asarray(X > 0.6, device="numpy"), fb.asarray([1, 0, 1], device="numpy")
    v = fb.asarray(np.arange(6.0).reshape(2, 3), device="numpy")
    fb.gradcheck(lambda x: fb.masked_select(x * x, mask), [x])
    fb.gradcheck(lambda x, v: fb.masked_fill(x * x, mask, v), [x, v])
    fb.gradcheck(lambda x, v: fb.index_copy(x, at, v, axis=1), [x, v])
    fb.gradcheck(lambda x: x[[0, 1, 1], ::-1] * x[None, 0, at], [x])
    fb.gradcheck(lambda x: x.reshape((1, 2, 3))[:, at[:2], at[:2]], [x])

    def assigned(x: fb.Tensor, v: fb.Tensor) -> fb.Tensor:
        y = x * 1.0
        y[at[:2], :, None] = v[:, :, None] * v[:, :, None]
        y[0, at] += v[1]
        return y

    fb.gradcheck(assigned, [x, v])


def test_embedding_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    at, table = np.asarray([[1, 0, 3], [3, 3, 1]]), np.random.default_rng(0).normal(size=(4, 5))
    for padding in (None, 3, -1):
        theirs = torch.asarray(table).requires_grad_()
        out = torch.nn.functional.embedding(torch.asarray(at), theirs, padding_idx=padding)
        (out**2).sum().backward()
        grad = fb.grad(lambda w, p=padding: fb.sum(fb.square(fb.embedding(fb.asarray(at), w, padding_index=p))))
        np.testing.assert_array_equal(fb.embedding(fb.asarray(at), fb.asarray(table)).numpy(), out.detach().numpy())
        np.testing.assert_allclose(grad(fb.asarray(table)).numpy(), theirs.grad.numpy(), rtol=1e-14)


def test_indices_of_a_narrow_dtype_reach_the_end_of_a_long_axis(device: str) -> None:
    x, at = fb.zeros(300, device=device), fb.asarray([-1, 5], dtype=fb.int8, device=device)
    ones = fb.ones(2, device=device)
    for y in (
        fb.index_add(x, at, ones),
        fb.index_copy(x, at, ones),
        *(fb.scatter(x, at, ones, reduce=r) for r in ("set", "add", "max")),
        fb.put_along_axis(x, at, 1.0),
    ):
        assert fb.nonzero(y)[0].tolist() == [5, 299]
    grid = fb.zeros((300, 300), device=device)
    grid[at, at] = 1.0
    assert grid[at, at].tolist() == [1.0, 1.0]
    assert grid[299, 299].item() == 1.0
    table = fb.ones((300, 1), device=device)
    grad = fb.grad(lambda w: fb.sum(fb.embedding(at, w, padding_index=299)))(table)
    assert (grad[5].item(), grad[299].item()) == (1.0, 0.0)


@pytest.mark.parametrize("kind", ["uint8", "int32"])
def test_indices_of_any_integer_dtype_name_the_padding_row(kind: str, device: str) -> None:
    at = fb.asarray([2, 0], dtype=kind, device=device)
    grad = fb.grad(lambda w: fb.sum(fb.embedding(at, w, padding_index=-1)))(fb.ones((3, 2), device=device))
    assert grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x, i: fb.embedding(i + 9, x), fb.OutOfRangeError, r"embedding: indices must lie in \[-2, 2\)"),
        (lambda x, i: fb.embedding(i - 9, x), fb.OutOfRangeError, "embedding: indices"),
        (lambda x, i: fb.embedding(i, x, padding_index=2), fb.OutOfRangeError, "padding_index is an int"),
        (lambda x, i: fb.embedding(i, x[0]), fb.ShapeError, "weight is a table"),
        (lambda x, i: fb.embedding(x, x), fb.DTypeError, "indices needs an integer dtype"),
        (lambda x, i: fb.scatter(x, x, x), fb.DTypeError, "indices needs an integer dtype"),
        (lambda x, i: fb.scatter(x[0], i, 1.0, reduce="mean"), fb.ConfigError, "reduce must be one of set, add"),
        (lambda x, i: fb.scatter(x[0], i + 3, 1.0, reduce="max"), fb.OutOfRangeError, "scatter: indices must lie"),
        (lambda x, i: fb.scatter(x[0], i, "a"), fb.OperandError, "updates must be a Firebrick tensor"),
        (lambda x, i: fb.scatter(x, i, 1.0), fb.ShapeError, "indices must have x's shape"),
        (lambda x, i: fb.scatter(x[0], i, x), fb.ShapeError, "updates must broadcast to the indices' shape"),
        (lambda x, i: fb.scatter(x[0], i, 1.0, axis=1), fb.OutOfRangeError, "axis must lie"),
        (lambda x, i: fb.scatter_add(x, i, 1j), fb.DTypeError, "Python scalar"),
        (lambda x, i: fb.take_along_axis(x, i), fb.ShapeError, "equally many axes"),
        (lambda x, i: fb.take_along_axis(x, fb.stack([i, i, i])), fb.ShapeError, "apart from axis 1"),
        (lambda x, i: fb.put_along_axis(x, fb.stack([i, i, i]), 0.0), fb.ShapeError, "indices must broadcast to x's shape"),
        (lambda x, i: fb.index_copy(x, i, x[0]), fb.ShapeError, r"updates must have the shape \(2, 3\)"),
        (lambda x, i: fb.index_copy(x, i.reshape((1, 2)), x), fb.ShapeError, "indices has one axis"),
        (lambda x, i: fb.index_add(x, i, x[0]), fb.ShapeError, "updates must have the shape"),
        (lambda x, i: fb.masked_fill(x, i, 0.0), fb.DTypeError, "mask needs the bool dtype"),
        (lambda x, i: fb.masked_fill(x[0], x > 0, 0.0), fb.ShapeError, "must broadcast to x's shape"),
        (lambda x, i: fb.masked_select(x, i), fb.DTypeError, "mask needs the bool dtype"),
        (lambda x, i: fb.masked_select(x, x[:, :2] > 0), fb.ShapeError, "masked_select"),
    ],
)
def test_bad_input_says_what_was_expected(call: Any, error: type[Exception], text: str, device: str) -> None:
    with pytest.raises(error, match=text):
        call(fb.asarray(X, device=device), fb.asarray([0, 1], device=device))


KEPT = {  # dtypes of x and of the value, and the remedy
    ("float32", "float64"): "cast value with fb.astype(value, fb.float32), or x with fb.astype(x, fb.float64)",
    ("float16", "bfloat16"): "cast value with fb.astype(value, fb.float16), or x with fb.astype(x, fb.float32)",
    ("int32", "float32"): "cast value with fb.astype(value, fb.int32), or x with fb.astype(x, fb.float32)",
    ("float32", "int64"): "cast value with fb.astype(value, fb.float32)",
    ("int64", "uint64"): "cast value with fb.astype(value, fb.int64)",
    ("float32", "complex64"): "cast x with fb.astype(x, fb.complex64)",
}


@pytest.mark.parametrize(("x", "value"), KEPT)
def test_a_value_of_another_dtype_is_refused_by_the_dtype_that_x_keeps(x: str, value: str) -> None:
    def assign() -> None:
        kept[0] = one

    kept, one = fb.zeros(3, dtype=x), fb.ones((), dtype=value)
    for name, call in (("x[key] = value", assign), ("masked_fill", lambda: fb.masked_fill(kept, kept == kept, one))):
        with pytest.raises(DTypeError) as caught:
            call()
        assert str(caught.value) == (
            f"{name} must keep the dtype of x, {x}\n"
            f"Received: value: {value}[] on cpu:0 and x: {x}[3] on cpu:0.\n"
            f"Remedy: {KEPT[x, value]}."
        )
    for cast in re.findall(r"fb\.astype\(.*?\)", KEPT[x, value]):
        assert eval(cast, {"fb": fb, "x": kept, "value": one}).dtype.name == cast.removesuffix(")").rpartition(".")[2]


def test_indices_on_another_device_are_refused_by_the_name_of_the_function() -> None:
    x, at = fb.ones((2, 2), device="numpy:0"), fb.zeros((2, 2), dtype=fb.int64, device="numpy:1")
    for call in (lambda: fb.take_along_axis(x, at, axis=0), lambda: fb.put_along_axis(x, at, 1.0, axis=0)):
        with pytest.raises(fb.DeviceMismatchError, match=r"^(take|put)_along_axis: .*\n.*indices: int64"):
            call()
