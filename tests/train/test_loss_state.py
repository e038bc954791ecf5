"""A loss that keeps something from one call to the next: its state is the run's, and evaluations and trial passes leave it."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import (
    CheckpointError,
    DataParallel,
    Learner,
    ResumeWarning,
    TrainingError,
    evaluate,
    load_checkpoint,
    save_checkpoint,
)


class Centred(nn.Module):
    """Cross entropy of outputs less a running centre, which no mode holds still."""

    def __init__(self) -> None:
        self.calls = nn.Buffer(fb.zeros(()))
        self.centre = nn.Buffer(fb.zeros(3))

    def forward(self, output: Any, target: Any) -> Any:
        self.calls += 1.0
        self.centre *= 0.9
        self.centre += 0.1 * fb.mean(output.detach(), axis=0)
        return fb.cross_entropy(output - self.centre, target)


class Dropping(nn.Module):
    def __init__(self) -> None:
        self.drop = nn.Dropout(0.5)

    def forward(self, output: Any, target: Any) -> Any:
        return fb.cross_entropy(self.drop(output), target)


def enclosed() -> Any:
    loss = Dropping()
    return lambda output, target: loss(output, target)


def given() -> Any:
    return partial(lambda loss, output, target: loss(output, target), Centred())


LOSSES = [Centred, Dropping, enclosed, given]


def loader(device: str = "cpu", rows: int = 32) -> DataLoader:
    x = np.random.default_rng(0).normal(size=(rows, 4))
    return DataLoader(ArrayDataset(x, np.arange(rows) % 3), 8, device=device)


def made(loss: Any, out: Path | None = None, device: str = "cpu", **options: Any) -> Learner:
    fb.random.seed(0)
    model, criterion = nn.Linear(4, 3).to(device), loss()
    if isinstance(criterion, nn.Module):
        criterion.to(device)
    return Learner(model, optim.Adam(model, lr=1e-2), criterion, out=out, log=None, **options)


def weights(learner: Learner) -> Any:
    return learner.model.state_dict()["weight"].tolist()


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(("loss", "device"), [*((loss, "cpu") for loss in LOSSES), (Centred, "numpy"), (Dropping, "torch:cpu")])
def test_a_resumed_run_goes_on_with_the_state_of_its_loss(loss: Any, device: str, jit: bool, tmp_path: Path) -> None:
    whole = made(loss, device=device, jit=jit)
    whole.fit(loader(device), epochs=2)
    made(loss, tmp_path / "run", device, jit=jit).fit(loader(device), epochs=1, draw=False)
    for _ in range(2):  # the second one from a checkpoint that a resumed run wrote
        again = made(loss, tmp_path / "run", device, jit=jit)
        again.resume()
        again.save(tmp_path / "run" / "checkpoint")
    again.fit(loader(device), epochs=2, draw=False)
    assert weights(again) == weights(whole)
    if loss is Centred:
        assert again.loss.calls.item() == whole.loss.calls.item() == 8.0


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_validations_and_further_fits_leave_training_as_it_is(loss: Any, jit: bool) -> None:
    plain, validated, twice = (made(loss, jit=jit) for _ in range(3))
    plain.fit(loader(), epochs=2)
    validated.fit(loader(), loader(), epochs=2)
    twice.fit(loader(), epochs=1)
    twice.evaluate(loader())
    twice.fit(loader(), epochs=2)
    assert weights(plain) == weights(validated) == weights(twice)


@pytest.mark.parametrize("loss", LOSSES)
def test_two_evaluations_of_the_same_are_equal(loss: Any) -> None:
    learner = made(loss)
    assert learner.evaluate(loader()).loss == learner.evaluate(loader()).loss
    criterion, model = loss(), learner.model
    assert evaluate(model, loader(), criterion).loss == evaluate(model, loader(), criterion).loss


def test_an_evaluation_drops_nothing_and_gives_each_part_its_mode_back() -> None:
    learner = made(Dropping)
    parts = nn.Sequential(nn.Dropout(0.5).eval(), nn.Dropout(0.5))
    learner.loss.parts = parts
    assert learner.evaluate(loader()).loss == pytest.approx(made(lambda: fb.cross_entropy).evaluate(loader()).loss)
    assert [m.training for m in (learner.loss, learner.loss.drop, parts, *parts.layers)] == [True, True, True, False, True]


def test_a_loss_that_was_put_into_evaluation_mode_stays_there() -> None:
    learner = made(Dropping)
    learner.loss.eval()
    learner.fit(loader(), loader(), epochs=1)
    assert [m.training for _, m in learner.loss.modules()] == [False, False]


def test_class_weights_are_a_setting_that_is_said_and_no_state(tmp_path: Path) -> None:
    def weighted(*weights: float) -> Learner:
        return made(lambda: nn.CrossEntropyLoss(weight=fb.asarray(weights)), tmp_path)

    weighted(1.0, 2.0, 3.0).fit(loader(), epochs=1, draw=False)
    assert load_checkpoint(tmp_path).optimizer["loss"]["buffers"] == {}
    other = weighted(1.0, 2.0, 4.0)
    with pytest.warns(ResumeWarning, match=r"loss's weight was float32\[3\] of 1,2,3 and is float32\[3\] of 1,2,4"):
        other.resume()
    assert other.loss.weight.tolist() == [1.0, 2.0, 4.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weighted(1.0, 2.0, 3.0).resume()


@pytest.mark.parametrize("loss", [Centred, Dropping])
def test_a_checkpoint_without_the_state_of_the_loss_loads_with_a_warning(loss: Any, tmp_path: Path) -> None:
    learner = made(loss, tmp_path / "run")
    learner.fit(loader(), epochs=1, draw=False)
    found = load_checkpoint(tmp_path / "run")
    tree = {k: v for k, v in found.optimizer.items() if k != "loss"}
    state = {"model": learner.model.state_dict(), "optimizer": learner.optimizer.state_dict(), "state": found.state}
    assert tree.keys() == state["optimizer"].keys()
    save_checkpoint(tmp_path / "old", **state, config={})
    with pytest.warns(ResumeWarning, match="no state of the loss, which goes on as it is now: (calls; centre|drop)"):
        made(loss).resume(tmp_path / "old")


@pytest.mark.parametrize("state", [3, {}, {"buffers": {}, "generators": {}}, {"buffers": {"centre": 1}, "generators": {}}])
def test_a_changed_state_of_a_loss_is_refused_and_nothing_is_changed(state: Any, tmp_path: Path) -> None:
    learner = made(Dropping, tmp_path / "run")
    learner.fit(loader(), epochs=1, draw=False)
    found = load_checkpoint(tmp_path / "run")
    save_checkpoint(
        tmp_path / "changed",
        model=learner.model.state_dict(),
        optimizer={**learner.optimizer.state_dict(), "loss": state},
        state=found.state,
        config={},
    )
    other = made(Dropping)
    before = weights(other), str(other.loss.generator_states())
    with pytest.raises((CheckpointError, fb.nn.StateError)):
        other.resume(tmp_path / "changed")
    assert (weights(other), str(other.loss.generator_states())) == before


def test_the_state_of_another_loss_of_the_same_name_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    class Wider(Centred):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.1)
            self.centre = nn.Buffer(fb.zeros(1))

    Wider.__name__ = "Centred"
    made(Centred, tmp_path / "run").fit(loader(), epochs=1, draw=False)
    other = made(Wider)
    before = weights(other), other.loss.calls.item(), str(fb.random.state())
    with pytest.raises(fb.nn.StateError, match="loss Centred"):
        other.resume(tmp_path / "run")
    assert (weights(other), other.loss.calls.item(), str(fb.random.state())) == before


def test_the_state_of_a_loss_of_another_name_is_left_with_a_warning(tmp_path: Path) -> None:
    made(Centred, tmp_path / "run").fit(loader(), epochs=1, draw=False)
    other = made(Dropping)
    with pytest.warns(ResumeWarning, match="loss was Centred and is Dropping"):
        other.resume(tmp_path / "run")


@pytest.mark.parametrize("loss", [Centred, Dropping])
@pytest.mark.parametrize("options", [{"accumulate": 2}, {"strategy": "two"}])
def test_a_loss_that_keeps_something_is_refused_where_a_batch_is_divided(loss: Any, options: dict[str, Any]) -> None:
    if "strategy" in options:
        options = {"strategy": DataParallel(["cpu:0", "cpu:1"])}
    learner = made(loss, **options)
    with pytest.raises(TrainingError, match=r"calls change (calls, centre|drop)[\s\S]*move it into the model"):
        learner.fit(loader(), epochs=1)
    assert learner.step == 0


def test_constant_buffers_of_a_loss_may_be_divided() -> None:
    learner = made(lambda: nn.BCEWithLogitsLoss(pos_weight=fb.asarray([1.0, 2.0, 3.0])), accumulate=2)
    x = np.random.default_rng(0).normal(size=(16, 4))
    learner.fit(DataLoader(ArrayDataset(x, (x[:, :3] > 0).astype(np.float32)), 8), epochs=1)
    assert learner.step == 2


@pytest.mark.parametrize("held", [True, False])
def test_a_parameter_of_a_loss_is_refused_before_the_first_step(held: bool) -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            self.shift = nn.Parameter(fb.zeros(3))

        def forward(self, output: Any, target: Any) -> Any:
            return fb.cross_entropy(output + self.shift, target)

    model, loss = nn.Linear(4, 3), Shifted()
    optimizer = optim.Adam([*model.parameters(), loss.shift] if held else model, lr=1e-2)
    learner = Learner(model, optimizer, loss, log=None)
    with pytest.raises(TrainingError, match=r"parameters of the loss Shifted: shift[\s\S]*parts of one Module"):
        learner.fit(loader(), epochs=1)
    assert learner.step == 0
    loss.freeze()
    Learner(model, optim.Adam(model, lr=1e-2), loss, log=None).fit(loader(), epochs=1)
    assert loss.shift.tolist() == [0.0, 0.0, 0.0]


def test_a_loss_of_the_models_own_parameters_is_taken() -> None:
    class Decayed(nn.Module):
        def __init__(self, layer: nn.Linear) -> None:
            self.layer = layer

        def forward(self, output: Any, target: Any) -> Any:
            return fb.cross_entropy(output, target) + 0.01 * fb.sum(self.layer.weight**2)

    model = nn.Linear(4, 3)
    learner = Learner(model, optim.Adam(model, lr=1e-2), Decayed(model), log=None)
    learner.fit(loader(), loader(), epochs=1)
    assert learner.step == 4
