"""The command ends without a traceback when it is stopped while it starts, and when nobody reads its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


ARGUMENTS = [["--help"], ["train", "--help"], ["devices"], ["cache", "list"], ["train", "digits", "--epochs", "3"]]


@pytest.mark.skipif(os.name == "nt", reason="pipes are other there")
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_output_that_nobody_reads_is_no_error(arguments: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, timeout=120, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    finally:
        os.close(write)
    assert done.returncode in (0, 1)
    assert done.stderr == ""
