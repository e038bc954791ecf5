"""Pictures are drawn without a display, for any number of epochs and classes."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firebrick.train import Epoch, Evaluation, draw_confusion, draw_curves, figures
from firebrick.train.counted import Forecast
from firebrick.train.figures import draw_forecast, draw_run

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


def test_what_is_beside_the_axes_is_within_the_figure() -> None:
    figure = figures._figure(4.0, 3.0)
    axes = figure.subplots()
    axes.set_ylabel("a label of\nthree lines,\nbeside which are", fontsize=12)
    axes.set_yticks([0.0, 1.0], ["nothing", "a whole million"])
    figure.canvas.draw()
    assert figure.get_tightbbox().x0 >= 0


def test_drawing_leaves_pyplot_and_its_global_state_alone(tmp_path: Path) -> None:
    draw_curves([row(1)], tmp_path / "curves.png")
    assert "matplotlib.pyplot" not in sys.modules


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved, in place of their files."""
    from matplotlib.figure import Figure

    saved: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: saved.append(self))
    return saved


def lines(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}


def test_curves_show_each_number_under_its_name(drawn: list[Any]) -> None:
    rows = [Epoch(1, 9, 2.0, 0.5, 0.75, 0.25, 1e-3, 1.0, 1.0), Epoch(2, 18, 0.0625, 0.625, float("nan"), None, 1e-3, 1.0, 1.0)]
    draw_curves(rows, Path("unused"), "a run")
    loss, accuracy = drawn[0].axes
    assert drawn[0].get_suptitle() == "a run"
    assert (loss.get_title(loc="left"), loss.get_xlabel(), loss.get_ylabel()) == ("Loss", "epoch", "mean loss per sample")
    assert (accuracy.get_title(loc="left"), accuracy.get_ylabel()) == ("Accuracy", "share of samples right")
    assert lines(loss) == {"train (0.0625)": ([1, 2], [2.0, 0.0625]), "valid (0.7500)": ([1], [0.75])}
    assert lines(accuracy) == {"train (0.6250)": ([1, 2], [0.5, 0.625]), "valid (0.2500)": ([1], [0.25])}
    assert (loss.get_yscale(), accuracy.get_yscale()) == ("log", "linear")
    assert accuracy.get_ylim()[0] < 0.25 < 1.0 < accuracy.get_ylim()[1] < 1.1
    for axes in (loss, accuracy):
        assert all(tick == round(tick) for tick in axes.get_xticks())
        assert {side for side, spine in axes.spines.items() if spine.get_visible()} == {"left", "bottom"}


def test_a_confusion_matrix_has_labels_as_rows_and_counts_in_its_cells(drawn: list[Any]) -> None:
    draw_confusion(np.asarray([[3, 1], [0, 4]]), Path("unused"), ["cat", "dog"], "a run")
    axes = drawn[0].axes[0]
    assert axes.get_title(loc="left") == "a run: 87.50% of 8 right"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert [t.get_text() for t in axes.get_xticklabels()] == [t.get_text() for t in axes.get_yticklabels()] == ["cat", "dog"]
    assert {t.get_position(): t.get_text() for t in axes.texts} == {(0, 0): "3", (1, 0): "1", (1, 1): "4"}
    assert axes.get_images()[0].get_array().tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert axes.get_images()[0].get_clim() == (0.0, 1.0)
    draw_confusion(np.asarray([[3, 1], [2, 2]]), Path("unused"))
    assert drawn[1].axes[0].get_images()[0].get_clim() == (0.0, 1.0)  # whatever the shares are
    draw_confusion(np.zeros((2, 2), np.int64), Path("unused"))
    assert drawn[2].axes[0].get_title(loc="left") == "no samples"
    assert [t.get_text() for t in drawn[2].axes[0].get_xticklabels()] == ["0", "1"]


@pytest.mark.parametrize(
    ("names", "size", "turned"),
    [(["cat", "dog"], (4.6, 4.6), 0), (["cats", "dog"], (5.2, 4.6), 45), ([str(i) for i in range(10)], (7.4, 7.4), 0)],
)
def test_a_confusion_matrix_has_room_for_its_names(
    drawn: list[Any], names: list[str], size: tuple[float, float], turned: int
) -> None:
    draw_confusion(np.eye(len(names), dtype=np.int64), Path("unused"), names)
    assert tuple(drawn[0].get_size_inches()) == pytest.approx(size)
    labels = drawn[0].axes[0].get_xticklabels()
    assert {(t.get_rotation(), t.get_ha()) for t in labels} == {(turned, "right" if turned else "center")}
    assert drawn[0].axes[0].get_xticks(minor=True).tolist() == [i - 0.5 for i in range(len(names) + 1)]
    assert drawn[0].axes[0].get_yticks(minor=True).tolist() == [i - 0.5 for i in range(len(names) + 1)]


