"""``python -m benchmarks.scaling``: what a training step over P processes takes, measured, and predicted by a model.

A step over P ranks is the computation of a rank's rows, the reduction of its gradients in buckets, one after the other, each
from when the backward pass has finished it; what the ranks say to each other goes with the last bucket:

    end(i) = max(ready(i), end(i - 1)) + latency(P) + 2 (P - 1) / P · bytes(i) / bandwidth, for each bucket i
    T(P) = max(compute, end(last)), latency(P) = a + b (P - 1)

a, b and the bandwidth are fitted to ``all_reduce`` of several sizes over 2, 3 and 4 processes of this host. The prediction is
then held against steps of ``Distributed`` over so many processes, whose computation sleeps so that the cores of one host do not
stand in for those of several; and, with computation and a wire that is slowed down to 2 Gb/s, against steps whose gradients
travel in one bucket after the backward pass, and in several during it.
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

    def step(self, ranks: int, compute: float, nbytes: float, bucket: float = 1 << 24, backward: float = 0.0) -> float:
        """Seconds of a training step.

        Args:
            ranks: How many take part.
            compute: Seconds of a step alone, update and all.
            nbytes: Of the gradients.
            bucket: Bytes that are reduced together.
            backward: The part of ``compute``, at its end, in which gradients are finished, evenly; 0 for all at its end.
        """
        if ranks == 1:
            return compute
        come = end = 0.0
        while come < nbytes:
            size = min(bucket, nbytes - come)
            come += size
            end = max(compute * (1 - backward * (1 - come / nbytes)), end) + self.reduction(ranks, size)
        return max(compute, end)


SLOW = Network(6e-4, 0.0, 2.5e8)
"""A network of 2 Gb/s, which a wire is slowed down to."""
DEEP, ROWS = (8, 512), 512
"""Dense layers and their width, and a rank's rows, of the network that is stepped over it."""
BACKWARD = 2 / 3
"""The part of a step in which gradients come: a backward pass has two products for each one of the forward pass."""
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
    p.add_argument("--slow", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.rank:
        return _slow_rank() if args.slow else _rank()
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
    deep, count = _launched(2, "--slow"), gradient_bytes(*reversed(DEEP))
    record["slow"] = []
    for name, (bucket, seconds) in deep.items():
        measured, spread = statistics.median(seconds), np.quantile(seconds, [0.25, 0.75])
        predicted = SLOW.step(2, statistics.median(deep["alone"][1]), count, bucket, BACKWARD) if bucket else measured
        record["slow"].append([name, bucket, measured, *spread, predicted])
        print(
            f"2 Gb/s, {name:20} measured {measured * 1e3:8.2f} ms ({spread[0] * 1e3:.1f} to {spread[1] * 1e3:.1f})  "
            f"model {predicted * 1e3:8.2f} ms  {predicted / measured:5.2f}"
        )
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
        {
            "network": name,
            "work": what,
            "efficiency": {p: compute / n.step(p, compute, nbytes, backward=BACKWARD) for p in ranks},
        }
        for name, n in HYPOTHETICAL.items()
        for what, (compute, nbytes) in work.items()
    ]


def gradient_bytes(width: int, layers: int = 2) -> int:
    """Bytes of the gradients of the network that is stepped."""
    return 4 * (layers * (width * width + width) + width * 4 + 4)


def _launched(ranks: int, *options: str) -> dict[str, Any]:
    """What rank 0 of so many processes measured."""
    launch = [sys.executable, "-c", "from firebrick.cli.main import main; main()", "launch", "-n", str(ranks)]
    environment = {**os.environ, "FIREBRICK_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, "-m", "benchmarks.scaling", "--rank", *options], capture_output=True, text=True, env=environment, check=True
    )
    line = next(line for line in done.stdout.splitlines() if "found " in line)
    return dict(json.loads(line.partition("found ")[2]))


