"""Dead code: a node stays if an output depends on one of its results. Inputs go only where they are named."""

from __future__ import annotations

from firebrick.graph.passes.rewriter import Rewriter
from firebrick.ir import Graph, Node


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


def without_inputs(graph: Graph, kept: list[int]) -> Graph:
    """The graph with these of its inputs only; nothing uses the others."""
    if len(kept) == len(graph.inputs):
        return graph
    dropped, count = len(graph.inputs) - len(kept), len(graph.inputs)
    new = {old: i for i, old in enumerate(kept)}

    def number(i: int) -> int:
        return new[i] if i < count else i - dropped

    nodes = [
        Node(m.op, tuple(map(number, m.inputs)), m.params, m.first - dropped, m.avals, m.label, m.line, m.region)
        for m in graph.nodes
    ]
    names = [graph.names[i] for i in kept] if graph.names else []
    return Graph([graph.inputs[i] for i in kept], nodes, tuple(map(number, graph.outputs)), names)
