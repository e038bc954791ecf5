"""How far a result may be from the reference: the one place that turns an entry's tolerance into a verdict.

The bound is k · eps(dtype) · scale, where k and the meaning of scale come from the op table. Exact dtypes must be equal;
NaN equals NaN; infinities must have their sign. The error of a complex number is a modulus, relative to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.dtypes import float32, limits
from firebrick.core.op import Op
from firebrick.ops.declare import Array

_SMALLEST_NORMAL = 2.0**-126
"""Of float32, complex64 and bfloat16."""
_WIDE = {"float": np.float64, "complex": np.complex128}


def widen(x: Array) -> Array:
    """An array at the reference's precision: float64 or complex128 for inexact dtypes, itself otherwise."""
    wide = _WIDE.get(as_dtype(x.dtype).kind)
    return x if wide is None else x.astype(wide)


def run_reference(op: Op, arrays: tuple[Array, ...], params: dict[str, Any]) -> tuple[Array, ...]:
    """The reference's results for these operands, at the reference's precision; a kernel's at its own, as it is exact."""
    with np.errstate(all="ignore"):
        out = op.reference(*(arrays if op.program is not None else map(widen, arrays)), **params)
    return tuple(np.asarray(o) for o in (out if type(out) is tuple else (out,)))


@dataclass(frozen=True)
class Deviation:
    """The worst element of a comparison. ``units`` is its error in eps · scale, ``limit`` the k it may reach."""

    units: float
    limit: float
    index: tuple[int, ...]
    got: Any
    want: Any

    @property
    def ok(self) -> bool:
        return self.units <= self.limit

    def __str__(self) -> str:
        return f"{self.units:.3g} units of precision (limit {self.limit:g}) at {self.index}: got {self.got}, want {self.want}"


def deviation(got: Array, want: Array, k: float, scale: Array | None = None) -> Deviation:
    """Compare a result with the reference's.

    Args:
        got: The engine's result, in its own dtype.
        want: The reference's result, at its precision; rounded to ``got``'s dtype first.
        k: The tolerance in units of eps · scale.
        scale: What errors are relative to, of ``want``'s shape; |want| by default.
    """
    dt = as_dtype(got.dtype)
    if dt.kind == "storage":  # exact, but NaN equals NaN
        got, want, k, dt = got.astype(np.float32), want.astype(np.float32), 0.0, float32
    with np.errstate(all="ignore"):
        rounded = want if dt.kind in ("bool", "int", "uint") else want.astype(got.dtype)
        if got.shape != rounded.shape:
            return Deviation(np.inf, k, (), f"shape {got.shape}", f"shape {rounded.shape}")
        if not got.size:
            return Deviation(0.0, k, (), None, None)
        if not dt.is_inexact:
            units = np.where(got == rounded, 0.0, np.inf)
            limit = 0.0
        else:
            limit = max(k, 0.0)
            a, b = widen(got), widen(rounded)
            exact = widen(want)
            size = np.abs(exact) if scale is None else np.maximum(np.abs(scale), np.abs(exact))
            tiny, top = float(limits(dt).smallest_normal), float(limits(dt).max)
            unit = dt.eps * np.clip(np.where(np.isfinite(size), size, top), tiny, top)
            error = np.abs(a - np.where(np.isfinite(b), exact, b))
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            if dt.kind == "complex":  # a finite part beside an infinite one is rounded as any other
                near = np.abs(_parts(a) - _parts(exact)) <= limit * dt.eps * np.clip(np.abs(_parts(exact)), tiny, top)
                same |= ~np.isfinite(b) & ((_parts(a) == _parts(b)) | near).all(axis=0)
            units = np.where(same, 0.0, np.where(np.isfinite(error), error / unit, np.inf))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(units)), units.shape))
    return Deviation(float(units[at]), limit, at, got[at], rounded[at])


def _parts(a: Array) -> Array:
    return np.stack([a.real, a.imag])


