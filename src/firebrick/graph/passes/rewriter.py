"""``Rewriter``: builds the graph that a pass returns, in one walk, and gives old values their new numbers.

A pass promises: the same inputs, as many outputs in the same order, every value equal bit for bit on the reference
interpreter (the payload of a NaN aside), no node moved to another region. A graph that it does not change is returned itself,
which is how ``optimize`` knows that nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.op import Op
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ops import OPS

BROADCAST_TO = OPS["broadcast_to"]


class Rewriter:
    """A graph under construction.

    Up to the first node that a pass replaces the new graph is the old one, and nothing is copied: most passes over most graphs
    change nothing.

    Attributes:
        avals: Shape and dtype of each new value; while nothing is copied, those of values to come too.
        new: For each old value seen so far its new number; while nothing is copied, for all values.
        size: How many new values there are.
    """

    __slots__ = ("_kept", "_nodes", "_places", "avals", "changed", "copies", "graph", "new", "size")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.avals: list[Aval] = graph.avals
        self.new: list[int] = list(range(len(self.avals)))
        self.size = len(graph.inputs)
        self._kept = 0  # old nodes that are new ones too, one after another
        self._nodes: list[Node] = graph.nodes
        self._places: list[int] = []  # of the node that makes a value; made when it is first asked for
        self.copies = self.changed = False

    def inputs(self, node: Node) -> tuple[int, ...]:
        """The new numbers of an old node's operands."""
        return tuple([self.new[i] for i in node.inputs]) if self.copies else node.inputs

    def maker(self, value: int) -> Node | None:
        """The new node that makes a new value; None for an input."""
        if not self._places:
            self._find_places()
        place = self._places[value]
        return self._nodes[place] if place >= 0 else None

    def keep(self, node: Node, inputs: tuple[int, ...]) -> None:
        """The node as it is, over new operands."""
        if not self.copies:
            if inputs == node.inputs and self.graph.nodes[self._kept] is node:
                self._kept += 1
                self.size += len(node.avals)
                return
            self._copy()
        first = self.size
        if inputs != node.inputs or first != node.first:
            node = Node(node.op, inputs, node.params, first, node.avals, node.label, node.line, node.region)
        if len(node.avals) > 1:
            self.new.extend(self._append(node))
            return
        self._places.append(len(self._nodes))  # what _append does, for most nodes
        self._nodes.append(node)
        self.avals.append(node.avals[0])
        self.new.append(first)
        self.size += 1

    def emit(self, op: Op, inputs: tuple[int, ...], params: dict[str, Any], like: Node) -> int:
        """A new node of one result, with the line and region of the old node ``like``; returns the result's number."""
        aval = op.infer(*(self.avals[i] for i in inputs), **params)
        return self._append(Node(op, inputs, params, self.size, (aval,), None, like.line, like.region))[0]

    def emit_all(self, like: Node, inputs: tuple[int, ...], params: dict[str, Any], avals: tuple[Aval, ...]) -> range:
        """A new node of the op, line and region of the old node ``like``; returns the numbers of its results."""
        return self._append(Node(like.op, inputs, params, self.size, avals, None, like.line, like.region))

    def copy(self, node: Node, inputs: tuple[int, ...], region: int) -> range:
        """A node of another graph, over values of this one; returns the numbers of its results."""
        return self._append(Node(node.op, inputs, node.params, self.size, node.avals, node.label, node.line, region))

    def constant(self, value: np.ndarray[Any, Any], like: Node) -> int:
        """A new constant; returns its number."""
        return self.emit(CONSTANT, (), {"value": value}, like)

    def replace(self, node: Node, *values: int) -> None:
        """New values in place of an old node's results; the first one takes over its label if it has none."""
        self._change()
        self.new.extend(values)
        if node.label is not None and values:
            made = self.maker(values[0])
            if made is not None and made.label is None and made.first == values[0]:
                self._nodes[self._places[values[0]]] = replace(made, label=node.label)

    def drop(self, node: Node) -> None:
        """An old node whose results nothing uses."""
        self._change()
        self.new.extend([-1] * len(node.avals))

    def finish(self) -> Graph:
        """The new graph; the old one if nothing changed."""
        if not self.changed:
            return self.graph
        outputs = tuple(self.new[i] for i in self.graph.outputs)
        return Graph(self.graph.inputs, self._nodes, outputs, self.graph.names)

    def _append(self, node: Node) -> range:
        if not self.copies:
            self._copy()
        self._places.extend([len(self._nodes)] * len(node.avals))
        self._nodes.append(node)
        self.avals.extend(node.avals)
        self.size += len(node.avals)
        return range(node.first, self.size)

    def _change(self) -> None:
        self.changed = True
        if not self.copies:
            self._copy()

    def _copy(self) -> None:
        """From here on the new graph has nodes of its own."""
        if not self._places:
            self._find_places()
        self.copies = True
        self._nodes = self.graph.nodes[: self._kept]
        for held in (self.avals, self.new, self._places):
            del held[self.size :]

    def _find_places(self) -> None:
        self._places = [-1] * len(self.graph.inputs)
        for place, node in enumerate(self.graph.nodes):
            self._places.extend([place] * len(node.avals))


Rule = Callable[[Rewriter, Node, tuple[int, ...]], int | None]
"""``(rewriter, old node, its new operands)``: the value to take in place of the result; None to keep the node."""


def rewrite(graph: Graph, rules: Mapping[str, Rule]) -> Graph:
    """One walk with a rule for each op's name."""
    r = Rewriter(graph)
    for node in graph.nodes:
        inputs = r.inputs(node)
        rule = rules.get(node.op.name)
        found = rule(r, node, inputs) if rule is not None else None
        if found is None:
            r.keep(node, inputs)
        else:
            r.replace(node, found)
    return r.finish()


def inner(r: Rewriter, node: Node, value: int, *names: str) -> Node | None:
    """The maker of an operand, if it is one of the named ops and in the region of ``node``.

    Rules look through an operand only inside one region: else what is computed again to save memory would read other values
    than those kept for it.
    """
    made = r.maker(value)
    return made if made is not None and made.region == node.region and made.op.name in names else None


def shaped(r: Rewriter, value: int, node: Node) -> int | None:
    """A value in place of an elementwise node's result, broadcast to its shape; None if the dtypes differ."""
    goal = node.avals[0]
    if r.avals[value] == goal:
        return value
    if r.avals[value].dtype is not goal.dtype:
        return None
    return r.emit(BROADCAST_TO, (value,), {"shape": goal.shape}, node)
