"""The gradients of attention by query, key and value, from the logarithms that ``attention`` gives: no scores in memory.

With the weights w = exp(score - logarithm), the gradient of a score is w · (cotangent · value - delta), where delta is the sum
of cotangent · result of a query (``deltas``). ``query_gradient`` has a tile of queries a group and takes keys in turn;
``key_gradients`` has a tile of keys a group and takes queries in turn, so no sum is shared by groups. Both compute the weights
again.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp
from typing import Any

from firebrick.compiler.kernel.language.annotations import ParameterType
from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.intrinsics import barrier, fma, group, lane, registers, shared, shuffle, unrolled
from firebrick.compiler.templates.template import (
    Template,
    TemplateSizes,
    constant,
    operand,
    result,
    template,
    whole_subgroups,
)
from firebrick.compiler.templates.tiled_attention import (
    ACROSS,
    TYPES,
    load_lines,
    masked,
    multiply,
    place,
    seen,
    store_scores,
    valid_for,
)
from firebrick.core.dtypes import DType, bool_

_OPERANDS: dict[str, ParameterType | type] = {
    "query": operand(None, "batch, queries, d_vectors, vector"), "key": operand("query", "batch, keys, d_vectors, vector"),
    "value": operand("query", "batch, keys, e_vectors, vector"),
    "cotangent": operand("query", "batch, queries, e_vectors, vector"), "logarithms": operand("query", "batch, queries"),
    "delta": operand("query", "batch, queries"), "mask": operand(bool_, "mask_batch, mask_queries, mask_keys"), "scale": float,
}  # fmt: skip


def whole_rows(launch: TemplateSizes) -> bool:
    """Any sizes; groups of whole subgroups; a mask for all or one of each axis."""
    return whole_subgroups(launch) and masked(launch)


@lru_cache(maxsize=64)
def deltas() -> Template:
    """The template of the sums of cotangent · result of each query.

    Such a sum is that of weight · (cotangent · value) over the keys that a query sees. The result of a query includes 0 times
    the values that are hidden from it, which is NaN for values that are not finite: then the sum is computed again, from the
    scores.

    Returns:
        Kernel of ``query``, ``key``, ``value``, ``cotangent``, ``result`` like it, ``logarithms``, ``mask`` and ``scale``, as
        of ``attention`` → ``out`` [batch, queries]; 32 items have a row.
    """

    @template(
        {
            **{n: p for n, p in _OPERANDS.items() if n not in ("logarithms", "delta", "mask", "scale")},
            "result": operand("query", "batch, queries, e_vectors, vector"),
            **{n: _OPERANDS[n] for n in ("logarithms", "mask", "scale")}, "out": result("query", "batch, queries"),
            "group_size": constant(int), "vector": constant(int), "causal": constant(bool), "of": constant(DType),
        },
        "batch, (queries + group_size // 32 - 1) // (group_size // 32)", "group_size", whole_rows,
        floating=True,
    )  # fmt: skip
    def deltas(
        query: Any, key: Any, value: Any, cotangent: Any, result: Any, logarithms: Any, mask: Any, scale: Any, out: Any,
        group_size: int, vector: int, causal: bool, of: Any,
    ) -> None:  # fmt: skip
        batch, block = group()
        row = block * (group_size // 32) + lane() // 32
        total = of(0)
        if row < query.shape[1]:
            for j in range(lane() % 32, result.shape[2], 32):
                for v in unrolled(vector):
                    total = fma(of(cotangent[batch, row, j, v]), of(result[batch, row, j, v]), total)
        for step in unrolled(5):
            total = total + shuffle(total, lane() ^ (1 << step), 32)
        again = of(0)
        if row < query.shape[1] and total != total:
            for k in range(lane() % 32, key.shape[1], 32):
                if seen(mask, batch, row, k, key.shape[1], causal):
                    score, slope = of(0), of(0)
                    for j in range(query.shape[2]):
                        for v in unrolled(vector):
                            score = fma(of(query[batch, row, j, v]), of(key[batch, k, j, v]), score)
                    for j in range(value.shape[2]):
                        for v in unrolled(vector):
                            slope = fma(of(cotangent[batch, row, j, v]), of(value[batch, k, j, v]), slope)
                    again = fma(exp(score * scale - logarithms[batch, row]), slope, again)
        for step in unrolled(5):
            again = again + shuffle(again, lane() ^ (1 << step), 32)
        if lane() % 32 == 0 and row < query.shape[1]:
            out[batch, row] = again if total != total else total

    return deltas


@HelperFunction
def store_lines(array: Any, batch: Any, first: Any, total: Any, lines: Any, sizes: Any) -> None:
    """Store registers [rows, parts] to lines from ``first`` on."""
    group_size, features, vector, _ = sizes
    down = group_size // ACROSS
    parts = features // ACROSS
    for i in unrolled(lines // down):
        row = first + place(i, lines // down, down, lane() // ACROSS)
        if row < array.shape[1]:
            for j in unrolled(parts // vector):
                part = place(j * vector, parts, ACROSS, 0) // vector + lane() % ACROSS * (min(4, parts) // vector)
                if part < array.shape[2]:
                    for v in unrolled(vector):
                        array[batch, row, part, v] = total[i, j * vector + v]


@lru_cache(maxsize=64)
def query_gradient() -> Template:
    """The template of the gradient by the query.

    Returns:
        Kernel of ``query``, ``key``, ``value``, ``cotangent``, ``logarithms``, ``delta``, ``mask`` and ``scale``, as of
        ``attention`` → ``out`` like ``query``.
    """

    @template(
        {**_OPERANDS, "out": result("query", "batch, queries, d_vectors, vector"), **TYPES},
        "batch, (queries + tile_m - 1) // tile_m", "group_size", valid_for, floating=True,
    )  # fmt: skip
    def query_gradient(
        query: Any, key: Any, value: Any, cotangent: Any, logarithms: Any, delta: Any, mask: Any, scale: Any, out: Any,
        group_size: int, tile_m: int, tile_n: int, features: int, vector: int, causal: bool, of: Any,
    ) -> None:  # fmt: skip
        batch, block = group()
        queries = shared(of, features * tile_m)
        cotangents = shared(of, features * tile_m)
        keys = shared(of, features * tile_n)
        turned_keys = shared(of, features * tile_n)
        values = shared(of, max(features, tile_m) * tile_n)
        sizes = (group_size, features, vector, of)
        down = group_size // ACROSS
        at_m, at_n = lane() // ACROSS, lane() % ACROSS
        rows, columns = tile_m // down, tile_n // ACROSS
        first = block * tile_m
        total = registers(of(0), (rows, features // ACROSS))
        load_lines(query, batch, first, queries, tile_m, True, sizes)
        load_lines(cotangent, batch, first, cotangents, tile_m, True, sizes)
        end = key.shape[1]
        if causal:
            end = min(end, first + tile_m)
        for t in range((end + tile_n - 1) // tile_n):
            load_lines(key, batch, t * tile_n, turned_keys, tile_n, True, sizes)
            load_lines(key, batch, t * tile_n, keys, tile_n, False, sizes)
            load_lines(value, batch, t * tile_n, values, tile_n, True, sizes)
            barrier()
            scores = registers(of(0), (rows, columns))
            slopes = registers(of(0), (rows, columns))
            multiply(scores, queries, turned_keys, features, (tile_m, tile_n), (group_size, of))
            multiply(slopes, cotangents, values, features, (tile_m, tile_n), (group_size, of))
            for i in unrolled(rows):
                row = first + place(i, rows, down, at_m)
                known = min(row, query.shape[1] - 1)
                base, sum_of_row = logarithms[batch, known], delta[batch, known]
                for j in unrolled(columns):
                    column = t * tile_n + place(j, columns, ACROSS, at_n)
                    weight = exp(scores[i, j] * scale - base)
                    is_seen = seen(mask, batch, row, column, key.shape[1], causal)
                    slopes[i, j] = weight * (slopes[i, j] - sum_of_row) * scale if is_seen else of(0)
            barrier()  # the values were read
            store_scores(values, slopes, (tile_m, tile_n), group_size)
            barrier()
            multiply(total, values, keys, tile_n, (tile_m, features), (group_size, of))
            barrier()  # the keys were read
        store_lines(out, batch, first, total, tile_m, sizes)

    return query_gradient


@lru_cache(maxsize=64)
def key_gradients() -> Template:
    """The template of the gradients by key and value.

    Returns:
        Kernel of ``query``, ``key``, ``value``, ``cotangent``, ``logarithms``, ``delta``, ``mask`` and ``scale``, as of
        ``attention`` → ``key_out`` like ``key`` and ``value_out`` like ``value``. ``tile_m`` counts keys, ``tile_n`` queries.
    """

    @template(
        {
            **_OPERANDS, "key_out": result("query", "batch, keys, d_vectors, vector"),
            "value_out": result("query", "batch, keys, e_vectors, vector"), **TYPES,
        },
        "batch, (keys + tile_m - 1) // tile_m", "group_size", valid_for, floating=True,
    )  # fmt: skip
    def key_gradients(
        query: Any, key: Any, value: Any, cotangent: Any, logarithms: Any, delta: Any, mask: Any, scale: Any, key_out: Any,
        value_out: Any, group_size: int, tile_m: int, tile_n: int, features: int, vector: int, causal: bool, of: Any,
    ) -> None:  # fmt: skip
        batch, block = group()
        keys = shared(of, features * tile_m)
        values = shared(of, features * tile_m)
        queries = shared(of, features * tile_n)
        cotangents = shared(of, features * tile_n)
        turned_queries = shared(of, max(features, tile_m) * tile_n)
        turned_cotangents = shared(of, max(features, tile_m) * tile_n)
        sizes = (group_size, features, vector, of)
        down = group_size // ACROSS
        at_m, at_n = lane() // ACROSS, lane() % ACROSS
        rows, columns = tile_m // down, tile_n // ACROSS
        first = block * tile_m
        by_key = registers(of(0), (rows, features // ACROSS))
        by_value = registers(of(0), (rows, features // ACROSS))
        load_lines(key, batch, first, keys, tile_m, True, sizes)
        load_lines(value, batch, first, values, tile_m, True, sizes)
        begin = 0
        if causal:  # no query in front of the tile's first key sees one of its keys
            begin = first // tile_n
        for t in range(begin, (query.shape[1] + tile_n - 1) // tile_n):
            load_lines(query, batch, t * tile_n, turned_queries, tile_n, True, sizes)
            load_lines(query, batch, t * tile_n, queries, tile_n, False, sizes)
            load_lines(cotangent, batch, t * tile_n, turned_cotangents, tile_n, True, sizes)
            load_lines(cotangent, batch, t * tile_n, cotangents, tile_n, False, sizes)
            barrier()
            scores = registers(of(0), (rows, columns))
            slopes = registers(of(0), (rows, columns))
            multiply(scores, keys, turned_queries, features, (tile_m, tile_n), (group_size, of))
            multiply(slopes, values, turned_cotangents, features, (tile_m, tile_n), (group_size, of))
            for j in unrolled(columns):
                row = t * tile_n + place(j, columns, ACROSS, at_n)
                known = min(row, query.shape[1] - 1)
                base, sum_of_row = logarithms[batch, known], delta[batch, known]
                for i in unrolled(rows):
                    column = first + place(i, rows, down, at_m)
                    weight = exp(scores[i, j] * scale - base)
                    is_seen = row < query.shape[1] and seen(mask, batch, row, column, key.shape[1], causal)
                    slopes[i, j] = weight * (slopes[i, j] - sum_of_row) * scale if is_seen else of(0)
                    scores[i, j] = weight if is_seen else of(0)
            barrier()  # the turned ones were read
            store_scores(turned_queries, scores, (tile_m, tile_n), group_size)
            store_scores(turned_cotangents, slopes, (tile_m, tile_n), group_size)
            barrier()
            multiply(by_value, turned_queries, cotangents, tile_n, (tile_m, features), (group_size, of))
            multiply(by_key, turned_cotangents, queries, tile_n, (tile_m, features), (group_size, of))
            barrier()  # all were read
        store_lines(key_out, batch, first, by_key, tile_m, sizes)
        store_lines(value_out, batch, first, by_value, tile_m, sizes)

    return key_gradients
