"""What a run that goes on says of what changed: other data are refused within an epoch, other settings are named."""

import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deaths import dying_after

import firebrick as fb
from firebrick import optim
from firebrick.data import ArrayDataset, DataLoader, WeightedSampler
from firebrick.train import (
    DataParallel,
    Learner,
    NothingTrainedWarning,
    ResumeWarning,
    TrainingError,
    load_checkpoint,
    save_checkpoint,
)
from firebrick.train.description import of_loss, of_settings
from firebrick.train.parallel.distributed import _check_batches
from firebrick.train.settings import say_loader

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]


def bits(learner: Learner) -> dict[str, bytes]:
    return {n: t.numpy().tobytes() for n, t in learner.model.state_dict().items()}


def died(learner: Learner, *loaders: DataLoader, after: int = 3) -> Learner:
    with dying_after(after), pytest.raises(MemoryError):
        learner.fit(*loaders, epochs=2, draw=False)
    return learner


def others(of: DataLoader) -> dict[str, DataLoader]:
    """Loaders as many samples as ``of``, each with something else."""
    x, y = of.dataset.arrays  # type: ignore[union-attr]
    return {
        "order: shuffled saved, as stored found": DataLoader(of.dataset, 8, seed=3),
        "sampler WeightedSampler found": DataLoader(of.dataset, 8, seed=3, sampler=WeightedSampler(np.ones(50))),
        "seed 3 saved, 4 found": DataLoader(of.dataset, 8, shuffle=True, seed=4),
        "values of the samples": DataLoader(ArrayDataset(-x, y), 8, shuffle=True, seed=3),
        "a sample: ": DataLoader(ArrayDataset(x.astype(np.float32), y), 8, shuffle=True, seed=3),
    }


@pytest.mark.parametrize("of_a_checkpoint", [True, False])
@pytest.mark.parametrize("jit", [True, False])
def test_an_epoch_goes_on_with_its_own_samples_in_its_own_order_alone(
    make: Make, loaders: Loaders, tmp_path: Path, of_a_checkpoint: bool, jit: bool
) -> None:
    whole = make(jit=jit)
    whole.fit(*loaders, epochs=2)
    learner = died(make(out=tmp_path / "run", jit=jit), *loaders)
    if of_a_checkpoint:
        learner = make(out=tmp_path / "run", jit=jit)
        learner.resume()
    before = bits(learner), learner.step, learner.cursor
    for text, other in others(loaders[0]).items():
        with pytest.raises(TrainingError, match=text) as caught:
            learner.fit(other, epochs=2, draw=False)
        assert "learner.cursor = None" in caught.value.remedy
        assert (bits(learner), learner.step, learner.cursor) == before
    if of_a_checkpoint:
        learner.fit(*loaders, epochs=2, draw=False)
        assert bits(learner) == bits(whole)


