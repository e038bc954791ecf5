"""The work of a launch: which operations and accesses of each statement are counted, and how often a block is executed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from firebrick.compiler.kernel.ir import (
    ArrayParameter,
    Assign,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Shuffle,
    Statement,
    Store,
    While,
)
from firebrick.compiler.kernel.work import ROUNDS, work_of
from firebrick.scalar.expr import Expr, binary, bitcast, cast, const, fma, maximum, minimum, select

X, Y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "read_write")
COUNTS, SHARED = ArrayParameter("counts", "int32", "read_write"), SharedArray("s", "float32", 64)
SIZE = ScalarParameter("n")
AT, N = ScalarParameter("i").value, SIZE.value
ZERO, ONE, A = const(0, "int64"), const(1, "int32"), ScalarParameter("a", "float32").value


def counted(
    body: Sequence[Statement], grid: tuple[int, ...] = (1,), n: int | None = None, outer: tuple[str, ...] = ()
) -> tuple:
    """Operations of a launch, and reads and stores by array."""
    scalars = (SIZE, ScalarParameter("a", "float32"))
    function = Function("f", (X, Y, COUNTS), scalars, "i", tuple(body), outer, shared=(SHARED,))
    work = work_of(function, {} if n is None else {"n": n}, grid)
    assert work.size == work.flops + sum(work.reads.values()) + sum(work.writes.values())
    return work.flops, dict(work.reads), dict(work.writes)


STATEMENTS: dict[str, tuple[Statement, tuple[float, dict[str, float], dict[str, float]]]] = {
    "an operation on an element": (Let("b", X[AT] * A), (1, {"x": 1}, {})),
    "operations on an index are free": (Let("b", X[AT * N + 1]), (0, {"x": 1}, {})),
    "an index that is a value too": (Let("b", cast(AT + N, "float32") + X[AT + N]), (2, {"x": 1}, {})),
    "an element within an index": (Let("b", X[cast(COUNTS[AT + N], "int64")] + 1.0), (1, {"x": 1, "counts": 1}, {})),
    "an element that is read twice": (Let("b", X[AT] * X[AT]), (1, {"x": 1}, {})),
    "an expression that is used twice": (Let("b", (X[AT] + A) * (X[AT] + A)), (2, {"x": 1}, {})),
    "changes of dtype are free": (Let("b", cast(bitcast(A, "int32"), "float32")), (0, {}, {})),
    "one operation of three operands": (Assign("b", fma(A, A, A)), (1, {}, {})),
    "a store, without its index": (Store("y", AT + N, A + A), (1, {}, {"y": 1})),
    "a store of what it reads": (Store("y", AT, Y[AT] + 1.0), (1, {"y": 1}, {"y": 1})),
    "a check, with its condition and payload": (Check(AT < N, 0, AT + 1), (2, {}, {})),
    "an atomic operation": (Atomic("add", "counts", AT + N, ONE), (1, {"counts": 1}, {"counts": 1})),
    "an exchange": (CompareExchange("b", "counts", AT + N, ONE, ONE + COUNTS[AT]), (2, {"counts": 2}, {"counts": 1})),
    "a barrier": (Barrier(), (0, {}, {})),
    "a shuffle": (Shuffle("b", A + A, AT ^ 1, 32), (2, {}, {})),
    "shared memory": (Store("s", AT, SHARED[AT + 1]), (0, {"s": 1}, {"s": 1})),
    "a condition": (If(A + A < A, ()), (2, {}, {})),
}  # fmt: skip


@pytest.mark.parametrize("what", STATEMENTS)
def test_each_statement_counts_its_operations_and_accesses(what: str) -> None:
    statement, work = STATEMENTS[what]
    assert counted([statement]) == work


def test_every_item_of_all_axes_of_a_grid_is_counted() -> None:
    store = Store("y", AT, A + A)
    assert counted([store], (5,)) == (5, {}, {"y": 5})
    assert counted([store, store], (3, 2, 5), outer=("k", "j")) == (60, {}, {"y": 60})
    assert counted([store], (0,)) == (0, {}, {"y": 0})


STORE, READ = Store("y", AT, A), Let("b", X[AT])
NUMBERS: dict[str, tuple[Expr, int]] = {
    "a number": (const(7, "int64"), 7), "an argument": (N, 9), "a sum": (N + 2, 11), "a difference": (N - 2, 7),
    "a product": (N * 3, 27), "a negated number": (binary("mul", -N, const(-1, "int64")), 9),
    "a quotient": (binary("div", N, const(2, "int64")), 4), "a remainder": (binary("rem", N, const(5, "int64")), 4),
    "a quotient by 0": (binary("div", N, N - 9), 0), "a remainder by 0": (binary("rem", N, N - 9), 0),
    "the smaller number": (minimum(N, 4), 4), "the larger number": (maximum(N, 12), 12),
    "a shift to the left": (N << 2, 36), "a shift to the right": (N >> 1, 4),
    "the longest shift to the left": ((N << 63) >> 60, 72), "a longer one": ((N << 64) >> 60, 72),
    "the longest shift to the right": ((N << 63) >> 63, 9), "one that is longer": ((N << 63) >> 64, 9),
    "shifts by negative numbers": ((N << -1) >> -2, 9),
    "another dtype": (cast(cast(N, "int32"), "int64"), 9),
    "an operation that is not known": (select(N < 5, N, N + 1), ROUNDS), "an element": (cast(COUNTS[AT], "int64"), ROUNDS),
    "a sum with an element": (N + cast(COUNTS[AT], "int64"), ROUNDS),
    "an argument without a number": (ScalarParameter("m").value, ROUNDS),
}  # fmt: skip


@pytest.mark.parametrize("what", NUMBERS)
def test_a_loop_has_as_many_iterations_as_its_bounds_say(what: str) -> None:
    stop, rounds = NUMBERS[what]
    assert counted([For("k", ZERO, stop, 1, (STORE,))], n=9)[2] == {"y": rounds}


def test_iterations_are_counted_from_the_start_in_steps() -> None:
    def rounds(start: int, stop: int, step: int) -> float:
        return counted([For("k", const(start, "int64"), const(stop, "int64"), step, (STORE,))])[2].get("y", 0)

    assert [rounds(0, n, 3) for n in (0, 1, 3, 4, 6, 7)] == [0, 1, 1, 2, 2, 3]
    assert [rounds(5, n, 1) for n in (4, 5, 8)] == [0, 0, 3]


def test_bounds_of_loops_and_what_is_done_for_them_are_no_work() -> None:
    assert counted([For("k", N * 2, N * 3 + 1, 1, ())], n=9) == (0, {}, {})
    assert counted([For("k", ZERO, cast(COUNTS[AT], "int64") + 1, 1, ())]) == (0, {"counts": 1}, {})


def test_a_bound_is_that_of_the_item_in_the_middle_of_each_axis() -> None:
    body, j = [For("k", ZERO, AT, 1, (STORE,))], ScalarParameter("j").value
    assert [counted(body, (size,))[2].get("y", 0) / size for size in (1, 2, 3, 8, 9)] == [0, 0, 1, 3, 4]
    assert counted([For("k", ZERO, j * 10 + AT, 1, (STORE,))], (5, 7), outer=("j",))[2] == {"y": 35 * 23}


def test_an_inner_bound_is_that_of_the_iteration_in_the_middle() -> None:
    def inner(start: int, stop: int, step: int = 1) -> float:
        k = ScalarParameter("k").value
        loop = For("k", const(start, "int64"), const(stop, "int64"), step, (For("l", ZERO, k, 1, (STORE,)),))
        return counted([loop])[2].get("y", 0)

    assert [inner(0, n) for n in (1, 2, 3, 9)] == [0, 0, 3, 36]
    assert [inner(4, 9), inner(4, 13, 2)] == [5 * 6, 5 * 8]


def test_a_local_is_a_known_number_unless_it_changes() -> None:
    m = Let("m", N + 1)
    loop = For("k", ZERO, m.local, 1, (STORE,))
    assert counted([m, loop], n=9)[2] == {"y": 10}
    assert counted([m, loop, Assign("m", N)], n=9)[2] == {"y": ROUNDS}
    assert counted([If(N < 3, (m, STORE)), loop], n=9)[2] == {"y": 1 + ROUNDS}, "a local of another block"


def test_a_loop_while_a_condition_holds_has_the_iterations_of_unknown_bounds() -> None:
    assert counted([While(A < 1.0, (STORE, READ))]) == (1, {"x": ROUNDS}, {"y": ROUNDS})


def test_the_branch_with_more_operations_and_accesses_together_counts() -> None:
    sum_ = Let("c", A + A + A + A)
    assert counted([If(N < 3, (STORE,), (STORE, READ))])[1:] == ({"x": 1}, {"y": 1})
    assert counted([If(N < 3, (STORE, READ), (STORE,))])[1:] == ({"x": 1}, {"y": 1})
    assert counted([If(N < 3, (sum_,), (STORE, READ))]) == (4, {}, {})
    assert counted([If(N < 3, (Let("c", A + A),), (STORE, READ))]) == (1, {"x": 1}, {"y": 1})
