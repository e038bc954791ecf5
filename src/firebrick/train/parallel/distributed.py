"""``Distributed``: the rows of each batch over processes, on one host or many, with the result of one device.

Every rank runs this same program with the model on a device of its own. In a step each takes its rows of the batch forward and
backward; gradients are reduced in buckets, each as soon as the backward pass has finished it, in the order of the ranks, so
that every rank has the same bits and makes the same update. Then the ranks tell each other in a short note what they counted
and which gradients they have. Where the ranks' engines are unlike, rank 0 sends its parameters after each update.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from firebrick import distributed
from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import no_grad
from firebrick.backends.dispatch import read
from firebrick.backends.registry import find_device
from firebrick.core import trees
from firebrick.core.constants import constant
from firebrick.core.device import Device
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.core.version import __version__
from firebrick.data import DataLoader
from firebrick.data.identity import differences
from firebrick.distributed import Group
from firebrick.distributed.group import NOTE as BESIDE
from firebrick.nn import Module
from firebrick.random import Generator, default_generator
from firebrick.train import description, settings
from firebrick.train.batches import BatchGroup, batches_of, tensors_of
from firebrick.train.counted import Counted, merged, plain, summed
from firebrick.train.counted import joined as counted
from firebrick.train.description import listed
from firebrick.train.errors import TrainingError
from firebrick.train.leaves import LeafGraphs
from firebrick.train.measures import Counts
from firebrick.train.own_step import OwnStep
from firebrick.train.parallel.arrivals import Arrivals, buckets
from firebrick.train.parallel.meeting import meeting_at
from firebrick.train.parallel.own_graphs import graphed
from firebrick.train.parallel.passes import Found, Pass, add, running_statistics, take_share
from firebrick.train.parallel.sending import Sending
from firebrick.train.parallel.shares import check_batch_norm, check_shares, divided, sizes_of
from firebrick.train.steps import TrainingStep
from firebrick.train.strategy import Forward, Graphs, Named, Share, bring, of_names

NOTE, HEAD = 8192, 16
"""Bytes of what the ranks tell each other at once, the first of them for its length; a longer note goes round once more."""
BUCKET = 1 << 24
"""Bytes of gradients that travel together."""


class Distributed:
    """Every step over the ranks of a group of processes, which ``firebrick launch``, ``torchrun`` or ``mpiexec`` start.

    Args:
        device: This rank's; the default device if None, on GPUs the one of this rank's number on its host.
        backend: "gloo", "nccl" or "mpi"; that of the launcher if None. A group that ``distributed.init`` made is taken as
            it is.
        shares: How the rows of a batch are divided: "even", or one number a rank.
        batch_norm: As of ``DataParallel``.
        bucket_bytes: Bytes of gradients at which a bucket is full. Each is reduced as soon as the backward pass has finished
            it, while the pass goes on; with synchronised batch norm, whose own sums come in between, after the pass.
        check_every: Steps between two checks that all ranks' parameters are equal; 0 leaves those of a ``Learner``, which
            compares the ranks at the end of each epoch and before each checkpoint.

    Rank 0 writes the run directory. The ranks take the batches of a validation in turn, and all get its result.

    Attributes:
        group: The ranks.

    Raises:
        TrainingError: Shares or a way of batch norm that there are not.
        DeviceError: The device is unknown or absent.
        CollectiveTimeoutError: Not all ranks came.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Distributed
        >>> strategy = Distributed("cpu:0")  # started alone: a group of one
        >>> strategy.group.size, strategy.devices
        (1, (Device('cpu:0'),))
        >>> fb.distributed.shutdown()
    """

    unwatched = frozenset(
        {"_steps", "_agreed", "_asked", "_placed", "_saves", "_asked_to_save", "group"}
    )  # what no graph depends on

    def __init__(
        self, device: Device | str | None = None, backend: str | None = None, *, shares: str | Sequence[float] = "even",
        batch_norm: str = "local", bucket_bytes: int = BUCKET, check_every: int = 100,
    ) -> None:  # fmt: skip
        self.group: Group = _group(backend)
        if isinstance(device, str) and device.endswith(":cuda"):
            device = f"{device}:{distributed.local_rank()}"
        self.device = find_device(device)
        found = check_shares(shares, self.group.size, "rank")
        if found is None:
            raise TrainingError('shares of ranks are "even" or one number a rank', repr(shares), "measure them beforehand")
        self._shares = found
        self.synchronised = check_batch_norm(batch_norm) and self.group.size > 1
        self.joins = self.group.size > 1
        self.bucket_bytes, self.check_every = bucket_bytes, check_every
        self._arrivals = Arrivals(bucket_bytes)
        self._steps = 0
        self._alike = True
        self._placed: Module | None = None
        self._asked = self._agreed = self._asked_to_save = self._saves = False

    @property
    def devices(self) -> tuple[Device, ...]:
        """This rank's device."""
        return (self.device,)

    @property
    def main(self) -> bool:
        """Whether this is the rank that writes the run directory."""
        return self.group.rank == 0

    @property
    def arrivals(self) -> Arrivals | None:
        """What a backward pass reports of its gradients; it does not where ranks meet in each batch norm, whose sums must not
        get between the buckets of some ranks only."""
        return None if self.synchronised or self.group.size == 1 else self._arrivals

    def agree(self, stop: bool) -> bool:
        """Whether some rank asked to stop, up to the last step: the same answer on all of them."""
        self._asked = stop
        return self._agreed if self.group.size > 1 else stop

    def agree_to_save(self, save: bool) -> bool:
        """Whether some rank asked to save: the same answer on all of them, after the step that follows the question."""
        if self.group.size == 1:
            return save
        self._asked_to_save = save and not self._saves
        return self._saves

    def compare(self, settings: Mapping[str, str]) -> None:
        """Raise TrainingError unless all ranks have these settings; what differs is named, with the ranks."""
        if self.group.size == 1:
            return
        digest = hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).digest()
        if len(set(self._told_by_all(digest, len(digest)))) == 1:
            return
        notes = self._notes(settings)
        rows = [
            f"{k}: {first} on rank 0, {other} on rank {r}"
            for r, n in enumerate(notes)
            for k in sorted({*notes[0], *n})
            if (first := notes[0].get(k, "nothing")) != (other := n.get(k, "nothing"))
        ]
        of_parts = any(row.startswith(("model's", "loss's")) for row in rows)
        raise TrainingError(
            "all ranks train with the same settings",
            listed(rows),
            "run the same script with the same arguments on every rank"
            + ("; an attribute that no result depends on belongs in its class's `unwatched`" if of_parts else ""),
        )

    def check(self, model: Module, optimizer: Any = None, averages: Any = None) -> None:
        """Raise TrainingError unless all ranks have the same bits; where their engines differ, of the model alone, which
        rank 0 sends."""
        if self.group.size > 1:
            self.check_replicas(model, *((optimizer, averages) if self._alike else ()))

    def divide(self, rows: int) -> list[int]:
        """How many of a batch's rows each rank takes."""
        return divided(rows, self._shares)

    # a run

    def place(self, model: Module, optimizer: Any, loader: DataLoader, averages: Any = None) -> DataLoader:
        """Move all to this rank's device, take over rank 0's parameters, averages and generators, and deal the batches.

        Raises:
            TrainingError: The ranks' models, optimizers or averages, or what they have left to do, differ.
        """
        if any(p.device is not self.device for _, p in model.named_parameters()):
            model.to(self.device)
        bring(optimizer, self.device)
        bring(averages, self.device)
        self._asked = self._agreed = self._asked_to_save = self._saves = False
        if self.group.size > 1:
            self.compare(_described(model, optimizer, averages))
            notes = self._notes({**self._batches(loader), "machine": _machine(self.device)})
            self._alike = all(n["machine"] == notes[0]["machine"] for n in notes)
            _check_batches(notes)
            self._send([t for _, t in [*model.named_parameters(), *model.named_buffers()]])
            if averages is not None:
                state = averages.state_dict()
                self._send([*state["averages"].values()])
                averages.load_state_dict(state)
            self._level(model)
            self.check_replicas(model, optimizer)
            self._placed = model
        return loader.sharded([self.device] * self.group.size, self.divide, only=self.group.rank)

    def begin(self, fn: Forward, model: Module, loader: DataLoader) -> str:
        """Check that batches can be divided; returns a line with the number of ranks.

        Raises:
            TrainingError: Batch norm is synchronised, and a rank has no rows of some batch.
        """
        for size in sizes_of(loader) if self.synchronised else ():
            self._check_rows(size)
        return "" if self.group.size == 1 else f"{self.group.size} ranks share each batch; this is rank {self.group.rank}"

    def grads(self, fn: Forward, model: Module, batch: Any, parts: int = 1) -> list[Share]:
        """One share: that of all ranks, with gradients reduced already."""
        return self.run([Pass(fn, model, self.joins, self.arrivals)], add, model, batch, parts)

    def run(
        self, passes: Sequence[Callable[..., Found]], adding: Callable[..., Named], model: Module, batch: Any, parts: int = 1
    ) -> list[Share]:
        """``grads`` by a pass, or its graph.

        Args:
            passes: A function for each device that computes its share, or its graph.
            adding: A function that adds up the shares of a device's parts, or its graph.
            model: The learner's model.
            batch: What the loader returned.
            parts: Number of parts into which each device divides its rows.
        """
        rank, size = self.group.rank, self.group.size
        batches = batches_of(batch)
        shares = [self.divide(b.rows) for b in batches]
        if self.synchronised:
            for b in batches:
                self._check_rows(b.rows)
            parts = min(parts, *(n for s in shares for n in s))
        rows = [sum(s[r] for s in shares) for r in range(size)]
        own = [(b.piece, sum(s[:rank])) for b, s in zip(batches, shares, strict=True) if b.piece is not None]
        ran = [sum(s[r] > 0 for s in shares) for r in range(size)]  # batches of which each rank has rows
        share: Share | None = None
        before = self._marks(model)
        self._arrivals.of(model)
        sending = Sending(self.group, dict(model.trainable_parameters()), self._arrivals.buckets, rows[rank] / sum(rows))
        if own:
            pieces = BatchGroup(tuple(piece for piece, _ in own))
            with meeting_at(_Ranks(self.group) if self.synchronised else None), self._arrivals.heard_by(sending):
                first = [rows_before for _, rows_before in own]
                met = shares if self.synchronised else None  # of which each rank has rows of all
                share = take_share(passes[0], adding, model, pieces, first, parts, self.arrivals, met)
        if size == 1:
            assert share is not None
            return [share]
        moved = [(i, *a) for i, (a, b) in enumerate(zip(before, self._marks(model), strict=True)) if a != b]
        drawn = hashlib.sha256(repr(moved).encode()).hexdigest() if ran[rank] == max(ran) else None
        facts = [(t.dtype.name, list(t.shape[1:])) for t in (tensors_of(own[0][0]) if own else [])]
        return [self._joined(model, share, sending, rows, ran, {"drawn": drawn, "rows like": facts})]

    def _check_rows(self, rows: int) -> None:
        """Raise TrainingError unless each rank has some of so many rows."""
        if not all(self.divide(rows)):
            raise TrainingError(
                "synchronised batch norm needs rows of every batch on each rank",
                f"{rows} rows for {self.group.size} ranks",
                "drop a small last batch: DataLoader(…, drop_last=True)",
            )

    def reduce(self, model: Module, grads: Sequence[Named], samples: Sequence[float], buffers: Sequence[Named]) -> Gradients:
        """The gradients of all ranks, which ``grads`` has reduced."""
        with no_grad():
            for name, b in running_statistics(model):
                if name in buffers[0]:
                    b._rebind(buffers[0][name])
        return of_names(model, grads[0])

    def update(self, optimizer: Any, model: Module, grads: Gradients) -> None:
        """``optimizer.update(model, grads)``, on every rank."""
        optimizer.update(model, grads)

    def spread(self, model: Module) -> None:
        """Where engines differ, copy rank 0's parameters; compare the ranks at intervals.

        Raises:
            TrainingError: A rank differs.
        """
        if self.group.size == 1:
            return
        if not self._alike:
            self._send([t for _, t in [*model.named_parameters(), *model.named_buffers()]])
        if self.check_every and self._steps % self.check_every == 0:
            self.check_replicas(model)
        self._steps += 1

    def deal(self, model: Module, loader: DataLoader) -> DataLoader:
        """Every batch of this rank's turn.

        Raises:
            TrainingError: The ranks' models or loaders differ.
        """
        if self.group.size == 1:
            return loader
        notes = self._notes({**self._batches(loader), "digest": _digest(model)})
        _check_batches(notes)
        if len({n["digest"] for n in notes}) > 1:
            if self._alike or self._placed is not model:
                raise TrainingError(
                    "ranks that share an evaluation have the same bits of the model",
                    f"ranks whose {type(model).__name__} differs from that of rank 0",
                    "load the same checkpoint on every rank, or call fit first",
                )
            self._send([t for _, t in [*model.named_parameters(), *model.named_buffers()]])  # averages of unlike engines
        return loader.dealt(self.group.size, self.group.rank)

    def gather(self, found: Counted) -> Counted:
        """The sums of what all ranks have counted, in their order."""
        if self.group.size == 1:
            return found
        total, classes = summed(self._notes(found.plain()), found.measures.further, self.device)
        if classes:
            own = np.zeros((classes, classes), np.int64) if found.confusion is None else found.confusion
            total.confusion = self.group.all_reduce(hooks.from_host(own, find_device("numpy"))).numpy()
        return total

    def compile(self, step: Callable[..., Any]) -> Graphs:
        """The pass as a graph, and all that comes after the reduction as one more."""
        return graphed(step, self) if isinstance(step, TrainingStep | OwnStep) else LeafGraphs(step)

    def replicas(self, model: Module) -> list[Module]:
        """The model of this rank.

        Args:
            model: The learner's model.
        """
        return [model]

    def state(self) -> dict[str, Any]:
        """Nothing: any number of ranks goes on from a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing: no state is kept."""

    # the ranks

    def _joined(
        self, model: Module, share: Share | None, sending: Sending, rows: Sequence[int], ran: Sequence[int],
        same: Mapping[str, Any],
    ) -> Share:  # fmt: skip
        """The share of all ranks, from this one's, and what must be the same on all that have rows: a digest of which random
        numbers were drawn (None where the rank had no rows of some batch), and the dtypes and shapes of rows. Of how many
        batches each rank ``ran`` rows says who has drawn for all of them."""
        group, count = self.group, sum(rows)
        own = {} if share is None else share.gradients
        parameters = list(sending.like)
        counts = [c for c in (() if share is None else share.extra) if isinstance(c, Counts)]
        note = {
            "stop": self._asked,
            "save": self._asked_to_save,
            "counts": plain(counted(counts)) if counts else None,
            "loss": None if share is None else float(share.loss),
            **({} if share is None else same),
            "lacks": None if share is None else [i for i, n in enumerate(parameters) if n not in own],
        }
        text = json.dumps(note).encode()
        sending.rest(own, text if len(text) <= min(NOTE, BESIDE) else b"long")
        statistics = dict(running_statistics(model))
        joining = Sending(group, statistics, buckets(statistics, self.bucket_bytes), rows[group.rank] / count)
        joining.rest({} if share is None else share.buffers)
        reduced = sending.reduced()
        notes = self._notes(note) if b"long" in sending.notes else [json.loads(n) for n in sending.notes]
        self._agreed, self._saves = (any(n[k] for n in notes) for k in ("stop", "save"))
        _check_same([n for n in notes if n["loss"] is not None])
        absent = set.intersection(*(set(n["lacks"]) for n in notes if n["lacks"] is not None))
        if min(ran) < max(ran):
            root = ran.index(max(ran))
            self._level(model, root)
            self._send([b for _, b in model.named_buffers()], root)
        loss = sum(n["loss"] * r for n, r in zip(notes, rows, strict=True) if r) / count
        extra = () if share is None else share.extra
        if any(n["counts"] for n in notes):
            extra = (merged([n["counts"] for n in notes], self.device),)
        return Share(
            constant(loss, as_dtype("float32"), self.device),
            extra,
            {n: reduced[n] for i, n in enumerate(parameters) if i not in absent},
            count,
            joining.reduced(),
        )

    @staticmethod
    def _batches(loader: DataLoader) -> dict[str, Any]:
        """Which batches a loader gives, as far as it can be told."""
        return {"loader": loader.cursor(), "size": loader.batch_size}

    def _notes(self, note: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What every rank says, by rank."""
        text = json.dumps(note).encode()
        found = self._told_by_all(f"{len(text):<{HEAD}}".encode() + text[: NOTE - HEAD], NOTE)
        longest = max(int(t[:HEAD]) for t in found)
        if longest > NOTE - HEAD:
            return [json.loads(t) for t in self._told_by_all(text, longest)]
        return [json.loads(t[HEAD:]) for t in found]

    def _told_by_all(self, text: bytes, size: int) -> list[bytes]:
        """The texts of all ranks, each padded to the same size."""
        padded = hooks.from_host(np.frombuffer(text.ljust(size), np.uint8), find_device("numpy"))
        return [t.numpy().tobytes() for t in self.group.all_gather(padded)]

    def _send(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        """Take over the values of one rank's tensors."""
        by_dtype: dict[Any, list[Tensor]] = {}
        for t in tensors:
            by_dtype.setdefault(t.dtype, []).append(t)
        for own in by_dtype.values():
            with no_grad():
                for t, new in zip(own, self.group.broadcast([t.detach() for t in own], root), strict=True):
                    Tensor._rebind(t, new.detach())  # also weights of tiles

    def _generators(self, model: Module) -> list[Generator]:
        """What a pass may draw from."""
        return [*model.generators().values(), default_generator(self.device)]

    def _marks(self, model: Module) -> list[tuple[int, int]]:
        """Where the generators stand."""
        return [g.mark() for g in self._generators(model)]

    def _level(self, model: Module, root: int = 0) -> None:
        """Bring all generators to where those of one rank stand."""
        generators = self._generators(model)
        words = np.concatenate([w for g in generators for w in g.state().values()])
        sent = self.group.broadcast(hooks.from_host(words, find_device("numpy")), root).numpy().reshape(len(generators), 2, 2)
        for g, (seed, counter) in zip(generators, sent, strict=True):
            g.set_state({"seed": seed, "counter": counter})

    def check_replicas(self, model: Module, optimizer: Any = None, averages: Any = None) -> None:
        """Raise TrainingError unless all ranks have the same bits of model, optimizer and averages.

        Args:
            model: The model of this rank.
            optimizer: Its optimizer.
            averages: Its ``EMA``, or None.
        """
        digest = bytes.fromhex(_digest(model, optimizer, averages))
        mine = hooks.from_host(np.frombuffer(digest, np.uint8), find_device("numpy"))
        found = [t.numpy().tobytes() for t in self.group.all_gather(mine)]
        strange = [str(r) for r, d in enumerate(found) if d != found[0]]
        if strange:
            raise TrainingError(
                "all ranks have the same bits of the model and the optimizer",
                f"rank {', '.join(strange)} differs from rank 0, at step {self._steps}",
                "let every rank update with the same settings, and resume all of them from the same checkpoint; if it goes on, "
                "run `firebrick doctor` on that host",
            )


def _check_batches(notes: Sequence[Mapping[str, Any]]) -> None:
    """Raise TrainingError unless all ranks have the same batches before them, and all could read the samples, or none."""
    unread = [(n["loader"].get("data") or {}).get("unread") for n in notes]
    if len(set(unread)) > 1:
        raise TrainingError(
            "all ranks can read the samples of the data set by which their data are compared",
            "; ".join(f"rank {r}: {why}" for r, why in enumerate(unread) if why is not None),
            "make them readable on that rank, or give the data set a method fingerprint() with the same text on every rank",
        )
    first = notes[0]
    for n in notes:
        if any(n[k] != first[k] for k in ("loader", "size")):
            shown = [
                f"epoch {x['loader']['epoch']}, position {x['loader']['position']}, batches of {x['size']}" for x in (first, n)
            ]
            others = differences(first["loader"], n["loader"], "on rank 0", "on another")
            raise TrainingError(
                "all ranks draw the same batches",
                "; ".join([f"rank 0: {shown[0]}; another: {shown[1]}", *others]),
                "give every rank the same data, seed and batch size, and resume all of them from the same checkpoint",
            )


def _described(model: Module, optimizer: Any, averages: Any) -> dict[str, str]:
    """The settings of what every rank has a replica of."""
    state = optimizer.state_dict()
    own = {"class": type(optimizer).__qualname__, **settings.optimizers(state, averages)}
    own |= {f"groups[{i}]": tuple(group["names"]) for i, group in enumerate(state.get("groups", ())) if i}
    parts = {"model": description.of_model(model, shapes=True), "optimizer": description.of_settings(own)}
    return {f"{part}'s {k}": v for part, found in parts.items() for k, v in found.items()}


def _digest(model: Module, optimizer: Any = None, averages: Any = None) -> str:
    """A digest of the bits of parameters and buffers, and of an optimizer's state and averages."""
    held = [t.detach() for _, t in [*model.named_parameters(), *model.named_buffers()]]
    if optimizer is not None:
        held += [v for v in trees.flatten(optimizer.state_dict())[0] if isinstance(v, Tensor)]
    if averages is not None:
        held += averages.averages.values()
    digest = hashlib.sha256()
    for a in read(held):
        digest.update(np.ascontiguousarray(a).tobytes())
    return digest.hexdigest()


def _check_same(notes: Sequence[Mapping[str, Any]]) -> None:
    """Raise TrainingError unless the ranks that had rows drew alike, from rows that are alike."""
    if len({n["drawn"] for n in notes if n["drawn"] is not None}) > 1:
        raise TrainingError(
            "all ranks draw the same random numbers, each its rows of them",
            "generators that stand elsewhere on some ranks than on others",
            "draw what one rank draws alone, between two steps, from a fb.random.Generator of its own",
        )
    rows = {str(n["rows like"]): n["rows like"] for n in notes}
    if len(rows) > 1:
        shown = " and ".join(", ".join(f"{dtype}{shape}" for dtype, shape in facts) for facts in list(rows.values())[:2])
        raise TrainingError(
            "the rows of a batch have one dtype and shape, whichever ranks they go to",
            f"rows of {shown}",
            "let the data set give samples of one dtype and shape, or join them by collate, which gets the whole batch",
        )


class _Ranks:
    """Where the replicas of a group's ranks meet."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def sum(self, x: Tensor) -> Tensor:
        """Σ x over the ranks."""
        return self._group.all_reduce(x)

    def leave(self) -> None:
        """Nothing: the others notice, and name this rank."""


def _group(backend: str | None) -> Group:
    """The group of this process, made if there is none."""
    try:
        return distributed.current()
    except ConfigError:
        return distributed.init(backend)


def _machine(device: Device) -> str:
    """What decides the bits of a computation."""
    facts = device.backend.properties(device)
    return f"{__version__} {device.engine} {facts.get('target') or facts.get('name')}"
