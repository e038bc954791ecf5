"""Decompositions, equations, inverses and functions of stacks of matrices, through each engine's LAPACK.

Arguments are checked here, by the names of the public functions, before any engine runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from firebrick.core.bind import bind
from firebrick.core.dtypes import real_of
from firebrick.core.errors import ConfigError, DTypeError, LinAlgError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import number, whole
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.functions.linear import matmul
from firebrick.functions.movement import broadcast_to, concat, expand_dims, matrix_transpose, reshape
from firebrick.functions.statistical import sum as sum_
from firebrick.functions.triangles import tril, triu
from firebrick.ops import OPS
from firebrick.ops.casts import conjugate, real
from firebrick.ops.linalg import check_precise
from firebrick.ops.matmul import adjoint


class EighResult(NamedTuple):
    """What ``eigh`` returns.

    Attributes:
        eigenvalues: [..., n], in ascending order.
        eigenvectors: [..., n, n], in columns.

    Example:
        >>> import firebrick as fb
        >>> found = fb.linalg.eigh(fb.asarray([[2.0, 0.0], [0.0, 1.0]]))
        >>> found.eigenvalues.tolist()
        [1.0, 2.0]
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """What ``qr`` returns.

    Attributes:
        Q: Orthonormal columns.
        R: Upper triangular.

    Example:
        >>> import firebrick as fb
        >>> found = fb.linalg.qr(fb.asarray([[2.0, 0.0], [0.0, 1.0]]))
        >>> found.R.tolist()
        [[2.0, 0.0], [0.0, 1.0]]
    """

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """What ``slogdet`` returns.

    Attributes:
        sign: [...], sign of the determinant, of magnitude 1 or 0.
        logabsdet: [...], logarithm of its magnitude.

    Example:
        >>> import firebrick as fb
        >>> found = fb.linalg.slogdet(fb.asarray([[-1.0, 0.0], [0.0, 1.0]]))
        >>> found.sign.item(), found.logabsdet.item()
        (-1.0, 0.0)
    """

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """What ``svd`` returns.

    Attributes:
        U: Left singular vectors, in columns.
        S: Singular values, in descending order.
        Vh: Right singular vectors, in rows.

    Example:
        >>> import firebrick as fb
        >>> found = fb.linalg.svd(fb.asarray([[2.0, 0.0], [0.0, 1.0]]))
        >>> found.S.tolist()
        [2.0, 1.0]
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


class LstsqResult(NamedTuple):
    """What ``lstsq`` returns.

    Attributes:
        solution: x that minimizes ‖a x - b‖.
        residuals: Sums of squared residuals, one for each column.
        rank: Rank of a.
        singular_values: Those of a, in descending order.

    Example:
        >>> import firebrick as fb
        >>> found = fb.linalg.lstsq(fb.asarray([[1.0], [1.0]]), fb.asarray([[1.0], [3.0]]))
        >>> [[round(v, 4) for v in row] for row in found.solution.tolist()]
        [[2.0]]
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# checks


def _tensor(where_: str, x: Any, name: str = "x") -> Tensor:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where_, name, x, None)
    return x


def check_inexact(where_: str, x: Any, name: str = "x") -> Tensor:
    """``x``, if its dtype is floating or complex."""
    if not _tensor(where_, x, name).dtype.is_inexact:
        remedy = f"cast it: fb.astype({name}, fb.float32)"
        raise DTypeError(f"{where_}: {name} needs a floating or complex dtype", describe(name, x), remedy)
    return x  # type: ignore[no-any-return]


def check_matrix(where_: str, x: Any, name: str = "x", *, square: bool = False) -> Tensor:
    """``x``, if it has matrices along its last two axes."""
    if _tensor(where_, x, name).ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(
            f"{where_}: {name} must have {'square matrices' if square else 'matrices'} along its last two axes",
            describe(name, x),
            "reshape it, or check which axes hold the matrix",
        )
    return x  # type: ignore[no-any-return]


def check_lapack(where_: str, x: Any, name: str = "x", *, square: bool = False) -> Tensor:
    """``x``, if it has matrices of a dtype that LAPACK has."""
    check_precise(where_, check_inexact(where_, x, name))
    return check_matrix(where_, x, name, square=square)


