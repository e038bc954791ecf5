"""``Cluster``: a training function on the nodes of a Ray cluster, which heals."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from firebrick.core.settings import number, whole
from firebrick.train.cluster.ray_pool import RayPool
from firebrick.train.cluster.supervisor import Supervisor, forwarded
from firebrick.train.cluster.worker import Worker
from firebrick.train.errors import TrainingError

PLACING = ("spread", "pack")


class Cluster:
    """Workers on the nodes of a Ray cluster, which start again from the last checkpoint when one of them is lost.

    ``run`` calls a training function on each worker, in a process of its own, where ``Distributed()`` finds the others. When
    a worker or its node dies, or is cut off, all others end, and the function is called again on as many workers as there is
    room for by then, between the fewest and the most; when there is room for more than there are, all save and start again
    on more. Each call goes on from the last checkpoint of the run directory:

        def train(worker):
            learner = Learner(model, optimizer, strategy=Distributed(), out=worker.out, seed=0)
            if worker.resumes:
                learner.resume()
            return learner.fit(loader, epochs=10)[-1].train_loss

    A batch is always the loader's, dealt evenly to the workers there are. So the schedule of the learning rate, the order of
    samples and the results are those of one device, however many workers there were and whenever that changed; with layers
    whose results depend on the rows of one worker (``batch_norm="local"``) they are not.

    Args:
        workers: How many; or the fewest and the most.
        cpus: CPUs of a worker, also its threads unless a setting says otherwise.
        gpus: GPUs of a worker, 0 or 1: ``Distributed("torch:cuda")`` takes its own.
        resources: Further Ray resources of a worker, by name.
        placing: "spread" over as many nodes as there are, or "pack" on few.
        backend: What ``Distributed`` talks through: "gloo" or "nccl".
        address: Of the cluster, such as "10.0.0.1:6379", which this program's host is a node of; None takes the one of this
            process, of RAY_ADDRESS or of this host, else starts one here.
        max_restarts: Restarts after a loss, in a row, without a newer checkpoint between them.
        patience: Seconds to wait until there is room for the fewest workers, at the start and after a loss.
        backoff: Seconds before a restart; before each further one in a row twice as many, at most 60.
        grace: Seconds that the others get to end by themselves after one failed.
        grow_every: Seconds between looks for room for more workers.
        log: Takes each line of output; None is silent.

    Raises:
        TrainingError: An argument is invalid.

    Example:
        >>> from firebrick.train import Cluster
        >>> Cluster(workers=(2, 8), cpus=4)
        Cluster(workers=(2, 8), cpus=4, gpus=0, placing='spread')
    """

    def __init__(
        self,
        workers: int | tuple[int, int],
        *,
        cpus: float = 1,
        gpus: int = 0,
        resources: Mapping[str, float] | None = None,
        placing: str = "spread",
        backend: str = "gloo",
        address: str | None = None,
        max_restarts: int = 3,
        patience: float = 120.0,
        backoff: float = 1.0,
        grace: float = 10.0,
        grow_every: float = 60.0,
        log: Callable[[str], Any] | None = print,
    ) -> None:
        self.fewest, self.most = _range(workers)
        if number("Cluster", "cpus", cpus) <= 0:
            raise TrainingError("a worker has CPUs", f"cpus={cpus}", "pass a number > 0")
        if gpus not in (0, 1):
            raise TrainingError("a worker has one GPU or none", f"gpus={gpus!r}", "pass gpus=1 and more workers")
        if placing not in PLACING:
            raise TrainingError('workers are placed by "spread" or "pack"', repr(placing), "choose one of these")
        if backend not in ("gloo", "nccl"):
            raise TrainingError('the workers of a cluster talk through "gloo" or "nccl"', repr(backend), "choose one of these")
        self.cpus, self.gpus, self.resources, self.placing = cpus, gpus, dict(resources or {}), placing
        self.backend, self.address = backend, address
        self.max_restarts = whole("Cluster", "max_restarts", max_restarts, 0)
        self.patience, self.backoff, self.grace, self.grow_every = patience, backoff, grace, grow_every
        self._log = log or (lambda line: None)

    def __repr__(self) -> str:
        return f"Cluster(workers={(self.fewest, self.most)}, cpus={self.cpus}, gpus={self.gpus}, placing={self.placing!r})"

    def run(self, function: Callable[[Worker], Any], *, out: str | os.PathLike[str]) -> list[Any]:
        """Call a training function on all workers, again after each loss, until it has returned on all of them.

        Args:
            function: Called with a ``Worker``, which says its rank, the run directory and whether to resume. It is sent by
                pickle, with all that it refers to.
            out: The run directory, on a file system that all nodes share, at the same path.

        Returns:
            What the function returned, by rank.

        Raises:
            UnsupportedError: Ray is not installed.
            TrainingError: The function cannot be sent, there is no cluster, too little room, or no shared run directory.
            WorkerError: The function raised, which is not tried again, or workers were lost repeatedly.
            TrainingInterrupted: Ctrl-C; all workers finished their step and saved.
        """
        pool = RayPool(self.address, self.cpus, self.gpus, self.resources, self.placing.upper())
        try:
            threads = str(max(1, int(self.cpus)))
            supervisor = Supervisor(
                pool,
                self.fewest,
                self.most,
                max_restarts=self.max_restarts,
                patience=self.patience,
                backoff=self.backoff,
                grace=self.grace,
                grow_every=self.grow_every,
                variables={
                    "FIREBRICK_NUM_THREADS": threads,
                    "OMP_NUM_THREADS": threads,
                    "PYTHONUNBUFFERED": "1",
                    **forwarded(),
                    "FIREBRICK_DISTRIBUTED_BACKEND": self.backend,
                },
                log=self._log,
            )
            return supervisor.run(pool.pickled(function), Path(os.path.abspath(out)))
        finally:
            pool.close()


def _range(workers: Any) -> tuple[int, int]:
    """The fewest and the most workers."""
    fewest, most = workers if isinstance(workers, tuple) and len(workers) == 2 else (workers, workers)
    found = whole("Cluster", "workers", fewest, 1), whole("Cluster", "workers", most, 1)
    if found[0] > found[1]:
        raise TrainingError("workers are a number, or the fewest and the most", repr(workers), "pass e.g. workers=(2, 8)")
    return found
