"""Matrix products through NumPy's BLAS, small ones on one thread.

OpenBLAS splits even small products over its threads and then waits, spinning, for the slowest. On a machine that others
use as well, each such wait can last as long as a scheduler's time slice, thousands of times the product itself. Below the
size where a second thread can save more than about half a millisecond, products therefore run on the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from firebrick.core.locks import forkable
from firebrick.ops.declare import Array
from firebrick.ops.indexing import total

_SMALL = 32_000_000  # multiplications and additions of one product
# OpenBLAS itself does not split products up to this size (interface/gemm.c: SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD)
_NEVER_SPLIT = 4 * 65536

_lock = forkable(Lock())


@cache
def _library() -> Any:
    """The BLAS that NumPy loaded, as threadpoolctl controls it; None if threadpoolctl does not know it (Accelerate, for
    example)."""
    from threadpoolctl import ThreadpoolController

    found = [c for c in ThreadpoolController().lib_controllers if c.user_api == "blas" and "numpy" in (c.filepath or "")]
    return found[0] if len(found) == 1 else None


def alone(call: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """The result of ``call``, with the BLAS on the calling thread only."""
    library = _library()
    if library is None:
        return call(*args, **params)
    with _lock:  # the number of threads belongs to the library, not to the caller
        threads = library.num_threads
        if threads == 1:
            return call(*args, **params)
        library.set_num_threads(1)
        try:
            return call(*args, **params)
        finally:
            library.set_num_threads(threads)


# BLAS adds the products of a vector with a matrix one after the other, those of two matrices in several sums at once: so
# many products to a sum err by a few units of precision at most
_IN_VECTORS, _IN_MATRICES = 1024, 32768


def _longest(m: int, n: int) -> int:
    """How many products to a sum one call of the BLAS may add up."""
    return _IN_VECTORS if 1 in (m, n) and (m, n) != (1, 1) else _IN_MATRICES


def is_one_product(shape1: tuple[int, ...], shape2: tuple[int, ...]) -> bool:
    """Whether ``matmul`` of two matrices of floats is one call of NumPy's."""
    return shape1[1] <= _longest(shape1[0], shape2[1])


def keeps_alone(m: int, k: int, n: int) -> bool:
    """Whether a product of floats must be kept on one thread: not too large, and not so small that it is anyway."""
    work = m * k * n
    return work <= _SMALL and (work > _NEVER_SPLIT or 1 in (m, n))


def single_product(x1: Array, x2: Array, out: Array | None = None) -> Array:
    """NumPy's matmul on one thread."""
    found: Array = alone(np.matmul, x1, x2, out)
    return found


def matmul(x1: Array, x2: Array) -> Array:
    """NumPy's matmul of stacks of matrices; a stack times one matrix is one product, and long sums are cut into blocks."""
    if x2.ndim == 2 and x1.ndim > 2 and x1.size:
        return matmul(x1.reshape(-1, x1.shape[-1]), x2).reshape(*x1.shape[:-1], x2.shape[-1])
    (m, k), n = x1.shape[-2:], x2.shape[-1]
    most = _longest(m, n)
    if k > most and x1.dtype.kind in "fc":
        blocks = [matmul(x1[..., i : i + most], x2[..., i : i + most, :]) for i in range(0, k, most)]
        return total(np.stack(blocks))
    if x1.dtype.kind in "fc" and keeps_alone(m, k, n):
        return np.asarray(alone(np.matmul, x1, x2))
    return np.asarray(np.matmul(x1, x2))
