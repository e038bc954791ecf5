"""A contender in a process of its own: it prepares work when told to, and runs it when it is its turn.

No contender's threads, memory, settings or faults touch another's; between its turns a process waits without computing.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

from benchmarks.work import Ready, Variants, Work

CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "firebrick": ("benchmarks.ours", {}),
    "torch": ("benchmarks.with_torch", {"compiled": False}),
    "torch.compile": ("benchmarks.with_torch", {"compiled": True}),
    "jax.jit": ("benchmarks.with_jax", {}),
    "numpy": ("benchmarks.with_numpy", {}),
}
"""Where each contender's ``variants`` is, and what it is called with."""
REST = 0.003
"""Seconds before a turn, in which threads that still wait for work in other processes go to sleep."""
PROCESSOR = "BENCHMARKS_PROCESSOR"
"""Variable of a contender's process: whether its times are seconds of its threads on processors."""
PATIENCE = 900.0
"""Seconds after which a contender that has not answered is given up."""


@dataclass
class Form:
    """What became of one form of a contender: results of its first calls, seconds a call, or why it failed."""

    results: list[list[np.ndarray[Any, Any]]] = field(default_factory=list)
    seconds: float = 0.0
    error: str = ""


class ContenderError(Exception):
    """A contender failed, or its process ended."""


def quickest(forms: dict[str, Form]) -> str:
    """The name of the quickest form that works.

    Raises:
        ContenderError: None does.
    """
    if good := {name: f.seconds for name, f in forms.items() if not f.error}:
        return min(good, key=lambda name: good[name])
    raise ContenderError("; ".join(f"{name}: {f.error}" if name else f.error for name, f in forms.items()))


class Contender:
    """The coordinator's side of a process; call its methods as if they ran there.

    Args:
        name: One of ``CONTENDERS``.
        environment: Variables that its process has beside ours.
        path: Folder in which its process looks for packages first.
    """

    def __init__(self, name: str, environment: dict[str, str] | None = None, path: str = "") -> None:
        self.name, self.environment, self.path = name, environment or {}, path
        self._process: Any = None
        self._pipe: Connection | None = None

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(self._ask, method)

    def _ask(self, method: str, *args: Any) -> Any:
        if self._process is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send((method, args))
            if not self._pipe.poll(PATIENCE):
                raise ContenderError(f"no answer to {method} in {PATIENCE:.0f} s")
            good, answer = self._pipe.recv()
        except (EOFError, OSError, ContenderError) as e:
            code = self._process.exitcode
            self.close()
            raise ContenderError(str(e) if isinstance(e, ContenderError) else f"its process ended ({code})") from e
        if not good:
            raise ContenderError(answer)
        return answer

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            self._process = context.Process(target=serve, args=(theirs, *CONTENDERS[self.name], self.path), name=self.name)
            self._process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        theirs.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()
            self._process.join(5)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self._process = self._pipe = None


def serve(pipe: Connection, module: str, how: dict[str, Any], path: str = "") -> None:
    """Answer until the pipe is closed; what fails there is answered, too."""
    if path:
        sys.path.insert(0, path)
    warnings.simplefilter("ignore")
    served = _Served(module, how)
    while True:
        try:
            method, args = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer = True, getattr(served, method)(*args)
        except Exception as e:  # noqa: BLE001 - one contender's fault is a line of the table
            answer = False, _line(e)
        pipe.send(answer)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


def _now() -> float:
    return process_time() if os.environ.get(PROCESSOR) else perf_counter()


class _Served:
    """What runs in the process."""

    def __init__(self, module: str, how: dict[str, Any]) -> None:
        self.module = import_module(module)
        self.how = how
        self.forms: dict[str, Ready] = {}
        self.work: Work | None = None
        self.ready: Ready | None = None

    def prepare(self, work: Work) -> dict[str, Form]:
        """Make every form of the work ready: results of the calls that are to be compared, and about how long one takes."""
        self.drop()
        self.work = work
        found = {}
        for name, make in self._variants(work).items():
            try:
                ready = make()
                results = [ready.read(self._done(ready)) for _ in range(work.steps)]
                found[name] = Form(results)
                self.forms[name] = ready
            except Exception as e:  # noqa: BLE001
                found[name] = Form(error=_line(e))
        rounds: dict[str, list[float]] = {n: [] for n in self.forms}
        for _ in range(3):
            for name, ready in self.forms.items():
                one = self._time(ready, 1)
                calls = min(1000, int(0.05 / one)) if len(self.forms) > 1 else 0
                rounds[name].append(self._time(ready, calls) if calls else one)
        for name, times in rounds.items():
            found[name].seconds = statistics.median(times)
        return found

    def _variants(self, work: Work) -> Variants:
        made: Variants = self.module.variants(work, **self.how)
        return made

    def _done(self, ready: Ready) -> Any:
        result = ready.call()
        ready.wait(result)
        return result

    def _time(self, ready: Ready, calls: int) -> float:
        assert self.work is not None
        call, wait = ready.call, ready.wait
        start = _now()
        if self.work.each:
            for _ in range(calls):
                wait(call())
        else:
            for _ in range(calls):
                result = call()
            wait(result)
        return (_now() - start) / calls

    def choose(self, name: str) -> None:
        """Keep one form and drop the others."""
        self.ready = self.forms[name]
        self.forms = {}
        gc.collect()

    def turn(self, calls: int) -> float:
        """Seconds a call."""
        assert self.ready is not None
        sleep(REST)
        if calls > 1:
            self._done(self.ready)
        return self._time(self.ready, calls)

    def facts(self) -> dict[str, float]:
        """What the contender knows of the chosen work."""
        assert self.ready is not None
        return self.ready.facts()

    def drop(self) -> None:
        """Forget the work."""
        self.forms, self.ready, self.work = {}, None, None
        gc.collect()

    def first_calls(self, work: Work, form: str) -> float:
        """Seconds that the first three calls take beyond what three calls take later: what compiling takes."""
        self.work = work
        ready = self._variants(work)[form]()
        start = _now()
        for _ in range(3):
            self._done(ready)
        spent = _now() - start
        return spent - 3 * statistics.median(self._time(ready, 1) for _ in range(5))

    def peak(self, work: Work, form: str) -> tuple[int, int]:
        """Bytes resident before the work is prepared, and at most while it runs once everything is compiled (Linux)."""
        before = resident("VmRSS")
        ready = self._variants(work)[form]()
        for _ in range(3):
            self._done(ready)
        gc.collect()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
            f.write("5")  # the peak of what is resident begins anew
        for _ in range(3):
            self._done(ready)
        return before, resident("VmHWM")


def resident(what: str) -> int:
    """Bytes of this process that are resident (``VmRSS``), or were at most (``VmHWM``)."""
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(what))
