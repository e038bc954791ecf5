"""Parameters of tests as combinations of a few factors: each run takes some, by a rule, and soak takes the whole product."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def _chosen(every: Sequence[tuple[int, ...]], at_once: int) -> set[tuple[int, ...]]:
    """Combinations, as numbers of values, of which some has each ``at_once`` values of different factors; greedily few."""
    parts = [set(combinations(enumerate(c), at_once)) for c in every]
    missing, found, taken = set().union(*parts), set[tuple[int, ...]](), Counter[tuple[int, int]]()
    while missing:
        most = max(len(p & missing) for p in parts)
        best = [k for k, p in enumerate(parts) if len(p & missing) == most]
        # values that take turns are taken equally often; pairs are fewest in the order of the product
        k = min(best, key=lambda k: sum(taken[v] for v in enumerate(every[k]))) if at_once == 1 else best[0]
        missing -= parts[k]
        found.add(every[k])
        taken.update(enumerate(every[k]))
    return found


def _marked(factors: Sequence[Sequence[Any]], at_once: int) -> list[Any]:
    every = list(product(*(range(len(f)) for f in factors)))
    chosen, found = _chosen(every, at_once), []
    for numbers in every:
        values = tuple(f[k] for f, k in zip(factors, numbers, strict=True))
        found.append(pytest.param(*values, marks=() if numbers in chosen else pytest.mark.soak))
    return found


def pairs_of(*factors: Iterable[Any]) -> list[Any]:
    """The product as parameters: each run has every pair of values of different factors, and soak the others.

    Example:
        >>> [p.values for p in pairs_of("ab", [0, 1], "xy") if not p.marks]
        [('a', 0, 'x'), ('a', 1, 'y'), ('b', 0, 'y'), ('b', 1, 'x')]
    """
    return _marked([list(f) for f in factors], 2)


def turns_of(*factors: Iterable[Any]) -> list[Any]:
    """The product as parameters: each run has every value of each factor, in turn, and soak the others.

    Example:
        >>> [p.values for p in turns_of("abc", [0, 1]) if not p.marks]
        [('a', 0), ('b', 1), ('c', 0)]
    """
    return _marked([list(f) for f in factors], 1)


def take_turns(items: Iterable[pytest.Item]) -> None:
    """``turns_of`` for tests marked ``turns``, whose parameters come from several places, such as fixtures: each run has every
    value of each, in turn, and the other tests become soak."""
    families = defaultdict[tuple[Any, ...], list[Any]](list)
    for item in items:
        names = {m.name for m in item.iter_markers()}
        if "turns" in names and not names & {"soak", "skip"}:
            families[item.parent, item.originalname].append(item)  # type: ignore[attr-defined]
    for family in families.values():
        seen = defaultdict[str, list[int]](list)  # by name of a parameter: what tells its values apart
        for item in family:
            for name, value in item.callspec.params.items():
                if id(value) not in seen[name]:
                    seen[name].append(id(value))
        numbers = [tuple(seen[n].index(id(v)) for n, v in sorted(item.callspec.params.items())) for item in family]
        chosen = _chosen(numbers, 1)
        for item, combination in zip(family, numbers, strict=True):
            if combination not in chosen:
                item.add_marker("soak")
