"""``search``: tries the variants of a problem. Each is checked first, in a process of its own; those that passed are timed.

A wrong, crashing or hanging variant is barred, and a report of it is written. Samples are interleaved and medians compared. Of
variants within 3 % of each other the first wins, as variants are listed from the most general to the most special one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Protocol

from firebrick.compiler.tune.bug_reports import write_report
from firebrick.compiler.tune.progress import progress
from firebrick.compiler.tune.records import Record, TuningWarning
from firebrick.compiler.tune.variant import DEFAULT, KernelProblem, KernelVariant
from firebrick.core.lines import warn

NEAR = 0.97
"""A variant wins only with less than this fraction of another's time."""
FAR = 0.75
"""A variant that takes longer than the fastest divided by this, in a few samples, is not measured further."""
PEAK = 0.9
"""The search ends when a variant has this fraction of the speed that the device allows."""
ROUNDS = 11
MOST = 28
"""Maximum number of variants that are tried for a problem, those of the lowest estimated time."""


class Bench(Protocol):
    """What an engine does to try variants, apart from this process."""

    def check(self, variant: KernelVariant) -> str:
        """Run a variant and compare its results; what is wrong, or an empty text."""
        ...

    def times(self, variants: Sequence[KernelVariant], rounds: int) -> dict[str, list[float]] | str:
        """Microseconds of some rounds, in each of which every variant runs once, by names; or the name of a variant that did
        not return."""
        ...

    @property
    def bound_us(self) -> float:
        """The shortest time that the device's memory and arithmetic allow; 0 if not known."""
        ...

    def source(self, variant: KernelVariant) -> str:
        """The code of a variant, for reports."""
        ...


def search(problem: KernelProblem, variants: Sequence[KernelVariant], bench: Bench, known: Mapping[str, str]) -> Record:
    """Find the fastest variant that computes a problem as its reference does.

    Args:
        problem: The problem.
        variants: Variants that are valid for it; the first is the default.
        bench: Runs them.
        known: Variants that are barred already, with reasons.

    Returns:
        The record. Without a default that passes the check, it chooses the default, and says why in ``barred``.
    """
    default, *others = variants
    barred: dict[str, str] = {}
    record = Record(problem.id, problem.structure, problem.text, DEFAULT, DEFAULT, {}, barred)
    fit = [v for v in sorted(others, key=lambda v: v.cost_us) if v.name not in known][:MOST]
    others = [v for v in others if v in fit]
    with progress(f"tuning {problem.text}", len(others) + 2) as advance:
        reason = bench.check(default)
        advance()
        if reason:
            warn(
                f"the default kernel of {problem.text} could not be checked, and its variants are not tried: {reason}",
                TuningWarning,
            )
            barred[DEFAULT] = reason
            return record
        passed = [default]
        quick = bench.times(passed, 3)
        best = float("inf")
        if isinstance(quick, dict):
            best = record.times[DEFAULT] = median(quick[DEFAULT])
        for v in sorted(others, key=lambda v: v.cost_us):
            if best * PEAK <= bench.bound_us:
                break
            reason = bench.check(v)
            advance()
            if reason:
                barred[v.name] = reason
                _report(problem, v, reason, bench)
                continue
            passed.append(v)
            quick = bench.times([v], 3)
            if isinstance(quick, dict):
                record.times[v.name] = median(quick[v.name])
                best = min(best, record.times[v.name])
        slow = {name for name, us in record.times.items() if us * FAR > best and name != DEFAULT}
        passed = [v for v in variants if v in passed and v.name not in slow]
        while len(passed) > 1:
            samples = bench.times(passed, ROUNDS)
            if isinstance(samples, dict):
                record.times |= {name: median(found) for name, found in samples.items()}
                break
            if samples == DEFAULT:  # which is right, so this machine is too busy to measure
                passed = [default]
                break
            hung = next(v for v in passed if v.name == samples)
            barred[samples] = reason = "it did not return, after it had passed the check"
            _report(problem, hung, reason, bench)
            passed.remove(hung)
        advance()
    record.choice = _fastest([v for v in passed if v.order == default.order], record.times)
    record.any_order = _fastest(passed, record.times)
    return record


def _fastest(variants: Sequence[KernelVariant], times: dict[str, float]) -> str:
    """The first of the variants whose times are near the shortest."""
    measured = [v.name for v in variants if v.name in times]
    shortest = min((times[name] for name in measured), default=0.0)
    return next((name for name in measured if times[name] * NEAR <= shortest), DEFAULT)


def _report(problem: KernelProblem, variant: KernelVariant, reason: str, bench: Bench) -> None:
    path = write_report(problem, variant.name, reason, bench.source(variant))
    where = f"; report: {path}" if path else ""
    warn(f"variant {variant.name!r} of {problem.text} is barred: {reason}{where}", TuningWarning)
