"""Products of two operands by tiles in shared memory and in registers: what the product and the convolutions have in common.

A group computes a tile of ``tile_m`` × ``tile_n`` results, an item a tile of ``rows`` × ``columns`` of them in registers, in
squares of 4: its k-th four rows are 4 · (tile_m / rows) below the four before, so that the items of a subgroup read
neighbouring elements of shared memory. Tiles of ``tile_k`` steps of both operands lie in shared memory twice: while one pair is
multiplied, each item reads its part of the next from global memory into registers, and stores it to the other pair, behind one
barrier for each tile. The lines of a tile are 4 elements apart, so that stores across them do not meet in one bank.

Each result is a chain of fused multiply-adds in the order of the steps, whatever the sizes of the tiles. Where a target does
not fuse them, products and sums are rounded apart, in sections of steps; the sums of sections are added with what each addition
loses (Kahan, "Further remarks on reducing truncation errors", CACM 8, 1965).

An operand is a tuple: its arrays, a function that notes integers about a line (a row of the left operand, a column of the right
one), a function that reads a vector, whether vectors lie along the steps rather than across lines, and their size. So the two
functions are what distinguishes a convolution from a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.intrinsics import barrier, fma, lane, registers, unrolled
from firebrick.compiler.templates.template import constant
from firebrick.core.dtypes import DType

PADDING = 4
NOTES = 3
"""Integers that an operand may note about a line."""
TYPES = {
    "group_size": constant(int), "tile_m": constant(int), "tile_n": constant(int), "tile_k": constant(int),
    "rows": constant(int), "columns": constant(int), "of": constant(DType),
}  # fmt: skip
"""The constants of tiled products."""


def whole_tiles(c: Mapping[str, int], vector: int) -> bool:
    """Whether the sizes of tiles fit each other, and vectors of elements in them."""
    size = c["group_size"]
    parts = [c["tile_m"] * c["tile_k"], c["tile_n"] * c["tile_k"]]
    return (
        c["rows"] % 4 == c["columns"] % 4 == c["tile_m"] % c["rows"] == c["tile_n"] % c["columns"] == 0
        and size == c["tile_m"] // c["rows"] * (c["tile_n"] // c["columns"])
        and vector in (1, 2, 4)
        and c["tile_k"] % vector == c["tile_n"] % vector == 0
        and all(n % (vector * size) == 0 for n in parts)
    )


@HelperFunction
def no_notes(arrays: Any, notes: Any, part: Any, line: Any) -> None:
    """Note nothing."""


@HelperFunction
def read_tile(operand: Any, notes: Any, held: Any, first: Any, step: Any, lines: Any, tile_k: Any, group_size: Any) -> None:
    """Read this item's part of a tile into registers ``held`` [parts, vector]."""
    arrays, read, along, vector = operand[0], operand[2], operand[3], operand[4]
    across = tile_k // vector if along else lines // vector
    for p in unrolled(lines * tile_k // (vector * group_size)):
        chunk = lane() + p * group_size
        if along:
            read(arrays, notes, held, p, first + chunk // across, step // vector + chunk % across)
        else:
            read(arrays, notes, held, p, first // vector + chunk % across, step + chunk // across)


@HelperFunction
def note_lines(operand: Any, notes: Any, first: Any, lines: Any, tile_k: Any, group_size: Any) -> None:
    """Note what is known of the lines that this item reads."""
    arrays, note, along, vector = operand[0], operand[1], operand[3], operand[4]
    across = tile_k // vector if along else lines // vector
    for p in unrolled(lines * tile_k // (vector * group_size)):
        chunk = lane() + p * group_size
        note(arrays, notes, p, first + chunk // across if along else first // vector + chunk % across)


@HelperFunction
def store_tile(operand: Any, tile: Any, now: Any, held: Any, lines: Any, tile_k: Any, group_size: Any) -> None:
    """Store this item's part of a tile to shared memory ``tile`` [2 · tile_k · (lines + PADDING)]."""
    along, vector = operand[3], operand[4]
    across = tile_k // vector if along else lines // vector
    for p in unrolled(lines * tile_k // (vector * group_size)):
        chunk = lane() + p * group_size
        for v in unrolled(vector):
            if along:
                tile[(now * tile_k + chunk % across * vector + v) * (lines + PADDING) + chunk // across] = held[p, v]
            else:
                tile[(now * tile_k + chunk // across) * (lines + PADDING) + chunk % across * vector + v] = held[p, v]


@HelperFunction
def multiply_tiles(total: Any, left: Any, right: Any, now: Any, sizes: Any) -> None:
    """Add the products of a pair of tiles to registers ``total`` [rows, columns]."""
    tile_m, tile_n, tile_k, rows, columns, of = sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]
    section = sizes[7]
    # one sum for all elements, to which constants are added: LLVM must see that these are neighbours
    from_x = now * (tile_k * (tile_m + PADDING)) + lane() // (tile_n // columns) * 4
    from_y = now * (tile_k * (tile_n + PADDING)) + lane() % (tile_n // columns) * 4
    a = registers(of(0), rows)
    b = registers(of(0), columns)
    for k in unrolled(tile_k):
        for i in unrolled(rows):
            a[i] = left[from_x + (k * (tile_m + PADDING) + i // 4 * (4 * tile_m // rows) + i % 4)]
        for j in unrolled(columns):
            b[j] = right[from_y + (k * (tile_n + PADDING) + j // 4 * (4 * tile_n // columns) + j % 4)]
        for i in unrolled(rows):
            for j in unrolled(columns):
                if section == 0:
                    total[i, j] = fma(a[i], b[j], total[i, j])
                else:
                    total[i, j] = total[i, j] + a[i] * b[j]


@HelperFunction
def close_section(total: Any, sums: Any, lost: Any, sizes: Any) -> None:
    """Add the sums of a section to those before, and begin the next section."""
    of = sizes[6]
    for i in unrolled(sizes[4]):
        for j in unrolled(sizes[5]):
            x = total[i, j] + lost[i, j]
            s = sums[i, j] + x
            back = s - sums[i, j]
            error = (sums[i, j] - (s - back)) + (x - back)
            lost[i, j] = error if abs(error) < inf else of(0)
            sums[i, j] = s
            total[i, j] = of(0)


@HelperFunction
def tiled(
    left: Any, right: Any, total: Any, tile_x: Any, tile_y: Any, first_m: Any, first_n: Any, begin: Any, end: Any, sizes: Any
) -> None:  # fmt: skip
    """Add the products of steps ``begin`` to ``end``, of which the first is a multiple of ``tile_k``.

    Args:
        left: Operand.
        right: Operand.
        total: Registers [rows, columns]; changed.
        tile_x: Shared [2 · tile_k · (tile_m + PADDING)].
        tile_y: Shared [2 · tile_k · (tile_n + PADDING)].
        first_m: First row of the group's tile.
        first_n: First column of the group's tile.
        begin: First step.
        end: The step behind the last.
        sizes: ``group_size``, ``tile_m``, ``tile_n``, ``tile_k``, ``rows``, ``columns``, ``of``, and the number of steps of a
            section, a multiple of ``tile_k``; 0 for chains of fused multiply-adds.
    """
    section, rows, columns = sizes[7], sizes[4], sizes[5]
    group_size, tile_m, tile_n, tile_k, of = sizes[0], sizes[1], sizes[2], sizes[3], sizes[6]
    parts_x = tile_m * tile_k // (left[4] * group_size)
    parts_y = tile_n * tile_k // (right[4] * group_size)
    held_x = registers(of(0), (parts_x, left[4]))
    held_y = registers(of(0), (parts_y, right[4]))
    notes_x = registers(0, (parts_x, NOTES))
    notes_y = registers(0, (parts_y, NOTES))
    note_lines(left, notes_x, first_m, tile_m, tile_k, group_size)
    note_lines(right, notes_y, first_n, tile_n, tile_k, group_size)
    sums = registers(of(0), (rows if section > 0 else 1, columns if section > 0 else 1))
    lost = registers(of(0), (rows if section > 0 else 1, columns if section > 0 else 1))
    tiles = (end - begin + tile_k - 1) // tile_k
    for t in range(tiles + 1):
        if t < tiles:
            read_tile(left, notes_x, held_x, first_m, begin + t * tile_k, tile_m, tile_k, group_size)
            read_tile(right, notes_y, held_y, first_n, begin + t * tile_k, tile_n, tile_k, group_size)
        if t > 0:
            multiply_tiles(total, tile_x, tile_y, (t + 1) % 2, sizes)
            if section > 0 and (t % max(section // tile_k, 1) == 0 or t == tiles):
                close_section(total, sums, lost, sizes)
        if t < tiles:
            store_tile(left, tile_x, t % 2, held_x, tile_m, tile_k, group_size)
            store_tile(right, tile_y, t % 2, held_y, tile_n, tile_k, group_size)
        barrier()
    if section > 0:
        for i in unrolled(rows):
            for j in unrolled(columns):
                total[i, j] = sums[i, j]


@HelperFunction
def store_results(total: Any, first_m: Any, first_n: Any, write: Any, arrays: Any, sizes: Any) -> None:
    """Call ``write(arrays, row, column, value)`` for each result of the item."""
    tile_m, tile_n, rows, columns = sizes[1], sizes[2], sizes[4], sizes[5]
    at_m = lane() // (tile_n // columns)
    at_n = lane() % (tile_n // columns)
    for i in unrolled(rows):
        row = first_m + i // 4 * (4 * tile_m // rows) + at_m * 4 + i % 4
        for j in unrolled(columns):
            column = first_n + j // 4 * (4 * tile_n // columns) + at_n * 4 + j % 4
            write(arrays, row, column, total[i, j])
