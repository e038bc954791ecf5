"""``product``: matrices times matrices, by ``tiles``."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.intrinsics import group, lane, registers, shared, unrolled
from firebrick.compiler.templates.epilogues import ElementwiseOfOperands, by_index, same
from firebrick.compiler.templates.template import Template, TemplateSizes, constant, operand, result, template
from firebrick.compiler.templates.tiles import PADDING, TYPES, no_notes, tiled, whole_tiles
from firebrick.core.dtypes import DType


def valid_for(section: int, launch: TemplateSizes) -> bool:
    """Any sizes, of which those of the operands' last axes are in vectors; sections of whole tiles."""
    return whole_tiles(launch.sizes, launch.sizes["vector"]) and section % launch.sizes["tile_k"] == 0


@lru_cache(maxsize=64)
def product(
    left: ElementwiseOfOperands = same, right: ElementwiseOfOperands = same, epilogue: ElementwiseOfOperands = same,
    section: int = 0, left_transposed: bool = False, right_transposed: bool = False, stored: DType | None = None,
) -> Template:  # fmt: skip
    """The template of a product.

    Args:
        left: What each element of the left operand is replaced by; its axes are batch, m, k_vectors, vector.
        right: What each element of the right operand is replaced by; its axes are batch, k, n_vectors, vector.
        epilogue: What each result is replaced by; its axes are batch, m, n_vectors, vector.
        section: The number of steps whose products are summed one after the other where sums and products are rounded apart;
            0 for chains of fused multiply-adds.
        left_transposed: Whether the left operand is [batch, k, m_vectors, vector].
        right_transposed: Whether the right operand is [batch, n_vectors, vector, k_vectors, vector].
        stored: The dtype of tiles in shared memory, which holds all elements of both operands; by default the one of
            computations.

    Returns:
        Kernel of ``x`` [batch, m, k / vector, vector] and ``y`` [batch, k, n / vector, vector] → ``out`` [batch, m, n / vector,
        vector]. Operands of the functions are in front of ``out``.
    """
    narrow = stored is not None
    k = "k" if left_transposed and not right_transposed else "k_vectors * vector"
    m = "m_vectors * vector" if left_transposed else "m"
    left_axes = {"batch": "batch", "m": m, "k_vectors": "k_vectors"}
    right_axes = {"batch": "batch", "k": k, "n_vectors": "n_vectors"}
    if left_transposed:
        left_axes = {"batch": "batch", "k": k, "m_vectors": "m_vectors"}
    if right_transposed:
        right_axes = {"batch": "batch", "n_vectors": "n_vectors", "of_n": "vector", "k_vectors": "k_vectors"}
    of_x, more_x = by_index(left, left_axes | {"vector": "vector"})
    of_y, more_y = by_index(right, right_axes | {"vector": "vector"})
    of_out, more_out = by_index(epilogue, {"batch": "batch", "m": m, "n_vectors": "n_vectors", "vector": "vector"})

    @HelperFunction
    def read_left(arrays: Any, notes: Any, held: Any, part: Any, row: Any, step: Any) -> None:
        x, more, batch, vector, of = arrays
        for v in unrolled(vector):
            held[part, v] = of(0)
        if left_transposed:
            if row < x.shape[2] and step < x.shape[1]:
                for v in unrolled(vector):
                    held[part, v] = of_x(of(x[batch, step, row, v]), more, (batch, step, row, v))
        elif row < x.shape[1] and step < x.shape[2]:
            for v in unrolled(vector):
                held[part, v] = of_x(of(x[batch, row, step, v]), more, (batch, row, step, v))

    @HelperFunction
    def read_right(arrays: Any, notes: Any, held: Any, part: Any, column: Any, step: Any) -> None:
        y, more, batch, vector, of = arrays
        for v in unrolled(vector):
            held[part, v] = of(0)
        if right_transposed:
            if column < y.shape[1] * vector and step < y.shape[3]:
                for v in unrolled(vector):
                    at = (batch, column // vector, column % vector, step, v)
                    held[part, v] = of_y(of(y[batch, column // vector, column % vector, step, v]), more, at)
        elif step < y.shape[1] and column < y.shape[2]:
            for v in unrolled(vector):
                held[part, v] = of_y(of(y[batch, step, column, v]), more, (batch, step, column, v))

    @template(
        {
            "x": operand(None, ", ".join([*left_axes.values(), "vector"])),
            "y": operand(None, ", ".join([*right_axes.values(), "vector"])),
            "left_operands": more_x, "right_operands": more_y, "operands": more_out,
            "out": result("x", f"batch, {m}, n_vectors, vector"), **TYPES, "vector": constant(int),
        },
        f"batch, ({m} + tile_m - 1) // tile_m, (n_vectors * vector + tile_n - 1) // tile_n", "group_size",
        partial(valid_for, section), floating=True,
    )  # fmt: skip
    def product(
        x: Any, y: Any, left_operands: Any, right_operands: Any, operands: Any, out: Any, group_size: int, tile_m: int,
        tile_n: int, tile_k: int, rows: int, columns: int, of: Any, vector: int,
    ) -> None:  # fmt: skip
        batch, block_m, block_n = group()
        tile_x = shared(stored if narrow else of, 2 * tile_k * (tile_m + PADDING))
        tile_y = shared(stored if narrow else of, 2 * tile_k * (tile_n + PADDING))
        total = registers(of(0), (rows, columns))
        held = registers(of(0), vector)
        tiled(
            ((x, left_operands, batch, vector, of), no_notes, read_left, not left_transposed, vector),
            ((y, right_operands, batch, vector, of), no_notes, read_right, right_transposed, vector),
            total, tile_x, tile_y, block_m * tile_m, block_n * tile_n, 0,
            y.shape[3] * vector if right_transposed else y.shape[1],
            (group_size, tile_m, tile_n, tile_k, rows, columns, of, section),
        )  # fmt: skip
        at_m = lane() // (tile_n // columns)
        at_n = lane() % (tile_n // columns)
        for i in unrolled(rows):
            row = block_m * tile_m + i // 4 * (4 * tile_m // rows) + at_m * 4 + i % 4
            if row < out.shape[1]:
                for j in unrolled(columns // vector):
                    first = j * vector // 4 * (4 * tile_n // columns) + j * vector % 4
                    column = block_n * (tile_n // vector) + first // vector + at_n * (4 // vector)
                    if column < out.shape[2]:
                        # all operands are read first: LLVM does not merge stores with reads between them
                        for v in unrolled(vector):
                            held[v] = of_out(total[i, j * vector + v], operands, (batch, row, column, v))
                        for v in unrolled(vector):
                            out[batch, row, column, v] = held[v]

    return product
