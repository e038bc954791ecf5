"""Clocks, entropy and files read in a trace raise; naming them, what libraries read for themselves, and seeds do not."""

from __future__ import annotations

import cProfile
import datetime
import linecache
import logging
import os
import pathlib
import random
import resource
import secrets
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from os import urandom as entropy
from time import perf_counter as clock
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import default_rng as fresh

import firebrick as fb
from firebrick.graph import outside

X = [fb.ones(2)]
FILE = pathlib.Path(__file__)
STREAM = os.open(os.devnull, os.O_RDONLY)
DRAWS = torch.Generator()


def caught(x: fb.Tensor) -> fb.Tensor:
    try:
        return x * time.time()
    except fb.TraceError:
        return x


READS: dict[str, Callable[[fb.Tensor], Any]] = {
    "time.time": lambda x: x * time.time(),
    "a clock by another name": lambda x: x * clock(),
    "monotonic_ns": lambda x: x * (time.monotonic_ns() % 7),
    "datetime.now": lambda x: x * datetime.datetime.now(tz=datetime.UTC).microsecond,
    "date.today": lambda x: x * datetime.date.today().day,
    "localtime": lambda x: x * time.localtime().tm_sec,
    "gmtime": lambda x: x * time.gmtime().tm_sec,
    "strftime": lambda x: x * int(time.strftime("%S")),
    "ctime": lambda x: x * len(time.ctime()),
    "asctime": lambda x: x * len(time.asctime()),
    "clock_gettime": lambda x: x * time.clock_gettime(time.CLOCK_MONOTONIC),
    "clock_gettime_ns": lambda x: x * (time.clock_gettime_ns(time.CLOCK_MONOTONIC) % 7),
    "datetime64": lambda x: x * int(np.datetime64("now").astype(int) % 7),
    "os.times": lambda x: x * os.times().user,
    "getrusage": lambda x: x * resource.getrusage(resource.RUSAGE_SELF).ru_utime,
    "default_rng": lambda x: x * np.random.default_rng().random(),
    "a fresh generator by another name": lambda x: x * fresh().random(),
    "RandomState": lambda x: x * np.random.RandomState().rand(),
    "bit generator": lambda x: x * np.random.Generator(np.random.PCG64()).random(),
    "os.urandom": lambda x: x * os.urandom(1)[0],
    "entropy by another name": lambda x: x * entropy(1)[0],
    "secrets": lambda x: x * secrets.randbelow(9),
    "uuid1": lambda x: x * (uuid.uuid1().int % 7),
    "uuid4": lambda x: x * (uuid.uuid4().int % 7),
    "SystemRandom": lambda x: x * random.SystemRandom().random(),
    "Random": lambda x: x * random.Random().random(),
    "random.random": lambda x: x * random.random(),
    "numpy.random.rand": lambda x: x * np.random.rand(),  # noqa: NPY002
    "torch.rand": lambda x: x * torch.rand(()).item(),
    "torch.randperm": lambda x: x * int(torch.randperm(9)[0]),
    "open": lambda x: x * len(open(__file__).read()),  # noqa: SIM115
    "read_text": lambda x: x * len(FILE.read_text()),
    "numpy.fromfile": lambda x: x * np.fromfile(__file__, np.uint8).size,
    "listdir": lambda x: x * len(os.listdir("/")),
    "iterdir": lambda x: x * len(list(FILE.parent.iterdir())),
    "os.path.exists": lambda x: x * os.path.exists("/"),
    "isfile": lambda x: x * os.path.isfile(__file__),
    "isdir": lambda x: x * os.path.isdir("/"),
    "getsize": lambda x: x * os.path.getsize(__file__),
    "getmtime": lambda x: x * os.path.getmtime(__file__),
    "os.stat": lambda x: x * os.stat(__file__).st_size,
    "os.lstat": lambda x: x * os.lstat(__file__).st_size,
    "access": lambda x: x * os.access("/", os.R_OK),
    "getcwd": lambda x: x * len(os.getcwd()),
    "os.read": lambda x: x * len(os.read(STREAM, 1)),
    "popen": lambda x: x * len(os.popen("echo").read()),
    "Path.exists": lambda x: x * FILE.exists(),
    "Path.is_file": lambda x: x * FILE.is_file(),
    "Path.stat": lambda x: x * FILE.stat().st_size,
    "Path.cwd": lambda x: x * len(str(pathlib.Path.cwd())),
    "resolve": lambda x: x * len(str(FILE.resolve())),
    "a look at a file by a name in a text": lambda x: x * getattr(os.path, "exists")("/"),  # noqa: B009
    "a torch.Generator that seeds itself": lambda x: x * (torch.Generator().seed() % 7),
    "what is caught": caught,
    "in a scan": lambda x: fb.scan(lambda c, t: (c + t * time.time(), None), x[0], x)[0],
    "in a gradient": lambda x: fb.grad(lambda x: fb.sum(x * time.time()))(x),
}


@pytest.mark.parametrize("name", READS)
def test_reading_the_world_outside_in_a_trace_raises(name: str) -> None:
    numbers = random.getstate(), torch.get_rng_state().tolist()
    compiled = fb.jit(READS[name])
    for _ in range(2):
        with pytest.raises(fb.StateChangedError, match="a graph would keep"):
            compiled(X[0])
    assert (random.getstate(), torch.get_rng_state().tolist()) == numbers
    assert sys.getprofile() is None


