"""Creation, conversion and exchange: what is copied, what is borrowed, what is refused."""

from __future__ import annotations

import ctypes
import itertools
from array import array
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import firebrick as fb
from firebrick.core.storage import BORROWED
from firebrick.testing import engines

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_can_be_created_read_and_filled(dtype: str, device: str) -> None:
    host = np.asarray([[0, 1, 1], [1, 0, 1]]).astype(fb.dtype(dtype).np)
    x = fb.asarray(host, device=device)
    assert (x.dtype.name, x.shape, x.device) == (dtype, (2, 3), fb.device(device))
    assert x.numpy().dtype == host.dtype
    assert x.numpy().tobytes() == host.tobytes()
    assert fb.ones((2,), dtype=dtype, device=device).numpy().astype(complex).tolist() == [1, 1]
    assert fb.zeros_like(x).numpy().tobytes() == np.zeros_like(host).tobytes()
    assert fb.full_like(x, 1).dtype.name == dtype
    assert fb.empty_like(x).shape == (2, 3)


@pytest.mark.parametrize("args", [(5,), (2, 9), (9, 2, -2), (0.0, 1.0, 0.3), (3, 3), (5, 2)], ids=str)
def test_arange(args: tuple[float, ...], device: str) -> None:
    got, want = fb.arange(*args, device=device), np.arange(*args)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    assert got.dtype.kind == ("int" if want.dtype.kind == "i" else "float")
    assert fb.arange(*args, dtype=fb.float64, device=device).dtype is fb.float64


def test_linspace_eye_full_and_one_hot(device: str) -> None:
    np.testing.assert_allclose(fb.linspace(0, 1, 5, device=device, dtype=fb.float64).numpy(), np.linspace(0, 1, 5))
    np.testing.assert_allclose(
        fb.linspace(0, 1, 4, endpoint=False, device=device).numpy(), np.linspace(0, 1, 4, endpoint=False)
    )
    for args in ((3,), (2, 4), (4, 2)):
        for k in (-1, 0, 2):
            np.testing.assert_array_equal(fb.eye(*args, k=k, device=device).numpy(), np.eye(*args, k=k))
    assert fb.full((2, 2), 7, device=device).dtype is fb.int64
    assert fb.full((), True, device=device).item() is True
    assert fb.full(3, 2.5, device=device).tolist() == [2.5] * 3
    np.testing.assert_array_equal(fb.one_hot(fb.asarray([2, 0], device=device), 3).numpy(), np.eye(3)[[2, 0]])
    with pytest.raises(IndexError):
        fb.one_hot(fb.asarray([3], device=device), 3)
    with pytest.raises(IndexError, match=r"one_hot: x must lie in \[0, 3\)"):
        fb.one_hot(fb.asarray([-1], device=device), 3)
    with pytest.raises(fb.DTypeError, match="integer"):
        fb.one_hot(fb.asarray([1.0], device=device), 3)
    labels = fb.asarray(np.zeros((2, 3), np.uint8), device=device)
    assert fb.one_hot(labels, 4, dtype=fb.bool).shape == (2, 3, 4)
    assert fb.one_hot(labels[:0], 0).shape == (0, 3, 0)
    # a row for each class of a large vocabulary is never made
    assert fb.sum(fb.one_hot(fb.asarray([99_999, 7], device=device), 100_000)).item() == 2.0


