"""NumPy scalars as settings: layers, losses, optimizers, schedules and a ``Learner`` keep the Python numbers of their value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.train import Learner

model = nn.Linear(2, 2)
HALF = 0.5  # the same number in every floating type

MADE: dict[str, Any] = {
    "Linear": lambda i, f, b: nn.Linear(i(3), i(2), bias=b(False)),
    "Conv2d": lambda i, f, b: nn.Conv2d(i(1), i(2), (i(3), 3), stride=i(2), padding=[i(1), i(1)], groups=i(1)),
    "MaxPool2d": lambda i, f, b: nn.MaxPool2d(i(2), ceil_mode=b(True)),
    "Embedding": lambda i, f, b: nn.Embedding(i(5), i(3)),
    "LayerNorm": lambda i, f, b: nn.LayerNorm((i(3),), eps=f(HALF)),
    "BatchNorm2d": lambda i, f, b: nn.BatchNorm2d(i(3), momentum=f(HALF)),
    "Dropout": lambda i, f, b: nn.Dropout(f(HALF)),
    "LeakyReLU": lambda i, f, b: nn.LeakyReLU(f(HALF)),
    "LSTM": lambda i, f, b: nn.LSTM(i(3), i(4), i(2), dropout=f(HALF), bidirectional=b(True)),
    "CrossEntropyLoss": lambda i, f, b: nn.CrossEntropyLoss(label_smoothing=f(HALF), ignore_index=i(3)),
    "HuberLoss": lambda i, f, b: nn.HuberLoss(delta=f(HALF)),
    "cosine": lambda i, f, b: optim.cosine(f(HALF), i(100), warmup=i(5)),
    "multi_step": lambda i, f, b: optim.multi_step(f(HALF), (i(3), i(5)), f(HALF)),
    "sequential": lambda i, f, b: optim.sequential([f(HALF), optim.linear(f(HALF), i(5))], [i(3)]),
    "reduce_on_plateau": lambda i, f, b: optim.reduce_on_plateau(f(HALF), patience=i(3)),
    "EMA": lambda i, f, b: optim.EMA(model, f(HALF), warmup=b(True)),
}
OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda i, f, b: optim.SGD(model, lr=f(HALF), momentum=f(HALF), nesterov=b(True)),
    "AdamW": lambda i, f, b: optim.AdamW(model, f(HALF), betas=(f(HALF), f(HALF)), groups=[{"params": "bias", "lr": f(0.25)}]),
    "a group": lambda i, f, b: optim.Adam(model, groups=[{"params": ["bias"], "lr_scale": f(HALF), "eps": f(HALF)}]),
    "LBFGS": lambda i, f, b: optim.LBFGS(model, lr=f(HALF), history=i(5)),
}
KINDS = [(np.int64, np.float32, np.bool_), (np.int32, np.float64, np.bool_), (np.uint8, np.float16, np.bool_)]


def settings_of(optimizer: Any) -> str:
    """The learning rate and all settings; LBFGS has no groups."""
    return repr((optimizer.learning_rate, getattr(optimizer, "groups", None), optimizer.settings))


@pytest.mark.parametrize("name", MADE)
def test_a_layer_or_schedule_made_with_numpys_scalars_is_the_one_made_with_python_numbers(name: str) -> None:
    for kinds in KINDS:
        assert repr(MADE[name](*kinds)) == repr(MADE[name](int, float, bool))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_made_with_numpys_scalars_is_the_one_made_with_python_numbers(name: str) -> None:
    for kinds in KINDS:
        assert settings_of(OPTIMIZERS[name](*kinds)) == settings_of(OPTIMIZERS[name](int, float, bool))


def test_a_learning_rate_that_is_assigned_may_be_numpys() -> None:
    optimizer = optim.SGD(model, lr=0.1)
    optimizer.learning_rate = np.float32(HALF)
    assert optimizer.learning_rate == HALF


def test_a_learner_keeps_python_numbers() -> None:
    learner = Learner(model, optim.SGD(model, 0.1), clip_norm=np.float32(HALF), accumulate=np.int64(2), log=None)
    assert (type(learner.clip_norm), type(learner.accumulate)) == (float, int)


def test_what_has_no_meaning_is_still_refused() -> None:
    for call in (
        lambda: nn.Dropout(np.float64(1.5)), lambda: nn.Linear(np.float32(3), 2), lambda: nn.Linear(np.int64(-1), 2),
        lambda: nn.Linear(np.bool_(True), 2), lambda: optim.SGD(model, np.float32("nan")),
        lambda: optim.SGD(model, np.bool_(True)), lambda: optim.cosine(0.1, np.float64(5.0)),
    ):  # fmt: skip
        with pytest.raises(fb.ConfigError):
            call()


def test_a_layer_of_the_users_own_gets_what_it_is_given() -> None:
    class Scale(nn.Module):
        def __init__(self, by: Any) -> None:
            self.by = by

    assert type(Scale(np.float32(2)).by) is np.float32
