"""Fixtures of all tests: the engines, by name, and the seed of the conformance cases.

An engine that cannot be used here is skipped by name and listed at the end of the run; one that
``FIREBRICK_REQUIRE_ENGINES`` (or ``fb.config.require_engines``) names fails the run instead.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any

import pytest
from combinations import take_turns
from hypothesis import HealthCheck, settings

# The workers of a run share the cores: threads of NumPy and PyTorch that wait for each other take time from other tests
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # others are processes that import PyTorch

# PyTorch looks up the names of addresses that it connects to; a name server that is slow must not fail a test
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job; programs that tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

if sys.dont_write_bytecode and sys.pycache_prefix is None:
    # As containers often set it. Some hundred processes would each compile all sources again: what is compiled is kept apart
    # from the sources, for them and for the next run.
    kept = os.environ.get("FIREBRICK_CACHE_DIR") or os.path.expanduser("~/.cache/firebrick-tests")
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(kept, "python")
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import firebrick as fb
from firebrick.compiler.cache import system_caches
from firebrick.compiler.targets.llvm import lower as lowering
from firebrick.core.config import config
from firebrick.testing import engines
from firebrick.testing.engines import DEVICES


def _kept_folder() -> str:
    """Where code that the tests compile is kept for the next run."""
    try:
        return str(system_caches() / "firebrick-tests")
    except RuntimeError:  # no home directory
        folder = tempfile.mkdtemp(prefix="firebrick-tests-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder


if "FIREBRICK_CACHE_DIR" not in os.environ:
    # Code of the tests, and of the programs they start, is theirs alone. An object is found only by all that it depends on, and
    # checked when it is read. What must begin with an empty cache makes one of its own.
    os.environ["FIREBRICK_CACHE_DIR"] = _kept_folder()
    config.load_environment()

if "FIREBRICK_CACHE_PLANS" not in os.environ:
    # Tests look at what the compiler does, with parts of it replaced: a program of an earlier run would show nothing of that.
    os.environ["FIREBRICK_CACHE_PLANS"] = "off"
    config.load_environment()

# PyTorch compiles what it once generated for one width of vectors for another, where ATEN_CPU_CAPABILITY changed in between:
# stores then go behind their arrays. So each value of that variable has a folder of its own.
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR",
    os.path.join(os.environ["FIREBRICK_CACHE_DIR"], f"inductor-{os.environ.get('ATEN_CPU_CAPABILITY', 'own')}"),
)

# examples are the same in every run, and a slow machine is no failure
settings.register_profile(
    "firebrick", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("firebrick")

SEED = int(os.environ.get("CONFORMANCE_SEED", "0"))


def _engine_params() -> list[Any]:
    missing = engines().missing
    skips = {n: [pytest.mark.skip(reason=f"engine {n} cannot be used here: {why}")] for n, why in missing.items()}
    # a driver in software needs minutes for what takes seconds elsewhere; tests/backends/webgpu has what runs each time
    rare = {"webgpu": [pytest.mark.soak]}
    return [pytest.param(d, id=d, marks=[*rare.get(n, []), *skips.get(n, [])]) for n, d in DEVICES.items()]


@pytest.fixture(scope="session", params=_engine_params())
def device(request: pytest.FixtureRequest) -> str:
    """One device string of every engine; tests of an engine that cannot be used here are skipped by its name."""
    return str(request.param)


@pytest.fixture
def train_alike() -> Callable[..., None]:
    """Trains a layer of ours beside torch's (see ``parity.py``); skips where torch is not installed."""
    pytest.importorskip("torch", reason="torch, to compare with")
    import parity

    return parity.train_alike


@pytest.fixture
def seed() -> int:
    """The seed of the conformance cases, printed at the start and the end of the run (CONFORMANCE_SEED sets it)."""
    return SEED


