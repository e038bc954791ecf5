"""``keep_if_faster``: whether a program is faster with the variants that were the fastest alone.

A variant is measured in a loop of its own; between other kernels, other data are in the caches. So the first calls of a tuned
program run it and the program of default kernels in turns. Every call computes once, for its caller; none is made for the
measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any
from weakref import ref

from firebrick.compiler.program.python import Begin, Executable
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.compared import Tuned

RUN = 3
"""Consecutive calls of one program. The first comes after the other program's, and does not count."""
WARM, ROUNDS = 2, 11
"""Turns of both programs: those that do not count, and those that do."""
NEAR = 0.98
"""A program keeps its variants only if it takes less than this fraction of the time without them."""
CALLS = 2 * RUN * (WARM + ROUNDS)
"""Calls after which it is decided."""


def keep_if_faster(program: Executable, tuned: Sequence[Tuned], default: Callable[[], Executable]) -> None:
    """Have the first ``CALLS`` calls of a program decide whether it keeps its variants.

    If the medians say that it is not faster by 2 %, its problems get their defaults from then on, also in other programs and
    later processes.

    Calls that raise, such as one with an index out of range, do not count.

    Args:
        program: The program.
        tuned: Its variants that are not defaults.
        default: Compiles the same graph with the default kernels.
    """
    other = default()
    if other.writes != program.writes or other.plan.ready != program.plan.ready:  # callers have prepared for those of one
        return
    run, held = program._run, ref(program)
    forms: list[Callable[[Sequence[Any], Begin | None], tuple[Any, ...]]] = [run, other]
    times: list[list[float]] = [[], []]
    calls = 0

    def measured(natives: Sequence[Any], begin: Begin | None) -> tuple[Any, ...]:
        nonlocal calls
        number = calls
        turn = number // RUN
        start = perf_counter()
        results = forms[turn % 2](natives, begin)
        took = perf_counter() - start
        if turn >= 2 * WARM and number % RUN:
            times[turn % 2].append(took)
        calls = max(calls, number + 1)  # a call that raises does not count: there is a time for each that does
        if calls >= CALLS and forms[1] is not run:
            forms[1] = run
            decided = held()
            if decided is not None:
                decided._run = run
            with_variants, with_defaults = (median(found) for found in times)
            if with_variants >= NEAR * with_defaults:
                choice.withdraw(
                    (problem for problem, _, _ in tuned),
                    f"a program took {with_variants * 1e6:.0f} µs with variants, and {with_defaults * 1e6:.0f} µs without",
                )
        return results

    program._run = measured
