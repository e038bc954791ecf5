"""The sign of life of a rank, over a store in memory: it ends with the rank, which says that it leaves; and what a rank
finds out of the others from theirs, when an exchange has failed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import firebrick as fb
from firebrick.distributed import heartbeat as heartbeats
from firebrick.distributed.heartbeat import Heartbeat
from firebrick.distributed.wire import WireError


class InMemory(dict[str, bytes]):
    """What is used of a store, in this process."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(k in self for k in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self[k] for k in keys]

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return self.setdefault(key, desired.encode())


def beating() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "firebrick-heartbeat-1"}


def test_a_closed_heartbeat_has_said_that_its_rank_left_and_beats_no_more() -> None:
    store, before = InMemory(), beating()
    heartbeat = Heartbeat(lambda: store, rank=1, size=2, keeper=0, interval=0.01)
    assert beating() > before
    assert "left/1" not in store
    heartbeat.close()
    assert beating() == before
    assert store.pop("left/1") == b""
    heartbeat.close()
    assert "left/1" not in store  # it is said once


class Ranks(InMemory):
    """A store with beats of other ranks, of which those of ``alive`` count on whenever anyone looks."""

    def __init__(self, places: dict[int, tuple[int, str]], alive: set[int]) -> None:
        super().__init__({f"beat/{r}": json.dumps([0, *place]).encode() for r, place in places.items()})
        self.alive = alive

    def multi_get(self, keys: list[str]) -> list[bytes]:
        for r in self.alive:
            count, *place = json.loads(self[f"beat/{r}"])
            self[f"beat/{r}"] = json.dumps([count + 1, *place]).encode()
        return super().multi_get(keys)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ranks are given up after 0.05 seconds."""
    monkeypatch.setattr(heartbeats, "SECONDS", 0.05)
    return


def explained(store: InMemory, keeper: int | None = 1) -> fb.CollectiveTimeoutError:
    """What rank 0 of 3 says of its call 5, on which rank 2 did not answer."""
    own = Heartbeat(lambda: store, rank=0, size=3, keeper=keeper, interval=0.01)
    try:
        own.at(5, "barrier")
        found = own.explain("barrier", 5, WireError("time is up", {2}))
        assert str(own.verdict()) == str(found)
        return found
    finally:
        own.close()


HERE, LATE, FIRST = (5, "barrier"), (3, "all_reduce(sum)"), (-1, "before its first operation")


@pytest.mark.parametrize(
    ("places", "alive", "left", "said"),
    [
        ({1: HERE, 2: HERE}, {1}, [], {2: "no sign of life for 0.05 s"}),
        ({1: LATE, 2: HERE}, set(), [], {1: "no sign of life for 0.05 s", 2: "no sign of life for 0.05 s"}),
        ({1: LATE, 2: HERE}, {1, 2}, [], {1: "it lives, and is at all_reduce(sum), call 3"}),
        ({1: HERE, 2: FIRST}, {1, 2}, [], {2: "it lives, and is before its first operation"}),
        ({1: HERE, 2: (0, "barrier")}, {1, 2}, [], {2: "it lives, and is at barrier, call 0"}),
        ({1: HERE, 2: HERE}, {1, 2}, [], {2: "it lives, and is at barrier, call 5"}),  # the one that did not answer
        ({1: LATE, 2: HERE}, {2}, [2], {2: "its program ended"}),
    ],
)
@pytest.mark.usefixtures("soon")
def test_who_left_is_silent_or_behind_is_missing_in_this_order(
    places: dict[int, tuple[int, str]], alive: set[int], left: list[int], said: dict[int, str]
) -> None:
    store = Ranks(places, alive)
    for r in left:
        store.set(f"left/{r}", "")
    error = explained(store)
    assert error.context == {"operation": "barrier", "missing": sorted(said)}
    names = "; ".join(f"rank {r}: {what}" for r, what in said.items())
    assert f"missing {names} (seen by rank 0: time is up)" in str(error)
    assert json.loads(store["beat/0"])[0] >= 0
    assert "heard/0" in store


@pytest.mark.usefixtures("soon")
def test_the_verdict_of_another_rank_is_taken_over_when_an_exchange_fails_and_at_the_next_beat() -> None:
    store = Ranks({1: HERE, 2: HERE}, {1, 2})
    store.set("verdict", json.dumps({"op": "all_gather", "rank": 1, "ranks": {"2": "its program ended"}, "reason": "closed"}))
    assert "all_gather needs every rank" in str(explained(store))
    del store["heard/0"]
    own = Heartbeat(lambda: store, rank=0, size=3, keeper=1, interval=0.001)
    while own.verdict() is None or "heard/0" not in store:
        assert own._thread.is_alive()
    own.close()
    assert "missing rank 2: its program ended (seen by rank 1: closed)" in str(own.verdict())


@pytest.mark.parametrize(
    ("keeper", "names"), [(2, "rank 2: its process is gone, and with it the group's store"), (None, "unknown")]
)
def test_without_the_store_its_keeper_is_missing(keeper: int | None, names: str) -> None:
    class Gone(InMemory):
        def multi_get(self, keys: list[str]) -> list[bytes]:
            raise RuntimeError("Connection reset\nby peer")

    error = explained(Gone(), keeper)
    assert f"missing {names}" in str(error)
    assert "(seen by rank 0: time is up; the store does not answer: Connection reset)" in str(error)
    assert error.context["missing"] == ([] if keeper is None else [keeper])


def test_the_keeper_of_the_store_stays_until_those_that_live_have_heard_the_verdict() -> None:
    asked: list[list[str]] = []

    class Listening(Ranks):
        def check(self, keys: list[str]) -> bool:
            if keys[0].startswith("heard"):
                asked.append(keys)
                if len(asked) == 3:
                    self.set("heard/1", "")
            return super().check(keys)

    for keeper in (0, 1):
        store = Listening({1: HERE, 2: HERE}, {1})
        store.set("left/2", "")
        asked.clear()
        explained(store, keeper)
        assert asked == ([] if keeper else [["heard/0", "heard/1"]] * 3)


def test_a_rank_that_was_held_up_itself_looks_again_before_it_says_that_others_are_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 100.0])  # it slept through all that it would have waited
    monkeypatch.setattr(heartbeats, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    error = explained(Ranks({1: LATE, 2: HERE}, {1, 2}))
    assert "missing rank 1: it lives, and is at all_reduce(sum), call 3 (" in str(error)


@pytest.mark.parametrize(("interval", "patience"), [(0.1, 2.0), (0.5, 2.0), (1.0, 4.0)])
def test_a_rank_is_given_up_after_four_beats_and_two_seconds(interval: float, patience: float) -> None:
    own = Heartbeat(InMemory, rank=1, size=2, keeper=0, interval=interval)
    assert own.patience == patience
    assert own.verdict() is None
    own.close()
