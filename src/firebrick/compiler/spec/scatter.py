"""``Scatter``: updates that are assigned to, or combined with, indexed elements of an array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from firebrick.compiler.spec.base import Cost, Size, as_reals
from firebrick.compiler.spec.faults import Site
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.single import Scalar, single
from firebrick.ir import Graph
from firebrick.scalar.expr import Expr, binary, maximum, minimum
from firebrick.scalar.storage import HALVES, computed

FOLDS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "set": lambda old, new: new, "add": lambda old, new: old + new, "mul": lambda old, new: binary("mul", old, new),
    "min": minimum, "max": maximum,
}  # fmt: skip
"""The new element, by the old one and an update."""
FEW = 16
"""Maximum number of updates that are summed in the array's own dtype."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Arrays are row-major, and are viewed as [outer, size, inner] with the indexed axis in the middle. Updates are applied in
    order: updates of equal indices accumulate in that order, and the last one of several assigned values is kept.

    Attributes:
        fold: One of ``FOLDS``.
        outer: Elements before the axis.
        size: Length of the axis, not 0.
        inner: Elements after the axis.
        count: Indices at each outer position, for each inner element or (``slices``) for all of them.
        slices: Whether an index selects all inner elements at its position, and is the same for all outer positions.
        dtype: Dtype of the array and the updates in memory.
        index: Dtype of the indices.
        total: Dtype of the computation: the array's, or a wider one for a sum; the result is rounded at the end.
        update: The value of all updates, if it is a constant of the program.
        start: The value of all elements of the array, if it is a constant of the program.
        site: The check of the indices; None if they are known to be in range.
        sources: The inputs that are the array, the indices and the updates, without those that are constants.
    """

    fold: str
    outer: Size
    size: Size
    inner: Size
    count: Size
    slices: bool
    dtype: str
    index: str
    total: str
    update: Scalar | None
    start: Scalar | None
    site: Site | None
    sources: tuple[int, ...]

    @property
    def sites(self) -> tuple[Site, ...]:
        """Its checks, by their numbers."""
        return () if self.site is None else (self.site,)

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        updates = self.outer * self.count * self.inner
        array = self.outer * self.size * self.inner
        return Cost(float(updates), float((2 * array + 2 * updates) * itemsize(self.dtype)))


def summed_in(fold: str, dtype: str, count: int) -> str:
    """The dtype in which updates are combined: a wider one if rounding errors would accumulate."""
    if fold in ("set", "min", "max"):
        return dtype
    if dtype in HALVES:
        return "float32"
    return "float64" if dtype == "float32" and count > FEW else dtype  # all updates may be of one element


def scatter(body: Graph) -> Scatter:
    """The specification of a group of one scatter."""
    s = single(body)
    n, x, at = s.node, as_reals(s.operands[0]), s.operands[1]
    axis: int = n.params.get("axis", 0)
    facts = s.facts
    slices, fold = facts["slices"], facts["fold"]
    count = at.size if slices else at.shape[axis]
    dtype = x.dtype.name
    if fold == "set" and dtype in HALVES and not s.numbers:
        dtype = "uint16"  # bits are copied
    total = summed_in(fold, dtype, count)
    update = s.numbers[2].astype(computed(total)).item() if 2 in s.numbers else None
    start = None
    if 0 in s.numbers:
        kept = np.asarray(s.numbers[0]).astype(x.dtype.np)
        start = kept.astype(np.float64).item() if x.dtype.is_floating else kept.item()
    site = None if n.op.indexes is None else Site(n.op.known_as or n.op.name, x.shape[axis], n.line or "")
    return Scatter(
        fold, prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]), count, slices, dtype, at.dtype.name, total,
        update, start, site, s.inputs,
    )  # fmt: skip
