"""One case under watch: what reading returned or raised, the memory and time it took, and what it did besides.

This must run in a process of its own: the audit hook stays for ever, and a case that crashes or hangs takes its process along.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import PIL.Image
import pyarrow

SECONDS, END = 10.0, 30.0  # after which a case is blocked, and after which its process ends
ROOM = 4 * 2**30  # bytes of addresses that this process may take: a reader without bounds harms no other process
FLOOR = 32 * 2**20  # bytes that reading any file may take: buffers, caches of libraries, and JSON of small files

_PROCESSES = frozenset({
    "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.spawn", "os.system", "os.startfile",
    "pty.spawn"
})  # fmt: skip
_CODE = frozenset({"pickle.find_class", "marshal.loads", "ctypes.dlopen", "socket.connect", "socket.bind"})
_CHANGES = frozenset({
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.chown",
    "shutil.rmtree",
    "shutil.copyfile", "shutil.move", "tempfile.mkstemp", "tempfile.mkdtemp",
})  # fmt: skip


class Blocked(BaseException):
    """A case took too long."""


@dataclass
class Verdict:
    """What came of a case.

    Attributes:
        outcome: "value" or "refused"; empty if it failed otherwise.
        failures: What was wrong, as kind and text.
        peak: Bytes that it took at most, beyond those before.
    """

    outcome: str = ""
    failures: list[tuple[str, str]] = field(default_factory=list)
    peak: int = 0

    def fail(self, kind: str, text: str) -> None:
        """Add a failure."""
        self.failures.append((kind, text[:600]))


_seen: list[tuple[str, tuple[Any, ...]]] | None = None
_at_open: list[Callable[[str], bool]] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in _PROCESSES or event in _CODE or event in _CHANGES or (event == "open" and _writes(*args)):
        _seen.append((event, args))
    elif event == "open" and _at_open and isinstance(args[0], (str, os.PathLike)) and _at_open[-1](os.fspath(args[0])):
        _at_open.clear()


def _writes(path: Any, mode: Any, flags: Any) -> bool:
    if isinstance(path, int):
        return False  # it was opened before, and seen then
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))


def install() -> None:
    """Begin to watch this process."""
    sys.addaudithook(_hook)
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _late)
    used = _status("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


@contextmanager
def unseen() -> Iterator[None]:
    """What is done in this block is not the reader's doing."""
    global _seen
    kept, _seen = _seen, None
    try:
        yield
    finally:
        _seen = kept


def _late(*_: Any) -> None:
    raise Blocked


@contextmanager
def _deadline() -> Iterator[None]:
    faulthandler.dump_traceback_later(END, exit=True)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


_libc = ctypes.CDLL(None)


def _trim() -> None:
    """Give memory that nothing uses back to the system, so that its use is seen again."""
    pyarrow.default_memory_pool().release_unused()
    PIL.Image.core.clear_cache()
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def _listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What is there, without times: a reader may note when a file was last used."""
    return {str(p.relative_to(folder)): (s.st_mode, s.st_size, s.st_ino) for p in folder.rglob("*") for s in (p.lstat(),)}


def watched(
    read: Callable[[Path], Any],
    folder: Path,
    errors: tuple[type[Exception], ...],
    honest: int,
    *,
    writes: tuple[str, ...] = (),
    at_open: Callable[[str], bool] | None = None,
    changes: bool = False,
) -> tuple[Verdict, Any]:
    """Read a folder.

    Args:
        read: Called with the folder.
        folder: Where the files are.
        errors: What it may raise.
        honest: Bytes that the files may make it take, of which it may take three times as many.
        writes: Names of files that it may write.
        at_open: Called with the path when a file is opened, until it returns True.
        changes: Whether the files are changed meanwhile by others.

    Returns:
        The verdict, and the value if there is one.
    """
    global _seen
    found, value = Verdict(), None
    before, seen = _listing(folder), []
    _trim()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    rest = _status("VmRSS")
    _at_open[:] = [] if at_open is None else [at_open]
    _seen = seen
    try:
        with _deadline():
            value = read(folder)
        found.outcome = "value"
    except errors as e:
        found.outcome = "refused"
        text = str(e)
        if not text.isascii() and not _encodes(text):
            found.fail("unprintable", ascii(text))
        elif len(text) > 20_000:
            found.fail("long error", text)
    except Blocked:
        found.fail("blocked", f"no end after {SECONDS:.0f} s")
    except BaseException as e:  # noqa: BLE001 it is what is looked for
        found.fail("foreign error", f"{type(e).__module__}.{type(e).__qualname__}: {e}" + _where(e))
    finally:
        _seen = None
        _at_open.clear()
    found.peak = max(_status("VmHWM") - rest, 0)
    if found.peak > 3 * honest + FLOOR:
        found.fail("memory", f"{found.peak / 2**20:.0f} MiB, where {honest / 2**20:.1f} MiB are honest")
    for event, args in seen:
        if event in _PROCESSES:
            found.fail("process", f"{event} {args!r}")
        elif event in _CODE:
            found.fail("code", f"{event} {args!r}")
        elif not (
            writes and all(os.path.basename(str(a)) in writes for a in args if isinstance(a, (str, Path)) and os.sep in str(a))
        ):
            found.fail("written", f"{event} {args!r}")
    after = _listing(folder)
    changed = sorted(
        n for n in before.keys() | after.keys() if before.get(n) != after.get(n) and os.path.basename(n) not in writes
    )
    if changed and not changes:
        found.fail("written", f"changed: {changed}")
    return found, value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _where(e: BaseException) -> str:
    at = e.__traceback__
    lines = []
    while at is not None:
        lines.append(f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}")
        at = at.tb_next
    return " at " + " > ".join(lines[-6:])
