"""Constant folding: nodes that depend on constants only are computed once, if every engine would compute the same bits.

These are movement, selection, comparison, integer arithmetic, and the operations that IEEE 754 rounds correctly:
sums, differences, products, quotients and square roots of real numbers, and casts. Functions such as exp and sin, and sums over
axes, differ between engines in the last digit: they stay. So does a result with a NaN, whose payload and sign differ.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from firebrick.core.errors import FirebrickError
from firebrick.graph.passes.constants import place
from firebrick.graph.passes.rewriter import BROADCAST_TO, Rewriter
from firebrick.ir import CONSTANT, Graph, Node

_LARGEST = 1 << 16  # elements of a folded result, unless its operands are larger
_EXACT_KINDS = {
    "all": frozenset({"bool", "int", "uint", "float", "complex"}),
    "real": frozenset({"bool", "int", "uint", "float"}),
    "integers": frozenset({"bool", "int", "uint"}),
}
"""Kinds of operands by what ``Op.exact`` is; of an op that moves elements, operands are of any."""


@cache
def _host() -> Any:
    """The engine that computes them: plain NumPy at the operands' own dtypes, whatever decorates the registered one."""
    from firebrick.backends.numpy import NumpyBackend

    return NumpyBackend()


def fold_constants(graph: Graph) -> Graph:
    """The graph with nodes that depend on constants only replaced by constants.

    A result of up to 65,536 elements is folded, or one that is no larger than the constants it is made of. A broadcast of a
    constant stays, and what is computed from it is folded all the same.
    """
    r = Rewriter(graph)
    known: dict[int, Any] = {}
    for node in graph.nodes:
        inputs = r.inputs(node)
        if node.op is CONSTANT:
            known[r.size] = node.params["value"]
        elif inputs and node.op.exact and all(i in known for i in inputs):
            if node.op is BROADCAST_TO and node.avals[0].size > r.avals[inputs[0]].size:
                known[r.size] = np.broadcast_to(known[inputs[0]], node.avals[0].shape)
            else:
                found = _compute(r, node, inputs, known)
                if found is not None:
                    values = [place(r, x, node) for x in found]
                    known.update(zip(values, found, strict=True))
                    r.replace(node, *values)
                    continue
        r.keep(node, inputs)
    return r.finish()


def _compute(r: Rewriter, node: Node, inputs: tuple[int, ...], known: dict[int, Any]) -> tuple[Any, ...] | None:
    """The results of a node; None if it is not folded."""
    moves = node.op.exact == "moved"
    if not moves and not {r.avals[i].dtype.kind for i in inputs} <= _EXACT_KINDS[node.op.exact]:
        return None
    held = sum(r.avals[i].size for i in inputs if _is_constant(r, i))
    if sum(a.size for a in node.avals) > max(_LARGEST, held):
        return None
    try:
        result = _host().execute(node.op, tuple(known[i] for i in inputs), node.params)
    except FirebrickError:  # an index out of range, say: running the graph reports it
        return None
    results = result if type(result) is tuple else (result,)
    if not moves and any(a.dtype.kind not in "biu" and bool((a != a).any()) for a in results):
        return None
    return results


def _is_constant(r: Rewriter, value: int) -> bool:
    made = r.maker(value)
    return made is not None and made.op is CONSTANT
