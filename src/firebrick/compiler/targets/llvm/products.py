"""Products of matrices as contractions: which ones, and how views of their operands and results become axes of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from firebrick.compiler.targets.llvm.contract import Axis, Operand, Problem, Result, simplified
from firebrick.core.aval import Aval
from firebrick.core.views import View, row_major

_DTYPES = ("float32", "float64", "float16", "bfloat16")


def refused(operands: Sequence[Aval]) -> str:
    """Why a product of these operands has no kernels; empty if it has."""
    x, y = operands
    if x.dtype.name not in _DTYPES:
        return f"no contractions of {x.dtype.name}"
    if x.ndim < 2 or y.ndim < 2:
        return "a product with a vector"
    return "" if prod(x.shape) and prod(y.shape) else "no elements"


def problem(dtype: str, left: View, right: View) -> Problem:
    """The problem of ``left @ right``, [..., m, k] and [..., k, n] with equal leading axes of one digit each.

    Args:
        dtype: Of both and of the result, which lies row by row.
        left: How the left operand lies.
        right: How the right one does.
    """
    *lead, m, k = left.shape
    n = right.shape[-1]
    a = Operand(dtype, axes(left.axes[-2]), axes(left.axes[-1]), leading(left))
    b = Operand(dtype, axes(right.axes[-1]), axes(right.axes[-2]), leading(right))
    return simplified(Problem(tuple(lead), m, n, k, a, b, result(dtype, row_major((*lead, m, n)))))


def result(dtype: str, x: View) -> Result:
    """Where an array [..., m, n] lies."""
    return Result(dtype, axes(x.axes[-2]), axes(x.axes[-1]), leading(x))


def axes(digits: Sequence[tuple[int, int]]) -> tuple[Axis, ...]:
    """Digits as axes."""
    return tuple(Axis(n, stride) for n, stride in digits)


def leading(x: View) -> tuple[int, ...]:
    """Strides of all axes but the last two."""
    return tuple(stride for ((_, stride),) in x.axes[:-2])