@pytest.fixture(autouse=True)
def settings_as_they_were(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a setting changed; graphs are checked after each pass. On webgpu, which leaves some ops to the host, tests
    of every engine are no tests of its warning."""
    own = {"fallback": "silent"} if _parameter(request.node, "device") == "webgpu" else {}
    with config.scope(verify_graphs=True, **own):
        yield


def _parameter(item: Any, name: str) -> Any:
    """A parameter of a test; None if it has none of this name."""
    return item.callspec.params.get(name) if hasattr(item, "callspec") else None


_REFUSED = ("cannot store float64", "cannot store complex128", "tensors cannot be exported by DLPack")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """A test of every engine that needs what WebGPU does not have, and refuses by name, is skipped there."""
    try:
        return (yield)
    except (fb.DTypeError, fb.UnsupportedError, AssertionError) as e:  # also where another message was expected
        if _parameter(item, "device") == "webgpu" and any(text in str(e) for text in _REFUSED):
            pytest.skip(f"webgpu: {str(e).strip()}")
        raise


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests take turns, and long tests are first, so that no worker is left with one while the others have nothing to do."""
    take_turns(items)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


# Kernels of programs that are gone are kept to the end of a file, whose tests compile the same ones again and again; but not
# where a test replaces something, which may be a part of the compiler.
lowering.kept = deque(maxlen=1 << 14)


def _forgetting(method: Callable[..., None]) -> Callable[..., None]:
    @wraps(method)
    def changed(*args: Any, **kwargs: Any) -> None:
        method(*args, **kwargs)
        lowering.kept.clear()

    return changed


for _name in ("setattr", "delattr", "setitem", "delitem", "undo"):
    setattr(pytest.MonkeyPatch, _name, _forgetting(getattr(pytest.MonkeyPatch, _name)))


def _leave_to_no_later_search() -> None:
    """Free what is garbage, and let later searches for garbage skip all that is there: many tests begin with one."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which may be disabled
def pytest_xdist_auto_num_workers() -> int | None:
    """``-n auto`` is a worker more than there are cores: at any time one of them may wait, for a process or a time limit."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:  # pytest-xdist reads it
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


def pytest_configure(config: pytest.Config) -> None:
    """Imports and collection make millions of objects, of which few are garbage: automatic searches are rare meanwhile."""
    gc.set_threshold(100_000, 50, 100)
    if hasattr(config, "workerinput") and not getattr(config.option, "xmlpath", None):
        (worker,) = (p for p in config.pluginmanager.get_plugins() if hasattr(p, "sendevent"))
        worker.sendevent = partial(_sent, worker.sendevent)


def _sent(send: Callable[..., None], name: str, **what: Any) -> None:
    """A worker sends six messages of each test: those that nobody shows, its beginning and end and that its fixtures were made
    and ended well, took half of what it costs to pass a test on."""
    of = what.get("data", {})
    unshown = name == "testreport" and of.get("outcome") == "passed" and of.get("when") != "call"
    if not unshown and name not in ("logstart", "logfinish"):
        send(name, **what)


def pytest_collection_finish() -> None:
    """Collection made some millions of objects. Automatic searches take place less often than Python's default in tests too,
    where they took 7 % of the time."""
    _leave_to_no_later_search()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """What the tests of a file imported, compiled and kept is looked through once, at the end of the file."""
    try:
        return (yield)
    finally:
        if nextitem is not None and nextitem.path != item.path:
            lowering.kept.clear()
            _leave_to_no_later_search()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(report: Any) -> Any:
    """A worker sends three reports of each test, whose keywords are read only where it was skipped or failed."""
    data = yield
    if data is not None and getattr(report, "passed", False):
        data["keywords"] = {}
    return data


def pytest_report_header() -> str:
    return f"firebrick {fb.__version__}: engines {', '.join(engines().usable)}; conformance seed {SEED}"


def _required_but_missing() -> dict[str, str]:
    missing = engines().missing
    known = {name: missing.get(name) for name in DEVICES}
    return {
        name: known.get(name) or "no such engine"
        for name in config.require_engines
        if known.get(name, "no such engine") is not None
    }


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _required_but_missing() and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, reason in engines().missing.items():
        terminalreporter.write_line(f"engine {name} was not tested: {reason}", yellow=True)
    for name, reason in _required_but_missing().items():
        terminalreporter.write_line(f"engine {name} is required (FIREBRICK_REQUIRE_ENGINES): {reason}", red=True)
    terminalreporter.write_line(f"conformance seed {SEED} (CONFORMANCE_SEED={SEED} repeats it)")


@pytest.fixture
def numpy_kernels() -> Iterator[None]:
    """What ``cpu`` compiles has the bits of what it runs eagerly: on NumPy's kernels, since its own round in their own way."""
    with fb.config.scope(cpu_compile=False):
        yield


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page of headless Chromium."""
    from chromium import browser, chromium

    if chromium() is None:
        pytest.skip("Chromium, to open exported pages in, is not installed")
    with browser(tmp_path_factory.mktemp("chromium") / "profile") as found:
        yield found
