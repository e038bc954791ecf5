"""Padding in every mode, sliding windows and patches of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import firebrick as fb

X = np.arange(24.0).reshape(2, 3, 4)
MODES = ["edge", "reflect", "symmetric", "wrap"]


def same(got: fb.Tensor, want: Any) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype.name == want.dtype.name
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
def test_every_mode_is_numpys(mode: str, device: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    room = [4 if mode == "edge" else n - (mode == "reflect") for n in shape]
    widths = tuple((data.draw(st.integers(0, r)), data.draw(st.integers(0, r))) for r in room)
    a = np.arange(float(np.prod(shape))).reshape(shape)
    same(fb.pad(fb.asarray(a, device=device), widths, mode=mode), np.pad(a, widths, mode=mode))


@pytest.mark.parametrize("mode", ["constant", *MODES])
def test_every_dtype_is_padded(mode: str, device: str) -> None:
    for a in (X > 9, X.astype(np.int8), X.astype(np.uint16), X.astype(np.float16), X + 1j):
        value = {"b": True, "c": 2j}.get(a.dtype.kind, 3)
        given = {"value": value} if mode == "constant" else {}
        want = np.pad(a, ((0, 0), (1, 2), (2, 0)), mode=mode, **({"constant_values": value} if given else {}))
        same(fb.pad(fb.asarray(a, device=device), ((0, 0), (1, 2), (2, 0)), mode=mode, **given), want)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float8_e4m3fn", "complex64"])
def test_what_nobody_writes_is_the_zero_of_the_dtype(dtype: str, device: str) -> None:
    x = fb.astype(fb.asarray([True, False], device=device), dtype)
    padded = fb.pad(x, 1)
    assert padded.dtype is x.dtype
    assert padded.tolist() == [0, 1, 0, 0]
    assert fb.jit(lambda x: fb.pad(x, 1))(x).tolist() == padded.tolist()
    selected = fb.masked_select(x, fb.asarray([True, False], device=device), size=3)
    assert selected.dtype is x.dtype
    assert selected.tolist() == [1, 0, 0]


def test_widths_may_be_given_for_all_axes_or_some(device: str) -> None:
    x = fb.asarray(X, device=device)
    same(fb.pad(x, 1), np.pad(X, 1))
    same(fb.pad(x, (1, 2)), np.pad(X, (1, 2)))
    same(fb.pad(x, [(1, 2), (0, 0), (3, 1)]), np.pad(X, [(1, 2), (0, 0), (3, 1)]))
    same(fb.pad(x, {-1: (1, 2), 0: 1}, mode="wrap"), np.pad(X, [(1, 1), (0, 0), (1, 2)], mode="wrap"))
    same(fb.pad(x[0, 0, 0], ()), X[0, 0, 0])


@pytest.mark.parametrize("mode", ["constant", *MODES])
def test_gradients_flow_through_padding(mode: str) -> None:
    x = fb.asarray(X[0] / 7, device="numpy")
    fb.gradcheck(lambda x: fb.pad(x * x, ((2, 1), (0, 3)), mode=mode), [x])


@pytest.mark.parametrize(
    ("widths", "mode", "error", "text"),
    [
        (-1, "constant", fb.ShapeError, "must be ≥ 0"),
        (((0, 0), (0, -2), (0, 0)), "edge", fb.ShapeError, "must be ≥ 0"),
        (((0, 0), (0, 3), (0, 0)), "reflect", fb.ShapeError, "at most 2 elements for a side of axis 1"),
        (((0, 0), (0, 4), (0, 0)), "symmetric", fb.ShapeError, "at most 3 elements for a side of axis 1"),
        (((0, 0), (4, 0), (0, 0)), "wrap", fb.ShapeError, "at most 3 elements for a side of axis 1"),
        (((1, 1),), "constant", fb.ShapeError, "one pair for each of the 3 axes"),
        (((1, 1, 1), (0, 0), (0, 0)), "constant", fb.ShapeError, "one pair"),
        (1.5, "constant", fb.ShapeError, "one pair an axis"),
        (1, "replicate", fb.ConfigError, 'write "edge"'),
        (1, "mirror", fb.ConfigError, "mode must be one of"),
        ({5: 1}, "constant", fb.OutOfRangeError, "axis must lie"),
    ],
)
def test_bad_widths_say_what_was_expected(widths: Any, mode: str, error: type[Exception], text: str, device: str) -> None:
    with pytest.raises(error, match=text):
        fb.pad(fb.asarray(X, device=device), widths, mode=mode)
    with pytest.raises(fb.DTypeError, match="Python scalar"):
        fb.pad(fb.asarray([1, 2], device=device), 1, value=0.5)
    with pytest.raises(fb.ShapeError, match="at most 0 elements"):
        fb.pad(fb.zeros((0, 2), device=device), ((1, 0), (0, 0)), mode="edge")


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("size", "step"), [(1, 1), (2, 1), (2, 2), (3, 2), (1, 3), (2, 5)])
def test_windows_are_pytorchs(axis: int, size: int, step: int, device: str) -> None:
    torch = pytest.importorskip("torch")
    a = np.arange(5 * 6 * 7).reshape(5, 6, 7)
    same(
        fb.unfold(fb.asarray(a, device=device), axis=axis, size=size, step=step),
        torch.asarray(a).unfold(axis, size, step).numpy(),
    )


_PATCHES = [
    {"kernel": 2},
    {"kernel": (2, 3), "stride": 2},
    {"kernel": 2, "padding": (1, 2)},
    {"kernel": (3, 1), "stride": (1, 3), "padding": 1, "dilation": (2, 1)},
]


@pytest.mark.parametrize("given", _PATCHES, ids=str)
def test_patches_are_pytorchs(given: dict[str, Any], device: str) -> None:
    torch = pytest.importorskip("torch")
    a = np.random.default_rng(0).normal(size=(2, 3, 6, 7))
    params = {k: v for k, v in given.items() if k != "kernel"}
    columns = torch.nn.functional.unfold(torch.asarray(a), given["kernel"], **params)
    ours = fb.unfold2d(fb.asarray(a, device=device), given["kernel"], **params)
    same(ours, columns.numpy())
    image = torch.nn.functional.fold(columns, (6, 7), given["kernel"], **params)
    np.testing.assert_allclose(fb.fold2d(ours, (6, 7), given["kernel"], **params).numpy(), image.numpy(), rtol=1e-12)


def test_gradients_flow_through_windows() -> None:
    x = fb.asarray(np.random.default_rng(0).normal(size=(1, 2, 4, 5)), device="numpy")
    for size, step in ((2, 1), (2, 2), (3, 2)):
        fb.gradcheck(lambda x, s=size, t=step: fb.unfold(x * x, axis=-1, size=s, step=t), [x])
    fb.gradcheck(lambda x: fb.unfold2d(x * x, 2, stride=(1, 2), padding=1), [x])
    fb.gradcheck(lambda x: fb.fold2d(fb.unfold2d(x, 2) * 2.0, (4, 5), 2), [x])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: fb.unfold(x, axis=-1, size=8), "size must be at most 7"),
        (lambda x: fb.unfold(x, axis=-1, size=0), "int ≥ 1"),
        (lambda x: fb.unfold(x, axis=-1, size=2, step=0), "step is an int ≥ 1"),
        (lambda x: fb.unfold2d(x, 9), "must fit into the padded image"),
        (lambda x: fb.unfold2d(x, (1, 2, 3)), "kernel is an int ≥ 1, or 2 of them"),
        (lambda x: fb.unfold2d(x, 2, padding=-1), "padding is an int ≥ 0"),
        (lambda x: fb.unfold2d(x[0], 2), "batch, channels, height, width"),
        (lambda x: fb.fold2d(x[0], (6, 7), 2), "takes columns"),
    ],
)
def test_bad_windows_say_what_was_expected(call: Any, text: str, device: str) -> None:
    with pytest.raises(fb.ShapeError, match=text):
        call(fb.zeros((2, 3, 6, 7), device=device))
    with pytest.raises(fb.OutOfRangeError):
        fb.unfold(fb.zeros(3, device=device), axis=1, size=2)
