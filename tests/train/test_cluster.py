"""A supervised run: workers in real processes on nodes of this process, so that each loss comes at a chosen moment."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cluster_jobs
import pytest
from cluster_jobs import Nodes, until, when

import firebrick as fb
from firebrick.train import Cluster, TrainingError, TrainingInterrupted, WorkerError
from firebrick.train.claim import claimed, is_claimed
from firebrick.train.cluster import cluster, shared, supervisor
from firebrick.train.cluster.supervisor import Lost, Supervisor
from firebrick.train.cluster.worker import Agent, Place

Run = Callable[..., Any]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def run(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a function on nodes, by default on all of them."""
    monkeypatch.setattr(supervisor, "SETTLE", 0.0)

    def run(function: Callable[..., Any], nodes: Nodes, workers: tuple[int, int] | None = None, **options: Any) -> Any:
        fewest, most = workers or (len(nodes.names), len(nodes.names))
        how = {"max_restarts": 1, "patience": 0.0, "backoff": 0.0, "grace": 60.0, "grow_every": 0.2, "variables": {}}
        return Supervisor(nodes, fewest, most, log=said.append, **{**how, **options}).run(
            pickle.dumps(function), tmp_path / "run"
        )

    return run


def test_workers_are_told_their_places_by_the_variables_of_torchrun(run: Run, tmp_path: Path) -> None:
    found = run(cluster_jobs.told, Nodes("a", "a", "b"))
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    assert [[v[n] for n in names] for _, v in found] == [
        ["0", "3", "0", "2", "0", "127.0.0.1"],
        ["1", "3", "1", "2", "0", "127.0.0.1"],
        ["2", "3", "0", "1", "1", "127.0.0.1"],
    ]
    assert [(w.rank, w.size, w.node, w.attempt, w.resumes) for w, _ in found] == [
        (r, 3, n, 0, False) for r, n in enumerate("aab")
    ]
    assert {w.out for w, _ in found} == {tmp_path / "run"}
    assert list((tmp_path / "run").iterdir()) == []


def test_a_worker_that_reads_its_standard_input_finds_nothing(run: Run) -> None:
    assert run(cluster_jobs.has_empty_input, Nodes("a")) == [True]


@pytest.mark.slow
def test_workers_form_a_group(run: Run) -> None:
    pytest.importorskip("torch")
    assert run(cluster_jobs.summed, Nodes("a", "b")) == [[1.0], [1.0]]


def test_a_worker_that_is_killed_is_named_and_all_start_again(run: Run, said: list[str], tmp_path: Path) -> None:
    assert run(partial(cluster_jobs.dies, times=1), Nodes("a", "b")) == [1, 1]
    assert any("rank 1 of 2 on b: was ended by signal 9 (SIGKILL); all start again" in line for line in said)
    # without a checkpoint there was nothing to go on from: what was written is beside the directory
    assert [f.name for f in (tmp_path / "run.unfinished-1").iterdir()] == ["left"]


