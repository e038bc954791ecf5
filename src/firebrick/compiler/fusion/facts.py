"""``Facts``: what fusion must know of a single node, by the op table and the target's policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from firebrick.compiler.fusion.policy import FusionPolicy
from firebrick.compiler.layout.views import strided_view
from firebrick.compiler.spec.elements import is_sum, reduced_axes
from firebrick.core.aval import Aval
from firebrick.core.views import row_major
from firebrick.ir import CONSTANT, Node

Can = Callable[[Node, tuple[Aval, ...]], str]
"""The kind of kernel in which an engine can compute a node, one of ``KINDS``; else the reason why it cannot."""

MAP, ROWS, COLUMNS, CONTRACT, ALONE = KINDS = "map", "rows", "columns", "contract", "alone"


def is_free(n: Node, operands: tuple[Aval, ...]) -> bool:
    """Whether a kernel can read a node's result at no cost: a scalar constant, or a view that only changes strides."""
    if n.op is CONSTANT:
        return n.avals[0].size == 1
    if n.op.view is None or len(n.avals) != 1:
        return False
    x = row_major(operands[0].shape)
    found = strided_view(n, 0, x)
    if found is None or not found.covers(operands[0].size):
        return False
    axes = [digit for (digit,) in found.axes if digit.size != 1]
    return all(digit.stride == 0 or (digit,) in x.axes for digit in axes) and (not axes or axes[-1].stride in (0, 1))


def is_part(n: Node, operands: tuple[Aval, ...], stretch: int) -> bool:
    """Whether a node selects long contiguous segments of rows, which an elementwise kernel reads without a copy."""
    if n.op.view is None or any(not a.ndim or a.shape[-1] < stretch for a in n.avals):
        return False
    x = operands[0]
    parts = [strided_view(n, slot, row_major(x.shape)) for slot in range(len(n.avals))]
    if any(p is None or p.axes[-1][0].stride != 1 for p in parts):
        return False
    return not all(p is not None and (p.in_rows or p.covers(x.size)) for p in parts)


def whole(n: Node, operands: Sequence[Aval]) -> tuple[int, ...]:
    """Numbers of the row-major operands that are read at other positions than that of the result's element."""
    if n.op.access is not None:
        return n.op.access.whole([a.shape for a in operands], **n.params)
    return (1,) if n.op.fusion == "scatter" else ()


def is_added(n: Node, operands: tuple[Aval, ...], rows: int) -> bool:
    """Whether a node is a sum of floats along the columns of a matrix of many rows."""
    if not operands[0].dtype.is_floating or not is_sum(n, operands):
        return False
    shape = operands[0].shape
    return n.params["axes"] == tuple(range(len(shape) - 1)) and prod(shape[:-1]) >= rows and shape[-1] > 1


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties that all nodes of one op with equal shapes, dtypes and parameters share.

    Attributes:
        free: ``is_free``.
        part: ``is_part``.
        kind: The result of ``Can``; empty for free nodes and control flow.
        shape: Shape of the kernel.
        whole: Operands that are read at any position; whether reads stay within a row.
        added: ``is_added``.
        axes: Axes of the reduction.
    """

    free: bool
    part: bool
    kind: str = ""
    shape: tuple[int, ...] = ()
    whole: tuple[tuple[int, bool], ...] = ()
    added: bool = False
    axes: tuple[int, ...] = ()


def facts_of(n: Node, operands: tuple[Aval, ...], can: Can, policy: FusionPolicy) -> Facts:
    """The properties of a node.

    Args:
        n: The node.
        operands: Its operands.
        can: Decides which nodes the engine has a kernel for.
        policy: The target's policy.
    """
    free, part = is_free(n, operands), is_part(n, operands, policy.stretch)
    kind = "" if free or n.op.control is not None else can(n, operands)
    if kind not in KINDS:
        return Facts(free, part, kind)
    reduces = kind in (ROWS, COLUMNS)
    rows = n.op.access is not None and n.op.access.of_rows([a.shape for a in operands], **n.params)
    everywhere = tuple((i, rows) for i in whole(n, operands))
    axes = reduced_axes(n, operands[0].ndim) if reduces else ()
    shape, added = (operands if reduces else n.avals)[0].shape, is_added(n, operands, policy.summed_rows)
    return Facts(free, part, kind, shape, everywhere, added, axes)