def test_numbers_spaced_by_powers(device: str) -> None:
    for endpoint in (True, False):
        given = {"endpoint": endpoint, "device": device, "dtype": fb.float64}
        np.testing.assert_allclose(
            fb.logspace(0, 3, 7, base=2.0, **given).numpy(), np.logspace(0, 3, 7, base=2.0, endpoint=endpoint)
        )
        np.testing.assert_allclose(fb.geomspace(1, 256, 5, **given).numpy(), np.geomspace(1, 256, 5, endpoint=endpoint))
        np.testing.assert_allclose(fb.geomspace(-1, -8, 4, **given).numpy(), np.geomspace(-1, -8, 4, endpoint=endpoint))
    assert fb.logspace(0, 2, 3, device=device).dtype is fb.float32
    assert fb.linspace(0, 1j, 3, device=device).dtype is fb.complex64
    assert fb.geomspace(1, 8, 4, dtype=fb.int32, device=device).dtype is fb.int32
    assert fb.linspace(0, 1, 0, device=device).shape == (0,)
    for call in (fb.linspace, fb.logspace, fb.geomspace):
        for num in (-1, 2.5, (2, 3)):
            with pytest.raises(fb.ShapeError):
                call(1.0, 2.0, num, device=device)
    with pytest.raises(fb.OutOfRangeError, match="must not be 0"):
        fb.geomspace(0, 8, 4, device=device)
    with pytest.raises(fb.ShapeError, match="≥ 0"):
        fb.eye(-1, device=device)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: fb.full(2, "a", device=d),
        lambda d: fb.full(2, [1, 2], device=d),
        lambda d: fb.full(2, None, device=d),
        lambda d: fb.arange("a", device=d),
        lambda d: fb.arange(0, [3], device=d),
        lambda d: fb.linspace(None, 1, 3, device=d),
        lambda d: fb.logspace(0, "b", 3, device=d),
        lambda d: fb.geomspace(0, np.ones(2), 3, device=d),
    ],
)
def test_what_is_no_number_is_refused(call: Any, device: str) -> None:
    with pytest.raises(fb.OperandError, match="is a number"):
        call(device)


@pytest.mark.parametrize("k", [-4, -1, 0, 2, 6])
def test_places_of_triangles(k: int, device: str) -> None:
    for rows, columns in ((3, 3), (2, 4), (4, 2), (0, 3)):
        for ours, theirs in ((fb.tril_indices, np.tril_indices), (fb.triu_indices, np.triu_indices)):
            found, want = ours(rows, columns, k=k, device=device), theirs(rows, k, columns)
            for at, w in zip(found, want, strict=True):
                assert at.dtype is fb.int64
                np.testing.assert_array_equal(at.numpy(), w)
            x = np.arange(float(rows * columns)).reshape(rows, columns)
            np.testing.assert_array_equal(fb.asarray(x, device=device)[found].numpy(), x[want])
    with pytest.raises(fb.ShapeError):
        fb.tril_indices(-2, device=device)


@pytest.mark.parametrize(
    ("value", "shape", "dtype"),
    [
        (1, (), "int64"),
        (1.5, (), "float32"),
        (True, (), "bool"),
        (1j, (), "complex64"),
        ([], (0,), "float32"),
        ([[1, 2], [3, 4]], (2, 2), "int64"),
        ([1, 2.5], (2,), "float32"),
        ([[True], [False]], (2, 1), "bool"),
        ([[], []], (2, 0), "float32"),
        ((1, 2), (2,), "int64"),
        (range(3), (3,), "int64"),
    ],
    ids=repr,
)
def test_python_values_get_the_default_dtypes(value: Any, shape: tuple[int, ...], dtype: str, device: str) -> None:
    x = fb.asarray(value, device=device)
    assert (x.shape, x.dtype.name) == (shape, dtype)


def test_a_numpy_array_keeps_its_dtype_and_is_copied(device: str) -> None:
    for dtype in ("float64", "int16", "float16"):
        a = np.ones(3, dtype)
        x = fb.asarray(a, device=device)
        a[:] = 0
        assert (x.dtype.name, x.tolist()) == (dtype, [1, 1, 1])
    assert fb.asarray(np.float64(2.0), device=device).dtype is fb.float64
    assert fb.asarray(np.ones(3, ">f4"), device=device).tolist() == [1.0] * 3
    assert fb.asarray(np.arange(6).reshape(2, 3).T[::-1], device=device).tolist() == [[2, 5], [1, 4], [0, 3]]


