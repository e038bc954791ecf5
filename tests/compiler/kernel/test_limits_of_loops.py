"""Loops of too many rounds: the interpreter, vector lanes and the GPU's form report the same loop, at the same number."""

from __future__ import annotations

import numpy as np
import pytest
from running_lanes import Compiled
from threads_on_cpu import threads

from firebrick.compiler.kernel import Fault, interpret, verify
from firebrick.compiler.kernel.ir import ArrayParameter, Assign, For, Function, If, Let, Statement, Store, While
from firebrick.compiler.kernel.shorter_loops import shorter_loops
from firebrick.compiler.targets.llvm.emit import Limit
from firebrick.core.errors import ExecutionError
from firebrick.scalar.expr import Expr, const, local

ITEM = local("i", "int64")
SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1
X, Y = ArrayParameter("x", "int64"), ArrayParameter("y", "int64", "write")
N = local("n", "int64")
COUNT = Assign("n", N + 1)


def number(n: int) -> Expr:
    return const(n, "int64")


def kernel(*body: Statement) -> Function:
    return Function("limited", (X, Y), (), "i", (Let("n", number(0)), *body, Store("y", ITEM, N)))


def check(function: Function, x: list[int], rounds: int, loop: int | None) -> None:
    """All forms report that number of a loop, or nothing and the same results."""
    given = np.array(x, np.int64)
    wanted = None if loop is None else Fault(3, loop)
    found = np.zeros_like(given)
    for checked in (True, False):
        arrays = {"x": given, "y": found}
        if loop is None:
            assert interpret(function, arrays, {}, len(x), rounds, checked) is None
        else:
            with pytest.raises(ExecutionError, match=rf"(has|ends after) at most {rounds:,} rounds"):
                interpret(function, arrays, {}, len(x), rounds, checked)
    for width in (0, 1, 4):
        results = np.zeros_like(given)
        assert Compiled(function, width=width, limit=Limit(rounds, 3))({"x": given, "y": results}, {}, (len(x),)) == wanted
        assert loop is not None or (results == found).all()
    results = np.zeros_like(given)
    assert threads(function, {"x": given, "y": results}, {}, len(x), 4, limit=Limit(rounds, 3)) == wanted
    assert loop is not None or (results == found).all()


@pytest.mark.parametrize(
    ("start", "stop", "step", "rounds"),
    [
        (0, 5, 1, 5), (0, 5, 1, 4), (-3, 8, 4, 3), (-3, 8, 4, 2), (0, 1 << 62, 1, 1000), (SMALLEST, LARGEST, 1, 10),
        (SMALLEST, LARGEST, 1 << 62, 4), (SMALLEST, LARGEST, 1 << 62, 3), (LARGEST, SMALLEST, 1, 1), (7, 7, 1, 1),
        (5, -5, 3, 1), (LARGEST - 2, LARGEST, 1, 2), (SMALLEST, SMALLEST + 3, 2, 2), (SMALLEST, SMALLEST + 3, 2, 1),
    ],
)  # fmt: skip
def test_a_counted_loop_has_as_many_rounds_as_the_limit(start: int, stop: int, step: int, rounds: int) -> None:
    too_many = len(range(start, stop, step)) > rounds if stop - start <= LARGEST else -(-(stop - start) // step) > rounds
    loop = 0 if too_many else None
    check(kernel(For("k", number(start), number(stop), step, (COUNT,))), [0] * 9, rounds, loop)
    # bounds that differ between items, of which one alone has so many rounds
    varying = kernel(For("k", number(start), X[ITEM], step, (COUNT,)))
    check(varying, [start] * 6 + [stop] + [start] * 2, rounds, loop)


def test_the_first_loop_of_too_many_rounds_is_reported() -> None:
    body = (
        For("k", number(0), number(3), 1, (COUNT,)),
        For("l", number(0), X[ITEM], 1, (For("m", number(0), X[ITEM], 1, (COUNT,)),)),
    )
    check(kernel(*body), [2, 3], 3, None)
    check(kernel(*body), [2, 4], 3, 1)
    inner = For("l", number(0), number(2), 1, (For("m", number(0), X[ITEM], 1, (COUNT,)),))
    check(kernel(body[0], inner), [2, 4], 3, 2)


def test_a_loop_that_no_item_reaches_is_no_error() -> None:
    guarded = If(X[ITEM] < 5, (For("k", number(0), X[ITEM], 1, (COUNT,)),))
    check(kernel(guarded), [1, 2, 1000, LARGEST], 4, None)
    check(kernel(guarded), [1, 4, 1000, LARGEST], 3, 0)


def test_a_loop_with_a_condition_ends_at_the_limit() -> None:
    loop = While(X[ITEM] > N, (COUNT,))
    check(kernel(loop), [3, 5, 0], 5, None)
    check(kernel(loop), [3, 6, 0], 5, 0)


def test_without_a_limit_there_is_no_code_for_one() -> None:
    f = kernel(For("k", number(0), X[ITEM], 1, (COUNT,)))
    assert "firebrick_report" not in Compiled(f).lanes.kernel.text
    assert "firebrick_report" in Compiled(f, limit=Limit(5, 0)).lanes.kernel.text


def test_a_loop_that_is_cut_has_names_of_its_own() -> None:
    """Where an item's index, an outer index or a variable is called as the counter of the shorter loop would be."""
    x, y = ArrayParameter("x", "int64"), ArrayParameter("y", "int64", "write")
    for outer, item, variable in (("k_first", "k_stop", "n"), ("j", "k_first", "k_stop"), ("k_stop", "i", "k_first")):
        n, place = local(variable, "int64"), local(outer, "int64") * 2 + local(item, "int64")
        loop = For("k", number(0), number(5), 1, (Assign(variable, n + local("k", "int64") * (place + 1)),))
        function = Function("cut", (x, y), (), item, (Let(variable, number(0)), loop, Store("y", place, n)), outer=(outer,))
        cut = shorter_loops(function, 2, {})
        verify(cut)
        found = np.zeros(4, np.int64)
        assert interpret(cut, {"x": found.copy(), "y": found}, {}, (2, 2)) is None
        assert found.tolist() == [10, 20, 30, 40]
