"""Linear algebra through NumPy's LAPACK, on matrices of moderate size with one thread.

LAPACK makes many small BLAS calls, each of which may wait for a thread that the system runs elsewhere (see ``blas``). NumPy
computes float32 and complex64 in double precision and rounds once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from firebrick.backends.numpy.blas import alone
from firebrick.ops.declare import Array
from firebrick.ops.table import OPS

# m · n · min(m, n) of one matrix: a matrix of 200 rows, whose singular values take 20 ms on one thread
_SMALL = 8_000_000


def _kernel(reference: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(reference)
    def run(x: Array, *others: Array, **params: Any) -> Any:
        m, n = x.shape[-2:]
        if m * n * min(m, n) > _SMALL:
            return reference(x, *others, **params)
        return alone(reference, x, *others, **params)

    return run


_NAMES = ("cholesky", "solve", "solve_triangular", "slogdet", "qr", "eigh", "svd", "det", "pinv", "expm", "lu", "eig")
KERNELS: dict[str, Callable[..., Any]] = {name: _kernel(OPS[name].reference) for name in _NAMES}