def test_copy_false_borrows_or_raises(device: str) -> None:
    a = np.arange(3.0)
    x = fb.asarray(a, device=device, copy=False)
    assert x.storage.kind == BORROWED
    a[0] = 9.0
    assert x.tolist() == [9.0, 1.0, 2.0], "borrowed memory is shared"
    for bad in ([1.0], 1.0):
        with pytest.raises(ValueError, match="copy=False forbids"):
            fb.asarray(bad, device=device, copy=False)
    with pytest.raises(ValueError, match="copy=False forbids"):
        fb.asarray(a, dtype=fb.float32, device=device, copy=False)
    t = fb.ones(3, device=device)
    assert fb.asarray(t, copy=False) is t
    with pytest.raises(ValueError, match="a move needs a copy, and copy=False forbids"):
        fb.asarray(t, device="numpy:1", copy=False)
    with pytest.raises(ValueError, match="copy=False forbids"):
        fb.asarray(t, dtype=fb.float64, copy=False)


def test_borrowed_memory_is_never_written(device: str) -> None:
    for borrow in (lambda a: fb.asarray(a, device=device, copy=False), lambda a: fb.from_dlpack(a, device=device)):
        a = np.ones(4)
        x = borrow(a)
        assert not x.storage.unique()
        x += 1.0
        x[0] = 7.0
        y = borrow(a)
        fb.multiply(y, 3.0, out=y)
        z = borrow(a)
        fb.add(fb.ones(4, dtype=fb.float64, device=device), 1.0, out=z)
        assert a.tolist() == [1.0] * 4
        assert x.tolist() == [7.0, 2.0, 2.0, 2.0]
        assert y.tolist() == [3.0] * 4
        assert z.tolist() == [2.0] * 4


def test_what_was_lent_by_dlpack_shares_memory_both_ways(device: str) -> None:
    a = np.arange(4.0)
    x = fb.from_dlpack(a, device=device)
    a[0] = 5.0
    assert x.tolist() == [5.0, 1.0, 2.0, 3.0]
    back = np.from_dlpack(x)
    assert back.tolist() == x.tolist()
    assert fb.from_dlpack(a, device=device, copy=True).tolist() == [5.0, 1.0, 2.0, 3.0]
    copied = fb.from_dlpack(a, device=device, copy=True)
    a[0] = 0.0
    assert copied.tolist()[0] == 5.0
    with pytest.raises(fb.OperandError, match="__dlpack__"):
        fb.from_dlpack([1.0])


@pytest.mark.skipif("torch" in engines().missing, reason="engine torch cannot be used here")
def test_torch_tensors_come_in_and_go_out() -> None:
    import torch

    for device in ("cpu", "numpy", "torch:cpu"):
        t = torch.arange(4.0)
        x = fb.from_dlpack(t, device=device)
        t[0] = 9.0
        assert x.tolist() == [9.0, 1.0, 2.0, 3.0]
        fb.add(x, x, out=x)
        assert t.tolist() == [9.0, 1.0, 2.0, 3.0]
        back = torch.from_dlpack(x)
        assert back.tolist() == x.tolist()
        assert fb.asarray(t).shape == (4,)
    half = torch.ones(3, dtype=torch.bfloat16)
    assert fb.from_dlpack(half, device="torch:cpu").dtype is fb.bfloat16


def test_tensors_pass_through_asarray(device: str) -> None:
    x = fb.ones(3, device=device)
    assert fb.asarray(x) is x
    again = fb.asarray(x, copy=True)
    assert again is not x
    assert again.tolist() == x.tolist()
    for dtype in ("bool", "int8", "complex64", "bfloat16"):
        y = fb.ones(3, dtype=dtype, device=device)
        assert fb.asarray(y, copy=True).dtype is y.dtype
    assert fb.asarray(x, dtype=fb.float64).dtype is fb.float64
    assert fb.asarray([x, x]).shape == (2, 3)
    assert fb.asarray([[x[0], 2.0]], device=device).tolist() == [[1.0, 2.0]]
    nan = fb.asarray(np.asarray([np.nan, -0.0]), device=device)
    assert fb.asarray(nan, copy=True).numpy().tobytes() == nan.numpy().tobytes()


