"""Python programs in processes that are forked from one that has imported what they need: what takes longest in most of them.

:func:`run` is for programs that import Firebrick and do something. What is to be said of a new interpreter, of its options, or
of variables that are read as something is imported needs ``subprocess``.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

COMMON = (
    "numpy.random", "doctest", "inspect", "unittest", "multiprocessing", "llvmlite.binding", "llvmlite.ir", "firebrick.analog",
    "firebrick.data", "firebrick.models", "firebrick.train", "firebrick.testing", "firebrick.functions.kernels",
    "firebrick.backends.cpu", "firebrick.compiler.targets.llvm.variants", "firebrick.compiler.tune.whole_programs",
    "firebrick.cli.main",
)  # fmt: skip
"""What a server imports, by default."""


def run(
    program: str | Path,
    *arguments: str,
    cwd: Path,
    variables: Mapping[str, str] | None = None,
    paths: Iterable[str | Path] = (),
    needs: Iterable[str] = (),
    common: Iterable[str] = COMMON,
    timeout: int = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``python -c program arguments`` or ``python file arguments`` would.

    The process has a ``__main__`` of its own with nothing in it, ``sys.argv``, no input, and nothing that Firebrick computed;
    modules are imported already. Where processes cannot be forked, or coverage measures each that starts, it is a new one.

    Args:
        program: The text of a program, or its file.
        arguments: Of the command.
        cwd: The folder where it runs.
        variables: Of the environment, beside those of this process; Firebrick's settings are read again.
        paths: Folders where modules are looked for, as in ``PYTHONPATH``, which counts as it was when this process began.
        needs: Further modules that are imported before, where they are there.
        common: Modules that are imported before; without Firebrick's for a program that is about their import.
        timeout: Seconds.

    Returns:
        The exit code (that of a signal is negative) and what was written.

    Raises:
        subprocess.TimeoutExpired: When the time is over; the process is ended.
    """
    command = [sys.executable, *([str(program)] if isinstance(program, Path) else ["-c", program]), *arguments]
    given, folders = dict(variables or {}), [str(path) for path in paths]
    if not hasattr(os, "fork") or "COVERAGE_PROCESS_START" in os.environ:
        given["PYTHONPATH"] = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | given, timeout=timeout
        )
    inherited = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    with tempfile.TemporaryDirectory() as folder:
        asked = {
            "program": command[1:], "cwd": str(cwd), "variables": given, "paths": folders, "timeout": timeout, "output": folder
        }  # fmt: skip
        code = _server(frozenset(inherited.items()), (*common, *needs)).ask(asked)
        out, err = (Path(folder, name).read_text(errors="replace") for name in ("out", "err"))
    if code == -signal.SIGALRM:
        raise subprocess.TimeoutExpired(command, timeout, out, err)
    return subprocess.CompletedProcess(command, code, out, err)


def printed_with_numpy_alone(program: str, cwd: Path) -> str:
    """What a program prints, without spaces around it, in a process that has imported NumPy and nothing of Firebrick."""
    done = run(f"import sys; assert 'firebrick' not in sys.modules\n{program}", cwd=cwd, common=("numpy.random",))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class _Server:
    """A process that imports and forks. It ends when this one does."""

    def __init__(self, environment: dict[str, str], modules: tuple[str, ...]) -> None:
        folder = str(Path(__file__).parent)
        begin = f"import sys; sys.path.insert(1, {folder!r}); from forked import serve; exec(serve())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", begin, *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.seconds = 0.0
        atexit.register(self.end)

    def ask(self, what: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        code, self.seconds = json.loads(self.process.stdout.readline())
        return int(code)

    def end(self) -> None:
        self.process.communicate()
        self.seconds = 0.0


@cache
def _server(environment: frozenset[tuple[str, str]], modules: tuple[str, ...]) -> _Server:
    _started.append(_Server(dict(environment), modules))
    return _started[-1]


_started: list[_Server] = []


def spent() -> float:
    """Seconds of processor time of servers that have not ended, and of what they ran."""
    return sum(server.seconds for server in _started)


def serve() -> CodeType:
    """Read what to run, line by line, and answer with the exit code and the seconds spent so far. A fork returns the program
    to the top level of its interpreter, which then runs it and ends as it ends any other."""
    for name in sys.argv[1:]:
        if find_spec(name) is not None:
            import_module(name)
    gc.freeze()  # forks share what is imported, and do not search it for garbage
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, and ends this process with them
    while line := os.read(0, 1 << 20):
        while not line.endswith(b"\n"):
            line += os.read(0, 1 << 20)
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            return _become(asked)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        answer = json.dumps([code, sum(u.ru_utime + u.ru_stime for u in used)])
        os.write(1, answer.encode() + b"\n")
    return compile("", "", "exec")


def _become(asked: dict[str, Any]) -> CodeType:
    """Make this process one that has just been started, but for what it has imported."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(asked["timeout"])
    for number, path in enumerate((os.devnull, f"{asked['output']}/out", f"{asked['output']}/err")):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(asked["cwd"])
    os.environ.update(asked["variables"])
    if "firebrick" in sys.modules:
        sys.modules["firebrick"].config.load_environment()
    sys.path[1:2] = asked["paths"]  # in place of this file's folder
    main = vars(sys.modules["__main__"])
    del main["sys"], main["serve"]
    first, *arguments = asked["program"]
    if first == "-c":
        sys.argv[:] = ["-c", *arguments[1:]]
        return compile(arguments[0], "<string>", "exec")
    sys.argv[:] = [first, *arguments]
    sys.path[0] = str(Path(first).parent.resolve())
    main["__file__"] = first
    return compile(Path(first).read_text("utf-8"), first, "exec")
