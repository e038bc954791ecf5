"""``product``: matrices times matrices, by tiles in shared memory and in registers.

A group computes a tile of ``tile_m`` × ``tile_n`` results, an item a tile of ``rows`` × ``columns`` of them in registers, in
squares of 4: its k-th four rows are 4 · (tile_m / rows) below the four before, so that the items of a subgroup read
neighbouring elements of shared memory. Tiles of ``tile_k`` steps of both operands lie in shared memory twice: while one pair is
multiplied, each item reads its part of the next from global memory into registers, and stores it to the other pair, behind one
barrier for each tile. The left operand is stored transposed, with 4 elements between its columns, so that stores do not meet in
one bank.

Each result is a chain of fused multiply-adds in the order of the steps, whatever the sizes of the tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.intrinsics import barrier, fma, group, lane, registers, shared, unrolled
from firebrick.compiler.templates.epilogues import same
from firebrick.compiler.templates.template import Problem, Template, constant, operand, result, template
from firebrick.core.dtypes import DType

PADDING = 4
TYPES = {
    "group_size": constant(int), "tile_m": constant(int), "tile_n": constant(int), "tile_k": constant(int),
    "rows": constant(int), "columns": constant(int), "vector": constant(int), "of": constant(DType),
}  # fmt: skip
"""The constants of tiled products."""


def whole_tiles(constants: Mapping[str, Any]) -> bool:
    """Whether the sizes of tiles fit each other."""
    c = constants
    size, vector = c["group_size"], c["vector"]
    parts = [c["tile_m"] * c["tile_k"], c["tile_n"] * c["tile_k"]]
    return bool(
        c["rows"] % 4 == c["columns"] % 4 == c["tile_m"] % c["rows"] == c["tile_n"] % c["columns"] == 0
        and size == c["tile_m"] // c["rows"] * (c["tile_n"] // c["columns"])
        and vector in (1, 2, 4)
        and c["tile_k"] % vector == c["tile_n"] % vector == 0
        and all(n % (vector * size) == 0 for n in parts)
    )


def valid_for(problem: Problem, constants: Mapping[str, Any]) -> bool:
    """Any sizes, of which those of the operands' last axes are in vectors; aligned addresses for vectors."""
    aligned = problem.alignment % min(16, constants["vector"] * constants["of"].itemsize) == 0
    return aligned and whole_tiles(constants)


@HelperFunction
def multiply_tiles(total: Any, left: Any, right: Any, now: Any, at_m: Any, at_n: Any, sizes: Any) -> None:
    """Add the products of a pair of tiles.

    Args:
        total: Registers [rows, columns]; changed.
        left: Shared [2, tile_k, tile_m + PADDING].
        right: Shared [2, tile_k, tile_n + PADDING].
        now: Which pair.
        at_m: The item's place among those that have different rows.
        at_n: The item's place among those that have different columns.
        sizes: ``tile_m``, ``tile_n``, ``tile_k``, ``rows``, ``columns``, ``of``.
    """
    tile_m, tile_n, tile_k, rows, columns, of = sizes
    a = registers(of(0), rows)
    b = registers(of(0), columns)
    for k in unrolled(tile_k):
        for i in unrolled(rows):
            a[i] = left[now, k, i // 4 * (4 * tile_m // rows) + at_m * 4 + i % 4]
        for j in unrolled(columns):
            b[j] = right[now, k, j // 4 * (4 * tile_n // columns) + at_n * 4 + j % 4]
        for i in unrolled(rows):
            for j in unrolled(columns):
                total[i, j] = fma(a[i], b[j], total[i, j])


def product(left: HelperFunction = same, right: HelperFunction = same, epilogue: HelperFunction = same) -> Template:
    """The template of a product.

    Args:
        left: What each element of the left operand is replaced by.
        right: What each element of the right operand is replaced by.
        epilogue: What each result is replaced by.

    Returns:
        Kernel of ``x`` [batch, m, k / vector, vector] and ``y`` [batch, k, n / vector, vector] → ``out`` [batch, m, n / vector,
        vector].
    """

    @template(
        {
            "x": operand(None, "batch, m, k_vectors, vector"), "y": operand(None, "batch, k, n_vectors, vector"),
            "out": result("x", "batch, m, n_vectors, vector"), **TYPES,
        },
        "batch, (m + tile_m - 1) // tile_m, (n_vectors * vector + tile_n - 1) // tile_n", "group_size", valid_for,
    )  # fmt: skip
    def product(
        x: Any, y: Any, out: Any, group_size: int, tile_m: int, tile_n: int, tile_k: int, rows: int, columns: int, vector: int,
        of: Any,
    ) -> None:  # fmt: skip
        batch, block_m, block_n = group()
        own = lane()
        at_m = own // (tile_n // columns)
        at_n = own % (tile_n // columns)
        m, k_vectors, n_vectors = x.shape[1], x.shape[2], y.shape[2]
        depth = y.shape[1]
        sizes = (tile_m, tile_n, tile_k, rows, columns, of)
        # an item reads `parts` vectors of each operand for a tile
        parts_x = tile_m * tile_k // (vector * group_size)
        parts_y = tile_n * tile_k // (vector * group_size)
        tile_x = shared(of, (2, tile_k, tile_m + PADDING))
        tile_y = shared(of, (2, tile_k, tile_n + PADDING))
        next_x = registers(of(0), (parts_x, vector))
        next_y = registers(of(0), (parts_y, vector))
        total = registers(of(0), (rows, columns))
        tiles = (depth + tile_k - 1) // tile_k
        for t in range(tiles + 1):
            if t < tiles:
                for p in unrolled(parts_x):
                    chunk = own + p * group_size
                    row = block_m * tile_m + chunk // (tile_k // vector)
                    step = t * (tile_k // vector) + chunk % (tile_k // vector)
                    inside = row < m and step < k_vectors
                    for v in unrolled(vector):
                        next_x[p, v] = of(0)
                    if inside:
                        for v in unrolled(vector):
                            next_x[p, v] = left(of(x[batch, row, step, v]))
                for p in unrolled(parts_y):
                    chunk = own + p * group_size
                    step = t * tile_k + chunk // (tile_n // vector)
                    column = block_n * (tile_n // vector) + chunk % (tile_n // vector)
                    inside = step < depth and column < n_vectors
                    for v in unrolled(vector):
                        next_y[p, v] = of(0)
                    if inside:
                        for v in unrolled(vector):
                            next_y[p, v] = right(of(y[batch, step, column, v]))
            if t > 0:
                multiply_tiles(total, tile_x, tile_y, (t + 1) % 2, at_m, at_n, sizes)
            if t < tiles:
                for p in unrolled(parts_x):
                    chunk = own + p * group_size
                    for v in unrolled(vector):
                        tile_x[t % 2, chunk % (tile_k // vector) * vector + v, chunk // (tile_k // vector)] = next_x[p, v]
                for p in unrolled(parts_y):
                    chunk = own + p * group_size
                    for v in unrolled(vector):
                        tile_y[t % 2, chunk // (tile_n // vector), chunk % (tile_n // vector) * vector + v] = next_y[p, v]
            barrier()
        for i in unrolled(rows):
            row = block_m * tile_m + i // 4 * (4 * tile_m // rows) + at_m * 4 + i % 4
            if row < m:
                for j in unrolled(columns // vector):
                    first = j * vector // 4 * (4 * tile_n // columns) + j * vector % 4
                    column = block_n * (tile_n // vector) + first // vector + at_n * (4 // vector)
                    if column < n_vectors:
                        for v in unrolled(vector):
                            out[batch, row, column, v] = epilogue(total[i, j * vector + v])

    return product
