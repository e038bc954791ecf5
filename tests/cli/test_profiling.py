"""``firebrick train --profile`` writes a timeline of the first steps, and changes no result."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import firebrick as fb
from firebrick.cli import profiling
from firebrick.train import load_checkpoint

Run = Callable[..., Result]
ARGUMENTS = ("train", "digits", "--model", "mlp", "--batch-size", 256, "--epochs", 2)


@pytest.mark.parametrize("more", [(), ("--workers", 1), ("--no-jit",), ("--devices", "cpu:0,cpu:1")], ids=str)
def test_the_first_steps_are_written_and_results_stay(
    run: Run, monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...]
) -> None:
    monkeypatch.setattr(profiling.FirstSteps.__init__, "__defaults__", (3,))
    found = run(*ARGUMENTS, *more, "--out", "with", "--profile", "trace.json")
    assert found.exit_code == 0, found.output
    assert "trace.json" in found.output
    plain = run(*ARGUMENTS, *more, "--out", "without")
    one, other = load_checkpoint("with"), load_checkpoint("without")
    assert plain.exit_code == 0
    assert all(one.model[n].tobytes() == other.model[n].tobytes() for n in one.model)
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    steps = [e["name"] for e in events if e.get("cat") == "train" and e["name"].startswith("step")]
    assert steps[:3] == ["step 1", "step 2", "step 3"]
    assert any(e.get("cat") == "loader" for e in events)
    assert any(e.get("cat") in ("kernel", "op") for e in events)
    assert type(fb.device("cpu").backend).__name__ == "CpuBackend"


def test_a_run_of_fewer_steps_and_a_resumed_one_have_a_timeline_too(run: Run) -> None:
    assert run(*ARGUMENTS[:-1], 1, "--out", "short", "--profile", "a.json").exit_code == 0
    assert json.loads(Path("a.json").read_text())["traceEvents"]
    resumed = run("train", "digits", "--out", "short", "--resume", "--epochs", 2, "--profile", "b.json")
    assert resumed.exit_code == 0, resumed.output
    names = {e["name"] for e in json.loads(Path("b.json").read_text())["traceEvents"]}
    assert "step 7" in names
    assert "step 1" not in names


@pytest.mark.parametrize(("path", "text"), [("missing/trace.json", "there is no folder missing"), (".", "is a directory")])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_trained(run: Run, path: str, text: str) -> None:
    refused = run(*ARGUMENTS, "--profile", path)
    assert refused.exit_code == 2
    assert text in refused.output
    assert not Path("runs").exists()
