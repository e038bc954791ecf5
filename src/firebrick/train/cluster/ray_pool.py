"""``RayPool``: seats for workers on the nodes of a Ray cluster.

Each attempt is a placement group with a bundle for each worker, and an actor in each bundle: the agent, which takes the
bundle's CPUs and GPUs. Ray is imported when a pool is made.
"""

from __future__ import annotations

import inspect
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from firebrick.core.errors import UnsupportedError
from firebrick.train.cluster.supervisor import Lost, Seat
from firebrick.train.cluster.worker import Agent
from firebrick.train.errors import TrainingError

KNOCK = 10.0
"""Seconds until a cluster must answer."""
UNCERTAIN = 30.0
"""Seconds within which Ray finds out, by heartbeats that are missing, that a node is gone."""
CALLS = 4
"""Calls that an agent serves at once."""


@dataclass
class RaySeat:
    """A bundle of a placement group, and the agent in it.

    Attributes:
        node: Address and id of the node.
        address: Its address.
        host: Its id.
        actor: The agent.
        group: The placement group.
        died: Whether Ray knows that the agent's process is gone.
    """

    node: str
    address: str
    host: str
    actor: Any
    group: Any
    died: bool = False

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """See ``Seat``."""
        out: Future[Any] = Future()
        try:
            answer = getattr(self.actor, method).remote(*arguments)
        except Exception as e:  # noqa: BLE001 - it is told apart
            out.set_exception(self._told(e))
        else:
            answer.future().add_done_callback(partial(self._hand_on, out))
        return out

    def _hand_on(self, out: Future[Any], answer: Future[Any]) -> None:
        error = answer.exception()
        if error is None:
            out.set_result(answer.result())
        else:
            out.set_exception(self._told(error))

    def _told(self, error: BaseException) -> BaseException:
        """An agent's own error, or ``Lost``."""
        kinds = import_module("ray.exceptions")
        if isinstance(error, kinds.RayTaskError):
            own: BaseException = error.cause
            return own
        if not isinstance(error, kinds.RayError):
            return error
        self.died = self.died or isinstance(error, kinds.ActorDiedError)
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
        known = lines[-1:] if getattr(error, "actor_init_failed", False) else lines[1:]
        return Lost(" ".join(known)[:300])


