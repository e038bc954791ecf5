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


def check(said: str) -> None:
    """Every way of training gave what one device gives."""
    line = re.search(r"found (\{.*\})", said)
    assert line is not None, said
    found = json.loads(line[1])
    assert len(found) == 17
    for name, (weights, losses, steps) in found.items():
        assert weights < 1e-10, name
        assert losses < 1e-10, name
        assert steps == 0, name


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_weights_after_50_steps_are_those_of_one_device(processes: int) -> None:
    done = launched(processes, "compare")
    assert done.returncode == 0, done.stdout + done.stderr
    check(done.stdout)


@pytest.mark.slow
def test_two_ranks_of_mpi_give_the_weights_of_one_device() -> None:
    need_mpi()
    done = launched(2, "compare", options=("--backend", "mpi"))
    assert done.returncode == 0, done.stdout + done.stderr
    check(done.stdout)


@pytest.mark.slow
def test_three_hosts_give_the_weights_of_one_device() -> None:
    with three_hosts() as names:
        started = []
        for i, name in enumerate(names[:3]):
            where = ("--nodes", "3", "--node-rank", str(i), "--master", f"{FIRST}:29517")
            command = ["ip", "netns", "exec", name, *LAUNCH, "-n", "1", *where, str(PROGRAM), "compare"]
            started.append(subprocess.Popen(command, stdout=-1, stderr=-2, text=True, env=ENVIRONMENT))
        said = [process.communicate(timeout=150)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    check(said[0])


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
