"""A part of a batch that is one row, where a batch norm needs more: said before the first step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import DataParallel, Learner, SingleDevice, TrainingError

TWO = ["cpu:0", "cpu:1"]


class Normed(fb.nn.Module):
    def __init__(self) -> None:
        fb.random.seed(5)
        self.first = fb.nn.Linear(6, 8)
        self.norm = fb.nn.BatchNorm1d(8)
        self.last = fb.nn.Linear(8, 3)
        self.seen = fb.nn.Buffer(fb.zeros(()))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.seen += 1.0
        return self.last(self.norm(self.first(x)))


def trained(rows: int, batch: int, model: Any = Normed, *, drop_last: bool = False, **options: Any) -> Learner:
    x = np.random.default_rng(3).normal(size=(rows, 6))
    net = model()
    learner = Learner(net, fb.optim.SGD(net, lr=0.1), log=None, **options)
    learner.fit(DataLoader(ArrayDataset(x, x[:, :3].argmax(1)), batch, drop_last=drop_last), epochs=1)
    return learner


@pytest.mark.parametrize(
    ("rows", "batch", "options", "sizes"),
    [
        (9, 4, {"strategy": SingleDevice("cpu:0")}, r"\[4, 1\]"),
        (11, 4, {"strategy": DataParallel(TWO)}, r"\[4, 3\]"),
        (8, 4, {"strategy": DataParallel(TWO, shares=[3, 1])}, r"\[4\]"),
        (12, 6, {"accumulate": 4}, r"\[6\]"),
        (3, 8, {"strategy": DataParallel(TWO)}, r"\[3\]"),
        (9, 4, {"strategy": DataParallel(TWO, batch_norm="synchronised")}, r"\[4, 1\]"),
    ],
)
def test_it_is_said_before_the_first_step(rows: int, batch: int, options: dict[str, Any], sizes: str) -> None:
    with pytest.raises(TrainingError, match=f"(?s)more than one value a channel.*{sizes} rows a batch.*drop_last=True"):
        trained(rows, batch, **options)


def flat() -> Any:
    return fb.nn.Sequential(fb.nn.Linear(6, 8), fb.nn.LayerNorm(8), fb.nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("rows", "batch", "options"),
    [
        (9, 4, {"drop_last": True}),
        (8, 4, {"strategy": DataParallel(TWO)}),
        (9, 4, {"model": flat}),
        (11, 4, {"strategy": DataParallel(TWO, batch_norm="synchronised")}),
    ],
)
def test_what_works_is_let_through(rows: int, batch: int, options: dict[str, Any]) -> None:
    assert trained(rows, batch, **options).step == -(-rows // batch) - bool(options.get("drop_last"))


def test_the_trial_counts_nothing() -> None:
    def planes() -> Any:
        class Planes(Normed):
            def __init__(self) -> None:
                super().__init__()
                self.norm = fb.nn.BatchNorm1d(2)

            def forward(self, x: Any) -> Any:
                if self.training:
                    self.seen += 1.0
                return self.last(self.norm(self.first(x).reshape(-1, 2, 4)).reshape(-1, 8))

        return Planes()

    assert trained(9, 4, planes).model.seen.item() == 3.0
