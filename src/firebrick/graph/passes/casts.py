"""Removes identity casts, and merges casts of casts if the first one is exact."""

from __future__ import annotations

from functools import cache

from firebrick.core.dtypes import DType, limits, real_of
from firebrick.graph.passes.rewriter import Rewriter, inner, rewrite
from firebrick.ir import Graph, Node
from firebrick.ops import OPS

_CAST = OPS["cast"]


@cache
def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow``, zeros' signs and infinities too, is one of ``wide``."""
    if wide is narrow or narrow.kind == "bool":
        return wide.kind != "storage" or wide is narrow
    if wide.kind == "complex" and narrow.is_inexact:
        return holds(real_of(wide), real_of(narrow))
    if narrow.is_integer and wide.is_integer:
        return wide.itemsize > narrow.itemsize and (wide.kind == "int" or narrow.kind == "uint")
    if narrow.is_integer and wide.is_floating:
        digits = 8 * narrow.itemsize - (narrow.kind == "int")
        return bool(digits <= limits(wide).nmant + 1 and digits <= limits(wide).maxexp)
    if narrow.is_floating and wide.is_floating:
        n, w = limits(narrow), limits(wide)
        return bool(n.nmant <= w.nmant and n.maxexp <= w.maxexp and n.minexp - n.nmant >= w.minexp - w.nmant)
    return False


def direct(first: DType, middle: DType, last: DType) -> bool:
    """Whether a cast from ``first`` to ``middle`` and on to ``last`` is the cast from ``first`` to ``last``.

    The middle must hold all of the first. Then only rules that differ between kinds can tell the two ways apart: an integer
    wraps where a float saturates, so a change of kind in the middle asks that the last dtype holds the first too.
    """
    if "storage" in (first.kind, middle.kind) or not holds(middle, first):
        return False
    if middle.kind == "complex" and last.kind != "complex":
        return False
    alike = first.kind == middle.kind or (first.is_integer and middle.is_integer) or (first.is_inexact and middle.is_inexact)
    return alike or holds(last, first)


def _cast(r: Rewriter, node: Node, inputs: tuple[int, ...]) -> int | None:
    (x,), goal = inputs, node.avals[0].dtype
    if r.avals[x].dtype is goal:
        return x
    before = inner(r, node, x, "cast")
    if before is None:
        return None
    source = before.inputs[0]
    first = r.avals[source].dtype
    if not direct(first, r.avals[x].dtype, goal):
        return None
    return source if first is goal else r.emit(_CAST, (source,), {"dtype": goal}, node)


RULES = {"cast": _cast}


def clean_casts(graph: Graph) -> Graph:
    """The graph without casts to an operand's own dtype, and without detours through wider dtypes."""
    return rewrite(graph, RULES)
