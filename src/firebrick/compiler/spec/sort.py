"""``Sort``: the first elements along one axis in ascending or descending order, and the indices they came from.

NaN is larger than every number, zeros of unlike signs are equal, and of equal elements the one with the lower index comes
first in both directions. So the order is total: there is one right result, values and indices, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import numpy as np

from firebrick.compiler.spec.base import Cost, Size
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.single import single
from firebrick.ir import Graph
from firebrick.scalar.storage import computed

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Sort:
    """Arrays are row-major, seen as [outer, size, inner] with the axis in the middle; results are [outer, kept, inner].

    Attributes:
        outer: Elements before the axis.
        size: Length of the axis.
        inner: Elements after the axis.
        kept: Number of elements along the axis of the result: the first ones in order; all for a sort, k for the k largest.
        descending: Whether the largest element comes first.
        dtype: Of the operand and the values in memory.
        index: Of the indices in memory; empty if they are no result.
        sources: The input that the operand is.
    """

    outer: Size
    size: Size
    inner: Size
    kept: Size
    descending: bool
    dtype: str
    index: str
    sources: tuple[int, ...]

    @property
    def cost(self) -> Cost:
        """Work of one run: the comparisons of a merge sort."""
        elements, results = self.outer * self.size * self.inner, self.outer * self.kept * self.inner
        index = itemsize(self.index) if self.index else 0
        nbytes = (elements + results) * itemsize(self.dtype) + results * index
        return Cost(elements * log2(max(2, self.size)), float(nbytes))

    def interpret(self, inputs: Sequence[Array], outs: Sequence[Array]) -> None:
        """Write the values and their indices, by NumPy; arrays are flat."""
        given = inputs[self.sources[0]].reshape(self.outer, self.size, self.inner)
        x = given.astype(computed(self.dtype))  # NumPy does not know the order of NaN in bfloat16
        if self.descending:  # the reverse of an ascending order of the reversed axis has equal elements in order
            at = self.size - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
        else:
            at = np.argsort(x, axis=1, kind="stable")
        at = at[:, : self.kept]
        outs[0][:] = np.take_along_axis(given, at, axis=1).reshape(-1)
        if self.index:
            outs[1][:] = at.reshape(-1)


def sort(body: Graph) -> Sort:
    """The specification of a group of one sort, or of one choice of the k largest or smallest."""
    s = single(body)
    (x,), (values, *at), axis = s.operands, s.node.avals, s.node.params["axis"]
    return Sort(
        prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]), values.shape[axis], s.facts["descending"],
        x.dtype.name, at[0].dtype.name if at else "", s.inputs,
    )  # fmt: skip
