"""Which arrays of a kernel are accessed four elements at a time in WGSL: by items, and by rounds of loops. A table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firebrick.compiler.kernel.ir import (
    ArrayParameter,
    Assign,
    Atomic,
    Check,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Statement,
    Store,
)
from firebrick.compiler.targets.wgsl.quads import LONGEST, LoopQuads, in_quads
from firebrick.scalar.expr import Expr, cast, const, element, local

ITEM, K, N, M = (local(n, "int64") for n in ("i", "k", "n", "m"))
ARRAYS = (
    ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write"), ArrayParameter("z", "int8", "read_write"),
    ArrayParameter("d", "float64"),
)  # fmt: skip


def number(n: int) -> Expr:
    return const(n, "int64")


def x(at: Expr, name: str = "x", dtype: str = "float32") -> Expr:
    return element(name, dtype, at)


def function(*body: Statement, group: int = 0, outer: tuple[str, ...] = ()) -> Function:
    shared = (SharedArray("s", "float32", 4),) if group else ()
    return Function("f", ARRAYS, (ScalarParameter("n"), ScalarParameter("m")), "i", body, outer, group, shared)


STORED = Store("y", ITEM, x(ITEM) * 2.0)
ITEMS: dict[str, tuple[Function, str]] = {
    "own elements": (function(STORED), "xy"),
    "by a name": (function(Let("v", x(ITEM)), Store("y", ITEM, local("v", "float32"))), "xy"),
    "another element is read too": (function(Store("y", ITEM, x(ITEM) + x(N))), "y"),
    "by a name, another element is read": (function(Let("v", x(N)), Store("y", ITEM, local("v", "float32") + x(ITEM))), "y"),
    "an element of which an index is read": (function(Store("y", ITEM, x(cast(x(ITEM, "z", "int8"), "int64")))), "yz"),
    "it stores elsewhere": (function(Store("y", N, x(ITEM))), ""),
    "it stores elsewhere too": (function(STORED, Store("y", N, x(ITEM))), ""),
    "one result elsewhere": (function(STORED, Store("z", N, const(1, "int8"))), ""),
    "it reads what it stores": (function(STORED, Store("z", ITEM, x(ITEM, "z", "int8"))), ""),
    "a dtype without quads is read": (function(Store("y", ITEM, cast(x(ITEM, "d", "float64"), "float32"))), "y"),
    "a group": (function(STORED, group=4), ""),
    "two axes": (function(STORED, outer=("j",)), ""),
    "a branch": (function(STORED, If(N < 3, (STORED,))), ""),
    "a check": (function(Check(N < 3, 0, N), STORED), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ITEMS)
def test_arrays_that_an_item_accesses_in_quads(name: str) -> None:
    f, expected = ITEMS[name]
    assert "".join(sorted(in_quads(f))) == expected


ZERO, EIGHT = number(0), number(8)


def loop(*body: Statement, start: Expr = ZERO, stop: Expr = EIGHT, step: int = 1, name: str = "k") -> For:
    return For(name, start, stop, step, body)


READ = Let("v", x(ITEM * 8 + K))
WRITE = Store("y", ITEM * 8 + K, const(1.0, "float32"))
TOTAL = Let("total", const(0.0, "float32"))
# kernel, scalars that are multiples of four → the arrays, the number of loops that access some
LOOPS: dict[str, tuple[Function, str, str, int]] = {
    "a read": (function(loop(READ)), "", "x", 1),
    "a store": (function(loop(WRITE)), "", "y", 1),
    "a read and a store": (function(loop(READ, WRITE)), "", "xy", 1),
    "of one array: neither": (function(loop(Store("z", ITEM * 8 + K, x(ITEM * 8 + K, "z", "int8")), READ)), "", "x", 1),
    "of one array, in two loops": (
        function(loop(Let("w", x(K, "z", "int8"))), loop(Store("z", K, const(1, "int8")))), "", "", 0,
    ),
    "a store elsewhere": (function(loop(READ, WRITE), Store("y", N, const(1.0, "float32"))), "", "x", 1),
    "a read elsewhere": (function(loop(READ, WRITE), Let("u", x(N))), "", "y", 1),
    "a read in another loop": (function(loop(READ), loop(Let("u", x(K)), stop=number(4))), "", "x", 2),
    "a read in a loop that is not": (function(loop(READ), loop(Let("u", x(K)), stop=number(5))), "", "", 0),
    "a bound that is known": (function(loop(READ, stop=N)), "n", "x", 1),
    "a bound that is not": (function(loop(READ, stop=N)), "m", "", 0),
    "a multiple": (function(loop(READ, stop=N * 4)), "", "x", 1),
    "a product with a multiple": (function(loop(READ, stop=M * N)), "n", "x", 1),
    "a sum of multiples": (function(loop(READ, stop=N + M)), "nm", "x", 1),
    "a difference": (function(loop(READ, stop=N - M)), "nm", "x", 1),
    "a sum, one of which is none": (function(loop(READ, stop=N + M)), "n", "", 0),
    "by a name": (function(Let("stop", N * 4), Let("base", ITEM * 4), loop(Let("v", x(local("base", "int64") + K)),
                           stop=local("stop", "int64"))), "", "x", 1),
    "by a name that changes": (function(Let("base", ITEM * 4), Assign("base", number(4)),
                                        loop(Let("v", x(local("base", "int64") + K)))), "", "", 0),
    "a start of 4": (function(loop(READ, start=number(4))), "", "", 0),
    "a start that is not known": (function(loop(READ, start=N)), "n", "", 0),
    "a step of 2": (function(loop(READ, step=2)), "", "", 0),
    "an offset of 4": (function(loop(Let("v", x(K + 4)))), "", "x", 1),
    "an offset of 2": (function(loop(Let("v", x(K + 2)))), "", "", 0),
    "an offset that is a multiple": (function(loop(Let("v", x(K + N)))), "n", "x", 1),
    "an offset that is none": (function(loop(Let("v", x(K + N)))), "", "", 0),
    "the counter twice": (function(loop(Let("v", x(K + K)))), "", "", 0),
    "without the counter": (function(loop(Let("v", x(ITEM * 4)))), "", "", 0),
    "the counter of a loop around it": (function(loop(loop(Let("v", x(K * 4 + local("j", "int64"))), name="j"))), "", "x", 1),
    "an index that is read": (function(loop(Let("v", x(K + cast(x(K, "z", "int8"), "int64") * 4)))), "", "z", 1),
    "a branch in it": (function(loop(READ, If(N < 3, (READ,)))), "", "", 0),
    "a check in it": (function(loop(READ, Check(N < 3, 0, N))), "", "", 0),
    "an atomic operation elsewhere": (
        function(loop(READ, WRITE), Atomic("add", "y", N, const(1.0, "float32"))), "", "x", 1,
    ),
    "a dtype without quads": (function(loop(Let("v", x(K, "d", "float64")))), "", "", 0),
    "a group": (function(loop(READ), group=4), "", "", 0),
    "two results": (function(loop(WRITE, Store("z", K, const(1, "int8")))), "", "yz", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_arrays_that_rounds_of_loops_access_in_quads(name: str) -> None:
    f, fours, expected, count = LOOPS[name]
    found = LoopQuads(f, fours)
    assert "".join(sorted(found.arrays)) == expected
    assert len(found.accesses) == count
    for accesses in found.accesses.values():
        assert {a for a, _, _ in accesses} <= found.arrays
        assert len(set(accesses)) == len(accesses)


def test_what_a_loop_accesses_and_how_long_it_may_be() -> None:
    f = function(loop(READ, WRITE, replace(READ, name="w")))
    (accesses,) = LoopQuads(f, ()).accesses.values()
    assert accesses == [("x", ITEM * 8 + K, False), ("y", ITEM * 8 + K, True)]
    total = local("total", "float32")
    for size, arrays in ((LONGEST, {"x"}), (LONGEST + 1, set())):
        e, nodes = total + x(K), 4  # total, k, the element, the sum
        while nodes < size:
            e, nodes = e * total, nodes + 1
        made = LoopQuads(function(TOTAL, loop(Assign("total", e))), ()).arrays
        assert made == arrays
