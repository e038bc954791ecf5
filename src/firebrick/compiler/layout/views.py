"""The views that results of nodes are of their operands' memory, by the op table."""

from __future__ import annotations

from math import prod

from firebrick.core.views import View, row_major
from firebrick.ir import Node


def viewed(n: Node, slot: int, x: View) -> View | None:
    """Result number ``slot`` of a node whose op is a view, if its operand is the view ``x``; None if that needs a copy."""
    shape = n.avals[slot].shape
    if 0 in shape:
        return row_major(shape)
    assert n.op.view is not None
    found: View | None = n.op.view(x, slot, shape, **n.params)
    return found


def keeps_order(n: Node, shape: tuple[int, ...]) -> bool:
    """Whether a node's result is all elements of its operand, of this shape, in the same order."""
    if n.op.view is None or len(n.avals) != 1:
        return False
    found = viewed(n, 0, row_major(shape))
    return found is not None and found.in_rows and n.avals[0].size == prod(shape)


def strided_view(n: Node, slot: int, x: View) -> View | None:
    """Like ``viewed``, with one stride for each axis; None if that needs a copy."""
    found = viewed(n, slot, x)
    return None if found is None or found.strides is None else found
