"""Which operands a node reads elsewhere than where its result's element is: those that its kernel needs as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from firebrick.core.aval import Aval
from firebrick.ir import Node

RANDOM = ("random_bits", "random_uniform")
INDEXED = ("take", "gather", "ravel_index", "scatter", "scatter_add", "scatter_reduce", "index_add", *RANDOM)
"""Ops that are quicker in a kernel of any size than on the host, which looks at all indices first."""
NUMBERED = ("scatter", "scatter_add", "scatter_reduce", "index_add", "slice_update", "concat")
"""Ops whose kernels take an operand that is a number of the program, in any shape, as that."""


def whole(n: Node, operands: Sequence[Aval]) -> tuple[int, ...]:
    """Numbers of the operands that lie row by row, and are read anywhere."""
    if n.op.name == "take":
        return (0,) if operands[0].ndim == 1 else (0, 1)
    if n.op.name in ("scatter", "scatter_add", "scatter_reduce", "index_add"):
        return (1,) if n.op.name == "index_add" or operands[1].shape[n.params["axis"]] != 1 else ()
    return (0,) if n.op.name in ("gather", *RANDOM) else ()


def along_rows(n: Node, operands: Sequence[Aval]) -> bool:
    """Whether a node picks one element of each row, which a kernel that goes through the rows can do."""
    if n.op.name != "gather":
        return False
    x, at = operands
    return n.params["axis"] == x.ndim - 1 and at.shape[-1] == 1