class RayPool:
    """Seats on the nodes of a Ray cluster.

    Args:
        address: Of the cluster; the one of this process, of RAY_ADDRESS or of this host if None, else one is started here.
        cpus: CPUs of a worker.
        gpus: GPUs of a worker.
        resources: Further resources of a worker, by name.
        placing: How Ray distributes bundles: "SPREAD" or "PACK".

    Raises:
        UnsupportedError: Ray is not installed.
        TrainingError: No cluster answers at the address.
    """

    pickler = "ray.cloudpickle"

    def __init__(self, address: str | None, cpus: float, gpus: int, resources: Mapping[str, float], placing: str) -> None:
        try:
            self._ray = import_module("ray")
        except ImportError:
            raise UnsupportedError("a Cluster needs Ray", "no module ray", "pip install 'firebrick[ray]'") from None
        self._groups = import_module("ray.util.placement_group")
        self._placed = import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
        self._state = import_module("ray._private.state")
        self._cpus, self._gpus, self._resources, self._placing = cpus, gpus, dict(resources), placing
        self._bundle = {k: v for k, v in {"CPU": cpus, "GPU": gpus, **resources}.items() if v}
        self._joined = not self._ray.is_initialized()
        if self._joined:
            where = address or os.environ.get("RAY_ADDRESS", "")
            try:
                _knock(where)
                self._ray.init(address=address)
            except Exception as e:  # Ray raises Exception itself where a node's processes do not start in time
                raise TrainingError(
                    "a Ray cluster answers at its address, and this program runs on one of its nodes",
                    f"{where or 'no address'}: {str(e).partition(chr(10))[0].rstrip('.')}",
                    "start one with `ray start --head`, and join further nodes with `ray start --address=HOST:6379`; where its "
                    "processes do not start in time, end what is left of them with `ray stop`, and set "
                    "RAY_raylet_start_wait_time_s=120",
                ) from e

    def close(self) -> None:
        """Leave the cluster, if this made the connection."""
        if self._joined:
            self._ray.shutdown()

    def pickled(self, function: Callable[..., Any]) -> bytes:
        """A training function as bytes.

        Raises:
            TrainingError: It refers to something that cannot be sent.
        """
        pickle = import_module("ray.cloudpickle")
        try:
            out: bytes = pickle.dumps(function)
        except Exception as e:  # whatever an object's own pickling raises
            raise TrainingError(
                "the training function is sent to the workers, with all that it refers to",
                f"{getattr(function, '__qualname__', function)}, which refers to {_culprit(function, pickle.dumps)}: {e}",
                "open files, make locks, models and loaders inside the function, and give it paths and numbers",
            ) from e
        return out

    # as a ``Pool``

    def room(self) -> int:
        """See ``Pool``."""
        free = self._state.available_resources_per_node()
        return sum(self._fits(free.get(n["NodeID"], {})) for n in self._nodes())

    def place(self, count: int, seconds: float) -> list[Seat] | None:
        """See ``Pool``."""
        group = self._groups.placement_group([self._bundle] * count, strategy=self._placing)
        ready = False
        try:
            ready = group.wait(seconds)
        finally:
            if not ready:
                self._groups.remove_placement_group(group)
        if not ready:
            return None
        addresses = {n["NodeID"]: n["NodeManagerAddress"] for n in self._ray.nodes()}
        where = self._groups.placement_group_table(group)["bundles_to_node_id"]
        kind = self._ray.remote(Agent)
        seats: list[Seat] = []
        for bundle, host in sorted(where.items(), key=lambda item: (addresses[item[1]], item[1], item[0])):
            actor = kind.options(
                num_cpus=self._cpus,
                num_gpus=self._gpus,
                resources=self._resources,
                max_concurrency=CALLS,
                max_restarts=0,
                scheduling_strategy=self._placed(group, placement_group_bundle_index=bundle),
            ).remote()
            seats.append(RaySeat(_named(host, addresses[host]), addresses[host], host, actor, group))
        return seats

    def release(self, seats: Sequence[Any]) -> None:
        """See ``Pool``."""
        for seat in seats:
            self._ray.kill(seat.actor)
        self._groups.remove_placement_group(seats[0].group)

    def fate(self, seat: Any) -> str:
        """See ``Pool``."""
        ends = time.monotonic() + UNCERTAIN
        while any(n["NodeID"] == seat.host for n in self._nodes()):
            if seat.died:
                return "its process is gone, and its node lives"
            if time.monotonic() >= ends:
                return f"it does not answer for {UNCERTAIN:g} s, and its node lives"
            time.sleep(0.2)
        return "its node is gone"

    def needs(self) -> str:
        """See ``Pool``."""
        return _amounts(self._bundle)

    def describe(self) -> str:
        """See ``Pool``."""
        free = self._state.available_resources_per_node()
        nodes = self._nodes()
        said = []
        for n in nodes:
            there = {k: n["Resources"].get(k, 0.0) for k in self._bundle}
            left = {k: free.get(n["NodeID"], {}).get(k, 0.0) for k in self._bundle}
            said.append(f"{_named(n['NodeID'], n['NodeManagerAddress'])} has {_amounts(there)}, of which {_amounts(left)} free")
        return f"{len(nodes)} nodes; " + "; ".join(said)

    def _nodes(self) -> list[dict[str, Any]]:
        return [n for n in self._ray.nodes() if n["Alive"]]

    def _fits(self, free: Mapping[str, float]) -> int:
        """Workers that fit on one node."""
        return int(min(math.floor(free.get(k, 0.0) / v + 1e-6) for k, v in self._bundle.items()))


def _knock(address: str) -> None:
    """Fail soon where nobody listens; Ray itself would wait for minutes."""
    if address.startswith("ray://"):
        raise ValueError("Ray Client does not do; send the program to the cluster with `ray job submit`")
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()


def _named(host: str, address: str) -> str:
    return f"{address} (node {host[:8]})"


def _amounts(resources: Mapping[str, float]) -> str:
    """Resources in words."""
    return " and ".join(f"{v:g} {k}" for k, v in resources.items())


def _culprit(function: Callable[..., Any], dumps: Callable[[Any], bytes]) -> str:
    """The name of what a function refers to that cannot be pickled."""
    try:
        variables = inspect.getclosurevars(function)
    except TypeError:  # no function but something else that can be called
        return "something"
    for name, value in {**variables.globals, **variables.nonlocals}.items():
        try:
            dumps(value)
        except Exception:  # noqa: BLE001 - that is the one
            return f"{name!r}, a {type(value).__name__}"
    return "something"
