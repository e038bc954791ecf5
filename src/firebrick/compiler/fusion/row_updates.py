"""``row_updates``: an update of a large array by sums over few of its rows becomes an update of these rows.

The gradient of a table whose rows are looked up is ``index_add(0, i, g)``, as large as the table, and a step of descent is
``p - index_add(0, i, g) * s``. Where the table has many more rows than ``i`` has indices this becomes

    at = take(scatter(0, i, 0 … n-1), i)            for each index, the position of the last one that is equal
    sums = index_add(0 [n, …], at, g)               the sum for a row, at that position
    put_rows(p, i, take(p, i) - take(sums, at) * s)

which reads and writes the rows alone where ``p`` is donated. Sums are added up in the same order and subtracted once, so the
bits are the same while ``s`` is finite; rows that no index names are then what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype, float32
from firebrick.core.op import Cost, Nondifferentiable, Op, Operand
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.graph import INTERNAL
from firebrick.ops.elementwise import multiply, subtract
from firebrick.ops.indexing import index_add, scatter, take
from firebrick.ops.movement import broadcast_to, reshape

MINIMUM = 1 << 16
"""Minimum number of elements of the array."""
FEWER = 4
"""How many times fewer indices than rows there must be."""


def _put_rows(x: np.ndarray[Any, Any], rows: np.ndarray[Any, Any], updates: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.array(x, order="C")
    out[rows] = updates
    return out


PUT_ROWS = Op(
    name="put_rows",
    doc="x with rows set to updates; those of equal rows are equal. That the rows are in range has been checked.",
    operands=(Operand("x", "any", "T"), Operand("rows", "integer"), Operand("updates", "any", "T")),
    infer=lambda x, rows, updates: Aval(x.shape, x.dtype),
    reference=_put_rows,
    vjp=Nondifferentiable("compilers make it after gradients"),
    residuals=(),
    samples=lambda rng, dtype: [],
    cost=lambda inputs, outputs, params: Cost(0.0, float(2 * inputs[2].nbytes)),
    bound="memory",
    fusion="scatter",
    kind="scatter",
    facts=lambda operands, results, **_: {"fold": "set", "slices": True},
    tolerance=0,
)
INTERNAL[PUT_ROWS.name] = PUT_ROWS


def row_updates(graph: Graph) -> Graph:
    """An equivalent graph with updates of rows; ``graph`` itself if it has no such update.

    Args:
        graph: Program; it is not changed.
    """
    if not any(n.op is index_add for n in graph.nodes):
        return graph
    rewriter = _Rewriter(graph)
    return rewriter.rewritten() if rewriter.found else graph


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {v: n for n in graph.nodes for v in n.results}
        self.uses: dict[int, int] = {}
        for v in [*graph.outputs, *(v for n in graph.nodes for v in n.inputs)]:
            self.uses[v] = self.uses.get(v, 0) + 1
        self.found = {n.first: row for n in graph.nodes if (row := self._row_of(n)) is not None}

    def _row_of(self, n: Node) -> tuple[int, Node, int] | None:
        """The array, the node of the sums and the factor of an update; None if a node is none."""
        if n.op is not subtract or len({self.graph.avals[v] for v in n.inputs}) > 1:
            return None
        product = self._alone(n.inputs[1], multiply, n)
        for sums, factor in () if product is None else (product.inputs, product.inputs[::-1]):
            added = self._alone(sums, index_add, n)
            if added is not None and self.graph.avals[factor].shape == () and self._is_worth(added):
                return n.inputs[0], added, factor
        return None

    def _alone(self, v: int, op: Op, user: Node) -> Node | None:
        """The node that makes a value, if it is of this operation, and nothing else reads its result."""
        n = self.makers.get(v)
        return n if n is not None and n.op is op and self.uses[v] == 1 and n.region == user.region else None

    def _is_worth(self, added: Node) -> bool:
        avals, aval = self.graph.avals, added.avals[0]
        count = avals[added.inputs[1]].size
        large = aval.size >= MINIMUM and count and aval.shape[0] >= FEWER * count
        return bool(large) and added.params["axis"] == 0 and aval.dtype is float32 and self._is_zero(added.inputs[0])

    def _is_zero(self, v: int) -> bool:
        n = self.makers.get(v)
        while n is not None and n.op is broadcast_to:
            n = self.makers.get(n.inputs[0])
        value = n.params["value"] if n is not None and n.op is CONSTANT else np.ones(1)
        return not np.any(value) and not np.any(np.signbit(value))

    def rewritten(self) -> Graph:
        """The graph with updates of rows, without the nodes that nothing reads any more."""
        graph = self.graph
        dropped = {self.makers[n.inputs[1]].first for n in graph.nodes if n.first in self.found}
        dropped |= {added.first for _, added, _ in self.found.values()}
        self.into = Graph(list(graph.inputs), names=list(graph.names))
        self.avals = list(graph.inputs)
        self.number = {v: v for v in range(len(graph.inputs))}
        for n in graph.nodes:
            if n.first in self.found:
                self.number[n.first] = self._update(*self.found[n.first])
            elif n.first not in dropped:
                made = self._put(n, n.op, [self.number[v] for v in n.inputs], n.params, n.avals)
                self.number.update(zip(n.results, made, strict=True))
        self.into.outputs = tuple(self.number[v] for v in graph.outputs)
        return self.into

    def _put(self, at: Node, op: Op, inputs: Sequence[int], params: dict[str, Any], avals: tuple[Aval, ...]) -> range:
        made = Node(op, tuple(inputs), params, len(self.avals), avals, at.label, at.line, at.region)
        self.into.nodes.append(made)
        self.avals.extend(avals)
        return made.results

    def _update(self, array: int, added: Node, factor: int) -> int:
        p, indices, g, s = (self.number[v] for v in (array, *added.inputs[1:], factor))

        def add(op: Op, *inputs: int, **params: Any) -> int:
            aval = op.infer(*(self.avals[v] for v in inputs), **params)
            return self._put(added, op, inputs, params, (aval,))[0]

        def constant(value: np.ndarray[Any, Any]) -> int:
            return self._put(added, CONSTANT, (), {"value": value}, (Aval(value.shape, dtype(value.dtype)),))[0]

        rows, rest = self.avals[p].shape[0], self.avals[p].shape[1:]
        count = self.avals[indices].size
        i = add(reshape, indices, shape=(count,))
        updates = add(reshape, g, shape=(count, *rest))
        positions = constant(np.arange(count, dtype=np.int32))
        last = add(scatter, add(broadcast_to, constant(np.zeros((), np.int32)), shape=(rows,)), i, positions, axis=0)
        nothing = add(broadcast_to, constant(np.zeros((), self.avals[g].dtype.np)), shape=(count, *rest))
        at = add(take, last, i, axis=0)
        sums = add(take, add(index_add, nothing, at, updates, axis=0), at, axis=0)
        return add(PUT_ROWS, p, i, add(subtract, add(take, p, i, axis=0), add(multiply, sums, s)))
