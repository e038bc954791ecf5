"""Batches, model and optimizer are where the strategy runs, however they were made; where not, nothing is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from combinations import turns_of

import firebrick as fb
from firebrick.core.errors import DeviceMismatchError
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import DataParallel, Learner, SingleDevice, Strategy, TrainingError


def images(device: str) -> DataLoader:
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    pixels = rng.normal(size=(40, 1, 8, 8)) + labels[:, None, None, None]
    return DataLoader(ArrayDataset(pixels, labels), 10, shuffle=True, device=device)


def network(device: str) -> Any:
    fb.random.seed(0)
    nn = fb.nn
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4)).to(device)


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "one": lambda: SingleDevice("cpu:1"),
    "another": lambda: SingleDevice("numpy:0"),
    "parallel over one": lambda: DataParallel(["cpu:1"]),
    "two": lambda: DataParallel(["cpu:0", "cpu:1"]),
    "three engines": lambda: DataParallel(["cpu:1", "torch:cpu", "numpy:0"], [5, 3, 2]),
}
LOADERS: dict[str, Callable[[], DataLoader]] = {
    "as it is": lambda: images("numpy"),
    "slice, then to": lambda: images("numpy").slice(0, 20).to("cpu:2"),
    "to, then slice": lambda: images("numpy").to("cpu:2").slice(0, 20),
    "split of one": lambda: images("numpy").split(["cpu:3"])[0],
    "split of two": lambda: images("numpy").split(["cpu:3", "numpy:1"])[1],
}


@pytest.mark.parametrize(("strategy", "loader"), turns_of(STRATEGIES, LOADERS))
def test_a_loader_from_elsewhere_trains_a_model_from_elsewhere(strategy: str, loader: str) -> None:
    model = network("cpu:1")
    learner = Learner(model, fb.optim.Adam(model, lr=0.01), strategy=STRATEGIES[strategy](), log=None)
    source = LOADERS[loader]()
    before = source.device
    learner.fit(source, source, epochs=2)
    assert learner.step == 2 * len(source)
    assert learner.history[1].train_loss < learner.history[0].train_loss
    assert {p.device for _, p in model.named_parameters()} == {learner.strategy.devices[0]}
    assert source.device is before


def test_the_result_is_that_of_a_loader_made_on_the_right_device() -> None:
    found = []
    for device in ("numpy", "cpu:0"):
        model = network("cpu:0")
        learner = Learner(model, fb.optim.Adam(model, lr=0.01), strategy=DataParallel(["cpu:0", "cpu:1"]), log=None)
        learner.fit(images(device), epochs=1)
        found.append([p.numpy().tobytes() for _, p in model.named_parameters()])
    assert found[0] == found[1]


# the placing step is taken away


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_placing_the_run_ends_before_its_first_step(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLoader, "to", lambda self, device: self)
    monkeypatch.setattr(DataLoader, "sharded", lambda self, devices, divide, **more: self)
    model = network("cpu:1")
    learner = Learner(model, fb.optim.Adam(model, lr=0.01), strategy=STRATEGIES[strategy](), log=None)
    with pytest.raises(TrainingError) as e:
        learner.fit(images("numpy:3"), epochs=1)
    said = str(e.value)
    assert 'loader "train"' in said
    assert "numpy:3" in said
    assert learner.strategy.devices[0].name in said
    assert "loader.to(" in said
    assert learner.step == 0


@pytest.mark.parametrize("strategy", ["one", "two"])
def test_a_batch_on_another_device_than_its_loader_says_is_named(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from firebrick.data import placing

    right = placing.hooks.from_host
    stray = fb.device("numpy:3")

    class Strayed:
        from_host = staticmethod(lambda host, device: right(host, stray))

    monkeypatch.setattr(placing, "hooks", Strayed)
    model = network("cpu:1")
    learner = Learner(model, fb.optim.Adam(model, lr=0.01), strategy=STRATEGIES[strategy](), log=None)
    with pytest.raises(TrainingError) as e:
        learner.fit(images("numpy"), epochs=1)
    said = str(e.value)
    for part in ('loader "train"', "batch 0", "numpy:3", learner.strategy.devices[0].name, "loader."):
        assert part in said, part
    assert learner.step == 0


# the devices are distinct


def test_logical_devices_are_distinct_and_do_not_mix() -> None:
    a, b = fb.ones(3, device="cpu:0"), fb.ones(3, device="cpu:1")
    assert a.device is not b.device
    with pytest.raises(DeviceMismatchError, match=r"cpu:0.*cpu:1"):
        a + b


def test_the_check_would_not_find_a_stray_batch_if_devices_were_confused(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = DataParallel(["cpu:0", "cpu:1"])
    model = network("cpu:0")
    batch = strategy.place(model, fb.optim.SGD(model, lr=0.1), images("numpy")).first()
    strays = [batch[0], tuple(t.to("cpu:0") for t in batch[1])]
    fn = lambda m, x, y: (fb.cross_entropy(m(x), y), None)  # noqa: E731
    with pytest.raises(TrainingError, match=r"the rows of a batch that cpu:1 takes lie on cpu:1"):
        strategy.grads(fn, model, strays)
    first = strategy.devices[0]
    monkeypatch.setattr(strategy, "_devices", (first, first))  # two names for one device
    strategy._replicas[1].to(first)
    strategy.grads(fn, model, strays)
