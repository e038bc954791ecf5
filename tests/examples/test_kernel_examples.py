"""The examples of kernels: short runs, which check their own results and draw pictures."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "kernels"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "pictures")


@pytest.mark.parametrize("name", NAMES)
def test_a_short_run_draws_a_picture(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [name, "--short", "--out", str(picture)])
    monkeypatch.syspath_prepend(str(FOLDER))
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    image = pyplot.imread(picture)
    pyplot.close("all")
    assert image.shape[0] > 300
    assert image[..., :3].std() > 0.01, "the picture is not of one colour"


def test_there_are_six_examples() -> None:
    assert len(NAMES) >= 6
