"""Long reductions in stages: many items reduce parts of each, then one item combines the parts of one.

An item of the naive form goes along a whole reduction. That is slow where there are few reductions, and impossible where one is
longer than a driver executes a loop. Reductions of reductions, as in a variance, are further stages. What is computed for each
element, as in a softmax, is a stage with an item for each element. Which elements a part has depends on sizes, and on whether
neighbouring items are to read neighbours, as on a GPU, or each item a range, as on a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from firebrick.compiler.naive.building import (
    ONE,
    RESULT,
    TEMPORARY,
    ZERO,
    Array,
    Buffer,
    Builder,
    Naive,
    NaiveLaunch,
)
from firebrick.compiler.naive.nests import COMBINE, Operands, neutral, summed
from firebrick.compiler.spec.base import Result
from firebrick.compiler.spec.nest import Nest
from firebrick.compiler.targets.wgsl.packed_elements import FOUR
from firebrick.core.views import row_major
from firebrick.scalar.expr import Expr, maximum, minimum, walk

LONG = 4096
"""Minimum elements of a reduction that is taken in parts."""
_ITEMS = 1 << 13
"""Number of items of the first stage, if reductions are long enough."""
_LEAST, _MOST = 256, 1 << 14
"""Elements of a part."""


def parts_of(spec: Nest) -> int | None:
    """The number of parts of each reduction; None if the naive form is as good, what is reduced reports faults, or no result
    needs it."""
    read = any(e.op == "reduce" for e in walk(r.expression for r in spec.results))
    if not spec.reduced or not read or spec.sites or any(r.summed for r in spec.results):
        return None
    length = prod(spec.domain[a] for a in spec.reduced)
    if length < LONG:
        return None
    wanted = _ITEMS * length // max(1, prod(spec.domain))
    parts = max(-(-length // _MOST), min(-(-length // _LEAST), wanted))
    return parts if parts > 1 else None


def staged(spec: Nest, parts: int, ranges: bool = False) -> Naive:
    """The launches of a specification.

    Args:
        spec: A specification for which ``parts_of`` gives a number.
        parts: Of each reduction.
        ranges: Whether a part is a range of elements, a multiple of four but for the last; else part p has the elements p,
            p + parts, …
    """
    return _StagedNest(spec, parts, ranges).form()


class _StagedNest:
    def __init__(self, spec: Nest, parts: int, ranges: bool) -> None:
        self.spec, self.parts, self.ranges = spec, parts, ranges
        self.kept = [a for a in range(len(spec.domain)) if a not in spec.reduced]
        self.sizes = [spec.domain[a] for a in self.kept]
        self.nodes = [e for e in walk(r.expression for r in spec.results) if e.op == "reduce"]
        self.depth: dict[Expr, int] = {}
        for e in self.nodes:
            inside = [self.depth[x] for x in walk(e.args) if x.op == "reduce"]
            self.depth[e] = 1 + max(inside, default=0)

    def form(self) -> Naive:
        steps: list[NaiveLaunch] = []
        for depth in range(1, max(self.depth.values()) + 1):
            now = [e for e in self.nodes if self.depth[e] == depth]
            steps += [self._partial(now), self._combined(now)]
        steady = [k for k, r in enumerate(self.spec.results) if self._is_steady(r)]
        each = [k for k in range(len(self.spec.results)) if k not in steady]
        steps += [self._results(steady, self.kept)] if steady else []
        steps += [self._results(each, range(len(self.spec.domain)))] if each else []
        count = prod(self.sizes)
        temporaries = [Array(e.dtype, n) for e in self.nodes for n in (count * self.parts, count)]
        return Naive(tuple(steps), tuple(temporaries))

    def _is_steady(self, r: Result) -> bool:
        """Whether a result has one element for all positions along the reduced axes."""
        return all(stride == 0 for a in self.spec.reduced for size, stride in r.view.axes[a] if size != 1)

    def _temporary(self, e: Expr, combined: bool) -> Buffer:
        return Buffer(TEMPORARY, 2 * self.nodes.index(e) + combined)

    def _known(self, b: Builder, nodes: Sequence[Expr], outer: Sequence[Expr]) -> dict[Expr, Expr]:
        """The reductions of earlier stages, at the item's position."""
        at = b.address(b.place(row_major(self.sizes)), outer) if nodes else None
        return {e: b.let(b.read(self._temporary(e, True), e.dtype, at), "reduced") for e in nodes if at is not None}

    def _partial(self, nodes: Sequence[Expr]) -> NaiveLaunch:
        """Parts of reductions."""
        b = Builder("partial", [*self.sizes, self.parts])
        *outer, part = b.positions
        operands, axes = Operands(b, self.spec.operands), self.spec.reduced
        lengths = b.numbers([self.spec.domain[a] for a in axes])
        whole = prod(self.spec.domain[a] for a in axes)
        parts, length = b.number(self.parts), b.number(whole)
        if self.ranges:
            each = b.number(-(-whole // (FOUR * self.parts)) * FOUR)
            first, step = b.let(part * each, "first"), ONE
            rounds = b.let(maximum(minimum(each, length - first), ZERO), "rounds")
        else:
            first, step = part, parts
            rounds = b.let((length - part + (parts - 1)) / parts, "rounds")
        inside = dict.fromkeys(x for e in nodes for x in walk(e.args) if x.op == "reduce")
        known = self._known(b, list(inside), outer)
        at = b.let(b.address(b.place(row_major([*self.sizes, self.parts])), b.positions), "at")
        for e in nodes:

            def element(counters: list[Expr], e: Expr = e) -> Expr:
                flat = b.let(first + counters[0] * step, "flat")
                here = dict(zip(self.kept, outer, strict=True)) | dict(zip(axes, b.digits(flat, lengths), strict=True))
                return operands.values(e.args, [here[a] for a in sorted(here)], known)[0]

            b.store(self._temporary(e, False), e.dtype, at, self._reduced(b, e, rounds, element))
        return b.step()

    def _combined(self, nodes: Sequence[Expr]) -> NaiveLaunch:
        """Reductions of parts."""
        b = Builder("combined", self.sizes)
        parts = b.number(self.parts)
        at = b.address(b.place(row_major(self.sizes)), b.positions)
        for e in nodes:

            def element(counters: list[Expr], e: Expr = e) -> Expr:
                return b.read(self._temporary(e, False), e.dtype, at * parts + counters[0])

            b.store(self._temporary(e, True), e.dtype, at, self._reduced(b, e, parts, element))
        return b.step()

    def _reduced(self, b: Builder, e: Expr, count: Expr, element: Callable[[list[Expr]], Expr]) -> Expr:
        kind = str(e.value)
        if kind == "sum":
            return summed(b, e.dtype, [count], element)
        total = b.variable(neutral(kind, e.dtype), kind)
        b.loops([count], lambda counters: b.assign(total, COMBINE[kind](total.local, element(counters))))
        return total.local

    def _results(self, numbers: Sequence[int], axes: Sequence[int]) -> NaiveLaunch:
        """Results, with an item for each position along some axes."""
        spec = self.spec
        b = Builder("reduced", [spec.domain[a] for a in axes])
        here: Mapping[int, Expr] = dict(zip(axes, b.positions, strict=True))
        zero = b.number(0)
        at = [here.get(a, zero) for a in range(len(spec.domain))]
        known = self._known(b, self.nodes, [at[a] for a in self.kept])
        written = [(Buffer(RESULT, k), x) for k in numbers for x in spec.results[k].reals]
        values = Operands(b, spec.operands).values([x.expression for _, x in written], at, known)
        values = [b.let(v) for v in values]
        for (buffer, x), value in zip(written, values, strict=True):
            b.store(buffer, x.dtype, b.address(b.place(x.view), at), value)
        return b.step()
