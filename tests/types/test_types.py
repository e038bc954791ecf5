"""What type checkers find in programs of users: the examples, a program of this folder, and mistakes.

Each checker runs once, over all of them, with the project's settings (``pyproject.toml``). The examples of kernels are left
out: the annotations of their arguments are sizes and dtypes, which are no types to a checker.
"""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from extras import need

ROOT = Path(__file__).parents[2]
ACCEPTED, REFUSED = Path(__file__).with_name("accepted.py"), Path(__file__).with_name("refused.py")
PROGRAMS = [*sorted((ROOT / "examples").glob("*.py")), ACCEPTED, REFUSED]


def run(checker: str, *options: str) -> str:
    """What a checker prints about the programs."""
    need(checker)
    command = [sys.executable, "-m", checker, *options, *map(str, PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr  # it ran, and found errors
    return done.stdout


def mypy() -> list[tuple[Path, int, str]]:
    """The errors that mypy finds. Its cache is the one of ``make lint``."""
    lines = run("mypy", "--strict", "--no-error-summary", "--hide-error-context").splitlines()
    found = [re.fullmatch(r"(.*?):(\d+): (error|note): (.*)", line) for line in lines]
    assert all(found), lines
    return [(ROOT / m[1], int(m[2]), m[4]) for m in found if m and m[3] == "error"]


def pyright() -> list[tuple[Path, int, str]]:
    """The errors that pyright finds."""
    found = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable))["generalDiagnostics"]
    return [(Path(d["file"]), d["range"]["start"]["line"] + 1, d["message"]) for d in found if d["severity"] == "error"]


def marked(program: Path) -> set[int]:
    """The lines that are marked as errors."""
    return {i for i, line in enumerate(program.read_text("utf-8").splitlines(), 1) if line.endswith("# error")}


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_checkers_accept_the_examples_and_report_each_mistake(checker: Any) -> None:
    found = checker()
    assert [error for error in found if error[0] != REFUSED] == []
    assert len(marked(REFUSED)) > 30
    assert {line for program, line, _ in found if program == REFUSED} == marked(REFUSED)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value has a type: a class, or a list, tuple or dict of such."""
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if not isinstance(value, origin):
        return False
    if origin is tuple:
        return len(value) == len(parts) and all(map(fits, value, parts))
    if origin is dict:
        return all(fits(k, parts[0]) and fits(v, parts[1]) for k, v in value.items())
    return not parts or all(fits(v, parts[0]) for v in value)


def test_values_have_the_types_that_checkers_find(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[Any] = []
    count = 0

    def check(value: Any, kind: Any) -> Any:
        nonlocal count
        count += 1
        if not fits(value, kind):
            wrong.append((value, kind))
        return value

    monkeypatch.setattr(typing, "assert_type", check)
    known = runpy.run_path(str(ACCEPTED))
    known["unannotated"]()
    assert wrong == []
    assert count > 40


def test_a_value_of_another_type_is_noticed() -> None:
    assert fits(([1], {"a": 2.0}), tuple[list[int], dict[str, float]])
    assert not fits((1, 2), tuple[int, str])
    assert not fits((1,), tuple[int, int])
    assert not fits([1, "a"], list[int])
    assert not fits({"a": 1}, dict[str, str])
