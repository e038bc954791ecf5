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
IMAGE = fb.reshape(fb.arange(64.0), (1, 4, 4, 4))
SCORES = fb.log_softmax(fb.reshape(fb.arange(24.0), (4, 2, 3)))
CALLED: dict[str, Any] = {
    "conv2d": lambda i, f, b: fb.conv2d(
        IMAGE, fb.ones((2, 2, 3, 3)), stride=i(2), padding=(i(1), i(1)), dilation=[i(1), 1], groups=i(2)
    ),
    "conv_transpose2d": lambda i, f, b: fb.conv_transpose2d(
        IMAGE, fb.ones((4, 1, 3, 3)), stride=i(2), padding=((i(1), i(0)), (0, 1)), output_padding=i(1), groups=i(2)
    ),
    "max_pool2d": lambda i, f, b: fb.max_pool2d(IMAGE, i(2), stride=(i(1), i(2)), padding=i(1)),
    "unfold": lambda i, f, b: fb.unfold(IMAGE, axis=i(2), size=i(3), step=i(1)),
    "interpolate": lambda i, f, b: fb.interpolate(IMAGE, (i(3), i(5))),
    "interpolate by a factor": lambda i, f, b: fb.interpolate(IMAGE, scale_factor=f(1.5)),
    "group_norm": lambda i, f, b: fb.group_norm(IMAGE, i(2), eps=f(HALF)),
    "local_response_norm": lambda i, f, b: fb.local_response_norm(IMAGE, i(2)),
    "embedding": lambda i, f, b: fb.embedding(fb.asarray([0, 1]), fb.ones((3, 2)), padding_index=i(1)),
    "tensordot": lambda i, f, b: fb.tensordot(fb.ones((2, 3)), fb.ones((3, 4)), axes=i(1)),
    "cross_entropy": lambda i, f, b: fb.cross_entropy(SCORES[0], fb.asarray([0, 1]), ignore_index=i(1)),
    "nll_loss": lambda i, f, b: fb.nll_loss(SCORES[0], fb.asarray([0, 1]), ignore_index=i(1)),
    "ctc_loss": lambda i, f, b: fb.ctc_loss(SCORES, fb.asarray([[1], [2]]), [i(4), i(3)], (i(1), i(1)), blank=i(0)),
    "cond": lambda i, f, b: fb.cond(b(True), lambda x: x + 1.0, lambda x: x, fb.ones(3)),
    "while_loop": lambda i, f, b: fb.while_loop(lambda x: b(float(fb.sum(x)) < 9.0), lambda x: x + 1.0, fb.ones(3)),
}
KINDS = [(np.int64, np.float32, np.bool_), (np.int32, np.float64, np.bool_), (np.uint8, np.float16, np.bool_)]


def settings_of(optimizer: Any) -> str:
    """The learning rate and all settings; LBFGS has no groups."""
    return repr((optimizer.learning_rate, getattr(optimizer, "groups", None), optimizer.settings))


@pytest.mark.parametrize("name", MADE)
def test_a_layer_or_schedule_made_with_numpys_scalars_is_the_one_made_with_python_numbers(name: str) -> None:
    for kinds in KINDS:
        assert repr(MADE[name](*kinds)) == repr(MADE[name](int, float, bool))


@pytest.mark.parametrize("name", CALLED)
def test_a_function_called_with_numpys_scalars_gives_what_it_gives_for_python_numbers(name: str) -> None:
    want = CALLED[name](int, float, bool).tolist()
    for kinds in KINDS:
        assert CALLED[name](*kinds).tolist() == want


def test_clipping_and_budgets_take_numpys_scalars() -> None:
    def norms(i: Any, f: Any) -> list[float]:
        grads = fb.grad(lambda m: fb.sum(m(fb.ones((3, 2)))))(model)
        return [
            float(optim.clip_norm(grads, f(HALF), p=i(2))),
            optim.clip_value(grads, f(0.25)) or float(optim.clip_norm(grads, i(1))),
        ]

    for ints, floats, _ in KINDS:
        assert norms(ints, floats) == norms(int, float)
    assert fb.checkpointing(budget=np.int64(4000)).budget == 4000  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("groups", np.float32(2.0)), ("stride", np.True_), ("stride", np.int64(0))])
def test_a_numpy_scalar_that_is_no_such_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(fb.ShapeError, match=f"{name} is an int"):
        fb.conv2d(IMAGE, fb.ones((2, 4, 3, 3)), **{name: value})


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
