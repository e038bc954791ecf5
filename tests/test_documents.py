"""The examples of CONTRIBUTING.md and README.md run as they are written, each in a fresh interpreter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"## (Adding an \w+)\n.*?```python\n(.*?)```", TEXT, flags=re.S))
EXAMPLES |= dict(
    re.findall(
        r"## (Quick start)\n```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text("utf-8"), flags=re.S
    )
)


@pytest.mark.parametrize("title", ["Adding an op", "Adding an engine", "Quick start"])
def test_the_example_runs_as_it_is_printed(title: str) -> None:
    done = subprocess.run([sys.executable, "-c", EXAMPLES[title]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


def test_an_op_example_without_one_field_is_refused_by_its_name() -> None:
    broken = re.sub(r"    tolerance=.*\n", "", EXAMPLES["Adding an op"])
    done = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "op 'softplus' cannot be registered: tolerance is missing" in done.stderr
