"""``oriented``: which of the operands of a product is A, and which is B."""

from __future__ import annotations

from firebrick.compiler.targets.llvm.contract.dot import suits_dot, swapped
from firebrick.compiler.targets.llvm.contract.problem import MatrixLayout, Problem


def oriented(p: Problem, c: MatrixLayout) -> tuple[Problem, bool]:
    """The problem, or the transposed one, and whether it is the transposed one.

    Vectors run along the lanes of B, so C must be contiguous along them; and a product of few rows is that of their dots.

    Args:
        p: The problem.
        c: Layout of the first result.
    """
    column_major = p.m > 1 and p.n > 1 and c.rows[-1].stride == 1 and c.lanes[-1].stride != 1
    if column_major or (not suits_dot(p) and suits_dot(swapped(p))):
        return swapped(p), True
    return p, False
