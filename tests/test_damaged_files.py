"""The net of damaged files in its cheap form; ``make soak`` runs it whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).parent / "shared"
if sys.platform != "linux":
    pytest.skip("the watch reads /proc", allow_module_level=True)
pytest.importorskip("pyarrow")
pytest.importorskip("PIL.Image")


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SHARED), *filter(None, sys.path)])
    command = [sys.executable, "-m", "damaged_files", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})


def test_damaged_files_give_a_value_or_an_error_of_the_project_and_nothing_else(tmp_path: Path) -> None:
    found = ran("--count", "200", "--jobs", "1", "--state", str(tmp_path))
    assert found.returncode == 0, found.stdout + found.stderr
    assert "200 cases" in found.stdout
    assert " 0 failed" in found.stdout
    again = ran("--count", "200", "--jobs", "1", "--state", str(tmp_path))
    assert again.stdout.rsplit("; at most")[0] == found.stdout.rsplit("; at most")[0]  # nothing is run again


def test_readers_with_planted_faults_are_found_out_and_the_same_cases_pass_without() -> None:
    found = ran("--faults")
    rows = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == 10, found.stderr
    assert [row["fault"] for row in rows if not row["found"]] == []
    assert [row for row in rows if row["without"]] == []


@pytest.mark.slow
def test_large_honest_files_take_at_most_three_times_what_they_hold() -> None:
    found = ran("--large")
    rows = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == 8, found.stderr
    assert [row for row in rows if row["failures"]] == []


def test_a_case_that_takes_its_process_along_is_one_failure_and_the_others_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "seeds, goal = [int(s) for s in sys.argv[4].split(',')], sys.argv[6]\n"
        "with open(goal, 'a') as out:\n"
        "    for seed in seeds:\n"
        "        print(json.dumps({'begun': seed}), file=out, flush=True)\n"
        "        if seed == 1:\n"
        "            os.abort()\n"
        "        print(json.dumps({'seed': seed, 'failures': []}), file=out, flush=True)\n"
    )
    program.chmod(0o755)
    from damaged_files.__main__ import finish

    monkeypatch.setattr(sys, "executable", str(program))
    rows = finish([0, 1, 2], tmp_path / "block.jsonl")
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert [bool(row["failures"]) for row in rows] == [False, True, False]
    assert rows[1]["failures"][0][0] == "crash or hang: exit -6"
