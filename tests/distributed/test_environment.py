"""Variables of a launcher that are no numbers, or come alone: a process says so before it trains alone by mistake."""

import pytest

import firebrick as fb
from firebrick import distributed


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"):
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
def test_the_place_on_a_host_is_the_launchers(monkeypatch: pytest.MonkeyPatch, text: str, place: int) -> None:
    monkeypatch.setenv("LOCAL_RANK", text)
    assert distributed.local_rank() == place


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
