"""``fb.fft``: discrete Fourier transforms, the Array API standard's extension.

The forward transform is y_k = Σ_j x_j exp(-2πi jk / n), the inverse has the other sign. ``norm`` says where 1 / n goes:
``"backward"`` into the inverse, ``"forward"`` into the forward transform, ``"ortho"`` its root into both. ``n`` (``s`` for
several axes) cuts an axis or pads it with zeros first. Dtypes are float32, float64, complex64 and complex128; a real tensor
given to a complex transform counts as complex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from firebrick.core.bind import bind
from firebrick.core.dtypes import complex_of
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import number
from firebrick.core.shapes import normalize_axes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import broadcast_to, concat, reshape
from firebrick.functions.spectrogram import istft, stft
from firebrick.ops import OPS
from firebrick.ops.casts import conjugate
from firebrick.ops.fft import NORMS, TURNED
from firebrick.ops.linalg import check_precise

# arguments


def _operand(name: str, x: Any, norm: Any, *, real: bool = False) -> Tensor:
    """``x`` with a dtype that the transform takes."""
    if not isinstance(x, Tensor):
        raise not_a_tensor(name, "x", x, None)
    if norm not in NORMS:
        raise ConfigError(f"{name}: norm is one of {', '.join(map(repr, NORMS))}", repr(norm), "use one of these")
    if not x.dtype.is_inexact:
        raise DTypeError(f"{name} needs a floating or complex dtype", describe("x", x), "cast it: fb.astype(x, fb.float32)")
    check_precise(name, x)
    if real:
        if x.dtype.kind == "complex":
            raise DTypeError(f"{name} takes real numbers", describe("x", x), "use fft, or take the part you mean: fb.real(x)")
        return x
    return astype(x, complex_of(x.dtype)) if x.dtype.kind == "float" else x


def _length(name: str, n: Any, default: int) -> int:
    try:
        count = default if n is None else index(n)
    except TypeError:
        raise ShapeError(f"{name}: n must be an int", repr(n), "pass an int") from None
    if count < 1:
        raise ShapeError(f"{name}: a transform needs at least one element", f"n = {count}", "pass n ≥ 1, or check the shape")
    return count


def _axis(name: str, axis: Any, x: Tensor) -> int:
    if not x.ndim:
        raise ShapeError(f"{name} needs at least one axis", describe("x", x), "reshape it to one axis")
    return normalize_axis(axis, x.ndim, name)


def _axes(name: str, s: Any, axes: Any, x: Tensor) -> tuple[tuple[int, ...], list[Any]]:
    """Axes, in the order given, and the length that each is to have (None: its own)."""
    if s is not None and not isinstance(s, (tuple, list)):
        raise ShapeError(f"{name}: s is a list with the length of each axis", f"s={s!r:.60}", "pass e.g. (4, 4)")
    if axes is None and s is not None and len(s) > x.ndim:
        raise ShapeError(f"{name}: s has one length for each axis", f"s={s}, {describe('x', x)}", "leave some out")
    if axes is None:
        found = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    else:
        items = axes if isinstance(axes, (tuple, list)) else (axes,)
        found = tuple(normalize_axis(a, x.ndim, name) for a in items)
    if not found or len(set(found)) != len(found) or min(found) < 0:
        raise ShapeError(f"{name}: axes must be distinct, one at least", f"axes {axes} of {x.aval}", "name each axis once")
    lengths = [None] * len(found) if s is None else list(s)
    if len(lengths) != len(found):
        raise ShapeError(f"{name}: s has one length for each axis", f"s {tuple(lengths)} for axes {found}", "make them as long")
    return found, lengths


def _resized(x: Tensor, axis: int, n: int) -> Tensor:
    """x cut or padded with zeros to n elements along an axis."""
    size = x.shape[axis]
    if n < size:
        return x[(slice(None),) * axis + (slice(0, n),)]
    if n == size:
        return x
    shape = (*x.shape[:axis], n - size, *x.shape[axis + 1 :])
    zero: Tensor = hooks.from_host(np.zeros((), x.dtype.np), x.device)
    return concat([x, broadcast_to(zero, shape)], axis=axis)


def _complex(name: str, x: Tensor, s: Any, axes: Any, norm: str, inverse: bool) -> Tensor:
    x = _operand(name, x, norm)
    found, lengths = _axes(name, s, axes, x)
    for a, n in zip(found, lengths, strict=True):
        x = _resized(x, a, _length(name, n, x.shape[a]))
    return bind(OPS["fft"], (x,), {"axes": tuple(sorted(found)), "norm": norm, "inverse": inverse})  # type: ignore[no-any-return]


def _to_half(x: Tensor, axis: int, norm: str) -> Tensor:
    return bind(OPS["rfft"], (x,), {"axis": axis, "norm": norm})  # type: ignore[no-any-return]


def _from_half(x: Tensor, n: int, axis: int, norm: str) -> Tensor:
    half = _resized(x, axis, n // 2 + 1)
    return bind(OPS["irfft"], (half,), {"n": n, "axis": axis, "norm": norm})  # type: ignore[no-any-return]


# complex transforms


@answers_arguments
def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along an axis.

    Args:
        x: Tensor of a floating or complex dtype.
        n: Length of the axis, which is cut or padded with zeros; its own by default.
        axis: Axis.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor of x's shape, but n along the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.fft.fft(fb.asarray([1.0, 1.0, 1.0, 1.0]))).tolist()
        [4.0, 0.0, 0.0, 0.0]
    """
    return _along("fft", x, n, axis, norm, False)


