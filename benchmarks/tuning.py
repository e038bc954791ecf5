"""``python -m benchmarks.tuning``: what the autotuner gains: programs with default kernels beside those with tuned kernels.

The programs are the training steps and the inference of the networks of the benchmarks. Each is tuned first, by default with an
empty store: the seconds and the number of kernels that this took stand beside. *tuned* has kernels with the bits of the
defaults, *tuned, any order* those with other bits too (``deterministic`` off).
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import measure
from benchmarks.models import NETWORKS
from benchmarks.work import Work

CONTENDERS: dict[str, dict[str, Any]] = {
    "default kernels": {"tune": "off"},
    "firebrick, tuned": {"tune": "cached"},
    "firebrick, tuned, any order": {"tune": "cached", "deterministic": False},
}
"""Settings of each contender."""


def _program(work: Work) -> Callable[[], Any]:
    from benchmarks import ours

    if work.kind == "inference":
        predict, x = ours.inference(work)
        return lambda: predict(x)
    step, x, y = ours.training(work)
    return lambda: step(x, y)


def _bound(program: Callable[[], Any], settings: dict[str, Any]) -> Callable[[], Any]:
    import firebrick as fb

    def run() -> Any:
        with fb.config.scope(**settings):
            return program()

    return run


def compared(work: Work, rounds: int, calls: int, any_order: bool) -> measure.Result:
    """One program, tuned and not.

    Args:
        work: What it computes.
        rounds: Interleaved rounds.
        calls: Calls in a round.
        any_order: Whether kernels with other bits compete too.
    """
    import firebrick as fb
    from firebrick.compiler.tune import choice
    from firebrick.compiler.tune.whole_programs import CALLS

    before, start = {c.problem.id for c in choice.choices()}, perf_counter()
    for deterministic in (True, False) if any_order else (True,):
        with fb.config.scope(tune="on", deterministic=deterministic):
            program = _program(work)
            for _ in range(CALLS + 2):  # after which the whole program has decided on its variants
                program()
    took = perf_counter() - start
    contenders = {
        name: _bound(_program(work), settings)
        for name, settings in CONTENDERS.items()
        if any_order or settings.get("deterministic", True)
    }
    result = measure.interleaved(work.name, contenders, calls, rounds)
    new = [c for c in choice.choices() if c.problem.id not in before]
    other = sum(c.variant != "default" for c in new)
    result.notes["tuning"] = f"{took:.0f} s, {len(new)} kernels, {other} of them not the default"
    return result


def works(only: list[str], threads: int) -> list[Work]:
    """Training at each network's first batch, where it has one, and inference at 32."""
    found = []
    for name, net in NETWORKS.items():
        for kind, batch in [*(("training", batch) for batch in net.batches[:1]), ("inference", 32)]:
            label = f"{kind} {name}, batch {batch}"
            if not only or any(text in label for text in only):
                found.append(Work(label, kind, name, batch, threads, arrays=net.arrays()))
    return found


def main() -> None:
    """Measure, print and write."""
    p = argparse.ArgumentParser("python -m benchmarks.tuning", description=(__doc__ or "").partition("\n\n")[2])
    p.add_argument("--rounds", type=int, default=25, help="interleaved rounds (25)")
    p.add_argument("--calls", type=int, default=5, help="calls in a round (5)")
    p.add_argument("--threads", type=int, default=2, help="threads (2)")
    p.add_argument("--only", nargs="*", default=[], help="parts of names")
    p.add_argument("--any-order", action="store_true", help="also kernels with other bits")
    p.add_argument("--json", default="benchmarks/results/tuning.json", help="file to write")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["FIREBRICK_CACHE_DIR"] = home
        os.environ["FIREBRICK_NUM_THREADS"] = str(args.threads)
        import firebrick as fb

        fb.config.load_environment()
        print(f"{args.rounds} rounds of {args.calls} calls, {args.threads} threads, load {measure.load()}")
        found = [compared(w, args.rounds, args.calls, args.any_order) for w in works(args.only, args.threads)]
        measure.report(found, args.json)
        for r in found:
            print(f"{r.name}: {r.notes['tuning']}")
        stored = sum(f.stat().st_size for f in Path(home).rglob("*") if f.is_file())
        print(f"all records and objects: {stored / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
