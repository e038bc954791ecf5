"""What a process keeps: cases that do one thing many times over, each in a process of its own, and how much memory that takes.

    PYTHONPATH=tests/shared python -m growth                       # all cases on all engines, as a table
    PYTHONPATH=tests/shared python -m growth shapes --device cpu --turns 200

A case first does its thing some times, so that caches fill and allocators settle; what it takes from then on is its growth:
resident memory after a collection, with free blocks given back to the system (glibc), and counts of compiled code, open files
and threads.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import firebrick as fb
from firebrick.backends.registry import default_device

ENGINES = ("numpy", "cpu", "torch:cpu")
LIMIT = 10.0  # MiB

Turn = Callable[[int], Any]


@dataclass(frozen=True)
class Case:
    """One thing that is done over and over.

    Attributes:
        make: Makes what does it once; the number of the turn is passed.
        turns: How often growth is measured over.
        warm: How often it is done before.
    """

    make: Callable[[], Turn]
    turns: int
    warm: int


@dataclass(frozen=True)
class Growth:
    """What the turns of a case left behind: MiB of memory, modules of compiled code, open files, threads."""

    memory: float
    modules: int
    files: int
    threads: int


CASES: dict[str, Case] = {}


def case(turns: int, warm: int) -> Callable[[Callable[[], Turn]], Callable[[], Turn]]:
    """Enter a case under the name of its function."""

    def enter(make: Callable[[], Turn]) -> Callable[[], Turn]:
        CASES[make.__name__] = Case(make, turns, warm)
        return make

    return enter


def network() -> fb.nn.Module:
    return fb.nn.Sequential(fb.nn.Linear(16, 32), fb.nn.ReLU(), fb.nn.Linear(32, 4))


def batch(rows: int = 8) -> tuple[fb.Tensor, fb.Tensor]:
    rng = np.random.default_rng(0)
    return fb.asarray(rng.normal(size=(rows, 16)).astype(np.float32)), fb.asarray(rng.integers(0, 4, rows))


def loss(model: fb.nn.Module, x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
    return fb.cross_entropy(model(x), y)


def data(samples: int = 64) -> Any:
    rng = np.random.default_rng(0)
    return fb.data.ArrayDataset(rng.normal(size=(samples, 16)).astype(np.float32), rng.integers(0, 4, samples))


@case(turns=2000, warm=1100)  # a thousand records of traces are kept
def shapes() -> Turn:
    f = fb.jit(lambda x: fb.sum(fb.tanh(x * 2 + 1) * fb.exp(-x)))
    return lambda n: f(fb.ones(512 + n))


@case(turns=2000, warm=300)
def shapes_eager() -> Turn:
    return lambda n: fb.sum(fb.tanh(fb.ones(512 + n)) * 2)


@case(turns=600, warm=1100)  # 1,024 compiled operations are kept; memory by its size, so the arrays have about one
def heavy_shapes_eager() -> Turn:
    return lambda n: fb.softmax(fb.ones((1_600_000 // (4000 + n), 4000 + n)))


@case(turns=500, warm=150)  # 128 shaders are kept
def functions() -> Turn:
    def turn(n: int) -> None:
        weight = fb.ones(700)
        f = fb.jit(lambda x: fb.sum(fb.tanh(x * weight) + n))
        f(weight)

    return turn


@case(turns=500, warm=100)
def steps_made_and_dropped() -> Turn:
    x, y = batch()

    def turn(n: int) -> None:
        model = network()
        optimizer = fb.optim.Adam(model, lr=1e-3)
        step = fb.jit(lambda x, y: optimizer.update(model, fb.value_and_grad(loss)(model, x, y)[1]))
        step(x, y)

    return turn


def _step(compiled: bool) -> Turn:
    model = network()
    optimizer = fb.optim.Adam(model, lr=1e-3)
    x, y = batch()

    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        value, gradients = fb.value_and_grad(loss)(model, x, y)
        optimizer.update(model, gradients)
        return value

    run = fb.jit(step) if compiled else step
    return lambda n: run(x, y)


@case(turns=10_000, warm=1000)
def steps() -> Turn:
    return _step(True)


@case(turns=3000, warm=500)
def steps_eager() -> Turn:
    return _step(False)


@case(turns=2000, warm=300)
def exceptions_in_eager_steps() -> Turn:
    model = network()
    x, y = batch()

    def broken(model: fb.nn.Module, x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        loss(model, x, y)
        raise KeyError("on purpose")

    def turn(n: int) -> None:
        try:
            fb.value_and_grad(broken)(model, x, y)
        except KeyError:
            return

    return turn


@case(turns=500, warm=100)
def exceptions_in_traces() -> Turn:
    model = network()
    x, _ = batch()

    def turn(n: int) -> None:
        f = fb.jit(lambda x: float(fb.sum(model(x))))
        try:
            f(x)
        except fb.DataDependentError:
            return

    return turn


@case(turns=2000, warm=300)
def exceptions_in_programs() -> Turn:
    f = fb.jit(lambda x, i: fb.sum(fb.take(fb.tanh(x) * x, i)))
    x, i = fb.ones(800), fb.asarray([900])

    def turn(n: int) -> None:
        try:
            f(x, i)
        except IndexError:
            return

    return turn


@case(turns=100, warm=20)
def loaders() -> Turn:
    samples = data()

    def turn(n: int) -> None:
        loader = fb.data.DataLoader(samples, 8, shuffle=True, num_workers=2)
        for _ in zip(range(3), loader, strict=False):  # left before its end
            pass

    return turn


@case(turns=8, warm=3)
def loaders_with_processes() -> Turn:
    samples = data()

    def turn(n: int) -> None:
        loader = fb.data.DataLoader(samples, 8, num_workers=2, worker="process")
        for _ in zip(range(3), loader, strict=False):
            pass

    return turn


@case(turns=2000, warm=300)
def generators() -> Turn:
    def turn(n: int) -> None:
        g = fb.random.Generator(n)
        g.normal((64,))

    return turn


@case(turns=300, warm=100)
def verified() -> Turn:
    f = fb.jit(lambda x: fb.sum(fb.tanh(x * 2 + 1) * fb.exp(-x)))

    def turn(n: int) -> None:
        with fb.verify():
            f(fb.ones(600))
            fb.sum(fb.tanh(fb.ones(600)))

    return turn


@case(turns=100, warm=20)
def parallel() -> Turn:
    samples = data()
    own = default_device()
    alike = [d for d in fb.devices() if d.engine == own.engine != "torch"]  # an engine may have one adapter only

    def turn(n: int) -> None:
        devices = alike[:2] or [own]
        model = network()
        strategy = fb.train.DataParallel(devices)
        learner = fb.train.Learner(model, fb.optim.SGD(model, lr=1e-2), strategy=strategy, log=None, progress=None)
        learner.fit(fb.data.DataLoader(samples, 16), epochs=1)

    return turn


@case(turns=60, warm=15)
def fits_with_checkpoints() -> Turn:
    samples = data()
    folder = tempfile.TemporaryDirectory()
    model = network()

    def turn(n: int) -> None:
        assert folder.name
        learner = fb.train.Learner(
            model, fb.optim.SGD(model, lr=1e-2), log=None, progress=None, out=Path(folder.name) / str(n), checkpoint_steps=1
        )
        learner.fit(fb.data.DataLoader(samples, 16), epochs=1)

    return turn


@case(turns=300, warm=50)
def fits_of_one_learner() -> Turn:
    model = network()
    learner = fb.train.Learner(model, fb.optim.SGD(model, lr=1e-2), log=None, progress=None)
    loader = fb.data.DataLoader(data(), 16)
    return lambda n: learner.fit(loader, epochs=n + 1)


@case(turns=200, warm=10)
def planted() -> Turn:
    """Keeps 64 KiB a turn, and the code of a function: what this must find."""
    kept: list[Any] = []

    def turn(n: int) -> None:
        f = fb.jit(lambda x: fb.sum(fb.tanh(x) * x + n))
        f(fb.ones(600))
        kept.extend((f, np.ones(8192)))

    return turn


def _resident() -> float:
    """MiB of this process, without garbage and free blocks."""
    gc.collect()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0  # what has no such file is judged by the counts alone


def _modules() -> int:
    from firebrick.compiler.targets.llvm.loaded import loaded

    return loaded().modules


def _files() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


def run(name: str, device: str, turns: int = 0) -> Growth:
    """Run a case in this process."""
    warnings.simplefilter("ignore")  # functions here are traced often, on purpose
    fb.set_default_device(device)
    found = CASES[name]
    turn = found.make()
    for n in range(found.warm):
        turn(n)
    before = _resident(), _modules(), _files(), threading.active_count()
    for n in range(found.warm, found.warm + (turns or found.turns)):
        turn(n)
    after = _resident(), _modules(), _files(), threading.active_count()
    return Growth(*(b - a for a, b in zip(before, after, strict=True)))


def apart(name: str, device: str, turns: int = 0) -> Growth:
    """Run a case in a process of its own."""
    code = f"import dataclasses, growth, json; print(json.dumps(dataclasses.asdict(growth.run({name!r}, {device!r}, {turns}))))"
    places = [str(Path(__file__).parent), str(Path(fb.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    with (
        tempfile.TemporaryDirectory() as cache
    ):  # empty: what LLVM takes when it first compiles is taken before growth is measured
        given = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", "FIREBRICK_CACHE_DIR": cache}
        call = [sys.executable, "-c", code]
        result = subprocess.run(call, env=given, capture_output=True, text=True, timeout=1800, check=False)
    if result.returncode:
        raise RuntimeError(f"{name} on {device} ended with {result.returncode}:\n{result.stderr[-4000:]}")
    return Growth(**json.loads(result.stdout.splitlines()[-1]))


@click.command()
@click.argument("names", nargs=-1)
@click.option("--device", multiple=True, default=ENGINES)
@click.option("--turns", default=0)
def main(names: tuple[str, ...], device: tuple[str, ...], turns: int) -> None:
    """Print the growth of cases, each in a process of its own."""
    for name in names or CASES:
        for where in device:
            print(f"{name:28s} {where:10s} {turns or CASES[name].turns:6d}", end=" ", flush=True)
            found = asdict(apart(name, where, turns))
            print("  ".join(f"{k} {v:.1f}" if k == "memory" else f"{k} {v}" for k, v in found.items()), flush=True)


if __name__ == "__main__":
    main()
