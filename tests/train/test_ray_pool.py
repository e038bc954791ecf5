"""``RayPool`` and its seats over a Ray of four functions, since what Ray says of losses and places cannot be had at will."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from firebrick.train import TrainingError
from firebrick.train.cluster import ray_pool
from firebrick.train.cluster.supervisor import Lost


class Actor:
    """An agent's methods as Ray has them: each answers by a future, or raises at once."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *arguments: Any) -> Any:
        if isinstance(self._answer, BaseException) and arguments:
            raise self._answer
        return self

    def future(self) -> Future[Any]:
        out: Future[Any] = Future()
        out.set_exception(self._answer) if isinstance(self._answer, BaseException) else out.set_result(self._answer)
        return out


class RayError(Exception): ...


class RayTaskError(RayError):
    cause = KeyError("its own")


class ActorDiedError(RayError):
    actor_init_failed = False


DIED = "The actor died.\n\tclass_name: Agent\n\nIts node\n  is dead."


@pytest.mark.parametrize("at_once", [False, True])
def test_what_ray_says_of_an_agent_is_its_own_error_or_that_it_is_lost(monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    kinds = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, ActorDiedError=ActorDiedError)
    monkeypatch.setitem(sys.modules, "ray.exceptions", kinds)
    own, failed = ValueError("of neither"), ActorDiedError(DIED)
    failed.actor_init_failed = True
    for answer, kind, text, died in (
        (RayTaskError(DIED), KeyError, "'its own'", False),
        (own, ValueError, "of neither", False),
        (RayError(DIED), Lost, "Its node   is dead.", False),
        (ActorDiedError(DIED), Lost, "Its node   is dead.", True),
        (failed, Lost, "  is dead.", True),
        (RayError("one\n" + "x" * 400), Lost, "x" * 300, False),
    ):
        seat = ray_pool.RaySeat("a (node 1)", "a", "1", Actor(answer), None)
        found = seat.call("place", *([1] if at_once else [])).exception(0)
        assert (type(found), str(found), seat.died) == (kind, text, died)
    assert ray_pool.RaySeat("a", "a", "1", Actor(7), None).call("place").result(0) == 7


def test_where_nobody_listens_is_found_before_ray_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ray_pool._knock(f"127.0.0.1:{port}")
    for address in (f"127.0.0.1:{port}", f"[127.0.0.1]:{port}"):
        with pytest.raises(OSError, match="refused"):
            ray_pool._knock(address)
    with pytest.raises(ValueError, match="ray job submit"):
        ray_pool._knock("ray://127.0.0.1:10001")
    for address in ("", "auto", f"http://127.0.0.1:{port}"):
        ray_pool._knock(address)  # which Ray itself knows


