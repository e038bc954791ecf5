"""How tangents go through ops: the ``jvp`` rules that entries share. They are written with ops.

A rule gets the operands, the tangents of those that have one, and the results, and returns the tangents of the results, None
for zero. A rule that returns None as a whole leaves these operands to the gradient rule, differentiated once more.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from firebrick.core.op import Forward, Vjp

Rule = Callable[[Forward], Any]


def _filled(value: float, like: Any) -> Any:
    from firebrick.core.constants import constant
    from firebrick.ops.movement import broadcast_to

    return broadcast_to(constant(value, like.dtype, like.device), shape=like.shape)


def _spread(t: Any, shape: tuple[int, ...]) -> Any:
    from firebrick.ops.movement import broadcast_to

    return t if t.shape == shape else broadcast_to(t, shape=shape)


def total(parts: list[Any]) -> Any:
    """The sum of the tangents that there are; None of none."""
    from firebrick.ops.elementwise import add

    found = [t for t in parts if t is not None]
    if not found:
        return None
    out = found[0]
    for t in found[1:]:
        out = add(out, t)
    return out


def _pulled(r: Forward, i: int, g: Any) -> Any:
    """What the gradient rule gives for operand ``i`` and the cotangent ``g``."""
    needs = tuple(k == i for k in range(len(r.operands)))
    inputs = r.operands if "inputs" in r.op.residuals else ()
    outputs = r.results if "outputs" in r.op.residuals else ()
    avals = tuple(x.aval for x in r.operands)
    rule = Vjp(inputs, outputs, avals, needs, r.params, (True,), (None,) * len(r.operands), r.rounded)
    assert callable(r.op.vjp)
    return tuple(r.op.vjp(g, rule))[i]


def linear(*among: int, **changed: Any) -> Rule:
    """For ops that are linear in some operands together (all, if none is named): the op of the tangents.

    Args:
        *among: The operands; the others keep their values.
        **changed: Parameters that have another value for tangents.
    """

    def rule(r: Forward) -> Any:
        chosen = among if among else range(len(r.operands))
        operands = list(r.operands)
        for i in chosen:
            operands[i] = _filled(0.0, operands[i]) if r.tangents[i] is None else r.tangents[i]
        return r.op(*operands, **{**r.params, **changed})

    return rule


def multilinear(r: Forward) -> Any:
    """For ops that are linear in each operand: the sum over the operands of the op with that one's tangent."""
    parts = []
    for i, t in enumerate(r.tangents):
        if t is not None:
            parts.append(r.op(*r.operands[:i], t, *r.operands[i + 1 :], **r.params))
    return total(parts)


def elementwise(r: Forward) -> Any:
    """For ops of elements: the derivative by an operand is a factor, which the gradient rule multiplies by. For complex numbers
    it multiplies by the conjugate, if the op has a complex derivative."""
    from firebrick.ops.casts import conjugate

    shape = r.results[0].shape
    if any(x.dtype.kind == "complex" for x in r.operands) and r.results[0].dtype.kind != "complex":
        return None
    return total(
        [None if t is None else conjugate(_pulled(r, i, conjugate(_spread(t, shape)))) for i, t in enumerate(r.tangents)]
    )


def reduced(r: Forward) -> Any:
    """For reductions over ``axes``, of which each element of the operand reaches one result: the gradients, times the tangents,
    summed."""
    from firebrick.ops.casts import conjugate
    from firebrick.ops.reduction import sum_

    factors = conjugate(_pulled(r, 0, _filled(1.0, r.results[0])))
    return sum_(factors * r.tangents[0], **r.params)


def symmetric(r: Forward) -> Any:
    """For ops whose matrix of derivatives is symmetric: the gradient rule itself."""
    return _pulled(r, 0, r.tangents[0])


def picked(r: Forward) -> Any:
    """For ops whose first result holds elements along an axis, and whose second says which: those of the tangent."""
    from firebrick.ops.indexing import gather

    return gather(r.tangents[0], r.results[1], axis=r.params["axis"]), None


def summed(*signs: int) -> Rule:
    """For sums and differences."""

    def rule(r: Forward) -> Any:
        shape = r.results[0].shape
        first, second = r.tangents
        if first is not None and second is not None:
            return r.op(first, second)
        found = _spread(first if second is None else second, shape)
        return found if second is None or signs[1] > 0 else -found

    return rule


def decomposed(r: Forward) -> Any:
    """For ops whose decomposition has rules of its own."""
    assert r.op.decompose is not None
    return r.each(r.op.decompose)


def derived(residuals: Any, elementwise_: bool) -> Rule | None:
    """The rule that follows from an entry's other fields; None where none does.

    Args:
        residuals: What its gradient rule reads: nothing, if the op is linear.
        elementwise_: Whether an element of the result depends on the elements at its own index only.
    """
    if not residuals:
        return linear()
    return elementwise if elementwise_ else None


# single ops


def log_softmax(r: Forward) -> Any:
    """The tangent, less its mean under the softmax."""
    from firebrick.ops.elementwise import exp
    from firebrick.ops.reduction import sum_

    (t,), (y,) = r.tangents, r.results
    return t - sum_(exp(y) * t, axes=(r.params["axis"],), keepdims=True)


def solved(r: Forward) -> Any:
    """``solve``: x1⁻¹ (ẋ2 - ẋ1 y)."""
    from firebrick.ops.matmul import matmul

    (y,), (t1, t2) = r.results, r.tangents
    if t1 is None:
        return r.op(r.operands[0], _spread(t2, y.shape), **r.params)
    moved = matmul(t1, y)
    return r.op(r.operands[0], -moved if t2 is None else t2 - moved, **r.params)


def largest_of_windows(r: Forward) -> Any:
    """``max_pool``: the tangents of the elements that were the largest."""
    from firebrick.ops.indexing import gather
    from firebrick.ops.movement import reshape

    (t,), places = r.tangents, r.results[1]
    flat, at = (reshape(x, shape=(*x.shape[:2], prod(x.shape[2:]))) for x in (t, places))
    return reshape(gather(flat, at, axis=2), shape=places.shape), None
