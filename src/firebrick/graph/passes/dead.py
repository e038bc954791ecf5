"""Dead code: a node stays if an output depends on one of its results. Inputs go only where they are named.

An indexing node that is removed leaves its check, unless another node has the same one: an index out of range raises, whether
or not the result is used. So does an indexing node without elements, whose kernel reads no index.
"""

from __future__ import annotations

from firebrick.graph.passes.rewriter import Rewriter
from firebrick.ir import Graph, Node
from firebrick.ir.index_check import CHECK_INDICES, checked, holds, raises


def eliminate_dead_code(graph: Graph, checks: bool = True) -> Graph:
    """The graph without the nodes that no output depends on; inputs stay, used or not.

    Args:
        graph: Program; it is not changed.
        checks: Whether removed nodes leave their index checks.
    """
    avals = graph.avals
    used = bytearray(len(avals))
    for i in graph.outputs:
        used[i] = 1
    live: list[bool] = []
    for node in reversed(graph.nodes):
        alive = 1 in used[node.first : node.first + len(node.avals)] or (checks and raises(node))
        live.append(alive)
        for i in node.inputs if alive else [i for i, _ in checked(node, avals)] if checks else ():
            used[i] = 1
    live.reverse()
    looking = [checked(n, avals) for n in graph.nodes]  # most nodes have no checks
    made = {
        c
        for n, alive, found in zip(graph.nodes, live, looking, strict=True)
        if found and alive and n.op is not CHECK_INDICES and any(a.size for a in n.avals)
        for c in found
    }
    r = Rewriter(graph)
    for node, alive, found in zip(graph.nodes, live, looking, strict=True):
        further = [
            (value, size)
            for value, size in (found if checks else ())
            if (value, size) not in made and not holds(r.maker(r.new[value]), size)
        ]
        made.update(further)
        if node.op is CHECK_INDICES and further:
            r.keep(node, (r.new[node.inputs[0]],))
            continue
        for value, size in further:
            r.emit(CHECK_INDICES, (r.new[value],), {"size": size, "of": node.op.name}, node)
            r.changed = True
        if alive and node.op is not CHECK_INDICES:
            r.keep(node, r.inputs(node))
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
