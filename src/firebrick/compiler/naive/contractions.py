"""``Contract``: an item for each element of C, which goes along k."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from firebrick.compiler.naive.building import INPUT, RESULT, Buffer, Builder, Naive, NaiveLaunch
from firebrick.compiler.naive.nests import Operands
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.parts import Factor, Part
from firebrick.scalar.expr import Expr, const, load
from firebrick.scalar.storage import computed


def contract(spec: Contract) -> Naive:
    """The naive form: a launch for each part."""
    return Naive(tuple(_part(spec, p) for p in spec.parts))


def _part(spec: Contract, part: Part) -> NaiveLaunch:
    b = Builder("contract", part.domain)
    dtype = computed(spec.dtype)
    *batch, i, j = b.positions
    left, right = _FactorReader(b, part.left, [*batch, i]), _FactorReader(b, part.right, [*batch, j])
    whole = len(spec.parts) == 1
    results = [(k, x, b.place(x.view if whole else part.result)) for k, r in enumerate(spec.results) for x in r.reals]
    operands = Operands(b, spec.operands, first=1)
    total = b.variable(const(0, dtype), "total")

    def add(counters: list[Expr]) -> None:
        x, y = left.element(counters[0]), right.element(counters[0])
        inside = [c for factor in (left, right) for c in factor.inside if part.omits]
        if inside:
            b.when(reduce(and_, inside), lambda: b.assign(total, total.local + x * y))
        else:
            b.assign(total, total.local + x * y)

    b.loops(b.numbers([part.k]), add)
    values = operands.values([r.expression for _, r, _ in results], b.positions, {load(0, dtype): total.local})
    values = [b.let(v) for v in values]
    for (k, r, placed), value in zip(results, values, strict=True):
        b.store(Buffer(RESULT, k), r.dtype, b.address(placed, b.positions), value)
    return b.step()


class _FactorReader:
    """A factor at an item's positions of batch and lane: its elements along k, 0 where a coordinate is outside.

    Attributes:
        inside: Whether the coordinates of the element that was read last are inside; empty for a factor without bounds.
    """

    def __init__(self, b: Builder, factor: Factor, positions: Sequence[Expr]) -> None:
        self.b, self.factor = b, factor
        placed = b.place(factor.view)
        at = placed.offset
        lanes: list[Expr] = []
        for axis, position in zip(placed.axes, positions, strict=False):
            lanes = b.digits(position, [size for size, _ in axis])
            at = at + b.along(axis, lanes)
        self.start = b.let(at, "start")
        self.axis = placed.axes[-1]
        self.bounds: list[tuple[Expr, Expr, list[Expr]]] = []
        self.inside: list[Expr] = []
        for bound in factor.bounds:
            coordinate = b.number(bound.start)
            for digit, coefficient in zip(lanes, b.numbers(bound.lanes), strict=True):
                coordinate = coordinate + digit * coefficient
            self.bounds.append((b.let(coordinate, "coordinate"), b.number(bound.size), b.numbers(bound.k)))

    def element(self, k: Expr) -> Expr:
        """The element at an index of k."""
        b, dtype = self.b, self.factor.dtype
        digits = b.digits(k, [size for size, _ in self.axis])
        x = b.read(Buffer(INPUT, self.factor.source), dtype, self.start + b.along(self.axis, digits))
        if not self.bounds:
            return b.let(x, "x")
        inside = const(True, "bool")
        for first, size, coefficients in self.bounds:
            coordinate = first
            for digit, coefficient in zip(digits, coefficients, strict=True):
                coordinate = coordinate + digit * coefficient
            coordinate = b.let(coordinate, "coordinate")
            inside = (coordinate >= 0) & (coordinate < size) & inside
        inside = b.let(inside, "inside")
        self.inside = [inside]
        found = b.variable(const(0, computed(dtype)), "x")
        b.when(inside, lambda: b.assign(found, x))
        return found.local
