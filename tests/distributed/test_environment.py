"""Variables of a launcher that are no numbers, or come alone: a process says so before it trains alone by mistake."""

import pytest

import firebrick as fb
from firebrick import distributed
from firebrick.distributed import session
from firebrick.distributed.session import launcher


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"WORLD_SIZE": "abc", "RANK": "0"}, "WORLD_SIZE in the environment.*\n.*'abc'"),
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE in the environment"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE in the environment"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK in the environment"),
        ({"WORLD_SIZE": "2", "RANK": "x"}, "RANK in the environment"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2, WORLD_SIZE=2"),
        ({"RANK": "1"}, "WORLD_SIZE=unset"),
        ({"WORLD_SIZE": "2"}, "no RANK in the environment: it would train alone"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "no OMPI_COMM_WORLD_RANK"),
        ({"OMPI_COMM_WORLD_SIZE": "x"}, "OMPI_COMM_WORLD_SIZE in the environment"),
        ({"PMI_SIZE": "2"}, "no PMI_RANK"),
        ({"MV2_COMM_WORLD_SIZE": "2"}, "no MV2_COMM_WORLD_RANK"),
        ({"PMI_SIZE": "2", "PMI_RANK": "2"}, "PMI_RANK=2, PMI_SIZE=2"),
    ],
)
def test_a_launchers_variables_that_say_nothing_are_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for ask in (distributed.rank, distributed.world_size, distributed.init):
        with pytest.raises(fb.ConfigError, match=text):
            ask()


@pytest.mark.parametrize(("text", "place"), [("", 0), ("3", 3)])
@pytest.mark.parametrize("name", ["LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK"])
def test_the_place_on_a_host_is_the_launchers(monkeypatch: pytest.MonkeyPatch, name: str, text: str, place: int) -> None:
    monkeypatch.setenv(name, text)
    assert distributed.local_rank() == place


@pytest.mark.parametrize(
    ("variables", "name", "place"),
    [
        ({}, "", (0, 1)),
        ({"WORLD_SIZE": "1", "RANK": "0"}, "", (0, 1)),
        ({"WORLD_SIZE": "3", "RANK": "2"}, "firebrick launch", (2, 3)),
        ({"WORLD_SIZE": "3", "RANK": "2", "TORCHELASTIC_RUN_ID": "none"}, "torchrun", (2, 3)),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1"}, "mpiexec", (1, 3)),
        ({"PMI_SIZE": "3", "PMI_RANK": "1"}, "mpiexec", (1, 3)),
        ({"MV2_COMM_WORLD_SIZE": "3", "MV2_COMM_WORLD_RANK": "1"}, "mpiexec", (1, 3)),
        ({"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "2", "PMI_RANK": "1"}, "mpiexec", (1, 2)),
    ],
)
def test_the_launcher_is_known_by_its_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str, place: tuple[int, int]
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert launcher() == name
    assert (distributed.rank(), distributed.world_size()) == place


@pytest.mark.parametrize(
    ("variables", "backend", "made"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, None, "process gloo"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "nccl", "process nccl"),
        ({"RANK": "0", "WORLD_SIZE": "2", "PMI_SIZE": "2", "PMI_RANK": "0"}, None, "process gloo"),
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, None, "mpi"),
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "mpi", "mpi"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "mpi", "mpi"),
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "gloo", "one of 2 processes that mpiexec started"),
        ({}, "torch", "backend is one of gloo, nccl, mpi"),
    ],
)
def test_the_group_is_of_the_kind_that_started_the_process(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], backend: str | None, made: str
) -> None:
    asked: list[str] = []

    def mpi(*, timeout: float | None) -> distributed.Group:
        asked.append(f"mpi{timeout:g}")
        return distributed.Group(timeout=timeout)

    def process(backend: str, *, timeout: float | None) -> distributed.Group:
        asked.append(f"process {backend}{timeout:g}")
        return distributed.Group(timeout=timeout)

    monkeypatch.setattr(session, "MPIGroup", mpi)
    monkeypatch.setattr(session, "ProcessGroup", process)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    if " is one of " in made or "mpiexec" in made:
        with pytest.raises(fb.ConfigError, match=made):
            distributed.init(backend, timeout=7)
        return
    with distributed.init(backend, timeout=7) as group:
        assert (asked, group.timeout, distributed.current()) == ([f"{made}7"], 7, group)


@pytest.mark.parametrize("text", ["x", "-1", "1.5"])
def test_a_place_on_a_host_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("LOCAL_RANK", text)
    with pytest.raises(fb.ConfigError, match="LOCAL_RANK in the environment"):
        distributed.local_rank()


def test_a_group_that_was_left_says_nothing_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with distributed.init():
        pass
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert (distributed.rank(), distributed.world_size()) == (1, 2)


def test_a_process_that_no_launcher_started_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