def test_a_directory_that_was_not_empty_before_the_run_stays_where_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").touch()
    assert run(partial(cluster_jobs.dies, times=1), Nodes("a", "b")) == [2, 2], "what was there and what was left are together"
    assert (tmp_path / "run" / "notes").exists()
    assert [f.name for f in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
def test_a_node_that_is_lost_is_named_and_the_rest_goes_on_with_fewer_workers(
    run: Run, said: list[str], tmp_path: Path
) -> None:
    nodes = Nodes("a", "b", "c")
    when(tmp_path / "run" / "running-1", lambda: nodes.lose("b"))
    # the others wait for something else, and are ended when they had their time, which is none
    assert run(partial(cluster_jobs.waits, times=1), nodes, (2, 3), grace=0.0, grow_every=60.0) == [2, 2]
    assert any("rank 1 of 3 on b: its node is gone" in line for line in said)
    assert any("2 workers on a, c" in line for line in said)


@pytest.mark.slow
def test_when_there_is_room_for_more_workers_all_save_and_start_again_on_more(
    run: Run, said: list[str], tmp_path: Path
) -> None:
    nodes = Nodes("a")
    when(tmp_path / "run" / "running-0", lambda: nodes.names.append("b"))
    assert run(partial(cluster_jobs.waits, times=1), nodes, (1, 2), max_restarts=0) == [2, 2]
    assert any("room for more workers" in line for line in said)


def test_an_error_of_the_function_is_told_with_rank_node_and_traceback_and_is_not_tried_again(
    run: Run, said: list[str]
) -> None:
    with pytest.raises(WorkerError, match=r"KeyError: 'no such column', on rank 1 of 2 on b") as caught:
        run(cluster_jobs.raises, Nodes("a", "b"))
    assert "in raises" in caught.value.context["traceback"]
    assert caught.value.context["rank"] == 1
    assert isinstance(caught.value.__cause__, KeyError)
    assert sum(line.startswith("attempt") for line in said) == 1


@pytest.mark.slow
def test_a_worker_that_is_cut_off_and_one_that_hangs_start_again(run: Run, said: list[str]) -> None:
    assert run(cluster_jobs.hangs, Nodes("a", "b"), grace=0.5) == [1, 1]
    assert any("rank 0 of 2 on a: CollectiveTimeoutError: all_reduce(sum)" in line for line in said)


@pytest.mark.slow
def test_losses_in_a_row_end_the_run_and_the_last_one_is_told(run: Run, said: list[str]) -> None:
    with pytest.raises(WorkerError, match=r"(?s)within 1 restarts.*2 losses in a row.*rank 1 of 2 on b: was ended by signal 9"):
        run(partial(cluster_jobs.dies, times=9), Nodes("a", "b"))
    assert sum(line.startswith("attempt") for line in said) == 2


@pytest.mark.slow
def test_losses_that_leave_a_newer_checkpoint_do_not_end_the_run(run: Run) -> None:
    assert run(partial(cluster_jobs.progresses, times=3), Nodes("a")) == [(3, True)]


@pytest.mark.slow
def test_ctrl_c_saves_and_says_where(run: Run, tmp_path: Path) -> None:
    when(tmp_path / "run" / "running-0", lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(TrainingInterrupted, match="stopped in epoch 1 after step 5") as caught:
        run(partial(cluster_jobs.waits, times=1), Nodes("a"))
    assert caught.value.checkpoint == tmp_path / "run" / "checkpoint"


def test_too_little_room_says_what_there_is_and_what_is_needed(run: Run) -> None:
    with pytest.raises(TrainingError, match=r"(?s)at least 3 workers of 1 CPU each.*room for 2 after 0 s: 2 nodes; a, b"):
        run(cluster_jobs.told, Nodes("a", "b"), (3, 4))


class Placed(Agent):
    """Says something else of where it is, or dies of being asked."""

    def __init__(self, there: Place | None) -> None:
        super().__init__()
        self._there = there

    def place(self) -> Place:
        if self._there is None:
            raise Lost("no module named firebrick")
        return self._there


def test_workers_of_one_node_see_all_its_gpus_and_their_local_rank_chooses(run: Run) -> None:
    gpus = iter(["5", "3", "0"])
    found = run(cluster_jobs.told, Nodes("a", "a", "b", agents=lambda node: Placed(Place("1.0", next(gpus), 29500))))
    assert [v["CUDA_VISIBLE_DEVICES"] for _, v in found] == ["5,3", "5,3", "0"]
    assert {v["MASTER_PORT"] for _, v in found} == {"29500"}


def test_nodes_with_other_versions_of_firebrick_are_named(run: Run) -> None:
    nodes = Nodes("a", "b", agents=lambda node: Placed(Place("1.0" if node == "a" else "0.9", "", 29500)))
    with pytest.raises(TrainingError, match=r"the same version of Firebrick\nReceived: 1.0 on a, 0.9 on b"):
        run(cluster_jobs.told, nodes)


def test_agents_that_never_start_are_a_loss_and_not_tried_for_ever(run: Run) -> None:
    nodes = Nodes("a", "b", agents=lambda node: Placed(None) if node == "b" else Agent())
    why = r"(?s)2 losses in a row; the last one: before the function ran, on b: .*\(no module named firebrick\)"
    with pytest.raises(WorkerError, match=why):
        run(cluster_jobs.told, nodes)


class Elsewhere(Agent):
    """On a node where the path of the run directory leads to another one."""

    def __init__(self, instead: Path) -> None:
        super().__init__()
        self._instead = instead

    def find(self, out: Path, mark: str, expected: shared.Standing) -> str:
        return super().find(self._instead, mark, expected)


@pytest.mark.parametrize(("there", "what"), [(True, "a directory without the mark"), (False, "no such directory")])
def test_a_run_directory_that_is_not_shared_is_an_error_that_names_the_node(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, what: str
) -> None:
    monkeypatch.setattr(shared, "PATIENCE", 0.0)
    if there:
        (tmp_path / "other").mkdir()
    nodes = Nodes("a", "b", agents=lambda node: Elsewhere(tmp_path / "other") if node == "b" else Agent())
    with pytest.raises(TrainingError, match=rf"(?s)one run directory.*made on a; on b there is {what}"):
        run(cluster_jobs.told, nodes)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_worker_that_sees_older_checkpoints_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PATIENCE", 0.0)
    fb.train.save_checkpoint(tmp_path / "checkpoint", model={}, optimizer={}, state={"step": 1}, config={})
    before = shared.standing(tmp_path)
    fb.train.save_checkpoint(tmp_path / "checkpoint", model={}, optimizer={}, state={"step": 2}, config={})
    now = shared.take_over(tmp_path, "mark", again=False, own=False)
    assert shared.find(tmp_path, "mark", now) == ""
    assert shared.find(tmp_path, "mark", before).startswith("other checkpoints than on rank 0: checkpoint (")


def test_a_run_directory_that_another_run_writes_to_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with claimed(tmp_path / "run"), pytest.raises(TrainingError, match="takes one run at a time"):
        run(cluster_jobs.told, Nodes("a"))


def test_an_agent_ends_and_stops_what_lives_and_signals_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its process started there is none, and after it ended its number may be another's."""
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append(group))
    agent = Agent()
    agent.end()
    agent.stop()
    agent._process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    agent._process.wait()
    agent.end()
    assert signalled == []
    monkeypatch.undo()
    agent._process = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"], start_new_session=True)
    agent.end()
    assert agent._process.returncode == -signal.SIGKILL


AGENT = """
import sys
from functools import partial
from pathlib import Path
import pickle, cluster_jobs
from firebrick.train import Worker
from firebrick.train.cluster.worker import Agent, Job
worker = Worker(0, 1, "a", Path(sys.argv[1]), 0, False)
Agent().run(Job(pickle.dumps(cluster_jobs.holds), worker, {}, "pickle"))
"""


def test_a_worker_ends_with_its_agent(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path)], env=environment)
    try:
        until((tmp_path / "running-0").exists)
        assert is_claimed(tmp_path)
    finally:
        agent.kill()
        agent.wait()
    until(lambda: not is_claimed(tmp_path))


