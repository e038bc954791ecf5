"""Pictures are drawn without a display, for any number of epochs and classes."""

import sys
from pathlib import Path

import numpy as np
import pytest

from firebrick.train import Epoch, draw_confusion, draw_curves

pytest.importorskip("matplotlib")


def row(epoch: int, accuracy: float | None = 0.5, valid: float | None = 0.7) -> Epoch:
    return Epoch(epoch, epoch * 9, 2.0 / epoch, accuracy, valid, accuracy, 1e-3, 100.0, 1.0)


@pytest.mark.parametrize("rows", [[row(1)], [row(e) for e in range(1, 30)], [row(1, None, None), row(2, None, float("nan"))]])
def test_curves_are_drawn_for_one_epoch_many_and_without_accuracy(tmp_path: Path, rows: list[Epoch]) -> None:
    draw_curves(rows, tmp_path / "curves.png", "title")
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("classes", [2, 10, 41])
def test_a_confusion_matrix_of_any_size_is_drawn(tmp_path: Path, classes: int) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (classes, classes))
    counts[1] = 0  # a class that never comes
    names = [f"class number {i}" for i in range(classes)]
    draw_confusion(counts, tmp_path / "confusion.png", names, "title")
    assert (tmp_path / "confusion.png").read_bytes()[:4] == b"\x89PNG"


def test_drawing_leaves_pyplot_and_its_global_state_alone(tmp_path: Path) -> None:
    draw_curves([row(1)], tmp_path / "curves.png")
    assert "matplotlib.pyplot" not in sys.modules
