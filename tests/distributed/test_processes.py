"""Ranks in processes of their own: they have each other's bits, and none outlives another by more than the timeout."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hosts import FIRST, need_mpi, three_hosts
from ranks import LAUNCH, Ranks, free_port, steps, sums, sums_of_devices

import firebrick as fb
from firebrick.distributed import process
from firebrick.distributed.process import Meeting, ProcessGroup, torch_distributed
from firebrick.testing import engines

pytestmark = pytest.mark.skipif("torch" in engines().missing, reason="torch, whose gloo carries the data")

SCRIPT = """
import ranks
from firebrick import distributed

group = distributed.init(timeout=60)
print(f"{group.size} {ranks.sums(group).hex()}\\n", end="", flush=True)
distributed.shutdown()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program for launchers, that says the size of its group and a sum over it."""
    shared = str(Path(__file__).parents[1] / "shared")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([shared, *filter(None, [os.environ.get("PYTHONPATH")])]))
    path = tmp_path / "sums.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_processes_have_the_bits_of_devices(size: int) -> None:
    with Ranks(sums, size) as ranks:
        assert ranks.results() == [sums_of_devices(size)] * size


def in_a_step(ranks: Ranks, victim: int) -> None:
    """Returns when every rank but the victim is in an operation, or about to call it."""
    for rank in ranks.processes:
        assert ranks.hear(rank) == "in a step"
    ranks.tell(victim)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "victim"), [(2, 0), (4, 2)])
def test_a_killed_rank_ends_the_others_who_name_it(size: int, victim: int) -> None:
    with Ranks(steps, size, timeout=30.0) as ranks:
        in_a_step(ranks, victim)
        ranks.processes[victim].kill()
        errors = ranks.results(victim)
        ranks.processes[victim].join()
        assert ranks.processes[victim].exitcode == -signal.SIGKILL
    for error in errors:
        assert isinstance(error, fb.CollectiveTimeoutError)
        assert error.context["missing"] == [victim]
        assert error.context["operation"] == "all_reduce(sum)"
        assert error.context["seconds"] < 30.0
        assert f"missing rank {victim}: " in str(error)


@pytest.mark.slow
def test_a_stopped_rank_is_named_after_the_timeout() -> None:
    with Ranks(steps, 2, timeout=2.0) as ranks:
        in_a_step(ranks, 1)
        os.kill(ranks.processes[1].pid or 0, signal.SIGSTOP)
        (error,) = ranks.results(1)
    assert error.context["missing"] == [1]
    assert "missing rank 1: no sign of life for 2 s" in str(error)


@pytest.mark.slow
def test_ranks_that_never_start_are_named() -> None:
    with Ranks(sums, 3, timeout=1.0, only=[0]) as ranks:
        (error,) = ranks.results()
    assert error.context["missing"] == [1, 2]
    assert "rank 1: it did not start; rank 2: it did not start (seen by rank 0: not all came within 1 s)" in str(error)
    with Ranks(sums, 2, timeout=1.0, only=[1]) as ranks:
        (error,) = ranks.results()
    assert "missing rank 0: it keeps the store; it did not start, or the address is wrong" in str(error)


def test_the_last_rank_is_waited_for_like_all_others() -> None:
    with pytest.raises(fb.CollectiveTimeoutError, match="rank 1: it did not start") as caught:
        Meeting("127.0.0.1", free_port(), 0, 2, 0.5)
    assert caught.value.context["missing"] == [1]


@pytest.mark.parametrize(("rank", "size"), [(-1, 2), (2, 2), (0, 0)])
def test_a_rank_beyond_the_size_is_refused_before_anything_is_opened(rank: int, size: int) -> None:
    with pytest.raises(fb.ConfigError, match=f"from 0 to the number of ranks less 1\nReceived: rank {rank} of {size}"):
        ProcessGroup(rank=rank, size=size, master="127.0.0.1:1")


def test_a_group_of_another_kind_is_refused() -> None:
    with pytest.raises(fb.ConfigError, match="ProcessGroup: backend is gloo or nccl\nReceived: 'mpi'"):
        ProcessGroup("mpi", rank=0, size=1, master="127.0.0.1:1")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:29500", ("::1", 29500)), ("a.b:1", ("a.b", 1)),
        (":80", None), ("host", None), ("host:", None), ("host:port", None), ("host:-1", None),
    ],
)  # fmt: skip
def test_the_stores_address_is_a_host_and_a_port(
    text: str, place: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place is None:
        with pytest.raises(fb.ConfigError) as caught:
            process._master(text)
        assert (caught.value.expected, caught.value.received) == ("the store's address is host:port", repr(text))
        return
    assert process._master(text) == place
    host, _, port = text.rpartition(":")
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setenv("MASTER_PORT", port)
    assert process._master(None) == place


@pytest.mark.parametrize("late", [False, True])
def test_a_store_that_rank_0_cannot_open_is_named_by_its_address(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("the port is in use\nmore")

    monkeypatch.setattr(process, "torch_distributed", lambda: SimpleNamespace(TCPStore=refused))
    with pytest.raises(fb.CollectiveTimeoutError if late else fb.ConfigError) as caught:
        Meeting("127.0.0.1", 9, 0, 2, -1.0 if late else 60.0)
    if not late:
        assert caught.value.expected == "rank 0 keeps the group's store at 127.0.0.1:9"
        assert caught.value.received == "the port is in use"


def test_a_rank_that_finds_no_store_names_rank_0_and_the_address() -> None:
    port = free_port()
    with pytest.raises(fb.CollectiveTimeoutError, match=rf"it keeps the store[\s\S]*127\.0\.0\.1:{port}"):
        Meeting("127.0.0.1", port, 1, 2, 0.2)


@pytest.mark.parametrize(("torch", "reason"), [(None, "no module torch"), ("without", "a PyTorch built without it")])
def test_what_process_groups_need_is_named(monkeypatch: pytest.MonkeyPatch, torch: str | None, reason: str) -> None:
    found = None if torch is None else SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch.distributed", found)
    with pytest.raises(fb.UnsupportedError, match=f"process groups need [\\s\\S]*{reason}"):
        torch_distributed()


def test_a_process_group_without_its_variables_says_how_to_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(fb.ConfigError, match="no RANK\\.\nRemedy: start the program with: firebrick launch"):
        fb.distributed.ProcessGroup()


@pytest.mark.slow
@pytest.mark.soak  # test_launch.py trains over ranks of firebrick launch, and test_cluster.py has torchrun's variables
@pytest.mark.parametrize("launcher", ["firebrick launch", "torchrun"])
def test_launchers_start_ranks_that_find_each_other(script: Path, launcher: str) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--master-port", str(free_port()), "--nproc-per-node", "2")
    command = [*LAUNCH, "-n", "2"] if launcher == "firebrick launch" else torchrun
    done = subprocess.run([*command, script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(line.split("] ")[-1] for line in done.stdout.splitlines()) == [f"2 {sums_of_devices(2).hex()}"] * 2


def test_importing_it_imports_no_library_that_a_group_needs() -> None:
    code = "import sys, firebrick.distributed; sys.exit(any(m in sys.modules for m in ('torch', 'mpi4py')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# MPI

LATE = """
import signal
from firebrick import distributed

