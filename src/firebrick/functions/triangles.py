"""``tril``, ``triu``, ``tril_indices`` and ``triu_indices``: the parts of matrices below and above a diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.backends.registry import find_device
from firebrick.core.dtypes import zero_of
from firebrick.core.errors import ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.shapes import normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.ops import OPS


@answers_arguments
def tril_indices(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, device: Any = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements on and below the k-th diagonal, row by row: a key, ``x[fb.tril_indices(n)]``.

    Args:
        n_rows: Number of rows.
        n_cols: Number of columns; n_rows if left out.
        k: Which diagonal: 0 the main one, positive above it, negative below it.
        device: Device of the result; the default device if left out.

    Returns:
        Two int64 vectors, with one entry for each element.

    Example:
        >>> import firebrick as fb
        >>> [at.tolist() for at in fb.tril_indices(2)]
        [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", n_rows, n_cols, k, device, lower=True)


@answers_arguments
def triu_indices(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, device: Any = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements on and above the k-th diagonal, row by row: a key, ``x[fb.triu_indices(n)]``.

    Args:
        n_rows: Number of rows.
        n_cols: Number of columns; n_rows if left out.
        k: Which diagonal: 0 the main one, positive above it, negative below it.
        device: Device of the result; the default device if left out.

    Returns:
        Two int64 vectors, with one entry for each element.

    Example:
        >>> import firebrick as fb
        >>> [at.tolist() for at in fb.triu_indices(2)]
        [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle("triu_indices", n_rows, n_cols, k, device, lower=False)


def _triangle(where: str, n_rows: int, n_cols: int | None, k: int, device: Any, *, lower: bool) -> tuple[Tensor, Tensor]:
    goal = find_device(device)
    rows, columns = normalize_shape((n_rows, n_rows if n_cols is None else n_cols), where)
    k = whole(where, "k", k)
    below = np.tri(rows, columns, k if lower else k - 1, dtype=np.bool_)
    first, second = (hooks.from_host(at.astype(np.int64), goal) for at in np.nonzero(below if lower else ~below))
    return first, second


def _matrix(where: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where, "x", x, None)
    if x.ndim < 2:
        raise ShapeError(f"{where} needs at least two axes", describe("x", x), "add an axis")
    return x


@answers_arguments
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x with zeros above the k-th diagonal of its last two axes.

    Args:
        x: Tensor [..., m, n] of any dtype.
        k: Which diagonal: 0 the main one, positive above it, negative below it.

    Example:
        >>> import firebrick as fb
        >>> fb.tril(fb.ones((2, 2))).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    x, k = _matrix("tril", x), whole("tril", "k", k)
    keep = hooks.from_host(np.tri(x.shape[-2], x.shape[-1], k, dtype=np.bool_), x.device)
    return OPS["where"](keep, x, zero_of(x.dtype))  # type: ignore[no-any-return]


@answers_arguments
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x with zeros below the k-th diagonal of its last two axes.

    Args:
        x: Tensor [..., m, n] of any dtype.
        k: Which diagonal: 0 the main one, positive above it, negative below it.

    Example:
        >>> import firebrick as fb
        >>> fb.triu(fb.ones((2, 2))).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    x, k = _matrix("triu", x), whole("triu", "k", k)
    drop = hooks.from_host(np.tri(x.shape[-2], x.shape[-1], k - 1, dtype=np.bool_), x.device)
    return OPS["where"](drop, zero_of(x.dtype), x)  # type: ignore[no-any-return]
