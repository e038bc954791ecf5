"""``firebrick launch`` on programs that need no library: what they are told, and what becomes of their output and end."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import click
import pytest
from click.testing import Result
from ranks import LAUNCH

import firebrick as fb
from firebrick import distributed
from firebrick.cli import launch, placing
from firebrick.distributed import Group, session

Run = Callable[..., Result]

TELL = """
import os, sys
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "FIREBRICK_DISTRIBUTED_BACKEND"]
print(" ".join([*(os.environ[n] for n in names), *sys.argv[1:]]) + "\\n", end="", flush=True)
print(os.environ["FIREBRICK_NUM_THREADS"], os.environ["OMP_NUM_THREADS"], file=open(os.environ["RANK"] + ".threads", "w"))
"""
WAIT = """
import os, signal, sys
if os.environ["RANK"] == "1":
    print("about to fail", flush=True)
    {failure}
signal.pause()
"""


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FIREBRICK_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "tell.py"
    path.write_text(TELL)
    return path


def test_each_rank_gets_its_variables_and_the_arguments(run: Run, tell: Path) -> None:
    done = run("launch", "-n", 3, tell, "--epochs", 2, "-x")
    assert done.exit_code == 0, done.output
    want = [f"[rank {r}] {r} 3 {r} 3 0 127.0.0.1 gloo --epochs 2 -x" for r in range(3)]
    assert sorted(done.stdout.splitlines()) == want
    threads = str(max(1, len(os.sched_getaffinity(0)) // 3))
    assert Path("2.threads").read_text().split() == [threads, threads]


@pytest.mark.parametrize(("allowed", "threads"), [(6, "3"), (1, "1"), (None, "32")])
def test_ranks_share_the_cores_that_this_process_may_use(
    run: Run, tell: Path, monkeypatch: pytest.MonkeyPatch, allowed: int | None, threads: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    if allowed is None:  # as on macOS
        monkeypatch.delattr(os, "sched_getaffinity")
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(allowed)))
    assert run("launch", "-n", 2, tell).exit_code == 0
    assert Path("1.threads").read_text().split() == [threads, threads]


def test_threads_that_the_user_set_are_kept(run: Run, tell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIREBRICK_NUM_THREADS", "7")
    assert run("launch", "-n", 1, tell).exit_code == 0
    assert Path("0.threads").read_text().split() == ["7", "7"]


def test_ranks_are_numbered_over_hosts(run: Run, tell: Path) -> None:
    done = run("launch", "-n", 2, "--nodes", 3, "--node-rank", 2, "--master", "10.0.0.1:29500", "--backend", "nccl", tell)
    assert sorted(done.stdout.splitlines()) == ["[rank 4] 4 6 0 2 2 10.0.0.1 nccl", "[rank 5] 5 6 1 2 2 10.0.0.1 nccl"]


def test_a_module_and_a_command_of_firebrick_can_be_launched(run: Run) -> None:
    assert sorted(run("launch", "-n", 2, "firebrick", "--version").stdout.splitlines()) == [
        f"[rank {r}] firebrick {__import__('firebrick').__version__}" for r in range(2)
    ]
    assert run("launch", "-n", 1, "-m", "keyword").exit_code == 0


@pytest.mark.parametrize("python", ["python", "python3", sys.executable])
def test_python_with_arguments_of_its_own_can_be_launched(run: Run, python: str) -> None:
    program = "import os, sys; print(os.environ['RANK'], sys.argv[1:])"
    done = run("launch", "-n", 2, "--", python, "-c", program, "--epochs", 2)
    assert sorted(done.stdout.splitlines()) == [f"[rank {r}] {r} ['--epochs', '2']" for r in range(2)]


def test_other_names_of_this_interpreter_are_known_and_other_programs_refused(run: Run) -> None:
    here = Path(sys.executable)
    for name in (os.path.relpath(here), here.with_name("python3")):
        done = run("launch", "-n", 1, "--", name, "-c", "print(1 + 1)")
        assert done.stdout == "[rank 0] 2\n", done.output
    done = run("launch", "-n", 2, "--", "/bin/ls", "-l")
    assert done.exit_code == 2
    assert "/bin/ls is no Python file; write python for this interpreter" in " ".join(done.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["alone", "over ranks"])
def test_a_training_over_ranks_ends_with_the_test_of_what_it_trained_and_goes_on(run: Run, tmp_path: Path, again: bool) -> None:
    pytest.importorskip("torch", reason="torch, whose gloo carries the data")
    out = tmp_path / "run"
    train = ["firebrick", "train", "digits", "--model", "mlp", "--epochs", 1, "--out", out]
    done = run("launch", "-n", 2, *train)
    assert done.exit_code == 0, done.output
    said = done.stdout.splitlines()
    assert "[rank 0] 2 processes of firebrick launch train one model together: --strategy distributed" in said
    assert not list(tmp_path.glob("run-*"))
    assert any(line.startswith("[rank 0] 2 ranks share each batch") for line in said)
    assert any(line.startswith("[rank 0] test accuracy") for line in said)
    assert not any("test accuracy" in line for line in said if line.startswith("[rank 1]"))
    assert (out / "confusion.png").exists()

    # it goes on in one process, and in soak what that leaves again over two
    alone = run("train", "digits", "--strategy", "single", "--out", out, "--resume", "--epochs", 2)
    assert alone.exit_code == 0, alone.output
    assert "epoch 2/2" in alone.output
    if not again:
        return
    more = run("launch", "-n", 2, "firebrick", "train", "digits", "--out", out, "--resume", "--epochs", 3)
    assert more.exit_code == 0, more.output
    said = more.stdout.splitlines()
    assert any(line.startswith("[rank 0] 2 ranks share each batch") for line in said)
    assert any(line.startswith("[rank 0] epoch 3/3") for line in said)


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        ("sys.exit('no data')", "ended with exit code 1", 1),
        ("os._exit(7)", "ended with exit code 7", 7),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by signal 9 (SIGKILL)", 137),
    ],
)
def test_a_rank_that_fails_ends_all_and_is_named(run: Run, tmp_path: Path, failure: str, status: str, code: int) -> None:
    path = tmp_path / "wait.py"
    path.write_text(WAIT.format(failure=failure))
    done = run("launch", "-n", 3, "--grace", 0, path)
    assert done.exit_code == code
    assert f"rank 1 {status}; ranks 0, 2 get 0 s to end" in done.stderr
    _, found, last = done.stderr.partition(f"error: rank 1 {status}; its last lines:\n")
    assert found
    assert "  about to fail\n" in last  # what goes to stdout and to stderr comes in any order
    assert ("no data" in done.stderr) == ("no data" in failure)


def test_a_rank_that_ignores_the_request_to_end_is_killed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "stubborn.py"
    path.write_text("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT.format(failure="sys.exit(3)"))
    assert run("launch", "-n", 2, "--grace", 0, path).exit_code == 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_reach_every_rank_once(tmp_path: Path, number: signal.Signals, code: int) -> None:
    path = tmp_path / "count.py"
    path.write_text(
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: (print('told', flush=True), sys.exit({code})))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    child = subprocess.Popen([*LAUNCH, "-n", "2", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert {child.stdout.readline() for _ in range(2)} == {"[rank 0] ready\n", "[rank 1] ready\n"}
    child.send_signal(number)
    out, errors = child.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["[rank 0] told", "[rank 1] told"]
    assert errors == ""
    assert child.returncode == code


def test_a_line_is_passed_on_before_the_next_one_comes() -> None:
    shown, found = io.BytesIO(), []

    class Lines(io.StringIO):
        def __next__(self) -> str:
            found.append(shown.getvalue())
            return super().__next__()

    goal = io.TextIOWrapper(shown)
    launch._pass_on(Lines("one\ntwo"), goal, "[rank 0] ", deque(), threading.Lock(), SimpleQueue())
    assert found == [b"", b"[rank 0] one\n", b"[rank 0] one\n[rank 0] two\n"]


def test_ranks_end_when_nobody_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "talk.py"
    path.write_text("while True: print('on and on')\n")
    child = subprocess.Popen([*LAUNCH, "-n", "1", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "[rank 0] on and on\n"
    child.stdout.close()
    assert child.wait(60) == 143
    assert child.stderr is not None
    assert child.stderr.read() == ""
    child.stderr.close()


LAUNCHED = {
    "firebrick launch": {"RANK": "1", "WORLD_SIZE": "2", "FIREBRICK_DISTRIBUTED_BACKEND": "gloo"},
    "torchrun": {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"},
    "mpiexec": {"PMI_RANK": "1", "PMI_SIZE": "2"},
    "mpiexec of Open MPI": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
}


@pytest.mark.parametrize("launcher", LAUNCHED)
@pytest.mark.parametrize(
    "place", ["--strategy single", "--strategy data-parallel --devices cpu:0,cpu:1", "--devices cpu:0,cpu:1"]
)
def test_processes_that_were_started_together_are_refused_to_train_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch, launcher: str, place: str
) -> None:
    """Each trained a model of its own, into a run directory of its own or the same one, without a word."""
    for name, value in LAUNCHED[launcher].items():
        monkeypatch.setenv(name, value)
    done = run("train", "digits", *place.split())
    assert done.exit_code == 2
    said = " ".join(done.output.replace("│", " ").split())
    assert f"each of the 2 processes of {launcher.partition(' of ')[0]} would train alone; use --strategy distributed" in said
    assert not Path("runs").exists()


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_processes_that_were_started_together_train_over_their_ranks(monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    monkeypatch.setattr(placing.Placing, "build", lambda self: None)  # which would wait for the others
    for name, value in LAUNCHED[launcher].items():
        monkeypatch.setenv(name, value)
    ctx = click.Context(click.Command("train"))
    assert placing.chosen(ctx, None, None, None, None).name == "distributed"
    assert placing.chosen(ctx, "distributed", "cpu:1", None, "0.5,0.5") == placing.Placing(
        "distributed", "cpu:1", None, [0.5, 0.5]
    )
    assert (distributed.rank(), distributed.world_size()) == (1, 2)


@pytest.mark.parametrize("variables", [{}, {"RANK": "0", "WORLD_SIZE": "1"}, {"PMI_RANK": "0", "PMI_SIZE": "1"}])
def test_one_process_trains_as_its_options_say(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ctx = click.Context(click.Command("train"))
    assert placing.chosen(ctx, None, None, None, None).name == "single"
    assert placing.chosen(ctx, None, None, "cpu:0,cpu:1", None).name == "data-parallel"


def test_mpiexecs_processes_form_one_group_or_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were as many groups of one."""
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "3")
    with pytest.raises(fb.ConfigError, match=r"(?s)gloo joins processes of firebrick launch.*one of 3 processes that mpiexec"):
        distributed.init("gloo")
    monkeypatch.setattr(session, "MPIGroup", lambda timeout: Group(timeout=timeout))
    with distributed.init() as group:
        assert session.current() is group


