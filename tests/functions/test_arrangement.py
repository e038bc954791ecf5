"""Joining, cutting, rolling, repeating and diagonals, against NumPy (or PyTorch's definition), with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb

X = np.arange(24.0).reshape(2, 3, 4) - 7
KINDS = [X, X.astype(np.int8), X > 0, X + 1j * X[::-1]]


def same(got: fb.Tensor, want: Any) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype.name == want.dtype.name
    np.testing.assert_array_equal(got.numpy(), want)


def all_same(got: Any, want: Any) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        same(g, w)


@pytest.mark.parametrize("a", KINDS, ids=lambda a: str(a.dtype))
def test_axes_move_as_in_numpy(a: np.ndarray[Any, Any], device: str) -> None:
    x = fb.asarray(a, device=device)
    same(fb.swapaxes(x, 0, -1), np.swapaxes(a, 0, -1))
    same(fb.expand_dims(x, axis=(0, -1, 2)), np.expand_dims(a, (0, -1, 2)))
    same(fb.squeeze(x[:1, :, :1], axis=(0, -1)), np.squeeze(a[:1, :, :1], (0, -1)))
    same(fb.ravel(x.mT), np.ravel(a.swapaxes(1, 2)))
    same(fb.flatten(x, start_axis=1), a.reshape(2, 12))
    same(fb.flatten(x, end_axis=1), a.reshape(6, 4))
    same(fb.flatten(x[0, 0, 0]), a[0, 0, 0].reshape(1))
    for part, host in ((x[0, 0, 0], a[0, 0, 0]), (x[0, 0], a[0, 0]), (x[0], a[0]), (x, a)):
        for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
            same(getattr(fb, name)(part), getattr(np, name)(host))


@pytest.mark.parametrize("a", KINDS, ids=lambda a: str(a.dtype))
def test_tensors_are_joined_and_cut_as_in_numpy(a: np.ndarray[Any, Any], device: str) -> None:
    x = fb.asarray(a, device=device)
    for name in ("hstack", "vstack"):
        for part, host in ((x, a), (x[0], a[0]), (x[0, 0], a[0, 0]), (x[0, 0, 0], a[0, 0, 0])):
            same(getattr(fb, name)([part, part]), getattr(np, name)([host, host]))
    for axis in (0, 1, -1):
        all_same(fb.unstack(x, axis=axis), list(np.moveaxis(a, axis, 0)))
        for sections in (1, 2, 3, 5, [1], [0, 2, 2], []):
            if not isinstance(sections, list) or max(sections, default=0) <= a.shape[axis]:
                all_same(fb.array_split(x, sections, axis=axis), np.array_split(a, sections, axis=axis))
    assert fb.unstack(x[:0]) == ()


def test_split_and_chunk_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for n in (0, 1, 5, 6):
        x, t = fb.arange(2 * n).reshape((n, 2)), torch.arange(2 * n).reshape(n, 2)
        for k in (1, 2, 4, 9):
            all_same(fb.split(x, k), [p.numpy() for p in torch.split(t, k)])
            all_same(fb.chunk(x, k), [p.numpy() for p in torch.chunk(t, k)])


@pytest.mark.parametrize("shift", [0, 1, -1, 7, -30])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1, 1)])
def test_rolling(shift: int, axis: Any, device: str) -> None:
    for a in KINDS:
        same(fb.roll(fb.asarray(a, device=device), shift, axis=axis), np.roll(a, shift, axis))
    if isinstance(axis, tuple):
        same(fb.roll(fb.asarray(X, device=device), (shift, 2), axis=axis), np.roll(X, (shift, 2), axis))
    same(fb.roll(fb.zeros((0, 3), device=device), shift), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("k", range(-5, 6))
def test_turning(k: int, device: str) -> None:
    for axes in ((0, 1), (1, 0), (-1, 0)):
        same(fb.rot90(fb.asarray(X, device=device), k, axes=axes), np.rot90(X, k, axes))


def test_repeating(device: str) -> None:
    for a in KINDS:
        x = fb.asarray(a, device=device)
        for times in (2, (2, 1), (1, 2, 3), (2, 1, 1, 2), (0, 2, 1), ()):
            same(fb.tile(x, times), np.tile(a, times))
        for axis in (None, 0, 1, -1):
            for repeats in (0, 1, 3, [2]):
                same(fb.repeat(x, repeats, axis=axis), np.repeat(a, repeats, axis))
        same(fb.repeat(x, [0, 3, 1], axis=1), np.repeat(a, [0, 3, 1], 1))
        same(fb.repeat(x, fb.asarray([2, 0], device=device), axis=0), np.repeat(a, [2, 0], 0))
    same(fb.repeat(fb.zeros((2, 0), device=device), [], axis=1), np.zeros((2, 0), np.float32))


@pytest.mark.parametrize("offset", range(-4, 6))
def test_diagonals(offset: int, device: str) -> None:
    for a in KINDS:
        x = fb.asarray(a, device=device)
        for axes in ((0, 1), (1, 2), (2, 0), (-1, 1)):
            same(fb.diagonal(x, offset=offset, axis1=axes[0], axis2=axes[1]), np.diagonal(a, offset, *axes))
        same(fb.diag(x[0], offset=offset), np.diag(a[0], offset))
        same(fb.diag(x[0, 0], offset=offset), np.diag(a[0, 0], offset))
        matrices = fb.diag_embed(x, offset=offset)
        same(fb.diagonal(matrices, offset=offset, axis1=-2, axis2=-1), a)
        assert np.count_nonzero(matrices.numpy()) == np.count_nonzero(a)
        same(fb.diag_embed(x, offset=offset, axis1=0, axis2=2), np.moveaxis(matrices.numpy(), (-2, -1), (0, 2)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: fb.roll(x, 0, axis=0),
        lambda x: fb.roll(x, 0),
        lambda x: fb.rot90(x, 4),
        lambda x: fb.atleast_1d(x),
        lambda x: fb.atleast_2d(x),
        lambda x: fb.atleast_3d(x),
        lambda x: fb.flatten(x, start_axis=1, end_axis=1),
        lambda x: fb.tile(x, 1),
        lambda x: fb.repeat(x, 1, axis=0),
        lambda x: fb.split(x, 9)[0],
        lambda x: fb.pad(x, 0),
        lambda x: fb.pad(x, 0, mode="edge"),
        lambda x: fb.einsum("ijk->ijk", x),
        lambda x: fb.einsum("...", x),
        lambda x: fb.swapaxes(x, 0, 0),
        lambda x: fb.expand_dims(x, axis=()),
        lambda x: fb.squeeze(x, axis=()),
        lambda x: x[...],
        lambda x: x[()],
    ],
)
def test_a_result_is_another_handle_also_where_nothing_changes(function: Any, device: str) -> None:
    x = fb.asarray(X, device=device)
    y = function(x)
    same(y, X)
    y += 1.0
    same(x, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: fb.roll(x, (1, 2), axis=(0, 1)),
        lambda x: fb.tile(x, (2, 1, 2)),
        lambda x: fb.repeat(x, [2, 0, 1], axis=1),
        lambda x: fb.repeat(x, 2),
        lambda x: fb.rot90(x, 1),
        lambda x: fb.diagonal(x, offset=1),
        lambda x: fb.diag_embed(x[0], offset=-1),
        lambda x: fb.concat(fb.array_split(x * x, 2, axis=-1)[::-1], axis=-1),
        lambda x: fb.stack(fb.unstack(x, axis=1)[1:], axis=0),
        lambda x: fb.hstack([x[0], x[1] * x[0]]),
        lambda x: fb.vstack([x[0], x[1] * x[0]]),
    ],
)
def test_gradients(function: Any) -> None:
    fb.gradcheck(function, [fb.asarray(X[:, :, :3] / 5, device="numpy")])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: fb.split(x, [1, 1], axis=1), fb.ShapeError, "add up to axis 1"),
        (lambda x: fb.split(x, 0), fb.ShapeError, "must be ≥ 1"),
        (lambda x: fb.array_split(x, 0), fb.ShapeError, "int ≥ 1"),
        (lambda x: fb.array_split(x, [2, 1], axis=1), fb.ShapeError, "places rise"),
        (lambda x: fb.array_split(x, [9], axis=1), fb.ShapeError, "places rise"),
        (lambda x: fb.chunk(x, -1), fb.ShapeError, "chunks is an int"),
        (lambda x: fb.chunk(x, 2, axis=3), fb.OutOfRangeError, "axis must lie"),
        (lambda x: fb.roll(x, (1, 2)), fb.ShapeError, "need as many axes"),
        (lambda x: fb.roll(x, (1, 2), axis=(0, 1, 2)), fb.ShapeError, "one shift an axis"),
        (lambda x: fb.roll(x, 0.5, axis=0), fb.ShapeError, "a shift is an int"),
        (lambda x: fb.rot90(x, axes=(1, 1)), fb.ShapeError, "two different axes"),
        (lambda x: fb.tile(x, (-1,)), fb.ShapeError, "≥ 0"),
        (lambda x: fb.repeat(x, -1), fb.ShapeError, "ints ≥ 0"),
        (lambda x: fb.repeat(x, [[1, 2]]), fb.ShapeError, "repeats are ints ≥ 0 along one axis"),
        (lambda x: fb.repeat(x, 1.5), fb.OperandError, "repeats is an int"),
        (lambda x: fb.repeat(x, [1, 2], axis=1), fb.ShapeError, "one for each element of axis 1"),
        (lambda x: fb.expand_dims(x, axis=(0, 0)), fb.ShapeError, "distinct"),
        (lambda x: fb.squeeze(x, axis=(0, 0)), fb.ShapeError, "distinct"),
        (lambda x: fb.flatten(x, start_axis=2, end_axis=1), fb.ShapeError, "must not come after"),
        (lambda x: fb.diagonal(x, axis1=1, axis2=-2), fb.ShapeError, "must differ"),
        (lambda x: fb.diagonal(x[0, 0]), fb.ShapeError, "at least two axes"),
        (lambda x: fb.diag(x), fb.ShapeError, "a vector or a matrix"),
        (lambda x: fb.diag_embed(x, axis1=0, axis2=0), fb.ShapeError, "must differ"),
        (lambda x: fb.hstack([]), fb.OperandError, "non-empty list"),
        (lambda x: fb.vstack([x, X]), fb.OperandError, r"arrays\[1\] must be"),
        (lambda x: fb.stack([x, x[0]]), fb.ShapeError, "equal shapes"),
    ],
)
def test_bad_input_says_what_was_expected(call: Any, error: type[Exception], text: str, device: str) -> None:
    with pytest.raises(error, match=text):
        call(fb.asarray(X, device=device))
