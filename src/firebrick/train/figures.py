"""The pictures of a run: the curves of loss and accuracy or error, the confusion matrix, a forecast.

matplotlib is imported when a picture is drawn, and needs no display. Without it nothing is drawn, and a note says how to
get it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from firebrick.train.counted import Forecast
from firebrick.train.evaluation import Evaluation
from firebrick.train.history import Epoch

CURVES, CONFUSION, FORECAST = "curves.png", "confusion.png", "forecast.png"
NOTE = "no figures: matplotlib is not installed; get it with: pip install 'firebrick[train]'"
_WHAT = {  # panels of the curves: title and axis
    "loss": ("Loss", "mean loss per sample"),
    "accuracy": ("Accuracy", "share of samples right"),
    "mae": ("Mean absolute error", "mean over all elements"),
}
_MOST_SERIES = 8  # of a picture of a forecast
_TRAIN, _VALID, _INK, _GRID, _SEEN = "#1f6feb", "#d9480f", "#24292f", "#d0d7de", "#6e7781"


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def draw_run(
    out: Path,
    rows: Sequence[Epoch],
    evaluation: Evaluation | None,
    class_names: Sequence[str] | None,
    title: str,
    split: str,
) -> list[Path]:
    """The curves of a run into its directory, and what an evaluation, if there is one, has to show; returns what was drawn.

    Args:
        out: The directory.
        rows: The run's epochs, at least one.
        evaluation: Whose confusion matrix or forecast to draw.
        class_names: Names of the classes, or of the series.
        title: What stands above each of them.
        split: What the titles call the evaluation's samples.
    """
    drawn = [out / CURVES]
    draw_curves(rows, drawn[0], title)
    if evaluation is not None and evaluation.confusion is not None:
        drawn.append(out / CONFUSION)
        draw_confusion(evaluation.confusion, drawn[-1], class_names, f"{title}, {split}")
    if evaluation is not None and evaluation.forecast is not None:
        drawn.append(out / FORECAST)
        draw_forecast(evaluation.forecast, drawn[-1], class_names, f"{title}, {split}")
    return drawn


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _dress(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=11, fontweight="bold", color=_INK, loc="left")
    axes.set_xlabel(x, color=_INK)
    axes.set_ylabel(y, color=_INK)
    axes.tick_params(colors=_INK, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_GRID)


def draw_curves(rows: Sequence[Epoch], path: Path, title: str = "") -> None:
    """Loss, and accuracy or mean absolute error, over the epochs, of training and validation, as a PNG.

    Args:
        rows: The run's epochs, at least one.
        path: File to write.
        title: Title of the picture.

    Example:
        >>> import numpy as np, firebrick as fb, tempfile
        >>> from pathlib import Path
        >>> from firebrick.train import Learner, draw_curves
        >>> model = fb.nn.Linear(2, 2)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.eye(2, dtype=np.float32), np.arange(2)), 2)
        >>> rows = Learner(model, fb.optim.SGD(model, lr=0.1), log=None).fit(loader, epochs=2)
        >>> path = Path(tempfile.mkdtemp()) / "curves.png"
        >>> draw_curves(rows, path)
        >>> path.exists()
        True
    """
    from matplotlib.ticker import MaxNLocator

    shown = [
        w for w in _WHAT if w == "loss" or any(getattr(r, f"{s}_{w}") is not None for r in rows for s in ("train", "valid"))
    ]
    figure = _figure(10 if len(shown) > 1 else 5.6, 4)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    if title:
        figure.suptitle(title, fontsize=12, color=_INK)
    for axes, what in zip(panels, shown, strict=True):
        ends: list[float] = []
        for split, color, style in (("train", _TRAIN, "-"), ("valid", _VALID, "--")):
            points = [(r.epoch, getattr(r, f"{split}_{what}")) for r in rows]
            points = [(e, v) for e, v in points if v is not None and np.isfinite(v)]
            if not points:
                continue
            xs, ys = zip(*points, strict=True)
            label = f"{split} ({ys[-1]:.4f})"
            axes.plot(xs, ys, style, color=color, linewidth=1.8, label=label, marker="o" if len(xs) < 3 else None, markersize=4)
            ends += ys
        _dress(axes, _WHAT[what][0], "epoch", _WHAT[what][1])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(True, color=_GRID, linewidth=0.6)
        if what != "accuracy":
            if ends and min(ends) > 0 and max(ends) / min(ends) > 20:
                axes.set_yscale("log")
        elif ends:
            axes.set_ylim(max(0.0, min(ends) - 0.05 * (1.02 - min(ends))), 1.0 + 0.03 * (1.02 - min(ends)))
        corner = "lower right" if what == "accuracy" else "upper right"
        axes.legend(loc=corner, frameon=False, fontsize=9, title="last epoch in brackets", title_fontsize=8)
    figure.savefig(path)


def draw_confusion(counts: np.ndarray[Any, Any], path: Path, names: Sequence[str] | None = None, title: str = "") -> None:
    """A confusion matrix as a PNG: counts in the cells, colour by the share of the row.

    Args:
        counts: int64 [classes, classes]; rows are labels, columns predictions.
        path: File to write.
        names: The classes' names; their numbers if None.
        title: Title of the picture.

    Example:
        >>> import numpy as np, tempfile
        >>> from pathlib import Path
        >>> from firebrick.train import draw_confusion
        >>> path = Path(tempfile.mkdtemp()) / "confusion.png"
        >>> draw_confusion(np.array([[9, 1], [2, 8]]), path, names=["cat", "dog"])
        >>> path.exists()
        True
    """
    n = len(counts)
    names = list(names) if names is not None else [str(i) for i in range(n)]
    long = max(map(len, names)) > 3
    total = int(counts.sum())
    side = max(4.6, 0.52 * n + 2.2)
    figure = _figure(side + (0.6 if long else 0), side)
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    rate = f"{np.trace(counts) / total:.2%} of {total:,} right" if total else "no samples"
    _dress(axes, f"{title}: {rate}" if title else rate, "predicted class", "true class")
    for edge in ("left", "bottom"):
        axes.spines[edge].set_visible(False)
    axes.set_xticks(range(n), names, rotation=45 if long else 0, ha="right" if long else "center")
    axes.set_yticks(range(n), names)
    axes.set_xticks(np.arange(n + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(n + 1) - 0.5, minor=True)
    axes.grid(True, which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    if n <= 40:
        size = 9 if counts.max() < 1000 else 8
        for row, column in np.ndindex(n, n):
            count = int(counts[row, column])
            if count:
                color = "white" if shares[row, column] > 0.55 else _INK
                axes.text(column, row, f"{count}", ha="center", va="center", fontsize=size, color=color)
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.set_label("share of the true class", color=_INK, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=_INK, labelsize=8, length=0)
    figure.savefig(path)


def draw_forecast(forecast: Forecast, path: Path, names: Sequence[str] | None = None, title: str = "") -> None:
    """What a model saw of each series, what came next and what it said, as a PNG; of many series, the first eight.

    Args:
        forecast: The sample to show.
        path: File to write.
        names: The series' names; their numbers if None.
        title: Title of the picture.
    """
    count = min(forecast.seen.shape[1], _MOST_SERIES)
    names = list(names) if names is not None else [f"series {i}" for i in range(count)]
    rows, horizon = len(forecast.seen), len(forecast.target)
    tail = min(rows, 2 * horizon)
    before, after = np.arange(-tail + 1, 1), np.arange(1, horizon + 1)
    columns = 2 if count > 1 else 1
    figure = _figure(5.6 * columns, 2.3 * -(-count // columns) + 0.6)
    panels = figure.subplots(-(-count // columns), columns, squeeze=False).reshape(-1)
    if title:
        figure.suptitle(title, fontsize=12, color=_INK)
    for i, axes in enumerate(panels):
        if i >= count:
            axes.set_visible(False)
            continue
        axes.plot(before, forecast.seen[-tail:, i], color=_SEEN, linewidth=1.2, label="seen")
        axes.plot(after, forecast.target[:, i], color=_TRAIN, linewidth=1.6, label="what came next")
        axes.plot(after, forecast.predicted[:, i], "--", color=_VALID, linewidth=1.6, label="forecast")
        axes.axvline(0.5, color=_GRID, linewidth=1)
        error = float(np.mean((forecast.predicted[:, i] - forecast.target[:, i]) ** 2))
        _dress(axes, f"{names[i]} (squared error {error:.3f})", "rows from the last one seen", "scaled value")
    panels[0].legend(loc="best", frameon=False, fontsize=8)
    figure.savefig(path)
