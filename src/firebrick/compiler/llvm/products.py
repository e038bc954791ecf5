"""Products of matrices as contractions: which ones, and how views of their operands become strides."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import prod

from firebrick.compiler.llvm.contract import Contraction, contraction, matmul
from firebrick.compiler.llvm.target import Target
from firebrick.core.aval import Aval

_DTYPES = ("float32", "float64", "float16", "bfloat16")


def refused(operands: Sequence[Aval]) -> str:
    """Why a product of these operands has no kernels; empty if it has."""
    x, y = operands
    if x.dtype.name not in _DTYPES:
        return f"no contractions of {x.dtype.name}"
    if x.ndim < 2 or y.ndim < 2:
        return "a product with a vector"
    return "" if prod(x.shape) and prod(y.shape) else "no elements"


def product(dtype: str, left: Sequence[Sequence[int]], right: Sequence[Sequence[int]], target: Target) -> Contraction:
    """The contraction of ``left @ right``.

    Args:
        dtype: Of all three arrays.
        left: Shape and strides of the left operand.
        right: Those of the right one.
        target: What it is computed on.
    """
    (shape_a, strides_a), (shape_b, strides_b) = left, right
    p = matmul(shape_a, shape_b, dtype, strides_a, strides_b)
    return contraction(p, target, f"matmul_{blake2b(f'{p} {target}'.encode(), digest_size=12).hexdigest()}")
