"""Steps of a ``Learner`` that run as they are written, interrupted anywhere: all that a step changes is that of before, or of
after."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted

import firebrick as fb
from firebrick import nn, optim
from firebrick.train import Learner
from firebrick.train.compiled import Compiled
from firebrick.train.steps import TrainingStep

OWN = ("train", "optim", "autodiff/transforms.py", "core/commit.py", "core/journal.py", "nn/normalisation.py")

pytestmark = pytest.mark.usefixtures("numpy_kernels")


class Normed(nn.Module):
    """Running statistics and dropout."""

    def __init__(self) -> None:
        self.dense1, self.norm, self.drop, self.dense2 = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 3)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.dense2(self.drop(self.norm(self.dense1(x))))


def bits(learner: Learner) -> Any:
    """Everything that the next step depends on."""
    state = learner.optimizer.state_dict()
    tensors = dict(learner.model.state_dict())
    tensors |= {f"{m}.{n}": t for m, held in state["moments"].items() for n, t in held.items()}
    tensors |= {f"average {n}": t for n, t in learner.ema.averages.items()}
    generators = [fb.random.default_generator("cpu"), *learner.model.generators().values()]
    counts = [int(state["step"]), learner.ema.step, learner.precision.state_dict(), [g.mark() for g in generators]]
    return {n: t.numpy().tobytes() for n, t in tensors.items()}, counts


def test_an_interrupted_step_has_changed_everything_or_nothing(make: Callable[..., Learner]) -> None:
    rng = np.random.default_rng(0)
    batch = fb.asarray(rng.normal(size=(8, 2)).astype(np.float32)), fb.asarray(rng.integers(0, 3, 8))
    watching = fb.asarray(False)

    def made() -> tuple[Learner, Callable[[], Any]]:
        fb.random.seed(0)
        learner = make(model=Normed(), jit=False, precision="float16", clip_norm=1.0, ema=0.9)
        learner.optimizer = optim.AdamW(learner.model, 0.01)
        parts = learner.model.train(), learner.optimizer, learner.loss, learner.strategy, 1.0, learner.ema, learner.precision
        step = Compiled("training step", TrainingStep(*parts, 1), None)
        return learner, lambda: step(watching, batch)

    learner, step = made()
    before = bits(learner)
    places = interrupted(step, None, *OWN)
    after = bits(learner)
    assert places > 500
    for at in range(1, places + 1, 23):
        learner, step = made()
        assert bits(learner) == before
        interrupted(step, at, *OWN)
        assert bits(learner) in (before, after), f"at place {at} of {places}"
