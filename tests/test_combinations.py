"""Each run takes every value, or every pair of values, of the factors; soak takes the rest of the product."""

from __future__ import annotations

from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest
from combinations import pairs_of, take_turns, turns_of

FACTORS = ("abcdefg", [0, 1, 2], "xy")


def of_each_run(parameters: list[Any]) -> list[tuple[Any, ...]]:
    return [p.values for p in parameters if not p.marks]


@pytest.mark.parametrize("choose", [pairs_of, turns_of])
def test_soak_has_what_is_left_of_the_product(choose: Any) -> None:
    found = choose(*FACTORS)
    assert [p.values for p in found] == list(product(*FACTORS))
    assert {m.name for p in found for m in p.marks} == {"soak"}


def test_each_run_has_every_pair_of_values() -> None:
    def pairs(rows: Any) -> set[Any]:
        return {pair for row in rows for pair in combinations(enumerate(row), 2)}

    chosen = of_each_run(pairs_of(*FACTORS))
    assert pairs(chosen) == pairs(product(*FACTORS))
    assert len(chosen) == 21  # as many as the two longest factors have pairs
    assert of_each_run(pairs_of("ab", [0, 1], "xy")) == [("a", 0, "x"), ("a", 1, "y"), ("b", 0, "y"), ("b", 1, "x")]


def test_values_take_turns() -> None:
    chosen = of_each_run(turns_of(*FACTORS))
    assert [row[0] for row in chosen] == list("abcdefg")
    for k in (1, 2):
        counts = [sum(row[k] == value for row in chosen) for value in FACTORS[k]]
        assert max(counts) - min(counts) <= 1


class Item(SimpleNamespace):
    """What is asked of a test."""

    def iter_markers(self) -> Any:
        return [SimpleNamespace(name=name) for name in self.marks]

    def add_marker(self, name: str) -> None:
        self.marks.append(name)


def test_tests_that_are_marked_take_turns_too() -> None:
    def family(name: str, *marks: str) -> list[Any]:
        every = product(range(7), range(3), range(2))
        return [
            Item(parent=1, originalname=name, marks=[*marks], callspec=SimpleNamespace(params={"c": c, "a": a, "b": b}))
            for a, b, c in every
        ]

    marked, plain, skipped = family("one", "turns"), family("two"), family("three", "turns", "skip")
    for item in marked[:6]:
        item.marks.append("skip")  # of an engine that cannot be used: its turn would be no test
    take_turns([*plain, *marked, *skipped])
    assert all(item.marks == [] for item in plain)
    assert all("soak" not in item.marks for item in [*skipped, *marked[:6]])
    chosen = [(i["a"], i["b"], i["c"]) for item in marked[6:] if "soak" not in item.marks for i in [item.callspec.params]]
    assert [a for a, _, _ in chosen] == list(range(1, 7))
    assert [sum(b == k for _, b, _ in chosen) for k in range(3)] == [2, 2, 2]
    assert [sum(c == k for _, _, c in chosen) for k in range(2)] == [3, 3]
