"""Groups of one node, whose kernels read row-major operands; some operands may be constants of the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.ir import CONSTANT, Graph, Node

Scalar = bool | int | float


@dataclass(frozen=True, slots=True)
class Single:
    """The node of a group, and its operands.

    Attributes:
        node: The group's last node; the others are constants that it reads.
        operands: Their shapes and dtypes.
        sources: For each operand, the number of the group's input that it is; None for a constant.
        numbers: The constants, as arrays without axes, by operand.
    """

    node: Node
    operands: tuple[Aval, ...]
    sources: tuple[int | None, ...]
    numbers: dict[int, np.ndarray[Any, Any]]

    @property
    def inputs(self) -> tuple[int, ...]:
        """The group's inputs that are operands, in the order of the operands."""
        return tuple(s for s in self.sources if s is not None)

    @property
    def facts(self) -> dict[str, Any]:
        """The op table's facts about the node, for its kind of kernel."""
        n = self.node
        return {} if n.op.facts is None else n.op.facts(self.operands, n.avals, **n.params)


def single(body: Graph) -> Single:
    """The one node of a group."""
    avals, n = body.avals, body.nodes[-1]
    found: dict[int, Any] = {}
    for m in body.nodes[:-1]:
        found[m.first] = m.params["value"].reshape(()) if m.op is CONSTANT else found[m.inputs[0]]
    sources = tuple(v if v < len(body.inputs) else None for v in n.inputs)
    return Single(n, tuple(avals[v] for v in n.inputs), sources, {i: found[v] for i, v in enumerate(n.inputs) if v in found})
