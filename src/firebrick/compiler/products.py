"""Transposed products: ``(A B)ᵀ`` becomes ``Bᵀ Aᵀ``, which lies in rows and needs no transposition.

The gradient of a linear layer's weight is such a product. Left as it is, it is a transposed view of what the product made, and
every elementwise op of the update that mixes it with the weight walks through memory with strides, several times as slowly.
Which sums a library's product forms in which order may depend on the transposition, as it does on the size.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from firebrick.core.aval import Aval
from firebrick.ir import Graph, Node
from firebrick.ops import OPS

_PERMUTE, _MATMUL = OPS["permute"], OPS["matmul"]


def _transposes(n: Node, ndim: int) -> bool:
    """Whether a node exchanges the last two of ``ndim`` axes and nothing else."""
    return n.op is _PERMUTE and ndim >= 2 and tuple(n.params["axes"]) == (*range(ndim - 2), ndim - 1, ndim - 2)


def in_rows(graph: Graph) -> Graph:
    """The graph with transposed products for products that are used transposed only; the graph itself if it has none."""
    users: dict[int, list[Node]] = defaultdict(list)
    for n in graph.nodes:
        for i in n.inputs:
            users[i].append(n)
    avals, outputs = graph.avals, set(graph.outputs)
    found: dict[int, Node] = {}
    for n in graph.nodes:
        if n.op is _MATMUL and n.first not in outputs and users[n.first]:
            ndim = n.avals[0].ndim
            if all(_transposes(u, ndim) for u in users[n.first]) and all(avals[i].ndim == ndim for i in n.inputs):
                found[n.first] = users[n.first][0]
    return _Rebuilt(graph, found, users).graph if found else graph


class _Rebuilt:
    def __init__(self, graph: Graph, found: dict[int, Node], users: dict[int, list[Node]]) -> None:
        self.graph = Graph(list(graph.inputs), [], (), list(graph.names))
        self.avals: list[Aval] = list(graph.inputs)
        self.number = {v: v for v in range(len(graph.inputs))}
        # transposes of the graph, by the value that they are
        self.transposes = {n.first: n for n in graph.nodes if n.op is _PERMUTE and _transposes(n, n.avals[0].ndim)}
        outputs = set(graph.outputs)
        for n in graph.nodes:
            if n.first in found:
                u = found[n.first]
                left, right = (self.transposed(i, n) for i in reversed(n.inputs))
                self.number[n.first] = self.emit(replace(n, inputs=(left, right), avals=u.avals, label=u.label or n.label))
            elif n.op is _PERMUTE and n.inputs[0] in found:
                self.number[n.first] = self.number[n.inputs[0]]
            elif not self.undone(n, found, users[n.first], outputs):
                first = self.emit(replace(n, inputs=tuple(self.number[i] for i in n.inputs)))
                self.number.update(zip(n.results, range(first, first + len(n.avals)), strict=True))
        self.graph.outputs = tuple(self.number[v] for v in graph.outputs)

    def emit(self, n: Node) -> int:
        """Append a node under the next number, which is returned."""
        made = replace(n, first=len(self.avals))
        self.graph.nodes.append(made)
        self.avals += made.avals
        return made.first

    def undone(self, n: Node, found: dict[int, Node], users: list[Node], outputs: set[int]) -> bool:
        """Whether a node is a transpose that only products take which take what it transposes instead."""
        if n.first not in self.transposes or n.first in outputs or not users:
            return False
        return all(u.first in found and u.region == n.region for u in users)

    def transposed(self, v: int, like: Node) -> int:
        """The new number of the transpose of an old value: its operand, where it is one itself."""
        before = self.transposes.get(v)
        if before is not None and before.region == like.region:
            return self.number[before.inputs[0]]
        x = self.number[v]
        shape = self.avals[x].shape
        axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        aval = Aval(tuple(shape[a] for a in axes), self.avals[x].dtype)
        return self.emit(replace(like, op=_PERMUTE, inputs=(x,), params={"axes": axes}, avals=(aval,), label=None))
