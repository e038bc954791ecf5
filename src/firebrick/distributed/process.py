"""``ProcessGroup``: ranks in processes and on hosts, over torch.distributed: gloo, and NCCL between CUDA devices.

They find each other by the variables that ``firebrick launch`` and ``torchrun`` set: RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT. Rank 0's process keeps the store through which they meet, unless torchrun's agent does.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

import numpy as np

from firebrick.core.config import config
from firebrick.core.errors import CollectiveTimeoutError, ConfigError, UnsupportedError
from firebrick.distributed.group import Group, missing
from firebrick.distributed.heartbeat import Heartbeat
from firebrick.distributed.wire import COLLECTIVE, Message, Wire, WireError


def torch_distributed() -> Any:
    """The module ``torch.distributed``.

    Raises:
        UnsupportedError: torch is not installed, or was built without it.
    """
    try:
        found = import_module("torch.distributed")
    except ImportError:
        raise UnsupportedError("process groups need PyTorch", "no module torch", "pip install 'firebrick[torch]'") from None
    if not found.is_available():
        raise UnsupportedError("process groups need torch.distributed", "a PyTorch built without it", "install another build")
    return found


def environment(name: str) -> str:
    """A variable of the launcher.

    Raises:
        ConfigError: It is not set.
    """
    if name not in os.environ:
        raise ConfigError(
            "a process group reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the environment",
            f"no {name}",
            "start the program with: firebrick launch -n 2 script.py, or torchrun",
        )
    return os.environ[name]


class ProcessGroup(Group):
    """A group of processes, on one host or several.

    Data go through host memory by gloo, whatever the tensors' devices. With ``backend="nccl"``, operations on tensors that all
    lie on CUDA devices go from GPU to GPU.

    Args:
        backend: ``gloo`` or ``nccl``.
        rank: This process's place; RANK if None.
        size: Number of processes; WORLD_SIZE if None.
        master: ``host:port`` of the store; MASTER_ADDR and MASTER_PORT if None.
        timeout: Seconds that an operation, and the meeting itself, may take; ``config.distributed_timeout`` if None.

    Raises:
        ConfigError: A variable is missing, or a number is impossible.
        CollectiveTimeoutError: Not all ranks came; the message names them.
        UnsupportedError: torch is missing, or has no NCCL.

    Example:
        >>> import firebrick as fb, socket
        >>> from firebrick.distributed import ProcessGroup
        >>> with socket.create_server(("127.0.0.1", 0)) as s:
        ...     port = s.getsockname()[1]
        >>> with ProcessGroup(rank=0, size=1, master=f"127.0.0.1:{port}") as group:  # one of one, to show the call
        ...     group.all_reduce(fb.ones(2)).tolist()
        [1.0, 1.0]
    """

    def __init__(
        self,
        backend: str = "gloo",
        *,
        rank: int | None = None,
        size: int | None = None,
        master: str | None = None,
        timeout: float | None = None,
    ) -> None:
        if backend not in ("gloo", "nccl"):
            raise ConfigError("ProcessGroup: backend is gloo or nccl", repr(backend), "choose one; MPIGroup is for MPI")
        seconds = config.distributed_timeout if timeout is None else float(timeout)
        rank = int(environment("RANK")) if rank is None else rank
        size = int(environment("WORLD_SIZE")) if size is None else size
        if not 0 <= rank < size:
            raise ConfigError(
                "a rank is a number from 0 to the number of ranks less 1", f"rank {rank} of {size}", "number them so"
            )
        host, port = _master(master)
        torch_distributed()
        meeting = Meeting(host, port, rank, size, seconds)
        wire = GlooWire(meeting)
        gpu_wire = None
        if backend == "nccl":
            gpu_wire = import_module("firebrick.distributed.nccl").NcclWire(meeting)
        keeper = None if meeting.elsewhere else 0
        watch = Heartbeat(meeting.connect, rank, size, keeper=keeper, interval=min(1.0, seconds / 10))
        super().__init__(wire, timeout=seconds, watch=watch, gpu_wire=gpu_wire)
        self._meeting = meeting
        _open.add(self)


_open: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Say to the others that this process ends, where the program did not."""
    for group in list(_open):
        group.timeout = 0.1  # what still runs is not waited for
        group.close()


def _master(text: str | None) -> tuple[str, int]:
    """Host and port of the store."""
    if text is None:
        text = f"{environment('MASTER_ADDR')}:{environment('MASTER_PORT')}"
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError("the store's address is host:port", repr(text), "for example 10.0.0.1:29500")
    return host.strip("[]"), int(port)


