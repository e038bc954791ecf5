"""Ranks for tests: in threads of one process, and in processes that a fork server starts with torch imported already.

A body is a function of this module, or of another on the path, or a ``functools.partial`` of one. It is called as
``body(group, pipe)`` on each rank, and exchanges messages with the test through ``pipe``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import firebrick as fb
from firebrick import distributed
from firebrick.distributed import Group, LocalGroup, ProcessGroup

LAUNCH = (sys.executable, "-c", "from firebrick.cli.main import main; main(prog_name='firebrick')", "launch")
SECONDS = 60.0
Body = Callable[[Group, Connection], Any]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def in_threads(size: int, body: Callable[[ProcessGroup], Any], timeout: float = SECONDS) -> list[Any]:
    """What ``body(group)`` returns or raises on each rank of a gloo group, whose ranks are threads of this process."""
    master = f"127.0.0.1:{free_port()}"

    def rank(number: int) -> Any:
        group = ProcessGroup(rank=number, size=size, master=master, timeout=timeout)
        try:
            out = body(group)
            group.barrier()
        except Exception as e:  # noqa: BLE001 - a test looks at it
            out = e
        return group, out

    with ThreadPoolExecutor(size) as pool:
        ended = list(pool.map(rank, range(size)))
    for group, _ in reversed(ended):  # rank 0 keeps the store
        group.close()
    return [out for _, out in ended]


class Ranks:
    """Processes that form a gloo group and run a body; used as a context, at whose end none is left.

    Args:
        body: What each runs.
        size: Number of ranks.
        timeout: The group's.
        hosts: Network namespaces, one for each rank, with the address of the first.
        only: The ranks to start, if not all.
        patience: Seconds that the test waits for a message.
    """

    def __init__(
        self,
        body: Body,
        size: int,
        timeout: float = SECONDS,
        hosts: tuple[Sequence[str], str] | None = None,
        only: Sequence[int] | None = None,
        patience: float = SECONDS,
    ) -> None:
        self.patience = patience
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch.distributed", "firebrick.train", "firebrick.testing", "ranks"])
        address = "127.0.0.1" if hosts is None else hosts[1]
        variables = {"WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(free_port())}
        self.pipes: dict[int, Connection] = {}
        self.processes: dict[int, ForkServerProcess] = {}
        for rank in range(size) if only is None else only:
            self.pipes[rank], theirs = context.Pipe()
            own = {**variables, "RANK": str(rank), "FIREBRICK_NUM_THREADS": "1"}
            host = None if hosts is None else hosts[0][rank]
            self.processes[rank] = context.Process(target=_run, args=(body, own, timeout, host, theirs), daemon=True)
            self.processes[rank].start()
            theirs.close()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()

    def tell(self, message: Any) -> None:
        for pipe in self.pipes.values():
            pipe.send(message)

    def hear(self, rank: int) -> Any:
        """The next message of a rank, or what its body returned or raised."""
        assert self.pipes[rank].poll(self.patience), f"rank {rank} says nothing"
        return self.pipes[rank].recv()

    def results(self, *without: int) -> list[Any]:
        """What the body returned or raised on each rank, after its process has ended."""
        out = [self.hear(rank) for rank in self.processes if rank not in without]
        for rank, process in self.processes.items():
            if rank not in without:
                process.join(SECONDS)
                assert process.exitcode == 0
        return out


def spent() -> float:
    """Seconds of processor time of the fork server and of its ranks that ended; 0.0 where the system has no ``/proc``."""
    process = Path(f"/proc/{forkserver._forkserver._forkserver_pid}/stat")  # type: ignore[attr-defined]
    if not process.exists():
        return 0.0
    ticks = process.read_text().rpartition(")")[2].split()[11:15]  # its own and its children's, in user and system mode
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _run(body: Body, variables: dict[str, str], timeout: float, host: str | None, pipe: Connection) -> None:
    if host is not None:
        enter(host)
    os.environ.update(variables)
    fb.config.load_environment()
    try:
        group = distributed.init(timeout=timeout)
        out = body(group, pipe)
        distributed.shutdown()
    except Exception as e:  # noqa: BLE001 - a test looks at it
        out = e
    pipe.send(out)


def enter(namespace: str) -> None:
    """Move this process to another network namespace."""
    with open(f"/run/netns/{namespace}") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns", namespace)


# bodies


def sums(group: Group, pipe: Connection | None = None) -> bytes:
    """A weighted sum over the ranks, as bytes."""
    return group.all_reduce(_term(group.rank), weight=1 / (group.rank + 1)).numpy().tobytes()


def sums_of_devices(size: int) -> bytes:
    """The same over devices of this process."""
    group = LocalGroup([f"cpu:{r}" for r in range(size)])
    xs = [_term(r, str(d)) for r, d in enumerate(group.devices)]
    return group.reduce(xs, weights=[1 / (r + 1) for r in range(size)]).numpy().tobytes()


def _term(rank: int, device: str = "cpu") -> fb.Tensor:
    return fb.random.Generator(rank).normal((3000,), device=device)


def steps(group: Group, pipe: Connection) -> float:
    """Steps, of which the last one needs a rank that the test takes away; returns how long it took to know."""
    for _ in range(3):
        group.all_reduce(fb.ones(5000))
    pipe.send("in a step")
    if pipe.recv() == group.rank:
        pipe.recv()  # never comes
    began = time.monotonic()
    try:
        group.all_reduce(fb.ones(5000))
    except fb.CollectiveTimeoutError as e:
        e.context["seconds"] = time.monotonic() - began
        raise
    raise AssertionError("nobody was missing")