def test_counts_are_written_so_that_they_can_be_read(drawn: list[Any]) -> None:
    draw_confusion(np.asarray([[999, 1], [11, 9]]), Path("unused"))
    white = {t.get_text(): t.get_color() == "white" for t in drawn[0].axes[0].texts}
    assert white == {"999": True, "1": False, "11": False, "9": False}  # on dark cells
    draw_confusion(np.asarray([[1000, 1], [12, 9]]), Path("unused"))
    assert [{t.get_fontsize() for t in d.axes[0].texts} for d in drawn] == [{9}, {8}]
    assert drawn[1].axes[0].texts[2].get_color() == "white"  # 12 of 21
    for classes in (40, 41):
        draw_confusion(np.eye(classes, dtype=np.int64), Path("unused"))
    assert [len(d.axes[0].texts) for d in drawn[2:]] == [40, 0]
    assert drawn[0].axes[1].get_ylabel() == "share of the true class"


def test_a_loss_over_more_than_a_factor_of_twenty_is_drawn_by_its_logarithm(drawn: list[Any]) -> None:
    for losses in ((20.0, 1.0), (20.5, 1.0), (20.5, 0.0), (20.5, -1.0)):
        draw_curves([Epoch(i + 1, 9, v, None, None, None, 1e-3, 1.0, 1.0) for i, v in enumerate(losses)], Path("unused"))
    assert [d.axes[0].get_yscale() for d in drawn] == ["linear", "log", "linear", "linear"]
    assert [len(d.axes) for d in drawn] == [1] * 4
    marks = []
    for count in (2, 3):
        draw_curves([Epoch(i + 1, 9, 1.0, None, None, None, 1e-3, 1.0, 1.0) for i in range(count)], Path("unused"))
        marks.append(drawn[-1].axes[0].get_lines()[0].get_marker())
    assert marks == ["o", "None"]  # few points are shown as points
    assert [d.get_suptitle() for d in drawn] == [""] * 6


def test_a_forecast_of_many_series_shows_eight_and_of_many_rows_twice_the_horizon(drawn: list[Any]) -> None:
    def shown(rows: int, series: int, horizon: int = 2, names: Any = None) -> Any:
        arrays = [np.zeros((n, series)) for n in (rows, horizon, horizon)]
        draw_forecast(Forecast(*arrays), Path("unused"), names)
        return drawn[-1]

    assert len(shown(5, 9).axes) == 8
    assert tuple(drawn[-1].get_size_inches()) == pytest.approx((11.2, 9.8))
    assert len(shown(5, 1).axes) == 1
    assert tuple(drawn[-1].get_size_inches()) == pytest.approx((5.6, 2.9))
    assert lines(shown(3, 1).axes[0])["seen"][0] == [-2, -1, 0]
    assert lines(shown(9, 1).axes[0])["seen"][0] == [-3, -2, -1, 0]
    assert shown(3, 2, names=["a", "b"]).axes[1].get_title(loc="left") == "b (squared error 0.000)"
    assert [a.get_legend() is not None for a in drawn[-1].axes] == [True, False]
    assert drawn[-1].axes[0].get_xlabel() == "rows from the last one seen"


def test_a_run_is_drawn_with_what_its_evaluation_has_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    for name in ("draw_curves", "draw_confusion", "draw_forecast"):
        monkeypatch.setattr(figures, name, lambda *given, name=name: calls.append((name, *given)))
    out, rows = Path("run"), [row(1)]
    confusion, forecast = np.eye(2, dtype=np.int64), Forecast(*[np.zeros((1, 1))] * 3)
    curves = ("draw_curves", rows, out / "curves.png", "a run")
    for found, name, shown in (
        (None, "", None),
        (Evaluation(1.0, None, 1, None, None, None, None), "", None),
        (Evaluation(1.0, 1.0, 1, confusion, None, None, None), "confusion", confusion),
        (Evaluation(1.0, None, 1, None, 1.0, 1.0, forecast), "forecast", forecast),
    ):
        calls.clear()
        drawn = draw_run(out, rows, found, ["a", "b"], "a run", "test")
        other = [(f"draw_{name}", shown, out / f"{name}.png", ["a", "b"], "a run, test")] if name else []
        assert calls == [curves, *other]
        assert drawn == [c[2] for c in calls]


def test_a_forecast_shows_what_was_seen_what_came_next_and_what_was_said(drawn: list[Any]) -> None:
    seen, target = np.arange(15.0).reshape(5, 3), np.ones((2, 3))
    draw_forecast(Forecast(seen=seen, target=target, predicted=target * [[1.0], [2.0]]), Path("unused"), None, "a run")
    first, second, third, unused = drawn[0].axes
    assert first.get_title(loc="left") == "series 0 (squared error 0.500)"
    found = lines(second)
    assert found["seen"] == ([-3, -2, -1, 0], [4.0, 7.0, 10.0, 13.0])
    assert found["what came next"] == ([1, 2], [1.0, 1.0])
    assert found["forecast"] == ([1, 2], [1.0, 2.0])
    assert third.get_visible()
    assert not unused.get_visible()
