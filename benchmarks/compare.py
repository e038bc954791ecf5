"""Contenders side by side: the same work from the same parameters, checked to be the same, then timed in turn.

A contender's time is the median of its rounds. A target reads: time ≤ max(ratio · best peer, roofline / 0.85).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.roofline import Rates
from benchmarks.work import Work
from benchmarks.worker import Contender, ContenderError, Form, quickest

OURS = "firebrick"
ROUND = 0.08
"""Seconds that a contender's turn takes, about."""
SAME = {"training": 5e-4, "inference": 2e-4, "rows": 2e-4, "products": 1e-4}
"""How much results may differ, against the largest element: losses of later steps carry the rounding of earlier ones."""
REACHED = 0.85
"""Share of the roofline that counts as reaching it."""


@dataclass
class Timed:
    """One contender at one piece of work: the form that was taken, seconds a call in each round, or why there are none."""

    form: str = ""
    seconds: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else float("nan")

    def quartiles(self) -> tuple[float, float]:
        """The first and the third."""
        if len(self.seconds) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return low, high


@dataclass
class Compared:
    """A piece of work and what each contender needed.

    Attributes:
        name: Of the work.
        kind: Of the work.
        threads: Threads of each contender.
        ratio: Target against the best peer, if there is one.
        timed: Each contender.
        facts: Operations of products and least bytes of one call.
        roofline: Seconds that a call takes at the machine's measured rates.
        bound: Which rate gives that time.
        limit: Seconds that meet the target.
    """

    name: str
    kind: str
    threads: int
    ratio: float | None
    timed: dict[str, Timed]
    facts: dict[str, float] = field(default_factory=dict)
    roofline: float | None = None
    bound: str = ""
    limit: float | None = None

    @property
    def best(self) -> str | None:
        """The quickest peer."""
        peers = [n for n, t in self.timed.items() if n != OURS and t.seconds]
        return min(peers, key=lambda n: self.timed[n].median) if peers else None

    @property
    def against(self) -> float | None:
        """Our time as a multiple of the best peer's."""
        if self.best is None or OURS not in self.timed or not self.timed[OURS].seconds:
            return None
        return self.timed[OURS].median / self.timed[self.best].median

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.limit is None:
            return None
        ours = self.timed[OURS]
        return bool(ours.seconds) and ours.median <= self.limit

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name, "kind": self.kind, "threads": self.threads, "ratio": self.ratio, "facts": self.facts,
            "roofline": self.roofline, "bound": self.bound, "limit": self.limit, "best": self.best, "against": self.against,
            "met": self.met,
            "contenders": {
                n: {"form": t.form, "median": t.median, "quartiles": t.quartiles(), "seconds": t.seconds}
                if t.seconds
                else {"error": t.error}
                for n, t in self.timed.items()
            },
        }  # fmt: skip


def differs(found: Sequence[Sequence[np.ndarray[Any, Any]]], wanted: Sequence[Sequence[np.ndarray[Any, Any]]]) -> float:
    """The largest difference of results, against the largest element of each; inf for other shapes and values not finite."""
    worst = 0.0
    if len(found) != len(wanted) or any(len(a) != len(b) for a, b in zip(found, wanted, strict=False)):
        return float("inf")
    for a, b in ((a, b) for f, w in zip(found, wanted, strict=True) for a, b in zip(f, w, strict=True)):
        if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
            return float("inf")
        if a.size:
            worst = max(worst, float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-30)))
    return worst


def compare(work: Work, contenders: Iterable[Contender], rounds: int, rates: Rates | None = None) -> Compared:
    """Prepare, check and time a piece of work; a contender that fails is a line that says so."""
    contenders = list(contenders)
    timed = {c.name: Timed() for c in contenders}
    same = _agreed(work, contenders, timed)
    calls = {}
    for c in same:
        c.choose(timed[c.name].form)
    for c in list(same):
        try:
            one = min(c.turn(1) for _ in range(2))
            calls[c.name] = max(1, min(5000, int(ROUND / one)))
        except ContenderError as e:
            timed[c.name].error = str(e)
            same.remove(c)
    for _ in range(rounds):
        for c in list(same):
            try:
                timed[c.name].seconds.append(c.turn(calls[c.name]))
            except ContenderError as e:
                timed[c.name] = Timed(error=str(e))
                same.remove(c)
    found = Compared(work.name, work.kind, work.threads, work.ratio, timed)
    _judge(found, work, same, rates)
    for c in same:
        c.drop()
    return found


