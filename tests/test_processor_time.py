from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processor_time import Part, part_of, table

SHARED = Path(__file__).parent / "shared"
PROGRAM = """
import subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < {}: pass"

@pytest.fixture
def costly():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass

def test_by_a_fixture(costly):
    pass

def test_by_a_child():
    subprocess.run([sys.executable, "-c", BURN.format(0.3)], check=True)

def test_that_is_cheap():
    pass
"""


def test_a_row_is_the_folder_under_tests() -> None:
    assert part_of("tests/cli/test_x.py::test_y[a/b]") == "tests/cli"
    assert part_of("tests/compiler/kernel/test_x.py::test_y") == "tests/compiler"
    assert part_of("tests/test_x.py::test_y") == "tests/*.py"


def test_the_table_has_the_longest_first_and_what_is_short_in_one_row() -> None:
    found = table({"tests/a": Part(5, 12.0), "tests/b": Part(1200, 90.0), "tests/c": Part(1, 6.0)}, collecting=30.0)
    assert found.splitlines()[2:] == [
        "| `tests/b` | 1,200 | 1.5 |",
        "| `tests/a`, `tests/c` | 6 | 0.3 |",
        "| imports and collection in each worker | | 0.5 |",
        "| **all** | 1,206 | 2.3 |",
    ]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "processor_time", *arguments]
    there = os.environ | {"PYTHONPATH": str(SHARED)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=there)


def test_a_file_that_pytest_might_take_for_a_place_of_tests_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--times", "times.jsonl")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "write --times=FILE, in one word" in done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_the_time_of_fixtures_and_of_children_is_that_of_their_tests(workers: tuple[str, ...], tmp_path: Path) -> None:
    program = tmp_path / "tests" / "cli" / "test_times.py"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM, "utf-8")
    done = run(tmp_path, "--times=times.jsonl", *workers, "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    records: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()]
    took = {(r["test"].split("::")[1], r["phase"]): r["seconds"] for r in records}
    assert took["test_by_a_fixture", "setup"] >= 0.2 > took["test_by_a_fixture", "call"]
    assert took["test_by_a_child", "call"] >= 0.3
    assert took["test_that_is_cheap", "call"] < 0.2
    (fixtures,) = [r["fixtures"] for r in records if r["fixtures"]]
    assert fixtures["costly"] >= 0.2
    assert "| `tests/cli` | 3 | 0.0 |" in done.stdout
    assert "| imports and collection in each worker | | " in done.stdout
