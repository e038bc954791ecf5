"""What a Learner adds to updates: clipping, averages, and schedules that wait for a metric."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import DataLoader
from firebrick.train import Learner, NonFiniteLossError, ResumeWarning, TrainingError, load_checkpoint, save_checkpoint

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]


@pytest.fixture
def grouped(net: Any, make: Make) -> Make:
    """A learner with groups, a plateau, clipping and averages."""

    def build(**options: Any) -> Learner:
        learner = make(**{"clip_norm": 0.5, "ema": 0.9, **options})
        plateau = optim.reduce_on_plateau(1.0, factor=0.5, patience=0, threshold=0.5)
        learner.optimizer = optim.NAdam(
            learner.model,
            lr=optim.product((optim.warmup(optim.exponential(0.05, 0.99), 5), plateau)),
            groups=[
                {"params": "*.bias", "lr_scale": 2.0},
                {"params": "dense2.weight", "betas": (0.8, 0.9), "weight_decay": 0.1},
            ],
        )
        return learner

    return build


def bits(learner: Learner) -> dict[str, bytes]:
    """Everything that the next step depends on."""
    state = learner.optimizer.state_dict()
    tensors = {f"{m}.{n}": t for m, held in state["moments"].items() for n, t in held.items()}
    tensors |= {f"average {n}": t for n, t in learner.ema.averages.items()} if learner.ema else {}
    rates = {"plateaus": repr(learner.optimizer.plateaus()).encode()}
    return {n: t.numpy().tobytes() for n, t in {**learner.model.state_dict(), **tensors, "step": state["step"]}.items()} | rates


@pytest.mark.parametrize("k", [1, 3])
def test_a_resumed_run_is_bit_identical_with_groups_averages_plateau_and_clipping(
    grouped: Make, loaders: Loaders, tmp_path: Path, k: int
) -> None:
    whole = grouped()
    whole.fit(*loaders, epochs=5)
    assert whole.optimizer.plateaus()[0].rate < 1.0
    grouped(out=tmp_path / "run").fit(*loaders, epochs=k, draw=False)
    resumed = grouped(out=tmp_path / "run", ema=0.1)  # decay comes from the checkpoint
    fb.random.seed(999)
    with pytest.warns(ResumeWarning, match=r"ema's decay stays 0\.9, as the checkpoint says, and is not 0\.1: to change it"):
        resumed.resume()
    resumed.fit(*loaders, epochs=5, draw=False)
    assert bits(resumed) == bits(whole)
    assert [row.valid_loss for row in resumed.history] == [row.valid_loss for row in whole.history]
    assert resumed.ema.decay == 0.9
    assert "ema" in load_checkpoint(tmp_path / "run").optimizer


@pytest.mark.usefixtures("numpy_kernels")
def test_evaluation_and_prediction_use_the_averages_and_training_does_not(make: Make, loaders: Loaders) -> None:
    plain, averaged = make(), make(ema=0.95)
    model = averaged.model
    for learner in (plain, averaged):
        learner.fit(loaders[0], epochs=2)
    for p, q in zip(plain.model.parameters(), averaged.model.parameters(), strict=True):
        assert p.numpy().tobytes() == q.numpy().tobytes()
    assert averaged.evaluate(loaders[1]).loss != plain.evaluate(loaders[1]).loss
    x = fb.ones((1, 2))
    with averaged.ema.applied():
        expected = model.eval()(x).tolist()
    assert averaged.predict(x).tolist() == expected != plain.predict(x).tolist()


def test_steps_are_clipped(make: Make, loaders: Loaders) -> None:
    moved = []
    for limit in (None, 1e-3):
        learner = make(clip_norm=limit)
        learner.optimizer = optim.SGD(learner.model, lr=1.0)
        before = [p.numpy().copy() for p in learner.model.parameters()]
        learner.fit(loaders[0].slice(0, 8), epochs=1)
        change = [p.numpy() - b for p, b in zip(learner.model.parameters(), before, strict=True)]
        moved.append(float(np.sqrt(sum((c**2).sum() for c in change))))
    assert moved[0] > 1e-2
    np.testing.assert_allclose(moved[1], 1e-3, rtol=1e-3)


def test_settings_without_meaning_are_refused_at_once(make: Make) -> None:
    with pytest.raises(TrainingError, match="clip_norm is a finite number > 0"):
        make(clip_norm=0.0)
    with pytest.raises(fb.ConfigError, match=r"EMA: decay lies in \[0, 1\)"):
        make(ema=1.0)
    with pytest.raises(TrainingError, match="clip_norm is a finite number > 0"):
        make(clip_norm="1")
    with pytest.raises(fb.ConfigError, match="EMA: decay"):
        make(ema="fast")


def test_averages_of_another_model_are_refused(make: Make, loaders: Loaders) -> None:
    with pytest.raises(TrainingError, match=r"averages of others: dense1\.weight"):
        make(ema=optim.EMA(make().model, 0.9)).fit(loaders[0], epochs=1)


def test_gradients_that_overflow_stop_a_run_even_if_the_loss_does_not(make: Make, loaders: Loaders) -> None:
    class Steep(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(fb.zeros((2, 3)))

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            return x @ (self.weight * 1e30) * 1e30  # zeros, whose slope is beyond float32

    model = Steep()
    learner = make(model=model, clip_norm=1.0)
    learner.optimizer = optim.SGD(model, lr=0.0)
    with pytest.raises(NonFiniteLossError, match="the norm of the gradients must stay finite") as caught:
        learner.fit(loaders[0], epochs=1)
    assert caught.value.context["step"] == 1


def test_a_run_that_stopped_at_nan_leaves_no_norms_to_the_next(make: Make, loaders: Loaders) -> None:
    learner = make(clip_norm=1.0)
    good = {n: t.numpy().copy() for n, t in learner.model.state_dict().items()}
    learner.model.load_state_dict({**good, "dense1.bias": good["dense1.bias"] * np.nan})
    with pytest.raises(NonFiniteLossError, match="the loss must stay finite"):
        learner.fit(loaders[0], epochs=1)
    learner.model.load_state_dict(good)
    learner.optimizer = optim.SGD(learner.model, lr=0.01)
    assert len(learner.fit(loaders[0], epochs=1)) == 1


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_plateau_is_given_the_metric_of_each_epoch(make: Make, loaders: Loaders, mode: str) -> None:
    for valid in (loaders[1], None):
        learner = make()
        rate = optim.reduce_on_plateau(0.01, mode=mode, patience=0, factor=0.5)
        learner.optimizer = optim.SGD(learner.model, lr=rate)
        learner.fit(loaders[0], valid, epochs=4)
        split, metric = "valid" if valid else "train", "loss" if mode == "min" else "accuracy"
        again = optim.reduce_on_plateau(0.01, mode=mode, patience=0, factor=0.5)
        for row in learner.history:
            again.observe(getattr(row, f"{split}_{metric}"))
        assert rate == again


def test_a_plateau_of_accuracies_needs_classes(make: Make) -> None:
    x = np.random.default_rng(0).normal(size=(8, 2))
    loader = DataLoader(fb.data.ArrayDataset(x, x[:, :1]), 4)
    model = nn.Linear(2, 1)
    learner = Learner(model, optim.SGD(model, lr=optim.reduce_on_plateau(0.1, mode="max")), fb.mse_loss, log=None)
    with pytest.raises(TrainingError, match="follows the accuracy"):
        learner.fit(loader, epochs=1)


def test_a_run_with_averages_is_not_continued_without(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    make(out=tmp_path / "run", ema=0.9).fit(*loaders, epochs=1, draw=False)
    other = make(out=tmp_path / "run")
    before = other.model.dense1.weight.tolist()
    with pytest.raises(TrainingError, match=r"make it with ema=0\.9"):
        other.resume()
    assert other.model.dense1.weight.tolist() == before


def test_averages_may_begin_in_a_run_that_had_none(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    make(out=tmp_path / "run").fit(*loaders, epochs=1, draw=False)
    resumed = make(out=tmp_path / "run", ema=0.9)
    with pytest.warns(ResumeWarning, match="it has no averages of the parameters"):
        resumed.resume()
    assert resumed.ema.averages["dense1.weight"].tolist() == resumed.model.dense1.weight.tolist()
    resumed.fit(*loaders, epochs=2, draw=False)
    assert resumed.ema.step == len(loaders[0])


def test_a_checkpoint_of_a_version_before_groups_is_refused_and_leaves_the_learner_as_it_was(
    make: Make, loaders: Loaders, tmp_path: Path
) -> None:
    first = make(out=tmp_path / "run")
    first.fit(*loaders, epochs=1, draw=False)
    found = load_checkpoint(tmp_path / "run")
    optimizer = dict(found.optimizer)
    optimizer["settings"] = optimizer.pop("groups")[0]["settings"]
    optimizer.pop("missed")
    old = save_checkpoint(
        tmp_path / "old", model=first.model.state_dict(), optimizer=optimizer, state=found.state, config=found.config
    )
    fb.random.seed(5)
    learner = make()
    before = {n: t.numpy().copy() for n, t in learner.model.state_dict().items()}
    with pytest.raises(nn.StateError, match=r"no groups, missed(.|\n)*with a new optimizer"):
        learner.resume(old)
    assert learner.epoch == learner.optimizer.step == 0
    for n, t in learner.model.state_dict().items():
        np.testing.assert_array_equal(t.numpy(), before[n])
    load_checkpoint(old).load_into(learner.model)  # what the error advises
    for n, t in learner.model.state_dict().items():
        np.testing.assert_array_equal(t.numpy(), first.model.state_dict()[n].numpy())
