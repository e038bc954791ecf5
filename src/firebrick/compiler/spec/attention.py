"""``Attention``: softmax(scale · query keyᵀ) value with a mask, and its gradients, without the scores in memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from firebrick.compiler.spec.base import Cost, Size, Sizes
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.single import single
from firebrick.ir import Graph


@dataclass(frozen=True, slots=True)
class Attention:
    """Arrays are row-major: query [*lead, n, d], key [*lead, m, d], value [*lead, m, e], and a mask (bool) that broadcasts to
    [*lead, n, m]. The result of a query whose keys are all masked is 0.

    Attributes:
        dtype: Dtype of all arrays but the mask.
        lead: Sizes of the axes of the batch.
        n: Queries.
        m: Keys.
        d: Features of queries and keys.
        e: Features of values.
        mask: Shape of the mask.
        scale: Factor of the scores.
        causal: Whether query i attends only to the keys up to number i.
        gradient: Whether the results are the gradients of query, key and value; the first operand is then the cotangent.
        sources: The inputs that are the operands: the cotangent, if ``gradient``, then query, key, value and mask.
    """

    dtype: str
    lead: Sizes
    n: Size
    m: Size
    d: Size
    e: Size
    mask: Sizes
    scale: float
    causal: bool
    gradient: bool
    sources: tuple[int, ...]

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        batch = prod(self.lead)
        scores = batch * self.n * self.m
        products = (2 * self.d + self.e + (self.d + self.e) * 2) if self.gradient else self.d + self.e
        arrays = batch * (self.n * (self.d + self.e) + self.m * (self.d + self.e))
        return Cost(2.0 * scores * products, float(arrays * itemsize(self.dtype) * (2 if self.gradient else 1)))


def attention(body: Graph) -> Attention:
    """The specification of a group of one attention node."""
    s = single(body)
    gradient: bool = s.facts["gradient"]
    query, key, value, mask = s.operands[int(gradient) :]
    p = s.node.params
    return Attention(
        query.dtype.name, query.shape[:-2], query.shape[-2], key.shape[-2], query.shape[-1], value.shape[-1], mask.shape,
        float(p["scale"]), bool(p["causal"]), gradient, s.inputs,
    )  # fmt: skip
