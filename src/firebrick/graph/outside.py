"""What a trace must not read: clocks, entropy and files, whose values a graph would keep as they were when it was made.

Code that names nothing of the kind is not watched, and pays nothing. Other code is watched while it is traced, in its thread
alone: a profile function sees which built-in functions are called, an audit hook what is opened. What a library does for itself
(a time stamp of ``logging``, source lines of a warning, an import) is let be.
"""

from __future__ import annotations

import datetime
import dis
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

from firebrick.core.errors import StateChangedError
from firebrick.graph.plain import of_library

NAMES = frozenset({
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns",
    "thread_time", "thread_time_ns", "default_timer", "now", "utcnow", "today",
    "urandom", "getrandom", "default_rng", "RandomState", "SeedSequence", "Random", "SystemRandom", "PCG64", "PCG64DXSM",
    "MT19937", "Philox", "SFC64", "secrets", "token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "uuid1",
    "uuid4", "getrandbits", "choice",
    "open", "read_text", "read_bytes", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "fdopen", "FileIO", "listdir",
    "scandir", "glob", "iglob", "rglob", "iterdir", "walk", "fileinput", "input", "reader", "Popen", "run", "check_output",
})  # fmt: skip  # of functions that read the world outside, in the libraries that a walk does not look into
_CLOCKS: dict[Any, str] = {
    getattr(time, n): f"time.{n}"
    for n in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for n in (n, f"{n}_ns")
    if hasattr(time, n)
}
_CLOCKS.update({
    datetime.datetime.now: "datetime.now", datetime.datetime.utcnow: "datetime.utcnow",
    datetime.datetime.today: "datetime.today", datetime.date.today: "date.today", input: "input",
})  # fmt: skip
_ENTROPY: dict[Any, str] = {getattr(os, n): f"os.{n}" for n in ("urandom", "getrandom") if hasattr(os, n)}
_FILES = frozenset({"open", "os.listdir", "os.scandir", "subprocess.Popen", "socket.connect"})
_THROUGH = frozenset({
    "pathlib", "io", "codecs", "numpy", "gzip", "bz2", "lzma", "zipfile", "tarfile", "csv", "configparser", "glob", "os",
    "fileinput", "subprocess", "socket", "shelve", "dbm", "safetensors",
})  # fmt: skip  # libraries that read what the user names
_watch: ContextVar[Callable[[str, FrameType | None], None] | None] = ContextVar("firebrick_outside", default=None)
_hooked = False


@contextmanager
def watched(name: str, refuse: Callable[[Exception], None]) -> Iterator[None]:
    """Raise, for a ``with`` block, where this context reads a clock, entropy or a file.

    Args:
        name: What is traced.
        refuse: Is given the error, which the function may catch.
    """
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)

    def found(what: str, frame: FrameType | None) -> None:
        line = "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        error = StateChangedError(
            f"{name} reads the world outside while it is traced, and a graph would keep what it read",
            f"{what} at {line}",
            "read it before the call and pass it in; random numbers are those of fb.random",
        )
        refuse(error)
        raise error

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event != "c_call":
            return
        what = _CLOCKS.get(arg)
        if what is not None and not _library(frame):
            found(what, frame)
        what = _ENTROPY.get(arg) or _entropy(getattr(arg, "__name__", ""), frame)
        if what is not None and not _importing(frame):
            user = _user(frame)
            if not _replaced(user):
                found(what, user)

    before = sys.getprofile()
    if before is not None and hasattr(before, "disable"):  # cProfile, which is no function
        before.disable()
    token = _watch.set(found)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        _watch.reset(token)
        if before is not None:
            before.enable() if hasattr(before, "enable") else sys.setprofile(before)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event not in _FILES:
        return
    found = _watch.get()
    if found is None or (event == "open" and not _reads(*args)):
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (_root(frame) in _THROUGH or frame.f_code.co_filename.startswith("<frozen ")):
        if "importlib" in frame.f_code.co_filename:
            return
        frame = frame.f_back
    if frame is not None and not _library(frame):
        what = f"{'reading' if event == 'open' else event} {args[0]!r:.80}" if args else event
        found(what, frame)


def _reads(path: Any, mode: Any, flags: Any) -> bool:
    """Whether a file is opened to be read."""
    if isinstance(mode, str):
        return "r" in mode or "+" in mode
    return isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) != os.O_WRONLY | os.O_CREAT


def _root(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _library(frame: FrameType) -> bool:
    return of_library(str(frame.f_globals.get("__name__", "")))


def _user(frame: FrameType | None) -> FrameType | None:
    while frame is not None and _library(frame):
        frame = frame.f_back
    return frame


def _importing(frame: FrameType | None) -> bool:
    """Whether a Python module is being imported: what it draws then is its own."""
    while frame is not None and _library(frame):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _entropy(called: str, frame: FrameType) -> str | None:
    """``random.Random()`` seeds itself, and ``uuid1`` counts, in code that calls no other function."""
    if called == "seed" and _root(frame) == "random" and frame.f_locals.get("a", 0) is None:
        return "random.Random()"
    return "uuid.uuid1" if called == "generate_time_safe" else None


def _replaced(frame: FrameType | None) -> bool:
    """Whether this line makes a ``numpy.random.RandomState(seed)``, which draws entropy first and then takes its seed."""
    if frame is None or "RandomState" not in frame.f_code.co_names:
        return False
    call = next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)
    return call is not None and call.opname in ("CALL", "CALL_KW") and call.arg != 0
