"""``Graph``: a program as data, a list of operations in static single assignment form.

Values are numbered: the inputs first, then the results of each node. Passes return new graphs and do not change the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ShapeError
from firebrick.core.op import Cost, Nondifferentiable, Op

Execute = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]

CONSTANT = Op(
    name="constant",
    doc="An array that is part of the program.",
    operands=(),
    infer=lambda *, value: Aval(value.shape, as_dtype(value.dtype)),
    reference=lambda *, value: value,
    vjp=Nondifferentiable("a constant depends on nothing"),
    residuals=(),
    samples=lambda rng, dtype: [],
    cost=lambda inputs, outputs, params: Cost(0.0, 0.0),
    bound="memory",
    fusion="none",
    tolerance=0,
)

INTERNAL: dict[str, Op] = {CONSTANT.name: CONSTANT}  # ops that occur in graphs only, by name; they are not in the op table


# Not frozen: a trace of a large program makes a million nodes, and a frozen one takes four times as long to make.
@dataclass(slots=True)
class Node:
    """One operation: values ``inputs`` to values ``first``, ``first + 1``, … of shapes and dtypes ``avals``; never changed.

    Attributes:
        label: The user's name for the first result, if it has one.
        line: The line of the user's program: ``file:line in function``.
        region: Not 0 for a recomputation that saves memory: nodes of different regions are never merged.
    """

    op: Op
    inputs: tuple[int, ...]
    params: dict[str, Any]
    first: int
    avals: tuple[Aval, ...]
    label: str | None = None
    line: str | None = None
    region: int = 0

    @property
    def results(self) -> range:
        """Numbers of the results."""
        return range(self.first, self.first + len(self.avals))


@dataclass
class Graph:
    """A program over numbered values.

    Attributes:
        inputs: Shape and dtype of each input; they are values 0, 1, ….
        nodes: Operations in an order in which every operand is defined before it is used.
        outputs: Numbers of the results.
        names: The user's name for each input (``x``, ``model.conv1.weight``), or an empty text.

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
    names: list[str] = field(default_factory=list)

    @property
    def avals(self) -> list[Aval]:
        """Shape and dtype of every value."""
        return [*self.inputs, *chain.from_iterable([n.avals for n in self.nodes])]

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.nodes[-1].first + len(self.nodes[-1].avals) if self.nodes else len(self.inputs)

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

    def constant(self, value: np.ndarray[Any, Any]) -> int:
        """Append an array that is part of the program; returns its number."""
        return self.add(CONSTANT, value=value)[0]

    def last_uses(self) -> dict[int, int]:
        """For each value that a node uses and that is no output: the index of the last node that uses it."""
        kept = set(self.outputs)
        return {i: k for k, n in enumerate(self.nodes) for i in n.inputs if i not in kept}

    def __str__(self) -> str:
        from firebrick.ir.text import show

        return show(self)


def interpret(graph: Graph, inputs: Sequence[Any], execute: Execute) -> tuple[Any, ...]:
    """Run a graph node by node with ``execute(op, inputs, params)``; values are dropped after their last use.

    Constants reach ``execute`` as an op without operands: ``constant(value=array)``.
    """
    if len(inputs) != len(graph.inputs):
        raise ShapeError("a graph takes its inputs in order", f"{len(inputs)} of {len(graph.inputs)}", "pass each one")
    last = graph.last_uses()
    kept = set(graph.outputs)
    values: dict[int, Any] = dict(enumerate(inputs))
    for k, n in enumerate(graph.nodes):
        result = execute(n.op, tuple(values[i] for i in n.inputs), n.params)
        for slot, value in enumerate(result if type(result) is tuple else (result,)):
            if n.first + slot in last or n.first + slot in kept:
                values[n.first + slot] = value
        for i in set(n.inputs):
            if last.get(i) == k:
                values.pop(i, None)
    return tuple(values[i] for i in graph.outputs)
