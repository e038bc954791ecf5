"""Decompositions of general matrices: eigenvalues that may be complex, and LU with row exchanges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from firebrick.core.bind import bind
from firebrick.core.hooks import hooks
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.matrices import check_lapack, named
from firebrick.functions.triangles import tril, triu
from firebrick.ops import OPS
from firebrick.ops.factorization import permutation


class EigResult(NamedTuple):
    """What ``eig`` returns.

    Attributes:
        eigenvalues: [..., n], complex, in ascending order of their real parts, then of their imaginary parts.
        eigenvectors: [..., n, n], complex, in columns.

    Example:
        >>> import firebrick as fb
        >>> found = fb.linalg.eig(fb.asarray([[0.0, 1.0], [-1.0, 0.0]]))
        >>> found.eigenvalues.tolist()
        [-1j, 1j]
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class LUResult(NamedTuple):
    """What ``lu`` returns.

    Attributes:
        P: Permutation matrix, of x's dtype.
        L: Lower triangular (a trapezoid, if x is no square), with ones on its diagonal.
        U: Upper triangular or a trapezoid.

    Example:
        >>> import firebrick as fb
        >>> found = fb.linalg.lu(fb.asarray([[0.0, 1.0], [2.0, 3.0]]))
        >>> found.P.tolist(), found.U.tolist()
        ([[0.0, 1.0], [1.0, 0.0]], [[2.0, 3.0], [0.0, 1.0]])
    """

    P: Tensor
    L: Tensor
    U: Tensor


@answers_arguments
def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices that need not be Hermitian.

    Each eigenvector has length 1, and the first component of at least 0.55 times the largest magnitude is real and positive. A
    gradient through the vectors of a matrix with equal eigenvalues (up to rounding) is NaN: it does not exist.

    Args:
        x: Tensor [..., n, n].

    Returns:
        ``eigenvalues`` [..., n] and ``eigenvectors`` [..., n, n], both complex.

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> values, vectors = fb.linalg.eig(fb.asarray([[2.0, 0.0], [1.0, 3.0]]))
        >>> values.tolist()
        [(2+0j), (3+0j)]
    """
    return EigResult(*bind(OPS["eig"], (check_lapack("eig", x, square=True),), {}))


@answers_arguments
def eigvals(x: Tensor, /) -> Tensor:
    """Eigenvalues of square matrices that need not be Hermitian.

    Args:
        x: Tensor [..., n, n].

    Returns:
        Complex tensor [..., n], in ascending order of the real parts, then of the imaginary parts.

    Raises:
        LinAlgError: A matrix has NaN or infinite elements.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.eigvals(fb.asarray([[0.0, 1.0], [-1.0, 0.0]])).tolist()
        [-1j, 1j]
    """
    with named("eigvals", "eig"):
        return bind(OPS["eig"], (check_lapack("eigvals", x, square=True),), {})[0]  # type: ignore[no-any-return]


@answers_arguments
def lu(x: Tensor, /) -> LUResult:
    """LU decompositions with row exchanges: P L U = x.

    Args:
        x: Tensor [..., m, n]. A gradient needs an invertible leading block of min(m, n) rows, after the exchanges.

    Returns:
        ``P`` [..., m, m], ``L`` [..., m, k] and ``U`` [..., k, n], with k = min(m, n).

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray([[0.0, 1.0], [2.0, 3.0]])
        >>> p, l, u = fb.linalg.lu(x)
        >>> (p @ l @ u).tolist() == x.tolist()
        True
    """
    packed, order = bind(OPS["lu"], (check_lapack("lu", x),), {})
    k = min(x.shape[-2:])
    one: Tensor = hooks.from_host(np.eye(x.shape[-2], k, dtype=x.dtype.np), x.device)
    return LUResult(permutation(order, x.dtype), tril(packed[..., :k], k=-1) + one, triu(packed[..., :k, :]))


__all__ = ["EigResult", "LUResult", "eig", "eigvals", "lu"]
