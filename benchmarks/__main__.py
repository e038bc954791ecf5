"""``python -m benchmarks``: Firebrick beside PyTorch (eager and compiled) and JAX on the same work in one run.

Prints a table and writes JSON. ``--list`` names what there is, ``--only`` chooses from it, ``--write-docs`` puts the figures
of a JSON file into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

AFTER = ("compile", "memory", "taken core")
"""What is measured in processes of its own, by name."""
PEERS = {"torch": "torch", "torch.compile": "torch", "jax.jit": "jax"}
"""Contenders, and the package that each needs."""
EAGER = ("firebrick", "torch")
"""Contenders of work that is not compiled."""
BUSY = 0.5
"""Load above which a run says that the machine is not free."""
ENGINES = "engines"
"""The training steps of ``benchmarks.steps``."""


def _arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    p = argparse.ArgumentParser("python -m benchmarks", description=(__doc__ or "").partition("\n\n")[2])
    p.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names, or their beginnings")
    p.add_argument("--list", action="store_true", help="print the names")
    p.add_argument("--rounds", type=int, default=15, help="rounds of each piece of work (15)")
    p.add_argument("--threads", type=int, default=cores, help=f"threads, and cores, of each contender ({cores})")
    p.add_argument("--json", type=Path, default=Path("benchmarks/results/latest.json"), help="file to write")
    p.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS, help="contenders beside Firebrick (all)")
    p.add_argument("--no-compile-peers", action="store_true", help="leave torch.compile and jax.jit out")
    p.add_argument("--write-docs", type=Path, metavar="JSON", help="measure nothing: put figures into docs/performance.md")
    return p.parse_args()


def confine(threads: int) -> None:
    """This process, and those that it starts, to so many cores and threads; before any library is imported."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FIREBRICK_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["JAX_PLATFORMS"] = "cpu"


def main() -> int:
    """Run what was asked for."""
    args = _arguments()
    if args.write_docs:
        from benchmarks.document import write

        write(args.write_docs, Path("docs/performance.md"))
        return 0
    confine(args.threads)
    from benchmarks.overhead import OVERHEAD
    from benchmarks.workloads import everything

    work = everything(args.threads)
    names = [*(w.name for w in work), *AFTER, *OVERHEAD, ENGINES]
    chosen = [n for n in names if not args.only or any(n.startswith(o) for o in args.only)]
    if args.list or not chosen:
        print("\n".join(names))
        return 0 if args.list else 2
    _run(args, [w for w in work if w.name in chosen], chosen)
    return 0


def _run(args: argparse.Namespace, work: list[Any], chosen: list[str]) -> None:
    """Measure, print and write; the file is written again after every piece of work, so that a run cut off is not lost."""
    from benchmarks import measure, processes, steps
    from benchmarks.compare import HEAD, compare, lines
    from benchmarks.models import NETWORKS
    from benchmarks.overhead import OVERHEAD
    from benchmarks.roofline import measured
    from benchmarks.worker import Contender

    names = ["firebrick"]
    for peer in args.peers:
        if not find_spec(PEERS[peer]):
            print(f"{peer} is left out: {PEERS[peer]} is not installed")
        elif peer == "torch" or not args.no_compile_peers:
            names.append(peer)
    contenders = {n: Contender(n) for n in [*names, "numpy"]}
    record: dict[str, Any] = {
        "machine": measure.machine(), "threads": args.threads, "rounds": args.rounds, "load": measure.load(),
        "begun": time.strftime("%Y-%m-%d %H:%M:%S"),
    }  # fmt: skip

    def save() -> None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(record, indent=1), encoding="utf-8")

    def show(text: list[str]) -> None:
        print("\n".join(text), flush=True)

    show([measure.described(record["machine"]), f"{args.threads} threads, {args.rounds} rounds, load {record['load']}"])
    if record["load"] > BUSY:
        show(["Other processes compute on this machine: neither the roofline nor the verdicts are to be relied on."])
    try:
        if work:
            probes = [contenders[n] for n in ("firebrick", "torch", "numpy") if n in contenders]
            counts = sorted({1, args.threads})
            rates = measured(probes, counts)
            record["rates"] = rates.record()
            for t in counts:
                copies = ", ".join(f"{size >> 10} KiB {rate / 1e9:.0f}" for size, rate in rates.copy[t].items())
                show(
                    [f"roofline, {t} thread{'s' * (t > 1)}: {rates.gemm[t] / 1e9:.0f} GFLOP/s ({rates.by[t]}); GB/s: {copies}"]
                )
            show([HEAD])
        record["work"] = []
        for w in work:
            if w.model in NETWORKS:
                w.arrays = NETWORKS[w.model].arrays()
            if w.share is not None:
                rates = measured(probes, [args.threads])  # what the target is a share of, at the same time
            found = compare(w, [contenders[n] for n in names if not w.eager or n in EAGER], args.rounds, rates)
            show(lines(found))
            record["work"].append(found.record() | {"load": measure.load()})
            save()
        if "compile" in chosen:
            record["compile"] = processes.compiling(args.threads, tuple(n for n in processes.COMPILED if n in names))
            show(processes.summary("compile, transformer step, s", record["compile"]))
        if "memory" in chosen:
            record["memory"] = processes.memory(args.threads, tuple(names))
            for what, found_ in record["memory"].items():
                show(processes.summary(f"memory, {what}", found_))
        if "taken core" in chosen:
            record["taken core"] = processes.taken_core([contenders[n] for n in names], args.threads, args.rounds)
            for what, found_ in record["taken core"].items():
                show(processes.summary(f"a core taken, {what}, s", found_))
    finally:
        for c in contenders.values():
            c.close()
        save()
    results = [OVERHEAD[n]() for n in chosen if n in OVERHEAD]
    results += steps.steps(bool(find_spec("torch"))) if ENGINES in chosen else []
    if results:
        show([measure.HEAD, *(line for r in results for line in measure.described_result(r))])
        record["overhead"] = [asdict(r) for r in results]
    save()
    print(f"written to {args.json}")


if __name__ == "__main__":
    sys.exit(main())
