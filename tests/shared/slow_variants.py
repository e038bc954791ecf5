"""Variants that seem the fastest alone, and programs that take a given time with them and without."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from firebrick.compiler.tune import whole_programs
from firebrick.compiler.tune.records import Record
from firebrick.compiler.tune.variant import KernelProblem, KernelVariant


def chosen_in_trial(monkeypatch: pytest.MonkeyPatch, name: str = "threads=1") -> None:
    """Have every search find that a variant is the fastest."""

    def found(problem: KernelProblem, variants: Sequence[KernelVariant], *_: object) -> Record:
        names = [v.name for v in variants]
        return Record(problem.id, problem.structure, problem.text, name if name in names else names[0])

    monkeypatch.setattr("firebrick.compiler.tune.searching.search", found)


def take_turns(monkeypatch: pytest.MonkeyPatch, with_variants: float, with_defaults: float) -> None:
    """Have the first calls of tuned programs seem to take these times, in seconds; the first of each turn takes longer."""
    asked = 0

    def clock() -> float:
        nonlocal asked
        call, end = divmod(asked, 2)
        asked += 1
        turn, first = call // whole_programs.RUN, call % whole_programs.RUN == 0
        return end * ((with_defaults if turn % 2 else with_variants) + first)

    monkeypatch.setattr(whole_programs, "perf_counter", clock)
