"""Schedules, optimizers, augmentation and what else a run can be given, and that a resumed run keeps them."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from firebrick.train import load_checkpoint

Run = Callable[..., Result]
CNN = ("train", "digits", "--model", "cnn", "--set", "width=4", "--set", "features=16")


def test_a_run_with_augmentation_and_a_one_cycle_schedule_resumes_bit_for_bit(run: Run) -> None:
    options = (*CNN, "--augment", "crop", "--augment", "flip", "--schedule", "one-cycle", "--optimizer", "adamw",
               "--label-smoothing", 0.1, "--weight-decay", 0.02, "--epochs", 2)  # fmt: skip
    assert run(*options, "--out", "whole").exit_code == 0
    whole = load_checkpoint("whole")
    assert whole.config["augment"] == ["crop", "flip"]
    assert whole.config["model_settings"] == {"width": 4, "features": 16}
    again = run(*options, "--out", "again", "--device", "numpy:1")
    assert again.exit_code == 0, again.output
    other = load_checkpoint("again")
    assert all(np.array_equal(whole.model[n], other.model[n]) for n in whole.model)


@pytest.mark.parametrize(
    "options",
    [("--schedule", "constant"), ("--optimizer", "sgd", "--lr", 0.02), ("--augment", "crop"), ("--label-smoothing", 0.2)],
    ids=lambda options: " ".join(map(str, options)),
)
def test_each_option_changes_what_is_learned(run: Run, options: tuple[object, ...]) -> None:
    assert run(*CNN, "--epochs", 1, "--out", "plain").exit_code == 0
    result = run(*CNN, "--epochs", 1, "--out", "other", *options)
    assert result.exit_code == 0, result.output
    assert re.search(r"test accuracy \d\.\d{4}\n$", result.output)
    plain, other = load_checkpoint("plain"), load_checkpoint("other")
    assert any(not np.array_equal(plain.model[n], other.model[n]) for n in plain.model)


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