class Meeting:
    """Where the ranks of a group find each other: a store, on which each one signs in.

    Args:
        host: Where the store is.
        port: Its port.
        rank: This rank.
        size: How many are to come.
        seconds: How long to wait for them.

    Raises:
        CollectiveTimeoutError: Not all came; the message names those who did not.
    """

    def __init__(self, host: str, port: int, rank: int, size: int, seconds: float) -> None:
        self.host, self.port, self.rank, self.size, self.seconds = host, port, rank, size, seconds
        self.elsewhere = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        self._names = f"firebrick/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._open(keeps=rank == 0 and not self.elsewhere)
        self._roll_call()

    def _open(self, *, keeps: bool) -> None:
        dist = torch_distributed()
        ends = time.monotonic() + self.seconds
        try:
            self._store = dist.TCPStore(
                self.host, self.port, None, keeps, timedelta(seconds=self.seconds), wait_for_workers=False, multi_tenant=True
            )
        except RuntimeError as e:
            if keeps and time.monotonic() < ends:
                raise ConfigError(
                    f"rank 0 keeps the group's store at {self.host}:{self.port}",
                    str(e).partition("\n")[0][:200],
                    "choose a free port, and an address of rank 0's host",
                ) from e
            raise self._no_store() from e

    def connect(self) -> Any:
        """Another connection to the store, for the use of one thread, which waits a moment only."""
        dist, patient = torch_distributed(), timedelta(seconds=self.seconds)
        try:
            store = dist.TCPStore(self.host, self.port, None, False, patient, wait_for_workers=False)
        except RuntimeError as e:
            raise self._no_store() from e
        store.set_timeout(timedelta(seconds=max(1.0, min(10.0, self.seconds))))
        return dist.PrefixStore(self._names, store)

    def _no_store(self) -> CollectiveTimeoutError:
        reason = f"no store at {self.host}:{self.port} within {self.seconds:g} s"
        return missing("init", self.rank, {0: "it keeps the store; it did not start, or the address is wrong"}, reason)

    def store(self, name: str) -> Any:
        """The store, under a name of its own."""
        return torch_distributed().PrefixStore(f"{self._names}/{name}", self._store)

    def _roll_call(self) -> None:
        """Wait until all ranks have signed in."""
        store, ends = self.store("here"), time.monotonic() + self.seconds
        store.set(str(self.rank), "")
        wanted = [str(r) for r in range(self.size)]
        try:
            store.wait(wanted, timedelta(seconds=self.seconds))
        except RuntimeError as e:
            absent = {r: "it did not start" for r in range(self.size) if not store.check([str(r)])}
            raise missing("init", self.rank, absent, f"not all came within {self.seconds:g} s") from e
        self.remaining = max(1.0, ends - time.monotonic())

    def own_address(self) -> str:
        """This host's address on the way to the store, which the other hosts can reach as well."""
        family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            own: str = probe.getsockname()[0]
        return own


class GlooWire(Wire):
    """Host memory over TCP, by torch's gloo; each pair of ranks has a connection.

    The interface is that on the way to the store; GLOO_SOCKET_IFNAME names another.
    """

    def __init__(self, meeting: Meeting) -> None:
        dist, self._torch = torch_distributed(), import_module("torch")
        self.rank, self.size = meeting.rank, meeting.size
        options = dist.ProcessGroupGloo._Options()
        name = os.environ.get("GLOO_SOCKET_IFNAME")
        kind = dist.ProcessGroupGloo
        options._devices = [kind.create_device(interface=name) if name else kind.create_device(hostname=meeting.own_address())]
        options._timeout = timedelta(seconds=meeting.remaining)
        try:
            self._pairs = kind(meeting.store("gloo"), self.rank, self.size, options)
        except RuntimeError as e:
            raise CollectiveTimeoutError(
                "ranks connect to each other over TCP",
                str(e).partition("\n")[0][:300],
                "open the ports between the hosts, or name their common network interface in GLOO_SOCKET_IFNAME",
            ) from e

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], deadline: float, tag: int = COLLECTIVE) -> None:
        """See ``Wire``."""
        peer = None
        try:
            begun = []
            for peer, buffer in receives:
                begun.append((peer, self._pairs.recv([self._bytes(buffer)], peer, tag)))
            for peer, buffer in sends:
                begun.append((peer, self._pairs.send([self._bytes(buffer)], peer, tag)))
            for peer, work in begun:  # noqa: B007 - the error below names the one that failed
                work.wait(timedelta(seconds=max(0.001, deadline - time.monotonic())))
        except RuntimeError as e:
            reason = str(e).partition("\n")[0].rpartition("] ")[2].partition(". This is typically")[0]
            raise WireError(reason or str(e), () if peer is None else (peer,)) from None

    def _bytes(self, buffer: Any) -> Any:
        return self._torch.from_numpy(buffer.view(np.uint8))

    def close(self) -> None:
        """Let go of the connections."""
        self._pairs = None