def _agreed(work: Work, contenders: list[Contender], timed: dict[str, Timed]) -> list[Contender]:
    """The contenders whose results agree, each in its quickest form; the first peer that works is the reference."""
    checked = work if not work.dropout else Work(**{**vars(work), "dropout": 0.0})
    reference: list[list[np.ndarray[Any, Any]]] | None = None
    same = []
    for c in sorted(contenders, key=lambda c: (c.name == OURS, contenders.index(c))):
        try:
            forms = c.prepare(checked)
            reference = reference or next((f.results for f in forms.values() if f.results), None)
            good = {n: f for n, f in forms.items() if not _wrong(f, reference, work)}
            if not good:
                timed[c.name].error = "; ".join(
                    f"{n + ': ' if n else ''}{_wrong(f, reference, work)}" for n, f in forms.items()
                )
                continue
            if work.dropout:  # each draws masks of its own, so that results were compared without them
                good = c.prepare(work)
            timed[c.name].form = quickest(good)
            same.append(c)
        except ContenderError as e:
            timed[c.name].error = str(e)
    return [c for c in contenders if c in same]


def _wrong(form: Form, reference: list[list[np.ndarray[Any, Any]]] | None, work: Work) -> str:
    """Why a form is not timed; empty if it is."""
    if form.error:
        return form.error
    if reference is not None and (by := differs(form.results, reference)) > SAME[work.kind]:
        return f"results differ by {by:.1e}"
    return ""


def _judge(found: Compared, work: Work, same: list[Contender], rates: Rates | None) -> None:
    """Fill in the roofline and the target."""
    ours = next((c for c in same if c.name == OURS), None)
    if ours is not None:
        try:
            found.facts = ours.facts()
        except ContenderError as e:
            found.timed[OURS].error = f"no count of operations: {e}"
    if rates is not None and found.facts:
        found.roofline, found.bound = rates.seconds(found.facts["flops"], found.facts["bytes"], work.threads)
    if work.share is not None and found.roofline is not None:
        found.limit = found.roofline / work.share
    elif work.ratio is not None and found.best is not None:
        found.limit = max(work.ratio * found.timed[found.best].median, (found.roofline or 0.0) / REACHED)


HEAD = f"{'work':<34} {'contender':<15} {'median':>10} {'quartiles':>21} {'× best':>7} {'× roof':>7}  form"


def lines(found: Compared) -> list[str]:
    """A piece of work as lines of a table."""
    out = []
    best = found.timed[found.best].median if found.best else None
    for name, t in found.timed.items():
        if not t.seconds:
            out.append(f"{found.name:<34} {name:<15} {t.error}")
            continue
        low, high = t.quartiles()
        ratio = f"{t.median / best:7.2f}" if best else " " * 7
        roof = f"{t.median / found.roofline:7.1f}" if found.roofline else " " * 7
        spread = f"{duration(low)} – {duration(high)}"
        out.append(f"{found.name:<34} {name:<15} {duration(t.median):>10} {spread:>21} {ratio} {roof}  {t.form}")
    if found.limit is not None:
        of = f"{found.ratio} × best peer" if found.ratio is not None else "a share of the rate of copying"
        out.append(f"    target {duration(found.limit)} ({of}): {'met' if found.met else 'NOT MET'}")
    return out


def duration(seconds: float) -> str:
    """Seconds for people: three digits, and µs, ms or s."""
    for unit, of in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * of:
            return f"{seconds / of:.3g} {unit}"
    return f"{seconds:.3g} s"
