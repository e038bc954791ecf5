"""Parameters of tests as combinations of a few factors: each run takes some, by a rule, and soak takes the whole product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def _chosen(factors: Sequence[Sequence[Any]], at_once: int) -> set[tuple[int, ...]]:
    """Combinations, as numbers of values, of which some has each ``at_once`` values of different factors; greedily few."""
    every = list(product(*(range(len(f)) for f in factors)))
    parts = [set(combinations(enumerate(c), at_once)) for c in every]
    missing, found = set().union(*parts), set[tuple[int, ...]]()
    taken = [[0] * len(f) for f in factors]
    while missing:
        most = max(len(p & missing) for p in parts)
        best = [k for k, p in enumerate(parts) if len(p & missing) == most]
        # values that take turns are taken equally often; pairs are fewest in the order of the product
        k = min(best, key=lambda k: sum(taken[i][v] for i, v in enumerate(every[k]))) if at_once == 1 else best[0]
        missing -= parts[k]
        found.add(every[k])
        for i, v in enumerate(every[k]):
            taken[i][v] += 1
    return found


def _marked(factors: Sequence[Sequence[Any]], chosen: Iterable[tuple[int, ...]]) -> list[Any]:
    chosen = set(chosen)
    found = []
    for numbers in product(*(range(len(f)) for f in factors)):
        values = tuple(f[k] for f, k in zip(factors, numbers, strict=True))
        found.append(pytest.param(*values, marks=() if numbers in chosen else pytest.mark.soak))
    return found


def pairs_of(*factors: Iterable[Any]) -> list[Any]:
    """The product as parameters: each run has every pair of values of different factors, and soak the others.

    Example:
        >>> [p.values for p in pairs_of("ab", [0, 1], "xy") if not p.marks]
        [('a', 0, 'x'), ('a', 1, 'y'), ('b', 0, 'y'), ('b', 1, 'x')]
    """
    given = [list(f) for f in factors]
    return _marked(given, _chosen(given, 2))


def turns_of(*factors: Iterable[Any]) -> list[Any]:
    """The product as parameters: each run has every value of each factor, in turn, and soak the others.

    Example:
        >>> [p.values for p in turns_of("abc", [0, 1]) if not p.marks]
        [('a', 0), ('b', 1), ('c', 0)]
    """
    given = [list(f) for f in factors]
    return _marked(given, _chosen(given, 1))