NODES: list[dict[str, Any]] = [
    {"NodeID": "0123456789", "NodeManagerAddress": "10.0.0.2", "Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}},
    {"NodeID": "abcdefghij", "NodeManagerAddress": "10.0.0.1", "Alive": True, "Resources": {"CPU": 4.0}},
    {"NodeID": "gone", "NodeManagerAddress": "10.0.0.3", "Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
]


class Ray:
    """As much of Ray as a pool asks for, of a cluster of two nodes and one that is gone."""

    def __init__(self, joined: bool, ready: bool = True) -> None:
        self.calls: list[Any] = []
        self.joined, self.ready = joined, ready

    def modules(self) -> dict[str, Any]:
        state = SimpleNamespace(
            available_resources_per_node=lambda: {"0123456789": {"CPU": 5.0, "GPU": 1.0}, "gone": {"CPU": 9.0}}
        )
        groups = SimpleNamespace(
            placement_group=lambda bundles, strategy: self.calls.append((bundles, strategy)) or self,
            remove_placement_group=lambda group: self.calls.append("removed"),
            placement_group_table=lambda group: {"bundles_to_node_id": {0: "0123456789", 1: "abcdefghij", 2: "0123456789"}},
        )
        strategies = SimpleNamespace(
            PlacementGroupSchedulingStrategy=lambda group, placement_group_bundle_index: placement_group_bundle_index
        )
        return {
            "ray": self,
            "ray.util.placement_group": groups,
            "ray.util.scheduling_strategies": strategies,
            "ray._private.state": state,
        }

    def is_initialized(self) -> bool:
        return self.joined

    def init(self, address: str | None) -> None:
        self.calls.append(address)

    def shutdown(self) -> None:
        self.calls.append("shut down")

    def nodes(self) -> list[dict[str, Any]]:
        return NODES

    def wait(self, seconds: float) -> bool:
        self.calls.append(seconds)
        return self.ready

    def remote(self, kind: Any = None) -> Any:
        return self if kind is None else SimpleNamespace(options=lambda **options: self.calls.append(options) or self)

    def kill(self, actor: Any) -> None:
        self.calls.append("killed")


def pool_of(ray: Ray, monkeypatch: pytest.MonkeyPatch, **options: Any) -> ray_pool.RayPool:
    for name, module in ray.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    how: dict[str, Any] = {"address": None, "cpus": 2.0, "gpus": 0, "resources": {}, "placing": "SPREAD", **options}
    return ray_pool.RayPool(**how)


def test_a_pool_counts_what_is_free_on_nodes_that_live(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(Ray(joined=True), monkeypatch)
    assert (pool.room(), pool.needs()) == (2, "2 CPU")
    assert pool.describe() == (
        "2 nodes; 10.0.0.2 (node 01234567) has 8 CPU, of which 5 CPU free; "
        "10.0.0.1 (node abcdefgh) has 4 CPU, of which 0 CPU free"
    )
    pool = pool_of(Ray(joined=True), monkeypatch, gpus=1)
    assert (pool.room(), pool.needs()) == (1, "2 CPU and 1 GPU")
    assert "10.0.0.1 (node abcdefgh) has 4 CPU and 0 GPU, of which 0 CPU and 0 GPU free" in pool.describe()
    assert pool_of(Ray(joined=True), monkeypatch, resources={"tpu": 0.5}).room() == 0


def test_seats_are_in_the_order_of_addresses_and_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(joined=True)
    pool = pool_of(ray, monkeypatch, resources={"disk": 1.0})
    seats: Any = pool.place(3, 5.0)
    assert ray.calls[:2] == [([{"CPU": 2.0, "disk": 1.0}] * 3, "SPREAD"), 5.0]
    assert [(s.node, s.address, s.host) for s in seats] == [
        ("10.0.0.1 (node abcdefgh)", "10.0.0.1", "abcdefghij"),
        *[("10.0.0.2 (node 01234567)", "10.0.0.2", "0123456789")] * 2,
    ]
    own = {"num_cpus": 2.0, "num_gpus": 0, "resources": {"disk": 1.0}, "max_concurrency": 4, "max_restarts": 0}
    assert ray.calls[2:] == [{**own, "scheduling_strategy": bundle} for bundle in (1, 0, 2)]
    pool.release(seats)
    assert ray.calls[5:] == ["killed"] * 3 + ["removed"]
    late = Ray(joined=True, ready=False)
    assert pool_of(late, monkeypatch).place(1, 0.5) is None
    assert late.calls[1:] == [0.5, "removed"]


def test_the_fate_of_a_seat_is_told_by_its_node_and_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(Ray(joined=True), monkeypatch)
    monkeypatch.setattr(ray_pool, "UNCERTAIN", 0.0)

    def seat(host: str, died: bool = False) -> Any:
        return ray_pool.RaySeat("a", "a", host, None, None, died)

    assert pool.fate(seat("gone")) == "its node is gone"
    assert pool.fate(seat("0123456789", died=True)) == "its process is gone, and its node lives"
    assert pool.fate(seat("0123456789")) == "it does not answer for 0 s, and its node lives"


def test_a_pool_leaves_the_cluster_only_if_it_joined_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(joined=True)
    pool_of(ray, monkeypatch).close()
    assert ray.calls == []
    ray = Ray(joined=False)
    pool_of(ray, monkeypatch).close()
    assert ray.calls == [None, "shut down"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(TrainingError, match=rf"{address}: .*refused\.\n"):
        pool_of(Ray(joined=False), monkeypatch, address=address)
    absent = Ray(joined=False)

    def init(address: str | None) -> None:
        raise ValueError("no node.\nand more")

    monkeypatch.setattr(absent, "init", init)
    with pytest.raises(TrainingError, match="Received: no address: no node\\.\n"):
        pool_of(absent, monkeypatch)


def test_a_node_of_ray_that_does_not_start_in_time_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Ray(joined=False)

    def init(address: str | None) -> None:
        raise Exception("The current node timed out during startup. This could happen …")  # as Ray does

    monkeypatch.setattr(slow, "init", init)
    with pytest.raises(TrainingError, match="timed out during startup") as caught:
        pool_of(slow, monkeypatch)
    assert "RAY_raylet_start_wait_time_s" in caught.value.remedy


def test_a_function_that_ray_cannot_send_names_the_variable_that_is_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    paths, stream = ["data"], open(os.devnull)  # noqa: SIM115 - a closure holds it

    def function() -> Any:
        return paths, stream

    with stream:
        assert ray_pool._culprit(function, pickle.dumps) == "'stream', a TextIOWrapper"
        assert ray_pool._culprit(partial(function), pickle.dumps) == "something"
        assert ray_pool._culprit(function, lambda value: b"") == "something"
