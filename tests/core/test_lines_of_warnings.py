"""Every warning is at the line of the user's program that caused it, however deep in Firebrick it is found."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import firebrick as fb
from firebrick import data, nn, optim, train
from firebrick.train.errors import FrozenTrainingWarning, NothingTrainedWarning

SOURCE = Path(fb.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def calls_of_warn(text: str) -> list[int]:
    """Lines that call ``warnings.warn`` or ``warnings.warn_explicit``."""
    return [
        n.lineno
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.Call) and ast.unparse(n.func) in ("warnings.warn", "warnings.warn_explicit")
    ]


def test_all_warnings_come_through_the_one_function_that_finds_the_users_line() -> None:
    found = {str(f.relative_to(SOURCE)) for f in FILES if calls_of_warn(f.read_text("utf-8"))}
    assert found == {"core/lines.py"}
    assert calls_of_warn("import warnings\nwarnings.warn('x', stacklevel=3)") == [2]


def test_warnings_of_training_are_at_the_users_call_of_fit() -> None:
    model = nn.Linear(2, 1)
    learner = train.Learner(model, optim.SGD(model, lr=0.0), fb.mse_loss, log=None, patience=2)
    loader = data.DataLoader(data.ArrayDataset(np.ones((8, 2)), np.ones((8, 1))), 2)
    with pytest.warns(FrozenTrainingWarning) as caught:
        learner.fit(loader, epochs=2)
    assert {w.filename for w in caught} == {__file__}
    with pytest.warns(NothingTrainedWarning) as caught:
        learner.fit(loader, epochs=2)
    assert [w.filename for w in caught] == [__file__]


def test_a_warning_while_firebrick_is_loaded_is_at_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import firebrick\nfirebrick.ones\n", "utf-8")
    environment = {"FIREBRICK_QUUX": "1", "PYTHONPATH": str(SOURCE.parent), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert "program.py:2: UserWarning: FIREBRICK_QUUX names no setting" in done.stderr