SATURATES = [
    ("float32", "int8", [1e9, -1e9, np.nan, np.inf, -np.inf, 1.9, -1.9, 127.5], [127, -128, 0, 127, -128, 1, -1, 127]),
    ("float64", "uint8", [-1.0, 256.0, 255.9, -0.5, np.nan], [0, 255, 255, 0, 0]),
    ("float64", "int64", [1e30, -1e30, np.nan, 2.0**62], [2**63 - 1, -(2**63), 0, 2**62]),
    ("float32", "int32", [3e9, -3e9, 2147483520.0], [2**31 - 1, -(2**31), 2147483520]),
    ("float16", "uint8", [300.0, -2.0, 254.5], [255, 0, 254]),
    ("bfloat16", "int8", [300.0, -300.0, 3.9], [127, -128, 3]),
]


@pytest.mark.parametrize(("source", "goal", "values", "want"), SATURATES, ids=lambda v: v if isinstance(v, str) else "")
def test_floats_saturate_when_cast_to_integers(
    source: str, goal: str, values: list[float], want: list[int], device: str
) -> None:
    x = fb.asarray(np.asarray(values).astype(fb.dtype(source).np), device=device)
    assert fb.astype(x, goal).tolist() == want


def test_floats_within_bounds_saturate_when_cast_to_integers(device: str) -> None:
    x = np.asarray([np.nan, np.inf, -np.inf, 3e9, -3e9, 5e9, 2147483520.0, 1.9, -1.9, 0.0] * 5, np.float32)

    def cast(x: fb.Tensor, dtype: fb.DType, low: float, high: float) -> list[fb.Tensor]:
        both = fb.maximum(fb.minimum(x, high), low)
        bounded = both, fb.minimum(fb.maximum(x, low), high), fb.minimum(x, high), fb.maximum(x, low)
        return [fb.astype(v, dtype) for v in bounded]

    for dtype, low, high in itertools.product(
        (fb.int32, fb.uint32, fb.int64), (-4e9, -2147483648.0, 0.0), (100.0, 2147483520.0, 2147483648.0, 4294967040.0, 6e9)
    ):
        whole = np.iinfo(dtype.np)
        for found, clipped in zip(
            fb.jit(partial(cast, dtype=dtype, low=low, high=high))(fb.asarray(x, device=device)),
            (np.clip(x, low, high), np.clip(x, low, high), np.minimum(x, high), np.maximum(x, low)), strict=True,
        ):  # fmt: skip
            want = [0 if np.isnan(v) else min(max(int(min(max(float(v), -1e19), 1e19)), whole.min), whole.max) for v in clipped]
            assert found.tolist() == want, (dtype, low, high)


def test_casts_between_floats_round_to_nearest_even(device: str) -> None:
    x = fb.asarray(np.asarray([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 1e39, -1e39, np.nan]), device=device)
    got = fb.astype(x, fb.bfloat16).numpy().astype(float)
    assert got[:4].tolist() == [1.0, 1.0 + 2.0**-6, np.inf, -np.inf]
    assert np.isnan(got[4])
    assert fb.astype(x, fb.bfloat16).numpy().dtype == ml_dtypes.bfloat16
    assert fb.astype(fb.asarray([0.0, 2.0, np.nan], device=device), fb.bool).tolist() == [False, True, True]
    assert fb.astype(fb.asarray([300, -1], device=device), fb.uint8).tolist() == [44, 255], "integers wrap"
    assert fb.astype(fb.asarray([True], device=device), fb.float32).tolist() == [1.0]


