"""Schedules, optimizers, augmentation and what else a run can be given, and that a resumed run keeps them."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from deaths import dying_after

from firebrick.cli.main import main
from firebrick.train import load_checkpoint

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
    line = next(line for line in compiled.output.splitlines() if line.startswith("compiled: "))
    assert line.startswith("compiled: training step 2 graphs in ")
    assert "evaluation 1 graph in" in line
    assert "compiled: " not in plain.output
    results = [run("evaluate", "compiled", *more).output for more in ((), ("--no-jit",))]
    assert results[0] == results[1]
    assert "test accuracy" in results[0]
