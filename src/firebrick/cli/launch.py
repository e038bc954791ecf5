"""``firebrick launch``: one program in N processes that form a group, and what became of each.

The processes get the variables that ``torchrun`` sets, so a program does not see which of the two started it. Each is the
leader of a session of its own: signals reach it through this command, once, with everything that it started.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

import click

from firebrick.cli.messages import say_error
from firebrick.cli.reporting import reported
from firebrick.core.errors import UnsupportedError

LAST_LINES = 12
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MACHINE_CODE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # of Linux and macOS


@dataclass
class Rank:
    """One process of the group.

    Attributes:
        number: Its rank.
        process: The process.
        last: The last lines it wrote.
        readers: The threads that read its output.
    """

    number: int
    process: subprocess.Popen[str]
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    readers: list[threading.Thread] = field(default_factory=list)

    def signal(self, number: int) -> None:
        """Send a signal to it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "--processes", type=click.IntRange(1), help="Processes on this host.  [default: one for each core]")
@click.option(
    "--backend", type=click.Choice(["gloo", "nccl", "mpi"]), default="gloo", show_default=True, help="What they talk through."
)
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Hosts; run this command on each of them.")
@click.option(
    "--node-rank", type=click.IntRange(0), default=0, show_default=True, help="Which of the hosts this one is, from 0."
)
@click.option(
    "--master", metavar="HOST:PORT", help="Where rank 0 listens, an address of host 0.  [default: a free port of this host]"
)
@click.option(
    "--grace", type=click.FloatRange(0), default=10.0, show_default=True, help="Seconds that others get after one failed."
)
@click.option("-m", "as_module", is_flag=True, help="The program is a module, as with python -m.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
@reported
def launch(
    ctx: click.Context, processes: int | None, backend: str, nodes: int, node_rank: int, master: str | None, grace: float,
    as_module: bool, program: str, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run PROGRAM in several processes that form a group (firebrick.distributed.init()).

    PROGRAM is a Python file (launch -n 2 train.py --epochs 3), a module (launch -n 2 -m package.train), a command of Firebrick
    (launch -n 2 firebrick train digits), or python with its own arguments (launch -n 2 -- python -c "…").

    Over several hosts, run it on each with the same --nodes and --master, and its own --node-rank. If one process fails, the
    others get --grace seconds to end by themselves; then they are ended. The exit code is that of the one that failed first.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = processes or cores
    if node_rank >= nodes:
        raise click.BadParameter(f"{node_rank} is not below --nodes {nodes}", ctx=ctx, param_hint="--node-rank")
    if nodes > 1 and master is None and backend != "mpi":
        raise click.BadParameter("several hosts need one: an address of host 0 and a free port", ctx=ctx, param_hint="--master")
    command = _command(program, arguments, as_module)
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", "FIREBRICK_DISTRIBUTED_BACKEND": backend}
    threads = str(max(1, cores // count))
    for name in ("FIREBRICK_NUM_THREADS", "OMP_NUM_THREADS"):
        variables.setdefault(name, variables.get("FIREBRICK_NUM_THREADS", threads))
    if backend == "mpi":  # which knows its hosts by itself; as a module, mpi4py ends all ranks if one raises
        command[1:1] = ["-m", "mpi4py"]
        ctx.exit(_watch([_start(0, [_mpiexec(), "-n", str(count * nodes), *command], variables)], grace, prefix=False))
    host, port = _address(master)
    ranks = []
    for local in range(count):
        number = node_rank * count + local
        own = {
            "RANK": number, "WORLD_SIZE": count * nodes, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": count,
            "GROUP_RANK": node_rank, "MASTER_ADDR": host, "MASTER_PORT": port,
        }  # fmt: skip
        ranks.append(_start(number, command, variables | {k: str(v) for k, v in own.items()}))
    ctx.exit(_watch(ranks, grace, prefix=True))


def _command(program: str, arguments: Sequence[str], as_module: bool) -> list[str]:
    """The command line of one process."""
    if as_module:
        return [sys.executable, "-m", program, *arguments]
    if program == "firebrick":
        return [sys.executable, "-c", "from firebrick.cli.main import main; main(prog_name='firebrick')", *arguments]
    if program in ("python", "python3") or _is_this_interpreter(program):
        return [sys.executable, *arguments]
    if not Path(program).is_file():
        raise click.BadParameter(
            f"{program} is no file; use -m for a module, python for its own arguments, firebrick for a command of Firebrick",
            param_hint="PROGRAM",
        )
    if _is_executable(program):
        raise click.BadParameter(
            f"{program} is no Python file; write python for this interpreter, or start another one in a Python file",
            param_hint="PROGRAM",
        )
    return [sys.executable, program, *arguments]


def _is_this_interpreter(program: str) -> bool:
    """Whether a path, or its link, is that of the interpreter that runs this command, or of another name of it."""
    here, given = Path(sys.executable), Path(os.path.abspath(program))
    return given.parent == here.parent and given.exists() and given.samefile(here)


def _is_executable(program: str) -> bool:
    """Whether a file is machine code, which no Python can read; archives and compiled Python it can."""
    with open(program, "rb") as file:
        return file.read(4) in _MACHINE_CODE


def _mpiexec() -> str:
    """The MPI launcher of this environment, else the system's."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise UnsupportedError(
            "--backend mpi needs an MPI library and its mpiexec",
            "none on PATH",
            "pip install 'firebrick[mpi]' mpich, or load your cluster's MPI",
        )
    return found


def _address(master: str | None) -> tuple[str, int]:
    """Where rank 0 listens."""
    if master is None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            return "127.0.0.1", int(probe.getsockname()[1])
    host, _, port = master.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(f"{master!r} is not HOST:PORT", param_hint="--master")
    return host, int(port)


def _start(number: int, command: Sequence[str], variables: Mapping[str, str]) -> Rank:
    """Start a process."""
    process = subprocess.Popen(
        command, env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", bufsize=1,
        start_new_session=True,
    )  # fmt: skip
    return Rank(number, process)


def _watch(ranks: list[Rank], grace: float, *, prefix: bool) -> int:
    """Pass output and signals on until all have ended; returns the exit code of the first that failed, or 0."""
    ended: SimpleQueue[Rank | int] = SimpleQueue()
    writing = threading.Lock()
    before = {s: signal.signal(s, lambda number, frame: ended.put(number)) for s in _SIGNALS}
    for rank in ranks:
        mark = f"[rank {rank.number}] " if prefix else ""
        for source, goal in ((rank.process.stdout, sys.stdout), (rank.process.stderr, sys.stderr)):
            assert source is not None
            reader = threading.Thread(target=_pass_on, args=(source, goal, mark, rank.last, writing, ended), daemon=True)
            reader.start()
            rank.readers.append(reader)
        threading.Thread(target=_wait, args=(rank, ended), daemon=True).start()
    try:
        return _until_all_end(ranks, ended, grace)
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _until_all_end(ranks: list[Rank], ended: SimpleQueue[Rank | int], grace: float) -> int:
    living, failed, asked = {r.number: r for r in ranks}, None, False
    deadline, escalation = float("inf"), [signal.SIGTERM, signal.SIGKILL]
    while living:
        try:
            event = ended.get(timeout=None if deadline == float("inf") else max(0.0, deadline - time.monotonic()))
        except Empty:
            number = escalation.pop(0) if len(escalation) > 1 else escalation[0]
            for rank in living.values():
                rank.signal(number)
            deadline = time.monotonic() + max(1.0, grace)
            continue
        if isinstance(event, int):
            asked, deadline = True, float("inf")  # they may take their time, to save what they have
            for rank in living.values():
                rank.signal(event)
            continue
        del living[event.number]
        if event.process.returncode and failed is None:
            failed = event
            if living and not asked:
                deadline = time.monotonic() + grace
                numbers = ", ".join(map(str, sorted(living)))
                click.echo(f"rank {event.number} {_status(event)}; ranks {numbers} get {grace:g} s to end", err=True)
    for rank in ranks:
        for reader in rank.readers:
            reader.join(timeout=1.0)  # something that a rank started may hold its output open for ever
    if failed is None:
        return 0
    code = failed.process.returncode
    if asked:
        return 128 - code if code < 0 else code
    shown = "".join(f"\n  {line}" for line in failed.last)
    say_error(f"rank {failed.number} {_status(failed)}{'; its last lines:' if shown else ', without a word'}{shown}")
    return 128 - code if code < 0 else code


def _wait(rank: Rank, ended: SimpleQueue[Rank | int]) -> None:
    rank.process.wait()
    ended.put(rank)


def _status(rank: Rank) -> str:
    """How a process ended, in words."""
    code = rank.process.returncode
    if code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


def _pass_on(
    source: IO[str], goal: Any, mark: str, last: deque[str], writing: threading.Lock, ended: SimpleQueue[Rank | int]
) -> None:
    """Copy lines, whole, each behind the mark of its rank; if nobody reads them any more, the run ends."""
    with source:
        for line in source:
            last.append(line.rstrip("\n"))
            try:
                with writing:
                    goal.write(f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n")
                    goal.flush()
            except BrokenPipeError:
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), goal.fileno())
                ended.put(signal.SIGTERM)
