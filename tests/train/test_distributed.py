"""Training over processes: the result of one device, and a rank that dies is named by the others."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hosts import FIRST, need_mpi, three_hosts
from ranks import LAUNCH

from firebrick.testing import engines

pytestmark = pytest.mark.skipif("torch" in engines().missing, reason="torch, whose gloo carries the data")

ENVIRONMENT = {**os.environ, "FIREBRICK_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
PROGRAM = Path(__file__).with_name("distributed_program.py")


def launched(processes: int, *arguments: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*LAUNCH, "-n", str(processes), *options, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=150, check=False)


def check(said: str, ways: int = 17) -> None:
    """Every way of training gave what one device gives."""
    line = re.search(r"found (\{.*\})", said)
    assert line is not None, said
    found = json.loads(line[1])
    assert len(found) == ways
    for name, (weights, losses, steps) in found.items():
        assert weights < 1e-10, name
        assert losses < 1e-10, name
        assert steps == 0, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "ways"),
    [(2, "compare"), *(pytest.param(n, "compare for 50 steps", marks=pytest.mark.soak) for n in (2, 4))],
)
def test_weights_after_50_steps_are_those_of_one_device(processes: int, ways: str) -> None:
    done = launched(processes, ways)
    assert done.returncode == 0, done.stdout + done.stderr
    check(done.stdout)


# On another transport, the ways that differ in what is sent; over hosts two of them; the others in soak
EVERYTHING = pytest.param("compare for 50 steps", 17, marks=pytest.mark.soak)


@pytest.mark.slow
@pytest.mark.parametrize(("ways", "count"), [("transport", 12), EVERYTHING])
def test_two_ranks_of_mpi_give_the_weights_of_one_device(ways: str, count: int) -> None:
    need_mpi()
    done = launched(2, ways, options=("--backend", "mpi"))
    assert done.returncode == 0, done.stdout + done.stderr
    check(done.stdout, count)


@pytest.mark.slow
@pytest.mark.parametrize(("ways", "count"), [("hosts", 9), EVERYTHING])
def test_three_hosts_give_the_weights_of_one_device(ways: str, count: int) -> None:
    with three_hosts() as names:
        started = []
        for i, name in enumerate(names[:3]):
            where = ("--nodes", "3", "--node-rank", str(i), "--master", f"{FIRST}:29517")
            command = ["ip", "netns", "exec", name, *LAUNCH, "-n", "1", *where, str(PROGRAM), ways]
            started.append(subprocess.Popen(command, stdout=-1, stderr=-2, text=True, env=ENVIRONMENT))
        said = [process.communicate(timeout=150)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    check(said[0], count)


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_a_rank_killed_in_a_step_ends_the_others_which_name_it(processes: int) -> None:
    done = launched(processes, "die", "1")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    for rank in range(processes):
        if rank != 1:
            assert re.search(rf"\[rank {rank}\].*CollectiveTimeoutError", said), said
    assert re.search(r"missing rank 1\b", said), said
    assert re.search(r"rank 1 .*(SIGKILL|signal 9|-9)", said), said


def test_ranks_with_other_settings_are_refused_by_name_and_replicas_that_part_are_found_before_a_checkpoint(
    tmp_path: Path,
) -> None:
    done = launched(2, "settings", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    line = re.search(r"said (\{.*\})", done.stdout)
    assert line is not None, done.stdout
    said = json.loads(line[1])
    assert said.pop("nothing") == ""
    named = {
        "momentum": "optimizer's momentum: 0 on rank 0, 0.9 on rank 1",
        "rate": "constant(lr=0.1)' on rank 0, 'constant(lr=0.2)' on rank 1",
        "dropout": "model's layers.2.p: 0.2 on rank 0, 0.5 on rank 1",
        "loss": "loss's label_smoothing: 0 on rank 0, 0.1 on rank 1",
        "clip": "learner's clip_norm: None on rank 0, 0.1 on rank 1",
        "averages": "optimizer's ema's decay: nothing on rank 0, 0.9 on rank 1",
        "width": "model's layers.0.out_features: 8 on rank 0, 9 on rank 1",
        "dtype": "model's layers.3.weight holds: float32[3, 8] on rank 0, float64[3, 8] on rank 1",
        "frozen": "model's layers.0.weight: trainable on rank 0, frozen on rank 1",
        "jit": "learner's jit: True on rank 0, False on rank 1",
        "epochs": "learner's epochs: 1 on rank 0, 2 on rank 1",
    }
    for kind, text in named.items():
        assert text in said[kind], kind
        assert "doctor" not in said[kind], kind
        assert "zeros" not in said[kind], kind
    for step, found in ((4, 4), (2, 3)):
        text, at = said[f"astray in step {step}"]
        assert "rank 1 differs from rank 0" in text
        assert at == found
        assert not (tmp_path / str(step) / "checkpoint").exists()
    assert said["checks"] == [3, 4]  # a step after it was due, which all ranks know by then; and at the epoch's end
