"""Clocks, entropy and files: a trace must not read them, since a graph would keep their values as they were then.

Code that names none of these is not watched, at no cost. Other code is watched while it is traced, in its thread
alone: a profile function sees which built-in functions are called, an audit hook which files are opened. Reads that a library
makes for itself (a time stamp of ``logging``, source lines of a warning, an import) are allowed.
"""

from __future__ import annotations

import datetime
import dis
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any

from firebrick.core.errors import StateChangedError
from firebrick.graph.plain import of_library

NAMES = frozenset({
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns",
    "thread_time", "thread_time_ns", "default_timer", "now", "utcnow", "today", "clock_gettime", "clock_gettime_ns",
    "localtime", "gmtime", "strftime", "ctime", "asctime", "datetime64", "times", "getrusage",
    "urandom", "getrandom", "default_rng", "RandomState", "SeedSequence", "Random", "SystemRandom", "PCG64", "PCG64DXSM",
    "MT19937", "Philox", "SFC64", "secrets", "token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "uuid1",
    "uuid4", "getrandbits", "choice", "seed",
    "open", "read_text", "read_bytes", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "fdopen", "FileIO", "listdir",
    "scandir", "glob", "iglob", "rglob", "iterdir", "walk", "fileinput", "input", "reader", "Popen", "run", "check_output",
    "popen", "stat", "lstat", "fstat", "statvfs", "access", "getcwd", "getcwdb", "cwd", "read", "pread", "readlink", "exists",
    "lexists", "isfile", "isdir", "islink", "ismount", "samefile", "getsize", "getmtime", "getatime", "getctime", "is_file",
    "is_dir", "is_symlink", "is_mount", "resolve", "absolute", "realpath", "abspath", "relpath", "owner", "group",
})  # fmt: skip  # of functions that read the world outside, in the libraries that a walk does not look into
_CLOCKS: dict[Any, str] = {
    getattr(time, n): f"time.{n}"
    for n in ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
    for n in (n, f"{n}_ns")
    if hasattr(time, n)
}
_CLOCKS.update({
    datetime.datetime.now: "datetime.now", datetime.datetime.utcnow: "datetime.utcnow",
    datetime.datetime.today: "datetime.today", datetime.date.today: "date.today", input: "input", os.times: "os.times",
})  # fmt: skip
_DATES: dict[Any, tuple[str, int]] = {
    time.localtime: ("time.localtime", 0), time.gmtime: ("time.gmtime", 0), time.ctime: ("time.ctime", 0),
    time.asctime: ("time.asctime", 0), time.strftime: ("time.strftime", 1),
}  # fmt: skip  # they read the clock where they are given no time: called with no more arguments than these
_NOW = frozenset({"now", "today"})  # what ``numpy.datetime64`` makes the present time of
_ENTROPY: dict[Any, str] = {getattr(os, n): f"os.{n}" for n in ("urandom", "getrandom") if hasattr(os, n)}
_FILES = frozenset({"open", "os.listdir", "os.scandir", "subprocess.Popen", "socket.connect"})
_LOOKS: dict[Any, str] = {
    getattr(os, n): f"os.{n}"
    for n in ("stat", "lstat", "fstat", "statvfs", "access", "getcwd", "getcwdb", "read", "pread", "readlink")
    if hasattr(os, n)
}
_EFFECTS = frozenset({"makedirs", "mkdir", "touch", "unlink", "removedirs"})  # they read only what they are about to change
_THROUGH = frozenset({
    "pathlib", "io", "codecs", "numpy", "gzip", "bz2", "lzma", "zipfile", "tarfile", "csv", "configparser", "glob", "os",
    "fileinput", "subprocess", "socket", "shelve", "dbm", "safetensors", "posixpath", "ntpath", "genericpath", "filecmp",
})  # fmt: skip  # libraries that read what the user names
with suppress(ImportError):  # not on every platform
    import resource

    _CLOCKS[resource.getrusage] = "resource.getrusage"
_watch: ContextVar[Callable[[str, FrameType | None], None] | None] = ContextVar("firebrick_outside", default=None)
_hooked = False


@contextmanager
def watched(name: str, refuse: Callable[[Exception], None]) -> Iterator[None]:
    """Raise, for a ``with`` block, where this context reads a clock, entropy or a file.

    Args:
        name: Name of the traced function.
        refuse: Called with the error, which the function may catch.
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
        if event == "call" and _present(frame):
            found("numpy.datetime64 of the present time", frame)
        if event != "c_call":
            return
        what = _CLOCKS.get(arg) or _date(arg, frame)
        if what is not None and not _library(frame):
            found(what, frame)
        what = _LOOKS.get(arg)
        if what is not None and (user := _named_by(frame)) is not None:
            found(what, user)
        what = _ENTROPY.get(arg) or _entropy(arg, frame)
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
    frame = _named_by(sys._getframe(1))
    if frame is not None:
        what = f"{'reading' if event == 'open' else event} {args[0]!r:.80}" if args else event
        found(what, frame)


def _named_by(frame: FrameType | None) -> FrameType | None:
    """The user's code that asks for a file, itself or through a library that reads a file for it."""
    while frame is not None and (_root(frame) in _THROUGH or frame.f_code.co_filename.startswith("<frozen ")):
        if "importlib" in frame.f_code.co_filename or frame.f_code.co_name in _EFFECTS:
            return None
        frame = frame.f_back
    return None if frame is None or _library(frame) else frame


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
    """Whether a Python module is being imported: its draws do not belong to the user's code."""
    while frame is not None and _library(frame):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _date(called: Any, frame: FrameType) -> str | None:
    """The function of the present date that is called without a time."""
    what, most = _DATES.get(called, (None, 0))
    if what is None:
        return None
    call = _call(frame)
    return what if call is None or call.arg is None or call.opname == "CALL_FUNCTION_EX" or call.arg <= most else None


def _present(frame: FrameType) -> bool:
    """Whether this code, which begins to run, makes a ``numpy.datetime64`` of the present: a class is called, which no profile
    function sees."""
    code = frame.f_code
    return (
        "datetime64" in code.co_names
        and not _NOW.isdisjoint(c for c in code.co_consts if isinstance(c, str))
        and not _library(frame)
    )


def _entropy(called: Any, frame: FrameType) -> str | None:
    """``random.Random()`` and a ``torch.Generator`` seed themselves, and ``uuid1`` counts, without other calls."""
    name = getattr(called, "__name__", "")
    if name == "seed":
        if _root(frame) == "random" and frame.f_locals.get("a", 0) is None:
            return "random.Random()"
        return "torch.Generator.seed" if type(getattr(called, "__self__", None)).__module__.startswith("torch") else None
    return "uuid.uuid1" if name == "generate_time_safe" else None


def _call(frame: FrameType) -> dis.Instruction | None:
    """The call that a frame is at."""
    return next(
        (i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti and i.opname.startswith("CALL")), None
    )


def _replaced(frame: FrameType | None) -> bool:
    """Whether this line makes a ``numpy.random.RandomState(seed)``, which draws entropy first and then takes its seed."""
    if frame is None or "RandomState" not in frame.f_code.co_names:
        return False
    call = _call(frame)
    return call is not None and call.opname in ("CALL", "CALL_KW") and call.arg != 0
