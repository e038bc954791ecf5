"""Programs in forks of a process that has imported what they need: each begins as one of its own would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest

import firebrick as fb

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="programs are forks")
STATE = """
import os, sys
print(sorted(n for n in globals() if not n.startswith("__")), sys.argv, __name__, sys.modules["__main__"].__dict__ is globals())
print(os.getcwd(), sys.stdin.read(), os.environ.get("PYTEST_CURRENT_TEST"), sys.path)
"""


def test_a_program_finds_what_it_finds_in_a_new_interpreter(tmp_path: Path) -> None:
    variables = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    if folders := variables.get("PYTHONPATH"):  # relative ones are of the folder that the tests began in
        variables["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, folders.split(os.pathsep)))
    new = subprocess.run(
        [sys.executable, "-c", STATE, "a", "b"], capture_output=True, text=True, check=True, cwd=tmp_path, env=variables,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert forked.run(STATE, "a", "b", cwd=tmp_path).stdout == new.stdout
    (tmp_path / "program.py").write_text(f"print(__file__){STATE}", "utf-8")
    new = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), "a"], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=variables, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert forked.run(tmp_path / "program.py", "a", cwd=tmp_path).stdout == new.stdout


def test_nothing_of_a_program_is_there_in_the_next_one(tmp_path: Path) -> None:
    changes = """
import os, firebrick as fb
left = fb.asarray([1.0]) + 1
os.environ["LEFT"] = "1"
fb.config.verify_graphs = not fb.config.verify_graphs
"""
    looks = """
import os, firebrick as fb
print("left" in globals(), "LEFT" in os.environ, fb.config.verify_graphs)
"""
    first = forked.run(looks, cwd=tmp_path).stdout
    assert first.split()[:2] == ["False", "False"]
    assert forked.run(changes, cwd=tmp_path).returncode == 0
    assert forked.run(looks, cwd=tmp_path).stdout == first


def test_a_server_has_one_thread(tmp_path: Path) -> None:
    program = """
import os, threading
print(len(os.listdir("/proc/self/task")) if os.path.exists("/proc") else 1, threading.active_count())
"""
    for needs in ((), ("torch",)):
        assert forked.run(program, cwd=tmp_path, needs=needs).stdout.split() == ["1", "1"]


def test_variables_are_read_as_settings_and_those_of_this_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import firebrick as fb; print(fb.config.device, fb.asarray([1.0]).device)"
    assert forked.run(program, cwd=tmp_path, variables={"FIREBRICK_DEVICE": "numpy"}).stdout == "numpy numpy:0\n"
    monkeypatch.setenv("FIREBRICK_DEVICE", "numpy")
    assert forked.run(program, cwd=tmp_path).stdout == "numpy numpy:0\n"
    assert forked.run("import os; print(os.environ.get('A'))", cwd=tmp_path, variables={"A": "1"}).stdout == "1\n"


@pytest.mark.parametrize(
    ("program", "code", "out", "err"),
    [
        ("import sys; print(1); sys.exit(3)", 3, "1\n", ""),
        ("import sys; sys.exit('why')", 1, "", "why\n"),
        ("print(", 1, "", "SyntaxError"),
        ("raise ValueError('why')", 1, "", "ValueError: why"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, "", ""),
        ("import os; os._exit(4)", 4, "", ""),
        ("import atexit, threading\natexit.register(print, 2)\nthreading.Timer(0.1, print, [1]).start()", 0, "1\n2\n", ""),
        ("import warnings; warnings.warn('why')", 0, "", "UserWarning: why"),
    ],
)
def test_a_program_ends_as_in_a_process_of_its_own(program: str, code: int, out: str, err: str, tmp_path: Path) -> None:
    done = forked.run(program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, out)
    assert err in done.stderr
    assert bool(err) == bool(done.stderr)


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run("while True: pass", cwd=tmp_path, timeout=1)
    assert forked.run("print(1)", cwd=tmp_path).stdout == "1\n"


def test_a_server_ends_with_the_process_that_asked_it(tmp_path: Path) -> None:
    program = """
import os, forked
from pathlib import Path
print(forked.run("print(1)", cwd=Path.cwd()).stdout, flush=True)
os._exit(0)
"""
    shared = str(Path(forked.__file__).parent)
    paths = os.pathsep.join([shared, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(  # it waits until nobody has its streams any more, as the server has
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert done.stdout == "1\n\n"


def test_the_time_of_programs_is_counted(tmp_path: Path) -> None:
    forked.run("", cwd=tmp_path)
    before = forked.spent()
    forked.run("import time\nwhile time.process_time() < 0.5: pass", cwd=tmp_path)
    assert forked.spent() - before > 0.45


def test_a_fork_gives_the_values_of_this_process(tmp_path: Path) -> None:
    program = "import firebrick as fb; print(fb.jit(lambda x: fb.exp(fb.sin(x)))(fb.arange(4.0)).tolist())"
    assert forked.run(program, cwd=tmp_path).stdout == f"{fb.jit(lambda x: fb.exp(fb.sin(x)))(fb.arange(4.0)).tolist()}\n"