def test_a_draw_from_a_generator_of_pytorch_raises_and_leaves_it_where_it_was() -> None:
    before = DRAWS.get_state().tolist()
    with pytest.raises(fb.StateChangedError, match=r"DRAWS: random numbers of torch"):
        fb.jit(lambda x: x * torch.rand((), generator=DRAWS).item())(X[0])
    assert DRAWS.get_state().tolist() == before


def test_the_error_names_what_was_read_and_the_line() -> None:
    with pytest.raises(fb.StateChangedError) as caught:
        fb.jit(READS["time.time"])(X[0])
    assert "time.time at" in str(caught.value)
    assert "test_outside_world.py" in str(caught.value)
    assert "pass it in" in str(caught.value)


def logs(x: fb.Tensor) -> fb.Tensor:
    log = logging.getLogger("test of the world outside")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    log.warning("its time stamp is a library's")
    return x


def warns(x: fb.Tensor) -> fb.Tensor:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        warnings.warn("its line is read by a library", stacklevel=1)
    return x * len(time.__name__)


def imports(x: fb.Tensor) -> fb.Tensor:
    sys.modules.pop("colorsys", None)
    import colorsys

    return x * colorsys.ONE_THIRD


def writes(x: fb.Tensor) -> fb.Tensor:
    with open(os.devnull, "w") as file:
        file.write("an effect, which happens while it is traced")
    return x


def makes_folders(x: fb.Tensor) -> fb.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            os.makedirs(os.path.join(folder, "a", "b"), exist_ok=True)
            (pathlib.Path(folder) / "c" / "d").mkdir(parents=True, exist_ok=True)
            (pathlib.Path(folder) / "e").touch()
    return x


def other_branch(x: fb.Tensor, timed: bool = False) -> fb.Tensor:
    return x * time.time() if timed else x * 2.0


def seeded(x: fb.Tensor) -> fb.Tensor:
    own = torch.rand((), generator=torch.Generator().manual_seed(1)).item()
    legacy = np.random.RandomState(1).rand()
    return x * np.random.default_rng(3).random() * random.Random(3).random() * legacy * own


def source(x: fb.Tensor) -> fb.Tensor:
    linecache.clearcache()
    return x * len(linecache.getline(__file__, 1)) + 0.0 * len(open.__name__)


HARMLESS: dict[str, Callable[..., Any]] = {
    "logging": logs, "a warning": warns, "an import": imports, "writing": writes, "a branch not taken": other_branch,
    "seeds": seeded, "source lines": source, "a constant of the module": lambda x: x * time.CLOCK_MONOTONIC,
    "a given time": lambda x: x * datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC).day,
    "the parts of a given time": lambda x: x * time.localtime(0).tm_mon * int(time.strftime("%Y", time.gmtime(0))),
    "a given date of NumPy": lambda x: x * int(np.datetime64("2020-01-02").astype(int)),
    "a text that could name the present": lambda x: x * len("now") * time.CLOCK_MONOTONIC,
    "a path by itself": lambda x: x * len(os.path.join(FILE.name, FILE.parent.name)),
    "folders that are made": makes_folders,
    "sleep": lambda x: (time.sleep(0), x)[1],
    "random numbers of Firebrick": lambda x: x + fb.random.uniform((2,)) * 0.0,
    "the environment": lambda x: x * len(os.environ.get("A_NAME_THAT_IS_NOT_SET", "ab")),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_does_not_raise(name: str) -> None:
    fn = HARMLESS[name]
    compiled = fb.jit(fn)
    for _ in range(2):
        assert compiled(X[0]).tolist() == fn(X[0]).tolist()


@pytest.fixture
def profiler() -> Iterator[list[str]]:
    seen: list[str] = []
    yield seen
    sys.setprofile(None)


def test_a_profiler_goes_on_after_a_trace(profiler: list[str]) -> None:
    timed = cProfile.Profile()
    timed.enable()
    with pytest.raises(fb.StateChangedError):
        fb.jit(READS["time.time"])(X[0])
    assert sys.getprofile() is not None
    timed.disable()

    def note(frame: Any, event: str, arg: Any) -> None:
        profiler.append(event)

    sys.setprofile(note)
    with pytest.raises(fb.StateChangedError):
        fb.jit(READS["time.time"])(X[0])
    assert sys.getprofile() is note


def test_a_training_step_is_not_watched_for_names_in_firebricks_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    # value_and_grad calls a function named ``run``, as subprocess does: every gradient was traced at half the speed
    def never(*_: object) -> None:
        raise AssertionError("watched")

    monkeypatch.setattr(sys.modules["firebrick.graph.capture"], "watched", never)
    model = fb.nn.Linear(2, 2)
    optimizer = fb.optim.Adam(model, lr=0.1)
    step = fb.value_and_grad(lambda model, x: fb.mean(model(x)))

    @fb.jit
    def train(x: fb.Tensor) -> fb.Tensor:
        value, gradients = step(model, x)
        optimizer.update(model, gradients)
        return value

    train(fb.ones((2, 2)))


WATCHED = {**outside._CLOCKS, **{f: text for f, (text, _) in outside._DATES.items()}, **outside._ENTROPY, **outside._LOOKS}


@pytest.mark.parametrize("function", WATCHED, ids=lambda f: f.__name__)
def test_what_is_watched_is_reported_by_its_own_name(function: Any) -> None:
    owner = getattr(function.__self__, "__name__", "")
    prefix = {"posix": "os.", "builtins": ""}.get(owner, f"{owner}.")
    assert WATCHED[function] == prefix + function.__name__
    assert function.__name__ in outside.NAMES, "a function that calls it is watched"