@contextmanager
def named(public: str, op: str) -> Iterator[None]:
    """Errors of ``op`` about a matrix, under the name of the function that the user called."""
    try:
        yield
    except LinAlgError as e:
        raise LinAlgError(e.expected.replace(f"{op}:", f"{public}:", 1), e.received, e.remedy, op=public) from None


def _on(x: Tensor, array: Any) -> Tensor:
    made: Tensor = hooks.from_host(np.asarray(array), x.device)
    return made


def _eye(x: Tensor, n: int) -> Tensor:
    return _on(x, np.eye(n, dtype=x.dtype.np))


def squares(x: Tensor) -> Tensor:
    """|x|², real."""
    return real(x * conjugate(x)) if x.dtype.kind == "complex" else x * x


# decompositions


@answers_arguments
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of positive definite matrices: L Lᴴ = x, or Uᴴ U = x.

    Args:
        x: Tensor [..., n, n], Hermitian; (x + xᴴ) / 2 is used.
        upper: Return U instead of L.

    Returns:
        Tensor [..., n, n], triangular, with a positive diagonal.

    Raises:
        LinAlgError: A matrix is not positive definite, or has NaN or infinite elements; the message says which.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.cholesky(fb.asarray([[4.0, 2.0], [2.0, 5.0]])).tolist()
        [[2.0, 0.0], [1.0, 2.0]]
    """
    factor = bind(OPS["cholesky"], (check_lapack("cholesky", x, square=True),), {})
    return adjoint(factor) if upper else factor  # type: ignore[no-any-return]


@answers_arguments
def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """Q with orthonormal columns and upper triangular R, Q R = x, the diagonal of R real and ≥ 0.

    Args:
        x: Tensor [..., m, n].
        mode: ``"reduced"``: Q [..., m, k] and R [..., k, n], k = min(m, n); ``"complete"``: Q [..., m, m] and
            R [..., m, n]. A gradient exists where every column of Q is determined by x.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.qr(fb.asarray([[0.0, 1.0], [2.0, 3.0]])).R.tolist()
        [[2.0, 3.0], [0.0, 1.0]]
    """
    if mode not in ("reduced", "complete"):
        raise ConfigError('qr: mode is "reduced" or "complete"', repr(mode), "use one of these")
    return QRResult(*bind(OPS["qr"], (check_lapack("qr", x),), {"complete": mode == "complete"}))


@answers_arguments
def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues of Hermitian matrices in ascending order, and orthonormal eigenvectors.

    Args:
        x: Tensor [..., n, n]; (x + xᴴ) / 2 is used.

    Returns:
        ``eigenvalues`` [..., n], real, and ``eigenvectors`` [..., n, n], as columns.

    A gradient through the vectors of a matrix with equal eigenvalues (up to rounding) is NaN: it does not exist, or the vectors
    do not determine it. Where a function needs the values alone, ``eigvalsh`` has a gradient.

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.eigh(fb.asarray([[3.0, 0.0], [0.0, -2.0]])).eigenvalues.tolist()
        [-2.0, 3.0]
    """
    return EighResult(*bind(OPS["eigh"], (check_lapack("eigh", x, square=True),), {}))


@answers_arguments
def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of Hermitian matrices in ascending order.

    Args:
        x: Tensor [..., n, n]; (x + xᴴ) / 2 is used.

    Returns:
        Real tensor [..., n].

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.eigvalsh(fb.asarray([[3.0, 0.0], [0.0, -2.0]])).tolist()
        [-2.0, 3.0]
    """
    with named("eigvalsh", "eigh"):
        return bind(OPS["eigh"], (check_lapack("eigvalsh", x, square=True),), {})[0]  # type: ignore[no-any-return]


@answers_arguments
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular values in descending order and their vectors: U diag(S) Vᴴ = x.

    Args:
        x: Tensor [..., m, n].
        full_matrices: Complete U to [..., m, m] and Vh to [..., n, n]. The further vectors are arbitrary, so they have no
            gradient, and forward mode, which computes the derivative of all results, needs ``False`` unless m = n.

    Returns:
        ``U`` [..., m, k], ``S`` [..., k], real, and ``Vh`` [..., k, n], with k = min(m, n) unless completed.

    A gradient through the vectors of a matrix with equal singular values (up to rounding), or of the value 0 where it is not
    square, is NaN: it does not exist, or the vectors do not determine it. Where a function needs the values alone,
    ``svdvals`` has a gradient.

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.svd(fb.asarray([[0.0, 2.0], [1.0, 0.0]])).S.tolist()
        [2.0, 1.0]
    """
    u, s, vh = bind(OPS["svd"], (check_lapack("svd", x),), {})
    if full_matrices:
        u, vh = _completed(u), adjoint(_completed(adjoint(vh)))
    return SVDResult(u, s, vh)


