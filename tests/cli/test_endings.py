"""The command ends without a traceback when it is stopped while it starts, and when nobody reads its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import firebrick as fb

COMMAND = [sys.executable, "-m", "firebrick"]


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to a child there")
@pytest.mark.parametrize("swallow", [False, True], ids=["importing", "importing what takes every exception for its own"])
def test_ctrl_c_during_imports_ends_at_once(swallow: bool, tmp_path: Path) -> None:
    body = "print('importing', flush=True)\nimport signal\nsignal.pause()\n"
    if swallow:
        lines = body.replace("\n", "\n    ").rstrip()
        body = f"try:\n    {lines}\nexcept BaseException:\n    raise ImportError('no click')\n"
    (tmp_path / "click.py").write_text(body)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    child = subprocess.Popen(
        [*COMMAND, "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "importing\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, "stopped\n")


ARGUMENTS = [["--help"], ["train", "--help"], ["cache", "list"], ["train", "digits", "--epochs", "3"]]
SLOW = pytest.param(["devices"], marks=pytest.mark.soak)


@pytest.mark.skipif(os.name == "nt", reason="pipes are other there")
@pytest.mark.parametrize("arguments", [*ARGUMENTS, SLOW], ids=" ".join)
def test_output_that_nobody_reads_is_no_error(arguments: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"  # `cache list` would read all that the tests keep
    with fb.config.scope(cache_dir=str(cache)):
        fb.jit(lambda x: fb.tanh(x) * 2.0)(fb.ones(1 << 15, device="cpu"))
    assert any(cache.rglob("*.fbo"))
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, timeout=120, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "FIREBRICK_CACHE_DIR": str(cache)},
        )  # fmt: skip
    finally:
        os.close(write)
    assert done.returncode in (0, 1)
    assert done.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="descriptors are other there")
@pytest.mark.parametrize(
    ("closed", "arguments"),
    [  # each run has those of more libraries where both streams are closed
        pytest.param(c, a, marks=() if a != ["devices"] else pytest.mark.soak)
        for c in (">&-", "2>&-", ">&- 2>&-", "<&-") for a in (["devices"], ["checkpoint", "show"])
    ],
    ids=str,
)  # fmt: skip
def test_closed_streams_are_no_error(arguments: list[str], closed: str, tmp_path: Path, trained: Path) -> None:
    arguments = [*arguments, str(trained)] if arguments[0] == "checkpoint" else arguments
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *arguments], capture_output=True, text=True, timeout=120,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (closed in ("2>&-", "<&-"))


@pytest.mark.parametrize(
    ("variable", "value", "code", "text"),
    [
        ("FIREBRICK_TUNE", "maybe", 1, "error: FIREBRICK_TUNE is one of off, cached, on ("),
        ("FIREBRICK_VERIFY_EVERY", "-1", 1, "error: FIREBRICK_VERIFY_EVERY is an int ≥ 0 ("),
        ("FIREBRICK_TUNING", "on", 0, "warning: FIREBRICK_TUNING names no setting of Firebrick; there are FIREBRICK_CACHE_DIR"),
    ],
)
def test_a_wrong_variable_is_one_message(variable: str, value: str, code: int, text: str) -> None:
    def ended(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, encoding="utf-8", timeout=120,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1", variable: value},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    found, out, errors = ended("--version")
    assert found == code
    assert errors.startswith(text)
    assert "Traceback" not in errors
    assert out.startswith("firebrick ") == (code == 0)
    if value == "maybe":
        assert f"Received: {variable}='maybe'.\nRemedy: use such a value" in errors
        assert ended("--version", "--debug")[2].startswith("Traceback")
