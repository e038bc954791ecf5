"""Discrete Fourier transforms: complex ones over several axes, and those from and to real numbers over one.

``norm`` says where 1 / n goes: ``"backward"`` into the inverse, ``"forward"`` into the forward transform, ``"ortho"`` its root
into both. The adjoint of a transform goes the other way with the other norm; for half spectra, elements that stand for two
of the whole count twice. The imaginary parts of ``irfft``'s elements 0 and n / 2 are not read.
"""

from __future__ import annotations

from math import log2
from typing import Any, Literal

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import complex_of, real_of
from firebrick.core.errors import ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, Sample
from firebrick.ops.declare import COMPLEX, Array, size_of, values
from firebrick.ops.linalg import check_precise
from firebrick.ops.table import register

Norm = Literal["backward", "ortho", "forward"]
NORMS = ("backward", "ortho", "forward")
TURNED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _check_length(op: str, n: int) -> None:
    if n < 1:
        raise ShapeError(f"{op}: a transform needs at least one element", f"{n}", "pass n ≥ 1, or check the shape")


def _cost(ins: Any, outs: Any, params: Any) -> Cost:
    size = max(ins[0].size, outs[0].size)
    return Cost(5.0 * size * log2(max(2, size)), sum(a.nbytes for a in (*ins, *outs)))


def _scale(x: Array, n: int, axes: tuple[int, ...], norm: str, inverse: bool) -> Array:
    """The root of the sum of squares along the axes, times log₂ n: each stage of a fast transform rounds once."""
    factor = {"backward": 1 / n if inverse else 1.0, "ortho": n**-0.5, "forward": 1.0 if inverse else 1 / n}[norm]
    size = np.sqrt(np.sum(np.abs(x) ** 2, axis=axes, keepdims=True))
    return np.asarray(factor * max(1.0, log2(n)) * size)


# complex to complex


def _infer_fft(x: Any, *, axes: tuple[int, ...], norm: str, inverse: bool) -> Aval:
    check_precise("fft", x)
    for a in axes:
        _check_length("fft", x.shape[a])
    return Aval(x.shape, x.dtype)


def _fft_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((3, 4), (1,)), ((3, 4), (0, 1)), ((5,), (0,)), ((2, 3, 4), (0, 2)), ((0, 3), (1,)), ((1,), (0,)), ((7, 2), (0,)),
        ((2, 257), (1,)),
    )  # fmt: skip
    out = []
    for i, (shape, axes) in enumerate(cases):
        for inverse in (False, True):
            params = {"axes": axes, "norm": NORMS[(i + inverse) % 3], "inverse": inverse}
            out.append(Sample((values(rng, name, shape),), params, 257 not in shape, f"{shape} {params}"))
    return out


def _fft_vjp(g: Any, r: Any) -> Any:
    p = r.params
    return (fft(g, axes=p["axes"], norm=TURNED[p["norm"]], inverse=not p["inverse"]),)


def _fft_scale(x: Array, *, axes: tuple[int, ...], norm: str, inverse: bool) -> Array:
    return _scale(x, size_of(x.shape[a] for a in axes), axes, norm, inverse)


@register(
    operands="x:complex", infer=_infer_fft, vjp=_fft_vjp, residuals=(), samples=_fft_samples, cost=_cost, bound="memory",
    fusion="opaque", tolerance=3, complex_tolerance=3, scale=_fft_scale, dtypes=COMPLEX,
)  # fmt: skip
def fft(x: Array, *, axes: tuple[int, ...], norm: Norm, inverse: bool) -> Array:
    """Σ x exp(∓2πi jk / n) over axes."""
    transform = np.fft.ifftn if inverse else np.fft.fftn
    return np.asarray(transform(x, axes=axes, norm=norm))


# real to half spectrum and back


def _weights(g: Any, n: int, axis: int, inner: float) -> Any:
    """``g`` with the elements of a half spectrum that stand for two of the whole times ``inner``."""
    w = np.full(n // 2 + 1, inner)
    w[0] = 1.0
    if n % 2 == 0:
        w[-1] = 1.0
    shape = [-1 if i == axis else 1 for i in range(len(g.shape))]
    return g * hooks.from_host(w.astype(g.dtype.np).reshape(shape), g.device)


_HALVES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((3, 4), 1), ((5, 2), 0), ((2, 3, 5), 1), ((6,), 0), ((1,), 0), ((0, 3), 1), ((2, 258), 1),
)  # fmt: skip


def _infer_rfft(x: Any, *, axis: int, norm: str) -> Aval:
    check_precise("rfft", x)
    _check_length("rfft", x.shape[axis])
    shape = (*x.shape[:axis], x.shape[axis] // 2 + 1, *x.shape[axis + 1 :])
    return Aval(shape, complex_of(x.dtype))


def _rfft_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    return [
        Sample((values(rng, name, s),), {"axis": a, "norm": NORMS[i % 3]}, 258 not in s, f"{s} axis {a} {NORMS[i % 3]}")
        for i, (s, a) in enumerate(_HALVES)
    ]


def _rfft_vjp(g: Any, r: Any) -> Any:
    axis, n = r.params["axis"], r.avals[0].shape[r.params["axis"]]
    return (irfft(_weights(g, n, axis, 0.5), n=n, axis=axis, norm=TURNED[r.params["norm"]]),)


@register(
    operands="x:floating", infer=_infer_rfft, vjp=_rfft_vjp, residuals=(), samples=_rfft_samples, cost=_cost, bound="memory",
    fusion="opaque", tolerance=3, scale=lambda x, *, axis, norm: _scale(x, x.shape[axis], (axis,), norm, False),
    dtypes=("float64", "float32"),
)  # fmt: skip
def rfft(x: Array, *, axis: int, norm: Norm) -> Array:
    """Elements 0 to n / 2 of the transform of real numbers along an axis; the others are their conjugates."""
    return np.asarray(np.fft.rfft(x, axis=axis, norm=norm))


def _infer_irfft(x: Any, *, n: int, axis: int, norm: str) -> Aval:
    check_precise("irfft", x)
    _check_length("irfft", n)
    if x.shape[axis] != n // 2 + 1:
        want = f"irfft: {n} real numbers have {n // 2 + 1} elements of a half spectrum"
        raise ShapeError(want, f"{x.shape[axis]}", "pad or cut it")
    return Aval((*x.shape[:axis], n, *x.shape[axis + 1 :]), real_of(x.dtype))


def _irfft_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for i, (s, a) in enumerate(_HALVES):
        half = (*s[:a], s[a] // 2 + 1, *s[a + 1 :])
        params = {"n": s[a], "axis": a, "norm": NORMS[i % 3]}
        out.append(Sample((values(rng, name, half),), params, 258 not in s, f"{half} {params}"))
    return out


def _irfft_vjp(g: Any, r: Any) -> Any:
    axis, n = r.params["axis"], r.params["n"]
    return (_weights(rfft(g, axis=axis, norm=TURNED[r.params["norm"]]), n, axis, 2.0),)


@register(
    operands="x:complex", infer=_infer_irfft, vjp=_irfft_vjp, residuals=(), samples=_irfft_samples, cost=_cost,
    bound="memory", fusion="opaque", tolerance=3, complex_tolerance=3,
    scale=lambda x, *, n, axis, norm: _scale(x, n, (axis,), norm, True), dtypes=COMPLEX,
)  # fmt: skip
def irfft(x: Array, *, n: int, axis: int, norm: Norm) -> Array:
    """The n real numbers along an axis whose half spectrum x is."""
    return np.asarray(np.fft.irfft(x, n, axis=axis, norm=norm))
