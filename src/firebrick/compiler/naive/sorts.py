"""``Sort``: an item for each element, which counts the elements that come before it; that number is its index in the result.

No two elements of a line have the same rank, so no two items store to one element. The number of comparisons is the square of
a line's length: a form for short lines, and a reference for all.
"""

from __future__ import annotations

from collections.abc import Callable

from firebrick.compiler.kernel.ir import For
from firebrick.compiler.naive.building import INPUT, RESULT, ZERO, Buffer, Builder, Naive
from firebrick.compiler.spec.sort import Sort
from firebrick.core.views import row_major
from firebrick.scalar.expr import FLOATS, Expr, cast, eq, local
from firebrick.scalar.storage import computed


def sort(spec: Sort) -> Naive:
    """The naive form."""
    b = Builder("sort", (spec.outer, spec.size, spec.inner))
    outer, own, inner = b.positions
    array, results = (b.place(row_major((spec.outer, n, spec.inner))) for n in (spec.size, spec.kept))
    size, kept = b.numbers([spec.size, spec.kept])

    def element(k: Expr) -> Expr:
        return b.let(b.read(Buffer(INPUT, spec.sources[0]), spec.dtype, b.address(array, [outer, k, inner])), "x")

    x = element(own)
    rank = b.variable(ZERO, "rank")

    def count(start: Expr, stop: Expr, counts: Callable[[Expr], Expr]) -> None:
        """Add the number of elements from ``start`` to ``stop`` that a condition counts to the rank."""
        name = b.fresh("k")
        step = b.block(lambda: b.assign(rank, rank.local + cast(counts(element(local(name, "int64"))), "int64")))
        b.body.append(For(name, start, stop, 1, step))

    count(ZERO, own, lambda y: ~before(x, y, spec.descending))  # the sort is stable: preceding equal elements come first
    count(own + 1, size, lambda y: before(y, x, spec.descending))

    def put() -> None:
        at = b.address(results, [outer, rank.local, inner])
        b.store(Buffer(RESULT, 0), spec.dtype, at, x)
        if spec.index:
            b.store(Buffer(RESULT, 1), spec.index, at, cast(own, computed(spec.index)))

    b.when(rank.local < kept, put)
    return Naive((b.step(),))


def before(x: Expr, y: Expr, descending: bool = False) -> Expr:
    """Whether an element comes before another in order, and is not its equal; NaN is larger than every number."""
    if descending:
        x, y = y, x
    if x.dtype not in FLOATS:
        return x < y
    return eq(x, x) & ~(x >= y)  # x is a number, and y a larger one or NaN
