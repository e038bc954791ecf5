"""``python -m benchmarks.revisions OLD``: this source tree beside another one of Firebrick, on the same work in one run.

Each tree runs in a process of its own, in turns whose order changes from round to round. The figure is the median of the
rounds' ratios, this tree's time by the other's, with the interval in which the true median is with 95 % confidence.

    git worktree add ../before REVISION
    python -m benchmarks.revisions ../before --only train --rounds 40
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from math import comb
from pathlib import Path
from typing import Any

from benchmarks.__main__ import confine

ROUND = 0.1
"""Seconds of a turn, about."""
LIMIT = 1.03
"""Ratios above this one are marked, if their whole interval is."""


def interval(values: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """The values between which the median of the distribution is, by the binomial distribution of signs."""
    ordered, n = sorted(values), len(values)
    outside, k = 0.0, 0
    while k < n // 2 and outside + 2 * comb(n, k) / 2**n <= 1 - confidence:
        outside += 2 * comb(n, k) / 2**n
        k += 1
    return ordered[max(k - 1, 0)], ordered[min(n - k, n - 1)]


def compared(work: Any, trees: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Ratios of a piece of work, and the seconds of its first call."""
    first: dict[str, float] = {}
    for name, contender in trees.items():
        first[name] = contender.first_calls(work, "")
        contender.prepare(work)
        contender.choose("")
    calls = max(1, int(ROUND / max(c.turn(1) for c in trees.values())))
    times: dict[str, list[float]] = {name: [] for name in trees}
    for number in range(rounds):
        for name in sorted(trees, reverse=bool(number % 2)):
            times[name].append(trees[name].turn(calls))
    for contender in trees.values():
        contender.drop()
    ratios = [new / old for new, old in zip(times["new"], times["old"], strict=True)]
    low, high = interval(ratios)
    return {
        "work": work.name, "ratio": statistics.median(ratios), "low": low, "high": high, "rounds": rounds,
        "seconds": {name: statistics.median(t) for name, t in times.items()}, "compile": first,
    }  # fmt: skip


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser("python -m benchmarks.revisions", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("old", type=Path, help="root of the other source tree")
    parser.add_argument("--only", nargs="+", default=["train"], metavar="NAME", help="names, or their beginnings (train)")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--processor", action="store_true", help="seconds of the threads on processors: steadier beside other work (one thread)"
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/revisions.json"))
    args = parser.parse_args()
    if args.processor:
        args.threads = 1
    confine(args.threads)
    from benchmarks.models import NETWORKS
    from benchmarks.worker import PROCESSOR, Contender
    from benchmarks.workloads import everything

    old = args.old.resolve() / "src"
    if not (old / "firebrick").is_dir():
        parser.error(f"{args.old} is not the root of a source tree: it has no src/firebrick")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        trees = {
            name: Contender(
                "firebrick", {"FIREBRICK_CACHE_DIR": os.path.join(folder, name), PROCESSOR: "1" * args.processor}, str(path)
            )
            for name, path in (("old", old), ("new", Path(__file__).resolve().parents[1] / "src"))
        }
        print(f"{'work':<40} {'ratio':>6} {'95 % of the median':>20} {'ms':>9} {'compile, s: old':>16} {'new':>6}")
        try:
            for work in everything(args.threads):
                if not any(work.name.startswith(o) for o in args.only):
                    continue
                if work.model in NETWORKS:
                    work.arrays = NETWORKS[work.model].arrays()
                row = compared(work, trees, args.rounds)
                found.append(row)
                mark = "  slower" if row["low"] > LIMIT else ""
                print(
                    f"{row['work']:<40} {row['ratio']:>6.3f} {row['low']:>10.3f}–{row['high']:<9.3f} "
                    f"{row['seconds']['new'] * 1e3:>9.3f} {row['compile']['old']:>16.2f} {row['compile']['new']:>6.2f}{mark}",
                    flush=True,
                )
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
        finally:
            for contender in trees.values():
                contender.close()


if __name__ == "__main__":
    main()
