"""``views_inside``: transposed matrices that all steps of a scan multiply by are transposed in its body.

A scan reads row-major operands, so a transposed matrix outside of it is copied. Inside, a product reads the matrix as it is in
memory, or packs it, which the loop does once.
"""

from __future__ import annotations

from dataclasses import replace

from firebrick.ir import Graph, Node

SHORTEST = 4
"""Minimum number of steps."""


def views_inside(graph: Graph) -> Graph:
    """The graph, or an equivalent one in which scans transpose the matrices that only products of their bodies read."""
    if not any(_is_scan(n) for n in graph.nodes):
        return graph
    made = {v: n for n in graph.nodes if n.op.name == "permute" for v in n.results}
    nodes = [_with_views(n, made, graph) if _is_scan(n) else n for n in graph.nodes]
    return graph if nodes == graph.nodes else replace(graph, nodes=nodes)


def _is_scan(n: Node) -> bool:
    return n.op.name == "scan" and n.op.control is not None and n.params["length"] >= SHORTEST


def _with_views(n: Node, made: dict[int, Node], graph: Graph) -> Node:
    """A scan that transposes its operands inside."""
    body, avals = n.params["body"], graph.avals
    moved = {i: made[v] for i, v in enumerate(n.inputs[: n.params["consts"]]) if v in made and _only_multiplied(body, i)}
    if not moved:
        return n
    count, by = len(body.inputs), len(moved)
    inputs = [avals[moved[i].inputs[0]] if i in moved else a for i, a in enumerate(body.inputs)]
    number = {i: count + k for k, i in enumerate(moved)}

    def of(v: int) -> int:
        return v + by if v >= count else number.get(v, v)

    views = [replace(node, inputs=(i,), first=number[i], label=None) for i, node in moved.items()]
    rest = [replace(x, inputs=tuple(map(of, x.inputs)), first=x.first + by) for x in body.nodes]
    inner = Graph(inputs, [*views, *rest], tuple(map(of, body.outputs)), list(body.names))
    operands = tuple(moved[i].inputs[0] if i in moved else v for i, v in enumerate(n.inputs))
    return replace(n, inputs=operands, params={**n.params, "body": inner})


def _only_multiplied(body: Graph, v: int) -> bool:
    """Whether only products of matrices read a value, or transposed views of it."""
    readers = [n for n in body.nodes if v in n.inputs]
    if v in body.outputs or not readers or len(body.avals[v].shape) != 2:
        return False
    return all(n.op.name == "matmul" or (n.op.name == "permute" and _only_multiplied(body, n.first)) for n in readers)
