"""``Cholesky`` by blocks of columns, for matrices that are too large for an item.

A block of columns takes three launches: each element less the products of the columns before, by blocks of elements in
registers; the factor of the block on the diagonal, an item for each matrix; and the rows below, an item for each row. Products
of the columns of a block are summed, and these sums are subtracted with what each subtraction loses, so that errors do not grow
with the number of rows.
"""

from __future__ import annotations

from math import prod

from firebrick.compiler.naive.building import TEMPORARY, ZERO, Array, Buffer, Builder, Naive, NaiveLaunch
from firebrick.compiler.naive.matrices import SECTION, Matrix, cleared, smaller_pivot, subtract
from firebrick.compiler.spec.matrix import Cholesky
from firebrick.scalar.expr import Expr, binary, const, minimum, select, sqrt

LEAST = 24
"""Minimum number of rows of a matrix for which blocks pay."""
WIDTH = SECTION
"""Columns of a block."""
ROWS, COLUMNS = 4, 4
"""Rows and columns of the elements that an item has in registers."""
_LEAST_PIVOTS = Buffer(TEMPORARY, 1)


def pays(spec: Cholesky) -> bool:
    """Whether blocks are faster than the naive form."""
    return spec.n >= LEAST


def cholesky_by_blocks(spec: Cholesky) -> Naive:
    """The launches of a decomposition."""
    steps = [cleared(2)]
    for first in range(0, spec.n, WIDTH):
        end = min(first + WIDTH, spec.n)
        steps += [_subtracted(spec, first, end), _diagonal(spec, first, end)]
        if end < spec.n:
            steps.append(_below(spec, first, end))
    return Naive(tuple(steps), (Array("int32", 2), Array(spec.dtype, prod(spec.stack))))


def _subtracted(spec: Cholesky, first: int, end: int) -> NaiveLaunch:
    """The launch that subtracts the products of the columns before a block, and writes zeros above the diagonal."""
    b = Builder("cholesky_products", (prod(spec.stack), -(-spec.n // ROWS), -(-(end - first) // COLUMNS)))
    zero = const(0.0, spec.dtype)
    matrix, group, column = b.positions
    x, start, width = Matrix(b, spec, matrix), b.number(first, "first"), const(end - first, "int64")
    rows = [b.let(group * ROWS + k, "i") for k in range(ROWS)]
    columns = [b.let(start + column * COLUMNS + k, "j") for k in range(COLUMNS)]
    last = b.let(x.n - 1, "last")
    inside = [b.let(minimum(i, last), "row") for i in rows]
    known = [b.let(minimum(j, last), "column") for j in columns]
    totals = [[b.variable(x.hermitian(i, j), "total") for j in known] for i in inside]
    losses = [[b.variable(zero, "lost") for _ in known] for _ in inside]

    def section(block: Expr) -> None:
        sums = [[b.variable(zero, "sum") for _ in known] for _ in inside]

        def add(k: Expr) -> None:
            column = b.let(block * WIDTH + k, "k")
            ys = [x.factor(j, column) for j in known]
            for i, row in zip(inside, sums, strict=True):
                left = x.factor(i, column)
                for y, found in zip(ys, row, strict=True):
                    b.assign(found, found.local + left * y)

        b.loop(ZERO, const(WIDTH, "int64"), add)
        subtract(b, totals, losses, sums)

    blocks = b.number(first // WIDTH, "blocks")
    b.loop(ZERO, b.let(select(rows[-1] < start, ZERO, blocks), "count"), section)
    for i, row in zip(rows, totals, strict=True):
        for j, total in zip(columns, row, strict=True):

            def write(i: Expr = i, j: Expr = j, value: Expr = total.local) -> None:
                x.store(i, j, select(i < j, 0.0, value))

            b.when((i < x.n) & (j < start + width), write)
    return b.step()


def _diagonal(spec: Cholesky, first: int, end: int) -> NaiveLaunch:
    """The launch that factors the block on the diagonal; the last one reports the matrices that have no factor."""
    b = Builder("cholesky_diagonal", (prod(spec.stack),))
    (matrix,) = b.positions
    x, start, width = Matrix(b, spec, matrix), b.number(first, "first"), const(end - first, "int64")
    known = b.read(_LEAST_PIVOTS, spec.dtype, matrix) if first else const(float("inf"), spec.dtype)
    least = b.variable(known, "least")

    def column(k: Expr) -> None:
        j = b.let(start + k, "j")
        pivot = x.rest(j, j, x.factor(j, j), start, k)
        b.assign(least, smaller_pivot(least.local, pivot))
        root = b.let(sqrt(pivot), "root")
        x.store(j, j, root)

        def below(k2: Expr) -> None:
            i = b.let(start + k2, "i")
            x.store(i, j, binary("div", x.rest(i, j, x.factor(i, j), start, k), root))

        b.loop(k + 1, width, below)

    b.loop(ZERO, width, column)
    if end < spec.n:
        b.store(_LEAST_PIVOTS, spec.dtype, matrix, least.local)
    else:
        x.refuse(least.local)
    return b.step()


def _below(spec: Cholesky, first: int, end: int) -> NaiveLaunch:
    """The launch that computes the rows below the block on the diagonal."""
    b = Builder("cholesky_rows", (prod(spec.stack), spec.n - end))
    matrix, row = b.positions
    x, start, width = Matrix(b, spec, matrix), b.number(first, "first"), const(end - first, "int64")
    i = b.let(start + width + row, "i")

    def column(k: Expr) -> None:
        j = b.let(start + k, "j")
        x.store(i, j, binary("div", x.rest(i, j, x.factor(i, j), start, k), x.factor(j, j)))

    b.loop(ZERO, width, column)
    return b.step()
