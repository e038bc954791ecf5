"""``Cholesky``, an item for each matrix, and ``TriangularSolve``, an item for a few columns of a right side.

A check of matrices is two checks of a kernel: the payload of the first one is the number of a matrix, and that of the second is
minus how many were found so far, which an atomic operation counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import prod

from firebrick.compiler.kernel.ir import Check, Let
from firebrick.compiler.naive.building import (
    INPUT,
    RESULT,
    TEMPORARY,
    ZERO,
    Array,
    Buffer,
    Builder,
    Naive,
    NaiveLaunch,
    compensated,
)
from firebrick.compiler.spec.matrix import Cholesky, TriangularSolve
from firebrick.core.views import View
from firebrick.scalar.expr import Expr, absolute, binary, cast, const, eq, local, minimum, select, sqrt

COUNTS = Buffer(TEMPORARY, 0)
"""How many matrices each check has found."""
RESULTS = Buffer(RESULT, 0)
SECTION = 16
"""Number of products that are summed one after the other."""
BLOCKS = 64
"""Maximum number of blocks of rows of a launch: drivers end loops of more than 65,535 iterations."""
Blocks = Sequence[Sequence[Let]]
"""Variables for the elements of a block of rows and columns."""


def cleared(checks: int) -> NaiveLaunch:
    """The launch that clears the counts, of which there is one for each check."""
    b = Builder("clear", (checks,))
    b.store(COUNTS, "int32", local("item", "int64"), const(0, "int32"))
    return b.step()


def refuse(b: Builder, condition: Expr, check: int, matrix: Expr) -> None:
    """Report a matrix if a condition is true, which it is in one item of a matrix at most.

    Args:
        b: The kernel.
        condition: bool.
        check: Number of the check.
        matrix: Number of the matrix.
    """

    def report() -> None:
        before = b.atomic("add", COUNTS, "int32", const(check, "int64"), const(1, "int32"))
        b.body.append(Check(~condition, 2 * check, matrix))
        b.body.append(Check(~condition, 2 * check + 1, -1 - cast(before, "int64")))

    b.when(condition, report)


class Matrix:
    """A matrix of a stack that is factored.

    Args:
        b: The kernel.
        spec: Of the decomposition.
        number: Of the matrix.

    Attributes:
        n: Its rows.
    """

    def __init__(self, b: Builder, spec: Cholesky, number: Expr) -> None:
        self._b, self._spec, self._number, self.n = b, spec, number, b.number(spec.n)
        self._start = b.let(number * self.n * self.n, "start")

    def at(self, i: Expr, j: Expr) -> Expr:
        """The address of an element."""
        return self._b.let(self._start + i * self.n + j, "at")

    def factor(self, i: Expr, j: Expr) -> Expr:
        """An element of the factor, as far as it is computed."""
        return self._b.let(self._b.read(RESULTS, self._spec.dtype, self.at(i, j)), "x")

    def store(self, i: Expr, j: Expr, value: Expr) -> None:
        """Write an element of the factor."""
        self._b.store(RESULTS, self._spec.dtype, self.at(i, j), value)

    def given(self, i: Expr, j: Expr) -> Expr:
        """An element of the matrix."""
        return self._b.let(self._b.read(Buffer(INPUT, self._spec.sources[0]), self._spec.dtype, self.at(i, j)), "x")

    def hermitian(self, i: Expr, j: Expr) -> Expr:
        """An element of (x + xᵀ) / 2, which is finite if x is."""
        return self._b.let(self.given(i, j) * 0.5 + self.given(j, i) * 0.5, "x")

    def rest(self, i: Expr, j: Expr, value: Expr, first: Expr, count: Expr) -> Expr:
        """A value less the products of elements of rows i and j of the factor, in some columns from the first one on."""
        b = self._b
        total = b.variable(const(0.0, self._spec.dtype), "total")

        def add(k: Expr) -> None:
            column = b.let(first + k, "column")
            b.assign(total, total.local + self.factor(i, column) * self.factor(j, column))

        b.loop(ZERO, count, add)
        return b.let(value - total.local, "rest")

    def refuse(self, least: Expr) -> None:
        """Report the matrix if its least pivot, as of ``pivot``, is not positive: as one with elements that are not finite, if
        it has any. The pivot of a row with such an element is not positive, or not finite."""
        b = self._b

        def look() -> None:
            finite = b.variable(const(True, "bool"), "finite")
            b.loops([self.n, self.n], lambda at: b.assign(finite, finite.local & (absolute(self.given(*at)) < float("inf"))))
            refuse(b, b.let(~finite.local, "refused"), 0, self._number)
            refuse(b, b.let(finite.local, "refused"), 1, self._number)

        b.when(~(least > 0), look)


def smaller_pivot(least: Expr, pivot: Expr) -> Expr:
    """The smaller one of the least pivot so far and another one; 0 for one that is infinite or NaN."""
    return minimum(least, select(pivot < float("inf"), pivot, 0.0))


def cholesky(spec: Cholesky) -> Naive:
    """The naive form."""
    b = Builder("cholesky", (prod(spec.stack),))
    x = Matrix(b, spec, b.positions[0])
    least = b.variable(const(float("inf"), spec.dtype), "least")

    def column(j: Expr) -> None:
        pivot = x.rest(j, j, x.hermitian(j, j), ZERO, j)
        b.assign(least, smaller_pivot(least.local, pivot))
        root = b.let(sqrt(pivot), "root")
        x.store(j, j, root)

        def below(i: Expr) -> None:
            x.store(i, j, binary("div", x.rest(i, j, x.hermitian(i, j), ZERO, j), root))
            x.store(j, i, const(0.0, spec.dtype))

        b.loop(j + 1, x.n, below)

    b.loop(ZERO, x.n, column)
    x.refuse(least.local)
    return Naive((cleared(2), b.step()), (Array("int32", 2),))


def subtract(b: Builder, rests: Blocks, losses: Blocks, sums: Blocks) -> None:
    """Subtract sums of products, with what the subtractions before lost, so that errors do not grow with their number."""
    for rest, lost, found in zip(*(chain.from_iterable(rows) for rows in (rests, losses, sums)), strict=True):
        new, loss = compensated(b, rest.local, lost.local, -found.local)
        b.assign(rest, new)
        b.assign(lost, loss)


def triangular_solve(spec: TriangularSolve) -> Naive:
    """The naive form."""
    blocks = -(-spec.n // spec.block)
    parts = [_solved(spec, k, min(k + BLOCKS, blocks)) for k in range(0, blocks, BLOCKS)]
    return Naive((cleared(1), _checked(spec), *parts), (Array("int32", 1),))


def _checked(spec: TriangularSolve) -> NaiveLaunch:
    """The launch that looks for zeros on diagonals."""
    b = Builder("diagonal", (prod(spec.stack),))
    n = b.number(spec.n)
    start = b.let(b.positions[0] * n * n, "start")
    zero = b.variable(const(False, "bool"), "zero")

    def element(k: Expr) -> None:
        x = b.read(Buffer(INPUT, spec.sources[0]), spec.dtype, b.let(start + k * (n + 1), "at"))
        b.assign(zero, zero.local | eq(x, 0.0))

    b.loop(ZERO, n, element)
    refuse(b, zero.local, 0, b.positions[0])
    return b.step()


def _solved(spec: TriangularSolve, start: int, stop: int) -> NaiveLaunch:
    """The launch that solves for some blocks of rows: first what the solved rows contribute is subtracted from a block."""
    *batch, n, columns = spec.result.shape
    b = Builder("triangular_solve", (*batch, -(-columns // spec.columns)))
    *outer, group = b.positions
    size, count, dtype = b.number(n), b.number(columns), spec.dtype
    zero = const(0.0, dtype)
    last = b.let(size - 1, "last")

    def addresses(view: View) -> Callable[[Expr, Expr], Expr]:
        """Gives the address of an element of a matrix, for the item's position in the batch."""
        placed = b.place(view)
        ((_, row),), ((_, column),) = placed.axes[-2:]
        start = b.address(placed, [*outer, ZERO, ZERO])
        return lambda i, j: b.let(start + i * row + j * column, "at")

    triangle, right, result = map(addresses, (spec.triangle, spec.right, spec.result))
    lanes = [b.let(group + k * b.number(-(-columns // spec.columns), "groups"), "column") for k in range(spec.columns)]
    inside = [b.let(select(c < count, c, group), "inside") for c in lanes]  # no column of another item

    def factor(i: Expr, j: Expr) -> Expr:
        return b.let(b.read(Buffer(INPUT, spec.sources[0]), dtype, triangle(i, j)), "t")

    def solve(block: Expr) -> None:
        first = b.let(block * spec.block, "first")
        rows = [b.let(minimum(first + r, last), "row") for r in range(spec.block)]
        rests = [[b.variable(b.read(Buffer(INPUT, spec.sources[1]), dtype, right(r, c)), "rest") for c in inside] for r in rows]

        losses = [[b.variable(zero, "lost") for _ in inside] for _ in rows]

        def section(start: Expr) -> None:
            sums = [[b.variable(zero, "sum") for _ in inside] for _ in rows]

            def add(k: Expr) -> None:
                xs = [b.let(b.read(RESULTS, dtype, result(k, c)), "x") for c in inside]
                for r, row in zip(rows, sums, strict=True):
                    t = factor(r, k)
                    for found, x in zip(row, xs, strict=True):
                        b.assign(found, found.local + t * x)

            b.loop(start, minimum(start + SECTION, first), add)
            subtract(b, rests, losses, sums)

        b.loop(ZERO, first, section, SECTION)
        for k, (r, row) in enumerate(zip(rows, rests, strict=True)):
            for earlier in range(k):
                t = factor(r, rows[earlier])
                for rest, x in zip(row, rests[earlier], strict=True):
                    b.assign(rest, rest.local - t * x.local)
            t = factor(r, r)
            for rest in row:
                b.assign(rest, binary("div", rest.local, t))
        for k, row in enumerate(rests):
            for rest, c in zip(row, lanes, strict=True):

                def write(k: int = k, c: Expr = c, value: Expr = rest.local) -> None:
                    b.store(RESULTS, dtype, result(first + k, c), value)

                b.when((first + k < size) & (c < count), write)

    b.loop(b.number(start, "first"), b.number(stop, "blocks"), solve)
    return b.step()
