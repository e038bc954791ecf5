"""``python -m benchmarks.parallel``: data-parallel steps beside one device, and beside PyTorch's DistributedDataParallel.

Four questions: what ``DataParallel`` over one device costs beside ``SingleDevice``; how two logical CPU devices, and two ranks
of ``Distributed``, do beside two processes of one thread under PyTorch's DDP over gloo, on the same models, parameters and
batches; and what share of the sum of single throughputs measured shares reach on devices of unlike speed, which are made slow
by sleeping.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

MODELS = {"mlp": 512, "cnn": 64, "transformer": 16}
"""Networks of ``benchmarks.models``, and the batch that each is trained with."""
SLOW = {"numpy:0": 0.001, "numpy:1": 0.002, "numpy:2": 0.004}
"""Seconds that a row takes on each of the slow devices."""


def main() -> int:
    """Run what was asked for; print a table and write JSON."""
    p = argparse.ArgumentParser("python -m benchmarks.parallel", description=(__doc__ or "").partition("\n\n")[2])
    p.add_argument("--rounds", type=int, default=30, help="rounds of each comparison (30)")
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    p.add_argument("--json", type=Path, default=Path("benchmarks/results/parallel.json"), help="file to write")
    args = p.parse_args()
    os.environ.setdefault("FIREBRICK_NUM_THREADS", "2")
    from benchmarks.measure import described, load, machine

    record: dict[str, Any] = {"machine": machine(), "load": load(), "rounds": args.rounds, "work": []}
    print(described(record["machine"]), f"load {record['load']}", sep="\n")
    for name in args.models:
        makers: dict[str, dict[str, Callable[[], Any]]] = {
            "one device": {
                "DataParallel(1)": partial(step, name, ["cpu:0"]),
                "SingleDevice": partial(step, name, None),
            },
            "two devices": {
                "DataParallel(2)": partial(step, name, ["cpu:0", "cpu:1"]),
                "torch DDP": partial(Processes, _ddp, name),
            },
            "two processes": {
                "Distributed(2)": partial(Processes, _distributed, name),
                "torch DDP": partial(Processes, _ddp, name),
            },
        }
        for question, made in makers.items():  # each made when its turn comes, so that none starts beside another's steps
            contenders = {n: make() for n, make in made.items()}
            found = compared(contenders, args.rounds)
            record["work"].append({"model": name, "batch": MODELS[name], "question": question, **found})
            print(row(name, question, found), flush=True)
            for c in contenders.values():
                if isinstance(c, Processes):
                    c.close()
    record["slow"] = slow()
    print("shares by measured speed reach {share:.1%} of {sum:.0f} rows a second ({shares})".format(**record["slow"]))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return 0


def compared(contenders: dict[str, Callable[[int], float]], rounds: int) -> dict[str, Any]:
    """Seconds a step of two contenders in turn, and the ratio of the medians with its 95 % interval by resampling rounds."""
    calls = {n: max(1, round(0.1 / run(3))) for n, run in contenders.items() if run(2)}
    seconds: dict[str, list[float]] = {n: [] for n in contenders}
    for _ in range(rounds):
        for n, run in contenders.items():
            seconds[n].append(run(calls[n]))
    (_, ours), (_, peer) = seconds.items()
    rng = random.Random(0)
    ratios = []
    for _ in range(2000):
        picked = [rng.randrange(rounds) for _ in range(rounds)]
        ratios.append(statistics.median(ours[i] for i in picked) / statistics.median(peer[i] for i in picked))
    ratios.sort()
    return {
        "seconds": seconds, "medians": {n: statistics.median(s) for n, s in seconds.items()},
        "ratio": statistics.median(ours) / statistics.median(peer), "interval": [ratios[50], ratios[1949]],
    }  # fmt: skip


def row(model: str, question: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    times = "  ".join(f"{n} {s * 1e3:8.3f} ms" for n, s in found["medians"].items())
    low, high = found["interval"]
    return f"{model:<12} {question:<12} {times}  ratio {found['ratio']:.3f} ({low:.3f} to {high:.3f})"


def step(name: str, devices: Sequence[str] | None) -> Callable[[int], float]:
    """A training step, compiled; called with a number of steps, it gives the seconds of one."""
    from firebrick.train import DataParallel, SingleDevice

    return _stepper(name, SingleDevice("cpu:0") if devices is None else DataParallel(devices))


def _stepper(name: str, strategy: Any) -> Callable[[int], float]:
    import firebrick as fb
    from benchmarks.models import NETWORKS
    from firebrick.train.steps import TrainingStep

    network = NETWORKS[name]
    x, y = network.data(MODELS[name])
    model = network.build(0.0)
    with fb.no_grad():
        for n, p in model.named_parameters():
            p[...] = fb.asarray(network.arrays()[n])
    optimizer = fb.optim.Adam(model, lr=network.lr)
    loader = fb.data.DataLoader(fb.data.ArrayDataset(x, y), MODELS[name])
    batch = strategy.place(model, optimizer, loader).first()
    compiled = strategy.compile(TrainingStep(model, optimizer, fb.cross_entropy, strategy, None, None))
    watching = fb.asarray(False)

    def run(steps: int) -> float:
        started = perf_counter()
        for _ in range(steps):
            found = compiled(watching, batch)
        fb.read([t for tensors, _ in found.counts["loss"] for t in tensors])
        return (perf_counter() - started) / steps

    return run


class Processes:
    """Two processes of one thread; called as what ``step`` gives.

    Args:
        target: What each runs, with its rank, the model, a free port and a pipe.
        name: The model.
    """

    def __init__(self, target: Callable[..., None], name: str) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(2)]
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self._processes = [context.Process(target=target, args=(r, name, port, theirs)) for r, (_, theirs) in enumerate(pipes)]
        for p in self._processes:
            p.start()
        self._pipes = [ours for ours, _ in pipes]

    def __call__(self, steps: int) -> float:
        for p in self._pipes:
            p.send(steps)
        return max(float(p.recv()) for p in self._pipes)

    def close(self) -> None:
        """End the processes."""
        for p in self._pipes:
            p.send(0)
        for process in self._processes:
            process.join(10)


def _meet(rank: int, port: int) -> None:
    """Name the other process, and take one thread."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    os.environ.update(FIREBRICK_NUM_THREADS="1", OMP_NUM_THREADS="1")


