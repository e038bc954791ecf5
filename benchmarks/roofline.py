"""What the machine can do, measured: products of matrices by the best library at hand, and copies, for a number of threads.

The time of a piece of work at these rates is the larger of: operations of its products at the rate of the best product, and
the bytes that it must read and write at the rate of copying. Small data stay in the caches, so that copies are measured in
several sizes, and work is held to the rate of the size that holds it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.work import Work
from benchmarks.worker import Contender, ContenderError

SIDES = (768, 1536)
"""Of the squares that are multiplied."""
COPIED = (1 << 15, 1 << 18, 1 << 21, 1 << 24)
"""Elements of float32 that are copied."""
ROUNDS = 9


@dataclass
class Rates:
    """Measured rates: ``gemm[threads]`` in operations a second, ``copy[threads][bytes]`` in bytes read and written a second."""

    gemm: dict[int, float] = field(default_factory=dict)
    copy: dict[int, dict[int, float]] = field(default_factory=dict)
    by: dict[int, str] = field(default_factory=dict)

    def seconds(self, flops: float, nbytes: float, threads: int) -> tuple[float, str]:
        """The least time of work at these rates, and which of them it is: "products" or "bytes"."""
        rates = self.copy[threads]
        held = next((rate for size, rate in sorted(rates.items()) if size >= nbytes), rates[max(rates)])
        by_products, by_bytes = flops / self.gemm[threads], nbytes / held
        return max((by_products, "products"), (by_bytes, "bytes"))

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"gemm": self.gemm, "gemm by": self.by, "copy": self.copy}


def measured(contenders: Iterable[Contender], threads: Iterable[int]) -> Rates:
    """Measure the rates; the best contender's product and copy count, by the median of its rounds."""
    rates, contenders, fewer = Rates(), list(contenders), 0
    for t in sorted(threads):
        best: list[tuple[float, str]] = []
        for side in SIDES:
            work = Work(f"product of {side}", "products", shape=(side,) * 3, threads=t)
            best += [(seconds / side**3, name) for name, seconds in _medians(work, contenders).items()]
        quickest, rates.by[t] = min(best)
        rates.gemm[t] = 2.0 / quickest
        rates.copy[t] = {}
        for n in COPIED:
            work = Work(f"copy of {n}", "copy", shape=(n,), threads=t)
            rates.copy[t][8 * n] = 8 * n / min(_medians(work, contenders).values())
        if fewer:  # who may use more threads may use fewer
            if rates.gemm[fewer] > rates.gemm[t]:
                rates.gemm[t], rates.by[t] = rates.gemm[fewer], rates.by[fewer]
            rates.copy[t] = {size: max(rate, rates.copy[fewer][size]) for size, rate in rates.copy[t].items()}
        fewer = t
    return rates


def _medians(work: Work, contenders: list[Contender]) -> dict[str, float]:
    """Seconds of each contender that can do the work."""
    found = {}
    for c in contenders:
        try:
            form = c.prepare(work).get("")
            if form is None or form.error:
                continue
            c.choose("")
            calls = max(1, int(0.05 / form.seconds))
            found[c.name] = statistics.median(c.turn(calls) for _ in range(ROUNDS))
            c.drop()
        except ContenderError:
            continue
    if not found:
        raise ContenderError(f"nobody could do: {work.name}")
    return found
