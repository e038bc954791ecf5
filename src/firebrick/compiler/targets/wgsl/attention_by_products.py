"""Attention by products: scores, their softmax, and products with the weights, each in launches of its own.

The products are contractions by blocks, so each element that is read serves several results, and a product has many items even
for one query. The naive form has an item for each query in the first of these, which reads all keys. Both keep the weights in
memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from firebrick.compiler.naive.attentions import SCORES, WEIGHTS, weights
from firebrick.compiler.naive.building import INPUT, RESULT, Array, Buffer, Naive, NaiveLaunch
from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.spec.base import Result
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.parts import Factor, Part
from firebrick.compiler.targets.wgsl.contraction_blocks import block_of, contraction_by_blocks
from firebrick.core.indexing import strides_of
from firebrick.core.views import View, row_major, strided
from firebrick.scalar.expr import const, load
from firebrick.scalar.storage import computed


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of matrices for each position of the batch.

    Attributes:
        contract: Reads input 0 and input 1.
        arrays: What these are, and the result.
    """

    contract: Contract
    arrays: tuple[Buffer, Buffer, Buffer]

    def launches(self, processor: bool) -> list[NaiveLaunch]:
        """Its launches."""
        found = []
        at = {Buffer(INPUT, 0): self.arrays[0], Buffer(INPUT, 1): self.arrays[1], Buffer(RESULT, 0): self.arrays[2]}
        for s in contraction_by_blocks(self.contract, *(block_of(self.contract, processor) or (1, 1))).steps:
            found.append(replace(s, buffers=tuple(at[b] for b in s.buffers)))
        return found


def pays(spec: Attention, processor: bool) -> bool:
    """Whether the products have work enough for launches of their own.

    Args:
        spec: Specification.
        processor: Whether the driver computes on the processor.
    """
    scores, *_ = _products(spec)
    return bool(scores.contract.parts[0].k) and block_of(scores.contract, processor) is not None


def attention_by_products(spec: Attention, processor: bool) -> Naive:
    """The launches; arguments as of ``pays``."""
    pairs = Array(computed(spec.dtype), prod(spec.lead) * spec.n * spec.m)
    steps: list[NaiveLaunch] = []
    for k, product in enumerate(_products(spec)):
        if k == (2 if spec.gradient else 1):
            steps.append(weights(spec, multiplied=True))
        steps += product.launches(processor)
    return Naive(tuple(steps), (pairs, pairs) if spec.gradient else (pairs,))


def _products(spec: Attention) -> list[_Product]:
    """All products: first those that give scores, and for a gradient cotangents · valuesᵀ; then those with the weights."""
    n, m, d, e, scale = spec.n, spec.m, spec.d, spec.e, spec.scale
    sources = [Buffer(INPUT, k) for k in spec.sources]
    g = sources.pop(0) if spec.gradient else None
    query, key, value = sources[:3]
    scores = _product(spec, (query, n, d, False), (key, m, d, False), WEIGHTS, scale)
    if g is None:
        return [scores, _product(spec, (WEIGHTS, n, m, False), (value, e, m, True), Buffer(RESULT, 0))]
    return [
        scores,
        _product(spec, (g, n, e, False), (value, m, e, False), SCORES),
        _product(spec, (SCORES, n, m, False), (key, d, m, True), Buffer(RESULT, 0), scale),
        _product(spec, (SCORES, m, n, True), (query, d, n, True), Buffer(RESULT, 1), scale),
        _product(spec, (WEIGHTS, m, n, True), (g, e, n, True), Buffer(RESULT, 2)),
    ]


_Side = tuple[Buffer, int, int, bool]
"""An array, its lanes and steps, and whether it is [steps, lanes] in memory."""


def _product(spec: Attention, left: _Side, right: _Side, result: Buffer, scale: float = 1.0) -> _Product:
    """Σ_k left[i, k] · right[j, k] for each position of the batch, times ``scale``."""

    def dtype(of: Buffer) -> str:
        return computed(spec.dtype) if of in (WEIGHTS, SCORES) else spec.dtype

    m, n, k = left[1], right[1], left[2]
    factors = [Factor(i, dtype(of), _view(spec, a, b, turned)) for i, (of, a, b, turned) in enumerate((left, right))]
    view = row_major((*spec.lead, m, n))
    part = Part(spec.lead, m, n, k, factors[0], factors[1], view)
    element = load(0, computed(spec.dtype))
    if scale != 1.0:
        element = element * const(scale, computed(spec.dtype))
    made = Contract((part,), spec.dtype, (), (Result(element, dtype(result), view),))
    return _Product(made, (left[0], right[0], result))


def _view(spec: Attention, lanes: int, steps: int, turned: bool) -> View:
    """[*lead, lanes, steps] of an array that is row-major, or has its last axes the other way round."""
    if not turned:
        return row_major((*spec.lead, lanes, steps))
    *lead, a, b = strides_of((*spec.lead, steps, lanes))
    return strided((*spec.lead, lanes, steps), [*lead, b, a])
