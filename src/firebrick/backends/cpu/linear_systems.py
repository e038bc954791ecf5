"""``solve`` of many systems of equal size: a kernel that factors one system at a time in the first-level cache.

LAPACK is called once for each system of a stack, and its own steps are for large matrices. The kernel is Gaussian elimination
with partial pivoting in float64, as NumPy's, eight columns at a time: the items of a group are rows while the eight columns are
factored, and columns while the rest is updated. Groups share nothing, so the number of threads changes no bits.

The kernel computes regular systems of finite numbers. A pivot that is 0 or not finite, or a result that is not finite, leaves
the whole stack to NumPy, whose results and errors are those of ``solve``.

Source: Golub, Van Loan, "Matrix Computations", section 3.4 (the blocked right-looking algorithm).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import firebrick.compiler.templates as _templates  # noqa: F401  before its parts
from firebrick.backends.cpu.custom import run
from firebrick.backends.cpu.eager import LARGEST_SYSTEM
from firebrick.compiler.kernel.language.intrinsics import barrier, fma, group, lane, registers, shared, unrolled
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.templates.template import TemplateSizes, constant, operand, result, template
from firebrick.core.dtypes import DType, dtype, float64, int64

Array = np.ndarray[Any, Any]


def _fits(launch: TemplateSizes) -> bool:
    return launch.sizes["n"] <= launch.sizes["group_size"] == LARGEST_SYSTEM


@template(
    {
        "a": operand(None, "systems, n, n"), "b": operand("a", "systems, n"), "x": result("a", "systems, n"),
        "regular": result("a", "systems"), "group_size": constant(int), "of": constant(DType), "to": constant(DType),
    },
    "systems", "group_size", _fits, floating=True,
)  # fmt: skip
def linear_systems(a: Any, b: Any, x: Any, regular: Any, group_size: int, of: Any, to: Any) -> None:
    """The x with a x = b for each system, computed in ``of`` and rounded to ``to``; ``regular`` is 0 for bad pivots."""
    n, system, item = a.shape[1], group(), lane()
    matrix = shared(of, (group_size, group_size))
    # eight columns, each contiguous, the right side, and pivots: of each eighth of the rows, the first then of all
    columns, side = shared(of, (8, group_size)), shared(of, group_size)
    sizes, rows = shared(of, 8), shared(int64, 8)
    above = registers(of(0.0), 8)
    found = 1
    if item < n:
        for i in range(n):
            matrix[i, item] = of(a[system, i, item])
        side[item] = of(b[system, item])
    barrier()
    for block in range((n + 7) // 8):
        first = block * 8
        if item >= first and item < n:
            for c in unrolled(8):
                if first + c < n:
                    columns[c, item] = matrix[item, first + c]
        barrier()
        for c in unrolled(8):
            k = first + c
            if k < n:
                if item < 8:
                    size, at = of(-1.0), k
                    row = first + item
                    while row < n:
                        if row >= k:
                            magnitude = abs(columns[c, row])
                            if magnitude > size:
                                size, at = magnitude, row
                        row += 8
                    sizes[item] = size
                    rows[item] = at
                barrier()
                if item == 0:
                    largest, chosen = sizes[0], rows[0]
                    for e in unrolled(7):
                        other = sizes[e + 1]
                        if other > largest or (other == largest and rows[e + 1] < chosen):
                            largest, chosen = other, rows[e + 1]
                    if not 0.0 < largest <= 1.7976931348623157e308:  # the largest number
                        found = 0
                    rows[0] = chosen
                barrier()
                pivot = rows[0]
                if pivot != k:
                    if item < n:
                        upper = matrix[k, item]
                        matrix[k, item] = matrix[pivot, item]
                        matrix[pivot, item] = upper
                    if item < 8:
                        left = columns[item, k]
                        columns[item, k] = columns[item, pivot]
                        columns[item, pivot] = left
                    if item == 8:
                        right = side[k]
                        side[k] = side[pivot]
                        side[pivot] = right
                barrier()
                if item > k and item < n:
                    factor = columns[c, item] / columns[c, k]
                    columns[c, item] = factor
                    for d in unrolled(8):
                        if d > c:
                            columns[d, item] = fma(-factor, columns[d, k], columns[d, item])
                    side[item] = fma(-factor, side[k], side[item])
                barrier()
        # eight rows of the upper triangle, and the update of all rows below them
        if item >= first + 8 and item < n:
            for r in unrolled(8):
                value = matrix[first + r, item]
                for s in unrolled(8):
                    if s < r:
                        value = fma(-columns[s, first + r], above[s], value)
                above[r] = value
                matrix[first + r, item] = value
            for below in range(first + 8, n):
                rest = matrix[below, item]
                for s in unrolled(8):
                    rest = fma(-columns[s, below], above[s], rest)
                matrix[below, item] = rest
        if item < 8 and first + item < n:
            for r in unrolled(8):
                if first + r < n:
                    matrix[first + r, first + item] = columns[item, first + r]
        barrier()
    for step in range(n):
        last = n - 1 - step
        if item == 0:
            side[last] = side[last] / matrix[last, last]
        barrier()
        if item < last:
            side[item] = fma(-matrix[item, last], side[last], side[item])
        barrier()
    if item < n:
        x[system, item] = to(side[item])
    if item == 0:
        regular[system] = to(found)


@cache
def _program(name: str) -> KernelProgram:
    return linear_systems.program({"a": name}, group_size=LARGEST_SYSTEM, of=float64, to=dtype(name))


def solved(x1: Array, x2: Array) -> Array | None:
    """The result of ``solve`` for operands that ``eager.are_many_systems`` accepts; None if it must be NumPy's."""
    n = x1.shape[-1]
    x, regular = run(_program(x1.dtype.name), (x1.reshape(-1, n, n), x2.reshape(-1, n)), {})
    return x.reshape(x2.shape) if regular.all() and np.isfinite(x).all() else None
