"""``Scatter``: an item for each column [outer, :, inner], which applies all of its updates in order."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from firebrick.compiler.naive.building import INPUT, RESULT, TEMPORARY, Array, Buffer, Builder, Naive, compensated
from firebrick.compiler.spec.scatter import FOLDS, Scatter
from firebrick.core.views import row_major
from firebrick.scalar.expr import Expr, cast, const, whole_number
from firebrick.scalar.storage import computed


def scatter(spec: Scatter, float64: bool = True) -> Naive:
    """The naive form. Updates that are combined in a wider dtype need temporary memory, as does what additions lose where there
    is no float64."""
    if not float64 and spec.total == "float64" and spec.dtype == "float32" and spec.fold == "add":
        return _form(replace(spec, total="float32"), compensate=True)
    return _form(spec)


def _form(spec: Scatter, compensate: bool = False) -> Naive:
    b = Builder("scatter", (spec.outer, spec.inner))
    outer, inner = b.positions
    total, wide = computed(spec.total), spec.total != spec.dtype
    array = row_major((spec.outer, spec.size, spec.inner))
    elements, indices = (
        b.place(array),
        b.place(row_major((spec.count,) if spec.slices else (spec.outer, spec.count, spec.inner))),
    )
    updates = b.place(row_major((spec.outer, spec.count, spec.inner)))
    size, count = b.numbers([spec.size, spec.count])
    result = Buffer(RESULT, 0)
    lost = Buffer(TEMPORARY, 0)  # of each element
    folded, dtype = (Buffer(TEMPORARY, 0), spec.total) if wide else (result, spec.dtype)
    sources = [Buffer(INPUT, s) for s in spec.sources]
    given = sources.pop(0) if spec.start is None else None
    where = sources.pop(0)
    update = sources.pop(0) if spec.update is None else None

    def begin(places: list[Expr]) -> None:
        at = b.address(elements, [outer, *places, inner])
        start = const(spec.start or 0, total) if given is None else cast(b.read(given, spec.dtype, at), total)
        b.store(folded, dtype, at, start)
        if compensate:
            b.store(lost, dtype, at, const(-0.0, dtype))

    def put(updated: list[Expr]) -> None:
        at = b.address(indices, updated if spec.slices else [outer, *updated, inner])
        index = b.bounded(whole_number(b.read(where, spec.index, at)), size, 0)
        to = b.address(elements, [outer, index, inner])
        if update is None:
            new = const(spec.update or 0, total)
        else:
            new = cast(b.read(update, spec.dtype, b.address(updates, [outer, *updated, inner])), total)
        if compensate:
            new, rest = compensated(b, b.read(folded, dtype, to), b.read(lost, dtype, to), new)
            b.store(lost, dtype, to, rest)
        elif spec.fold != "set":
            new = FOLDS[spec.fold](b.read(folded, dtype, to), new)
        b.store(folded, dtype, to, new)

    def end(places: list[Expr]) -> None:
        at = b.address(elements, [outer, *places, inner])
        b.store(result, spec.dtype, at, cast(b.read(folded, dtype, at), computed(spec.dtype)))

    b.loops([size], begin)
    b.loops([count], put)
    if wide:
        b.loops([size], end)
    return Naive((b.step(),), (Array(spec.total, prod(array.shape)),) if wide or compensate else ())
