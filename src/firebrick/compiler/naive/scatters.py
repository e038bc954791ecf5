"""``Scatter``: an item for each column [outer, :, inner], which applies all of its updates in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from firebrick.compiler.naive.building import (
    INPUT,
    RESULT,
    TEMPORARY,
    Array,
    Buffer,
    Builder,
    Naive,
    NaiveLaunch,
    Placed,
    compensated,
)
from firebrick.compiler.spec.scatter import FEW, FOLDS, Scatter
from firebrick.core.views import row_major
from firebrick.scalar.expr import FLOATS, Expr, cast, const, whole_number
from firebrick.scalar.storage import computed

MANY = 4096
"""Minimum number of elements whose first values are given by a kernel of its own."""


def scatter(spec: Scatter, float64: bool = True) -> Naive:
    """The naive form. Updates that are combined in a wider dtype need temporary memory, as does what additions lose: without
    float64 that is kept of float32, and of the float64 that some devices have besides."""
    if not float64 and spec.total == "float64" and spec.dtype in FLOATS and spec.fold == "add" and spec.count > FEW:
        return _form(replace(spec, total=spec.dtype), compensate=True)
    return _form(spec)


def _form(spec: Scatter, compensate: bool = False) -> Naive:
    return _ScatterForm(spec, compensate).form()


class _ScatterForm:
    """The launches of a scatter. Elements are given their first values, and rounded at the end, in the kernel of the updates,
    or, if there are many, in kernels with an item for each.

    Args:
        spec: The scatter.
        compensate: Whether what additions lose is kept.
    """

    def __init__(self, spec: Scatter, compensate: bool) -> None:
        self.spec, self.compensate = spec, compensate
        self.total, self.wide = computed(spec.total), spec.total != spec.dtype
        self.array = row_major((spec.outer, spec.size, spec.inner))
        self.result, self.lost = Buffer(RESULT, 0), Buffer(TEMPORARY, 0)  # the latter of each element
        self.folded, self.dtype = (Buffer(TEMPORARY, 0), spec.total) if self.wide else (self.result, spec.dtype)
        sources = [Buffer(INPUT, s) for s in spec.sources]
        self.given = sources.pop(0) if spec.start is None else None
        self.where = sources.pop(0)
        self.update = sources.pop(0) if spec.update is None else None

    def form(self) -> Naive:
        spec, elements = self.spec, prod(self.array.shape)
        temporaries = (Array(spec.total, elements),) if self.wide or self.compensate else ()
        if elements >= MANY and spec.outer * spec.inner < elements:
            return Naive(
                (self._each("begin", self.begin), self._updates(), *([self._each("end", self.end)] * self.wide)), temporaries
            )
        return Naive((self._updates(together=True),), temporaries)

    def _each(self, name: str, write: Callable[[Builder, Placed, list[Expr]], None]) -> NaiveLaunch:
        """A kernel with an item for each element."""
        b = Builder(f"scatter_{name}", self.array.shape)
        write(b, b.place(self.array), b.positions)
        return b.step()

    def _updates(self, together: bool = False) -> NaiveLaunch:
        """The kernel of the updates.

        Args:
            together: Whether it does what ``begin`` and ``end`` do, too.
        """
        spec = self.spec
        b = Builder("scatter", (spec.outer, spec.inner))
        outer, inner = b.positions
        each = (spec.outer, spec.count, spec.inner)
        elements, indices = b.place(self.array), b.place(row_major((spec.count,) if spec.slices else each))
        updates = b.place(row_major(each))
        size, count = b.numbers([spec.size, spec.count])

        def put(updated: list[Expr]) -> None:
            at = b.address(indices, updated if spec.slices else [outer, *updated, inner])
            index = b.bounded(whole_number(b.read(self.where, spec.index, at)), size, 0)
            to = b.address(elements, [outer, index, inner])
            if self.update is None:
                new = const(spec.update or 0, self.total)
            else:
                new = cast(b.read(self.update, spec.dtype, b.address(updates, [outer, *updated, inner])), self.total)
            self.fold(b, to, new)

        if together:
            b.loops([size], lambda at: self.begin(b, elements, [outer, *at, inner]))
        b.loops([count], put)
        if together and self.wide:
            b.loops([size], lambda at: self.end(b, elements, [outer, *at, inner]))
        return b.step()

    def begin(self, b: Builder, elements: Placed, position: list[Expr]) -> None:
        """Give an element its first value."""
        at = b.address(elements, position)
        start = const(self.spec.start or 0, self.total)
        if self.given is not None:
            start = cast(b.read(self.given, self.spec.dtype, at), self.total)
        b.store(self.folded, self.dtype, at, start)
        if self.compensate:
            b.store(self.lost, self.dtype, at, const(-0.0, self.dtype))

    def fold(self, b: Builder, at: Expr, new: Expr) -> None:
        """Apply an update to an element."""
        if self.compensate:
            new, rest = compensated(b, b.read(self.folded, self.dtype, at), b.read(self.lost, self.dtype, at), new)
            b.store(self.lost, self.dtype, at, rest)
        elif self.spec.fold != "set":
            new = FOLDS[self.spec.fold](b.read(self.folded, self.dtype, at), new)
        b.store(self.folded, self.dtype, at, new)

    def end(self, b: Builder, elements: Placed, position: list[Expr]) -> None:
        """Round an element."""
        at = b.address(elements, position)
        b.store(self.result, self.spec.dtype, at, cast(b.read(self.folded, self.dtype, at), computed(self.spec.dtype)))
