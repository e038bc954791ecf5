"""``row_reduction``: one number of each row of a matrix, by an operation of two numbers.

``lanes`` items have a row: each takes every ``lanes``-th vector of it, and the items combine their parts in a tree, by shuffles
among 32, and through shared memory beyond. So the order of the operation depends on sizes only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from firebrick.compiler.kernel.language.intrinsics import barrier, group, lane, shared, shuffle, unrolled
from firebrick.compiler.templates.epilogues import Elementwise, same
from firebrick.compiler.templates.template import Template, TemplateSizes, constant, holds, operand, result, template
from firebrick.core.dtypes import DType


def valid_for(launch: TemplateSizes) -> bool:
    """Any sizes; the items of a row are a power of two that divides the group."""
    size, lanes = launch.sizes["group_size"], launch.sizes["lanes"]
    return size % lanes == 0 and lanes & (lanes - 1) == 0


@lru_cache(maxsize=64)
def row_reduction(combine: Elementwise, first: float, prologue: Elementwise = same, epilogue: Elementwise = same) -> Template:
    """The template of a reduction.

    Args:
        combine: Operation of two numbers, associative up to rounding.
        first: Its neutral element.
        prologue: What each element is replaced by.
        epilogue: What each result is replaced by.

    Returns:
        Kernel of ``x`` [rows, vectors, vector] → ``out`` [rows], with the constants ``group_size``, ``lanes`` (of a row, a
        power of two that divides the group), ``vector`` and ``of``, the dtype that is computed in.
    """

    @template(
        {
            "x": operand(None, "rows, vectors, vector"), "out": result("x", "rows"), "group_size": constant(int),
            "lanes": constant(int), "vector": constant(int), "of": constant(DType),
        },
        "(rows + group_size // lanes - 1) // (group_size // lanes)", "group_size",
        lambda launch: valid_for(launch) and holds(first, launch),
    )  # fmt: skip
    def row_reduction(x: Any, out: Any, group_size: int, lanes: int, vector: int, of: Any) -> None:
        row = group() * (group_size // lanes) + lane() // lanes
        own = lane() % lanes
        total = of(first)
        if row < x.shape[0]:
            for j in range(own, x.shape[1], lanes):
                for v in unrolled(vector):
                    total = combine(total, prologue(x[row, j, v]))
        for step in unrolled(5):
            if 1 << step < lanes:
                total = combine(total, shuffle(total, lane() ^ (1 << step), min(lanes, 32)))
        if lanes > 32:
            parts = shared(of, group_size // 32)
            if lane() % 32 == 0:
                parts[lane() // 32] = total
            barrier()
            begin = lane() // lanes * (lanes // 32)
            total = of(first)
            if lane() % 32 < lanes // 32:
                total = parts[begin + lane() % 32]
            for step in unrolled(5):
                if 1 << step < lanes // 32:
                    total = combine(total, shuffle(total, lane() ^ (1 << step), 32))
        if own == 0 and row < x.shape[0]:
            out[row] = epilogue(total)

    return row_reduction
