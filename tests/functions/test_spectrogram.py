"""Short-time Fourier transforms against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(8)
SIGNAL = RNG.normal(size=(2, 50))
WINDOW = np.hanning(9)[:-1] + 0.1
SETTINGS: list[dict[str, Any]] = [
    {"n_fft": 8},
    {"n_fft": 8, "hop_length": 3, "window": WINDOW},
    {"n_fft": 12, "win_length": 8, "window": WINDOW, "hop_length": 2, "normalized": True},
    {"n_fft": 9, "hop_length": 4, "onesided": False, "pad_mode": "constant"},
    {"n_fft": 8, "hop_length": 2, "center": False},
    {"n_fft": 12, "win_length": 7, "hop_length": 3},
]


def both(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    window = settings.get("window")
    ours = settings if window is None else {**settings, "window": fb.asarray(window)}
    theirs = settings if window is None else {**settings, "window": torch.tensor(window)}
    return ours, theirs


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_spectra_and_signals_are_those_of_pytorch(settings: dict[str, Any]) -> None:
    ours, theirs = both(settings)
    want = torch.stft(torch.tensor(SIGNAL), return_complex=True, **theirs)
    found = fb.fft.stft(fb.asarray(SIGNAL), **ours)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-11, atol=1e-11)
    for each in (ours, theirs):
        each.pop("pad_mode", None)
    back = torch.istft(want, length=50, return_complex=not settings.get("onesided", True), **theirs)
    np.testing.assert_allclose(fb.fft.istft(found, length=50, **ours).numpy(), back.numpy(), rtol=1e-10, atol=1e-10)
    covered = torch.istft(want, return_complex=back.is_complex(), **theirs)
    np.testing.assert_allclose(fb.fft.istft(found, **ours).numpy(), covered.numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("engine", ["numpy", "cpu", "torch:cpu"])
def test_a_signal_comes_back_on_every_engine(engine: str) -> None:
    x = fb.asarray(SIGNAL.astype(np.float32), device=engine)
    window = fb.asarray(WINDOW.astype(np.float32), device=engine)
    there_and_back = fb.jit(lambda v: fb.fft.istft(fb.fft.stft(v, 8, window=window), 8, window=window, length=50))
    np.testing.assert_allclose(there_and_back(x).numpy(), SIGNAL, atol=2e-6)


def test_complex_signals_have_all_frequencies() -> None:
    z = SIGNAL + 1j * SIGNAL[:, ::-1]
    want = torch.stft(torch.tensor(z), 8, window=torch.ones(8, dtype=torch.float64), return_complex=True, onesided=False)
    found = fb.fft.stft(fb.asarray(z), 8)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(fb.fft.istft(found, 8, onesided=False, length=50).numpy(), z, atol=1e-12)
    with pytest.raises(fb.ConfigError, match="one-sided"):
        fb.fft.stft(fb.asarray(z), 8, onesided=True)


def test_gradients() -> None:
    x, window = fb.asarray(SIGNAL[0, :20]), fb.asarray(WINDOW)

    def f(v: fb.Tensor, w: fb.Tensor) -> fb.Tensor:
        y = fb.fft.stft(v, 8, hop_length=3, window=w)
        return fb.fft.istft(y * fb.abs(y), 8, hop_length=3, window=w)

    fb.gradcheck(f, [x, window])


def test_windows_that_leave_gaps_are_refused() -> None:
    found = fb.fft.stft(fb.asarray(SIGNAL), 8, hop_length=8)
    with pytest.raises(fb.OutOfRangeError, match="squared windows"):
        fb.fft.istft(found, 8, hop_length=9)
    compiled = fb.jit(lambda v: fb.fft.istft(v, 8, hop_length=9))
    with pytest.raises(fb.OutOfRangeError, match="squared windows"):
        compiled(found)


def test_spectra_on_meta_have_shapes_alone() -> None:
    x = fb.zeros((2, 50), device="meta")
    found = fb.fft.stft(x, 8)
    assert found.shape == (2, 5, 26)
    assert fb.fft.istft(found, 8, length=50).shape == (2, 50)


def test_lengths_that_do_not_fit_are_refused() -> None:
    x = fb.ones(6)
    for call, error, text in (
        (lambda: fb.fft.stft(x, 8, center=False), fb.ShapeError, "at least n_fft = 8"),
        (lambda: fb.fft.stft(x, 4, win_length=5), fb.ConfigError, "win_length is at most n_fft"),
        (lambda: fb.fft.stft(x, 4, window=fb.ones(3)), fb.ShapeError, "win_length = 4"),
        (lambda: fb.fft.stft(x, 0), fb.ConfigError, "n_fft"),
        (lambda: fb.fft.stft(x[0], 4), fb.ShapeError, r"stft takes signals \[\.\.\., time\]"),
        (lambda: fb.fft.istft(fb.fft.stft(x, 4), 6), fb.ShapeError, r"\[..., 4, windows\]"),
        (lambda: fb.fft.istft(x, 6), fb.DTypeError, "complex spectra"),
    ):
        with pytest.raises(error, match=text):
            call()
