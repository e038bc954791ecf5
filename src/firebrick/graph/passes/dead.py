"""Dead code: a node stays if an output depends on one of its results."""

from __future__ import annotations

from firebrick.graph.passes.rewriter import Rewriter
from firebrick.ir import Graph


def eliminate_dead_code(graph: Graph) -> Graph:
    """The graph without the nodes that no output depends on; inputs stay, used or not."""
    used = bytearray(graph.size)
    for i in graph.outputs:
        used[i] = 1
    live = []
    for node in reversed(graph.nodes):
        alive = 1 in used[node.first : node.first + len(node.avals)]
        live.append(alive)
        if alive:
            for i in node.inputs:
                used[i] = 1
    if all(live):
        return graph
    r = Rewriter(graph)
    for node, alive in zip(graph.nodes, reversed(live), strict=True):
        if alive:
            r.keep(node, tuple([r.new[i] for i in node.inputs]))
        else:
            r.drop(node)
    return r.finish()
