"""``row_updates``: sums over few rows of a large array are computed for these rows alone.

The gradient of a table whose rows are looked up is ``index_add(0, i, g)``, as large as the table, and a step of descent is
``p - index_add(0, i, g) * s``. Where the table has many more rows than ``i`` has indices this becomes

    at = take(scatter(0, i, 0 … n-1), i)            for each index, the position of the last one that is equal
    sums = index_add(0 [n, …], at, g)               the sum for a row, at that position
    put_rows(p, i, take(p, i) - take(sums, at) * s)

which reads and writes the rows alone where ``p`` is donated. Sums are added up in the same order and subtracted once, so the
bits are the same while ``s`` is finite; rows that no index names are then what they were.

Other updates, such as Adam's, change all rows. There ``index_add(0, i, g)`` becomes

    last = scatter(n, i, 0 … n-1)                   for each row, the position of the last index that names it, or n
    sums = index_add(0 [n + 1, …], take(last, i), g)
    take_rows(sums, last)

which is a part of the kernel that uses it: an array as large as the table is neither written nor read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype, float32
from firebrick.core.op import Access, Cost, Nondifferentiable, Op, Operand
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.graph import INTERNAL
from firebrick.ops import access, index_maps
from firebrick.ops.elementwise import multiply, subtract
from firebrick.ops.indexing import index_add, scatter, take
from firebrick.ops.movement import broadcast_to, reshape

MINIMUM = 1 << 16
"""Minimum number of elements of the array."""
FEWER = 4
"""How many times fewer indices than rows there must be."""
SHORT = 8
"""Minimum number of elements of a row that is read by its number, instead of from an array of all rows."""


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
TAKE_ROWS = Op(
    name="take_rows",
    doc="Rows of x. That they are in range, and not negative, is certain.",
    operands=(Operand("x", "any", "T"), Operand("rows", "integer")),
    infer=lambda x, rows: Aval((*rows.shape, *x.shape[1:]), x.dtype),
    reference=lambda x, rows: x[rows],
    vjp=Nondifferentiable("compilers make it after gradients"),
    residuals=(),
    samples=lambda rng, dtype: [],
    cost=lambda inputs, outputs, params: Cost(0.0, float(outputs[0].nbytes)),
    bound="memory",
    fusion="map",
    access=Access(
        partial(access.TAKE.element, axis=0), partial(access.TAKE.whole, axis=0), partial(access.TAKE.refused, axis=0)
    ),
    index_map=partial(index_maps.take, axis=0),
    tolerance=0,
)  # fmt: skip
INTERNAL.update({op.name: op for op in (PUT_ROWS, TAKE_ROWS)})


def row_updates(graph: Graph) -> Graph:
    """An equivalent graph with updates of rows; ``graph`` itself if it has no such update.

    Args:
        graph: Program; it is not changed.
    """
    if not any(n.op is index_add for n in graph.nodes):
        return graph
    rewriter = _Rewriter(graph)
    return rewriter.rewritten() if rewriter.changes else graph


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.given = graph.avals  # made anew at each use, so that work would be quadratic
        self.makers = {v: n for n in graph.nodes for v in n.results}
        self.uses: dict[int, int] = {}
        for v in [*graph.outputs, *(v for n in graph.nodes for v in n.inputs)]:
            self.uses[v] = self.uses.get(v, 0) + 1
        self.users: dict[int, list[Node]] = {}
        for n in graph.nodes:
            for v in n.inputs:
                self.users.setdefault(v, []).append(n)
        self.found = {n.first: row for n in graph.nodes if (row := self._row_of(n)) is not None}
        updates = {added.first for _, added, _ in self.found.values()}
        self.spread = {n.first for n in graph.nodes if n.op is index_add and n.first not in updates and self._is_within(n)}

    @property
    def changes(self) -> bool:
        """Whether there is anything to rewrite."""
        return bool(self.found or self.spread)

    def _row_of(self, n: Node) -> tuple[int, Node, int] | None:
        """The array, the node of the sums and the factor of an update; None if a node is none."""
        if n.op is not subtract or len({self.given[v] for v in n.inputs}) > 1:
            return None
        product = self._alone(n.inputs[1], multiply, n)
        for sums, factor in () if product is None else (product.inputs, product.inputs[::-1]):
            added = self._alone(sums, index_add, n)
            if added is not None and self.given[factor].shape == () and self._is_worth(added):
                return n.inputs[0], added, factor
        return None

    def _alone(self, v: int, op: Op, user: Node) -> Node | None:
        """The node that makes a value, if it is of this operation, and nothing else reads its result."""
        n = self.makers.get(v)
        return n if n is not None and n.op is op and self.uses[v] == 1 and n.region == user.region else None

    def _is_within(self, added: Node) -> bool:
        """Whether sums are worth it, and only elementwise operations with results of their shape read them."""
        users, graph = self.users.get(added.first, []), self.graph
        shape = added.avals[0].shape
        fused = all(n.op.fusion == "map" and n.avals[0].shape == shape for n in users)
        kept = not users or added.first in graph.outputs
        return fused and not kept and prod(shape[1:]) >= SHORT and self._is_worth(added)

    def _is_worth(self, added: Node) -> bool:
        aval = added.avals[0]
        count = self.given[added.inputs[1]].size
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
            elif n.first in self.spread:
                self.number[n.first] = self._spread(n)
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
        p, s = self.number[array], self.number[factor]
        i, last, sums = self._sums(added, self.avals[p].shape[0], 0)
        new = self._add(added, take, sums, self._add(added, take, last, i, axis=0), axis=0)
        old = self._add(added, take, p, i, axis=0)
        return self._add(added, PUT_ROWS, p, i, self._add(added, subtract, old, self._add(added, multiply, new, s)))

    def _spread(self, added: Node) -> int:
        rows, count = added.avals[0].shape[0], self.given[added.inputs[1]].size
        _, last, sums = self._sums(added, rows, count)
        return self._add(added, TAKE_ROWS, sums, last)

    def _sums(self, added: Node, rows: int, none: int) -> tuple[int, int, int]:
        """The indices as a line; for each row the last position of an index that names it, or ``none``; and at that position
        the sum for the row. With ``none`` of the number of indices there is one more sum, which is 0."""
        indices, g = (self.number[v] for v in added.inputs[1:])
        count, rest, zero = self.avals[indices].size, added.avals[0].shape[1:], added.avals[0].dtype.np.type(0)
        i = self._add(added, reshape, indices, shape=(count,))
        updates = self._add(added, reshape, g, shape=(count, *rest))
        unnamed = self._add(added, broadcast_to, self._constant(added, np.array(none, np.int32)), shape=(rows,))
        positions = self._constant(added, np.arange(count, dtype=np.int32))
        last = self._add(added, scatter, unnamed, i, positions, axis=0)
        length = count + 1 if none == count else count
        nothing = self._add(added, broadcast_to, self._constant(added, np.array(zero)), shape=(length, *rest))
        at = self._add(added, take, last, i, axis=0)
        return i, last, self._add(added, index_add, nothing, at, updates, axis=0)

    def _add(self, at: Node, op: Op, *inputs: int, **params: Any) -> int:
        aval = op.infer(*(self.avals[v] for v in inputs), **params)
        return self._put(at, op, inputs, params, (aval,))[0]

    def _constant(self, at: Node, value: np.ndarray[Any, Any]) -> int:
        return self._put(at, CONSTANT, (), {"value": value}, (Aval(value.shape, dtype(value.dtype)),))[0]