def test_astype_gives_another_handle_unless_told_not_to(device: str) -> None:
    x = fb.ones(3, device=device)
    assert fb.astype(x, fb.float32, copy=False) is x
    y = fb.astype(x, fb.float32)
    y[0] = 5.0
    assert x.tolist() == [1.0] * 3


def test_plus_keeps_the_sign_of_zero(device: str) -> None:
    x = fb.asarray(np.asarray([-0.0, 0.0, -np.inf, np.nan]), device=device)
    assert (+x).numpy().tobytes() == x.numpy().tobytes()


def test_the_namespace_is_found_from_a_tensor() -> None:
    x = fb.ones(1)
    assert x.__array_namespace__() is fb
    info = fb.__array_namespace_info__()
    assert info.default_device() is fb.default_device()
    assert set(info.dtypes(kind="integral")) == {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    assert info.default_dtypes()["indexing"] is fb.int64
    assert fb.device("cpu:0") in info.devices()


@pytest.mark.parametrize("value", [300, -129, 2**70, 1e9, float("nan")])
def test_full_never_wraps_or_saturates_a_value_that_an_integer_dtype_cannot_hold(value: float, device: str) -> None:
    with pytest.raises(fb.DTypeError, match=r"full: fill_value must lie in the range of int8, \[-128, 127\]"):
        fb.full(2, value, dtype=fb.int8, device=device)
    assert fb.full(1, 2**64 - 1, dtype=fb.uint64, device=device).tolist() == [2**64 - 1]
    assert fb.full(1, 2**70, dtype=fb.float64, device=device).tolist() == [2.0**70]


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [(2**63, 2**63 + 5, 2), (2**64 - 3, 2**64, 1), (2**63 + 4, 2**63 - 4, -3), (2**53, 2**53 + 3, 1), (2**63 - 3, 2**63, 1)],
)
def test_arange_counts_large_integers_exactly(start: int, stop: int, step: int) -> None:
    assert fb.arange(start, stop, step, dtype=fb.uint64).tolist() == list(range(start, stop, step))
    if stop > 2**63:
        with pytest.raises(fb.DTypeError, match="range of int64"):
            fb.arange(start, stop, step)


def test_arange_takes_real_numbers_that_are_not_in_a_tensor() -> None:
    with pytest.raises(fb.OperandError, match=r"arange: stop is a Python number[^$]*stop.item\(\)"):
        fb.arange(fb.asarray(3))
    with pytest.raises(fb.OperandError, match="real numbers"):
        fb.arange(3j)
    with pytest.raises(fb.DTypeError, match="fit 64 bits"):
        fb.arange(2**64, 2**64 + 2)


def test_what_no_memory_holds_is_said_to_be_out_of_memory() -> None:
    for make in (
        lambda: fb.zeros((2**40, 2**40)),
        lambda: fb.full(2**61, 1.0),
        lambda: fb.arange(0, 1e30),
        lambda: fb.arange(10**30),
    ):
        with pytest.raises(fb.OutOfMemoryError, match="for its result"):
            make()


def test_a_geometric_sequence_does_not_change_its_sign() -> None:
    with pytest.raises(fb.OutOfRangeError, match="one sign"):
        fb.geomspace(-1.0, 8.0, 4)
    assert fb.geomspace(-1.0, -8.0, 4).tolist() == [-1.0, -2.0, -4.0, -8.0]


