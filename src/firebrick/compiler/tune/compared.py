"""``compare``: every n-th call of a program with tuned kernels runs the default kernels as well, and compares.

``collected`` finds what is tuned in a program while it is compiled, and ``untuned`` compiles it with the default kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any

import numpy as np

from firebrick.compiler.program.python import Begin, Executable
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.records import TuningWarning
from firebrick.compiler.tune.variant import KernelProblem
from firebrick.core.lines import warn

Tuned = tuple[KernelProblem, str, bool]
"""A problem, the name of the variant that computes it, and whether its bits are the default's."""
RELATIVE = 1e-3
"""Variants of another order of sums may differ by this fraction of the largest result."""
_collected: ContextVar[list[Tuned] | None] = ContextVar("tuned kernels of the program that is compiled", default=None)
_untuned: ContextVar[bool] = ContextVar("default kernels alone", default=False)


@contextmanager
def collected() -> Iterator[list[Tuned]]:
    """The variants other than defaults that ``collect`` is called with within the block."""
    found: list[Tuned] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def collect(tuned: Tuned | None) -> None:
    """Note the variant of a kernel of the program that is compiled; None for the default."""
    collecting = _collected.get()
    if collecting is not None and tuned is not None:
        collecting.append(tuned)


@contextmanager
def untuned() -> Iterator[None]:
    """Compile with the default kernels alone."""
    token = _untuned.set(True)
    try:
        yield
    finally:
        _untuned.reset(token)


def is_untuned() -> bool:
    """Whether default kernels alone are to be used."""
    return _untuned.get()


def compare(
    program: Executable, every: int, tuned: Sequence[Tuned], default: Callable[[], Executable],
    copy: Callable[[Any], Any] = np.array, to_host: Callable[[Any], Any] = np.asarray,
) -> None:  # fmt: skip
    """Have a program compare its results with those of the default kernels.

    If they differ, its variants are barred, a warning names them, and the default's results are returned.

    Args:
        program: The program.
        every: In how many calls.
        tuned: Its variants that are not defaults.
        default: Compiles the same graph with the default kernels.
        copy: Copies an array of the engine.
        to_host: The elements of such an array.
    """
    run, calls = program._run, count(1)
    same = all(bits for _, _, bits in tuned)
    made: list[Executable] = []

    def compared(natives: Sequence[Any], begin: Begin | None) -> tuple[Any, ...]:
        if next(calls) % every:
            return run(natives, begin)
        copies = [copy(x) for x in natives]  # as the program may write over its inputs
        results = run(natives, begin)
        if not made:
            made.append(default())
        expected = made[0](copies)
        wrong = [i for i, (x, y) in enumerate(zip(results, expected, strict=True)) if _differ(to_host(x), to_host(y), same)]
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


def _differ(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], same: bool) -> bool:
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
