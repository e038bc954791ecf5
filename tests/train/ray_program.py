"""What the test of Ray starts: trains on a local cluster of three one-CPU nodes, loses some, and says what came of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from after_steps import after_steps
from cluster_jobs import until
from ray.cluster_utils import Cluster as RayCluster

import firebrick as fb
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Cluster, Distributed, Learner, SingleDevice, Strategy, Worker

EPOCHS = 4


def learner_of(strategy: Strategy, **options: Any) -> Learner:
    fb.random.seed(5)
    layers = [fb.nn.Linear(6, 16, dtype="float64"), fb.nn.Tanh(), fb.nn.Dropout(0.2), fb.nn.Linear(16, 3, dtype="float64")]
    model = fb.nn.Sequential(*layers)
    optimizer = fb.optim.Adam(model, lr=fb.optim.cosine(0.02, steps=40, warmup=4))
    return Learner(model, optimizer, strategy=strategy, log=None, seed=1, **options)


def fitted(learner: Learner) -> dict[str, np.ndarray]:
    x = np.random.default_rng(3).normal(size=(118, 6))
    learner.fit(DataLoader(ArrayDataset(x, x[:, :3].argmax(1)), 12, shuffle=True, dtype="float64"), epochs=EPOCHS, draw=False)
    return {n: t.numpy() for n, t in learner.model.state_dict().items()}


def train(worker: Worker, waits: str = "") -> tuple[int, int, dict[str, np.ndarray]]:
    """Trains; in the first attempt the last rank waits in the second epoch, for its node's "end" or for "more" nodes.

    Returns the number of workers, the step that they began after, and the weights.
    """
    learner = learner_of(Distributed("cpu:0", check_every=1), out=worker.out, checkpoint_steps=4)
    if worker.resumes:
        learner.resume()
    begun = learner.step

    def stepped() -> None:
        if waits and learner.step == 15 and worker.attempt == 0 and worker.rank == worker.size - 1:
            worker.out.with_suffix(".waits").write_text(worker.node)
            until(lambda: waits == "more" and learner.interrupts.pending)

    after_steps(learner, stepped)
    return worker.size, begun, fitted(learner)


def broken(worker: Worker) -> None:
    if worker.rank == 1:
        raise KeyError("no such column")


def furthest(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(a[n] - b[n]).max()) for n in a)


class Nodes:
    """A local Ray cluster, which this process is connected to; nodes are added by the main thread."""

    def __init__(self, count: int) -> None:
        self._cluster = RayCluster()
        quick = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
        self._cluster.add_node(num_cpus=0, include_dashboard=False, object_store_memory=80 << 20, _system_config=quick)
        for _ in range(count):
            self.add()
        ray.init(address=self._cluster.address, log_to_driver=False)

    def add(self) -> None:
        self._cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

    def lose(self, name: str) -> None:
        (node,) = [n for n in self._cluster.worker_nodes if n.node_id[:8] in name]
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()


def started(cluster: Cluster, waits: str, out: Path) -> tuple[Future[Any], str]:
    """A run, when its last rank waits, and the name of that one's node."""
    run: Future[Any] = BESIDE.submit(cluster.run, partial(train, waits=waits), out=out)
    until(lambda: run.done() or out.with_suffix(".waits").exists())
    return run, out.with_suffix(".waits").read_text()


def compared(run: Future[Any], weights: dict[str, np.ndarray]) -> tuple[int, int, float]:
    """Workers and begin of the last attempt, and how far its weights are from those."""
    found = run.result()
    return *found[0][:2], max(furthest(weights, w) for _, _, w in found)


def heals(folder: Path) -> dict[str, Any]:
    """Three nodes, of which some are lost, and what cannot be done on them."""
    nodes, lines = Nodes(3), list[str]()
    how: dict[str, Any] = {"backoff": 0.1, "log": lines.append}
    undisturbed = BESIDE.submit(Cluster(3, **how).run, train, out=folder / "whole")
    alone = fitted(learner_of(SingleDevice("cpu:0")))
    weights = undisturbed.result()[0][2]
    found: dict[str, Any] = {"lines": lines, "whole": compared(undisturbed, weights), "alone": furthest(weights, alone)}

    run, node = started(Cluster(3, **how), "end", folder / "back")
    nodes.lose(node)
    nodes.add()
    found["back"] = compared(run, weights)

    run, node = started(Cluster((2, 3), **how), "end", folder / "fewer")
    nodes.lose(node)
    found["fewer"] = compared(run, weights)

    for name, cluster, function in [
        ("room", Cluster(4, patience=1.0, **how), broken),
        ("raised", Cluster(2, **how), broken),
        ("pickled", Cluster(1, **how), locking()),
    ]:
        try:
            cluster.run(function, out=folder / name)
        except fb.FirebrickError as e:
            found[name] = [type(e).__name__, str(e), e.context.get("traceback", "")]
    nodes.close()
    return found


def grows(folder: Path) -> dict[str, Any]:
    """One node, and then a second one."""
    nodes, lines = Nodes(1), list[str]()
    run, _ = started(Cluster((1, 2), grow_every=1.0, max_restarts=0, log=lines.append), "more", folder / "run")
    nodes.add()
    found = {"lines": lines, "more": compared(run, fitted(learner_of(SingleDevice("cpu:0"))))}
    nodes.close()
    return found


def locking() -> Callable[[Worker], bool]:
    """A function that cannot be sent."""
    lock = threading.Lock()
    return lambda worker: lock.acquire()


if __name__ == "__main__":
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(1) as BESIDE:
        print("found", json.dumps({"heals": heals, "grows": grows}[sys.argv[1]](Path(place))), flush=True)
