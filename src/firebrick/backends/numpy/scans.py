"""Scans whose step NumPy has no function for: lines side by side in arrays, or, where there are few, one by one in Python.

Both are in double precision.
"""

from __future__ import annotations

from itertools import accumulate
from math import exp
from typing import Any

import numpy as np

from firebrick.ops import scan
from firebrick.ops.declare import Array

_FEW = 24
"""Lines below which Python's own numbers take less time than NumPy's arrays of one number of each line."""


def _few(x: Array, axis: int) -> bool:
    lines: int = x.size // max(1, x.shape[axis])
    return 0 < lines < _FEW


def linear_recurrence(a: Array, b: Array, *, axis: int, reverse: bool, shifted: bool) -> Array:
    """The reference; the recurrences of few lines one by one."""
    if not _few(b, axis):
        found: Array = scan.linear_recurrence.reference(a, b, axis=axis, reverse=reverse, shifted=shifted)
        return found
    factors, terms = (_lines(x, axis, reverse) for x in (a, b))
    out = np.empty(terms.shape, terms.dtype)
    for row, (own, line) in enumerate(zip(factors.tolist(), terms.tolist(), strict=True)):
        pairs = zip(own[:-1] if shifted else own[1:], line[1:], strict=True)
        out[row] = list(accumulate(pairs, lambda s, pair: pair[1] + pair[0] * s, initial=line[0]))
    return _back(out, b, axis, reverse)


def cumulative_logsumexp(x: Array, *, axis: int, reverse: bool) -> Array:
    """The reference; the sums of few lines one by one."""
    if not _few(x, axis):
        found: Array = scan.cumulative_logsumexp.reference(x, axis=axis, reverse=reverse)
        return found
    lines = _lines(x, axis, reverse)
    tops, totals = np.empty(lines.shape), np.empty(lines.shape)
    for row, line in enumerate(lines.tolist()):
        top, total = line[0], 1.0
        for i, value in enumerate(line):
            if i and (value > top or value != value):
                total = total * exp(top - value) + 1.0
                top = value
            elif i:
                total += exp(value - top) if value != top else 1.0
            tops[row, i], totals[row, i] = top, total
    return _back(tops + np.log(totals), x, axis, reverse)


def _lines(x: Array, axis: int, reverse: bool) -> Array:
    """The lines along an axis as rows, in double precision, in the order of the scan."""
    wide: Any = np.complex128 if x.dtype.kind == "c" else np.float64
    rows = np.moveaxis(np.asarray(x, wide), axis, -1).reshape(-1, x.shape[axis])
    return rows[:, ::-1] if reverse else rows


def _back(rows: Array, x: Array, axis: int, reverse: bool) -> Array:
    """Rows as lines along an axis of an array of the shape and dtype of ``x``."""
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    lines = (rows[:, ::-1] if reverse else rows).reshape(*rest, x.shape[axis])
    return np.ascontiguousarray(np.moveaxis(lines, -1, axis), x.dtype)
