"""``python -m benchmarks.scaling``: what a training step over P processes takes, measured, and predicted by a model.

A step over P ranks is the computation of a rank's rows, then the notes, then the reduction of its gradients in buckets, then
the update:

    T(P) = compute + update + notes(P) + Σ over buckets (latency(P) + 2 (P - 1) / P · bytes / bandwidth)
    latency(P) = a + b (P - 1)

a, b and the bandwidth are fitted to ``all_reduce`` of several sizes over 2, 3 and 4 processes of this host. The prediction is
then held against steps of ``Distributed`` over 2 and 4 processes, whose computation sleeps so that the cores of one host do not
stand in for those of several.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

SIZES = (1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24)
"""Bytes of the reductions that the model is fitted to."""
RANKS = (2, 3, 4)
SLEEP = 0.03
"""Seconds that stand for the computation of a step."""
WIDTHS = (256, 1024)
"""Widths of the dense layers whose steps are predicted."""


@dataclass(frozen=True)
class Network:
    """What connects the ranks.

    Attributes:
        base: Seconds of an operation, whatever the ranks.
        message: Seconds more for each further rank.
        bandwidth: Bytes a second of a rank, in each direction.
    """

    base: float
    message: float
    bandwidth: float

    def latency(self, ranks: int) -> float:
        """Seconds of an operation that carries nothing."""
        return self.base + self.message * (ranks - 1)

    def reduction(self, ranks: int, nbytes: float) -> float:
        """Seconds of an ``all_reduce``."""
        return self.latency(ranks) + 2 * (ranks - 1) / ranks * nbytes / self.bandwidth if ranks > 1 else 0.0

    def step(self, ranks: int, compute: float, nbytes: float, bucket: float = 1 << 24) -> float:
        """Seconds of a training step whose gradients have so many bytes; ``compute`` covers the update."""
        if ranks == 1:
            return compute
        full, rest = divmod(nbytes, bucket)
        buckets = full * self.reduction(ranks, bucket) + (self.reduction(ranks, rest) if rest else 0.0)
        return compute + self.latency(ranks) + buckets


HYPOTHETICAL = {
    "25 GbE": Network(1e-4, 2e-5, 2.5e9),
    "200 Gb/s InfiniBand": Network(3e-5, 3e-6, 2e10),
}
"""Networks that the model is asked about: stated, not measured."""


def fitted(found: dict[tuple[int, int], float]) -> Network:
    """The network that explains times of reductions by (ranks, bytes), by least squares of relative errors."""
    rows, times = [], []
    for (ranks, nbytes), seconds in found.items():
        rows.append(np.array([1.0, ranks - 1, 2 * (ranks - 1) / ranks * nbytes]) / seconds)
        times.append(1.0)
    base, message, inverse = np.linalg.lstsq(np.array(rows), np.array(times), rcond=None)[0]
    return Network(max(0.0, float(base)), max(0.0, float(message)), 1.0 / max(1e-15, float(inverse)))


def main() -> int:
    """Measure, fit, compare and predict."""
    p = argparse.ArgumentParser("python -m benchmarks.scaling", description=(__doc__ or "").partition("\n\n")[0])
    p.add_argument("--json", type=Path, default=Path("benchmarks/results/scaling.json"))
    p.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.rank:
        return _rank()
    from benchmarks.measure import described, load, machine

    record: dict[str, Any] = {"machine": machine(), "load": load()}
    print(described(record["machine"]), f"load {record['load']}", sep="\n")
    reductions: dict[tuple[int, int], float] = {}
    steps: dict[tuple[int, int], float] = {}
    for ranks in RANKS:
        found = _launched(ranks)
        reductions |= {(ranks, int(n)): s for n, s in found["reductions"].items()}
        steps |= {(ranks, int(w)): s for w, s in found["steps"].items()}
    network = fitted(reductions)
    record["network"] = vars(network)
    record["reductions"] = [[r, n, s, network.reduction(r, n)] for (r, n), s in reductions.items()]
    print(
        f"fitted: {network.base * 1e6:.0f} µs + {network.message * 1e6:.0f} µs a further rank, "
        f"{network.bandwidth / 1e9:.2f} GB/s"
    )
    for r, n, s, predicted in record["reductions"]:
        print(
            f"all_reduce {r} ranks {n >> 10:6} KiB  measured {s * 1e3:8.2f} ms  model {predicted * 1e3:8.2f} ms  "
            f"{predicted / s:5.2f}"
        )
    alone = {w: _launched(1)["steps"][str(w)] for w in WIDTHS}
    record["steps"] = []
    for (r, w), s in steps.items():
        predicted = network.step(r, alone[w], gradient_bytes(w))
        record["steps"].append([r, w, s, predicted])
        print(f"step {r} ranks width {w:5}  measured {s * 1e3:8.2f} ms  model {predicted * 1e3:8.2f} ms  {predicted / s:5.2f}")
    record["predicted"] = predictions()
    for line in record["predicted"]:
        print(line["network"], line["work"], "  ".join(f"{p}: {e:.0%}" for p, e in line["efficiency"].items()))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return 0


def predictions(ranks: Sequence[int] = (8, 64, 512, 4096)) -> list[dict[str, Any]]:
    """Efficiency of P ranks, each with as many rows as one alone has: T(1) / T(P)."""
    work = {"ResNet-18, 340 ms a step, 45 MB": (0.34, 44.7e6), "transformer of 110 M parameters, 600 ms, 440 MB": (0.6, 440e6)}
    return [
        {"network": name, "work": what, "efficiency": {p: compute / n.step(p, compute, nbytes) for p in ranks}}
        for name, n in HYPOTHETICAL.items()
        for what, (compute, nbytes) in work.items()
    ]


def gradient_bytes(width: int) -> int:
    """Bytes of the gradients of the network that is stepped."""
    return 4 * (2 * (width * width + width) + width * 4 + 4)


def _launched(ranks: int) -> dict[str, Any]:
    """What rank 0 of so many processes measured."""
    launch = [sys.executable, "-c", "from firebrick.cli.main import main; main()", "launch", "-n", str(ranks)]
    environment = {**os.environ, "FIREBRICK_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, "-m", "benchmarks.scaling", "--rank"], capture_output=True, text=True, env=environment, check=True
    )
    line = next(line for line in done.stdout.splitlines() if "found " in line)
    return dict(json.loads(line.partition("found ")[2]))


def _rank() -> int:
    import firebrick as fb
    from firebrick.train import Distributed
    from firebrick.train.steps import TrainingStep

    strategy = Distributed("cpu:0", check_every=0)
    group = strategy.group

    def timed(call: Any, rounds: int) -> float:
        seconds = []
        for r in range(rounds + 2):
            group.barrier()
            started = perf_counter()
            call()
            if r >= 2:
                seconds.append(perf_counter() - started)
        return statistics.median(seconds)

    reductions = {}
    for size in SIZES if group.size > 1 else ():
        x = fb.ones(size // 4)
        reductions[size] = timed(lambda x=x: group.all_reduce([x]), 15)
    steps = {}
    for width in WIDTHS:
        fb.random.seed(0)
        model = fb.nn.Sequential(
            fb.nn.Linear(width, width), fb.nn.ReLU(), fb.nn.Linear(width, width), fb.nn.ReLU(), fb.nn.Linear(width, 4)
        )
        optimizer = fb.optim.SGD(model, lr=0.01)
        rows = 4 * group.size
        data = fb.data.ArrayDataset(np.ones((rows, width), np.float32), np.arange(rows) % 4)
        batch = strategy.place(model, optimizer, fb.data.DataLoader(data, rows)).first()
        step = strategy.compile(TrainingStep(model, optimizer, fb.cross_entropy, strategy, None, None))
        watching = fb.asarray(False)

        def one(step: Any = step, batch: Any = batch, watching: Any = watching) -> None:
            time.sleep(SLEEP)
            fb.read([t for tensors, _ in step(watching, batch).counts["loss"] for t in tensors])

        steps[width] = timed(one, 15)
    if strategy.main:
        print("found", json.dumps({"reductions": reductions, "steps": steps}), flush=True)
    fb.distributed.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
