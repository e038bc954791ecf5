"""How times are taken: all contenders in turn, round after round, so that a noisy machine disturbs them alike."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from time import perf_counter, sleep
from typing import Any


@dataclass
class Result:
    """One workload: seconds a call for each contender, round by round, and a target if there is one."""

    name: str
    seconds: dict[str, list[float]]
    target: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    def median(self, contender: str) -> float:
        return statistics.median(self.seconds[contender])

    def rows(self) -> list[str]:
        """The workload as lines of a table: median, spread (quartiles) and ratio to the best peer."""
        ours = [c for c in self.seconds if c.startswith("firebrick")]
        peers = [self.median(c) for c in self.seconds if c not in ours]
        best = min(peers) if peers else None
        out = []
        for c, times in self.seconds.items():
            low, mid, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
            ratio = f"{self.median(c) / best:8.2f}" if best else " " * 8
            out.append(f"{self.name:<34} {c:<22} {mid * 1e6:12.2f} {low * 1e6:12.2f} {high * 1e6:12.2f} {ratio}")
        return out


HEAD = f"{'workload':<34} {'contender':<22} {'median µs':>12} {'25 % µs':>12} {'75 % µs':>12} {'ratio':>8}"


def interleaved(
    name: str, contenders: dict[str, Callable[[], Any]], calls: int, rounds: int = 15,
    clock: Callable[[], float] = perf_counter, rest: float = 0.0, warm: int = 0, **more: Any,
) -> Result:  # fmt: skip
    """Time ``calls`` calls of each contender, in turn, ``rounds`` times; the first round warms up and does not count.

    Args:
        name: Of the workload.
        contenders: Functions by name.
        calls: How many calls of a contender follow each other.
        rounds: How many times each contender has its turn.
        clock: Seconds.
        rest: Seconds of sleep before each turn, for contenders in one process whose threads go on to wait actively after their
            work: they would hold the cores that the next contender needs.
        warm: Calls of a turn that come first and do not count: after a sleep, and after the other contender's work, neither the
            cores nor the caches are as in a program that goes on calling.
        **more: Fields of the result.
    """
    seconds: dict[str, list[float]] = {c: [] for c in contenders}
    for r in range(rounds + 1):
        for c, fn in contenders.items():
            if rest:
                sleep(rest)
            for _ in range(warm):
                fn()
            start = clock()
            for _ in range(calls):
                fn()
            spent = (clock() - start) / calls
            if r:
                seconds[c].append(spent)
    return Result(name, seconds, **more)


def import_times(modules: list[str], rounds: int = 9) -> Result:
    """Wall time of ``import`` in a fresh interpreter, measured inside it."""
    seconds: dict[str, list[float]] = {m: [] for m in modules}
    program = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}  # as where it is installed
    for r in range(rounds + 1):
        for m in modules:
            command = [sys.executable, "-c", program.format(m)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            if r:
                seconds[m].append(float(done.stdout))
    return Result("import", seconds, target="firebrick ≤ 250,000 µs")


def machine() -> dict[str, Any]:
    """What runs the benchmark: processor, its vectors, cores, memory, system, Python and the contenders' versions."""
    model, flags = platform.processor(), set[str]()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            facts = dict(map(_pair, f))
        model, flags = facts.get("model name", model), set(facts.get("flags", facts.get("Features", "")).split())
    versions = {}
    for name in ("firebrick", "numpy", "llvmlite", "torch", "jax", "jaxlib"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": model, "features": sorted(flags & _VECTORS), "cores": os.cpu_count(), "system": platform.platform(),
        "python": platform.python_version(), "versions": versions,
    }  # fmt: skip


_VECTORS = {
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "avx512_vnni",
    "amx_tile", "amx_bf16", "asimd", "sve",
}  # fmt: skip


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def load() -> float:
    """Processes that want to run, over the last minute."""
    return round(os.getloadavg()[0], 2)


def described(facts: dict[str, Any]) -> str:
    """The machine in a line."""
    versions = ", ".join(f"{n} {v}" for n, v in facts["versions"].items())
    return f"{facts['processor']} ({' '.join(facts['features'])}), {facts['cores']} cores, Python {facts['python']}, {versions}"


def described_result(r: Result) -> list[str]:
    """A result as lines: its contenders, its target and its notes."""
    notes = [f"    {what}: {value}" for what, value in r.notes.items()]
    return [*r.rows(), *([f"    target: {r.target}"] if r.target else []), *notes]


def report(results: list[Result], path: str) -> None:
    """Print the table and write everything as JSON."""
    facts = machine()
    print(described(facts))
    print("\n".join([HEAD, *(line for r in results for line in described_result(r))]))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"machine": facts, "results": [asdict(r) for r in results]}, f, indent=1)
    print(f"written to {path}")
