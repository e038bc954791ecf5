"""``Search``: the index at which each of some elements would go into an array in ascending order.

The order is that of ``Sort``: NaN is larger than every number, and zeros of unlike signs are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from firebrick.compiler.spec.base import Cost, Size
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.single import single
from firebrick.ir import Graph
from firebrick.scalar.storage import computed

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Search:
    """Arrays are row-major, and seen as one line.

    Attributes:
        size: Elements of the array in ascending order. Of one in no order the results are some indices of it, or its size.
        count: Elements that are looked for, and results.
        right: Whether an element would be inserted after its equals, or before them.
        dtype: Of both operands in memory.
        index: Of the results in memory.
        sources: The inputs that the array and the elements are.
    """

    size: Size
    count: Size
    right: bool
    dtype: str
    index: str
    sources: tuple[int, ...]

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        nbytes = (self.size + self.count) * itemsize(self.dtype) + self.count * itemsize(self.index)
        return Cost(self.count * log2(max(2, self.size)), float(nbytes))

    def interpret(self, inputs: Sequence[Array], outs: Sequence[Array]) -> None:
        """Write the indices, by NumPy; arrays are flat."""
        array, wanted = (inputs[s].astype(computed(self.dtype)) for s in self.sources)
        outs[0][:] = np.searchsorted(array, wanted, "right" if self.right else "left")


def search(body: Graph) -> Search:
    """The specification of a group of one search."""
    s = single(body)
    array, wanted = s.operands
    (found,) = s.node.avals
    return Search(array.size, wanted.size, s.facts["right"], array.dtype.name, found.dtype.name, s.inputs)
