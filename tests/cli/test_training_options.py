"""Schedules, optimizers, augmentation and what else a run can be given, and that a resumed run keeps them."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from deaths import dying_after

import firebrick as fb
from firebrick import nn, optim
from firebrick.cli.main import main
from firebrick.train import load_checkpoint

train = import_module("firebrick.cli.train")  # the name is its command's in the package

Run = Callable[..., Result]
CNN = ("train", "digits", "--model", "cnn", "--set", "width=4", "--set", "features=16")


def test_a_run_with_augmentation_and_a_one_cycle_schedule_is_the_same_on_another_device(run: Run) -> None:
    options = (*CNN, "--augment", "crop", "--augment", "flip", "--schedule", "one-cycle", "--optimizer", "adamw",
               "--label-smoothing", 0.1, "--weight-decay", 0.02, "--epochs", 2)  # fmt: skip
    assert run(*options, "--out", "whole").exit_code == 0
    whole = load_checkpoint("whole")
    assert whole.config["augment"] == ["crop", "flip"]
    assert whole.config["model_settings"] == {"width": 4, "features": 16}
    again = run(*options, "--out", "again", "--device", "cpu:1")
    assert again.exit_code == 0, again.output
    other = load_checkpoint("again")
    assert all(np.array_equal(whole.model[n], other.model[n]) for n in whole.model)


# with the buffers of batch norm and batches of one size; with dropout and a last batch of another size
@pytest.mark.parametrize(("model", "batch", "steps", "position"), [("resnet18", 719, 3, 719), ("cnn", 256, 8, 512)])
def test_a_run_that_died_within_an_epoch_goes_on_bit_for_bit(
    run: Run, model: str, batch: int, steps: int, position: int
) -> None:
    arguments = ("train", "digits", "--model", model, "--set", "width=2", "--augment", "crop", "--augment", "flip",
                 "--schedule", "one-cycle", "--optimizer", "adamw", "--batch-size", batch, "--epochs", 2)  # fmt: skip
    assert run(*arguments, "--out", "whole").exit_code == 0
    with dying_after(steps):
        assert run(*arguments, "--out", "parts").exit_code == 1
    stopped = load_checkpoint("parts").state
    assert (stopped["epoch"], stopped["step"]) == (1, steps)
    assert stopped["cursor"]["position"] == position
    resumed = run("train", "digits", "--model", model, "--out", "parts", "--resume")
    assert resumed.exit_code == 0, resumed.output
    whole, parts = load_checkpoint("whole"), load_checkpoint("parts")
    assert (model == "resnet18") == any("running_mean" in n for n in whole.model)
    assert all(np.array_equal(whole.model[n], parts.model[n]) for n in whole.model)
    assert [r["train_loss"] for r in whole.state["history"]] == [r["train_loss"] for r in parts.state["history"]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--set", "classes=3"), "cnn has no classes; it has width, features, dropout, dtype"),
        (("--set", "generator=3"), "cnn has no generator"),
        (("--set", "width=4", "--set", "width=8"), "width is given twice"),
        (("--lr", "nan"), "Invalid value for --lr: nan is not a finite number"),
        (("--weight-decay", "inf"), "Invalid value for --weight-decay: inf is not a finite number"),
    ],
)
def test_options_without_meaning_are_refused(run: Run, options: tuple[str, ...], text: str) -> None:
    result = run("train", "digits", "--model", "cnn", *options)
    assert result.exit_code == 2
    assert text in re.sub(r"\s+", " ", result.output)
    assert not Path("runs").exists()


def test_a_setting_of_another_kind_is_one_message(run: Run) -> None:
    listed = run("train", "digits", "--model", "mlp", "--set", "hidden=(64,)")
    assert (
        "Received: hidden='(64,)'.\nRemedy: pass e.g. [64, 32]; on the command line --set 'hidden=[64, 32]'." in listed.output
    )
    for model, setting in (("mlp", "hidden=64"), ("cnn", "width=wide"), ("resnet18", "zero_init=1")):
        result = run("train", "digits", "--model", model, "--set", setting)
        assert result.exit_code == 1
        assert result.output.startswith("error: ")
        assert setting.replace("wide", "'wide'") in result.output


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What a run of one epoch without options learns."""
    out = tmp_path_factory.mktemp("plain") / "run"
    result = CliRunner().invoke(main, [*CNN, "--epochs", "1", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return dict(load_checkpoint(out).model)


@pytest.mark.parametrize(
    "options",
    [("--schedule", "constant"), ("--optimizer", "sgd", "--lr", 0.02), ("--augment", "crop"), ("--label-smoothing", 0.2)],
    ids=lambda options: " ".join(map(str, options)),
)
def test_each_option_changes_what_is_learned(run: Run, plain: dict[str, np.ndarray], options: tuple[object, ...]) -> None:
    result = run(*CNN, "--epochs", 1, "--out", "other", *options)
    assert result.exit_code == 0, result.output
    assert re.search(r"test accuracy \d\.\d{4}\n$", result.output)
    other = load_checkpoint("other").model
    assert other.keys() == plain.keys()
    assert any(not np.array_equal(plain[n], other[n]) for n in plain)


def test_a_run_with_the_same_options_learns_the_same(run: Run, plain: dict[str, np.ndarray]) -> None:
    assert run(*CNN, "--epochs", 1, "--out", "again").exit_code == 0
    again = load_checkpoint("again").model
    assert all(np.array_equal(plain[n], again[n]) for n in plain)


def test_a_resumed_run_refuses_another_augmentation(run: Run) -> None:
    assert run(*CNN, "--epochs", 1, "--out", "run", "--augment", "crop").exit_code == 0
    refused = run("train", "digits", "--out", "run", "--resume", "--epochs", 2, "--augment", "flip")
    assert refused.exit_code == 1
    assert "--augment ['flip'], and it has ['crop']" in refused.output
    resumed = run("train", "digits", "--out", "run", "--resume", "--epochs", 2)
    assert resumed.exit_code == 0, resumed.output
    assert load_checkpoint(Path("run")).config["augment"] == ["crop"]


def test_a_flat_cosine_schedule_stays_for_three_fifths_and_ends_at_0(run: Run) -> None:
    result = run(*CNN, "--epochs", 5, "--schedule", "flat-cosine", "--lr", 0.004)
    assert result.exit_code == 0, result.output
    rates = [float(r) for r in re.findall(r"lr (\S+)", result.output)]
    assert rates[:3] == [0.004] * 3
    assert 0.001 < rates[3] < 0.003
    assert rates[4] < 1e-9


def test_a_run_too_short_for_one_cycle_is_refused_by_the_options_to_change(run: Run) -> None:
    options = ("train", "digits", "--model", "mlp", "--schedule", "one-cycle", "--batch-size", 1024)
    result = run(*options, "--epochs", 1)
    assert result.exit_code == 1
    assert "--schedule one-cycle rises and falls over at least 4 steps" in result.output
    assert "2 steps: --epochs 1 of 2 batches" in result.output
    assert "raise --epochs, or lower --batch-size" in result.output
    assert run(*options, "--epochs", 2).exit_code == 0


def test_graphs_change_nothing_but_the_time_and_say_how_many_there_are(run: Run) -> None:
    # on an engine whose graphs run the functions that eager execution calls
    arguments = ("train", "digits", "--model", "mlp", "--batch-size", 256, "--epochs", 2, "--device", "numpy")
    compiled, plain = run(*arguments, "--out", "compiled"), run(*arguments, "--no-jit", "--out", "plain")
    assert compiled.exit_code == plain.exit_code == 0
    one, other = load_checkpoint("compiled"), load_checkpoint("plain")
    assert all(one.model[n].tobytes() == other.model[n].tobytes() for n in one.model)
    assert one.config == other.config
    assert [line for line in compiled.output.splitlines() if re.fullmatch(r"compiled in [\d.e-]+ s", line)]
    assert "compiled in" not in plain.output
    results = [run("evaluate", "compiled", *more).output for more in ((), ("--no-jit",))]
    assert results[0] == results[1]
    assert "test accuracy" in results[0]


def test_every_option_reaches_the_learner(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Made(Exception):
        pass

    found: dict[str, Any] = {}

    def learner(model: nn.Module, optimizer: optim.Optimizer, loss: Any, **settings: Any) -> None:
        found.update(settings, model=model, optimizer=optimizer, loss=loss)
        raise Made

    monkeypatch.setattr("firebrick.cli.train.Learner", learner)
    names = ("accumulate", "out", "seed", "precision", "events", "record_every", "checkpoint_steps", "keep", "jit", "progress")
    options = (
        "--model mlp --accumulate 3 --out run --seed 7 --precision bfloat16 --events --record-every 6 --checkpoint-steps 4 "
        "--keep 5 --no-jit --device cpu:1 --epochs 9 --lr 0.25 --optimizer sgd --weight-decay 0.5 --schedule constant "
        "--label-smoothing 0.125 --batch-size 33"
    )
    result = run("train", "digits", *options.split())
    assert isinstance(result.exception, Made)
    out = Path("run")
    assert [found[n] for n in names] == [3, out, 7, "bfloat16", out / "events", 6, 4, 5, False, None]
    assert found["strategy"].devices == (fb.device("cpu:1"),)
    assert {p.device.name for p in found["model"].parameters()} == {"cpu:1"}
    assert found["class_names"] == list("0123456789")
    assert found["loss"].keywords == {"label_smoothing": 0.125}
    optimizer = found["optimizer"]
    assert (type(optimizer), optimizer.learning_rate) == (optim.SGD, 0.25)
    config = {k: found["config"][k] for k in ("dataset", "model", "epochs", "batch_size", "lr", "schedule", "weight_decay")}
    assert list(config.values()) == ["digits", "mlp", 9, 33, 0.25, "constant", 0.5]
    result = run("train", "digits", "--model", "mlp", "--out", "plain")
    assert isinstance(result.exception, Made)
    assert [found[n] for n in names] == [1, Path("plain"), 0, None, None, None, None, 2, True, None]
    assert found["loss"] is fb.cross_entropy
    drawn = []
    for seed in (0, 0, 1):
        run("train", "digits", "--model", "mlp", "--out", "plain", "--seed", seed)
        drawn.append([p.numpy().tobytes() for p in found["model"].parameters()])
    assert drawn[0] == drawn[1] != drawn[2]
    config = {k: found["config"][k] for k in ("epochs", "batch_size", "lr", "schedule", "optimizer", "weight_decay")}
    assert list(config.values()) == [30, 64, 3e-3, "cosine", "adam", None]


@pytest.mark.parametrize(
    ("name", "decay", "kind", "settings"),
    [
        ("adam", None, optim.Adam, {"weight_decay": 0.0}),
        ("adam", 0.5, optim.Adam, {"weight_decay": 0.5}),
        ("adamw", None, optim.AdamW, {"weight_decay": 0.01}),
        ("adamw", 0.0, optim.AdamW, {"weight_decay": 0.0}),
        ("sgd", None, optim.SGD, {"weight_decay": 0.0, "momentum": 0.9, "nesterov": True}),
        ("sgd", 0.25, optim.SGD, {"weight_decay": 0.25}),
    ],
)
def test_optimizers_are_made_with_their_usual_settings(name: str, decay: float | None, kind: type, settings: Any) -> None:
    made = train._OPTIMIZERS[name](nn.Linear(2, 2), 0.5, decay)
    assert type(made) is kind
    assert {k: getattr(made.groups[0].settings, k) for k in settings} == settings
    assert made.learning_rate == 0.5


def test_schedules_run_over_the_steps_that_there_are() -> None:
    def rate(schedule: optim.Schedule, step: int) -> float:
        return float(schedule(fb.asarray(float(step), dtype=fb.float64)))

    rates = {name: [rate(schedule(0.5, 40), step) for step in range(41)] for name, schedule in train._SCHEDULES.items()}
    assert rates["constant"] == [0.5] * 41
    assert rates["flat-cosine"][:25] == [0.5] * 25
    assert 0.24 < rates["flat-cosine"][32] < 0.26
    assert rates["cosine"][:3] == [0.25, 0.5, 0.5]  # two steps rise
    assert [rates["cosine"][21], rates["one-cycle"][25]] == pytest.approx([0.25, 0.25], rel=1e-5)
    assert max(rates["cosine"]) == max(rates["one-cycle"]) == 0.5
    for name in ("flat-cosine", "cosine", "one-cycle"):
        assert rates[name][40] < 1e-4, name
    assert rate(train._flat_cosine(0.5, 1), 0) == 0.5
