"""Runs over several devices from the command line: they train, resume exactly and go on elsewhere; nonsense is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from deaths import dying_after

import firebrick as fb
from firebrick.cli.placing import DISTRIBUTED, PARALLEL, SINGLE, Placing
from firebrick.train import DataParallel, Distributed, SingleDevice, load_checkpoint

Run = Callable[..., Result]
CNN = ("train", "digits", "--model", "cnn", "--set", "width=4", "--set", "features=16", "--batch-size", 256)


@pytest.mark.parametrize("devices", ["cpu:0,cpu:1", "cpu:0,torch:cpu,numpy:0"])
def test_a_run_over_several_devices_learns_what_one_over_a_single_device_does(run: Run, devices: str) -> None:
    split = run(*CNN, "--strategy", "data-parallel", "--devices", devices, "--epochs", 3, "--out", "split")
    assert split.exit_code == 0, split.output
    assert "shares of each batch: cpu:0 " in split.output
    assert run(*CNN, "--epochs", 3, "--out", "alone").exit_code == 0
    mine, theirs = load_checkpoint("split").state["history"], load_checkpoint("alone").state["history"]
    assert [r["train_loss"] for r in mine] == pytest.approx([r["train_loss"] for r in theirs], abs=1e-3)


def test_a_run_with_measured_shares_goes_on_bit_for_bit(run: Run) -> None:
    arguments = (*CNN, "--devices", "numpy:0,cpu:1", "--shares", "measured", "--epochs", 2, "--accumulate", 2)
    with dying_after(8):
        assert run(*arguments, "--out", "parts").exit_code == 1
    stopped = load_checkpoint("parts").state
    shares = stopped["strategy"]["shares"]
    assert stopped["step"] == 8
    resumed = run("train", "digits", "--out", "parts", "--resume")
    assert resumed.exit_code == 0, resumed.output
    again = run(*CNN, "--devices", "numpy:0,cpu:1", "--shares", ",".join(map(repr, shares)), "--epochs", 2, "--accumulate", 2,
                "--out", "whole")  # fmt: skip
    assert again.exit_code == 0, again.output
    parts, whole = load_checkpoint("parts"), load_checkpoint("whole")
    assert parts.state["strategy"]["shares"] == shares
    assert all(np.array_equal(whole.model[n], parts.model[n]) for n in whole.model)
    assert [r["train_loss"] for r in whole.state["history"]] == [r["train_loss"] for r in parts.state["history"]]


def test_a_run_goes_on_with_other_devices_and_another_number_of_them(run: Run) -> None:
    assert run(*CNN, "--devices", "cpu:0,cpu:1", "--epochs", 1, "--out", "run").exit_code == 0
    for epochs, options in ((2, ("--device", "numpy")), (3, ("--devices", "torch:cpu,cpu:0,cpu:3")), (4, ())):
        went_on = run("train", "digits", "--out", "run", "--resume", "--epochs", epochs, *options)
        assert went_on.exit_code == 0, went_on.output
        found = load_checkpoint("run")
        assert found.state["epoch"] == epochs
    assert found.config["devices"] == ["torch:cpu", "cpu:0", "cpu:3"]
    losses = [r["train_loss"] for r in found.state["history"]]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--devices", "cpu:0,cpu:0"), "distinct devices"),
        (("--devices", "cpu:0,abacus:1"), "abacus"),
        (("--strategy", "data-parallel"), "name the devices"),
        (("--strategy", "single", "--devices", "cpu:0,cpu:1"), "--strategy data-parallel"),
        (("--devices", "cpu:0,cpu:1", "--device", "numpy"), "leave it out"),
        (("--shares", "measured"), "--strategy data-parallel"),
        (("--devices", "cpu:0,cpu:1", "--shares", "0.5;0.5"), "neither even nor measured"),
        (("--devices", "cpu:0,cpu:1", "--shares", "1,2,3"), "one number > 0"),
        (("--accumulate", 0), "0 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_read(run: Run, options: Any, text: str) -> None:
    refused = run(*CNN, *options)
    assert refused.exit_code != 0
    assert text in refused.output
    assert "Traceback" not in refused.output


def test_each_name_makes_its_strategy_with_devices_and_shares() -> None:
    one = Placing(SINGLE, "numpy", None, None).build()
    assert (type(one), one.devices) == (SingleDevice, (fb.device("numpy"),))
    two = Placing(PARALLEL, None, ["numpy:0", "numpy:1"], [3.0, 1.0]).build()
    assert (type(two), two.devices, two.divide(8)) == (DataParallel, (fb.device("numpy:0"), fb.device("numpy:1")), [6, 2])
    assert Placing(PARALLEL, None, ["numpy:0", "numpy:1"], None).build().divide(8) == [4, 4]
    try:
        alone = Placing(DISTRIBUTED, "numpy", None, None).build()
        assert (type(alone), alone.devices) == (Distributed, (fb.device("numpy"),))
    finally:
        fb.distributed.shutdown()