def _seconds(group: Any, call: Any) -> float:
    """How long a call takes that all ranks make at once."""
    group.barrier()
    started = perf_counter()
    call()
    return perf_counter() - started


def _median(group: Any, call: Any, rounds: int = 15) -> float:
    return statistics.median([_seconds(group, call) for _ in range(rounds + 2)][2:])


def _step(strategy: Any, width: int, layers: int, rows: int, before: Any) -> Any:
    """A call that makes a training step of dense layers."""
    import firebrick as fb
    from firebrick.train.steps import TrainingStep

    fb.random.seed(0)
    dense = [layer for _ in range(layers) for layer in (fb.nn.Linear(width, width), fb.nn.ReLU())]
    model = fb.nn.Sequential(*dense, fb.nn.Linear(width, 4))
    optimizer = fb.optim.SGD(model, lr=0.01)
    data = fb.data.ArrayDataset(np.ones((rows, width), np.float32), np.arange(rows) % 4)
    batch = strategy.place(model, optimizer, fb.data.DataLoader(data, rows)).first()
    step = strategy.compile(TrainingStep(model, optimizer, fb.cross_entropy, strategy, None, None))
    watching = fb.asarray(False)

    def one() -> None:
        before()
        fb.read([t for tensors, _ in step(watching, batch).counts["loss"] for t in tensors])

    return one


def _rank() -> int:
    import firebrick as fb
    from firebrick.train import Distributed

    strategy = Distributed("cpu:0", check_every=0)
    group = strategy.group
    reductions = {}
    for size in SIZES if group.size > 1 else ():
        x = fb.ones(size // 4)
        reductions[size] = _median(group, lambda x=x: group.all_reduce([x]))
    steps = {w: _median(group, _step(strategy, w, 2, 4 * group.size, lambda: time.sleep(SLEEP))) for w in WIDTHS}
    if strategy.main:
        print("found", json.dumps({"reductions": reductions, "steps": steps}), flush=True)
    fb.distributed.shutdown()
    return 0


def _slow_rank() -> int:
    """Steps over a slow wire, interleaved: alone, with one bucket after the backward pass, with several during it."""
    import firebrick as fb
    from firebrick.distributed.wire import Wire
    from firebrick.train import Distributed, SingleDevice

    class Slow(Wire):
        """A wire on which an exchange takes as long as on ``SLOW``, at least."""

        def __init__(self, wire: Any) -> None:
            self.wire, self.rank, self.size = wire, wire.rank, wire.size

        def exchange(self, sends: Any, receives: Any, deadline: float, tag: int = 0) -> None:
            started = perf_counter()
            self.wire.exchange(sends, receives, deadline, tag)
            ends = started + SLOW.base / 3 + sum(b.nbytes for _, b in sends) / SLOW.bandwidth  # of three exchanges
            time.sleep(max(0.0, ends - perf_counter()))

        def close(self) -> None:
            self.wire.close()

    group = fb.distributed.init("gloo")
    layers, width = DEEP
    fast = group._wire
    found: dict[str, tuple[int, list[float]]] = {}
    calls: dict[str, Any] = {}
    for name, bucket in {"alone": 0, "one bucket": 1 << 30, "buckets of 2 MiB": 1 << 21, "buckets of 1 MiB": 1 << 20}.items():
        shares = [ROWS - 1.0, 1.0]  # so that a core is left to the threads that send, as it would be on two hosts
        strategy = Distributed("cpu:0", shares=shares, check_every=0, bucket_bytes=bucket) if bucket else SingleDevice("cpu:0")
        calls[name] = _step(strategy, width, layers, ROWS, lambda: None)
        found[name] = bucket, []
    group._wire = Slow(fast)
    for r in range(32):
        for name, call in calls.items():
            seconds = _seconds(group, call)
            if r >= 2:
                found[name][1].append(seconds)
    if group.rank == 0:
        print("found", json.dumps(found), flush=True)
    fb.distributed.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
