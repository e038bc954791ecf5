"""Common subexpressions: equal ops of equal operands and parameters, in one region, are computed once."""

from __future__ import annotations

from typing import Any

from firebrick.graph.passes.rewriter import Rewriter
from firebrick.ir import Graph
from firebrick.ir.keys import key_of


def merge_common_subexpressions(graph: Graph) -> Graph:
    """The graph with each computation once. Every op of the table is a function of its operands, random ones of their key."""
    r = Rewriter(graph)
    seen: dict[Any, range] = {}
    for node in graph.nodes:
        inputs = r.inputs(node)
        key = (node.op, node.region, inputs, key_of(node.params) if node.params else None)
        found = seen.get(key)
        if found is None:
            seen[key] = range(r.size, r.size + len(node.avals))
            r.keep(node, inputs)
        else:
            r.replace(node, *found)
    return r.finish()
