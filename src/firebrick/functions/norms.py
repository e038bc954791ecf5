"""Norms of vectors and matrices, and condition numbers. The gradient of a norm at 0 is 0."""

from __future__ import annotations

from math import inf
from typing import Any

from firebrick.core.dtypes import real_of
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import in_wide_float32
from firebrick.core.shapes import normalize_axes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.core.weak import weak_scalar
from firebrick.functions import scaled
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import astype, equal, not_equal, where
from firebrick.functions.matrices import check_inexact, check_lapack, check_matrix, inv, named, svdvals
from firebrick.functions.movement import permute_dims, reshape
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import min as min_
from firebrick.functions.statistical import sum as sum_


@in_wide_float32
def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """(Σ |x|ᵖ)^(1/p) over axes, p = ``ord``; the gradient at 0 is 0.

    Args:
        x: Tensor of a floating or complex dtype.
        axis: Axis or axes; all by default.
        keepdims: Keep reduced axes with size 1.
        ord: Any number; ``inf`` and ``-inf`` give the largest and smallest |x|, 0 the number of elements that are not 0.

    Returns:
        Tensor of x's real dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.vector_norm(fb.asarray([3.0, -4.0])).item()
        5.0
    """
    check_inexact("vector_norm", x)
    axes = normalize_axes(axis, x.ndim, "vector_norm")
    ord = weak_scalar(ord)
    if not isinstance(ord, (int, float)):
        raise ConfigError("vector_norm: ord is a number", repr(ord), "matrices have norms by name: fb.linalg.matrix_norm")
    if ord == 2:
        return scaled.norm(x, axes, keepdims)
    if ord == 0:
        return astype(sum_(not_equal(x, 0), axis=axes, keepdims=keepdims), real_of(x.dtype))
    size = abs_(x)
    if ord == inf:
        return _largest(size, axes, keepdims)
    if ord == -inf:
        return min_(size, axis=axes, keepdims=keepdims)
    if ord == 1:
        return sum_(size, axis=axes, keepdims=keepdims)
    return scaled.norm(x, axes, keepdims, float(ord))


def _largest(size: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The largest of numbers ≥ 0; 0 where there is none, as every norm of nothing."""
    none = any(not size.shape[a] for a in axes)
    return (sum_ if none else max_)(size, axis=axes, keepdims=keepdims)


_MATRIX_NORMS = ("fro", "nuc", 1, -1, 2, -2, inf, -inf)


@answers_arguments
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms [...] of matrices [..., m, n]; the gradient at 0 is 0.

    Args:
        x: Tensor [..., m, n] of a floating or complex dtype.
        keepdims: Keep the last two axes with size 1.
        ord: ``"fro"``: root of the sum of squares; ``"nuc"``: sum of the singular values; 2, -2: the largest, the smallest
            singular value; 1, -1: the largest, the smallest sum of a column's |x|; ``inf``, ``-inf``: of a row's.

    Returns:
        Tensor [...] of x's real dtype.

    Raises:
        LinAlgError: ord needs singular values, and a matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.matrix_norm(fb.asarray([[1.0, -2.0], [3.0, 4.0]]), ord=1).item()
        6.0
    """
    check_matrix("matrix_norm", check_inexact("matrix_norm", x))
    if ord not in _MATRIX_NORMS:
        known = ", ".join(map(repr, _MATRIX_NORMS))
        raise ConfigError(f"matrix_norm: ord is one of {known}", repr(ord), "use one of these")
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        with named("matrix_norm", "svdvals"):
            s = svdvals(x)
        s = where(equal(s, 0.0), 0.0, s)  # the singular vectors of 0 are arbitrary, its gradient is 0
        found = sum_(s, axis=-1) if ord == "nuc" else _largest(s, (s.ndim - 1,), False) if ord == 2 else min_(s, axis=-1)
        return found[..., None, None] if keepdims else found
    sums = sum_(abs_(x), axis=-2 if abs(ord) == 1 else -1, keepdims=True)
    if ord > 0:
        return _largest(sums, (x.ndim - 2, x.ndim - 1), keepdims)
    return min_(sums, axis=(-2, -1), keepdims=keepdims)


@answers_arguments
def norm(x: Tensor, /, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """A vector's or a matrix's norm, by the number of axes.

    Args:
        x: Tensor of a floating or complex dtype.
        ord: As for ``vector_norm`` (one axis) or ``matrix_norm`` (two); by default the root of the sum of squares, over any
            axes.
        axis: One axis or two; by default those of a tensor with at most two axes.
        keepdims: Keep reduced axes with size 1.

    Returns:
        Tensor of x's real dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.norm(fb.ones((2, 2))).item(), fb.linalg.norm(fb.ones((2, 2)), 1).item()
        (2.0, 2.0)
    """
    check_inexact("norm", x)
    if ord is None:
        return vector_norm(x, axis=axis, keepdims=keepdims)
    given = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [normalize_axis(a, x.ndim, "norm") for a in given]
    if len(axes) == 1:
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=ord)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ShapeError("norm: with ord, the norm is over one axis or two", describe("x", x), "name them with axis=")
    kept = [a for a in range(x.ndim) if a not in axes]
    found = matrix_norm(permute_dims(x, kept + axes), ord=ord)
    return reshape(found, tuple(1 if a in axes else d for a, d in enumerate(x.shape))) if keepdims else found


@answers_arguments
def cond(x: Tensor, /, *, p: Any = None) -> Tensor:
    """Condition numbers [...] of matrices: the norm of x times that of its inverse.

    Args:
        x: Tensor [..., m, n]; square unless p is None, 2 or -2.
        p: A matrix norm as for ``matrix_norm``; None and 2 give the ratio of the largest to the smallest singular value,
            infinite for a singular matrix.

    Returns:
        Tensor [...] of x's real dtype.

    Raises:
        LinAlgError: A matrix is singular, and p is not None, 2 or -2.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.cond(fb.asarray([[4.0, 0.0], [0.0, 2.0]])).item()
        2.0
    """
    if p in (None, 2, -2):
        check_lapack("cond", x)
        if 0 in x.shape[-2:]:
            raise ShapeError("cond: an empty matrix has no condition number", describe("x", x), "check the shape")
        with named("cond", "svdvals"):
            s = svdvals(x)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    check_lapack("cond", x, square=True)
    if p not in _MATRIX_NORMS:
        known = ", ".join(map(repr, _MATRIX_NORMS))
        raise ConfigError(f"cond: p is None or one of {known}", repr(p), "use one of these")
    with named("cond", "inv"):
        return matrix_norm(x, ord=p) * matrix_norm(inv(x), ord=p)


__all__ = ["cond", "matrix_norm", "norm", "vector_norm"]
