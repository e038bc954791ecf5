"""``TrialProcess``: a process in which an engine tries kernels. ``ProcessBench`` asks it, ``answer_requests`` runs in it.

A kernel that crashes or hangs ends that process, which is started again when it is needed. The parent sends a dictionary for
each step, and reads one line of JSON as the answer.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from firebrick.compiler.tune.variant import KernelVariant
from firebrick.core.config import SETTINGS, config
from firebrick.core.errors import FirebrickError
from firebrick.core.locks import forkable

_LENGTH = struct.Struct("<Q")
DEADLINE = 60.0
"""Seconds that a step of a trial may take, in addition to what its estimate says: compilers work within it."""
_PASSED = ("cpu_vector_bits", "num_threads", "cache_dir", "cache_size")


class TrialProcess:
    """The process of the trials; it is started when it is needed, and again after it ended or was ended.

    Args:
        module: Its ``main`` calls ``answer_requests``.

    Attributes:
        holder: The bench whose problem it has; several threads may compile at a time.
        lock: Held from preparing a problem to the answer about one of its variants.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._owner = 0
        self.holder: object = None
        self.lock = forkable(threading.RLock())
        atexit.register(self.end)

    @property
    def running(self) -> bool:
        """Whether it has started, in this process, and not ended."""
        return self._process is not None and self._owner == os.getpid() and self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        """The answer to a request.

        Args:
            request: Passed to the process.
            seconds: The deadline.

        Returns:
            The answer, or ``{"ended": reason}`` if the process ended or did not answer in time.
        """
        if not self.running:
            try:
                self._start()
            except OSError as e:
                return {"ended": f"no process for it could be started: {e}"}
        assert self._process is not None
        assert self._process.stdin is not None
        content = pickle.dumps(request)
        try:
            self._process.stdin.write(_LENGTH.pack(len(content)) + content)
            self._process.stdin.flush()
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.end()
            return {"ended": f"it did not return within {seconds:.0f} s"}
        except OSError:
            line = b""
        if line:
            try:
                found = json.loads(line)
            except ValueError:
                found = {"ended": "it overwrote the memory of its process"}
            if isinstance(found, dict) and "ended" in found:
                self.end()
            return found
        code = self._process.wait()
        self.end()
        with contextlib.suppress(ValueError):
            return {"ended": f"it crashed ({signal.Signals(-code).name})"}
        return {"ended": f"it ended the process (exit code {code})"}

    def _start(self) -> None:
        self.end()  # of one that has ended by itself, the pipes
        values = {f"FIREBRICK_{name.upper()}": str(getattr(config, name)) for name in _PASSED}
        names = {f"FIREBRICK_{name.upper()}" for name in SETTINGS}
        environment = {**{k: v for k, v in os.environ.items() if k not in names}, **values}
        start = f"import sys; sys.path[:] = {sys.path!r}; from {self._module} import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment,
        )  # fmt: skip
        self._owner, self._answers, self.holder = os.getpid(), queue.SimpleQueue(), None
        threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True).start()

    def end(self) -> None:
        """End the process."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        self._process = None


def _read(stream: Any, answers: queue.SimpleQueue[bytes]) -> None:
    """Pass the lines of an answering process on; an empty one at its end."""
    try:
        while line := stream.readline():
            answers.put(line)
    except (OSError, ValueError):  # the stream was closed
        pass
    answers.put(b"")


class ProcessBench(ABC):
    """Tries the variants of one problem in a process: what is the same for all engines.

    Args:
        process: The process.
        default: The default variant.
    """

    def __init__(self, process: TrialProcess, default: KernelVariant) -> None:
        self.process, self.default = process, default
        self._built: dict[str, Any] = {}

    @abstractmethod
    def built(self, variant: KernelVariant) -> Any:
        """The kernels of a variant, as its process gets them."""

    @abstractmethod
    def seconds(self, *built: Any) -> float:
        """The deadline of a run of these kernels on all operands; of none, the part that does not depend on kernels."""

    @abstractmethod
    def problem(self) -> tuple[dict[str, Any], float]:
        """The request that prepares the problem, and its deadline. It is answered by what is wrong with the default."""

    def check(self, variant: KernelVariant) -> str:
        """What is wrong with a variant; empty if its results are those that are expected."""
        with self.process.lock:
            wrong = self._prepare()
            if wrong or variant is self.default:
                return wrong
            try:
                built = self._kept(variant)
            except FirebrickError as e:
                return f"{type(e).__name__}: {e}"
            request = {
                "step": "check", "name": variant.name, "kernels": built, "same": variant.order == self.default.order,
                "exact": variant.exact,
            }  # fmt: skip
            return reason_of(self.process.ask(request, self.seconds(built)))

    def times(self, variants: Sequence[KernelVariant], rounds: int) -> dict[str, list[float]] | str:
        """Microseconds of each round by name; or the name of a variant that did not return."""
        with self.process.lock:
            if self._prepare():
                return variants[0].name
            built = [(v.name, self._kept(v)) for v in variants]
            base = self.seconds()
            seconds = base + rounds * sum((self.seconds(x) - base) / 5 + 0.2 for _, x in built)
            found = self._timed(built, rounds, seconds)
            if found is not None:
                return found
            for v in variants:  # which of them it was
                if self._prepare():
                    break
                if self._timed([(v.name, self._kept(v))], 3, seconds) is None:
                    return v.name
            return variants[-1].name

    def _timed(self, built: list[tuple[str, Any]], rounds: int, seconds: float) -> dict[str, list[float]] | None:
        """Microseconds by name; None if the answer is another one, as of a process whose memory was overwritten."""
        answer = self.process.ask({"step": "times", "variants": built, "rounds": rounds}, seconds)
        if not isinstance(answer, dict) or answer.keys() != {name for name, _ in built}:
            return None
        times = {str(name): found for name, found in answer.items() if isinstance(found, list) and found}
        if len(times) < len(built) or not all(type(us) in (int, float) for found in times.values() for us in found):
            return None
        return {name: [float(us) for us in found] for name, found in times.items()}

    def _kept(self, variant: KernelVariant) -> Any:
        if variant.name not in self._built:
            self._built[variant.name] = self.built(variant)
        return self._built[variant.name]

    def _prepare(self) -> str:
        """What is wrong with the default, or with preparing."""
        if self.process.holder is self and self.process.running:
            return ""
        request, seconds = self.problem()
        answer = self.process.ask({"step": "prepare", **request}, seconds)
        self.process.holder = self if answer == "" else None
        return reason_of(answer)


def reason_of(answer: Any) -> str:
    """What is wrong, by the answer to a step that answers with a text."""
    if isinstance(answer, dict):
        return str(answer.get("ended") or answer.get("error") or "its process gave no answer")
    return str(answer)


def answer_requests(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Answer the parent's requests until it closes the pipe.

    Args:
        answer: Of a request; what it raises is an answer too.
    """
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what a library prints is no answer
        while (request := _read_request(requests)) is not None:
            try:
                found = answer(request)
            except (FirebrickError, MemoryError, OSError) as e:
                found = {"error": f"{type(e).__name__}: {e}"}
            answers.write(json.dumps(found).encode() + b"\n")
            answers.flush()


def _read_request(stream: BinaryIO) -> dict[str, Any] | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    request: dict[str, Any] = pickle.loads(stream.read(_LENGTH.unpack(head)[0]))
    return request
