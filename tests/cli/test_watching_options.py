"""``--precision``, ``--events`` and ``--record-every``: what they write, and that a resumed run keeps them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from after_steps import after_steps
from click.testing import Result

from firebrick.train import Learner, load_checkpoint

Run = Callable[..., Result]
SHORT = ("train", "digits", "--model", "mlp", "--batch-size", 256)


def test_a_run_in_float16_with_events_and_steps_goes_on_with_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    options = (*SHORT, "--epochs", 2, "--precision", "float16", "--events", "--record-every", 2)
    assert run(*options, "--out", "whole").exit_code == 0
    fit = Learner.fit

    def stopped(self: Learner, *arguments: Any, **named: Any) -> Any:
        after_steps(self, lambda: self.interrupts.stop() if self.step == 3 else None)
        return fit(self, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "fit", stopped)
        assert run(*options, "--out", "parts").exit_code == 130
    resumed = run("train", "digits", "--out", "parts", "--resume")
    assert resumed.exit_code == 0, resumed.output
    whole, parts = load_checkpoint("whole"), load_checkpoint("parts")
    assert all((whole.model[n] == parts.model[n]).all() for n in whole.model)
    assert whole.optimizer["precision"] == parts.optimizer["precision"] == {"dtype": "float16", "scale": 2.0**15, "good": 12}
    assert Path("whole/steps.jsonl").read_text() == Path("parts/steps.jsonl").read_text()
    assert [json.loads(r)["step"] for r in Path("parts/steps.jsonl").read_text().splitlines()] == [2, 4, 6, 8, 10, 12]
    assert len(list(Path("parts/events").iterdir())) == 2
    other = run("train", "digits", "--out", "parts", "--resume", "--epochs", 3, "--precision", "bfloat16")
    assert other.exit_code == 1
    assert "--precision bfloat16, and it has float16" in other.output


def test_without_them_there_are_neither_event_files_nor_steps(run: Run) -> None:
    assert run(*SHORT, "--epochs", 1, "--out", "plain").exit_code == 0
    assert not Path("plain/events").exists()
    assert not Path("plain/steps.jsonl").exists()
    assert "precision" not in load_checkpoint("plain").optimizer
