"""Which programs to pin: few that execute every line and branch of the compiler that any candidate executes, more than once.

Candidates are emitted in a drawn order, and one is kept if it executes an arc that fewer than ``TIMES`` programs before it
did. Of those that are kept, the ones that add most for their time are chosen first, until all arcs are executed as often as by
all of them, or ``TIMES`` times.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import coverage

import firebrick
from pinned.programs import candidates, lines_of, ways_of

TIMES = 2
"""Programs that execute an arc, at least, if there are so many."""
PACKAGE = Path(firebrick.__file__).parent
FOLDERS = ("compiler", "scalar", "backends/webgpu", "backends/cpu")


@dataclass
class Executed:
    """What a program executes.

    Attributes:
        arcs: Numbers of the arcs.
        seconds: Processor time without measurement.
        size: Characters of its lines.
    """

    arcs: frozenset[int]
    seconds: float
    size: int


class Arcs:
    """Numbers of arcs."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], int] = {}
        self._measured = coverage.Coverage(
            data_file=None, branch=True, config_file=False, include=[f"{PACKAGE / f}/*" for f in FOLDERS], messages=False
        )
        self._measured._warn_no_data = False
        self._measured.start()
        self._measured.stop()

    def of(self, run: Callable[[], object]) -> frozenset[int]:
        """The arcs that a function executes: read from the collector, as coverage.py's data would take as long as the run."""
        collector: Any = self._measured._collector
        collector.reset()
        self._measured.start()
        try:
            run()
        finally:
            self._measured.stop()
        numbers = self.numbers
        return frozenset(
            numbers.setdefault((file, arc), len(numbers)) for file, arcs in collector.data.items() for arc in arcs or ()
        )


def units(seeds: int, rng: Random) -> list[str]:
    """Names of programs with a way each, in a drawn order in which families take turns."""
    families: dict[str, list[str]] = {}
    for program in candidates(seeds):
        family = program.partition(":")[0]
        families.setdefault(family, []).extend(f"{program} @ {way}" for way in ways_of(program))
    places = []
    for family, names in families.items():
        rng.shuffle(names)
        weight = 5 if family == "op" else 1
        places += [(k / weight, rng.random(), name) for k, name in enumerate(names)]
    return [name for _, _, name in sorted(places)]


def choose(
    given: Iterable[str], seconds: float, kept: Iterable[str] = (), slowest: float = 0.6
) -> tuple[list[str], dict[str, Executed], Arcs]:
    """The programs to pin.

    Args:
        given: Names of candidates, in the order in which they are tried.
        seconds: Processor time after which no more are tried.
        kept: Programs that are chosen in any case.
        slowest: Seconds that a further program may take.
    """
    arcs, counts, executed = Arcs(), Counter[int](), {}
    begun = process_time()
    before = list(kept)
    for n, unit in enumerate([*before, *given]):
        if process_time() - begun > seconds and n >= len(before):
            break
        if unit in executed:
            continue
        begin = process_time()
        try:
            lines = lines_of(unit)
        except Exception as e:  # noqa: BLE001 - what raises is not pinned, and is shown
            print(f"{unit}: {e!r:.200}", file=sys.stderr)
            continue
        took = process_time() - begin
        if took > slowest and unit not in before:
            continue
        found = arcs.of(lambda unit=unit: lines_of(unit))  # type: ignore[misc]
        if unit in before or any(counts[a] < TIMES for a in found):
            counts.update(found)
            executed[unit] = Executed(found, took, sum(len(line) + 1 for line in lines))
        if n % 500 == 0:
            print(f"{n} tried, {len(executed)} kept, {len(arcs.numbers)} arcs, {process_time() - begun:.0f} s", file=sys.stderr)
    return covering(executed, before), executed, arcs


def covering(executed: dict[str, Executed], first: list[str]) -> list[str]:
    """Programs that together execute all arcs, ``TIMES`` times if there are so many that do."""
    wanted = Counter(a for e in executed.values() for a in e.arcs)
    left = Counter({a: min(n, TIMES) for a, n in wanted.items()})
    chosen: list[str] = []

    def take(unit: str) -> None:
        chosen.append(unit)
        for a in executed[unit].arcs:
            if left[a] > 0:
                left[a] -= 1

    for unit in first:
        if unit in executed:
            take(unit)

    def value(unit: str) -> float:
        e = executed[unit]
        return sum(left[a] > 0 for a in e.arcs) / (e.seconds + 0.01 + e.size / 40_000)

    waiting = {u: value(u) for u in executed if u not in set(chosen)}
    while waiting:  # a value only falls, so the first whose value is still the largest is the best
        best = max(waiting, key=lambda u: waiting[u])
        now = value(best)
        if now == 0:
            del waiting[best]
        elif now < waiting[best]:
            waiting[best] = now
        else:
            del waiting[best]
            take(best)
    return chosen
