"""Kernels of groups written by hand, each with a launch and what NumPy makes of the same arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from written_kernels import ITEM, Launch, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Atomic,
    Barrier,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Shuffle,
    Store,
    While,
)
from firebrick.scalar.expr import Expr, binary, cast, const, eq, fma, local, maximum, minimum, ne, select

ROW, MEET = local("r", "int64"), Barrier()
N, WIDTH, DEPTH = ScalarParameter("n"), ScalarParameter("width"), ScalarParameter("depth")


def _rng() -> np.random.Generator:
    return np.random.default_rng(5)


def prefix_sums() -> Launch:
    """Inclusive sums of the rows of a matrix, a group a row: each item adds what stands 1, 2, 4, … before it."""
    size = 64
    x, y = ArrayParameter("x", "int32"), ArrayParameter("y", "int32", "write")
    sums, far = SharedArray("sums", "int32", size), Let("far", whole(1))
    mine = Let("mine", sums[ITEM])
    add = If(~(far.local > ITEM), (Assign("mine", mine.local + sums[ITEM - far.local]),))
    step = (mine, add, MEET, Store("sums", ITEM, mine.local), MEET, Assign("far", far.local * 2))
    at = ROW * size + ITEM
    body = (Store("sums", ITEM, x[at]), MEET, far, While(far.local < size, step), Store("y", at, sums[ITEM]))
    f = Function("prefix_sums", (x, y), (), "i", body, ("r",), size, (sums,))
    xs = _rng().integers(-(2**31), 2**31, (7, size), np.int32)
    want = {"y": np.cumsum(xs, 1, dtype=np.int32).ravel()}
    return Launch(f, {"x": xs.ravel(), "y": np.zeros(7 * size, np.int32)}, want, (7, size))


def bitonic_sort() -> Launch:
    """The rows of a matrix in ascending order, by compare and exchange with a partner."""
    size = 64
    x = ArrayParameter("x", "float32", "read_write")
    keys, run, far = SharedArray("keys", "float32", size), Let("run", whole(2)), Let("far", local("run", "int64") >> 1)
    partner = Let("partner", ITEM ^ far.local)
    mine, other = Let("mine", keys[ITEM]), Let("other", keys[partner.local])
    lower = Let("lower", eq(partner.local > ITEM, eq(ITEM & run.local, 0)))
    kept = select(lower.local, minimum(mine.local, other.local), maximum(mine.local, other.local))
    step = (partner, mine, other, lower, MEET, Store("keys", ITEM, kept), MEET, Assign("far", far.local >> 1))
    passes = While(run.local < 2 * size, (far, While(far.local > 0, step), Assign("run", run.local * 2)))
    at = ROW * size + ITEM
    body = (Store("keys", ITEM, x[at]), MEET, run, passes, Store("x", at, keys[ITEM]))
    f = Function("bitonic_sort", (x,), (), "i", body, ("r",), size, (keys,))
    xs = _rng().normal(size=(5, size)).astype(np.float32)
    return Launch(f, {"x": xs.ravel()}, {"x": np.sort(xs, 1).ravel()}, (5, size))


def histogram() -> Launch:
    """Counts in the memory of each group, then added to those of all groups."""
    bins, size = 20, 32
    x, counts = ArrayParameter("x", "uint8"), ArrayParameter("counts", "uint32", "read_write")
    own, j, one = SharedArray("own", "uint32", bins), local("j", "int64"), const(1, "uint32")
    add = Atomic("add", "own", cast(x[j], "int64"), one)
    begin = ROW * 100
    body = (
        If(bins > ITEM, (Store("own", ITEM, const(0, "uint32")),)),
        MEET,
        For("j", begin + ITEM, minimum(begin + 100, N.value), size, (add,)),
        MEET,
        If(bins > ITEM, (Atomic("add", "counts", ITEM, own[ITEM]),)),
    )
    f = Function("histogram", (x, counts), (N,), "i", body, ("r",), size, (own,))
    xs = _rng().integers(0, bins, 730, np.uint8)
    want = {"counts": np.bincount(xs, minlength=bins).astype(np.uint32)}
    return Launch(f, {"x": xs, "counts": np.zeros(bins, np.uint32)}, want, (8, size), {"n": 730})


def tiled_product() -> Launch:
    """A matrix product: a group makes 8 by 8 elements, from tiles that its items load together. The sizes are no multiples."""
    tile = 8
    a, b, c = (ArrayParameter(n, "float32", "write" if n == "c" else "read") for n in "abc")
    left, right = SharedArray("left", "float32", tile * tile), SharedArray("right", "float32", tile * tile)
    down, across = Let("down", ITEM >> 3), Let("across", ITEM & 7)
    row, column = Let("row", ROW * tile + down.local), Let("column", local("q", "int64") * tile + across.local)
    total, k, t = Let("total", const(0.0, "float32")), local("k", "int64"), local("t", "int64")

    def loaded(into: SharedArray, inside: Expr, value: Expr) -> If:
        return If(inside, (Store(into.name, ITEM, value),), (Store(into.name, ITEM, const(0.0, "float32")),))

    x, y = k + across.local, k + down.local
    height, depth, width = N.value, DEPTH.value, WIDTH.value
    body = (
        down, across, row, column, total,
        For("k", whole(0), depth, tile, (
            loaded(left, (row.local < height) & (x < depth), a[row.local * depth + x]),
            loaded(right, (y < depth) & (column.local < width), b[y * width + column.local]),
            MEET,
            For("t", whole(0), whole(tile), 1, (
                Assign("total", fma(left[down.local * tile + t], right[t * tile + across.local], total.local)),
            )),
            MEET,
        )),
        If((row.local < height) & (column.local < width), (Store("c", row.local * width + column.local, total.local),)),
    )  # fmt: skip
    f = Function("tiled_product", (a, b, c), (N, DEPTH, WIDTH), "i", body, ("r", "q"), tile * tile, (left, right))
    xs, ys = (_rng().integers(-9, 10, s).astype(np.float32) for s in ((20, 13), (13, 18)))  # whose products are exact
    arrays = {"a": xs.ravel(), "b": ys.ravel(), "c": np.zeros(360, np.float32)}
    return Launch(f, arrays, {"c": (xs @ ys).ravel()}, (3, 3, 64), {"n": 20, "depth": 13, "width": 18})


def butterfly_sums() -> Launch:
    """Sums of 8 consecutive items each, by shuffles."""
    x, y = ArrayParameter("x", "int64"), ArrayParameter("y", "int64", "write")
    total = Let("total", x[ROW * 24 + ITEM])
    steps = [s for far in (1, 2, 4) for s in (
        Shuffle(f"from{far}", total.local, ITEM ^ far, 8), Assign("total", total.local + local(f"from{far}", "int64")),
    )]  # fmt: skip
    f = Function("butterfly_sums", (x, y), (), "i", (total, *steps, Store("y", ROW * 24 + ITEM, total.local)), ("r",), 24)
    xs = _rng().integers(-99, 99, 72)
    want = {"y": np.repeat(xs.reshape(-1, 8).sum(1), 8)}
    return Launch(f, {"x": xs, "y": np.zeros(72, np.int64)}, want, (3, 24))


def largest_by_exchange() -> Launch:
    """The largest element of each row, by an exchange that is repeated until no other item came between."""
    x, best = ArrayParameter("x", "int32"), ArrayParameter("best", "int32", "read_write")
    mine, seen = Let("mine", x[ROW * N.value + ITEM]), Let("seen", const(-(2**31), "int32"))
    done = Let("done", const(False, "bool"))
    attempt = (
        CompareExchange("found", "best", ROW, seen.local, mine.local),
        Assign("done", eq(local("found", "int32"), seen.local)),
        Assign("seen", local("found", "int32")),
    )
    body = (mine, seen, done, While(~done.local & (mine.local > seen.local), attempt))
    f = Function("largest_by_exchange", (x, best), (N,), "i", body, ("r",))
    xs = _rng().integers(-(2**31), 2**31, (6, 40), np.int32)
    want = {"best": xs.max(1)}
    return Launch(f, {"x": xs.ravel(), "best": np.full(6, -(2**31), np.int32)}, want, (6, 40), {"n": 40})


def transposition() -> Launch:
    """A grid of three axes without groups."""
    x, y = ArrayParameter("x", "uint16"), ArrayParameter("y", "uint16", "write")
    b, r = local("b", "int64"), ROW
    inside = If(ne(binary("rem", ITEM + r, 5), 4), (Store("y", (b * WIDTH.value + ITEM) * N.value + r,
                                                          x[(b * N.value + r) * WIDTH.value + ITEM]),))  # fmt: skip
    f = Function("transposition", (x, y), (N, WIDTH), "i", (inside,), ("b", "r"))
    xs = _rng().integers(0, 1 << 16, (4, 30, 11), np.uint16)
    kept = (np.arange(30)[:, None] + np.arange(11)) % 5 != 4
    want = {"y": np.where(kept, xs, 0).transpose(0, 2, 1).ravel()}
    return Launch(f, {"x": xs.ravel(), "y": np.zeros(xs.size, np.uint16)}, want, (4, 30, 11), {"n": 30, "width": 11})


GROUPS: dict[str, Callable[[], Launch]] = {
    f.__name__: f
    for f in (
        prefix_sums, bitonic_sort, histogram, tiled_product, butterfly_sums, largest_by_exchange, transposition,
    )
}  # fmt: skip
