"""``fb.fft`` against NumPy's, its gradients against torch's, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb

NORMS = ["backward", "ortho", "forward"]
REAL = ("rfft", "ihfft", "rfftn")


def random(shape: tuple[int, ...], real: bool = False) -> Any:
    rng = np.random.default_rng([1, *shape])
    x = rng.normal(size=shape)
    return x if real else x + 1j * rng.normal(size=shape)


def close(got: fb.Tensor, want: Any) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype.name == want.dtype.name
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_along_an_axis(name: str, norm: Any, device: str) -> None:
    a = random((4, 5, 3), name in REAL)
    x = fb.asarray(a, device=device)
    for axis in (0, 1, -1):
        for n in (None, 1, 4, 5, 6, 9):
            close(getattr(fb.fft, name)(x, n=n, axis=axis, norm=norm), getattr(np.fft, name)(a, n=n, axis=axis, norm=norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_transforms_along_several_axes(name: str, norm: Any, device: str) -> None:
    a = random((4, 5, 3), name in REAL)
    x = fb.asarray(a, device=device)
    cases: Any = [(None, None), ((3, 4), (0, 2)), ((5, 2), (2, 0)), (None, (1,)), ((6, 4), (-2, -1))]
    for s, axes in cases:
        got = getattr(fb.fft, name)(x, s=s, axes=axes, norm=norm)
        close(got, getattr(np.fft, name)(a, s, axes, norm))
    got = getattr(fb.fft, name)(x, s=(2, 6), norm=norm)
    close(got, getattr(np.fft, name)(a, (2, 6), (1, 2), norm))


def test_two_axes_are_the_last_ones(device: str) -> None:
    a = random((2, 3, 4))
    x = fb.asarray(a, device=device)
    close(fb.fft.fft2(x), np.fft.fft2(a))
    close(fb.fft.ifft2(x), np.fft.ifft2(a))
    close(fb.fft.fft2(x, s=(2, 2), axes=(0, 1)), np.fft.fft2(a, (2, 2), (0, 1)))


@pytest.mark.parametrize(("dtype", "want"), [("float32", "complex64"), ("float64", "complex128"), ("complex64", "complex64")])
def test_a_real_tensor_counts_as_complex(dtype: str, want: str, device: str) -> None:
    a = random((5,), real=True).astype(dtype)
    got = fb.fft.fft(fb.asarray(a, device=device))
    assert got.dtype.name == want
    np.testing.assert_allclose(got.numpy(), np.fft.fft(a), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_frequencies(n: int, device: str) -> None:
    for name in ("fftfreq", "rfftfreq"):
        want = getattr(np.fft, name)(n, 0.1)
        close(getattr(fb.fft, name)(n, d=0.1, dtype=fb.float64, device=device), want)
        assert getattr(fb.fft, name)(n, device=device).dtype is fb.float32


@pytest.mark.parametrize("axes", [None, 0, 1, (0, 2), -1])
def test_shifts(axes: Any, device: str) -> None:
    for a in (random((4, 5, 3)), np.arange(60).reshape(4, 5, 3), np.zeros((2, 0, 3))):
        x = fb.asarray(a, device=device)
        close(fb.fft.fftshift(x, axes=axes), np.fft.fftshift(a, axes))
        close(fb.fft.ifftshift(x, axes=axes), np.fft.ifftshift(a, axes))


def test_a_shift_of_nothing_is_another_handle(device: str) -> None:
    x = fb.ones(1, device=device)
    y = fb.fft.fftshift(x)
    y += 1.0
    assert x.tolist() == [1.0]


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "fft": lambda f, x: f.fft(x),
    "ifft": lambda f, x: f.ifft(x, n=7, norm="ortho"),
    "fft, cut": lambda f, x: f.fft(x, n=3, norm="forward"),
    "rfft of even length": lambda f, x: f.rfft(x, n=6),
    "rfft of odd length": lambda f, x: f.rfft(x, n=5, norm="ortho"),
    "irfft to even length": lambda f, x: f.irfft(x, n=6, norm="forward"),
    "irfft to odd length": lambda f, x: f.irfft(x, n=7),
    "hfft": lambda f, x: f.hfft(x, n=6),
    "ihfft": lambda f, x: f.ihfft(x, norm="forward"),
    "fftn": lambda f, x: f.fftn(x, s=(3, 6)),
    "ifft2": lambda f, x: f.ifft2(x),
    "rfftn": lambda f, x: f.rfftn(x),
    "irfftn": lambda f, x: f.irfftn(x, s=(4, 5), norm="ortho"),
    "fftshift": lambda f, x: f.fftshift(f.fft(x)) * f.ifftshift(x),
}


CASES = [(name, real) for name in FUNCTIONS for real in (False, True) if real or name.split()[0] not in REAL]


@pytest.mark.parametrize(("name", "real"), CASES)
def test_gradients_are_those_of_torch(name: str, real: bool, device: str) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    function = FUNCTIONS[name]
    a = random((4, 6), real)

    def loss(lib: Any, x: Any) -> Any:
        y = function(lib.fft, x)
        y = y * y
        weights = np.cos(np.arange(float(np.prod(y.shape)))).reshape(y.shape)
        w = weights + 1j * np.sin(3 * weights) if "complex" in str(y.dtype) else weights
        if lib is fb:
            return fb.sum(fb.real(y * fb.asarray(w, device=device)))
        z = y * torch.from_numpy(np.asarray(w))
        return (z.real if z.is_complex() else z).sum()

    theirs = torch.from_numpy(a).requires_grad_()
    value = loss(torch, theirs)
    value.backward()
    ours, got = fb.value_and_grad(lambda x: loss(fb, x))(fb.asarray(a, device=device))
    np.testing.assert_allclose(ours.item(), value.item(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(got.numpy(), theirs.grad.numpy(), rtol=1e-10, atol=1e-10)


def test_wrong_arguments_are_refused(device: str) -> None:
    x, z = fb.ones((2, 3), device=device), fb.ones((2, 3), dtype=fb.complex64, device=device)
    f = fb.fft
    for error, text, call in (
        (fb.ConfigError, "fft: norm is one of", lambda: f.fft(x, norm="half")),
        (fb.DTypeError, "fft needs a floating or complex", lambda: f.fft(fb.ones(3, dtype=fb.int32, device=device))),
        (fb.DTypeError, "fft computes in", lambda: f.fft(fb.ones(3, dtype=fb.float16, device=device))),
        (fb.DTypeError, "rfft takes real numbers", lambda: f.rfft(z)),
        (fb.DTypeError, "ihfft takes real numbers", lambda: f.ihfft(z)),
        (fb.DTypeError, "fftfreq needs a real floating dtype", lambda: f.fftfreq(3, dtype=fb.int32, device=device)),
        (fb.OutOfRangeError, "fft: axis must lie in", lambda: f.fft(x, axis=2)),
        (fb.ShapeError, "fft needs at least one axis", lambda: f.fft(fb.ones((), device=device))),
        (fb.ShapeError, "at least one element", lambda: f.fft(fb.ones((2, 0), device=device))),
        (fb.ShapeError, "rfft: a transform needs at least one element", lambda: f.rfft(x, n=0)),
        (fb.ShapeError, "irfft: a transform needs at least one", lambda: f.irfft(z[:, :1])),
        (fb.ShapeError, "n must be an int", lambda: f.fft(x, n=2.5)),
        (fb.ShapeError, "axes must be distinct", lambda: f.fftn(x, axes=(0, -2))),
        (fb.ShapeError, "s has one length for each axis", lambda: f.fftn(x, s=(2,), axes=(0, 1))),
        (fb.ShapeError, "at least one element", lambda: f.fftfreq(0)),
        (fb.OperandError, "rfft: x must be a Firebrick tensor", lambda: f.rfft(np.ones(3))),
        (fb.OperandError, "fftshift: x must be a Firebrick tensor", lambda: f.fftshift(np.ones(3))),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("axis", range(3))
def test_an_array_without_elements_has_the_shape_of_its_transform(name: str, axis: int, device: str) -> None:
    shape = [4, 4, 4]
    shape[(axis + 1) % 3] = 0
    x = np.zeros(shape, np.float32 if name in ("rfft", "ihfft") else np.complex64)
    found = getattr(fb.fft, name)(fb.asarray(x, device=device), axis=axis)
    assert found.shape == getattr(np.fft, name)(x, axis=axis).shape
