"""``attention``: softmax(scale · query keyᵀ) value with a mask, without the scores in memory. Source: FlashAttention.

A group has ``tile_m`` queries, and takes ``tile_n`` keys at a time. 16 items share a row of scores: each has ``tile_n`` / 16 of
them, and as many rows as fit, in registers. The largest score and the sum of a row are of the keys so far; what was summed
before is scaled when a larger score comes. The weights go through shared memory, in the place of the keys, to be multiplied
with the values. Feature ``k`` of all queries and keys of a tile lie next to each other in shared memory, so that products read
neighbours; a feature beyond those of the arrays is 0.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, log
from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.intrinsics import barrier, fma, group, lane, registers, shared, shuffle, unrolled
from firebrick.compiler.templates.template import Template, TemplateSizes, constant, operand, result, template
from firebrick.core.dtypes import DType, bool_

ACROSS = 16
"""Items that share a row."""
_STEPS = 8
"""Steps of a product that are written out."""
TYPES = {
    "group_size": constant(int), "tile_m": constant(int), "tile_n": constant(int), "features": constant(int),
    "vector": constant(int), "causal": constant(bool), "of": constant(DType),
}  # fmt: skip
"""The constants of attention; ``features`` is that of the tiles, at least that of the arrays."""


def masked(launch: TemplateSizes) -> bool:
    """Whether there is a mask for all or one of each axis."""
    c = launch.sizes
    return all(c[f"mask_{axis}"] in (1, c[axis]) for axis in ("batch", "queries", "keys"))


def valid_for(launch: TemplateSizes) -> bool:
    """Any numbers of queries and keys; no more features than those of the tiles; a mask for all or one of each axis."""
    c = launch.sizes
    size, vector, features = c["group_size"], c["vector"], c["features"]
    tiles = (c["tile_m"], c["tile_n"])
    return (
        c["d_vectors"] * vector <= features >= c["e_vectors"] * vector
        and masked(launch)
        and size % ACROSS == 0
        and c["tile_m"] * ACROSS % size == 0
        and all(n % ACROSS == 0 for n in (*tiles, features))
        # rows, columns and features of an item are up to 4, or fours (``place``), which vectors do not cross
        and all(n <= 4 or n % 4 == 0 for n in (c["tile_m"] * ACROSS // size, c["tile_n"] // ACROSS, features // ACROSS))
        and 4 % vector == 0
        and features % (ACROSS * vector) == 0
        and all(n * features % (vector * size) == 0 for n in tiles)
    )


@HelperFunction
def load_lines(array: Any, batch: Any, first: Any, tile: Any, lines: Any, turned: Any, sizes: Any) -> None:
    """Copy lines from ``first`` on to shared memory: [features, lines] if ``turned``, else [lines, features]; 0 beyond them."""
    group_size, features, vector, of = sizes
    held = registers(of(0), vector)
    for p in unrolled(lines * features // (vector * group_size)):
        chunk = lane() + p * group_size
        # turned, neighbouring items have neighbouring lines, whose elements lie in different banks
        line = chunk % lines if turned else chunk // (features // vector)
        part = chunk // lines if turned else chunk % (features // vector)
        for v in unrolled(vector):
            held[v] = of(0)
        if first + line < array.shape[1] and part < array.shape[2]:
            for v in unrolled(vector):
                held[v] = of(array[batch, first + line, part, v])
        for v in unrolled(vector):
            tile[(part * vector + v) * lines + line if turned else line * features + part * vector + v] = held[v]


@HelperFunction
def multiply(total: Any, left: Any, right: Any, steps: Any, shape: Any, sizes: Any) -> None:
    """Add products of ``left`` [steps, lines] and ``right`` [steps, lines] to registers.

    Args:
        total: Registers [rows, columns]; changed.
        left: Shared.
        right: Shared.
        steps: A multiple of 8.
        shape: Lines of ``left`` and of ``right``.
        sizes: ``group_size`` and ``of``.
    """
    lines_m, lines_n = shape
    group_size, of = sizes
    down = group_size // ACROSS
    rows, columns = lines_m // down, lines_n // ACROSS
    high, wide = min(4, rows), min(4, columns)
    a = registers(of(0), rows)
    b = registers(of(0), columns)
    for s in range(steps // _STEPS):
        from_m = s * (_STEPS * lines_m) + lane() // ACROSS * high
        from_n = s * (_STEPS * lines_n) + lane() % ACROSS * wide
        for k in unrolled(_STEPS):
            for i in unrolled(rows):
                a[i] = left[from_m + (k * lines_m + i // high * (high * down) + i % high)]
            for j in unrolled(columns):
                b[j] = right[from_n + (k * lines_n + j // wide * (wide * ACROSS) + j % wide)]
            for i in unrolled(rows):
                for j in unrolled(columns):
                    total[i, j] = fma(a[i], b[j], total[i, j])


@HelperFunction
def place(number: Any, count: Any, across: Any, at: Any) -> Any:
    """Which line of a tile element ``number`` of an item's ``count`` is, for the item that is ``at`` of ``across``."""
    width = min(4, count)
    return number // width * (width * across) + at * width + number % width


