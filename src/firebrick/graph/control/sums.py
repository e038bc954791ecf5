"""Sums over the steps of a scan that are faster at its end: sums of products of matrices, as one product of all steps.

A value that every step sees gets the sum of the steps' cotangents. Where a step's is a product ``a b``, the sum over the steps
is the product of all a concatenated along columns and all b concatenated along rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firebrick.core.tensor import Tensor
from firebrick.ir import Graph, Node
from firebrick.ops import OPS

_MOST = 2
"""The most elements of factors for one of their product: adding the products up reads and writes as much."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A matrix of each step: a value of the step's graph, or its transpose."""

    value: int
    turned: bool

    def along_columns(self, values: Tensor) -> Tensor:
        """The matrices [p, q] of all steps along columns, [p, steps · q]; ``values`` has an axis of steps before its own."""
        return _turned(_along_rows(values)) if self.turned else _along_columns(values)

    def along_rows(self, values: Tensor) -> Tensor:
        """The matrices [q, r] of all steps along rows, [steps · q, r]."""
        return _turned(_along_columns(values)) if self.turned else _along_rows(values)


@dataclass(frozen=True, slots=True)
class Later:
    """A sum over the steps that is taken at their end.

    Attributes:
        factors: Values of the step's graph that are needed of all steps.
        total: The sum, of those values with an axis of steps before their own.
    """

    factors: tuple[int, ...]
    total: Callable[..., Tensor]


def later(graph: Graph, value: int) -> Later | None:
    """How the sum of a value over the steps is taken at their end; None if adding it up step by step is cheaper."""
    makers = {v: n for n in graph.nodes for v in n.results}
    avals = graph.avals
    value, turned = _source(makers, value)
    made = makers.get(value)
    if made is None:
        return None
    shape = avals[value].shape
    if made.op.name == "matmul" and len(shape) == 2 and all(len(avals[i].shape) == 2 for i in made.inputs):
        a, b = (Factor(*_source(makers, i)) for i in made.inputs)
        if avals[a.value].size + avals[b.value].size > _MOST * avals[value].size:
            return None

        def product(x: Tensor, y: Tensor) -> Tensor:
            found: Tensor = OPS["matmul"](a.along_columns(x), b.along_rows(y))
            return _turned(found) if turned else found

        return Later((a.value, b.value), product)
    return None


def _source(makers: dict[int, Node], value: int) -> tuple[int, bool]:
    """The value that a matrix is, and whether it is its transpose."""
    turned = False
    while value in makers and makers[value].op.name == "permute" and makers[value].params["axes"] == (1, 0):
        value, turned = makers[value].inputs[0], not turned
    return value, turned


def _along_rows(x: Tensor) -> Tensor:
    count, p, q = x.shape
    return _reshape(x, (count * p, q))


def _along_columns(x: Tensor) -> Tensor:
    count, p, q = x.shape
    return _reshape(_permute(x, (1, 0, 2)), (p, count * q))


def _turned(x: Tensor) -> Tensor:
    return _permute(x, (1, 0))


def _permute(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    found: Tensor = OPS["permute"](x, axes=axes)
    return found


def _reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    found: Tensor = OPS["reshape"](x, shape=shape)
    return found
