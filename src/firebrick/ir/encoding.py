"""``Tables``: a graph as rows of integers, in one form for equal graphs: what programs that are kept on disk are found by.

Ops, shapes, parameters and labels stand in tables, each once, and so do heads: all that a node has but its operands, as
positions in these tables. A node is a row of its head's position and its operands. Lines of the user's program have numbers by
the order in which they first occur, and their text is not part of the form: a program is the same one after an edit above it,
and whoever reads it takes the lines of the graph that is there. An op that is written in the kernel language has the form of
its code: what it does for the operands of each node.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import GraphError
from firebrick.core.op import Op
from firebrick.core.sources import defines
from firebrick.ir.graph import INTERNAL, Graph, Node
from firebrick.ir.keys import key_of
from firebrick.ir.nested import nodes_in
from firebrick.ir.serialize import from_value, to_value
from firebrick.ops import OPS

MOST = 1 << 20
"""Bytes of the arrays in a graph up to which it has this form: an entry on disk holds them."""


Sizes = tuple[int, int, int, int, int]


class NotEncodable(Exception):
    """A graph holds something that no other process can recognise: an op of another package, an object, a large array."""


class Tables:
    """The tables of one graph, and of others that are described by them.

    Attributes:
        ops: In the order in which they first occurred, as ``avals``, ``params``, ``labels``, ``lines`` and ``heads``.
        heads: What nodes have but their operands, which few kinds of nodes of a large program differ in.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.avals: list[Aval] = []
        self.params: list[dict[str, Any]] = [{}]
        self.labels: list[str | None] = [None]
        self.lines: list[str | None] = [None]
        self.heads: list[tuple[int, ...]] = []
        self._ops: dict[Op, int] = {}
        self._avals: dict[Aval, int] = {}
        self._params: dict[Any, int] = {}
        self._of_kernels: set[int] = set()  # numbers of parameters of ops in the kernel language, whose code is the form
        self._labels: dict[str | None, int] = {None: 0}
        self._lines: dict[str | None, int] = {None: 0}
        self._heads: dict[tuple[int, ...], int] = {}
        self._bytes = 0
        self._closed = False

    # writing

    def close(self) -> None:
        """Take no further lines: a graph that is described by another one's has only lines of that."""
        self._closed = True

    def aval(self, a: Aval) -> int:
        """The number of a shape and dtype."""
        found = self._avals.get(a)
        if found is None:
            found = self._avals[a] = len(self.avals)
            self.avals.append(a)
        return found

    def line(self, text: str | None) -> int:
        """The number of a line."""
        found = self._lines.get(text)
        if found is None:
            if self._closed:
                raise NotEncodable(f"a line of no node: {text}")
            found = self._lines[text] = len(self.lines)
            self.lines.append(text)
        return found

    def _label(self, text: str | None) -> int:
        found = self._labels.get(text)
        if found is None:
            found = self._labels[text] = len(self.labels)
            self.labels.append(text)
        return found

    def _op(self, op: Op) -> int:
        found = self._ops.get(op)
        if found is None:
            if op.program is None:
                _check_ours(op)
            found = self._ops[op] = len(self.ops)
            self.ops.append(op)
        return found

    def _param(self, n: Node) -> int:
        key = key_of(n.params), n.op.program is not None
        found = self._params.get(key)
        if found is None:
            if n.op.control is not None:
                for m in nodes_in([n]):
                    _check_ours(m.op)
            for value in n.params.values():
                self._bytes += getattr(value, "nbytes", 0)
            if self._bytes > MOST:
                raise NotEncodable("more bytes of arrays than are kept")
            found = self._params[key] = len(self.params)
            self.params.append(n.params)
            if n.op.program is not None:
                self._of_kernels.add(found)
        return found

    def kernels(self, graph: Graph) -> list[Any]:
        """The code of a graph's nodes that are written in the kernel language: texts, and for each node its own text and the
        lines of its kernel."""
        texts: dict[str, int] = {}
        known: dict[Any, tuple[int, list[int]]] = {}
        of: list[Any] = []
        avals = graph.avals if any(n.op.program is not None for n in graph.nodes) else []
        for k, n in enumerate(graph.nodes):
            if n.op.program is None:
                continue
            operands = tuple([avals[v] for v in n.inputs])
            key = n.op, operands, self._param(n)
            if key not in known:
                text, lines = n.op.program.identity(operands, n.params)
                known[key] = texts.setdefault(text, len(texts)), [self.line(line) for line in lines]
            of.append([k, *known[key]])
        return [list(texts), of]

    def rows(self, nodes: Sequence[Node]) -> list[int]:
        """The rows of nodes, one after another: the number of the node's head, then its operands.

        Raises:
            NotEncodable: One of them holds something that has no form.
        """
        if self._closed and any(n.op.program is not None and n.op not in self._ops for n in nodes):
            raise NotEncodable("an op in the kernel language that the graph does not have")
        out: list[int] = []
        append, extend = out.append, out.extend
        # by identity: nodes that a trace has copied share parameters and avals
        known: dict[Any, int] = {}
        for n in nodes:
            inputs, params = n.inputs, n.params
            what = n.op, id(params) if params else 0, id(n.avals), n.line, n.label, n.region, len(inputs)
            head = known.get(what)
            if head is None:
                head = known[what] = self._head(n)
            append(head)
            extend(inputs)
        return out

    def _head(self, n: Node) -> int:
        """The number of all that a node has but its operands: of op, parameters, line and label, region, how many operands, and
        the numbers of its results' shapes and dtypes."""
        head = (
            self._op(n.op), self._param(n) if n.params else 0, self.line(n.line), self._label(n.label), n.region, len(n.inputs),
            *map(self.aval, n.avals),
        )  # fmt: skip
        found = self._heads.get(head)
        if found is None:
            found = self._heads[head] = len(self.heads)
            self.heads.append(head)
        return found

    def sizes(self) -> Sizes:
        """How long the tables are, but for the lines."""
        return len(self.ops), len(self.avals), len(self.params), len(self.labels), len(self.heads)

    def beyond(self, sizes: Sizes) -> list[Any]:
        """What came after a call of ``sizes``, in terms of JSON.

        Raises:
            NotEncodable: A parameter has a type that no op takes.
        """
        ops, avals, params, labels, heads = sizes
        try:
            written = [
                [] if k in self._of_kernels else [[name, to_value(v)] for name, v in self.params[k].items()]
                for k in range(params, len(self.params))
            ]
        except (TypeError, GraphError) as e:
            raise NotEncodable(str(e)) from None
        return [
            [op.name for op in self.ops[ops:]],
            [[a.dtype.name, *a.shape] for a in self.avals[avals:]],
            written,
            self.labels[labels:],
            self.heads[heads:],
        ]

    # reading

    def extend(self, more: Sequence[Any]) -> None:
        """Put back what ``beyond`` gave.

        Raises:
            LookupError, TypeError, ValueError: It is not of that form.
        """
        ops, avals, params, labels, heads = more
        self.ops += [INTERNAL[name] if name in INTERNAL else OPS[name] for name in ops]
        self.avals += [Aval(tuple(shape), as_dtype(name)) for name, *shape in avals]
        self.params += [{k: from_value(v) for k, v in items} for items in params]
        self.labels += labels
        self.heads += map(tuple, heads)

    def nodes(self, rows: Sequence[int], first: int) -> list[Node]:
        """The nodes of rows; the results of the first one have numbers from ``first`` on."""
        heads = [
            (
                self.ops[op], self.params[param], tuple([self.avals[a] for a in avals]), self.labels[label], self.lines[line],
                region, inputs,
            )
            for op, param, line, label, region, inputs, *avals in self.heads
        ]  # fmt: skip
        out: list[Node] = []
        at, end = 0, len(rows)
        while at < end:
            op, params, made, label, line, region, inputs = heads[rows[at]]
            at += 1
            middle = at + inputs
            out.append(Node(op, tuple(rows[at:middle]), params, first, made, label, line, region))
            first += len(made)
            at = middle
        if at != end:
            raise ValueError("rows that end within a node")
        return out


def encoded(graph: Graph) -> tuple[Tables, bytes] | None:
    """A graph's tables and its form; None if it has none. The names of its inputs are not in it.

    Args:
        graph: Program; equal ones have equal forms, and no others have.
    """
    tables = Tables()
    try:
        inputs = [tables.aval(a) for a in graph.inputs]
        rows = tables.rows(graph.nodes)
        whole = [inputs, rows, graph.outputs, *tables.beyond((0, 0, 1, 1, 0)), *tables.kernels(graph)]
    except NotEncodable:
        return None
    tables.close()
    return tables, json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()


def _check_ours(op: Op) -> None:
    """What ops of other packages compute may change while this package stays what it is."""
    known = INTERNAL.get(op.name, OPS.get(op.name)) is op
    if not (known and defines(str(op.reference.__module__))):
        raise NotEncodable(f"an op of another package: {op.name}")
