"""Pictures of analog hardware: axes in one style, and files in the formats that matplotlib writes without a display."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from firebrick.core.errors import ConfigError

FORMATS = (".png", ".svg", ".pdf")
_INK, _GRID = "#24292f", "#d0d7de"


def check_picture(name: str, path: str | Path) -> Path:
    """The path of a picture, after checking that it can be drawn.

    Args:
        name: Of the function, for messages.
        path: File to write.

    Raises:
        ConfigError: matplotlib is not installed, the ending is no format, or there is no such folder.
    """
    found = Path(path)
    if found.suffix.lower() not in FORMATS:
        raise ConfigError(f"{name}: a file that ends in {', '.join(FORMATS)}", repr(str(path))[:120], "correct the ending")
    if not found.parent.is_dir():
        raise ConfigError(f"{name}: a file in a folder that exists", repr(str(path))[:120], "make the folder first")
    if find_spec("matplotlib") is None:
        raise ConfigError(f"{name}: matplotlib, which draws", "it is not installed", "pip install 'firebrick[train]'")
    return found


def dressed(name: str, title: str, x: str, y: str, width: float = 7.0, height: float = 4.5) -> tuple[Any, Any]:
    """A figure and its axes.

    Args:
        name: Of the function, for messages.
        title: Above the axes.
        x: What the horizontal axis shows.
        y: What the vertical axis shows.
        width: In inches.
        height: In inches.
    """
    figure = _figure(name, width, height)
    axes = figure.add_subplot()
    _dress(axes, title, x, y)
    return figure, axes


def dressed_panels(name: str, titles: Sequence[str], columns: int, x: str, y: str) -> tuple[Any, list[Any]]:
    """A figure and the axes of its panels.

    Args:
        name: Of the function, for messages.
        titles: Of the panels.
        columns: Panels beside each other.
        x: What the horizontal axes show.
        y: What the vertical axes show.
    """
    rows = -(-len(titles) // columns)
    figure = _figure(name, max(3.5 * columns, 5.0), 3.0 * rows)
    panels = [figure.add_subplot(rows, columns, k + 1) for k in range(len(titles))]
    for axes, title in zip(panels, titles, strict=True):
        _dress(axes, title, x, y)
    return figure, panels


def _figure(name: str, width: float, height: float) -> Any:
    check_picture(name, "picture.png")
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
    axes.grid(color=_GRID, linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_GRID)


def saved(name: str, figure: Any, path: str | Path) -> Path:
    """Write a figure.

    Args:
        name: Of the function, for messages.
        figure: Of matplotlib.
        path: File to write.
    """
    found = check_picture(name, path)
    figure.savefig(found)
    return found