def _completed(q: Tensor) -> Tensor:
    """Orthonormal columns with as many more as make a square matrix."""
    m, k = q.shape[-2:]
    if m == k:
        return q
    whole = bind(OPS["qr"], (q,), {"complete": True})[0]
    return concat([q, whole[..., k:]], axis=-1)


@answers_arguments
def svdvals(x: Tensor, /) -> Tensor:
    """Singular values of matrices in descending order.

    Args:
        x: Tensor [..., m, n].

    Returns:
        Real tensor [..., min(m, n)].

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.svdvals(fb.asarray([[0.0, 2.0], [1.0, 0.0]])).tolist()
        [2.0, 1.0]
    """
    with named("svdvals", "svd"):
        return bind(OPS["svd"], (check_lapack("svdvals", x),), {})[1]  # type: ignore[no-any-return]


# determinants, inverses and equations


@answers_arguments
def slogdet(x: Tensor, /) -> SlogdetResult:
    """Sign and logarithm of the absolute value of determinants; 0 and -∞ for a singular matrix.

    Args:
        x: Tensor [..., n, n]. A gradient needs invertible matrices.

    Returns:
        ``sign`` [...], of modulus 1, of x's dtype, and ``logabsdet`` [...], real.

    Example:
        >>> import firebrick as fb
        >>> sign, logabsdet = fb.linalg.slogdet(fb.asarray([[0.0, 1.0], [1.0, 0.0]]))
        >>> sign.item(), abs(logabsdet.item())
        (-1.0, 0.0)
    """
    return SlogdetResult(*bind(OPS["slogdet"], (check_lapack("slogdet", x, square=True),), {}))


@answers_arguments
def det(x: Tensor, /) -> Tensor:
    """Determinants [...] of square matrices.

    Args:
        x: Tensor [..., n, n]. The gradient is the matrix of cofactors, also of a matrix without an inverse. Where n > 3 and the
            rank is at most n - 2, up to rounding, second derivatives are right and higher ones are NaN.

    Example:
        >>> import firebrick as fb
        >>> round(fb.linalg.det(fb.asarray([[1.0, 2.0], [3.0, 4.0]])).item(), 3)
        -2.0
    """
    return bind(OPS["det"], (check_lapack("det", x, square=True),), {})  # type: ignore[no-any-return]