@pytest.mark.parametrize("value", [300, np.int64(300), np.float32(300.0), np.asarray(300)[()], fb.asarray(300)])
def test_a_fill_value_of_any_kind_must_lie_in_the_range_of_the_dtype(value: Any) -> None:
    with pytest.raises(fb.DTypeError, match="range of int8"):
        fb.full(2, value, dtype=fb.int8)
    assert fb.full(2, value, dtype=fb.int16).tolist() == [300, 300]


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
def test_memory_of_the_host_lands_on_the_default_device(device: str) -> None:
    with fb.use_device(device):
        assert fb.from_dlpack(np.arange(3.0)).device is fb.device(device)


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
def test_a_tensor_of_ours_taken_by_dlpack_is_another_handle(device: str) -> None:
    x = fb.ones(2, device=device)
    y = fb.from_dlpack(x)
    x += 1.0
    y *= 3.0
    assert (x.tolist(), y.tolist()) == ([2.0, 2.0], [3.0, 3.0])
    slopes = fb.grad(lambda x: fb.sum(fb.from_dlpack(x) * 2.0))(x)
    assert slopes.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8])
def test_numpy_scalars_are_spaced_as_the_python_numbers_that_they_count_as(kind: type) -> None:
    """They were spaced in their own precision."""
    a, b, wide = kind(1), kind(2), fb.float64
    assert fb.linspace(a, b, 8, dtype=wide).tolist() == fb.linspace(1.0, 2.0, 8, dtype=wide).tolist()
    assert fb.logspace(a, b, 8, base=kind(3), dtype=wide).tolist() == fb.logspace(1.0, 2.0, 8, base=3.0, dtype=wide).tolist()
    assert fb.geomspace(a, b, 8, dtype=wide).tolist() == fb.geomspace(1.0, 2.0, 8, dtype=wide).tolist()
    third = kind(1) / kind(3)
    assert fb.arange(kind(0), a, third, dtype=wide).tolist() == fb.arange(0.0, 1.0, float(third), dtype=wide).tolist()


def test_a_share_given_as_a_numpy_scalar_is_computed_with_in_full() -> None:
    logits, labels = fb.asarray([[1.0, 2.0, -1.0]], dtype=fb.float64), fb.asarray([1])
    share = np.float32(0.1)
    found = fb.cross_entropy(logits, labels, label_smoothing=share).item()
    assert found == fb.cross_entropy(logits, labels, label_smoothing=float(share)).item()


@pytest.mark.parametrize(
    "large", [[2**63, 1], [2**63 + 1, -1], [[2**63 - 1, 2**63]], [np.uint64(2**63 + 1), 2], [2**64 - 1, np.int8(1)]]
)
def test_lists_of_integers_beyond_int64_are_no_floats(large: Any) -> None:
    with pytest.raises(fb.DTypeError, match="range of int64"):
        fb.asarray(large)
    values = [int(v) for v in np.ravel(np.asarray(large, object))]
    if min(values) >= 0:
        assert [int(v) for v in np.ravel(fb.asarray(large, dtype=fb.uint64, device="numpy").numpy())] == values
    assert fb.asarray(large, dtype=fb.float64).dtype is fb.float64


