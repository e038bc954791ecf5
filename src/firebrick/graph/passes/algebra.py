"""Bit-exact algebraic simplification: neutral and absorbing operands, equal operands, inverses, constant conditions.

Rules that change -0.0, an infinity or a NaN, or depend on an engine's rounding, are excluded: x + 0.0 turns -0.0 into 0.0,
x · 0.0 is not always 0.0, pow(x, 2.0) need not be x · x, a sum over one element may start from 0.0. A value replaces a result
only if it has the result's shape and dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.dtypes import DType
from firebrick.graph.passes.constants import splat
from firebrick.graph.passes.rewriter import Rewriter, Rule, inner, rewrite, shaped
from firebrick.ir import Graph, Node
from firebrick.ops import OPS

Inputs = tuple[int, ...]
_EXACT = ("int", "uint", "bool")


def _is(value: Any, of: Any, dtype: DType) -> bool:
    """Whether a 0-d array has the bits of a Python scalar."""
    return of is not None and bool(value.tobytes() == np.asarray(of, dtype.np).tobytes())


def _binary(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    laws = node.op.laws
    dtype = r.avals[inputs[0]].dtype
    exact = dtype.kind in _EXACT
    if laws is None:
        return None
    if inputs[0] == inputs[1]:
        if laws.idempotent:
            return inputs[0]
        if exact and laws.of_equals is not None:
            return shaped(r, r.constant(np.asarray(laws.of_equals, node.avals[0].dtype.np), node), node)
    if not exact and dtype.kind != "float":
        return None
    for k in (1, 0):
        value = splat(r, inputs[k])
        if value is None:
            continue
        if k in laws.sides and _is(value, laws.neutral[exact], dtype):
            return shaped(r, inputs[1 - k], node)
        if exact and _is(value, laws.absorbing, dtype):
            return shaped(r, inputs[k], node)
    return None


def _where(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    condition, a, b = inputs
    if a == b:
        return shaped(r, a, node)
    known = splat(r, condition)
    if known is not None:
        return shaped(r, a if known else b, node)
    negated = inner(r, node, condition, "logical_not")
    return None if negated is None else r.emit(node.op, (negated.inputs[0], b, a), {}, node)


def _inverse(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    """Involutions: -(-x), the conjugate of the conjugate, not not x. Not -(-x) of complex x: engines differ in -0."""
    if node.op.name == "negative" and node.avals[0].dtype.kind == "complex":
        return None
    before = inner(r, node, inputs[0], node.op.name)
    return None if before is None else before.inputs[0]


def _abs(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    kind = r.avals[inputs[0]].dtype.kind
    if kind == "uint":
        return inputs[0]
    before = inner(r, node, inputs[0], "abs", "negative") if kind != "complex" else None
    if before is None:
        return None
    return inputs[0] if before.op is node.op else r.emit(node.op, before.inputs, {}, node)


def _round(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    """Rounding of integers and of rounded values."""
    if r.avals[inputs[0]].dtype.is_integer:
        return inputs[0]
    return None if inner(r, node, inputs[0], *_ROUNDINGS) is None else inputs[0]


def _part(k: int) -> Rule:
    def rule(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
        """A part of the number that was made of it."""
        before = inner(r, node, inputs[0], "complex")
        return None if before is None else shaped(r, before.inputs[k], node)

    return rule


def _reduction(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    """Over axes of size 1 the extreme, the product, all and any are the element, and so is an integer's sum."""
    x = r.avals[inputs[0]]
    if any(x.shape[a] != 1 for a in node.params["axes"]) or x.dtype.kind == "complex":
        return None
    if node.op.name == "sum" and x.dtype.is_inexact:
        return None
    if x.shape == node.avals[0].shape:
        return inputs[0]
    return r.emit(OPS["reshape"], inputs, {"shape": node.avals[0].shape}, node)


_ROUNDINGS = ("floor", "ceil", "trunc", "round")
RULES: dict[str, Rule] = {
    **{name: _inverse if op.laws.involution else _binary for name, op in OPS.items() if op.laws is not None},
    **dict.fromkeys(_ROUNDINGS, _round),
    **dict.fromkeys(("max", "min", "prod", "all", "any", "sum"), _reduction),
    "where": _where,
    "abs": _abs,
    "real": _part(0),
    "imag": _part(1),
}


def simplify_algebra(graph: Graph) -> Graph:
    """The graph without operations that return an operand, or a constant, whatever the values are."""
    return rewrite(graph, RULES)