def test_an_epoch_can_be_repeated_with_other_data_where_that_is_asked_for(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    learner = died(make(out=tmp_path / "run"), *loaders)
    assert learner.cursor is not None
    learner.cursor = None
    learner.fit(others(loaders[0])["values of the samples"], epochs=1, draw=False)
    assert learner.history[0].step == learner.step == 3 + 1 + 7


@pytest.mark.parametrize("strategy", [None, "parts"])
def test_between_epochs_other_data_are_a_warning_that_names_them(
    make: Make, loaders: Loaders, tmp_path: Path, strategy: str | None
) -> None:
    devices: dict[str, Any] = (
        {"jit": False} if strategy is None else {"jit": False, "strategy": DataParallel(["cpu:0", "cpu:1"])}
    )
    make(out=tmp_path / "run", **devices).fit(*loaders, epochs=1, draw=False)
    for text, other in others(loaders[0]).items():
        learner = make(**devices)
        learner.resume(tmp_path / "run")
        with pytest.warns(ResumeWarning, match=text.replace("saved", "before").replace("found", "now")) as said:
            learner.fit(other, epochs=2)
        assert len(said) == 1
        learner.fit(loaders[0], epochs=3)  # of what the program itself changes between two calls, nothing is said


def test_loaders_at_different_epochs_are_not_compared(loaders: Loaders) -> None:
    """Their orders differ as those of two epochs do."""
    loader = loaders[0]
    saved = loader.cursor()
    say_loader(saved, loader)
    loader.set_epoch(1)
    say_loader(saved, loader)  # without a warning, which would be an error
    with pytest.warns(ResumeWarning, match="batch_size 8 before, 16 now"):
        say_loader(saved, DataLoader(loader.dataset, 16, shuffle=True, seed=3))


def test_another_batch_size_is_said(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    make(out=tmp_path / "run").fit(*loaders, epochs=1, draw=False)
    learner, other = make(), DataLoader(loaders[0].dataset, 16, shuffle=True, seed=3)
    learner.resume(tmp_path / "run")
    with pytest.warns(ResumeWarning, match="batch_size 8 before, 16 now"):
        learner.fit(other, epochs=2)
    learner.fit(other, epochs=3)  # it is said once


@pytest.mark.parametrize(
    ("saved", "now", "texts"),
    [
        ({}, {"clip_norm": 1.0}, ["clip_norm was None and is 1.0 from now on, as this learner says"]),
        ({"clip_norm": 2}, {}, ["clip_norm was 2.0 and is None from now on"]),
        ({}, {"precision": "bfloat16"}, ["precision was float32 and is bfloat16 from now on"]),
        ({"precision": "float16"}, {"accumulate": 2}, ["precision was float16 and is float32", "accumulate was 1 and is 2"]),
        ({}, {"lr": 0.5}, ["learning rate stays cosine(lr=0.05, steps=200", "is not constant(lr=0.5): to change it, assign"]),
        ({"ema": 0.9}, {"ema": 0.5}, ["ema's decay stays 0.9, as the checkpoint says, and is not 0.5"]),
    ],
)  # fmt: skip
def test_what_a_resumed_learner_has_otherwise_is_said_with_who_counts(
    make: Make, loaders: Loaders, tmp_path: Path, saved: dict[str, Any], now: dict[str, Any], texts: list[str]
) -> None:
    make(out=tmp_path / "run", jit=False, **saved).fit(loaders[0], epochs=1, draw=False)
    learner = make(out=tmp_path / "run", **now)
    with pytest.warns(ResumeWarning) as said:
        learner.resume()
    assert len(said) == 1
    assert said[0].filename == __file__
    assert all(t in str(said[0].message) for t in texts), str(said[0].message)
    assert learner.clip_norm == now.get("clip_norm")
    assert learner.optimizer.learning_rate == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda learner: setattr(learner.model.drop, "p", 0.5), "model's drop.p was 0.3 and is 0.5 from now on"),
        (lambda learner: setattr(learner.model, "drop", fb.nn.AlphaDropout(0.3)), "model's drop was Dropout and is Alpha"),
        (lambda learner: learner.model.dense1.freeze(), "model's dense1.weight was trainable and is frozen from now on"),
        (lambda learner: setattr(learner.loss, "label_smoothing", 0.1), "loss's label_smoothing was 0 and is 0.1 from now on"),
    ],
)  # fmt: skip
def test_other_settings_of_model_and_loss_are_said_and_the_same_ones_are_not(
    make: Make, loaders: Loaders, tmp_path: Path, change: Callable[[Learner], None], text: str
) -> None:
    make(out=tmp_path / "run", jit=False, loss=fb.nn.CrossEntropyLoss()).fit(loaders[0], epochs=1, draw=False)
    learner = make(out=tmp_path / "run", loss=fb.nn.CrossEntropyLoss())
    learner.resume()  # without a warning, which would be an error
    change(learner)
    with pytest.warns(ResumeWarning) as said:
        learner.resume()
    assert len(said) == 1
    assert text in str(said[0].message)


