"""``expanded``: replaces ops whose entries have an expansion into simpler ops (``Op.expand``), which fuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.autocast import NARROW
from firebrick.core.aval import Aval, Shape
from firebrick.core.dtypes import DType, float32
from firebrick.core.op import Op
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ops.casts import cast


def expanded(graph: Graph) -> Graph:
    """An equivalent graph in which ops are expanded; ``graph`` itself if there are none."""
    avals = graph.avals
    rules = [n.op.expand and n.op.expand([avals[v] for v in n.inputs], n.avals, **n.params) for n in graph.nodes]
    if not any(rules):
        return graph
    expander = _Expander(graph)
    for n, rule in zip(graph.nodes, rules, strict=True):
        found = _Expansion(expander, n).values(rule) if rule else expander.copy(n)
        expander.number.update(zip(n.results, found, strict=True))
    expander.graph.outputs = tuple(expander.number[v] for v in graph.outputs)
    return expander.graph


class _Expander:
    """The new graph, and the map of old values to its values."""

    def __init__(self, graph: Graph) -> None:
        self.graph = Graph(list(graph.inputs), names=list(graph.names))
        self.avals = list(graph.inputs)
        self.number = {v: v for v in range(len(graph.inputs))}

    def put(self, at: Node, op: Op, inputs: tuple[int, ...], params: Any, avals: tuple[Aval, ...]) -> tuple[int, ...]:
        """Append a node that replaces ``at``."""
        first = len(self.avals)
        self.graph.nodes.append(Node(op, inputs, params, first, avals, at.label, at.line, at.region))
        self.avals.extend(avals)
        return tuple(range(first, len(self.avals)))

    def copy(self, n: Node) -> tuple[int, ...]:
        """Append a copy of a node."""
        return self.put(n, n.op, tuple(self.number[v] for v in n.inputs), n.params, n.avals)


class _Expansion:
    """The replacement of one node: ``ops.expansions.Build``. Half precision is computed in float32 and rounded at the end,
    since intermediate values may be stored."""

    def __init__(self, into: _Expander, node: Node) -> None:
        self.into, self.node = into, node

    def values(self, rule: Any) -> tuple[int, ...]:
        """The values that replace the node's results."""
        operands = [self._cast(self.into.number[v], float32) for v in self.node.inputs]
        return tuple(self._cast(v, a.dtype) for v, a in zip(rule(self, *operands), self.node.avals, strict=True))

    def _cast(self, v: int, dtype: DType) -> int:
        """A value cast from half precision to float32, or back."""
        halves = (self.into.avals[v].dtype in NARROW) != (dtype in NARROW)
        return self(cast, v, dtype=dtype) if halves else v

    def __call__(self, op: Op, *operands: int, **params: Any) -> int:
        aval = op.infer(*(self.into.avals[v] for v in operands), **params)
        assert isinstance(aval, Aval)
        return self.into.put(self.node, op, operands, params, (aval,))[0]

    def constant(self, value: float, like: int) -> int:
        dtype = self.into.avals[like].dtype
        return self.into.put(self.node, CONSTANT, (), {"value": np.asarray(value, dtype.np)}, (Aval((), dtype),))[0]

    def shape(self, value: int) -> Shape:
        return self.into.avals[value].shape
