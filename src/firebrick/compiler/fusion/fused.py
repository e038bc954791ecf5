"""``fused``: the node of a fusion group, an op that exists only in compiled graphs.

Its body is a graph whose results all have the shape of the node's: its operands broadcast to it, through views at most. Shape
rule and reference are those of the body, run node by node.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Cost, Nondifferentiable, Op, Operand
from firebrick.ir import INTERNAL, Graph, interpret


def _infer(*operands: Any, body: Graph) -> tuple[Aval, ...]:
    given = [Aval(a.shape, a.dtype) for a in operands]
    if given != body.inputs:
        raise ShapeError(
            f"a fused operation takes {', '.join(map(str, body.inputs))}", ", ".join(map(str, given)), "report this as a bug"
        )
    avals = body.avals
    return tuple(avals[v] for v in body.outputs)


def _reference(*arrays: Any, body: Graph) -> tuple[Any, ...]:
    return interpret(body, arrays, lambda op, xs, params: op.reference(*xs, **params))


def _cost(inputs: Any, outputs: Any, params: Any) -> Cost:
    body: Graph = params["body"]
    avals = body.avals
    flops = sum(n.op.cost(tuple(avals[i] for i in n.inputs), n.avals, n.params).flops for n in body.nodes)
    return Cost(flops, float(sum(a.nbytes for a in (*inputs, *outputs))))


FUSED = Op(
    name="fused",
    doc="The results of a graph of elementwise operations.",
    operands=(Operand("arrays", "any", variadic=True),),
    infer=_infer,
    reference=_reference,
    vjp=Nondifferentiable("operations are fused after gradients were taken"),
    residuals=(),
    samples=lambda rng, dtype: [],
    cost=_cost,
    bound="memory",
    fusion="map",
    tolerance=64,
    scale="operands",
)

INTERNAL[FUSED.name] = FUSED
