"""Inner parts of rows: their code, where comparisons of an index are decided, has the bits of the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from running_lanes import Compiled, agree

from firebrick.compiler.kernel.ir import ArrayParameter, Check, Function, If, Let, ScalarParameter, Statement, Store
from firebrick.compiler.targets.llvm import inner_items
from firebrick.compiler.targets.llvm.inner_items import decisions
from firebrick.scalar.expr import Expr, const, local, node

ROW, J, M = local("i", "int64"), local("j", "int64"), local("m", "int64")
K, BIG = local("k", "int64"), 1 << 62
OUT, X = ArrayParameter("out", "float32", "write"), ArrayParameter("x", "float32")


def number(n: int) -> Expr:
    return const(n, "int64")


def compared(op: str, a: Expr, b: Expr) -> Expr:
    return node(op, "bool", (a, b))


def both(op: str, a: Expr, b: Expr) -> Expr:
    return node(op, "bool", (a, b))


def kernel(condition: Expr, before: tuple[Statement, ...] = ()) -> Function:
    """A kernel that tests a condition at each element."""
    at = ROW * M + J
    body = (
        *before,
        If(condition, (Store("out", at, X[at] + const(1.0, "float32")),), (Store("out", at, X[at] * const(3.0, "float32")),)),
    )
    return Function("k", (X, OUT), (ScalarParameter("m", "int64"), ScalarParameter("k", "int64")), "j", body, outer=("i",))


def check(function: Function, widths: tuple[int, ...] = (0, 4), ks: tuple[int, ...] = (0, 3, 17, 1000, -BIG, BIG)) -> None:
    rng = np.random.default_rng(0)
    for width in widths:
        compiled = Compiled(function, width=width)
        for rows, columns in ((1, 1), (3, 5), (2, 16), (3, 37), (2, 64), (1, 100), (0, 7)):
            x = rng.normal(size=rows * columns).astype(np.float32)
            for k in ks:
                agree(compiled, {"x": x, "out": np.zeros_like(x)}, {"m": columns, "k": k}, (rows, columns))


COMPARED = {
    "element": lambda: J,
    "the next element": lambda: J + number(1),
    "the one before": lambda: J - number(2),
    "far": lambda: J + number(1 << 50),
}
BOUNDS: dict[str, Callable[[], Expr]] = {
    "0": lambda: number(0),
    "5": lambda: number(5),
    "the largest": lambda: number((1 << 63) - 1),
    "the smallest": lambda: number(-(1 << 63)),
    "the size": lambda: M,
    "before the size": lambda: M - number(1),
    "an argument": lambda: K,
    "the row": lambda: ROW * K + number(3),
}


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
@pytest.mark.parametrize("bound", BOUNDS)
def test_a_comparison_is_decided_where_it_holds_and_nowhere_else(op: str, bound: str) -> None:
    for name, a in COMPARED.items():
        if name in ("element", "far") or op in ("lt", "eq"):
            check(kernel(compared(op, a(), BOUNDS[bound]())), (0,))
    check(kernel(compared(op, BOUNDS[bound](), J - number(1))), (4,))


def test_the_tests_of_a_stencil_are_decided() -> None:
    inside = compared("lt", number(0), J), compared("lt", J, M - number(1))
    rows = compared("lt", number(0), ROW), compared("lt", ROW, K)
    function = kernel(both("and", both("and", *rows), both("and", *inside)))
    assert [(d.comparison, d.truth, d.low) for d in decisions(function)] == [(inside[0], True, True), (inside[1], True, False)]
    check(function)
    border = kernel(both("or", compared("eq", J, number(0)), compared("eq", J, M - number(1))))
    assert [d.truth for d in decisions(border)] == [False, False]
    check(border)


def test_bounds_that_leave_nothing_between_them() -> None:
    check(kernel(both("and", compared("gt", J, number(20)), compared("lt", J, K))))


def test_an_index_with_a_name_and_a_condition_with_a_name_are_decided() -> None:
    before = (Let("next", J + number(1)), Let("test", compared("lt", local("next", "int64"), M)))
    function = kernel(local("test", "bool"), before)
    assert len(decisions(function)) == 1
    check(function)


def test_checks_of_indices_are_decided_and_report_as_before() -> None:
    at = compared("lt", J, K)
    function = kernel(compared("lt", J, M - number(1)), (Check(at, 0, J),))
    assert len(decisions(function)) == 2
    check(function)


def test_what_changes_along_the_row_decides_nothing() -> None:
    read = kernel(compared("lt", J, node("cast", "int64", (X[J],))))
    other = kernel(compared("lt", J, J * number(2)))
    assert not decisions(read)
    assert not decisions(other)


@pytest.mark.parametrize("wrong", ["shift", "truth"])
def test_a_wrong_decision_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = inner_items._decided

    def planted(*given: Any) -> Any:
        found = real(*given)
        if found is None:
            return None
        more = 1 if found.low else -1
        change = {"shift": found.shift - more} if wrong == "shift" else {"truth": not found.truth}
        return inner_items.Decision(**{n: getattr(found, n) for n in found.__slots__} | change)

    monkeypatch.setattr(inner_items, "_decided", planted)
    with pytest.raises(AssertionError, match="lanes, grid"):
        check(kernel(compared("lt", J, K)), ks=(15, 16, 31, 32))
