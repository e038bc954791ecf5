"""``compare``: every n-th call of a program with tuned kernels runs the default kernels as well, and compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from firebrick.compiler import Begin, Executable
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.records import TuningWarning
from firebrick.compiler.tune.variant import KernelProblem
from firebrick.core.lines import warn

Tuned = tuple[KernelProblem, str, bool]
"""A problem, the name of the variant that computes it, and whether its bits are the default's."""
RELATIVE = 1e-3
"""Variants of another order of sums may differ by this fraction of the largest result."""


def compare(program: Executable, every: int, tuned: Sequence[Tuned], default: Callable[[], Executable]) -> None:
    """Have a program compare its results with those of the default kernels.

    If they differ, its variants are barred, a warning names them, and the default's results are returned.

    Args:
        program: The program.
        every: In how many calls.
        tuned: Its variants that are not defaults.
        default: Compiles the same graph with the default kernels.
    """
    run, calls = program._run, count(1)
    same = all(bits for _, _, bits in tuned)
    made: list[Executable] = []

    def compared(natives: Sequence[Any], begin: Begin | None) -> tuple[Any, ...]:
        if next(calls) % every:
            return run(natives, begin)
        copies = [np.array(x) for x in natives]  # as the program may write over its inputs
        results = run(natives, begin)
        if not made:
            made.append(default())
        expected = made[0](copies)
        wrong = [i for i, (x, y) in enumerate(zip(results, expected, strict=True)) if _differ(x, y, same)]
        if not wrong:
            return results
        for problem, name, _ in tuned:
            choice.bar(problem, name, f"output {wrong[0]} of a program with it differed from the default kernels'")
        names = "; ".join(f"{name!r} of {problem.text}" for problem, name, _ in tuned)
        warn(
            f"tuned kernels were wrong, and are barred: output {wrong[0]} differs from the default kernels', whose results "
            f"are used now. In this program: {names}",
            TuningWarning,
        )
        return expected

    program._run = compared


def _differ(x: Any, y: Any, same: bool) -> bool:
    x, y = np.asarray(x), np.asarray(y)
    if x.tobytes() == y.tobytes():
        return False
    with np.errstate(all="ignore"):
        if x.dtype.kind in "biu":
            return bool((x != y).any())
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        a, b = x.astype(wide), y.astype(wide)
        if same:
            return not np.array_equal(a, b, equal_nan=True)
        if (np.isfinite(a) != np.isfinite(b)).any():
            return True
        finite = np.isfinite(a)
        far = np.abs(a - b)[finite].max(initial=0.0)
        return bool(far > RELATIVE * np.abs(b)[finite].max(initial=0.0))
