"""``python -m benchmarks.kernels``: kernels of ``fb.kernel`` beside the same loops in numba (``fastmath`` off, same dtype).

Both use as many threads. Warm calls are timed in interleaved rounds in one process, first calls in a process each, with nothing
cached. Before each contender's turn the process sleeps, until the threads of the other one no longer wait actively: those of
OpenMP, which numba uses, do so for milliseconds after their work. numba is optional: without it Firebrick's times are printed
alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

CONTENDERS = ("firebrick", "numba")


@dataclass(frozen=True)
class Workload:
    """A kernel's work.

    Attributes:
        arguments: Makes NumPy arrays and numbers, the same for both.
        target: Largest ratio of Firebrick's time to numba's.
        tolerance: Largest difference of results, relative to the largest element; None for results of random numbers.
    """

    arguments: Callable[[], tuple[Any, ...]]
    target: float
    tolerance: float | None


def _mandelbrot() -> tuple[Any, ...]:
    return 1024, 256


def _n_body() -> tuple[Any, ...]:
    import numpy as np

    g = np.random.default_rng(0)
    return (*(g.standard_normal(4096).astype(np.float32) for _ in range(3)), g.random(4096).astype(np.float32), 0.01)


def _monte_carlo() -> tuple[Any, ...]:
    return 4096, 2048


def _stencil() -> tuple[Any, ...]:
    import numpy as np

    return (np.random.default_rng(0).random((2048, 2048)).astype(np.float32),)


def _sparse() -> tuple[Any, ...]:
    import numpy as np

    g = np.random.default_rng(0)
    rows, columns = 200_000, 200_000
    counts = g.integers(5, 30, rows)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    total = int(starts[-1])
    return (
        starts, g.integers(0, columns, total).astype(np.int32), g.standard_normal(total).astype(np.float32),
        g.standard_normal(columns).astype(np.float32),
    )  # fmt: skip


WORKLOADS = {
    "mandelbrot": Workload(_mandelbrot, 0.3, 0.0),
    "n_body": Workload(_n_body, 0.5, 1e-3),
    "monte_carlo": Workload(_monte_carlo, 0.5, None),
    "stencil": Workload(_stencil, 1.0, 1e-6),
    "sparse": Workload(_sparse, 1.0, 1e-5),
}


def firebrick_calls() -> dict[str, Callable[..., Any]]:
    """Firebrick's kernels, as functions of what ``Workload.arguments`` makes; a call waits for its result."""
    from benchmarks.firebrick_kernels import CALLS

    return CALLS


def numba_calls() -> dict[str, Callable[..., Any]]:
    """numba's functions.

    Raises:
        ImportError: numba is not installed.
    """
    from benchmarks.with_numba import CALLS

    return CALLS


def _prepared(contender: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if contender == "numba":
        return arguments
    import numpy as np

    import firebrick as fb

    return tuple(fb.asarray(a, device="cpu") if isinstance(a, np.ndarray) else a for a in arguments)


def _calls(contender: str) -> dict[str, Callable[..., Any]]:
    return firebrick_calls() if contender == "firebrick" else numba_calls()


def first_call(name: str, contender: str) -> float:
    """Seconds of a first call in this process, with its compilation; imports are not counted."""
    call = _calls(contender)[name]
    arguments = _prepared(contender, WORKLOADS[name].arguments())
    start = perf_counter()
    call(*arguments)
    return perf_counter() - start


def _first_calls(name: str, contender: str, rounds: int) -> list[float]:
    """First calls of processes of their own, with an empty folder for compiled code."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "FIREBRICK_CACHE_DIR": folder, "NUMBA_CACHE_DIR": folder}
            environment["PYTHONPATH"] = os.pathsep.join(sys.path)
            command = [sys.executable, "-m", "benchmarks.kernels", "--first", name, contender]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            found.append(float(done.stdout))
    return found


def _agree(name: str, a: Any, b: Any) -> None:
    import numpy as np

    tolerance = WORKLOADS[name].tolerance
    if tolerance is None:  # other random numbers: the same share of points, but for chance
        assert abs(a.mean() - b.mean()) < 0.01 * a.mean(), name
    else:
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max(), name


def main() -> int:
    """Measure and print."""
    p = argparse.ArgumentParser("python -m benchmarks.kernels", description=(__doc__ or "").partition("\n\n")[0])
    p.add_argument("--only", nargs="+", default=list(WORKLOADS), choices=WORKLOADS, help="workloads (all)")
    p.add_argument("--threads", type=int, default=2, help="threads, and cores, of each contender (2)")
    p.add_argument("--rounds", type=int, default=15, help="rounds of warm calls (15)")
    p.add_argument("--calls", type=int, default=20, help="calls of a contender in a round, one after another (20)")
    p.add_argument("--warm", type=int, default=20, help="calls before them that do not count (20)")
    p.add_argument("--rest", type=float, default=0.05, help="seconds of sleep before a contender's calls (0.05)")
    p.add_argument("--first-rounds", type=int, default=3, help="processes of first calls (3)")
    p.add_argument(
        "--processor", action="store_true", help="seconds of the threads on processors: steadier beside other work (one thread)"
    )
    p.add_argument("--first", nargs=2, metavar=("NAME", "CONTENDER"), help="print the seconds of one first call")
    args = p.parse_args()
    if args.first:
        print(first_call(*args.first))
        return 0
    from benchmarks.__main__ import confine

    if args.processor:
        args.threads = 1
    if len(args.only) > 1:  # each in a process of its own: what one leaves in the heap changes the times of the next
        options = ["--threads", args.threads, "--rounds", args.rounds, "--first-rounds", args.first_rounds]
        options += ["--calls", args.calls, "--warm", args.warm, "--rest", args.rest]
        options += ["--processor"] * args.processor
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        for name in args.only:
            command = [sys.executable, "-m", "benchmarks.kernels", *map(str, options), "--only", name]
            subprocess.run(command, check=True, env=environment)
        return 0
    confine(args.threads)
    os.environ["NUMBA_NUM_THREADS"] = str(args.threads)
    from benchmarks.measure import HEAD, interleaved

    contenders = list(CONTENDERS)
    try:
        numba_calls()
    except ImportError:
        print("numba is not installed: left out")
        contenders.remove("numba")
    print(f"{args.threads} threads, {os.fspath(Path(sys.executable).name)}\n{HEAD}")
    for name in args.only:
        arguments = WORKLOADS[name].arguments()
        calls = {c: (_calls(c)[name], _prepared(c, arguments)) for c in contenders}
        results = [f(*given) for f, given in calls.values()]
        if len(results) == 2:
            _agree(name, *results)
        timed: dict[str, Callable[[], Any]] = {c: lambda f=f, given=given: f(*given) for c, (f, given) in calls.items()}
        clock = process_time if args.processor else perf_counter
        found = interleaved(name, timed, args.calls, args.rounds, clock, args.rest, args.warm)
        print("\n".join(found.rows()))
        firsts = {c: sorted(_first_calls(name, c, args.first_rounds)) for c in contenders if args.first_rounds}
        for c, times in firsts.items():
            print(f"{name + ', first call':<34} {c:<22} {times[len(times) // 2] * 1e6:12.0f}")
        if len(contenders) == 2:
            ratio = found.median("firebrick") / found.median("numba")
            print(f"{name}: {ratio:.2f} of numba's time, target {WORKLOADS[name].target}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