class Column:
    """As the columns of data frames and files."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array([0.1, 16777217.0, 1e300])


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (Column, "float64"), (lambda: [Column()], "float64"), (lambda: array("d", [0.1, 1e300]), "float64"),
        (lambda: array("B", [1, 2]), "uint8"), (lambda: memoryview(np.array([0.1, 1e300])), "float64"),
        (lambda: bytearray(b"ab"), "uint8"), (lambda: (ctypes.c_double * 2)(1.0, 1e300), "float64"),
        (lambda: range(3), "int64"),
    ],
    ids=["array method", "in a list", "array of doubles", "array of bytes", "memoryview", "bytearray", "ctypes", "range"],
)  # fmt: skip
def test_what_numpy_makes_an_array_of_keeps_its_dtype(make: Any, dtype: str) -> None:
    given = make()
    made = fb.asarray(given)
    assert made.dtype.name == dtype
    assert made.tolist() == np.asarray(given).tolist()
    assert fb.asarray(given, dtype=fb.float32).dtype is fb.float32


@pytest.mark.parametrize("transform", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_a_tensor_that_fills_keeps_its_dtype_and_its_gradient(transform: Any) -> None:
    x = fb.asarray(2.0)
    for filled in (lambda v: fb.full((3,), v), lambda v: fb.full_like(fb.ones(3), v)):
        assert transform(fb.grad(lambda v, f=filled: fb.sum(f(v) * v)))(x).item() == 12.0
        assert transform(lambda v, f=filled: fb.jvp(f, (v,), (fb.ones_like(v),))[1])(x).tolist() == [1.0] * 3
    wide = transform(lambda v: fb.full((1,), v))(fb.asarray(1e300, dtype=fb.float64))
    assert wide.dtype is fb.float64
    assert wide.item() == 1e300
    assert fb.full((1,), np.array(1e300)).item() == 1e300
    assert fb.full((2,), fb.asarray(5), dtype=fb.int8).tolist() == [5, 5]


def test_python_floats_beside_tensors_of_float64_are_not_rounded() -> None:
    x = fb.asarray(0.1, dtype=fb.float64)
    assert fb.asarray([x, 0.2]).tolist() == [0.1, 0.2]
    assert fb.asarray([[x, 0.2], [0.3, 0.4]]).tolist() == [[0.1, 0.2], [0.3, 0.4]]
    assert fb.asarray([fb.asarray(1j, dtype=fb.complex128), 0.1j]).tolist() == [1j, 0.1j]
    assert fb.asarray([fb.asarray(0.5), 0.25]).dtype is fb.float32


@pytest.mark.parametrize("transform", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_python_numbers_beside_tensors_take_their_dtype_and_device_at_any_depth(transform: Any) -> None:
    t, half = fb.asarray(1.0), fb.asarray(1.0, dtype=fb.float16)
    for given, dtype, device in (
        ([t, 2], "float32", "cpu:0"), ([[t], [2]], "float32", "cpu:0"), ([fb.ones(2), [1, 2]], "float32", "cpu:0"),
        ([half, 2.5], "float16", "cpu:0"), ([[half], [2.5]], "float16", "cpu:0"), ([t, 1j], "complex64", "cpu:0"),
        ([t, np.float64(0.1)], "float64", "cpu:0"), ([fb.asarray(1.0, device="numpy:0"), 2.0], "float32", "numpy:0"),
    ):  # fmt: skip
        found = transform(lambda v: fb.asarray(v))(given)
        assert (found.dtype.name, found.device.name) == (dtype, device), given
    with pytest.raises(fb.DTypeError, match=r"\[-128, 127\]"):
        transform(lambda v: fb.asarray(v))([fb.asarray(1, dtype=fb.int8), 300])
    rotation = fb.grad(lambda v: fb.asarray([[fb.cos(v), -fb.sin(v)], [fb.sin(v), 2]])[0, 1])
    assert transform(rotation)(fb.asarray(0.0)).item() == -1.0


def test_views_of_torch_that_are_negated_or_conjugated_later() -> None:
    z = torch.tensor([1 + 2j])
    for view in (z.conj().imag, z.conj()):
        assert fb.asarray(view).tolist() == view.tolist()
        assert fb.from_dlpack(view).tolist() == view.tolist()


def test_integers_beyond_64_bits_are_numbers() -> None:
    with pytest.raises(fb.DTypeError, match=r"values must lie in the range of int64"):
        fb.asarray([2**64])
    with pytest.raises(fb.DTypeError, match=r"full: fill_value must lie in the range of int64"):
        fb.full((2,), 2**64)
    assert fb.asarray([2**64, 1.5]).tolist() == [2.0**64, 1.5]
    assert fb.asarray(2**64, dtype=fb.float32).item() == 2.0**64
    with pytest.raises(fb.DTypeError, match="numbers lie in the range of float64"):
        fb.asarray([10**400, 1.5])
    with pytest.raises(fb.OperandError, match="asarray takes numbers"):
        fb.asarray([None])