def with_flushed(got: Array, want: Array) -> Array:
    """A result of a device that flushes denormal numbers, as it would be without that: where the exact value is denormal in
    float32 and the result is 0, or the smallest normal number of that sign, it is the exact value."""
    dt = as_dtype(got.dtype)
    if got.shape != want.shape or float(limits(dt).smallest_normal if dt.is_inexact else 0.0) != _SMALLEST_NORMAL:
        return got
    if dt.kind == "complex":
        out = got.copy()
        out.real, out.imag = with_flushed(got.real, want.real), with_flushed(got.imag, want.imag)
        return out
    exact, found = widen(want), widen(got)
    denormal = (exact != 0) & (np.abs(exact) < _SMALLEST_NORMAL)
    flushed = denormal & ((found == 0) | (found == np.copysign(_SMALLEST_NORMAL, exact)))
    return np.where(flushed, np.where(flushed, exact, 0.0).astype(got.dtype), got)


def edge_deviation(got: Array, want: Array, k: float, scale: Array | None = None) -> Deviation:
    """``deviation``, in which signs of zeros count too, and of a complex number that is not finite each part for itself."""
    found = deviation(got, want, k, scale)
    if not got.size or got.shape != want.shape or not as_dtype(got.dtype).is_inexact:
        return found
    parts: tuple[Any, ...] = (np.asarray,)
    if got.dtype.kind == "c":
        parts = np.real, np.imag
        with np.errstate(all="ignore"):
            finite = np.isfinite(want.astype(got.dtype))
        found = deviation(np.where(finite, got, 0).astype(got.dtype), np.where(finite, want, 0), k, scale)
        for part in parts:
            shown, exact = (np.where(finite, 0, part(x)).astype(part(x).dtype) for x in (got, want))
            apart = deviation(shown, exact, k)
            found = found if not found.ok or apart.ok else apart
    for part in parts:
        exact, shown = widen(part(want)), widen(part(got))
        wrong = (exact == 0) & (shown == 0) & (np.signbit(exact) != np.signbit(shown))
        if found.ok and wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return Deviation(np.inf, k, at, got[at], want[at])
    return found


def scale_of(op: Op, arrays: tuple[Array, ...], params: dict[str, Any], want: Array, result: int = 0) -> Array | None:
    """What errors of ``op``'s result number ``result`` are relative to, by its entry."""
    if op.scale == "result" or as_dtype(want.dtype).kind not in _WIDE:
        return None
    if callable(op.scale):
        with np.errstate(all="ignore"):
            found = op.scale(*(widen(a) for a in arrays), **params)
            return np.asarray(found[result] if type(found) is tuple else found)
    sizes = tuple(np.abs(widen(a)) if as_dtype(a.dtype).is_inexact else a for a in arrays)
    with np.errstate(all="ignore"):
        if op.scale == "operands":
            out = op.reference(*sizes, **params)
            return np.asarray(out[0] if type(out) is tuple else out)
        top = max((float(np.nanmax(np.where(np.isfinite(s), s, 0.0))) for s in sizes if s.size), default=0.0)
        return np.full(want.shape, top)


def tolerance_of(op: Op, arrays: tuple[Array, ...]) -> float:
    """k of an op for these operands."""
    return op.complex_tolerance if any(a.dtype.kind == "c" for a in arrays) else op.tolerance


def check_results(
    op: Op,
    arrays: tuple[Array, ...],
    params: dict[str, Any],
    results: tuple[Array, ...],
    want: tuple[Array, ...],
    edges: bool = False,
    flushes: bool = False,
) -> Deviation:
    """The worst deviation of an op's results from the reference's, ``want``.

    ``edges`` is that of ``Sample``, ``flushes`` that of ``Backend.flushes_denormals``.
    """
    measure = edge_deviation if edges else deviation
    k = tolerance_of(op, arrays)
    worst = Deviation(0.0, k, (), None, None)
    for i, (got, w) in enumerate(zip(results, want, strict=True)):
        d = measure(with_flushed(got, w) if flushes else got, w, k, scale_of(op, arrays, params, w, i))
        if d.units > worst.units or not d.ok:
            worst = d
            if not d.ok:
                break
    return worst
