"""The command as a user runs it, in an empty directory, and a run trained once for all tests that only look at it."""

import inspect
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firebrick.cli.main import main
from firebrick.train import figures

Run = Callable[..., Result]


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=True)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``firebrick …`` in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return _run


DRAWN = {name: getattr(figures, name) for name in ("draw_curves", "draw_confusion", "draw_forecast")}


@pytest.fixture(autouse=True)
def undrawn() -> Iterator[None]:
    """Figures of a run are empty files: to draw them takes longer than most runs train. Runs that several tests look at are
    trained by fixtures of the session, which come before this one, and have their figures."""
    for name, drawn in DRAWN.items():
        setattr(figures, name, partial(_empty, inspect.signature(drawn)))
    yield
    for name, drawn in DRAWN.items():
        setattr(figures, name, drawn)


def _empty(taken: inspect.Signature, *arguments: Any) -> None:
    taken.bind(*arguments).arguments["path"].touch()


@pytest.fixture(scope="session")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "digits-mlp"
    result = _run("train", "digits", "--model", "mlp", "--epochs", 4, "--out", out)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture
def trained(_trained: Path, tmp_path: Path) -> Path:
    """A copy of a run of four epochs of an mlp on digits."""
    return Path(shutil.copytree(_trained, tmp_path / "runs" / "digits-mlp"))
