"""A small task that trains in milliseconds: points of three classes in the plane, with dropout in the model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Learner


class Net(nn.Module):
    """Two dense layers with dropout between them."""

    def __init__(self, hidden: int = 16, drop: float = 0.3) -> None:
        self.dense1 = nn.Linear(2, hidden)
        self.drop = nn.Dropout(drop)
        self.dense2 = nn.Linear(hidden, 3)

    def forward(self, x: Any) -> Any:
        return self.dense2(self.drop(fb.relu(self.dense1(x))))


def points(count: int = 50, seed: int = 0) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    centres = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    return ArrayDataset(centres[labels] + rng.normal(size=(count, 2)) * 0.5, labels)


@pytest.fixture
def net() -> type[Net]:
    """The model's class: ``net(hidden=…, drop=…)``."""
    return Net


@pytest.fixture
def loaders() -> tuple[DataLoader, DataLoader]:
    """50 points to train in batches of 8 (the last has 2), 20 to validate."""
    return DataLoader(points(), 8, shuffle=True, seed=3), DataLoader(points(20, 1), 16, name="valid")


@pytest.fixture
def make() -> Callable[..., Learner]:
    """Makes a learner with fresh parameters; the same ones each time."""

    def build(*, lr: Any = None, model: Any = None, **options: Any) -> Learner:
        fb.random.seed(11)
        net = model if model is not None else Net()
        optimizer = optim.Adam(net, lr=optim.cosine(0.05, steps=200, warmup=5) if lr is None else lr)
        return Learner(net, optimizer, **{"seed": 5, "log": None, **options})

    return build
