"""``Map``, ``Row`` and ``Fold``: an item for each position along the axes that are not reduced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from firebrick.compiler.kernel.ir import Let
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
    Placed,
    compensated,
)
from firebrick.compiler.spec.base import Operand, Result
from firebrick.compiler.spec.nest import Nest
from firebrick.core.views import row_major
from firebrick.scalar.expr import BITS, FLOATS, SIGNED, Expr, binary, const, maximum, minimum, steps, walk
from firebrick.scalar.rewrite import replaced

COMBINE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "prod": lambda total, x: binary("mul", total, x), "max": maximum, "min": minimum,
}  # fmt: skip
"""Kind of a reduction other than a sum → (its value so far, an element) → its next value."""


def nest(spec: Nest, rows: Callable[[Nest, Sequence[tuple[Buffer, Result]]], Rows] | None = None) -> Naive:
    """The naive form. What is summed along other axes than those of the rows is first written to temporary memory.

    Args:
        spec: The specification.
        rows: Makes the kernel of the rows; by default ``Rows``.
    """
    written: list[tuple[Buffer, Result]] = []
    sums: list[NaiveLaunch] = []
    temporaries: list[Array] = []
    for i, r in enumerate(spec.results):
        if not r.summed:
            written += [(Buffer(RESULT, i), part) for part in r.reals]
            continue
        elements = Buffer(TEMPORARY, len(temporaries))
        temporaries.append(Array(r.expression.dtype, prod(spec.domain)))
        written.append((elements, replace(r, dtype=r.expression.dtype, view=row_major(spec.domain), summed=())))
        sums.append(_columns(spec, r, Buffer(RESULT, i), elements))
    return Naive(((rows or Rows)(spec, written).step(), *sums), tuple(temporaries))


def neutral(kind: str, dtype: str) -> Expr:
    """The initial value of a reduction."""
    if kind == "prod":
        return const(1, dtype)
    if dtype in FLOATS:
        return const(float("-inf") if kind == "max" else float("inf"), dtype)
    low = -(1 << (BITS[dtype] - 1)) if dtype in SIGNED else 0
    high = (1 << (BITS[dtype] - (dtype in SIGNED))) - 1
    return const(low if kind == "max" else high, dtype)


def summed(b: Builder, dtype: str, sizes: Sequence[Expr], element: Callable[[list[Expr]], Expr]) -> Expr:
    """A sum over an index space, that of floats ``compensated``."""
    return running_sum(b, dtype, partial(b.loops, sizes), element)[0].local


def running_sum(
    b: Builder, dtype: str, loops: Callable[[Callable[[list[Expr]], None]], None], element: Callable[[list[Expr]], Expr]
) -> tuple[Let, Let | None]:
    """The variable of a sum, and of what the last addition lost, which a sum of floats has.

    Args:
        b: Kernel.
        dtype: Of the sum.
        loops: Writes a statement for each position.
        element: At a position.
    """
    total = b.variable(const(0, dtype), "sum")
    lost = b.variable(const(0, dtype), "lost") if dtype in FLOATS else None

    def add(counters: list[Expr]) -> None:
        x = element(counters)
        if lost is None:
            b.assign(total, total.local + x)
            return
        following, rest = compensated(b, total.local, lost.local, x)
        b.assign(lost, rest)
        b.assign(total, following)

    loops(add)
    return total, lost


class Operands:
    """The operands of a specification, as a kernel reads them.

    Args:
        b: Kernel.
        operands: What ``load(first)``, ``load(first + 1)``, … read.
        first: Number of the first.
    """

    def __init__(self, b: Builder, operands: Sequence[Operand], first: int = 0) -> None:
        self.b, self.first = b, first
        self.placed = [(Buffer(INPUT, x.source), x.dtype, b.place(x.view)) for x in operands]

    def values(self, roots: Sequence[Expr], at: Sequence[Expr], known: Mapping[Expr, Expr]) -> list[Expr]:
        """Expressions at a position of the domain; ``known``: the values of nodes that are there already."""
        b = self.b
        addresses: dict[int, Expr] = {}

        def replace_node(e: Expr) -> Expr | None:
            if e.op in ("load", "gather"):
                k = int(e.value or 0) - self.first
                buffer, dtype, placed = self.placed[k]
                if k not in addresses:
                    addresses[k] = b.address(placed, at)
                return b.read(buffer, dtype, addresses[k] + e.args[0] if e.args else addresses[k])
            if e.op == "index":
                out: Expr = ZERO
                for position, step in zip(at, steps(e, len(at)), strict=True):
                    out = out + position * step
                return out
            if e.op == "bounded":
                size, site = map(int, str(e.value).split(":"))
                return b.bounded(e.args[0], const(size, "int64"), site)
            return None

        return replaced(roots, replace_node, known)


class Rows:
    """The kernel of all results, those that are summed later as their elements.

    Args:
        spec: The specification.
        results: What is written, and where.
    """

    kind = "row"

    def __init__(self, spec: Nest, results: Sequence[tuple[Buffer, Result]]) -> None:
        self.spec = spec
        kept = [a for a in range(len(spec.domain)) if a not in spec.reduced]
        b = self.b = Builder(self.kind if spec.reduced else "map", [spec.domain[a] for a in kept])
        self.outer = dict(zip(kept, b.positions, strict=True))
        self.reduced = b.numbers([spec.domain[a] for a in spec.reduced])
        self.operands = Operands(b, spec.operands)
        self.results = [(buffer, r, b.place(r.view)) for buffer, r in results]
        self.known: dict[Expr, Expr] = {}

    def step(self) -> NaiveLaunch:
        """The launch."""
        for e in walk(r.expression for _, r, _ in self.results):
            if e.op == "reduce":
                self.known[e] = self.reduction(e)
        once = [x for x in self.results if self._is_steady(x[1])]
        each = [x for x in self.results if not self._is_steady(x[1])]
        if once:
            self.once(lambda: self.write(once, [ZERO] * len(self.reduced)))
        if each:
            self.loops(lambda counters: self.write(each, counters))
        return self.b.step()

    def loops(self, write: Callable[[list[Expr]], None]) -> None:
        """Statements for each position along the reduced axes."""
        self.b.loops(self.reduced, write)

    def once(self, write: Callable[[], None]) -> None:
        """Statements for each position along the other axes."""
        write()

    def _is_steady(self, r: Result) -> bool:
        """Whether a result has one element for all positions along the reduced axes."""
        return all(stride == 0 for a in self.spec.reduced for size, stride in r.view.axes[a] if size != 1)

    def at(self, counters: Sequence[Expr]) -> list[Expr]:
        """A position of the domain."""
        here = self.outer | dict(zip(self.spec.reduced, counters, strict=True))
        return [here[a] for a in range(len(self.spec.domain))]

    def reduction(self, e: Expr) -> Expr:
        """The value of a ``reduce`` node at the item's position."""
        kind, b = str(e.value), self.b

        def element(counters: list[Expr]) -> Expr:
            return self.operands.values(e.args, self.at(counters), self.known)[0]

        if kind == "sum":
            return self.combined(kind, *running_sum(b, e.dtype, self.loops, element))
        total = b.variable(neutral(kind, e.dtype), kind)
        self.loops(lambda counters: b.assign(total, COMBINE[kind](total.local, element(counters))))
        return self.combined(kind, total)

    def combined(self, kind: str, total: Let, lost: Let | None = None) -> Expr:
        """A reduction by its variables, as of ``running_sum``."""
        return total.local

    def write(self, results: Sequence[tuple[Buffer, Result, Placed]], counters: Sequence[Expr]) -> None:
        """Write an element of each result. All are computed first, since a result may use an operand's memory."""
        at = self.at(counters)
        values = self.operands.values([r.expression for _, r, _ in results], at, self.known)
        values = [self.b.let(v) for v in values]
        for (buffer, r, placed), value in zip(results, values, strict=True):
            self.b.store(buffer, r.dtype, self.b.address(placed, at), value)


def _columns(spec: Nest, r: Result, result: Buffer, elements: Buffer) -> NaiveLaunch:
    """The sums of elements in temporary memory: an item for each position along the axes that are not summed."""
    kept = [a for a in range(len(spec.domain)) if a not in r.summed]
    b = Builder("sum", [spec.domain[a] for a in kept])
    source, to, dtype = b.place(row_major(spec.domain)), b.place(r.view), r.expression.dtype
    outer = dict(zip(kept, b.positions, strict=True))

    def element(counters: list[Expr]) -> Expr:
        here = outer | dict(zip(r.summed, counters, strict=True))
        return b.read(elements, dtype, b.address(source, [here[a] for a in sorted(here)]))

    total = summed(b, dtype, b.numbers([spec.domain[a] for a in r.summed]), element)
    here = outer | dict.fromkeys(r.summed, ZERO)
    b.store(result, r.dtype, b.address(to, [here[a] for a in sorted(here)]), total)
    return b.step()
