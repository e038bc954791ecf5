"""Trials of kernels in a process of their own (``trial_process``): the cpu engine's ``Bench`` for the autotuner."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from firebrick.backends.cpu.trial_process import LENGTH
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.tune.variant import KernelVariant
from firebrick.core.aval import Aval
from firebrick.core.config import SETTINGS, config
from firebrick.core.locks import forkable

DEADLINE = 60.0
"""Seconds that a step of a trial may take, in addition to what its estimate says: LLVM compiles within it."""
MEMORY = 2 << 30
"""Bytes that a trial may take besides its buffers."""
_PASSED = ("cpu_vector_bits", "num_threads", "cache_dir", "cache_size")


class TrialProcess:
    """The process of the trials; it is started when it is needed, and again after it ended or was ended.

    Attributes:
        holder: The bench whose problem it has; several threads may compile at a time.
        lock: Held from preparing a problem to the answer about one of its variants.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._owner = 0
        self.holder: object = None
        self.lock = forkable(threading.RLock())

    @property
    def running(self) -> bool:
        """Whether it has started, in this process, and not ended."""
        return self._process is not None and self._owner == os.getpid() and self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        """The answer to a request.

        Args:
            request: Passed to ``trial_process``.
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
            self._process.stdin.write(LENGTH.pack(len(content)) + content)
            self._process.stdin.flush()
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.end()
            return {"ended": f"it did not return within {seconds:.0f} s"}
        except OSError:
            line = b""
        if line:
            try:
                return json.loads(line)
            except ValueError:
                self.end()
                return {"ended": "it overwrote the memory of its process"}
        code = self._process.wait()
        self.end()
        with contextlib.suppress(ValueError):
            return {"ended": f"it crashed ({signal.Signals(-code).name})"}
        return {"ended": f"it ended the process (exit code {code})"}

    def _start(self) -> None:
        values = {f"FIREBRICK_{name.upper()}": str(getattr(config, name)) for name in _PASSED}
        names = {f"FIREBRICK_{name.upper()}" for name in SETTINGS}
        environment = {**{k: v for k, v in os.environ.items() if k not in names}, **values}
        start = f"import sys; sys.path[:] = {sys.path!r}; from firebrick.backends.cpu.trial_process import main; main()"
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


PROCESS = TrialProcess()
"""The process of this program's trials."""
atexit.register(PROCESS.end)


class CpuBench:
    """Tries the variants of one group of nodes.

    Args:
        inputs: Its operands.
        outputs: Its results.
        default: The default variant.
        reference: Kernels of the naive form; None if they would take too long.
        bound_us: The shortest time that the processor allows; 0 if not known.
    """

    def __init__(
        self, inputs: Sequence[Aval], outputs: Sequence[Aval], default: KernelVariant, reference: Lowered | None,
        bound_us: float,
    ) -> None:  # fmt: skip
        self.inputs, self.outputs, self.default, self.bound_us = inputs, outputs, default, bound_us
        self._reference = reference
        self._built: dict[str, Lowered] = {}

    def _lowered(self, variant: KernelVariant) -> Lowered:
        if variant.name not in self._built:
            self._built[variant.name] = variant.build()
        return self._built[variant.name]

    def _seconds(self, *lowered: Lowered) -> float:
        return DEADLINE + sum(x.cost_us for x in lowered) * 1e-6 * 100

    def _prepare(self) -> str:
        """What is wrong with the default, or with preparing."""
        if PROCESS.holder is self and PROCESS.running:
            return ""
        default, reference = self._lowered(self.default), self._reference
        nbytes = sum(a.nbytes for a in (*self.inputs, *self.outputs)) + sum(default.temporary)
        answer = PROCESS.ask(
            {
                "step": "prepare", "inputs": [(a.shape, a.dtype.name) for a in self.inputs], "memory": MEMORY + 16 * nbytes,
                "outputs": [(a.shape, a.dtype.name) for a in self.outputs], "reference": reference, "default": default,
            },
            self._seconds(default, *([reference] if reference else [])),
        )  # fmt: skip
        PROCESS.holder = self if answer == "" else None
        return _reason(answer)

    def check(self, variant: KernelVariant) -> str:
        with PROCESS.lock:
            wrong = self._prepare()
            if wrong or variant is self.default:
                return wrong
            lowered = self._lowered(variant)
            request = {
                "step": "check", "name": variant.name, "lowered": lowered, "same": variant.order == self.default.order,
                "exact": variant.exact,
            }  # fmt: skip
            return _reason(PROCESS.ask(request, self._seconds(lowered)))

    def times(self, variants: Sequence[KernelVariant], rounds: int) -> dict[str, list[float]] | str:
        with PROCESS.lock:
            if self._prepare():
                return variants[0].name
            lowered = [(v.name, self._lowered(v)) for v in variants]
            seconds = DEADLINE + rounds * sum(x.cost_us + 1e4 for _, x in lowered) * 1e-6 * 20
            answer = PROCESS.ask({"step": "times", "variants": lowered, "rounds": rounds}, seconds)
            if isinstance(answer, dict) and "ended" not in answer and "error" not in answer:
                return {str(n): [float(us) for us in found] for n, found in answer.items()}
            for v in variants:  # which of them it was
                if self._prepare():
                    break
                alone = PROCESS.ask({"step": "times", "variants": [(v.name, self._lowered(v))], "rounds": 3}, seconds)
                if "ended" in alone or "error" in alone:
                    return v.name
            return variants[-1].name

    def source(self, variant: KernelVariant) -> str:
        return self._lowered(variant).text


@cache
def peaks(threads: int) -> dict[str, float]:
    """The measured rates of this machine, flops and bytes in a microsecond; empty if they could not be measured."""
    with PROCESS.lock:
        answer = PROCESS.ask({"step": "peaks", "threads": threads}, DEADLINE)
    return {} if {"ended", "error"} & answer.keys() else {str(k): float(v) for k, v in answer.items()}


def _reason(answer: Any) -> str:
    if isinstance(answer, dict):
        return str(answer.get("ended") or answer.get("error") or "its process gave no answer")
    return str(answer)


def reference_takes(flops: float, nbytes: float) -> float:
    """Estimated seconds of a naive form, on one thread."""
    return max(flops / 5e8, nbytes / 5e8)
