"""What ranks do in the tests of ``Distributed``: train in several ways, of which rank 0 compares the results with one device.
As a program, which is launched, it prints them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

import firebrick as fb
from firebrick.core import trees
from firebrick.data import ArrayDataset, DataLoader
from firebrick.distributed import Group, rank
from firebrick.train import Distributed, Learner, SingleDevice, Strategy, TrainingError
from firebrick.train.parallel import distributed

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda model: fb.optim.SGD(model, lr=0.1, momentum=0.9),
    "adamw": lambda model: fb.optim.AdamW(model, lr=0.01),
}


def trained(
    strategy: Strategy, *, norm: bool = False, optimizer: str = "sgd", batch: int = 12, epochs: int = 5, **options: Any
) -> Learner:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(118, 6))
    loader = DataLoader(ArrayDataset(x, x[:, :3].argmax(1)), batch, shuffle=True, dtype="float64")
    fb.random.seed(5 + rank())  # what rank 0 has counts
    first, last = fb.nn.Linear(6, 16, bias=not norm, dtype="float64"), fb.nn.Linear(16, 3, dtype="float64")
    layers: list[Any] = [first, fb.nn.Tanh(), fb.nn.Dropout(0.2), last]
    if norm:
        layers.insert(1, fb.nn.BatchNorm1d(16, dtype="float64"))
    model = fb.nn.Sequential(*layers)
    learner = Learner(model, OPTIMIZERS[optimizer](model), strategy=strategy, log=None, seed=1, clip_norm=0.3, **options)
    learner.fit(loader, loader, epochs=epochs)
    return learner


def furthest(a: Learner, b: Learner) -> float:
    one, other = ({n: t.numpy() for n, t in x.model.state_dict().items()} for x in (a, b))
    return max(float(np.abs(one[n] - other[n]).max()) for n in one)


HOSTS = ("uneven", "small buckets")
"""Ways that call every collective, in one piece and in several."""

TRANSPORT = ("uneven", "a rank without rows", "synchronised", "small buckets", "long notes")
"""The ways that between them call every collective, with empty and uneven shares, in one piece and in several."""


LONG = ("sgd", "adamw", "uneven")
"""Ways that take 50 steps, where others take 20: two updates, and a gradient of uneven parts."""


def compare(
    group: Group, pipe: Any = None, *, chosen: Sequence[str] = (), epochs: int = 5, short: bool = False
) -> dict[str, tuple[float, float, int]]:
    """How far weights, losses and steps are from those of one device, on rank 0 for each way.

    Args:
        group: Of this rank.
        pipe: Not used.
        chosen: Ways to train; all if empty.
        epochs: For how long.
        short: Whether ways that are not of ``LONG`` train for two epochs.
    """
    found, alones = dict[str, tuple[float, float, int]](), dict[str, Learner]()
    device = "cpu:0" if group.rank % 2 == 0 else "numpy:0"  # ranks on unlike engines
    ways: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "sgd": ({}, {}),
        "adamw": ({}, {"optimizer": "adamw"}),
        "parts": ({}, {"accumulate": 2}),
        "uneven": ({"shares": [5.0, *[1.0] * (group.size - 1)]}, {}),
        "a rank without rows": ({}, {"batch": 117}),  # the last batch has one row
        "synchronised": ({"batch_norm": "synchronised"}, {"norm": True}),
        "small buckets": ({"bucket_bytes": 64}, {}),
        "averages": ({}, {"ema": 0.9}),
        "one rank has all rows": ({"shares": [0.01, 9.0, *[0.01] * (group.size - 2)]}, {"norm": True}),
        "long notes": ({}, {}),
    }
    for name, (how, options) in ways.items():
        if chosen and name not in chosen:
            continue
        distributed.NOTE = 64 if name == "long notes" else 8192
        taken = 2 if short and name not in LONG else epochs
        strategy = Distributed(device, check_every=1, **how)
        learner = trained(strategy, epochs=taken, **options)
        if strategy.main:  # which others need not do
            learner.evaluate(DataLoader(ArrayDataset(np.ones((5, 6)), np.arange(5) % 3), 2, dtype="float64"))
        seen = group.all_gather(fb.asarray([float(r.valid_loss or 0.0) for r in learner.history], dtype="float64"))
        if strategy.main:
            same = json.dumps([taken, options])  # on one device, ways differ in these alone
            if same not in alones:
                alones[same] = trained(SingleDevice("cpu:0"), epochs=taken, **options)
            alone = alones[same]
            losses = np.abs(np.array([[r.train_loss, r.valid_loss] for r in learner.history], float)
                            - np.array([[r.train_loss, r.valid_loss] for r in alone.history], float))  # fmt: skip
            apart = max(float(np.abs(t.numpy() - seen[0].numpy()).max()) for t in seen)
            found[name] = (furthest(alone, learner), max(float(losses.max()), apart), learner.step - alone.step)
    found["extras"] = (0.0 if extras(Distributed(device)) else 1.0, 0.0, 0)
    found["evaluation"] = (unlike(Distributed(device)), 0.0, 0)
    found["buckets after the backward pass"] = (0.0 if early(Distributed(device, bucket_bytes=64)) else 1.0, 0.0, 0)
    for name, act in (("unlike rows", unlike_rows), ("unlike models", unlike_models), ("unlike loaders", unlike_loaders)):
        found[f"{name} let through"] = (0.0 if act(Distributed(device)) else 1.0, 0.0, 0)
    found["numbers that one rank draws alone"] = (0.0 if refused(Distributed(device)) else 1.0, 0.0, 0)
    return found


def unlike_settings(group: Group, pipe: Any, out: str) -> dict[str, Any]:
    """What the ranks say of each setting that rank 1 has otherwise, and of a replica that goes astray in the last step."""
    odd, said = group.rank == 1, dict[str, Any]()

    def learner(kind: str, name: str = "", **options: Any) -> Learner:
        fb.random.seed(5)
        other = kind if odd else ""
        width = 9 if other == "width" else 8
        dtype = "float64" if other == "dtype" else "float32"
        drop = fb.nn.Dropout(0.5 if other == "dropout" else 0.2)
        model = fb.nn.Sequential(fb.nn.Linear(6, width), fb.nn.ReLU(), drop, fb.nn.Linear(width, 3, dtype=dtype))
        if other == "frozen":
            model.layers[0].freeze()
        lr, momentum = 0.2 if other == "rate" else 0.1, 0.9 if other == "momentum" else 0.0
        loss = fb.nn.CrossEntropyLoss(label_smoothing=0.1 if other == "loss" else 0.0)
        if other == "clip":
            options["clip_norm"] = 0.1
        if other == "averages":
            options["ema"] = 0.9
        optimizer = fb.optim.SGD(model, lr=lr, momentum=momentum)
        strategy = Distributed("numpy:0", check_every=0)
        options = {"jit": other != "jit", **options}
        return Learner(model, optimizer, loss, strategy=strategy, log=None, seed=1, **options)

    x = np.random.default_rng(3).normal(size=(32, 6))
    loader = DataLoader(ArrayDataset(x, x[:, :3].argmax(1)), 8)
    for kind in (
        "nothing",
        "momentum",
        "rate",
        "dropout",
        "loss",
        "clip",
        "averages",
        "width",
        "dtype",
        "frozen",
        "jit",
        "epochs",
    ):
        said[kind] = outcome(lambda kind=kind: learner(kind).fit(loader, epochs=2 if odd and kind == "epochs" else 1))
    for steps in (4, 2):  # the replica is found at the end of the epoch, and before a checkpoint within it

        def astray(optimizer: Any, model: Any, grads: Any, real: Any, at: int = steps) -> None:
            real(optimizer, model, grads)
            if odd and optimizer.step == at:
                model.layers[0].weight = model.layers[0].weight + 1.0

        one = learner("nothing", jit=False, out=f"{out}/{steps}", checkpoint_steps=None if steps == 4 else 2)
        one.strategy.update = partial(astray, real=one.strategy.update)  # type: ignore[method-assign]
        said[f"astray in step {steps}"] = [outcome(lambda one=one: one.fit(loader, epochs=1, draw=False)), one.step]
    one = learner("nothing", out=f"{out}/saved", checkpoint_steps=2)
    saved: list[int] = []
    one.strategy.check = lambda *state: saved.append(one.step)  # type: ignore[method-assign]
    one.fit(loader, epochs=1, draw=False)
    said["checks"] = saved
    return said


def outcome(act: Any) -> str:
    try:
        act()
    except TrainingError as e:
        return str(e)
    return ""


def unlike(strategy: Distributed) -> float:
    """How far what the ranks evaluate together is from what one device does."""
    fb.random.seed(7)
    rng = np.random.default_rng(3)
    x, windows = rng.normal(size=(118, 6)), rng.normal(size=(30, 8, 2))
    series = fb.nn.Sequential(fb.nn.Linear(2, 2, dtype="float64"), fb.nn.Tanh())
    scores = fb.nn.Sequential(fb.nn.Linear(6, 3, dtype="float64"), fb.nn.Dropout(0.5))
    labels, furthest = x[:, :3].argmax(1), 0.0
    tasks = (
        (scores, fb.cross_entropy, ArrayDataset(x, labels)),
        (series, fb.mse_loss, ArrayDataset(windows, np.tanh(windows))),
    )
    for model, loss, data in tasks:
        for batch in (7, 118):  # also one batch for all ranks
            loader = DataLoader(data, batch, dtype="float64", num_workers=2)
            reports = []
            for how in (SingleDevice("cpu:0"), strategy):
                learner = Learner(model, OPTIMIZERS["sgd"](model), loss, strategy=how, log=None)
                model.to(how.devices[0])
                reports.append(learner.evaluate(loader, shared=True))
            one, all_of_us = (asdict(r) for r in reports)
            assert one.keys() == all_of_us.keys()
            for a, b in zip(trees.flatten(one)[0], trees.flatten(all_of_us)[0], strict=True):
                furthest = max(furthest, float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max()))
    return furthest


def unlike_rows(strategy: Distributed) -> bool:
    """Whether a batch is refused whose rows are whole numbers on one rank and not on another."""
    own = -(-8 // fb.distributed.world_size())  # of the first rank

    class Mixed:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, i: int) -> Any:
            return np.full(6, i if i < own else i + 0.5, np.int64 if i < own else np.float64), i % 3

    model = fb.nn.Linear(6, 3, dtype="float64")
    batch = strategy.place(model, OPTIMIZERS["sgd"](model), DataLoader(Mixed(), 8, dtype="float64")).first()
    try:
        strategy.grads(lambda m, x, y: (fb.cross_entropy(m(fb.astype(x, fb.float64)), y), {}), model, batch)
    except TrainingError as e:
        return "one dtype and shape, whichever ranks they go to" in str(e)
    return False


def unlike_models(strategy: Distributed) -> bool:
    """Whether an evaluation is refused of models that differ between ranks."""
    fb.random.seed(rank())
    return not_shared(strategy, 7, "the same bits of the model")


def unlike_loaders(strategy: Distributed) -> bool:
    """Whether an evaluation is refused of loaders that differ between ranks."""
    fb.random.seed(0)
    return not_shared(strategy, 7 + rank(), "all ranks draw the same batches")


def not_shared(strategy: Distributed, batch: int, text: str) -> bool:
    model = fb.nn.Linear(6, 3, dtype="float64")
    model.to(strategy.devices[0])
    learner = Learner(model, OPTIMIZERS["sgd"](model), strategy=strategy, log=None)
    try:
        learner.evaluate(DataLoader(ArrayDataset(np.ones((30, 6)), np.arange(30) % 3), batch, dtype="float64"), shared=True)
    except TrainingError as e:
        return text in str(e)
    return False


def early(strategy: Distributed) -> bool:
    """Whether the gradients of the last layer are on their way before the backward pass has come to the first one."""
    first, last = fb.nn.Linear(6, 16, dtype="float64"), fb.nn.Linear(16, 3, dtype="float64")
    data = DataLoader(ArrayDataset(np.ones((8, 6)), np.arange(8) % 3), 8, dtype="float64")
    model = fb.nn.Sequential(first, last)
    batch = strategy.place(model, OPTIMIZERS["sgd"](model), data).first()
    seen: list[str] = []
    group = strategy.group
    for name in ("all_reduce", "all_reduce_noted"):
        reduce = getattr(group, name)
        setattr(group, name, lambda *a, reduce=reduce, **k: (seen.append("sent"), reduce(*a, **k))[1])

    def loss(m: Any, x: Any, y: Any) -> Any:
        h = first(x)
        fb.register_hook(h, lambda g: seen.append("first layer"))
        return fb.cross_entropy(last(h), y), {}

    strategy.grads(loss, model, batch)
    for name in ("all_reduce", "all_reduce_noted"):
        delattr(group, name)
    return seen == ["sent", "first layer", "sent", "sent"]


def extras(strategy: Distributed) -> bool:
    """Whether anything that a function returns with its loss comes back, on each rank what its own rows gave."""
    model = fb.nn.Linear(6, 3, dtype="float64")
    data = DataLoader(ArrayDataset(np.arange(48.0).reshape(8, 6), np.arange(8) % 3), 8, dtype="float64")
    batch = strategy.place(model, OPTIMIZERS["sgd"](model), data).first()
    rows = batch.piece[-1].shape[0]
    thing = object()
    for parts in (1, 2):
        for value in (None, 3, 2.5, True, "text", thing, [], {}, {"a": (None, 1), "b": [thing]}, lambda: 0, {"loss": None}):
            (share,) = strategy.grads(lambda m, x, y: (fb.cross_entropy(m(x), y), value), model, batch, parts)  # noqa: B023
            assert share.samples == 8
            assert share.extra == (value,) * min(parts, rows)
        (share,) = strategy.grads(lambda m, x, y: (fb.cross_entropy(m(x), y), {"x": x, "y": [m(x)]}), model, batch, parts)
        assert not any(e["y"][0].tracked for e in share.extra)
        joined = np.concatenate([e["x"].numpy() for e in share.extra])
        assert (joined == batch.piece[0].numpy()).all()
    return True


def refused(strategy: Distributed) -> bool:
    """Whether ranks end that draw other random numbers than each other."""
    model = fb.nn.Sequential(fb.nn.Linear(6, 3, dtype="float64"), fb.nn.Dropout(0.2))
    data = DataLoader(ArrayDataset(np.ones((8, 6)), np.arange(8) % 3), 8, dtype="float64")
    batch = strategy.place(model, OPTIMIZERS["sgd"](model), data).first()
    if strategy.main:
        next(iter(model.generators().values())).uniform((2,))
    try:
        strategy.grads(lambda m, x, y: (fb.cross_entropy(m(x), y), {}), model, batch)
    except TrainingError as e:
        return "all ranks draw the same random numbers" in str(e)
    return False


def die(rank: int) -> None:
    strategy = Distributed("cpu:0")
    strategy.group.timeout = 20.0
    before = strategy.spread

    def dying(model: Any) -> None:
        before(model)
        if strategy.group.rank == rank and strategy._steps == 20:
            os.kill(os.getpid(), signal.SIGKILL)

    strategy.spread = dying  # type: ignore[method-assign]
    trained(strategy)


if __name__ == "__main__":
    if sys.argv[1] == "die":
        die(int(sys.argv[2]))
    transport: dict[str, Any] = {"chosen": TRANSPORT, "epochs": 2}  # each epoch calls all that another one does
    here = fb.distributed.init()
    result = compare(here, **(transport if sys.argv[1] == "transport" else {}))
    if here.rank == 0:
        print("found", json.dumps(result), flush=True)
    fb.distributed.shutdown()
