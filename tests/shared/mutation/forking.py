"""pytest in a child process that is forked from one in which the slow libraries are imported already.

Starting Python, pytest and torch takes longer than most of the tests that are to be run. So the parent imports what a mutant
cannot change, never Firebrick itself, and each run is a fork. A child leads a session of its own; what it starts is found by
the session or by a variable of its environment, and is killed with it.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_MARK = "MUTATION_RUN"
_LIBRARIES = (
    "numpy",
    "ml_dtypes",
    "optree",
    "hypothesis",
    "pytest",
    "_pytest.pastebin",
    "llvmlite.binding",
    "torch",
    "click",
    "rich",
)


def preload() -> None:
    """Import what every run needs. The number of threads is settled here, since libraries read it once."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in _LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)


class Child:
    """A forked process that runs one function and ends with the number that it returns.

    Attributes:
        pid: Its process, the leader of a session.
        begun: When it was started, by the clock of `time.monotonic`.
    """

    def __init__(self, run: Callable[[], int], folder: Path, log: Path, environment: dict[str, str]) -> None:
        assert "firebrick" not in sys.modules, "a child must import the sources of its own folder"
        self._mark = uuid.uuid4().hex
        self._gone: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.begun = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_child(run, folder, log, {**environment, _MARK: self._mark}))

    def poll(self) -> int | None:
        """The exit status, negative for a signal, or None while it runs."""
        if self._gone is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._gone = os.waitstatus_to_exitcode(status)
        return self._gone

    def processes(self) -> list[int]:
        """The child and all it has started, children of children included, also in sessions of their own."""
        found, mark = [], f"{_MARK}={self._mark}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):
                session = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3])
                if session == self.pid or mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def memory(self) -> int:
        """Bytes in memory of all its processes."""
        total = 0
        for pid in self.processes():
            with suppress(OSError, ValueError, IndexError):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return total * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End it and all it has started; until none is left, since a process may start another while it is looked for."""
        while True:
            left = [p for p in self.processes() if p != self.pid or self.poll() is None]
            with suppress(ProcessLookupError):
                if self._gone is None:
                    os.killpg(self.pid, signal.SIGKILL)
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not [p for p in left if not _zombie(p)] and self.poll() is not None:
                return
            time.sleep(0.02)


def _zombie(pid: int) -> bool:
    """Whether a process has ended and waits only for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def _child(run: Callable[[], int], folder: Path, log: Path, environment: dict[str, str]) -> int:
    """What happens in the child."""
    code = 70
    own = {os.getcwd(), *(str(Path(p)) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep))}
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, goal in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(fd, goal)
        os.chdir(folder)
        os.environ.update(environment)
        paths = [str(folder / "src"), str(folder / "tests/shared")]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        sys.path[:] = [*paths, str(folder), *(p for p in sys.path if p and p not in own)]
        sys.modules["__main__"] = importlib.import_module("pytest.__main__")  # what processes that tests start look at
        sys.argv = ["pytest"]
        code = run()
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
    return code
