"""What needs processes of its own: compiling from nothing, peak memory, and a machine of which another process takes a core."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from typing import Any

from benchmarks.compare import OURS
from benchmarks.models import NETWORKS
from benchmarks.work import Work
from benchmarks.worker import Contender, ContenderError, quickest

FORMS = {"firebrick": "", "torch": "fused update", "torch.compile": "whole step compiled", "jax.jit": ""}
"""The form of each contender in which it is compiled, or its memory is read."""
IMAGE_FORMS = {**FORMS, "jax.jit": "NHWC"}
COMPILED = ("firebrick", "torch.compile", "jax.jit")
CACHES = {
    "firebrick": ("FIREBRICK_CACHE_DIR", {}),
    "torch.compile": ("TORCHINDUCTOR_CACHE_DIR", {}),
    "jax.jit": (
        "JAX_COMPILATION_CACHE_DIR",
        {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"},
    ),
}
"""The variable that names each contender's cache of compiled code, and what else turns it on."""
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Large blocks go back to the system when they are freed, so that what is resident is what is used."""


def _work(model: str, batch: int, threads: int) -> Work:
    return Work(f"{model}/{batch}", "training", model, batch, threads, arrays=NETWORKS[model].arrays())


def compiling(threads: int, names: tuple[str, ...] = COMPILED, rounds: int = 3) -> dict[str, dict[str, Any]]:
    """Seconds that a process takes to compile the transformer's training step: with an empty cache, and from a full one.

    What is read is the time of the first three calls beyond that of three later ones; imports and building the network are
    not in it. Medians of ``rounds`` pairs of processes.
    """
    work = _work("transformer", 16, threads)
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        times: dict[str, list[float]] = {"cold": [], "cached": []}
        try:
            for _ in range(rounds):
                with tempfile.TemporaryDirectory() as folder:
                    variable, more = CACHES[name]
                    for how in times:
                        contender = Contender(name, {variable: folder, **more})
                        try:
                            times[how].append(contender.first_calls(work, FORMS[name]))
                        finally:
                            contender.close()
            found[name] = {how: statistics.median(t) for how, t in times.items()} | {"seconds": times}
        except ContenderError as e:
            found[name] = {"error": str(e)}
    return found


def memory(threads: int, names: tuple[str, ...], models: tuple[str, ...] = ("transformer", "resnet18")) -> dict[str, Any]:
    """Peak memory of training steps, each contender in processes of its own (Linux).

    ``process``: the most that is resident while steps run, once they are compiled, beyond what was after the import:
    parameters, optimizer, data, compiled code and everything that a step needs. ``batch``: how much more that is than with a
    batch of one, which leaves only what grows with the batch.
    """
    found: dict[str, Any] = {}
    for model in models:
        net = NETWORKS[model]
        work = _work(model, net.batches[0], threads)
        found[work.name] = {}
        for name in names:
            form = (IMAGE_FORMS if net.images else FORMS)[name]
            try:
                small, whole = (_peak(name, w, form) for w in (replace(work, batch=1), work))
                found[work.name][name] = {"process": whole, "batch": whole - small}
            except ContenderError as e:
                found[work.name][name] = {"error": str(e)}
    return found


def _peak(name: str, work: Work, form: str) -> int:
    contender = Contender(name, MALLOC)
    try:
        before, top = contender.peak(work, form)
        return int(top - before)
    finally:
        contender.close()


class _Busy:
    """Another process on the last core, while it is entered."""

    def __enter__(self) -> None:
        core = max(os.sched_getaffinity(0))
        code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        self._process = subprocess.Popen([sys.executable, "-c", code])

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def taken_core(
    contenders: list[Contender], threads: int, rounds: int, models: tuple[str, ...] = ("mlp", "transformer")
) -> dict[str, Any]:
    """How much slower training steps are while another process computes on one of the cores; rounds with and without it."""
    found: dict[str, Any] = {}
    for model in models:
        work = _work(model, NETWORKS[model].batches[-1], threads)
        times: dict[str, dict[str, list[float]]] = {}
        ready, calls, found[work.name] = [], {}, {}
        for c in contenders:
            try:
                forms = c.prepare(work)
                c.choose(quickest(forms))
                calls[c.name] = max(1, int(0.1 / c.turn(1)))
                times[c.name] = {"free": [], "taken": []}
                ready.append(c)
            except ContenderError as e:
                found[work.name][c.name] = {"error": str(e)}
        for _ in range(rounds):
            for c in ready:
                times[c.name]["free"].append(c.turn(calls[c.name]))
            with _Busy():
                for c in ready:
                    times[c.name]["taken"].append(c.turn(calls[c.name]))
        for c in ready:
            free, taken = (statistics.median(t) for t in times[c.name].values())
            found[work.name][c.name] = {"free": free, "taken": taken, "slower": taken / free}
            c.drop()
    return found


def summary(what: str, found: dict[str, Any]) -> list[str]:
    """Lines of a table: a word, the contender, its figures."""
    out = []
    for name, row in found.items():
        if "error" in row:
            out.append(f"{what:<34} {name:<15} {row['error']}")
            continue
        figures = [
            f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v / 2**20:.1f} MiB" for k, v in row.items() if k != "seconds"
        ]
        out.append(f"{what:<34} {name:<15} {', '.join(figures)}{'' if name != OURS else '  ←'}")
    return out
