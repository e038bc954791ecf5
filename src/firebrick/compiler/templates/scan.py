"""``scan``: the results of an operation of two numbers over the beginnings of each row of a matrix.

A group has a row, and takes ``group_size`` vectors of it at a time: each item scans its vector, 32 items scan their last
numbers by shuffles, and the last numbers of these through shared memory. What comes before a row is an operand: a long row is
several short ones, of which ``row_reduction`` gives the sums, whose exclusive scan is what comes before each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from firebrick.compiler.kernel.language.intrinsics import barrier, group, lane, registers, shared, shuffle, unrolled
from firebrick.compiler.templates.epilogues import Elementwise, same
from firebrick.compiler.templates.template import Template, constant, holds, operand, result, template, whole_subgroups
from firebrick.core.dtypes import DType


@lru_cache(maxsize=64)
def scan(combine: Elementwise, first: float, prologue: Elementwise = same) -> Template:
    """The template of a scan.

    Args:
        combine: Operation of two numbers, of what comes earlier and later; associative up to rounding.
        first: Its neutral element.
        prologue: What each element is replaced by.

    Returns:
        Kernel of ``x`` [rows, vectors, vector] and ``start`` [rows], which comes before each row → ``out`` [rows, vectors,
        vector]. Its constant ``exclusive`` says whether a result is without its own element.
    """

    @template(
        {
            "x": operand(None, "rows, vectors, vector"), "start": operand("x", "rows"),
            "out": result("x", "rows, vectors, vector"),
            "group_size": constant(int), "vector": constant(int), "exclusive": constant(bool), "of": constant(DType),
        },
        "rows", "group_size", lambda launch: whole_subgroups(launch) and holds(first, launch),
    )  # fmt: skip
    def scan(x: Any, start: Any, out: Any, group_size: int, vector: int, exclusive: bool, of: Any) -> None:
        row, own = group(), lane() % 32
        subgroups = group_size // 32
        # the last numbers of each 32 items; two of them, so that one barrier for each piece of the row is enough
        parts = shared(of, (2, 32))
        totals = registers(of(first), vector + 1)
        before = of(start[row])
        for t in range((x.shape[1] + group_size - 1) // group_size):
            j = t * group_size + lane()
            for v in unrolled(vector):
                totals[v + 1] = of(first)
            if j < x.shape[1]:
                for v in unrolled(vector):
                    totals[v + 1] = of(prologue(x[row, j, v]))
            for v in unrolled(vector):
                totals[v + 1] = combine(totals[v], totals[v + 1])
            last = totals[vector]
            for step in unrolled(5):
                other = shuffle(last, lane() - (1 << step), 32)
                if own >= 1 << step:
                    last = combine(other, last)
            if own == 31:
                parts[t % 2, lane() // 32] = last
            barrier()
            # each 32 items scan the parts of all, so each has those before it and the whole
            part = of(first)
            if own < subgroups:
                part = parts[t % 2, own]
            for step in unrolled(5):
                other = shuffle(part, lane() - (1 << step), 32)
                if own >= 1 << step:
                    part = combine(other, part)
            earlier = shuffle(part, lane() // 32 - 1, 32)
            whole = shuffle(part, subgroups - 1, 32)
            left = shuffle(last, lane() - 1, 32)
            mine = before
            if lane() >= 32:
                mine = combine(mine, earlier)
            if own > 0:
                mine = combine(mine, left)
            if j < x.shape[1]:
                for v in unrolled(vector):
                    out[row, j, v] = combine(mine, totals[v if exclusive else v + 1])
            before = combine(before, whole)

    return scan
