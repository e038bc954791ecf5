"""``segmented_scatter``: rows of a matrix combined into the rows of another one that they belong to.

The rows are given in the order of their destinations, as a permutation, and where those of each destination begin in it (a
sort and a search). So each result has one group, which reads its rows in that order: no atomic operation, and a result that
depends on sizes only. A group has ``across`` columns of a destination; the other items share its rows, and combine their parts
in a tree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from firebrick.compiler.kernel.language.intrinsics import barrier, group, lane, shared, unrolled
from firebrick.compiler.templates.epilogues import Elementwise, same
from firebrick.compiler.templates.template import Template, TemplateSizes, constant, holds, operand, result, template
from firebrick.core.dtypes import DType, int64


def valid_for(launch: TemplateSizes) -> bool:
    """Any sizes; powers of two. What ``order`` and ``starts`` contain, no template can test."""
    size, across = launch.sizes["group_size"], launch.sizes["across"]
    return size & (size - 1) == 0 == across & (across - 1) and across <= size


@lru_cache(maxsize=64)
def segmented_scatter(combine: Elementwise, first: float, prologue: Elementwise = same) -> Template:
    """The template of a scatter.

    Args:
        combine: Operation of two numbers, associative up to rounding.
        first: Its neutral element.
        prologue: What each element that is scattered is replaced by.

    Returns:
        Kernel of ``target`` [rows, columns], ``values`` [items, columns], ``order`` [items] (int64) and ``starts`` [rows + 1]
        (int64) → ``out`` like ``target``: each of its rows combined with values[order[starts[row] : starts[row + 1]]].
    """

    @template(
        {
            "target": operand(None, "rows, columns"), "values": operand("target", "items, columns"),
            "order": operand(int64, "items"), "starts": operand(int64, "rows + 1"), "out": result("target", "rows, columns"),
            "group_size": constant(int), "across": constant(int), "of": constant(DType),
        },
        "rows, (columns + across - 1) // across", "group_size",
        lambda launch: valid_for(launch) and holds(first, launch),
    )  # fmt: skip
    def segmented_scatter(
        target: Any, values: Any, order: Any, starts: Any, out: Any, group_size: int, across: int, of: Any
    ) -> None:  # fmt: skip
        row, block = group()
        column = block * across + lane() % across
        parts = shared(of, group_size)
        total = of(first)
        if column < target.shape[1]:
            for i in range(starts[row] + lane() // across, starts[row + 1], group_size // across):
                total = combine(total, prologue(of(values[order[i], column])))
        parts[lane()] = total
        for step in unrolled(10):
            half = group_size >> (step + 1)
            if half >= across:
                barrier()
                if lane() < half:
                    parts[lane()] = combine(parts[lane()], parts[lane() + half])
        if lane() < across and column < target.shape[1]:
            out[row, column] = combine(of(target[row, column]), parts[lane()])

    return segmented_scatter
