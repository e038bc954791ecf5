"""``Search``: a binary search by an item for each element."""

from __future__ import annotations

from firebrick.compiler.kernel.ir import While
from firebrick.compiler.naive.building import INPUT, ONE, RESULT, ZERO, Buffer, Builder, Naive
from firebrick.compiler.naive.sorts import before
from firebrick.compiler.spec.search import Search
from firebrick.scalar.expr import cast, select
from firebrick.scalar.storage import computed


def search(spec: Search) -> Naive:
    """The naive form. Every read is in bounds, even if the array is not sorted: low ≤ middle < high ≤ size."""
    b = Builder("search", (spec.count,))
    (own,), size = b.positions, b.number(spec.size)
    array, wanted = (Buffer(INPUT, s) for s in spec.sources)
    x = b.let(b.read(wanted, spec.dtype, own), "x")
    low, high = b.variable(ZERO, "low"), b.variable(size, "high")

    def halve() -> None:
        middle = b.let((low.local + high.local) >> ONE, "middle")
        y = b.let(b.read(array, spec.dtype, middle), "y")
        behind = b.let(~before(x, y) if spec.right else before(y, x), "behind")
        b.assign(low, select(behind, middle + 1, low.local))
        b.assign(high, select(behind, high.local, middle))

    b.body.append(While(low.local < high.local, b.block(halve)))
    b.store(Buffer(RESULT, 0), spec.index, own, cast(low.local, computed(spec.index)))
    return Naive((b.step(),))
