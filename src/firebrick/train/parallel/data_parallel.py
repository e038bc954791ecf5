"""``DataParallel``: the rows of each batch over several devices, on any engines, with the result of one device.

Each device has a replica of the model. In a step each runs its rows forward and backward; gradients of the mean loss go to the
first device, the owner, where they are joined by their numbers of samples in the order of the devices; the owner clips,
updates, and sends the new bits to the others. So replicas are equal bit for bit, whatever the engines round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from statistics import median
from threading import BrokenBarrierError
from time import perf_counter
from typing import Any

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import no_grad
from firebrick.backends.dispatch import read
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.operands import describe
from firebrick.core.sharing import sharing_cores
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.nn import Module
from firebrick.random import default_generator
from firebrick.train.batches import BatchGroup, batches_of, rows_in, tensors_of
from firebrick.train.compiled import NO_GRAPH
from firebrick.train.counted import Counted
from firebrick.train.errors import TrainingError
from firebrick.train.leaves import LeafGraphs
from firebrick.train.own_step import OwnStep
from firebrick.train.parallel.meeting import Meeting, meeting_at
from firebrick.train.parallel.own_graphs import graphed
from firebrick.train.parallel.passes import Found, Pass, add, running_statistics, take_share
from firebrick.train.parallel.replicas import follow, layout
from firebrick.train.parallel.shares import MEASURED, balanced, check_batch_norm, check_shares, divided
from firebrick.train.steps import TrainingStep
from firebrick.train.strategy import Forward, Graphs, Named, Share, bring, of_names

TRIALS = 6
"""Passes that measure a device, twice; the first of them compiles and does not count."""


class DataParallel:
    """Every step over several devices of this process, which may belong to different engines.

    Args:
        devices: Distinct ones; the first owns the updates, evaluates, and is what checkpoints are made from.
        shares: How the rows of a batch are divided: "even", one number a device, or "measured", by how fast each of them is
            before the first step. Measured shares stay as they are for the run and are kept in its checkpoints.
        batch_norm: "local": each device's rows are normalised by their own statistics, and the running statistics are the means
            of theirs, weighted by samples. "synchronised": all rows are normalised by the statistics of the whole batch, as on
            one device; the devices then meet in each batch norm, and their passes are not compiled.
        check_every: Steps between two checks that all replicas are equal; 0 leaves those of a ``Learner``, which compares them
            at the end of each epoch and before each checkpoint.

    A device without rows in a small last batch takes no part in that step.

    Raises:
        TrainingError: No device, one named twice, or shares that are none.
        DeviceError: A device is unknown or absent.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> from firebrick.train import DataParallel, Learner
        >>> fb.random.seed(0)
        >>> model = fb.nn.Linear(2, 2)
        >>> x = np.random.default_rng(0).normal(size=(64, 2))
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(x, (x[:, 0] > 0).astype(int)), 16, shuffle=True)
        >>> learner = Learner(
        ...     model, fb.optim.Adam(model, lr=0.1), strategy=DataParallel(["cpu:0", "numpy:0"], shares=[3, 1]), log=None
        ... )
        >>> rows = learner.fit(loader, epochs=10)
        >>> learner.evaluate(loader).accuracy > 0.9
        True
    """

    arrivals = None  # gradients are summed on the owner, which has them when the passes are over
    unwatched = frozenset({"_steps", "_model", "_replicas", "_crew"})  # what no graph depends on

    def __init__(
        self, devices: Sequence[Device | str], shares: str | Sequence[float] = "even", *, batch_norm: str = "local",
        check_every: int = 100,
    ) -> None:  # fmt: skip
        if isinstance(devices, (str, Device)):
            raise TrainingError("DataParallel takes a list of devices", repr(devices), f'write ["{devices}"]')
        found = tuple(find_device(d) for d in devices)
        if not found:
            raise TrainingError("DataParallel needs at least one device", "none", 'pass e.g. ["cpu:0", "cpu:1"]')
        twice = sorted({d.name for d in found if found.count(d) > 1})
        if twice:
            raise TrainingError(
                "DataParallel takes distinct devices",
                f"{', '.join(twice)} more than once in {', '.join(str(d) for d in devices)}",
                "name each device once; logical devices of one engine have numbers: cpu:0, cpu:1",
            )
        self._devices = found
        self._given = shares if isinstance(shares, str) else list(shares)
        self._shares = check_shares(shares, len(found))
        self.synchronised = check_batch_norm(batch_norm) and len(found) > 1
        self.joins = len(found) > 1
        self.check_every = check_every
        self._steps = 0
        self._model: Module | None = None
        self._replicas: list[Module] = []  # one a device; the first is the model itself
        self._crew: ThreadPoolExecutor | None = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices; the first is the owner."""
        return self._devices

    @property
    def shares(self) -> tuple[float, ...] | None:
        """The fraction of each batch that each device takes; None until they are measured."""
        return self._shares

    def divide(self, rows: int) -> list[int]:
        """How many of a batch's rows each device takes."""
        return divided(rows, self._shares or (1.0 / len(self._devices),) * len(self._devices))

    @property
    def main(self) -> bool:
        """True: this process writes the run directory."""
        return True

    def agree(self, stop: bool) -> bool:
        """``stop``: there is one process."""
        return stop

    def agree_to_save(self, save: bool) -> bool:
        """``save``: there is one process."""
        return save

    def compare(self, settings: Mapping[str, str]) -> None:
        """Do nothing: there is one process."""

    def check(self, model: Module, optimizer: Any = None, averages: Any = None) -> None:
        """``check_replicas``; optimizer and averages are the owner's alone."""
        if len(self.replicas(model)) > 1:
            self.check_replicas()

    # a run

    def place(self, model: Module, optimizer: Any, loader: DataLoader, averages: Any = None) -> DataLoader:
        """Move model, optimizer and averages to the owner, make the replicas, and deal the loader's batches to the devices.

        Raises:
            DTypeError: A device cannot store a parameter.
        """
        owner = self._devices[0]
        if any(p.device is not owner for _, p in model.named_parameters()):
            model.to(owner)
        bring(optimizer, owner)
        bring(averages, owner)
        if self._model is not model or any(layout(r) != layout(model) for r in self._replicas[1:]):
            self._model, self._replicas = model, [model, *(model.fork(d) for d in self._devices[1:])]
        self._level(owner)
        self.spread(model)
        return loader.sharded(list(self._devices), self.divide)

    def begin(self, fn: Forward, model: Module, loader: DataLoader) -> str:
        """Measure the shares, if they are to be measured and are not known yet."""
        if self._shares is None:
            self._measure(fn, loader)
        assert self._shares is not None
        if len(self._devices) == 1:
            return ""
        parts = ", ".join(f"{d} {s:.0%}" for d, s in zip(self._devices, self._shares, strict=True))
        return f"shares of each batch: {parts}"

    def grads(self, fn: Forward, model: Module, batch: Any, parts: int = 1) -> list[Share]:
        """One share for each device that has rows."""
        passes = [Pass(fn, m, self.joins) for m in self.replicas(model)]
        return self.run(passes, add, model, batch, parts)

    def run(
        self, passes: Sequence[Callable[..., Found]], adding: Callable[..., Named], model: Module, batch: Any, parts: int = 1
    ) -> list[Share]:
        """``grads`` by passes, one a device, or their graphs.

        Args:
            passes: A function for each device that computes its share, or its graph.
            adding: A function that adds up the shares of a device's parts, or its graph.
            model: The learner's model.
            batch: What the loader returned.
            parts: Number of parts into which each device divides its rows.
        """
        batches = batches_of(batch)
        for b in batches:
            self._check(b)
        count = len(self._devices)
        rows = [[0 if part is None else rows_in(part) for part in b] for b in batches]
        active = [i for i in range(count) if any(r[i] for r in rows)]
        self._level(self._devices[0])  # which may have drawn since the last step, in an evaluation say
        for i in active:
            if i:
                follow(model, self._replicas[i])
        meeting = Meeting(len(active)) if self.synchronised and len(active) > 1 else None
        if meeting is not None:
            least = min(r[i] for r in rows for i in active)  # the same number of parts for all, who meet in each
            if not least:
                raise TrainingError(
                    "devices that meet in batch norms have rows of each batch that makes an update, or of none",
                    f"batches of {', '.join(str(sum(r)) for r in rows)} rows",
                    "drop a small last batch: DataLoader(…, drop_last=True)",
                )
            parts = min(parts, least)
        met = None if meeting is None else [[n for n in r if n] for r in rows]

        def share(i: int) -> Share:
            place = None if meeting is None else meeting.place(active.index(i))
            with meeting_at(place), self._cores(i, active):
                made = take_share(passes[i], adding, self._replicas[i], *_of_device(i, batches, rows), parts, rows=met)
            owner = self._devices[0]
            with no_grad():
                made.gradients = {n: g.to(owner) for n, g in made.gradients.items()}
                made.buffers = {n: b.to(owner) for n, b in made.buffers.items()}
            return made

        found = self._each(active, share)
        if not all(n for r in rows for n in r):  # who ran all batches has drawn for all
            self._level(self._devices[max(active, key=lambda i: sum(r[i] > 0 for r in rows))])
        return found

    def reduce(self, model: Module, grads: Sequence[Named], samples: Sequence[float], buffers: Sequence[Named]) -> Gradients:
        """Σ samples · gradient / Σ samples in the order of the devices; where a share lacks a gradient, it counts as zero."""
        if len(grads) == 1:
            joined, statistics = grads[0], buffers[0]
        else:
            count = sum(samples[1:], samples[0])
            weights = [n / count for n in samples]
            with no_grad():
                joined = mean_of(grads, weights)
                statistics = buffers[0] if self.synchronised else mean_of(buffers, weights)  # which then are equal
        if statistics:
            with no_grad():
                for name, b in running_statistics(model):
                    b._rebind(statistics[name])
        return of_names(model, joined)

    def update(self, optimizer: Any, model: Module, grads: Gradients) -> None:
        """``optimizer.update(model, grads)``, on the owner."""
        optimizer.update(model, grads)

    def spread(self, model: Module) -> None:
        """Give the replicas the owner's parameters and buffers, and compare them at intervals.

        Raises:
            TrainingError: A replica differs.
        """
        if len(self._devices) == 1:
            return
        own = [*model.named_parameters(), *model.named_buffers()]
        for device, replica in zip(self._devices[1:], self._replicas[1:], strict=True):
            with no_grad():
                for (_, t), (_, q) in zip(own, [*replica.named_parameters(), *replica.named_buffers()], strict=True):
                    Tensor._rebind(q, t.detach().to(device).detach())  # also weights of tiles
        if self.check_every and self._steps % self.check_every == 0:
            self.check_replicas()
        self._steps += 1

    def deal(self, model: Module, loader: DataLoader) -> DataLoader:
        """The whole loader."""
        return loader

    def gather(self, found: Counted) -> Counted:
        """What was counted here."""
        return found

    def compile(self, step: Callable[..., Any]) -> Graphs:
        """Each device's pass as a graph, and all that comes after the gradients as one more, on the owner."""
        if isinstance(step, TrainingStep | OwnStep) and (len(self._devices) > 1 or step.divided):
            return graphed(step, self)
        return LeafGraphs(step)

    def state(self) -> dict[str, Any]:
        """Devices and shares."""
        return {"devices": [d.name for d in self._devices], "shares": None if self._shares is None else list(self._shares)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over measured shares, where they are of the same devices."""
        if self._given == MEASURED and state.get("devices") == [d.name for d in self._devices] and state.get("shares"):
            self._shares = tuple(float(s) for s in state["shares"])

    # replicas

    def replicas(self, model: Module) -> list[Module]:
        """The models, one a device; the first is the learner's own.

        Args:
            model: The learner's model.

        Raises:
            TrainingError: They are of another model, or not made yet.
        """
        if self._model is not model:
            held = "no model" if self._model is None else f"another {type(self._model).__name__}"
            raise TrainingError(
                "DataParallel has the replicas of the model that it placed last",
                f"{type(model).__name__}, where {held} was placed",
                "call strategy.place(model, optimizer, loader) first; models that train in turns have a strategy each",
            )
        return self._replicas

    def check_replicas(self) -> None:
        """Raise TrainingError unless all replicas have the owner's bits."""
        assert self._model is not None
        own = [*self._model.named_parameters(), *self._model.named_buffers()]
        expected = read([t for _, t in own])
        for device, replica in zip(self._devices[1:], self._replicas[1:], strict=True):
            theirs = [t for _, t in [*replica.named_parameters(), *replica.named_buffers()]]
            for (name, _), a, t, b in zip(own, expected, theirs, read(theirs), strict=True):
                if t.device is not device or a.tobytes() != b.tobytes():
                    raise TrainingError(
                        "all replicas of a model have the same bits",
                        f"{describe(name, t.detach())} differs from the one on {self._devices[0]}, at step {self._steps}",
                        "the device loses or changes what is written: run `firebrick doctor`, and leave it out meanwhile",
                    )

    def _level(self, device: Device) -> None:
        """Bring all generators, and the owner's buffers, to where those of one device and its replica stand."""
        if len(self._devices) == 1:
            return
        at, owner = self._devices.index(device), self._devices[0]
        drawn = default_generator(device).mark()
        for d in self._devices:
            if d is not device:
                default_generator(d).return_to(drawn)
        marks = {n: g.mark() for n, g in self._replicas[at].generators().items()}
        for i, replica in enumerate(self._replicas):
            if i != at:
                for name, g in replica.generators().items():
                    g.return_to(marks[name])
        if at:
            with no_grad():
                for (_, b), (_, q) in zip(self._replicas[0].named_buffers(), self._replicas[at].named_buffers(), strict=True):
                    b._rebind(q.detach().to(owner).detach())

    def _check(self, batch: Any) -> None:
        """Raise TrainingError unless each device's rows lie on it."""
        if not isinstance(batch, list) or len(batch) != len(self._devices):
            raise TrainingError(
                f"a batch is a list with the rows of each of the {len(self._devices)} devices",
                f"a {type(batch).__name__} of {len(batch)}",
                "draw batches from the loader that DataParallel.place returns, or from loader.sharded(devices, …)",
            )
        for device, part in zip(self._devices, batch, strict=True):
            for t in [] if part is None else tensors_of(part):
                if t.device is not device:
                    raise TrainingError(
                        f"the rows of a batch that {device} takes lie on {device}",
                        describe(t.label or "batch", t),
                        "draw batches from the loader that DataParallel.place returns, or from loader.sharded(devices, …)",
                    )

    def _cores(self, i: int, active: Sequence[int]) -> AbstractContextManager[None]:
        """A device's part of the cores, where several run on them."""
        hosts = [k for k in active if (d := self._devices[k]).backend.host_memory(d)]
        return sharing_cores(hosts.index(i), len(hosts)) if i in hosts else nullcontext()

    def _each(self, active: Sequence[int], share: Callable[[int], Any]) -> list[Any]:
        """A share for each of these devices, at the same time; the first one's error is raised."""
        if len(active) == 1:
            return [share(active[0])]
        if self._crew is None:
            self._crew = ThreadPoolExecutor(len(self._devices) - 1, "firebrick-device")
        waiting = [self._crew.submit(copy_context().run, share, i) for i in active[1:]]
        errors: list[BaseException] = []
        found: list[Any] = []
        results: list[Callable[[], Any]] = [lambda: share(active[0]), *(w.result for w in waiting)]
        for result in results:
            try:
                found.append(result())
            except BaseException as e:  # noqa: BLE001 - raised below, when no thread is at work any more
                errors.append(e)
        if errors:
            wait_for(waiting)  # Ctrl-C may have come while one was waited for
            raise next((e for e in errors if not isinstance(e, BrokenBarrierError)), errors[0])
        return found

    # speeds

    def _measure(self, fn: Forward, loader: DataLoader) -> None:
        """Find shares for which all devices take equally long, by trial passes at the same time on copies of the model.

        A pass has a part that does not depend on its rows, so shares found with even rows are measured again and mended.
        """
        plain = [Pass(fn, m.fork(), joined=False) for m in self._replicas]
        for p in plain:
            p.model.train()
        calls: list[Callable[..., Found]] = [LeafGraphs(p) for p in plain]
        before = {d: default_generator(d).mark() for d in self._devices}
        for _ in range(2):
            batch: Any = loader.first()
            rows = [0 if part is None else rows_in(part) for part in batch]
            if not all(rows):
                if self._shares is not None:
                    break
                raise TrainingError(
                    "measured shares need a batch with rows for every device",
                    f"{sum(rows)} rows for {len(rows)} devices",
                    "use larger batches, or fewer devices",
                )
            seconds: list[list[float]] = [[] for _ in rows]

            def trial(i: int, batch: Any = batch, seconds: list[list[float]] = seconds) -> None:
                started = perf_counter()
                with self._cores(i, range(len(self._devices))):
                    try:
                        loss, _, gradients, _ = calls[i](batch[i])
                    except NO_GRAPH:
                        calls[i] = plain[i]
                        loss, _, gradients, _ = plain[i](batch[i])
                    read([loss, *gradients.values()])
                seconds[i].append(perf_counter() - started)

            for _ in range(TRIALS):
                self._each(range(len(rows)), trial)
            self._shares = balanced(rows, [median(s[1:]) for s in seconds])
        for d, mark in before.items():
            default_generator(d).return_to(mark)


def _of_device(i: int, batches: Sequence[Any], rows: Sequence[Sequence[int]]) -> tuple[BatchGroup, list[int]]:
    """A device's rows of each batch in which it has some, and how many rows of that batch come before them."""
    held = [(b[i], sum(r[:i])) for b, r in zip(batches, rows, strict=True) if r[i]]
    return BatchGroup(tuple(b for b, _ in held)), [first for _, first in held]


def mean_of(trees: Sequence[Named], weights: Sequence[Any]) -> Named:
    """Σ weight · tensor for each name, in order; where one lacks a name, it counts as zero."""
    out: Named = {}
    for tree, w in zip(trees, weights, strict=True):
        for name, t in tree.items():
            out[name] = out[name] + t * w if name in out else t * w
    return out