@answers_arguments
def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of ``fft``.

    Args:
        x: Tensor of a floating or complex dtype.
        n: Length of the axis, which is cut or padded with zeros; its own by default.
        axis: Axis.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor of x's shape, but n along the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.fft.ifft(fb.asarray([4.0, 0.0, 0.0, 0.0]))).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    return _along("ifft", x, n, axis, norm, True)


def _along(name: str, x: Tensor, n: Any, axis: Any, norm: str, inverse: bool) -> Tensor:
    x = _operand(name, x, norm)
    return _complex(name, x, (n,), (_axis(name, axis, x),), norm, inverse)


@answers_arguments
def fftn(x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along several axes.

    Args:
        x: Tensor of a floating or complex dtype.
        s: Length of each axis, which is cut or padded with zeros; their own by default.
        axes: Axes; all by default, or the last ``len(s)``.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor of x's shape, but s along the axes.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.fft.fftn(fb.ones((2, 2)))).tolist()
        [[4.0, 0.0], [0.0, 0.0]]
    """
    return _complex("fftn", x, s, axes, norm, False)


@answers_arguments
def ifftn(x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Tensor:
    """The inverse of ``fftn``.

    Args:
        x: Tensor of a floating or complex dtype.
        s: Length of each axis, which is cut or padded with zeros; their own by default.
        axes: Axes; all by default, or the last ``len(s)``.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor of x's shape, but s along the axes.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.fft.ifftn(fb.ones((2, 2)))).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    return _complex("ifftn", x, s, axes, norm, True)


@answers_arguments
def fft2(x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Tensor:
    """``fftn`` along two axes.

    Args:
        x: Tensor of a floating or complex dtype.
        s: Length of each axis, which is cut or padded with zeros; their own by default.
        axes: Axes; the last two by default.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor of x's shape, but s along the axes.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.fft.fft2(fb.ones((2, 2)))).tolist()
        [[4.0, 0.0], [0.0, 0.0]]
    """
    return _complex("fft2", x, s, axes, norm, False)


@answers_arguments
def ifft2(x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Tensor:
    """``ifftn`` along two axes.

    Args:
        x: Tensor of a floating or complex dtype.
        s: Length of each axis, which is cut or padded with zeros; their own by default.
        axes: Axes; the last two by default.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor of x's shape, but s along the axes.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.fft.ifft2(fb.ones((2, 2)))).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    return _complex("ifft2", x, s, axes, norm, True)


# real numbers and their half spectra


@answers_arguments
def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Elements 0 to n / 2 of the transform of real numbers; the others are their conjugates.

    Args:
        x: Tensor of a floating dtype.
        n: Length of the axis, which is cut or padded with zeros; its own by default.
        axis: Axis.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor with n // 2 + 1 elements along the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.fft.rfft(fb.asarray([1.0, 1.0, 1.0, 1.0]))).tolist()
        [4.0, 0.0, 0.0]
    """
    x = _operand("rfft", x, norm, real=True)
    a = _axis("rfft", axis, x)
    return _to_half(_resized(x, a, _length("rfft", n, x.shape[a])), a, norm)


@answers_arguments
def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The n real numbers whose half spectrum x is; the imaginary parts of elements 0 and n / 2 are not read.

    Args:
        x: Tensor of a floating or complex dtype, cut or padded with zeros to n // 2 + 1 elements along the axis.
        n: Length of the result's axis; twice one less than x has by default.
        axis: Axis.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Real tensor of x's shape, but n along the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.fft.irfft(fb.asarray([4.0, 0.0, 0.0])).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    x = _operand("irfft", x, norm)
    a = _axis("irfft", axis, x)
    return _from_half(x, _length("irfft", n, 2 * (x.shape[a] - 1)), a, norm)


@answers_arguments
def rfftn(x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Tensor:
    """``rfft`` along the last of several axes, then ``fftn`` along the others.

    Args:
        x: Tensor of a floating dtype.
        s: Length of each axis, which is cut or padded with zeros; their own by default.
        axes: Axes; all by default, or the last ``len(s)``.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor of x's shape, but s along the axes: n // 2 + 1 along the last, n being its length.

    Example:
        >>> import firebrick as fb
        >>> fb.fft.rfftn(fb.ones((2, 4))).shape
        (2, 3)
    """
    x = _operand("rfftn", x, norm, real=True)
    found, lengths = _axes("rfftn", s, axes, x)
    *others, last = found
    half = _to_half(_resized(x, last, _length("rfftn", lengths[-1], x.shape[last])), last, norm)
    return _complex("rfftn", half, lengths[:-1], others, norm, False) if others else half


@answers_arguments
def irfftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The inverse of ``rfftn``: real numbers.

    Args:
        x: Tensor of a floating or complex dtype, cut or padded with zeros to n // 2 + 1 elements along the last of the axes.
        s: Length of each of the result's axes; those of x by default, but for the last, n, twice one less than x has.
        axes: Axes; all by default, or the last ``len(s)``.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Real tensor of x's shape, but s along the axes.

    Example:
        >>> import firebrick as fb
        >>> fb.fft.irfftn(fb.fft.rfftn(fb.ones((2, 4)))).tolist()
        [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    x = _operand("irfftn", x, norm)
    found, lengths = _axes("irfftn", s, axes, x)
    *others, last = found
    n = _length("irfftn", lengths[-1], 2 * (x.shape[last] - 1))
    if others:
        x = _complex("irfftn", x, lengths[:-1], others, norm, True)
    return _from_half(x, n, last, norm)


@answers_arguments
def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform, which is real, of a signal with x_{n-j} = conj(x_j), of which x is the first half.

    Args:
        x: Tensor of a floating or complex dtype, cut or padded with zeros to n // 2 + 1 elements along the axis.
        n: Length of the result's axis; twice one less than x has by default.
        axis: Axis.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Real tensor of x's shape, but n along the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.fft.hfft(fb.asarray([1.0, 0.0, 0.0])).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    x = _operand("hfft", x, norm)
    a = _axis("hfft", axis, x)
    return _from_half(conjugate(x), _length("hfft", n, 2 * (x.shape[a] - 1)), a, TURNED[norm])


@answers_arguments
def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of ``hfft``: the first half of the signal whose transform is the real x.

    Args:
        x: Tensor of a floating dtype.
        n: Length of the axis, which is cut or padded with zeros; its own by default.
        axis: Axis.
        norm: ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns:
        Complex tensor with n // 2 + 1 elements along the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.fft.ihfft(fb.asarray([1.0, 1.0, 1.0, 1.0]))).tolist()
        [1.0, 0.0, 0.0]
    """
    x = _operand("ihfft", x, norm, real=True)
    a = _axis("ihfft", axis, x)
    return conjugate(_to_half(_resized(x, a, _length("ihfft", n, x.shape[a])), a, TURNED[norm]))  # type: ignore[no-any-return]


# frequencies


def _frequencies(name: str, make: Callable[..., Any], n: int, d: float, dtype: Any, device: Any) -> Tensor:
    from firebrick.functions.creation import full

    home = full((), 0.0, dtype=dtype, device=device)
    if home.dtype.kind != "float":
        raise DTypeError(f"{name} needs a real floating dtype", as_dtype(dtype).name, "use fb.float32 or fb.float64")
    if not number(name, "d", d):
        raise ConfigError(f"{name}: d is the distance of samples, not 0", f"d={d!r}", "pass e.g. 1.0")
    found: Tensor = hooks.from_host(make(_length(name, n, n), d).astype(home.dtype.np), home.device)
    return found


@answers_arguments
def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of ``fft``: [0, 1, …, -2, -1] / (n · d).

    Args:
        n: Number of elements.
        d: Distance of two samples in time; frequencies are in cycles per unit of it.
        dtype: A real floating dtype; the device's default otherwise.
        device: Device of the result.

    Returns:
        Vector [n].

    Example:
        >>> import firebrick as fb
        >>> fb.fft.fftfreq(4, d=0.5).tolist()
        [0.0, 0.5, -1.0, -0.5]
    """
    return _frequencies("fftfreq", np.fft.fftfreq, n, d, dtype, device)


@answers_arguments
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of ``rfft``: [0, 1, …, n // 2] / (n · d).

    Args:
        n: Number of elements of the real signal.
        d: Distance of two samples in time; frequencies are in cycles per unit of it.
        dtype: A real floating dtype; the device's default otherwise.
        device: Device of the result.

    Returns:
        Vector [n // 2 + 1].

    Example:
        >>> import firebrick as fb
        >>> fb.fft.rfftfreq(4, d=0.5).tolist()
        [0.0, 0.5, 1.0]
    """
    return _frequencies("rfftfreq", np.fft.rfftfreq, n, d, dtype, device)


def _shifted(name: str, x: Any, axes: Any, sign: int) -> Tensor:
    if not isinstance(x, Tensor):
        raise not_a_tensor(name, "x", x, None)
    moved = reshape(x, x.shape)
    for a in normalize_axes(axes, x.ndim, name):
        size = x.shape[a]
        if size > 1:
            at, lead = (sign * (size // 2)) % size, (slice(None),) * a
            moved = concat([moved[(*lead, slice(size - at, size))], moved[(*lead, slice(0, size - at))]], axis=a)
    return moved


@answers_arguments
def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Frequency 0 moved to the middle of axes.

    Args:
        x: Tensor of any dtype.
        axes: Axis or axes; all by default.

    Example:
        >>> import firebrick as fb
        >>> fb.fft.fftshift(fb.asarray([0, 1, -2, -1])).tolist()
        [-2, -1, 0, 1]
    """
    return _shifted("fftshift", x, axes, 1)


@answers_arguments
def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The inverse of ``fftshift``: frequency 0 moved back to the start of axes.

    Args:
        x: Tensor of any dtype.
        axes: Axis or axes; all by default.

    Example:
        >>> import firebrick as fb
        >>> fb.fft.ifftshift(fb.asarray([-2, -1, 0, 1])).tolist()
        [0, 1, -2, -1]
    """
    return _shifted("ifftshift", x, axes, -1)


__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn",
    "istft", "rfft", "rfftfreq", "rfftn", "stft",
]  # fmt: skip
