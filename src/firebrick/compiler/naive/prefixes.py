"""``Prefix``: an item for each line along the axis, which scans the line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from firebrick.compiler.kernel.ir import For, Let
from firebrick.compiler.naive.building import INPUT, ONE, RESULT, ZERO, Buffer, Builder, Naive, compensated
from firebrick.compiler.spec.prefix import EXTREMES, Prefix
from firebrick.compiler.spec.running import RUNNING
from firebrick.core.views import row_major
from firebrick.scalar.expr import FLOATS, Expr, cast, const, eq, local, ne
from firebrick.scalar.storage import computed


def prefix(spec: Prefix, float64: bool = True) -> Naive:
    """The naive form. The first element is its own result, so that the sum of -0.0 is -0.0. Where there is no float64, running
    sums keep what an addition loses."""
    compensate = not float64 and spec.fold == "sum" and spec.total == "float64" and spec.dtype != "float64"
    if compensate:
        spec = replace(spec, total="float32")
    b = Builder("prefix", (spec.outer, spec.inner))
    outer, inner = b.positions
    array = b.place(row_major((spec.outer, spec.size, spec.inner)))
    size, dtype = b.number(spec.size), computed(spec.dtype)
    last = b.let(size - 1, "last")
    if spec.fold in RUNNING:
        return _running(b, spec, size, last, lambda k: b.address(array, [outer, k, inner]))

    def place(k: Expr) -> tuple[Expr, Expr]:
        """The index along the axis and the address of the scan's element ``k``."""
        along = b.let(last - k if spec.reverse else k, "along")
        return along, b.address(array, [outer, along, inner])

    def element(at: Expr) -> Expr:
        return b.let(cast(b.read(Buffer(INPUT, spec.sources[0]), spec.dtype, at), spec.total), "x")

    along, at = place(ZERO)
    total = b.variable(element(at), "total")
    where = b.variable(along, "where") if spec.fold in EXTREMES else None
    lost = b.variable(const(-0.0, "float32"), "lost") if compensate else None

    def put(at: Expr) -> None:
        b.store(Buffer(RESULT, 0), spec.dtype, at, cast(total.local, dtype))
        if where is not None:
            b.store(Buffer(RESULT, 1), "int64", at, where.local)

    put(at)
    name = b.fresh("k")

    def step() -> None:
        along, at = place(local(name, "int64"))
        x = element(at)
        if lost is not None:
            following, rest = compensated(b, total.local, lost.local, x)
            b.assign(lost, rest)
            b.assign(total, following)
        elif where is None:
            b.assign(total, total.local + x if spec.fold == "sum" else total.local * x)
        else:
            _keep(b, spec, total, where, x, along)
        put(at)

    b.body.append(For(name, ONE, size, 1, b.block(step)))
    return Naive((b.step(),))


def _running(b: Builder, spec: Prefix, size: Expr, last: Expr, address: Callable[[Expr], Expr]) -> Naive:
    """The form of a fold of ``RUNNING``; ``address`` is that of an element of the line."""
    fold = RUNNING[spec.fold]

    def elements(at: Expr) -> list[Expr]:
        return [b.let(b.read(Buffer(INPUT, source), spec.dtype, at), "x") for source in spec.sources]

    def put(at: Expr) -> None:
        result = fold.result([s.local for s in state], computed(spec.dtype))
        b.store(Buffer(RESULT, 0), spec.dtype, at, result)

    at = address(b.let(last, "along") if spec.reverse else ZERO)
    state = [b.variable(value, "state") for value in fold.first(elements(at), spec.total)]
    put(at)
    name = b.fresh("k")

    def step() -> None:
        k = local(name, "int64")
        at = address(b.let(last - k, "along") if spec.reverse else k)
        following = fold.step([s.local for s in state], elements(at), spec.total)
        for variable, value in zip(state, [b.let(value) for value in following], strict=True):
            b.assign(variable, value)
        put(at)

    b.body.append(For(name, ONE, size, 1, b.block(step)))
    return Naive((b.step(),))


def _keep(b: Builder, spec: Prefix, total: Let, where: Let, x: Expr, along: Expr) -> None:
    """Update the running extreme by an element, if it is more extreme, or the first NaN."""
    better = x > total.local if spec.fold == "max" else x < total.local
    if spec.total in FLOATS:
        better = better | (ne(x, x) & eq(total.local, total.local))

    def take() -> None:
        b.assign(where, along)
        b.assign(total, x)

    b.when(better, take)
