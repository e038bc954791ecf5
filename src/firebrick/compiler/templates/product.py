"""``product``: matrices times matrices, by ``tiles``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.intrinsics import group, lane, registers, shared, unrolled
from firebrick.compiler.templates.epilogues import Elementwise, same
from firebrick.compiler.templates.template import Template, TemplateProblem, constant, operand, result, template
from firebrick.compiler.templates.tiles import PADDING, TYPES, aligned, no_notes, tiled, whole_tiles


def valid_for(problem: TemplateProblem, constants: Mapping[str, Any]) -> bool:
    """Any sizes, of which those of the operands' last axes are in vectors; aligned addresses for vectors."""
    return aligned(problem, constants) and whole_tiles(constants)


@lru_cache(maxsize=64)
def product(left: Elementwise = same, right: Elementwise = same, epilogue: Elementwise = same) -> Template:
    """The template of a product.

    Args:
        left: What each element of the left operand is replaced by.
        right: What each element of the right operand is replaced by.
        epilogue: What each result is replaced by.

    Returns:
        Kernel of ``x`` [batch, m, k / vector, vector] and ``y`` [batch, k, n / vector, vector] → ``out`` [batch, m, n / vector,
        vector].
    """

    @HelperFunction
    def read_left(arrays: Any, notes: Any, held: Any, part: Any, row: Any, step: Any) -> None:
        x, batch, vector, of = arrays
        for v in unrolled(vector):
            held[part, v] = of(0)
        if row < x.shape[1] and step < x.shape[2]:
            for v in unrolled(vector):
                held[part, v] = left(of(x[batch, row, step, v]))

    @HelperFunction
    def read_right(arrays: Any, notes: Any, held: Any, part: Any, column: Any, step: Any) -> None:
        y, batch, vector, of = arrays
        for v in unrolled(vector):
            held[part, v] = of(0)
        if step < y.shape[1] and column < y.shape[2]:
            for v in unrolled(vector):
                held[part, v] = right(of(y[batch, step, column, v]))

    @template(
        {
            "x": operand(None, "batch, m, k_vectors, vector"), "y": operand(None, "batch, k, n_vectors, vector"),
            "out": result("x", "batch, m, n_vectors, vector"), **TYPES, "vector": constant(int),
        },
        "batch, (m + tile_m - 1) // tile_m, (n_vectors * vector + tile_n - 1) // tile_n", "group_size", valid_for,
    )  # fmt: skip
    def product(
        x: Any, y: Any, out: Any, group_size: int, tile_m: int, tile_n: int, tile_k: int, rows: int, columns: int, of: Any,
        vector: int,
    ) -> None:  # fmt: skip
        batch, block_m, block_n = group()
        tile_x = shared(of, 2 * tile_k * (tile_m + PADDING))
        tile_y = shared(of, 2 * tile_k * (tile_n + PADDING))
        total = registers(of(0), (rows, columns))
        tiled(
            ((x, batch, vector, of), no_notes, read_left, True, vector),
            ((y, batch, vector, of), no_notes, read_right, False, vector),
            total, tile_x, tile_y, block_m * tile_m, block_n * tile_n, 0, y.shape[1],
            (group_size, tile_m, tile_n, tile_k, rows, columns, of),
        )  # fmt: skip
        at_m = lane() // (tile_n // columns)
        at_n = lane() % (tile_n // columns)
        for i in unrolled(rows):
            row = block_m * tile_m + i // 4 * (4 * tile_m // rows) + at_m * 4 + i % 4
            if row < x.shape[1]:
                for j in unrolled(columns // vector):
                    first = j * vector // 4 * (4 * tile_n // columns) + j * vector % 4
                    column = block_n * (tile_n // vector) + first // vector + at_n * (4 // vector)
                    if column < y.shape[2]:
                        for v in unrolled(vector):
                            out[batch, row, column, v] = epilogue(total[i, j * vector + v])

    return product