def test_closed_over_settings_of_a_loss_that_is_a_function_are_said(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    def loss(smoothing: float) -> Any:
        return lambda scores, labels: fb.cross_entropy(scores, labels, label_smoothing=smoothing)

    make(out=tmp_path / "run", jit=False, loss=loss(0.0)).fit(loaders[0], epochs=1, draw=False)
    with pytest.warns(ResumeWarning, match="loss's smoothing was 0 and is 0.2"):
        make(out=tmp_path / "run", loss=loss(0.2)).resume()


def test_a_loss_that_is_a_module_is_described_with_its_parts_and_without_its_mode() -> None:
    class Sum(fb.nn.Module):
        def __init__(self, smoothing: float) -> None:
            self.factor, self.part = 0.5, fb.nn.CrossEntropyLoss(label_smoothing=smoothing)

    found = of_loss(Sum(0.1))
    assert found["factor"] == "0.5"
    assert found["part"] == "CrossEntropyLoss"
    assert found["part.label_smoothing"] == "0.1"
    assert of_loss(Sum(0.1).eval()) == found
    assert of_loss(Sum(0.2)) != found


def test_a_dataclass_among_settings_is_described_by_its_fields() -> None:
    @dataclasses.dataclass
    class Noise:
        scale: float

    shown = of_settings({"noise": Noise(0.5), "kind": Noise})
    assert shown["noise"].endswith("Noise(scale=0.5)")
    assert shown["kind"].endswith("Noise")


def test_what_a_warning_says_of_the_optimizers_settings_does_change_them(loaders: Loaders, tmp_path: Path, net: Any) -> None:
    def built(decay: float, rate: float, averages: float) -> Learner:
        fb.random.seed(0)
        model = net()
        groups = [{"params": "*.bias", "lr": rate}]
        optimizer = optim.AdamW(model, lr=0.01, weight_decay=decay, groups=groups)
        return Learner(model, optimizer, out=tmp_path / "run", log=None, ema=averages)

    built(0.1, 0.2, 0.9).fit(loaders[0], epochs=1, draw=False)
    learner = built(0.3, 0.4, 0.8)
    with pytest.warns(ResumeWarning) as said:
        learner.resume()
    for field, value in (
        ("learner.optimizer.groups[0].settings", "weight_decay=…"),
        ("learner.optimizer.groups[1].settings", "weight_decay=…"),
        ("learner.optimizer.groups[1].schedule", "optim.constant(…)"),
        ("learner.ema.decay", ""),
    ):
        text = str(said[0].message)
        assert field in text
        assert value in text
    names: dict[str, Any] = {"learner": learner, "dataclasses": dataclasses, "optim": optim}
    remedies = [r.split(" after resume()")[0] for r in str(said[0].message).split("to change it, assign ")[1:]]
    assert len(remedies) == 4
    for remedy in remedies:
        exec(remedy.replace("…", "0.5") if "…" in remedy else f"{remedy} = 0.5", names)
    found = learner.optimizer.groups
    assert [g.settings.weight_decay for g in found] == [0.5, 0.5]
    assert (found[1].schedule, learner.ema.decay) == (optim.constant(0.5), 0.5)


def test_a_checkpoint_without_the_settings_of_model_and_loss_says_so(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    make(out=tmp_path / "run", jit=False).fit(loaders[0], epochs=1, draw=False)
    found = load_checkpoint(tmp_path / "run")
    state = {k: v for k, v in found.state.items() if k != "parts"}
    values = {n: fb.asarray(a) for n, a in found.model.items()}
    save_checkpoint(tmp_path / "old", model=values, optimizer=found.optimizer, state=state, config=found.config)
    with pytest.warns(ResumeWarning, match="did not keep settings of model and loss"):
        make().resume(tmp_path / "old")


def test_settings_of_groups_are_said_too(loaders: Loaders, tmp_path: Path, net: Any) -> None:
    def built(decay: float, rate: float) -> Learner:
        fb.random.seed(0)
        model = net()
        groups = [{"params": "*.bias", "lr": rate}]
        return Learner(model, optim.AdamW(model, lr=0.01, weight_decay=decay, groups=groups), out=tmp_path / "run", log=None)

    built(0.1, 0.2).fit(loaders[0], epochs=1, draw=False)
    with pytest.warns(ResumeWarning) as said:
        built(0.3, 0.4).resume()
    text = str(said[0].message)
    assert "weight_decay stays 0.1, as the checkpoint says, and is not 0.3" in text
    assert "groups[1].learning rate stays constant(lr=0.2), as the checkpoint says, and is not constant(lr=0.4)" in text
    assert "; learning rate" not in text


def test_an_equal_learner_with_a_plateau_that_moved_is_told_nothing(loaders: Loaders, tmp_path: Path, net: Any) -> None:
    def built() -> Learner:
        fb.random.seed(0)
        model = net()
        rate = optim.product((optim.cosine(0.05, steps=30), optim.reduce_on_plateau(1.0, patience=0, threshold=0.9)))
        settings: dict[str, Any] = {"ema": 0.9, "clip_norm": 1.0, "precision": "float16", "accumulate": 2, "jit": False}
        return Learner(model, optim.NAdam(model, lr=rate), out=tmp_path / "run", log=None, **settings)

    first = built()
    first.fit(*loaders, epochs=3, draw=False)
    assert first.optimizer.plateaus()[0].rate < 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = built()
        again.resume()
        again.fit(*loaders, epochs=4, draw=False)


def test_a_checkpoint_of_an_earlier_version_says_what_it_lacks(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    died(make(out=tmp_path / "run"), *loaders)
    found = load_checkpoint(tmp_path / "run")
    state = {k: v for k, v in found.state.items() if k not in ("settings", "loader")}
    state["cursor"] = {k: state["cursor"][k] for k in ("epoch", "position", "samples", "seed")}
    values = {n: fb.asarray(a) for n, a in found.model.items()}
    save_checkpoint(tmp_path / "old", model=values, optimizer=found.optimizer, state=state, config=found.config)
    learner = make()
    with pytest.warns(ResumeWarning, match=r"did not keep clip_norm \(None in this learner\), accumulate"):
        learner.resume(tmp_path / "old")
    with pytest.warns(fb.data.UncheckedCursorWarning, match="earlier versions"):
        learner.fit(*loaders, epochs=2)
    whole = make()
    whole.fit(*loaders, epochs=2)
    assert bits(learner) == bits(whole)


def test_a_finished_run_that_is_resumed_says_that_nothing_is_left(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    make(out=tmp_path / "run").fit(*loaders, epochs=2, draw=False)
    learner = make(out=tmp_path / "run")
    learner.resume()
    with pytest.warns(NothingTrainedWarning, match="2 epochs are done"):
        learner.fit(*loaders, epochs=2, draw=False)


def test_a_cursor_in_a_checkpoint_is_plain_text(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    died(make(out=tmp_path / "run"), *loaders)
    kept = json.loads((tmp_path / "run" / "checkpoint" / "state.json").read_text())
    assert kept["cursor"]["order"]["kind"] == "shuffled"
    assert kept["cursor"]["data"]["length"] == 50


def test_ranks_that_have_other_data_are_told_what_differs(loaders: Loaders) -> None:
    whole = {"loader": loaders[0].cursor(), "size": 8}
    _check_batches([whole, whole])
    for text, other in others(loaders[0]).items():
        expected = text.replace("saved", "on rank 0").replace("found", "on another")
        with pytest.raises(TrainingError, match=expected):
            _check_batches([whole, {"loader": other.cursor(), "size": 8}])
