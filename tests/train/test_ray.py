"""A local Ray cluster of three one-CPU nodes: a run that loses nodes ends with the weights of one that lost none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("ray_program.py")


def said_by(scenario: str) -> dict[str, Any]:
    """What became of the runs of a scenario."""
    pytest.importorskip("torch", reason="torch, whose gloo carries the data")
    pytest.importorskip("ray", reason="ray, for a cluster of three nodes on this host")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), scenario], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    said = re.search(r"^found (\{.*\})$", done.stdout, flags=re.M)
    assert said is not None, done.stdout[-4000:] + done.stderr[-8000:]
    out: dict[str, Any] = json.loads(said[1])
    return out


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return said_by("heals")


def test_an_undisturbed_run_has_the_weights_of_one_device(found: dict[str, Any]) -> None:
    assert found["whole"] == [3, 0, 0]  # on all ranks
    assert found["alone"] < 1e-10


def test_a_run_whose_node_is_killed_and_replaced_ends_with_the_same_bits(found: dict[str, Any]) -> None:
    assert found["back"] == [3, 14, 0]  # it went on from the checkpoint of step 14
    assert any(re.search(r"rank 2 of 3 on .*: its node is gone", line) for line in found["lines"])


def test_a_run_whose_node_is_killed_goes_on_with_two_workers_to_the_same_weights(found: dict[str, Any]) -> None:
    size, begun, difference = found["fewer"]
    assert (size, begun) == (2, 14)
    assert difference < 1e-10


def test_a_run_takes_in_a_node_that_comes_and_ends_with_the_same_weights() -> None:
    found = said_by("grows")
    size, begun, difference = found["more"]
    assert (size, begun) == (2, 15)  # it saved where it was
    assert difference < 1e-10
    assert any("room for more workers" in line for line in found["lines"])


def test_too_few_resources_say_what_there_is_and_what_is_needed(found: dict[str, Any]) -> None:
    kind, text, _ = found["room"]
    assert kind == "TrainingError"
    assert "at least 4 workers of 1 CPU each" in text
    assert re.search(r"room for 2 after 1 s: 3 nodes; .* has 1 CPU, of which 1 CPU free", text)


def test_an_error_of_the_function_is_told_with_rank_node_and_traceback(found: dict[str, Any]) -> None:
    kind, text, trace = found["raised"]
    assert kind == "WorkerError"
    assert re.search(r"KeyError: 'no such column', on rank 1 of 2 on [\d.]+ \(node [0-9a-f]{8}\)", text)
    assert "in broken" in trace


def test_a_function_that_cannot_be_sent_names_what_it_refers_to_and_the_remedy(found: dict[str, Any]) -> None:
    kind, text, _ = found["pickled"]
    assert kind == "TrainingError"
    assert "refers to 'lock', a lock: cannot pickle" in text
    assert "inside the function" in text
