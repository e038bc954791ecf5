"""``python -m benchmarks.starting``: what comes before the work: importing, the first batch of long data sets, a warm call.

*Import* is the wall time of whole processes, ``python -c "import firebrick"`` and others in turn. *First batch* makes a
shuffled loader of samples that take no memory and reads one batch, in a fresh process each, with the memory that this took
beyond what was resident before. *Call* is a warm call of ``fb.jit`` of a module, by its number of layers and of parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from benchmarks import measure

PROGRAMS = {
    "import numpy": "import numpy",
    "import firebrick": "import firebrick",
    "import firebrick, and one sum": "import firebrick as fb; fb.sum(fb.ones(3)).item()",
}
"""What whole processes run."""

SAMPLES = {"firebrick": (10**6, 10**7, 10**9), "torch": (10**6, 10**7)}
LAYERS = (1, 10, 100)
PARAMETERS = (1, 100, 1_000, 10_000)

_FIRST_BATCH = """
import json, sys, time
import numpy as np
name, samples = sys.argv[1], int(sys.argv[2])
class Numbers:
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return np.float32(index)
if name == "firebrick":
    from firebrick.data import DataLoader
else:
    from torch.utils.data import DataLoader
def first(count):
    return next(iter(DataLoader(Numbers(count), batch_size=64, shuffle=True)))
def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
first(1000)  # what is imported and made once
before = most()
start = time.perf_counter()
batch = first(samples)
print(json.dumps([time.perf_counter() - start, most() - before]))
"""


def imports(rounds: int) -> measure.Result:
    """Whole processes, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}  # as where it is installed
    for turn in range(rounds + 1):
        for name, program in PROGRAMS.items():
            start = perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)
            if turn:  # the first writes byte code
                seconds[name].append(perf_counter() - start)
    result = measure.Result("whole process", seconds, target="import firebrick ≤ 1.5 × import numpy")
    base = seconds["import numpy"]
    for name in list(PROGRAMS)[1:]:
        ratio = statistics.median(a / b for a, b in zip(seconds[name], base, strict=True))
        result.notes[f"{name} / import numpy"] = f"{ratio:.2f}"
    return result


def first_batches(rounds: int) -> measure.Result:
    """A shuffled loader and its first batch of 64, in fresh processes in turn."""
    seconds: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, sizes in SAMPLES.items():
            for samples in sizes:
                command = [sys.executable, "-c", _FIRST_BATCH, name, str(samples)]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    print(f"{name} is left out: {done.stderr.strip().splitlines()[-1]}")
                    continue
                took, grew = json.loads(done.stdout)
                what = f"{name}, {samples:,} samples"
                seconds.setdefault(what, []).append(took)
                memory.setdefault(what, []).append(grew)
    result = measure.Result("first batch", seconds, target="firebrick, 10⁹ samples ≤ 1 s, ≤ 50 MiB")
    result.notes["MiB"] = {what: round(statistics.median(found), 1) for what, found in memory.items()}
    return result


def calls(rounds: int) -> list[measure.Result]:
    """Warm calls of modules under ``jit``."""
    import firebrick as fb

    class Leaves(fb.nn.Module):
        """Parameters of which one is used."""

        def __init__(self, count: int) -> None:
            self.leaves = [fb.nn.Parameter(fb.ones(1)) for _ in range(count)]

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            """Map [n] to [n]."""
            return x * self.leaves[0]

    x, row = fb.ones(8), fb.ones((1, 8))
    held: dict[str, Callable[[], Any]] = {}
    for count in PARAMETERS:
        f = fb.jit(Leaves(count))
        held[f"{count:,} parameters"] = lambda f=f: f(x)
    used: dict[str, Callable[[], Any]] = {}
    for count in LAYERS:
        g = fb.jit(fb.nn.Sequential(*(layer for _ in range(count) for layer in (fb.nn.Linear(8, 8), fb.nn.ReLU()))))
        used[f"{count} layers"] = lambda g=g: g(row)
    return [
        measure.interleaved("warm call, of which one parameter is used", held, 100, rounds),
        measure.interleaved("warm call, Linear(8, 8) and ReLU a layer", used, 100, rounds),
    ]


def main() -> None:
    """Measure, print and write."""
    p = argparse.ArgumentParser("python -m benchmarks.starting", description=(__doc__ or "").partition("\n\n")[2])
    p.add_argument("--rounds", type=int, default=15, help="rounds (15)")
    p.add_argument("--only", choices=["import", "loader", "call"], help="one part")
    p.add_argument("--json", default="benchmarks/results/starting.json", help="file to write")
    args = p.parse_args()
    parts: dict[str, Callable[[], list[measure.Result]]] = {
        "import": lambda: [imports(args.rounds)],
        "loader": lambda: [first_batches(args.rounds)],
        "call": lambda: calls(args.rounds),
    }
    print(f"{args.rounds} rounds, load {measure.load()}")
    results = [r for name, part in parts.items() if args.only in (None, name) for r in part()]
    measure.report(results, args.json)


if __name__ == "__main__":
    main()