def _distributed(rank: int, name: str, port: int, pipe: Any) -> None:
    _meet(rank, port)
    from firebrick.train import Distributed

    strategy = Distributed("cpu:0", "gloo")
    run = _stepper(name, strategy)
    while steps := pipe.recv():
        strategy.group.barrier()
        pipe.send(run(steps))
    strategy.group.close()


def _ddp(rank: int, name: str, port: int, pipe: Any) -> None:
    _meet(rank, port)
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.models import NETWORKS
    from benchmarks.with_torch import network

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    facts = NETWORKS[name]
    model = network(name, facts.arrays())
    x, y = facts.data(MODELS[name])
    half = slice(rank * len(x) // 2, (rank + 1) * len(x) // 2)
    inputs, targets = torch.from_numpy(x[half]), torch.from_numpy(y[half])
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=facts.lr, fused=True)
    while steps := pipe.recv():
        dist.barrier()
        started = perf_counter()
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(wrapped(inputs), targets)
            loss.backward()
            optimizer.step()
        loss.item()
        pipe.send((perf_counter() - started) / steps)
    dist.destroy_process_group()


def slow() -> dict[str, Any]:
    """Throughput of measured shares over slow devices, against the sum of what each does alone."""
    import firebrick as fb
    from firebrick.train import DataParallel, parts_of

    def fn(model: Any, x: Any, y: Any) -> Any:
        time.sleep(SLOW[x.device.name] * x.shape[0])
        return fb.cross_entropy(model(x), y), {}

    def throughput(devices: list[str], shares: Any) -> tuple[float, tuple[float, ...]]:
        fb.random.seed(0)
        model = fb.nn.Linear(16, 4)
        optimizer = fb.optim.SGD(model, lr=0.01)
        strategy = DataParallel(devices, shares, check_every=0)
        data = fb.data.ArrayDataset(np.ones((256, 16), np.float32), np.arange(256) % 4)
        loader = strategy.place(model, optimizer, fb.data.DataLoader(data, 256))
        with fb.disable_jit():
            strategy.begin(fn, model, loader)
            batch, rounds = loader.first(), 12
            started = perf_counter()
            for _ in range(rounds):
                shared = strategy.grads(fn, model, batch)
                strategy.update(optimizer, model, strategy.reduce(model, *parts_of(shared)))
                strategy.spread(model)
        assert strategy.shares is not None
        return rounds * 256 / (perf_counter() - started), strategy.shares

    alone = [throughput([d], "even")[0] for d in SLOW]
    together, shares = throughput(list(SLOW), "measured")
    return {
        "alone": alone, "together": together, "sum": sum(alone), "share": together / sum(alone),
        "shares": ", ".join(f"{s:.1%}" for s in shares),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
