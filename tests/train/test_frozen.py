"""Training that stands still is noticed, once, by name."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import EagerTrainingWarning, FrozenTrainingWarning, Learner
from firebrick.train.frozen import FrozenWatch, Zeros

Make = Callable[..., Learner]


class Branchy(nn.Module):
    """One layer that is used, one that is not, one behind a factor of zero."""

    def __init__(self, factor: float = 0.0) -> None:
        self.used, self.idle, self.dead = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(2, 3)
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return self.used(x) + self.dead(x) * self.factor


def heard(learner: Learner, loader: DataLoader, epochs: int = 4) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.fit(loader, epochs=epochs)
    assert all(w.category is FrozenTrainingWarning for w in caught)
    return [str(w.message) for w in caught]


def loader(batch_size: int = 8) -> DataLoader:
    rng = np.random.default_rng(0)
    return DataLoader(ArrayDataset(rng.normal(size=(40, 2)), rng.integers(0, 3, 40)), batch_size, shuffle=True)


def test_missing_and_zero_gradients_are_told_apart_and_named_once(make: Make) -> None:
    lines = heard(make(model=Branchy(), lr=0.01), loader())
    assert len(lines) == 2
    missing, zero = sorted(lines, key=lambda line: "zero" in line)
    assert "idle.weight, idle.bias has been missing for 10 steps" in missing
    assert "dead.weight, dead.bias has been exactly zero for 10 steps" in zero
    assert not any("used" in line.split(" has been")[0] for line in lines)


def test_where_all_parameters_learn_nothing_is_said(make: Make) -> None:
    model = Branchy(factor=1.0)
    model.idle.freeze()
    assert heard(make(model=model, lr=0.01), loader()) == []


def test_engines_where_reading_waits_notice_the_same(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firebrick.train.loop.HOST_ENGINES", ())
    assert len(heard(make(model=Branchy(), lr=0.01), loader())) == 2


def test_one_step_an_epoch_adds_up_over_epochs(make: Make) -> None:
    assert heard(make(model=Branchy(), lr=0.01), loader(40), epochs=9) == []
    assert len(heard(make(model=Branchy(), lr=0.01), loader(40), epochs=10)) == 2


class NowAndThen(Branchy):
    """The factor is 1 at every fifth step, else 0."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Buffer(fb.zeros(()))

    def forward(self, x: Any) -> Any:
        self.steps += 1.0
        return self.used(x) + self.dead(x) * fb.astype(self.steps % 5.0 == 0.0, fb.float32)


def test_a_gradient_that_moves_now_and_then_is_not_frozen(make: Make) -> None:
    model = NowAndThen()
    model.idle.freeze()
    learner = make(model=model, lr=0.01)
    assert heard(learner, loader(), epochs=6) == []
    assert learner.compiled["training step"].traces == 1
    assert model.steps.item() == 30  # without the trial batch


def test_a_loss_that_sets_attributes_is_not_compiled_and_still_not_called_frozen(make: Make) -> None:
    model = Branchy(factor=1.0)
    model.idle.freeze()
    learner = make(model=model, lr=0.01)

    def every_fifth(output: Any, target: Any) -> Any:
        model.factor = 1.0 if learner.step % 5 == 0 else 0.0
        return fb.cross_entropy(output, target)

    learner.loss = every_fifth
    with pytest.warns(EagerTrainingWarning, match=r"training step is not compiled.*model\.factor") as caught:
        learner.fit(loader(), epochs=6)
    assert [w.category for w in caught] == [EagerTrainingWarning]


def test_a_loss_that_repeats_bit_for_bit_is_noticed(make: Make) -> None:
    x, y = np.zeros((80, 2)), np.zeros(80, int)
    model = Branchy(factor=1.0)
    model.idle.freeze()
    lines = heard(make(model=model, lr=1e-30), DataLoader(ArrayDataset(x, y), 8), epochs=3)
    about_loss = [line for line in lines if line.startswith("the loss has been exactly")]
    assert len(about_loss) == 1
    assert "for 10 steps" in about_loss[0]


def healthy(lr: float) -> Learner:
    fb.random.seed(0)
    model = nn.Linear(2, 3)
    return Learner(model, fb.optim.SGD(model, lr=lr), log=None)


def test_a_learning_rate_of_zero_is_noticed_though_shuffling_changes_the_loss() -> None:
    lines = heard(healthy(0.0), loader(), epochs=4)
    assert len(lines) == 1
    assert lines[0].startswith("no parameter has changed in 10 updates")


def test_healthy_training_says_nothing_of_its_parameters() -> None:
    assert heard(healthy(0.1), loader(), epochs=4) == []


def test_a_loss_that_reached_zero_has_learned_and_is_not_called_frozen() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FrozenWatch(3).losses([2.0, 0.5, *[0.0] * 20])
    with pytest.warns(FrozenTrainingWarning, match=r"exactly 0.5 for 3 steps, after 2.0 at first"):
        FrozenWatch(3).losses([2.0, *[0.5] * 5])


def test_what_was_said_is_not_said_again() -> None:
    """Of the loss, the parameters and each gradient once, however long they stand still, and after a change in between too."""
    watch = FrozenWatch(3)
    stays = [("w", fb.ones(2))]
    still = Zeros(("idle",), ("dead", "used"), fb.asarray([True, False]))
    moves = Zeros(("idle",), ("dead", "used"), fb.asarray([False, False]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch.losses([2.0, *[1.0] * 9, 0.5, *[1.0] * 9])
        for _ in range(20):
            watch.parameters(stays)
        watch.gradients([still] * 9)
        watch.gradients([moves])
        watch.gradients([still] * 9)
    lines = [str(w.message) for w in caught]
    assert [line.split(",")[0].split(" for ")[0] for line in lines] == [
        "the loss has been exactly 1.0", "no parameter has changed in 3 updates: nothing is being learned. Look whether the "
        "learning rate is 0 and the gradients are not; if both are fine",
        "the gradient of idle has been missing", "the gradient of dead has been exactly zero",
    ]  # fmt: skip


def test_only_steps_in_which_a_gradient_is_zero_are_counted() -> None:
    watch = FrozenWatch(3)
    still, moves = (Zeros((), ("w",), fb.asarray([zero])) for zero in (True, False))
    watch.gradients([moves, moves, moves, still, still, moves, still, still])  # a warning would be an error
    with pytest.warns(FrozenTrainingWarning, match="the gradient of w has been exactly zero for 3 steps"):
        watch.gradients([still])


def test_parameters_are_compared_after_patience_updates_until_they_have_moved_once() -> None:
    watch = FrozenWatch(patience=3)
    for step in range(20):  # a warning would be an error
        watch.parameters([("w", fb.asarray([float(step > 2)]))])