@HelperFunction
def store_scores(tile: Any, values: Any, shape: Any, group_size: Any) -> None:
    """Store registers [rows, columns] to shared memory [columns of all items, rows of all items]."""
    lines_m, lines_n = shape
    down = group_size // ACROSS
    for j in unrolled(lines_n // ACROSS):
        for i in unrolled(lines_m // down):
            row = place(i, lines_m // down, down, lane() // ACROSS)
            tile[place(j, lines_n // ACROSS, ACROSS, lane() % ACROSS) * lines_m + row] = values[i, j]


@HelperFunction
def seen(mask: Any, batch: Any, query: Any, key: Any, keys: Any, causal: Any) -> Any:
    """Whether a query sees a key, both of which may be beyond the arrays; the axes of a mask may have size 1."""
    inside = key < keys and (key <= query or not causal)
    found = False
    if inside:
        found = mask[
            min(batch, mask.shape[0] - 1), min(query, mask.shape[1] - 1), min(key, mask.shape[2] - 1)
        ]  # fmt: skip
    return found


@lru_cache(maxsize=64)
def attention() -> Template:
    """The template of attention.

    Returns:
        Kernel of ``query`` [batch, queries, d / vector, vector], ``key`` [batch, keys, d / vector, vector], ``value`` [batch,
        keys, e / vector, vector], ``mask`` (bool, [batch or 1, queries or 1, keys or 1]) and the number ``scale`` → ``out``
        [batch, queries, e / vector, vector], and ``logarithms`` [batch, queries] of the sums of exponentials, for the gradient.
    """

    @template(
        {
            "query": operand(None, "batch, queries, d_vectors, vector"),
            "key": operand("query", "batch, keys, d_vectors, vector"),
            "value": operand("query", "batch, keys, e_vectors, vector"),
            "mask": operand(bool_, "mask_batch, mask_queries, mask_keys"), "scale": float,
            "out": result("query", "batch, queries, e_vectors, vector"), "logarithms": result("query", "batch, queries"),
            **TYPES,
        },
        "batch, (queries + tile_m - 1) // tile_m", "group_size", valid_for, floating=True,
    )  # fmt: skip
    def attention(
        query: Any, key: Any, value: Any, mask: Any, scale: Any, out: Any, logarithms: Any, group_size: int, tile_m: int,
        tile_n: int, features: int, vector: int, causal: bool, of: Any,
    ) -> None:  # fmt: skip
        batch, block = group()
        queries = shared(of, features * tile_m)
        keys = shared(of, max(features, tile_m) * tile_n)
        values = shared(of, tile_n * features)
        sizes = (group_size, features, vector, of)
        down = group_size // ACROSS
        at_m, at_n = lane() // ACROSS, lane() % ACROSS
        rows, columns, parts = tile_m // down, tile_n // ACROSS, features // ACROSS
        first = block * tile_m
        total = registers(of(0), (rows, parts))
        largest = registers(of(-inf), rows)
        sums = registers(of(0), rows)
        load_lines(query, batch, first, queries, tile_m, True, sizes)
        end = key.shape[1]
        if causal:  # no query of the tile sees a key behind its last
            end = min(end, first + tile_m)
        for t in range((end + tile_n - 1) // tile_n):
            load_lines(key, batch, t * tile_n, keys, tile_n, True, sizes)
            load_lines(value, batch, t * tile_n, values, tile_n, False, sizes)
            barrier()
            scores = registers(of(0), (rows, columns))
            multiply(scores, queries, keys, features, (tile_m, tile_n), (group_size, of))
            for i in unrolled(rows):
                row = first + place(i, rows, down, at_m)
                top = largest[i]
                for j in unrolled(columns):
                    column = t * tile_n + place(j, columns, ACROSS, at_n)
                    is_seen = seen(mask, batch, row, column, key.shape[1], causal)
                    scores[i, j] = scores[i, j] * scale if is_seen else of(-inf)
                    top = max(top, scores[i, j])
                for step in unrolled(4):
                    top = max(top, shuffle(top, at_n ^ (1 << step), ACROSS))
                # -inf - (-inf) is NaN: rows of which nothing is seen yet
                base = of(0) if top == -inf else top
                shrink = exp(largest[i] - base)
                more = of(0)
                for j in unrolled(columns):
                    scores[i, j] = exp(scores[i, j] - base)
                    more = more + scores[i, j]
                for step in unrolled(4):
                    more = more + shuffle(more, at_n ^ (1 << step), ACROSS)
                largest[i] = top
                sums[i] = fma(sums[i], shrink, more)
                for j in unrolled(parts):
                    total[i, j] = total[i, j] * shrink
            barrier()  # the keys were read
            store_scores(keys, scores, (tile_m, tile_n), group_size)
            barrier()
            multiply(total, keys, values, tile_n, (tile_m, features), (group_size, of))
            barrier()  # weights and values were read
        for i in unrolled(rows):
            row = first + place(i, rows, down, at_m)
            if row < query.shape[1]:
                weight = of(0) if sums[i] == 0.0 else of(1) / sums[i]
                if largest[i] == -inf:  # all that is seen, if anything is, has a score of -inf: NaN
                    for k in range(key.shape[1]):
                        weight = of(-inf) - of(-inf) if seen(mask, batch, row, k, key.shape[1], causal) else weight
                for j in unrolled(parts // vector):
                    part = place(j * vector, parts, ACROSS, 0) // vector + at_n * (min(4, parts) // vector)
                    if part < value.shape[2]:
                        for v in unrolled(vector):
                            out[batch, row, part, v] = total[i, j * vector + v] * weight
                if at_n == 0:
                    base = of(0) if largest[i] == -inf else largest[i]
                    logarithms[batch, row] = base + log(sums[i])

    return attention
