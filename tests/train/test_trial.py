"""The trial passes before the first step leave no trace, not even in what a model or a loss keeps outside of buffers."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import DataParallel, Learner
from firebrick.train.trial import on_trial

STARTS: dict[str, Any] = {
    "tensor": lambda: fb.zeros(()),
    "list": lambda: [fb.zeros(())],
    "int": lambda: 0,
    "array": lambda: np.zeros(()),
}


class Counting(nn.Module):
    """A layer that counts its calls in a plain attribute."""

    def __init__(self, kind: str) -> None:
        self.layer, self.calls = nn.Linear(4, 3), STARTS[kind]()

    def forward(self, x: Any) -> Any:
        if isinstance(self.calls, list):
            self.calls[0] += 1.0
        else:
            self.calls += 1
        return self.layer(x)

    def count(self) -> float:
        return float(self.calls[0] if isinstance(self.calls, list) else self.calls)


class CountingLoss:
    """A callable object, no module."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, output: Any, target: Any) -> Any:
        self.calls += 1
        return fb.cross_entropy(output, target)

    def named(self, output: Any, target: Any) -> Any:
        return self(output, target)


def loader() -> DataLoader:
    return DataLoader(ArrayDataset(np.random.default_rng(0).normal(size=(32, 4)), np.arange(32) % 3), 8)


@pytest.mark.filterwarnings("ignore::firebrick.train.EagerTrainingWarning")
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("kind", list(STARTS))
def test_as_many_calls_are_counted_as_there_are_steps(kind: str, jit: bool) -> None:
    model = Counting(kind)
    learner = Learner(model, optim.Adam(model, lr=1e-2), log=None, jit=jit)
    learner.fit(loader(), epochs=1)
    assert model.count() == 4.0
    learner.fit(loader(), epochs=2)
    assert model.count() == 8.0


@pytest.mark.parametrize("shares", ["even", "measured"])
def test_the_trial_of_several_devices_leaves_no_trace_either(shares: str) -> None:
    fb.random.seed(0)
    model, loss = Counting("int"), CountingLoss()
    learner = Learner(
        model, optim.Adam(model, lr=1e-2), loss, log=None, jit=False, strategy=DataParallel(["cpu:0", "numpy:0"], shares)
    )
    learner.fit(loader(), epochs=1)
    assert model.count() == 4.0
    assert loss.calls == 8


@pytest.mark.parametrize("of", [lambda loss: loss, lambda loss: loss.__call__, lambda loss: loss.named])
def test_a_loss_that_is_an_object_or_a_method_leaves_no_trace_either(of: Any) -> None:
    model, loss = nn.Linear(4, 3), CountingLoss()
    Learner(model, optim.Adam(model, lr=1e-2), of(loss), log=None, jit=False).fit(loader(), epochs=1)
    assert loss.calls == 4


@pytest.mark.parametrize("loss", [fb.cross_entropy, partial(fb.cross_entropy, label_smoothing=0.1), fb.jit(fb.cross_entropy)])
def test_losses_without_attributes_of_their_own_are_taken(loss: Any) -> None:
    model = nn.Linear(4, 3)
    learner = Learner(model, optim.Adam(model, lr=1e-2), loss, log=None, jit=False)
    learner.fit(loader(), epochs=1)
    assert learner.step == 4


def test_what_cannot_be_copied_is_shared_and_the_rest_is_copied() -> None:
    model = nn.Sequential(Counting("int"))
    model.layers[0].lock = lock = Lock()
    learner = Learner(model, optim.Adam(model, lr=1e-2), log=None, jit=False)
    learner.fit(loader(), epochs=1)
    assert model.layers[0].count() == 4.0
    assert model.layers[0].lock is lock


def test_a_loss_may_ask_the_model_for_what_its_call_left_there() -> None:
    class Leaving(nn.Linear):
        def forward(self, x: Any) -> Any:
            out = super().forward(x)
            self.penalty = fb.mean(out**2)
            return out

    model = Leaving(4, 3)
    learner = Learner(
        model,
        optim.Adam(model, lr=1e-2),
        lambda output, target: fb.cross_entropy(output, target) + 0.1 * model.penalty,
        log=None,
        jit=False,
    )
    learner.fit(loader(), loader(), epochs=1)
    assert learner.step == 4


def test_attributes_are_the_same_objects_afterwards_whatever_the_block_does() -> None:
    model = nn.Sequential(Counting("list"), Counting("array"))
    first, second = model.layers
    second.other = first.calls  # one list, held twice
    model.named_parameters()  # which gives modules their paths
    before = [dict(vars(m)) for _, m in model.modules()]

    def block() -> None:
        with on_trial(model, None):
            first(fb.ones((2, 4)))
            assert second.other is first.calls
            assert first.calls[0].item() == 1.0
            first.new, model.layers = 1, []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        block()
    assert [dict(vars(m)) for _, m in model.modules()] == before
    assert first.calls[0].item() == 0.0
    assert second.other is first.calls
