"""``Graph``: a program as a list of op nodes in single-assignment form, and its reference interpreter.

Values are numbered: first the inputs, then the constants, then each node's results in order. A graph lives on one device
and holds no tensors, so an engine may compile it once and run it on any arrays of the same shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Op

Execute = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True)
class Node:
    """One operation: values ``inputs`` to values ``first``, ``first + 1``, … of shapes and dtypes ``avals``."""

    op: Op
    inputs: tuple[int, ...]
    params: dict[str, Any]
    first: int
    avals: tuple[Aval, ...]


@dataclass
class Graph:
    """A program over numbered values.

    Attributes:
        inputs: Shape and dtype of each input; they are values 0, 1, ….
        nodes: Operations in an order in which every operand is defined before it is used.
        outputs: Numbers of the results.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.core.aval import Aval
        >>> from firebrick.ir import Graph
        >>> g = Graph([Aval((2,), fb.float32)])
        >>> (y,) = g.add(fb.ops.OPS["exp"], 0)
        >>> g.outputs = (y,)
        >>> print(g)
        %0: float32[2]
        %1: float32[2] = exp(%0)
        return %1
    """

    inputs: list[Aval]
    nodes: list[Node] = field(default_factory=list)
    outputs: tuple[int, ...] = ()

    @property
    def avals(self) -> list[Aval]:
        """Shape and dtype of every value."""
        return [*self.inputs, *(a for n in self.nodes for a in n.avals)]

    def add(self, op: Op, *inputs: int, **params: Any) -> tuple[int, ...]:
        """Append one operation; returns the numbers of its results.

        Raises:
            ShapeError: An operand is not defined yet, or the op's shape rule refuses the operands.
        """
        known = self.avals
        if any(not 0 <= i < len(known) for i in inputs):
            raise ShapeError("a node's operands are defined before it", f"{inputs} of {len(known)}", "append in order")
        inferred = op.infer(*(known[i] for i in inputs), **params)
        avals = (inferred,) if type(inferred) is Aval else tuple(inferred)
        self.nodes.append(Node(op, inputs, params, len(known), avals))
        return tuple(range(len(known), len(known) + len(avals)))

    def __str__(self) -> str:
        lines = [f"%{i}: {a}" for i, a in enumerate(self.inputs)]
        for n in self.nodes:
            names = ", ".join(f"%{n.first + k}: {a}" for k, a in enumerate(n.avals))
            args = [f"%{i}" for i in n.inputs] + [f"{k}={v}" for k, v in n.params.items()]
            lines.append(f"{names} = {n.op.name}({', '.join(args)})")
        return "\n".join([*lines, "return " + ", ".join(f"%{i}" for i in self.outputs)])


def interpret(graph: Graph, inputs: Sequence[Any], execute: Execute) -> tuple[Any, ...]:
    """Run a graph node by node with ``execute(op, inputs, params)``; values are dropped after their last use."""
    if len(inputs) != len(graph.inputs):
        raise ShapeError("a graph takes its inputs in order", f"{len(inputs)} of {len(graph.inputs)}", "pass each one")
    last = {i: k for k, n in enumerate(graph.nodes) for i in n.inputs}
    values: dict[int, Any] = dict(enumerate(inputs))
    for k, n in enumerate(graph.nodes):
        result = execute(n.op, tuple(values[i] for i in n.inputs), n.params)
        for slot, value in enumerate(result if type(result) is tuple else (result,)):
            values[n.first + slot] = value
        for i in set(n.inputs):
            if last[i] == k and i not in graph.outputs:
                values.pop(i, None)
    return tuple(values[i] for i in graph.outputs)
