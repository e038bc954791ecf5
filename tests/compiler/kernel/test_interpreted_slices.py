"""The interpreter without checks: linear indices are slices, boxes of items stay boxes, and results are those with checks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from written_kernels import ITEM, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Barrier,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Statement,
    Store,
    While,
    interpret,
)
from firebrick.compiler.kernel.interpret import _boxes
from firebrick.compiler.kernel.unchecked_arrays import UncheckedArrays
from firebrick.scalar.expr import Expr, binary, eq, local, minimum

X, Y = ArrayParameter("x", "int64"), ArrayParameter("y", "int64", "read_write")
ROW, N, WIDTH = local("r", "int64"), ScalarParameter("n"), ScalarParameter("w")
AT = ROW * WIDTH.value + ITEM
SIZES = 40, 50
MANY = 1 << 40


def inside(margin: int) -> Expr:
    rows = (margin - 1 < ROW) & (N.value - margin > ROW)
    return rows & (margin - 1 < ITEM) & (WIDTH.value - margin > ITEM)


def t(name: str = "t") -> Expr:
    return local(name, "int64")


PROGRAMS: dict[str, tuple[Statement, ...]] = {
    "backwards": (Store("y", AT, X[N.value * WIDTH.value - 1 - AT]),),
    "columns": (Store("y", ITEM * N.value + ROW, X[AT] * 3),),
    "the same element": (Let("t", X[whole(7)]), Store("y", AT, t() + X[ROW] + X[ITEM * 2])),
    "a boundary": (
        If(inside(1), (Store("y", AT, X[AT - 1] + X[AT + 1] - X[AT - WIDTH.value] * X[AT + WIDTH.value]),),
           (Store("y", AT, -X[AT]),)),
    ),
    "boxes in boxes": (
        Let("t", AT * 2), Let("u", X[AT]),
        If(inside(2), (
            Assign("u", t("u") + 100), Let("v", t() - ITEM),
            If(inside(5) & (ROW < 9), (Assign("t", t("v") + X[AT - 3]), Assign("u", t() + t("u"))), (Assign("t", ROW),)),
        )),
        Store("y", AT, t() * 1000 + t("u")),
    ),
    "a box that loses items in a loop": (
        Let("t", ITEM + 0), Let("u", whole(0)),
        If(inside(3), (While(t() < 30, (Assign("u", t("u") + X[AT] + t()), Assign("t", t() + (ITEM & 3) + 1))),)),
        Store("y", AT, t("u") * 100 + t()),
    ),
    "a box that keeps being a box": (
        Let("t", ROW * 1), Let("u", whole(0)),
        While(t() < 17, (Assign("u", t("u") + t() * X[AT]), Assign("t", t() + 1))),
        Store("y", AT, t("u")),
    ),
    "counters that end at different places": (
        Let("u", whole(0)),
        If(inside(1), (For("j", ROW, ITEM, 3, (Assign("u", t("u") + X[AT + t("j")] * t("j")),)),)),
        For("j", ITEM, WIDTH.value, 7, (Assign("u", t("u") * 3 + t("j")),)),
        Store("y", AT, t("u")),
    ),
    "a name that only the first round assigns": (
        Let("t", X[AT] & 7), Let("u", whole(0)),
        While(t() > 0, (If(eq(t(), X[AT] & 7), (Assign("u", t() + 50),)), Assign("t", t() - 1))),
        Store("y", AT, t("u")),
    ),
    "a bound from before a store": (
        Let("u", whole(0)), For("j", whole(0), Y[AT], 1, (Assign("u", t("u") + t("j")), Store("y", AT, whole(2)))),
        Store("y", AT, t("u")),
    ),
    "a value from before a store": (
        Let("t", Y[AT]), Store("y", AT, whole(5)), Let("u", Y[AT]), Store("y", AT, t() * 10 + t("u")),
    ),
    "a condition from before a store": (
        If(eq(Y[AT] & 1, 0), (Store("y", AT, Y[AT] + 1),), (Store("y", AT, Y[AT] * 10),)),
    ),
    "numbers that wrap around": (
        Let("t", (ITEM * MANY + ROW) * MANY), Let("u", t() * 4 + AT), Store("y", AT, X[t("u") - t() * 4] + t() * t()),
    ),
    "an index that is clamped": (Store("y", AT, X[minimum(AT + 1, N.value * WIDTH.value - 1)]),),
    "an index that is no sum": (Store("y", AT, X[binary("rem", AT * AT, 77)]),),
}  # fmt: skip


def results(body: tuple[Statement, ...], **how: Any) -> np.ndarray:
    x = np.random.default_rng(2).integers(-99, 99, SIZES[0] * SIZES[1] + 60)
    y = np.random.default_rng(3).integers(-99, 99, x.size)
    f = Function("k", (X, Y), (N, WIDTH), "i", body, ("r",))
    interpret(f, {"x": x, "y": y}, {"n": SIZES[0], "w": SIZES[1]}, SIZES, **how)
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_have_the_values_of_single_elements(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want = results(PROGRAMS[name], seed=5)  # a drawn order has no linear indices
    assert np.array_equal(want, results(PROGRAMS[name]))
    for items in (1 << 16, 400, 50, 7):  # boxes of all items, of some rows, of one row, of pieces of a row
        monkeypatch.setattr(sys.modules[_boxes.__module__], "_ITEMS", items)
        assert np.array_equal(want, results(PROGRAMS[name], checked=False)), items


def test_a_slice_that_reaches_one_element_too_far_is_clamped() -> None:
    x = np.arange(12)
    for at, want in ((AT + 1, [*range(1, 12), 11]), (AT - 1, [0, *range(11)]), (12 - AT, [11, *range(11, 0, -1)])):
        y = np.zeros(12, np.int64)
        f = Function("k", (X, Y), (WIDTH,), "i", (Store("y", AT, X[at]),), ("r",))
        interpret(f, {"x": x, "y": y}, {"w": 4}, (3, 4), checked=False)
        assert y.tolist() == want


def test_linear_indices_gather_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gathers = []
    places = UncheckedArrays._places
    monkeypatch.setattr(UncheckedArrays, "_places", lambda self, name, *rest: gathers.append(name) or places(self, name, *rest))
    for name, count in (
        ("backwards", 0), ("columns", 0), ("the same element", 0), ("a value from before a store", 0),
        ("a boundary", 2),  # the items outside of it
        ("an index that is clamped", 1),
    ):  # fmt: skip
        gathers.clear()
        results(PROGRAMS[name], checked=False)
        assert len(gathers) == count, name


def test_shared_arrays_of_several_groups_are_sliced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UncheckedArrays, "_places", None)
    s = SharedArray("s", "int64", 10)
    q = local("q", "int64")
    at = (q * 3 + ROW) * 5 + ITEM
    body = (Store("s", ITEM * 2 + 1, X[at]), Barrier(), Store("y", at, s[9 - ITEM * 2] * 10 + q))
    x, y = np.arange(60), np.zeros(60, np.int64)
    interpret(Function("k", (X, Y), (), "i", body, ("q", "r"), 5, (s,)), {"x": x, "y": y}, {}, (4, 3, 5), checked=False)
    assert np.array_equal(y.reshape(4, 3, 5), x.reshape(4, 3, 5)[:, :, ::-1] * 10 + np.arange(4)[:, None, None])


def test_arrays_that_overlap_are_read_before_they_are_stored() -> None:
    """Each item reads and stores its own element, by two names."""
    memory = np.arange(100)
    body = (Let("t", X[ITEM]), Store("y", ITEM, X[ITEM] * 2), Store("y", ITEM, X[ITEM] + t()))
    interpret(Function("k", (X, Y), (), "i", body), {"x": memory, "y": memory}, {}, 100, checked=False)
    assert np.array_equal(memory, np.arange(100) * 3)


@pytest.mark.parametrize("grid", [(7,), (5, 3), (3, 1, 4), (2, 3, 4, 5), (6, 0), (1, 1)])
@pytest.mark.parametrize("most", [1, 4, 7, 100])
def test_boxes_cover_the_grid_once_in_order(grid: tuple[int, ...], most: int) -> None:
    f = Function("k", (), (), "i", (), tuple(f"r{a}" for a in range(len(grid) - 1)))
    waves = list(_boxes(f, grid, most))
    numbers = [n for wave in waves for n in wave.flat("#item").tolist()]
    assert numbers == list(range(int(np.prod(grid))))
    indices = [np.concatenate([w.flat(n) for w in waves] or [[]]).astype(int) for n in (*f.outer, "i")]
    assert np.array_equal(np.stack(indices), np.indices(grid).reshape(len(grid), -1))
