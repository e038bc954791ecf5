"""``fb.linalg``: linear algebra on stacks of matrices, the Array API standard's extension and what is usual beside it.

Matrices are the last two axes; all axes before them are a stack. Dtypes are float32, float64, complex64 and complex128.
Decompositions are made unique, hence equal on every engine: R of ``qr`` and the factor of ``cholesky`` have a non-negative
real diagonal; of each eigenvector and left singular vector, the first component of at least 0.55 times the largest magnitude
is real and positive. Matrices that must be Hermitian are taken as (x + xᴴ) / 2. A matrix for which there is no answer raises
``LinAlgError``, which names its place in the stack.

Derivatives of eigenvectors and singular vectors do not exist where values are equal; there the part that mixes such vectors
counts as 0, which is right for functions that depend on the subspace only. Functions of the values alone are exempt.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import ShapeError
from firebrick.core.operands import check_operand, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.functions import diagonals
from firebrick.functions.contraction import outer
from firebrick.functions.general_matrices import EigResult, LUResult, eig, eigvals, lu
from firebrick.functions.linear import cross, kron, matmul, matrix_transpose, multi_dot, tensordot, vecdot
from firebrick.functions.matrices import (
    EighResult,
    LstsqResult,
    QRResult,
    SlogdetResult,
    SVDResult,
    cholesky,
    det,
    eigh,
    eigvalsh,
    expm,
    inv,
    lstsq,
    matrix_power,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svdvals,
)
from firebrick.functions.norms import cond, matrix_norm, norm, vector_norm
from firebrick.functions.statistical import sum as sum_


@answers_arguments
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The elements on a diagonal of matrices.

    Args:
        x: Tensor [..., m, n] of any dtype.
        offset: Which diagonal: 0 the main one, positive above it, negative below it.

    Returns:
        Tensor [..., k] of the k elements that the diagonal has.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.diagonal(fb.asarray([[1, 2], [3, 4]])).tolist()
        [1, 4]
    """
    return diagonals.diagonal(x, offset=offset, axis1=-2, axis2=-1)


@answers_arguments
def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums [...] of a diagonal of matrices [..., m, n].

    Args:
        x: Tensor [..., m, n].
        offset: Which diagonal: 0 the main one, positive above it, negative below it.
        dtype: Dtype to accumulate in; as for ``fb.sum`` by default.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.trace(fb.asarray([[1, 2], [3, 4]])).item()
        5
    """
    check_operand("trace", x)
    offset = whole("trace", "offset", offset)
    if x.ndim < 2:
        raise ShapeError("trace takes matrices [..., m, n]", describe("x", x), "add an axis")
    return sum_(diagonal(x, offset=offset), axis=-1, dtype=dtype)


__all__ = [
    "EigResult", "EighResult", "LUResult", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond",
    "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "expm", "inv", "kron", "lstsq", "lu", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet",
    "solve", "solve_triangular", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
