"""Each run takes every value, or every pair of values, of the factors; soak takes the rest of the product."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from combinations import pairs_of, turns_of

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