def test_what_cannot_be_launched_is_said(run: Run, tell: Path) -> None:
    assert "missing.py is no file; use -m for a module" in run("launch", "missing.py").output
    done = run("launch", "--nodes", 2, tell)
    assert done.exit_code == 2
    assert "several hosts need one" in done.output
    assert "2 is not below --nodes 2" in run("launch", "--nodes", 2, "--node-rank", 2, "--master", "a:1", tell).output
    assert "'nowhere' is not HOST:PORT" in run("launch", "--master", "nowhere", tell).output


def test_the_launcher_of_mpi_is_that_beside_python_or_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(launch.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert launch._mpiexec() == "/usr/bin/mpiexec"
    (tmp_path / "mpiexec").touch()
    assert launch._mpiexec() == str(tmp_path / "mpiexec")
    (tmp_path / "mpiexec").unlink()
    monkeypatch.setattr(launch.shutil, "which", lambda name: None)
    with pytest.raises(fb.UnsupportedError, match="needs an MPI library and its mpiexec"):
        launch._mpiexec()


def test_mpi_starts_all_ranks_by_its_own_launcher(run: Run, tell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(number: int, command: list[str], variables: dict[str, str]) -> str:
        started.append((number, command, variables["FIREBRICK_DISTRIBUTED_BACKEND"], variables["PYTHONUNBUFFERED"]))
        return "all of them"

    watched = []
    monkeypatch.setattr(launch, "_start", start)
    monkeypatch.setattr(launch, "_mpiexec", lambda: "mpiexec")
    monkeypatch.setattr(launch, "_watch", lambda ranks, grace, prefix: watched.append((ranks, grace, prefix)) or 5)
    assert run("launch", "-n", 2, "--nodes", 3, "--backend", "mpi", tell, "-x").exit_code == 5
    command = ["mpiexec", "-n", "6", launch.sys.executable, "-m", "mpi4py", str(tell), "-x"]
    assert started == [(0, command, "mpi", "1")]
    assert watched == [(["all of them"], 10.0, False)]


@pytest.mark.parametrize(("master", "address"), [("10.0.0.1:29500", ("10.0.0.1", 29500)), ("[::1]:80", ("[::1]", 80))])
def test_an_address_is_a_host_and_a_port(master: str, address: tuple[str, int]) -> None:
    assert launch._address(master) == address
    host, port = launch._address(None)
    assert (host, 0 < port < 1 << 16) == ("127.0.0.1", True)
    for wrong in (":80", "host:", "host:8o"):
        with pytest.raises(click.BadParameter, match="is not HOST:PORT"):
            launch._address(wrong)
