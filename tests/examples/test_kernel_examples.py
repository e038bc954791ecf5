"""The examples of kernels: short runs, which check their own results and draw pictures."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import forked
import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parents[2] / "examples" / "kernels"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "pictures")


@pytest.mark.parametrize("name", NAMES)
def test_a_short_run_draws_a_picture(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib cannot be used here")
    picture = tmp_path / "picture.png"
    program = FOLDER / f"{name}.py"
    done = forked.run(program, "--short", "--out", str(picture), cwd=tmp_path, needs=("matplotlib.pyplot",))
    assert done.returncode == 0, done.stdout + done.stderr
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB")) / 255
    assert pixels.shape[0] > 300
    assert pixels.std() > 0.01, "the picture is not of one colour"


def test_there_are_six_examples() -> None:
    assert len(NAMES) >= 6
