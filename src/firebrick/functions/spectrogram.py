"""Short-time Fourier transforms: spectra of windows that slide along a signal, and the signal of such spectra."""

from __future__ import annotations

from typing import Any

from firebrick.core.bind import bind
from firebrick.core.dtypes import complex_of, real_of
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.functions.checks import staged
from firebrick.functions.creation import ones
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import astype, greater
from firebrick.functions.movement import broadcast_to, moveaxis
from firebrick.functions.statistical import min as min_
from firebrick.functions.windows import _starts, _sum_at, pad, unfold
from firebrick.ops import OPS
from firebrick.ops.linalg import check_precise

_LEAST = 1e-11
"""Smallest sum of squared windows by which ``istft`` divides."""


@answers_arguments
def stft(
    x: Tensor,
    /,
    n_fft: int,
    *,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
) -> Tensor:
    """The spectra of overlapping windows of a signal, each ``hop_length`` elements after the one before it.

    Args:
        x: Signals [..., time], real or complex; float32 or wider.
        n_fft: Elements of each transform.
        hop_length: Distance of neighbouring windows; n_fft // 4 by default.
        win_length: Length of the window, at most n_fft, its default.
        window: Tensor [win_length] that the signal is multiplied by, with zeros on both sides up to n_fft; ones by default.
        center: Pad the signal by n_fft // 2 on both sides, so that window t has its middle at element t · hop_length.
        pad_mode: The mode of that padding, as for ``fb.pad``.
        normalized: Divide by √n_fft.
        onesided: Return only the frequencies 0 … n_fft // 2; the default for real signals, and only for these.

    Returns:
        Complex tensor [..., frequencies, windows].

    Raises:
        ConfigError: A length does not fit.
        ShapeError: The signal is shorter than one window, or the window has another length.

    Example:
        >>> import firebrick as fb
        >>> fb.fft.stft(fb.ones(16), 4, hop_length=2).shape
        (3, 9)
    """
    check_operand("stft", x, "inexact")
    check_precise("stft", x)
    size, hop, shape = _sizes("stft", x, n_fft, hop_length, win_length, window)
    real = x.dtype.kind != "complex"
    onesided = real if onesided is None else onesided
    if onesided and not real:
        raise ConfigError("stft: only spectra of real signals are one-sided", describe("x", x), "pass onesided=False")
    if x.ndim < 1:
        raise ShapeError("stft takes signals [..., time]", describe("x", x), "add an axis")
    if center:
        x = pad(x, {-1: (size // 2, size // 2)}, mode=pad_mode)
    if x.shape[-1] < size:
        raise ShapeError(f"stft: a signal has at least n_fft = {size} elements", describe("x", x), "pad it, or take fewer")
    frames = unfold(x, axis=-1, size=size, step=hop)
    frames = frames if shape is None else frames * shape
    norm, axis = "ortho" if normalized else "backward", frames.ndim - 1
    if onesided:
        found: Tensor = bind(OPS["rfft"], (frames,), {"axis": axis, "norm": norm})
    else:
        wide = astype(frames, complex_of(frames.dtype)) if real else frames
        found = bind(OPS["fft"], (wide,), {"axes": (axis,), "norm": norm, "inverse": False})
    return moveaxis(found, -1, -2)


@answers_arguments
def istft(
    x: Tensor,
    /,
    n_fft: int,
    *,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
) -> Tensor:
    """The signal whose ``stft`` x is, or comes closest to x in the sense of least squares.

    Args:
        x: Complex tensor [..., frequencies, windows].
        n_fft: As for ``stft``, like the others.
        hop_length: Distance of neighbouring windows; n_fft // 4 by default.
        win_length: Length of the window; n_fft by default.
        window: Tensor [win_length]; ones by default.
        center: Whether the signal was padded; the padding is left out.
        normalized: Multiply by √n_fft.
        onesided: Whether x has the frequencies 0 … n_fft // 2 of a real signal; else the result is complex.
        length: Elements of the signal; as many as the windows cover by default. What they do not cover is 0.

    Returns:
        Real tensor [..., time], or a complex one.

    Raises:
        OutOfRangeError: The squared windows add up to 0 somewhere: the signal is not known there.
        ShapeError: x has another number of frequencies.

    Source: Griffin, Lim, "Signal estimation from modified short-time Fourier transform", 1984.

    Example:
        >>> import firebrick as fb
        >>> x = fb.arange(8, dtype=fb.float32)
        >>> back = fb.fft.istft(fb.fft.stft(x, 4), 4)
        >>> bool(fb.all(fb.abs(back - x) < 1e-5))
        True
    """
    check_operand("istft", x, "inexact")
    if x.dtype.kind != "complex":
        raise DTypeError("istft takes complex spectra", describe("x", x), "make them with fb.fft.stft or fb.complex")
    size, hop, shape = _sizes("istft", x, n_fft, hop_length, win_length, window)
    rows = size // 2 + 1 if onesided else size
    if x.ndim < 2 or x.shape[-2] != rows or not x.shape[-1]:
        raise ShapeError(f"istft: x is [..., {rows}, windows] here", describe("x", x), "check n_fft and onesided")
    norm = "ortho" if normalized else "backward"
    spectra = moveaxis(x, -2, -1)
    axis = spectra.ndim - 1
    if onesided:
        frames: Tensor = bind(OPS["irfft"], (spectra,), {"n": size, "axis": axis, "norm": norm})
    else:
        frames = bind(OPS["fft"], (spectra,), {"axes": (axis,), "norm": norm, "inverse": True})
    count = frames.shape[-2]
    total = (count - 1) * hop + size
    places = _starts(count, hop, size, 1)
    weights = ones((size,), dtype=real_of(x.dtype), device=x.device) if shape is None else shape
    signal = _sum_at(frames * weights, places, total, frames.ndim - 2)
    cover = _sum_at(broadcast_to(weights * weights, (count, size)), places, total, 0)
    first = size // 2 if center else 0
    last = total - first if length is None else min(first + whole("istft", "length", length, 0), total)
    signal, cover = signal[..., first:last], cover[first:last]
    _check_cover(cover)
    found = signal / cover
    missing = 0 if length is None else length - found.shape[-1]
    return pad(found, {-1: (0, missing)}) if missing > 0 else found


def _check_cover(cover: Tensor) -> None:
    if cover.device.engine == "meta" or not cover.size:
        return

    def error() -> OutOfRangeError:
        return OutOfRangeError(
            "istft: the squared windows add up to more than 0 everywhere", "a sum of 0",
            "use a smaller hop_length, center=True, or a window without zeros at its ends",
        )  # fmt: skip

    if not staged(lambda: greater(abs_(cover.detach()), _LEAST), error) and min_(abs_(cover.detach())).item() <= _LEAST:
        raise error()


def _sizes(
    name: str, x: Tensor, n_fft: Any, hop_length: Any, win_length: Any, window: Any
) -> tuple[int, int, Tensor | None]:  # fmt: skip
    """n_fft, the hop and the window of n_fft elements (None: ones)."""
    size = whole(name, "n_fft", n_fft, 1)
    hop = max(size // 4, 1) if hop_length is None else whole(name, "hop_length", hop_length, 1)
    width = size if win_length is None else whole(name, "win_length", win_length, 1)
    if width > size:
        raise ConfigError(f"{name}: win_length is at most n_fft", f"win_length={width}, n_fft={size}", "make n_fft larger")
    if window is None and width == size:
        return size, hop, None
    real = real_of(x.dtype)
    if window is None:
        window = ones((width,), dtype=real, device=x.device)
    check_operand(name, window, "floating", "window")
    check_devices(name, x=x, window=window)
    if window.shape != (width,):
        raise ShapeError(f"{name}: window has win_length = {width} elements", describe("window", window), "pass win_length too")
    before = (size - width) // 2
    return size, hop, pad(astype(window, real, copy=False), ((before, size - width - before),))


__all__ = ["istft", "stft"]
