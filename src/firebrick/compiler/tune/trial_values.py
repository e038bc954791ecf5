"""The operands on which variants of kernels are tried, and the comparison of their results, for every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_dtypes import finfo

from firebrick.core.dtypes import dtype as as_dtype

Array = np.ndarray[Any, Any]
SPREAD = 1e3
"""Results of another order than the default's may differ by this many eps of the dtype, relative to the largest result."""
DRAWS = ("exact", "normal", "special")
"""Operands of a trial: small integers, whose sums are exact in any order; normal numbers; normal numbers and special values."""


def drawn(rng: np.random.Generator, how: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """An operand of a trial.

    Args:
        rng: Of its values.
        how: One of ``DRAWS``.
        shape: Of the operand.
        dtype: Of the operand, NumPy's.
    """
    kind = as_dtype(dtype).kind
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind in ("int", "uint"):
        return rng.integers(0, 4, shape).astype(dtype)
    if how == "exact":
        x = rng.integers(-3, 4, shape).astype(np.float64)
    else:
        x = rng.standard_normal(shape)
        if how == "special" and x.size:
            at = rng.integers(0, x.size, max(1, x.size // 97))
            values = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e-40, 0.0], at.size)
            x.reshape(-1)[at] = values
    if kind == "complex":
        x = x + 1j * rng.integers(-3, 4, shape)
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype)


def differences(wanted: list[Array] | str, found: list[Array] | str, same: bool, exact: bool) -> str:
    """What differs between results; empty if they agree.

    Args:
        wanted: The expected results, or the error that is expected.
        found: The results, or the error.
        same: Whether they must be equal in every bit, except for the bits of NaN.
        exact: Whether results of small integers must be equal.
    """
    if isinstance(wanted, str) or isinstance(found, str):
        return "" if wanted == found else f"it reports {found!r} in place of {wanted!r}"
    for number, (x, y) in enumerate(zip(wanted, found, strict=True)):
        if same and x.tobytes() != y.tobytes() and (at := np.flatnonzero(_unequal(x, y))).size:
            return f"result {number} has other bits at {at.size} of {x.size} elements, first at {at[0]}"
        if not same:
            wrong = _far(x, y, exact)
            if wrong:
                return f"result {number} {wrong}"
    return ""


def _unequal(x: Array, y: Array) -> Array:
    """Where bits differ; NaN equals NaN."""
    if as_dtype(x.dtype).kind == "complex":
        return np.asarray(_unequal(x.real, y.real) | _unequal(x.imag, y.imag))
    bits = np.dtype(f"u{x.itemsize}")
    differ = np.ascontiguousarray(x).view(bits) != np.ascontiguousarray(y).view(bits)
    if as_dtype(x.dtype).kind != "float":
        return np.asarray(differ)
    with np.errstate(all="ignore"):
        return np.asarray(differ & ~((x != x) & (y != y)))


def _far(x: Array, y: Array, exact: bool) -> str:
    if as_dtype(x.dtype).kind not in ("float", "complex"):
        return "" if (x == y).all() else f"differs at {int((x != y).sum())} elements"
    wide = np.complex128 if as_dtype(x.dtype).kind == "complex" else np.float64
    with np.errstate(all="ignore"):
        a, b = x.astype(wide), y.astype(wide)
        if (np.isfinite(a) != np.isfinite(b)).any():
            return "is not finite at other elements"
        finite = np.isfinite(a)
        far = float(np.abs(a - b)[finite].max(initial=0.0))
        scale = float(np.abs(a)[finite].max(initial=0.0))
    eps = float(finfo(np.empty(0, x.dtype).real.dtype).eps)  # type: ignore[no-untyped-call]
    limit = 0.0 if exact else SPREAD * eps * scale
    return "" if far <= limit else f"differs by {far:.3g}, where at most {limit:.3g} is allowed"
