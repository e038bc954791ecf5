"""The process of trials: what its answers mean for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firebrick.compiler.tune.child_process import TrialProcess, reason_of

ANSWERS = """
import os
from firebrick.compiler.tune.child_process import answer_requests

def answer(request):
    if request["step"] == "lose":
        return {"ended": "it lost the device"}
    if request["step"] == "raise":
        raise OSError("no memory")
    if request["step"] == "overwrite":
        os.write(own, b"no answer\\n")
    if request["step"] == "exit":
        os._exit(7)
    return [request["step"], os.getpid()]

def main():
    global own
    own = os.dup(1)  # where answers go
    answer_requests(answer)
"""


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrialProcess]:
    (tmp_path / "answers_of_tests.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    found = TrialProcess("answers_of_tests")
    yield found
    found.end()


def test_a_process_that_lost_its_device_or_ended_is_replaced(process: TrialProcess) -> None:
    name, first = process.ask({"step": "work"}, 60.0)
    assert (name, process.ask({"step": "again"}, 60.0)) == ("work", ["again", first])
    assert reason_of(process.ask({"step": "raise"}, 60.0)) == "OSError: no memory"
    assert process.running, "an error of a trial is an answer"
    assert reason_of(process.ask({"step": "lose"}, 60.0)) == "it lost the device"
    assert not process.running
    _, second = process.ask({"step": "work"}, 60.0)
    assert second != first
    assert reason_of(process.ask({"step": "overwrite"}, 60.0)) == "it overwrote the memory of its process"
    assert not process.running
    assert reason_of(process.ask({"step": "exit"}, 60.0)) == "it ended the process (exit code 7)"
    assert not process.running


def test_a_process_that_has_ended_by_itself_leaves_no_open_pipe(process: TrialProcess) -> None:
    _, first = process.ask({"step": "work"}, 60.0)
    old = process._process
    assert old is not None
    assert old.stdin is not None
    assert old.stdout is not None
    old.kill()
    old.wait()
    assert not process.running
    _, second = process.ask({"step": "work"}, 60.0)
    assert second != first
    assert old.stdin.closed
    assert old.stdout.closed