# the front


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": (3, 2)}, "the fewest and the most"),
        ({"workers": 2, "gpus": 2}, "one GPU or none"),
        ({"workers": 2, "cpus": 0}, "a worker has CPUs"),
        ({"workers": 2, "placing": "close"}, '"spread" or "pack"'),
        ({"workers": 2, "backend": "mpi"}, '"gloo" or "nccl"'),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        Cluster(**options)


def test_what_a_cluster_is_made_with_reaches_pool_and_supervisor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []

    class Pool:
        def __init__(self, *arguments: Any) -> None:
            seen.append(arguments)

        def pickled(self, function: Any) -> bytes:
            return b"packed"

        def close(self) -> None:
            seen.append("closed")

    class Supervising:
        def __init__(self, pool: Any, *arguments: Any, **options: Any) -> None:
            seen.append((*arguments, options))

        def run(self, function: bytes, out: Path) -> list[Any]:
            seen.append((function, out))
            return [7]

    monkeypatch.setattr(cluster, "RayPool", Pool)
    monkeypatch.setattr(cluster, "Supervisor", Supervising)
    monkeypatch.setattr(
        os, "environ", {"FIREBRICK_OMP": "x", "FIREBRICK_NUM_THREADS": "9", "FIREBRICK_DISTRIBUTED_BACKEND": "mpi"}
    )
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    times = {"max_restarts": 4, "patience": 1.0, "backoff": 2.0, "grace": 3.0, "grow_every": 5.0}
    how: dict[str, Any] = {
        "cpus": 2.5,
        "gpus": 1,
        "resources": {"a": 1.0},
        "placing": "pack",
        "backend": "nccl",
        "address": "b:1",
    }
    assert Cluster((2, 8), **how, **times, log=lines.append).run(print, out="run") == [7]
    options = seen[1][-1]
    options.pop("log")("a line")
    assert lines == ["a line"]
    variables = {
        "FIREBRICK_NUM_THREADS": "9", "OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1", "FIREBRICK_OMP": "x",
        "FIREBRICK_DISTRIBUTED_BACKEND": "nccl",
    }  # fmt: skip
    assert seen == [
        ("b:1", 2.5, 1, {"a": 1.0}, "PACK"),
        (2, 8, {**times, "variables": variables}),
        (b"packed", tmp_path / "run"),
        "closed",
    ]
    Cluster(3, cpus=0.5, log=None).run(print, out="run")
    options = seen[5][-1]
    assert seen[4:6] == [(None, 0.5, 0, {}, "SPREAD"), (3, 3, options)]
    assert options["variables"]["OMP_NUM_THREADS"] == "1"
    assert options["log"]("nowhere") is None


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(fb.UnsupportedError, match=r"pip install 'firebrick\[ray\]'"):
        Cluster(workers=1).run(cluster_jobs.told, out=tmp_path)