group = distributed.init(timeout=1)
if group.rank == 1:
    signal.pause()
group.barrier()
"""


@pytest.mark.slow
def test_ranks_of_mpi_have_the_bits_of_devices(script: Path) -> None:
    need_mpi()
    done = subprocess.run(
        [*LAUNCH, "-n", "2", "--backend", "mpi", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"2 {sums_of_devices(2).hex()}"] * 2


@pytest.mark.slow
def test_a_rank_of_mpi_that_does_not_come_is_named_and_all_end(tmp_path: Path) -> None:
    need_mpi()
    path = tmp_path / "late.py"
    path.write_text(LATE)
    done = subprocess.run(
        [*LAUNCH, "-n", "2", "--backend", "mpi", path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode != 0
    assert "CollectiveTimeoutError: barrier needs every rank of the group" in done.stderr
    assert "missing rank 1: it did not answer (seen by rank 0: time is up)" in done.stderr


# hosts


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Three hosts; see ``three_hosts``."""
    with three_hosts() as names:
        yield names


def test_three_hosts_have_the_bits_of_devices(hosts: list[str]) -> None:
    with Ranks(sums, 3, hosts=(hosts, FIRST)) as ranks:
        assert ranks.results() == [sums_of_devices(3)] * 3


@pytest.mark.slow
def test_a_host_that_is_cut_off_is_named(hosts: list[str]) -> None:
    with Ranks(steps, 3, timeout=3.0, hosts=(hosts, FIRST)) as ranks:
        in_a_step(ranks, 2)
        subprocess.run(["ip", "-n", hosts[3], "link", "set", "port2", "down"], check=True)
        errors = ranks.results(2)
    for error in errors:
        assert error.context["missing"] == [2]
        assert "missing rank 2: no sign of life" in str(error)
