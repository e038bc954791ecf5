"""Training over processes: the result of one device, and a rank that dies is named by the others."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import distributed_training
import pytest
from distributed_training import HOSTS, compare, unlike_settings
from hosts import FIRST, need_mpi, three_hosts
from ranks import LAUNCH, Body, Ranks

from firebrick.testing import engines

pytestmark = pytest.mark.skipif("torch" in engines().missing, reason="torch, whose gloo carries the data")

ENVIRONMENT = {**os.environ, "FIREBRICK_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
PROGRAM = distributed_training.__file__


def launched(processes: int, *arguments: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*LAUNCH, "-n", str(processes), *options, PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=150, check=False)


def on_ranks(body: Body, size: int, hosts: tuple[Sequence[str], str] | None = None) -> list[Any]:
    """What a body returns on each rank of processes that have imported PyTorch already."""
    with Ranks(body, size, hosts=hosts, patience=150) as ranks:
        results = ranks.results()
    for error in results:
        if isinstance(error, Exception):
            raise error
    return results


def check(found: dict[str, Sequence[float]], ways: int) -> None:
    """Every way of training gave what one device gives."""
    assert len(found) == ways
    for name, (weights, losses, steps) in found.items():
        assert weights < 1e-10, name
        assert losses < 1e-10, name
        assert steps == 0, name


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "short"), [(2, True), *(pytest.param(n, False, marks=pytest.mark.soak) for n in (2, 4))])
def test_weights_after_50_steps_are_those_of_one_device(processes: int, short: bool) -> None:
    found, *others = on_ranks(partial(compare, short=short), processes)
    check(found, 17)
    assert [len(other) for other in others] == [7] * (processes - 1)


# On another transport, the ways that differ in what is sent; over hosts two of them; the others in soak


@pytest.mark.slow
@pytest.mark.parametrize(("ways", "count"), [("transport", 12), pytest.param("compare", 17, marks=pytest.mark.soak)])
def test_two_ranks_of_mpi_give_the_weights_of_one_device(ways: str, count: int) -> None:
    need_mpi()
    done = launched(2, ways, options=("--backend", "mpi"))
    assert done.returncode == 0, done.stdout + done.stderr
    line = re.search(r"found (\{.*\})", done.stdout)
    assert line is not None, done.stdout
    check(json.loads(line[1]), count)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ways", "epochs", "count"), [(HOSTS, 2, 9), pytest.param((), 5, 17, marks=pytest.mark.soak)], ids=["hosts", "all"]
)
def test_three_hosts_give_the_weights_of_one_device(ways: Sequence[str], epochs: int, count: int) -> None:
    with three_hosts() as names:
        found, *_ = on_ranks(partial(compare, chosen=ways, epochs=epochs), 3, hosts=(names, FIRST))
    check(found, count)


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
    said, _ = on_ranks(partial(unlike_settings, out=str(tmp_path)), 2)
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
