"""The doctor finds every planted fault on the engine that has it, says how far off it is and what to do, and passes without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import firebrick as fb
from firebrick.cli.main import main
from firebrick.testing import examine, faults

SOME = ["add", "multiply", "matmul", "relu", "cast", "sum", "where", "softmax", "maximum"]


def test_a_sound_engine_is_well(device: str) -> None:
    found = examine([device], ["add", "matmul", "relu"])
    assert found.ok, found.text()
    assert {f.check for f in found.findings} == {
        "conformance", "gradient rules", "large tensors", "transfers", "destinations", "random bits", "training",
    }  # fmt: skip
    assert not found.failures
    assert {f.advice for f in found.findings} == {""}


@pytest.mark.parametrize(
    ("fault", "name"),
    faults.EXAMPLES,
    ids=lambda v: v if isinstance(v, str) else v.__qualname__.split(".")[0],
)
def test_it_finds_a_planted_fault_and_names_the_op(fault: faults.Fault, name: str) -> None:
    with faults.planted(fault) as device:
        found = examine([device], [name])
    named = [f for f in found.failures if f.check == "conformance"]
    assert [f.subject for f in named] == [name], found.text()
    assert "cases" in named[0].off
    assert "use another device" in named[0].advice
    assert name in named[0].message
    assert f"[FAILED] {faults.ENGINE}:0 conformance: {name}" in found.text()


def test_it_finds_destinations_that_read_zero_by_two_ways() -> None:
    with faults.planted(faults.destinations_read_zero()) as device:
        found = examine([device], ["add"])
    assert {f.check for f in found.failures} == {"conformance", "destinations"}
    (lost,) = [f for f in found.failures if f.check == "destinations" and "[4], fresh" in f.subject]
    assert "off by" in lost.off
    assert "out=" in lost.advice


def test_it_finds_a_wrong_gradient_rule_and_what_it_does_to_training() -> None:
    with faults.wrong_gradient("gelu" if "gelu" in fb.ops.OPS else "erf") as op:
        found = examine(["cpu"], [op.name])
    assert [f.subject for f in found.failures if f.check == "gradient rules"] == [op.name]
    assert "every engine" in found.failures[0].advice


def test_it_finds_wrong_random_bits_and_lost_transfers() -> None:
    def off_by_one(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        result = right(op, inputs, params, out)
        return result + result.dtype.type(1) if op.name in ("random_bits", "random_uniform") else result

    with faults.planted(off_by_one) as device:
        found = examine([device], ["add"])
    assert {f.subject for f in found.failures if f.check == "random bits"} >= {"uniform", "bernoulli"}

    class Lossy(faults.FaultyBackend):
        def from_host(self, array, device):  # type: ignore[no-untyped-def]
            kept = super().from_host(array, device)
            with np.errstate(all="ignore"):
                return kept.astype("float32").astype("float64") if kept.dtype == "float64" else kept

    from firebrick.backends.registry import register_backend, unregister_backend

    register_backend(Lossy(faults.sound()))
    try:
        found = examine([faults.ENGINE], ["add"])
    finally:
        unregister_backend(faults.ENGINE)
    assert [f.subject for f in found.failures if f.check == "transfers"] == ["float64"]


def spoiled(name, when):  # type: ignore[no-untyped-def]
    """A fault: the op is off by one where ``when(inputs, params)`` holds."""

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        result = right(op, inputs, params, out)
        return result + result.dtype.type(1) if op.name == name and when(inputs, params) else result

    return fault


@pytest.mark.parametrize("name", ["add", "take", "sum", "permute"])
def test_it_finds_what_is_wrong_on_large_tensors_only(name: str) -> None:
    with faults.planted(spoiled(name, lambda inputs, params: inputs[0].size > 1 << 16)) as device:
        found = examine([device], [name])
    named = [f for f in found.failures if f.check == "large tensors"]
    assert [f.subject for f in named] == [name], found.text()
    assert "calls" in named[0].off
    assert "large tensors" in named[0].advice


def test_it_finds_draws_that_are_wrong_far_into_a_batch() -> None:
    with faults.planted(spoiled("random_uniform", lambda inputs, params: params["offset"] > 1 << 32)) as device:
        found = examine([device], ["add"])
    assert [f.subject for f in found.failures if f.check == "random bits"] == ["uniform, far into a batch"]


def test_it_finds_a_transfer_that_changes_what_a_nan_carries() -> None:
    class Tidy(faults.FaultyBackend):
        def from_host(self, array, device):  # type: ignore[no-untyped-def]
            kept = super().from_host(array, device)
            return np.where(np.isnan(kept), np.float32(np.nan), kept) if kept.dtype == "float32" else kept

    from firebrick.backends.registry import register_backend, unregister_backend

    register_backend(Tidy(faults.sound()))
    try:
        found = examine([faults.ENGINE], ["add"])
    finally:
        unregister_backend(faults.ENGINE)
    assert [f.subject for f in found.failures if f.check == "transfers"] == ["float32"], found.text()


def test_it_finds_what_comes_otherwise_from_another_engine() -> None:
    class Forgetful(faults.FaultyBackend):
        def from_dlpack(self, external, device):  # type: ignore[no-untyped-def]
            lent = super().from_dlpack(external, device)
            return np.abs(lent) if lent.dtype == "int8" else lent

    from firebrick.backends.registry import register_backend, unregister_backend

    register_backend(Forgetful(faults.sound()))
    try:
        found = examine([faults.ENGINE], ["add"])
    finally:
        unregister_backend(faults.ENGINE)
    assert [f.subject for f in found.failures if f.check == "transfers"] == ["int8"], found.text()


def test_a_device_named_twice_is_examined_once_and_one_without_values_not_at_all() -> None:
    checks = [f.check for f in examine(["cpu", "cpu:0"], ["add"]).findings]
    assert checks.count("destinations") == 1
    with pytest.raises(fb.DeviceError, match="knows shapes only"):
        examine(["cpu", "meta"], ["add"])


def test_an_engine_that_raises_is_a_finding_and_not_the_end() -> None:
    def raises(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        if op.name == "matmul":
            raise OSError("the driver is gone")
        return right(op, inputs, params, out)

    with faults.planted(raises) as device:
        found = examine([device], ["add"])
    (failed,) = [f for f in found.failures if f.check == "training"]
    assert "the driver is gone" in failed.message


# the command


def test_the_command_shows_a_table_and_writes_the_report(tmp_path: Path) -> None:
    goal = tmp_path / "report.txt"
    result = CliRunner().invoke(main, ["doctor", "--device", "cpu", "--op", "add", "--report", str(goal)])
    assert result.exit_code == 0, result.output
    assert "all is well" in result.output
    text = goal.read_text()
    assert f"firebrick: {fb.__version__}" in text
    assert "[ok] cpu:0 destinations" in text
    assert "seed: 0" in text


def test_the_command_fails_where_something_does_and_prints_what_to_paste() -> None:
    with faults.planted(faults.reads_zero("relu")):
        result = CliRunner().invoke(main, ["doctor", "--device", faults.ENGINE, "--op", "relu"])
    assert result.exit_code == 1
    assert "FAILED" in result.output
    assert "paste this into a bug report" in result.output
    assert "use another" in result.output


def test_the_command_refuses_a_report_that_it_could_not_write_before_it_works(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--device", "cpu", "--report", str(tmp_path / "none" / "report.txt")])
    assert result.exit_code == 1
    assert "No such file" in result.output
    assert "checking" not in result.output


@pytest.mark.parametrize(
    "arguments", [["--device", "cuda:99"], ["--device", "cpu", "--op", "frobnicate"], ["--device", "meta", "--op", "add"]]
)
def test_the_command_says_what_it_does_not_know(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["doctor", *arguments])
    assert result.exit_code == 1
    assert "error:" in result.output
    assert "Traceback" not in result.output
