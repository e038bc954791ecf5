"""A worker of a cluster: what a training function is told, the process it runs in, and the agent that starts and watches it.

The function runs in a process of its own, the leader of a session, so that it is the program that ``firebrick launch`` or
``torchrun`` would start: with their variables, its own signals, and an exit status that says how it ended. Its standard input
is a line to the agent: when the agent goes, with its node or without, the process ends, and all that it started.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from firebrick.core.errors import CollectiveTimeoutError, DeviceLostError
from firebrick.core.version import __version__
from firebrick.train.cluster import shared
from firebrick.train.cluster.shared import Standing
from firebrick.train.errors import TrainingError, TrainingInterrupted

MAIN = "from firebrick.train.cluster.worker import main; main()"
FAULTS_OF_THE_MACHINE = (CollectiveTimeoutError, DeviceLostError)
"""Errors after which the same program may well go on, on other machines or on these."""


@dataclass(frozen=True)
class Worker:
    """Where a training function runs: its rank, node and run directory.

    Attributes:
        rank: This worker's rank, from 0.
        size: Number of workers, which may differ from attempt to attempt.
        node: Name of its node in messages.
        out: The run directory, the same for all workers.
        attempt: How often the workers were started before.
        resumes: Whether the run directory holds a checkpoint to go on from.
    """

    rank: int
    size: int
    node: str
    out: Path
    attempt: int
    resumes: bool


@dataclass(frozen=True)
class Job:
    """What a worker's process runs.

    Attributes:
        function: The training function, pickled.
        worker: What it is called with.
        variables: Of the environment, beside those of the agent.
        pickler: The module whose ``dumps`` packs the result.
    """

    function: bytes
    worker: Worker
    variables: Mapping[str, str]
    pickler: str


@dataclass(frozen=True)
class Ending:
    """How a worker's process ended.

    Attributes:
        how: "cut off" by an error that is no fault of the function; "died" without a word; "lost" with its agent; "stopped"
            and saved, as asked.
        text: What is to say about it, in a line.
        trace: The traceback of an error.
        value: Pickled: the result, the exception, or checkpoint, epoch and step of a stop.
    """

    how: Literal["returned", "raised", "cut off", "died", "lost", "stopped"]
    text: str = ""
    trace: str = ""
    value: bytes = b""


@dataclass(frozen=True)
class Place:
    """What an agent knows of where it is.

    Attributes:
        version: Of Firebrick there.
        gpus: The CUDA devices that it may use, as CUDA_VISIBLE_DEVICES has them.
        port: One that is free.
    """

    version: str
    gpus: str
    port: int


class Agent:
    """Starts a worker's process on its node, and says how it ended; ``stop`` and ``end`` are called while ``run`` waits."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def place(self) -> Place:
        """Where this is."""
        with socket.create_server(("", 0)) as probe:
            port = int(probe.getsockname()[1])
        return Place(__version__, os.environ.get("CUDA_VISIBLE_DEVICES", ""), port)

    def take_over(self, out: Path, mark: str, again: bool, own: bool) -> Standing:
        """See ``shared.take_over``."""
        return shared.take_over(out, mark, again=again, own=own)

    def find(self, out: Path, mark: str, expected: Standing) -> str:
        """See ``shared.find``."""
        return shared.find(out, mark, expected)

    def take_away(self, out: Path, mark: str) -> None:
        """See ``shared.take_away``."""
        shared.take_away(out, mark)

    def run(self, job: Job) -> Ending:
        """Run a job to its end."""
        variables = {**os.environ, **job.variables, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        try:
            with tempfile.TemporaryDirectory(prefix="firebrick-") as folder:
                note = Path(folder) / "ending"
                process = self._process = subprocess.Popen(
                    [sys.executable, "-c", MAIN, str(note)], stdin=subprocess.PIPE, env=variables, start_new_session=True
                )
                assert process.stdin is not None
                with suppress(BrokenPipeError), process.stdin:  # closed when it has ended
                    process.stdin.write(pickle.dumps(job))
                    process.stdin.flush()
                    process.wait()
                process.wait()
                if note.exists():
                    ending: Ending = pickle.loads(note.read_bytes())
                    return ending
        except OSError as e:
            return Ending("died", f"its process could not be started: {e}")
        return Ending("died", status(process.returncode))

    def stop(self) -> None:
        """Ask the process to save what it has and stop."""
        if self._process is not None:
            self._process.terminate()

    def end(self) -> None:
        """End the process and all that it started, and return when it is gone."""
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()


def status(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}, without a word"


# in the worker's process


def main() -> None:
    """Run the job that comes on standard input, and leave a note of how it ended in the file that the command line names."""
    line = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    with open(line, "rb", closefd=False) as stream:
        job: Job = pickle.load(stream)
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    ending = perform(job)
    note = Path(sys.argv[1])
    half = note.with_name("half")
    half.write_bytes(pickle.dumps(ending))
    half.rename(note)


def perform(job: Job) -> Ending:
    """Call the training function."""
    try:
        try:
            function = pickle.loads(job.function)
        except (ImportError, AttributeError) as e:
            raise TrainingError(
                "the training function can be loaded on every node",
                f"{type(e).__name__}: {e}, on {job.worker.node}",
                "install its module on all nodes, or define the function in the program itself",
            ) from e
        return Ending("returned", value=import_module(job.pickler).dumps(function(job.worker)))
    except TrainingInterrupted as e:
        return Ending("stopped", str(e), value=pickle.dumps((e.checkpoint, e.epoch, e.step)))
    except KeyboardInterrupt:
        return Ending("stopped", "stopped, and nothing is known to be saved")
    except FAULTS_OF_THE_MACHINE as e:
        return Ending("cut off", _said(e), _trace(e))
    except BaseException as e:  # noqa: BLE001 - whatever it is, it is told
        return Ending("raised", _said(e), _trace(e), _packed(e))


def _said(error: BaseException) -> str:
    """An error in a line: of one of ours, what was expected and received."""
    return f"{type(error).__name__}: {' '.join(str(error).splitlines()[:2])}".rstrip(": ")


def _trace(error: BaseException) -> str:
    """The traceback below ``perform``."""
    below = None if error.__traceback__ is None else error.__traceback__.tb_next
    return "".join(traceback.format_exception(type(error), error, below))


def _packed(error: BaseException) -> bytes:
    """An exception as bytes, if it survives that."""
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)
    except Exception:  # noqa: BLE001 - of another's class, which may do anything
        return b""
    return packed


def _end_with(line: int) -> None:
    """End this process and all that it started when the agent is gone."""
    while os.read(line, 1):
        pass
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
