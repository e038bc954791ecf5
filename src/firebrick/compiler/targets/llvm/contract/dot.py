"""Products of few rows, with both operands contiguous along k, such as one sample times a layer's weight: without packing.

Each element of C has a vector of partial sums along k, which is reduced in a fixed order. Eight columns are computed at a time:
so many independent sums hide the latency of a multiply-add. B is read once, in memory order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firebrick.compiler.targets.llvm.contract.ir_builder import IRBuilder, Value, vector
from firebrick.compiler.targets.llvm.contract.problem import Problem

COLUMNS = 8
MOST_ROWS = 4
LONGEST = 512
"""Maximum number of consecutive additions to one accumulator; longer sums are blocked, for smaller errors."""


def suits_dot(p: Problem) -> bool:
    """Whether there are few rows, and both operands are float32 or float64 and contiguous along k."""
    plain = all(x.dtype in ("float32", "float64") and len(x.k) == len(x.lanes) == 1 and not x.bounds for x in (p.a, p.b))
    return plain and 0 < p.m <= MOST_ROWS and p.k > 0 and p.a.k[0].stride == p.b.k[0].stride == 1


def swapped(p: Problem) -> Problem:
    """The transposed problem."""
    return replace(p, m=p.n, n=p.m, a=p.b, b=p.a, c=replace(p.c, rows=p.c.lanes, lanes=p.c.rows))


def dots(e: IRBuilder, p: Problem, a: str, b: str, batch: Sequence[Value], column: Value, vl: int, type_: str) -> list[str]:
    """For each row, a vector of ``COLUMNS`` elements of C, from ``column`` on; lanes beyond the last column repeat its element.

    Args:
        e: Builder to append to.
        p: The problem.
        a: Pointer to A.
        b: Pointer to B.
        batch: The indices of the batch.
        column: The first column.
        vl: Lanes of a vector.
        type_: ``float`` or ``double``.
    """
    v, tail = vector(vl, type_), p.k % vl
    plain = "float32" if type_ == "float" else "float64"
    a_base = e.dot(batch, p.a.batch, p.a.offset)
    b_base = e.dot(batch, p.b.batch, p.b.offset)
    a_at = [e.at(a, e.add(a_base, i * p.a.lanes[0].stride), type_) for i in range(p.m)]
    # columns beyond the end are clamped, so that no load needs a mask; the caller does not store them
    columns = [e.min(e.add(column, j), p.n - 1) if p.n % COLUMNS else e.add(column, j) for j in range(COLUMNS)]
    b_at = [e.at(b, e.dot([c], [p.b.lanes[0].stride], b_base), type_) for c in columns]

    def add_products(acc: list[str], k: Value, mask: str | None) -> list[str]:
        xs = [e.load(e.at(x, k, type_), vl, plain, mask) for x in a_at]
        out = list(acc)
        for j, y in enumerate(b_at):
            w = e.load(e.at(y, k, type_), vl, plain, mask)
            for i, x in enumerate(xs):
                out[i * COLUMNS + j] = e.fma(x, w, acc[i * COLUMNS + j], vl, type_)
        return out

    zero, block = [(v, "zeroinitializer")] * (p.m * COLUMNS), vl * LONGEST

    def partial_sums(start: Value, stop: Value) -> list[str]:
        with e.loop(start, stop, vl, zero) as loop:
            loop.next = add_products(loop.values, loop.index, None)
        return list(loop.values)

    whole = p.k - tail
    if whole <= block:
        acc = partial_sums(0, whole)
    else:
        with e.loop(0, whole, block, zero) as blocks:
            parts = partial_sums(blocks.index, e.min(e.add(blocks.index, block), whole))
            blocks.next = [e.let(f"fadd {v} {x}, {y}") for x, y in zip(blocks.values, parts, strict=True)]
        acc = list(blocks.values)
    if tail:
        acc = add_products(acc, whole, e.lanes_below(tail, vl))
    return [_lane_sums(e, acc[i * COLUMNS : (i + 1) * COLUMNS], vl, type_) for i in range(p.m)]


def _lane_sums(e: IRBuilder, values: list[str], n: int, type_: str) -> str:
    """A vector with the sum of the lanes of each vector: halves are added until one lane is left."""
    out = "poison"
    for j, x in enumerate(values):
        width = n
        while width > 1:
            width //= 2
            low = e.shuffle(x, None, list(range(width)), 2 * width, type_)
            high = e.shuffle(x, None, list(range(width, 2 * width)), 2 * width, type_)
            x = e.let(f"fadd {vector(width, type_)} {low}, {high}")
        one = e.let(f"extractelement {vector(1, type_)} {x}, i64 0")
        out = e.let(f"insertelement {vector(len(values), type_)} {out}, {type_} {one}, i64 {j}")
    return out