@answers_arguments
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The X with x1 X = x2.

    Args:
        x1: Tensor [..., n, n], invertible.
        x2: Tensor [n], one vector, or [..., n, k]; stacks broadcast.

    Returns:
        Tensor [..., n] for one vector, else [..., n, k].

    Raises:
        LinAlgError: A matrix is singular; the message says which.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.solve(fb.asarray([[2.0, 0.0], [0.0, 4.0]]), fb.asarray([2.0, 2.0])).tolist()
        [1.0, 0.5]
    """
    return _solve("solve", x1, x2, {})


def _solve(name: str, x1: Tensor, x2: Tensor, params: dict[str, Any]) -> Tensor:
    check_lapack(name, x1, "x1", square=True)
    check_precise(name, check_inexact(name, x2, "x2"))
    check_devices(name, x1=x1, x2=x2)
    if x2.ndim != 1:
        return bind(OPS[name], (x1, x2), params)  # type: ignore[no-any-return]
    if x2.shape[0] != x1.shape[-1]:
        want = f"{name}: x2 must have as many elements as x1 has rows"
        raise ShapeError(want, f"{describe('x1', x1)} and {describe('x2', x2)}", "check the sizes")
    found: Tensor = bind(OPS[name], (x1, expand_dims(x2, axis=-1)), params)
    return found[..., 0]


@answers_arguments
def solve_triangular(x1: Tensor, x2: Tensor, /, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """The X with T X = x2 (or X T = x2), T being a triangle of x1; the rest of x1 is not read.

    Args:
        x1: Tensor [..., n, n].
        x2: Tensor [n] (with ``left``), or [..., n, k] ([..., k, n] without ``left``); stacks broadcast.
        upper: Whether T is the upper triangle, or the lower one.
        left: Whether T stands on the left of X.
        unitriangular: Take the diagonal as ones.

    Returns:
        Tensor [..., n] for one vector, else [..., n, k] ([..., k, n] without ``left``).

    Raises:
        LinAlgError: The diagonal of a matrix has a zero; the message says which.

    Example:
        >>> import firebrick as fb
        >>> t = fb.asarray([[2.0, 0.0], [1.0, 4.0]])
        >>> fb.linalg.solve_triangular(t, fb.asarray([2.0, 5.0]), upper=False).tolist()
        [1.0, 1.0]
    """
    check_lapack("solve_triangular", x1, "x1", square=True)
    if unitriangular:
        x1 = (triu(x1, k=1) if upper else tril(x1, k=-1)) + _eye(x1, x1.shape[-1])
    if left:
        return _solve("solve_triangular", x1, x2, {"upper": upper})
    check_lapack("solve_triangular", x2, "x2")
    check_devices("solve_triangular", x1=x1, x2=x2)
    turned = bind(OPS["solve_triangular"], (matrix_transpose(x1), matrix_transpose(x2)), {"upper": not upper})
    return matrix_transpose(turned)


@answers_arguments
def inv(x: Tensor, /) -> Tensor:
    """Inverses [..., n, n] of square matrices.

    Args:
        x: Tensor [..., n, n], invertible.

    Raises:
        LinAlgError: A matrix is singular; the message says which.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.inv(fb.asarray([[2.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    check_lapack("inv", x, square=True)
    with named("inv", "solve"):
        return bind(OPS["solve"], (x, _eye(x, x.shape[-1])), {})  # type: ignore[no-any-return]


def _rtol(where_: str, x: Tensor, rtol: Any) -> Tensor:
    """The cutoff of singular values, relative to the largest, as a tensor of their dtype."""
    real = real_of(x.dtype)
    if rtol is None:
        rtol = max(x.shape[-2:]) * x.dtype.eps
    if isinstance(rtol, Tensor):
        if rtol.dtype.kind != "float":
            raise DTypeError(f"{where_}: rtol needs a floating dtype", describe("rtol", rtol), "cast it")
        check_devices(where_, x=x, rtol=rtol)
        return astype(rtol, real, copy=False)
    return _on(x, np.asarray(number(where_, "rtol", rtol), real.np))


@answers_arguments
def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Moore-Penrose inverses [..., n, m] of matrices [..., m, n].

    Args:
        x: Tensor [..., m, n].
        rtol: Singular values up to rtol times the largest count as 0: a number, or a tensor with one for each matrix;
            max(m, n) · eps by default. The gradient is that at constant rank.

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> [round(v, 3) for v in fb.linalg.pinv(fb.asarray([[2.0, 0.0]]))[:, 0].tolist()]
        [0.5, 0.0]
    """
    check_lapack("pinv", x)
    return bind(OPS["pinv"], (x, _rtol("pinv", x, rtol)), {})  # type: ignore[no-any-return]


@answers_arguments
def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The number of singular values above rtol times the largest.

    Args:
        x: Tensor [..., m, n].
        rtol: Cutoff of singular values, as for ``pinv``.

    Returns:
        int64 tensor [...].

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.matrix_rank(fb.ones((3, 3))).item()
        1
    """
    check_lapack("matrix_rank", x)
    with named("matrix_rank", "svdvals"):
        return _rank(svdvals(x.detach()), _rtol("matrix_rank", x, rtol))


def _rank(s: Tensor, rtol: Tensor) -> Tensor:
    return sum_(s > expand_dims(rtol, axis=-1) * s[..., :1], axis=-1)


@answers_arguments
def lstsq(x1: Tensor, x2: Tensor, /, *, rtol: float | Tensor | None = None) -> LstsqResult:
    """The X of least norm among those that minimise the norm of x1 X - x2.

    Args:
        x1: Tensor [..., m, n], of any rank.
        x2: Tensor [m], one vector, or [..., m, k]; stacks broadcast.
        rtol: Cutoff of singular values, as for ``pinv``.

    Returns:
        ``solution`` [..., n] for one vector, else [..., n, k]; ``residuals``, the squared norms of the columns of
        x1 X - x2; ``rank`` [...] of x1; ``singular_values`` [..., min(m, n)] of x1.

    Raises:
        LinAlgError: A matrix of x1 has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> [round(v, 3) for v in fb.linalg.lstsq(x, fb.asarray([1.0, 3.0, 5.0])).solution.tolist()]
        [1.0, 2.0]
    """
    check_lapack("lstsq", x1, "x1")
    check_precise("lstsq", check_inexact("lstsq", x2, "x2"))
    check_devices("lstsq", x1=x1, x2=x2)
    if not x2.ndim or x2.shape[max(x2.ndim - 2, 0)] != x1.shape[-2]:
        want = "lstsq: x2 must have as many rows as x1"
        raise ShapeError(want, f"{describe('x1', x1)} and {describe('x2', x2)}", "check the sizes")
    cutoff = _rtol("lstsq", x1, rtol)
    columns = expand_dims(x2, axis=-1) if x2.ndim == 1 else x2
    with named("lstsq", "pinv"):
        found = matmul(bind(OPS["pinv"], (x1, cutoff), {}), columns)
    residuals = sum_(squares(matmul(x1, found) - columns), axis=-2)
    s = bind(OPS["svd"], (x1,), {})[1]
    if x2.ndim == 1:
        found, residuals = found[..., 0], residuals[..., 0]
    return LstsqResult(found, residuals, _rank(s.detach(), cutoff), s)


@answers_arguments
def expm(x: Tensor, /) -> Tensor:
    """Matrix exponentials Σ xᵏ / k! of matrices [..., n, n].

    Args:
        x: Tensor [..., n, n].

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.expm(fb.asarray([[0.0, 1.0], [0.0, 0.0]])).tolist()
        [[1.0, 1.0], [0.0, 1.0]]

    Source: Higham, "The scaling and squaring method for the matrix exponential revisited", 2005; Van Loan, "Computing
    integrals involving the matrix exponential", 1978, for the derivative.
    """
    return bind(OPS["expm"], (check_lapack("expm", x, square=True),), {})  # type: ignore[no-any-return]


@answers_arguments
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Square matrices to an integer power, by repeated squaring; negative powers are those of the inverse.

    Args:
        x: Tensor [..., n, n]; floating or complex, and invertible, if n < 0.
        n: Exponent, an int; 0 gives identity matrices.

    Raises:
        LinAlgError: n < 0, and a matrix is singular; the message says which.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.matrix_power(fb.asarray([[1.0, 1.0], [0.0, 1.0]]), 5).tolist()
        [[1.0, 5.0], [0.0, 1.0]]
    """
    check_matrix("matrix_power", x, square=True)
    n = whole("matrix_power", "n", n)
    if n < 0:
        check_lapack("matrix_power", x, square=True)
        with named("matrix_power", "inv"):
            x, n = inv(x), -n
    if n == 0:
        return broadcast_to(_eye(x, x.shape[-1]), x.shape)
    result, square = None, reshape(x, x.shape)
    while n:
        if n % 2:
            result = square if result is None else matmul(result, square)
        n //= 2
        if n:
            square = matmul(square, square)
    assert result is not None
    return result


__all__ = [
    "EighResult", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "det", "eigh", "eigvalsh", "expm",
    "inv", "lstsq", "matrix_power", "matrix_rank", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals",
]  # fmt: skip
