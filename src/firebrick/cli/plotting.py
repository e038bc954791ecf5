"""Curves as braille characters, of which each holds 2 × 4 dots: for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column and row of a character
_MARGIN = 7  # columns for the numbers beside the axis

Curve = Sequence[tuple[float, float]]  # (x, y) points with rising x


def plotted(curves: Sequence[tuple[Curve, str]], width: int, height: int, x_range: tuple[float, float]) -> Text:
    """Curves in a frame of characters, with the largest and the smallest value beside it.

    Args:
        curves: Each with its colour; later ones lie above earlier ones. Values that are not finite are left out.
        width: Columns in all.
        height: Rows in all.
        x_range: The x at the left and at the right border.
    """
    columns, rows = max(1, width - _MARGIN), max(1, height)
    points = [(c, [(x, y) for x, y in curve if math.isfinite(y)]) for curve, c in curves]
    values = [y for _, found in points for _, y in found]
    if not values:
        return Text("\n" * (rows // 2) + "no values yet".center(width), style="dim")
    low, high = min(values), max(values)
    spread = (high - low) or abs(high) or 1.0
    left, right = x_range
    cells: dict[tuple[int, int], tuple[int, str]] = {}

    def place(x: float, y: float) -> tuple[int, int]:
        across = (x - left) / ((right - left) or 1.0)
        return round(across * (2 * columns - 1)), round((high - y) / spread * (4 * rows - 1))

    for colour, found in points:
        before = None
        for x, y in found:
            at = place(x, y)
            for i, j in _line(before or at, at):
                key = min(max(i // 2, 0), columns - 1), min(max(j // 4, 0), rows - 1)
                held = cells.get(key, (0, colour))[0]
                cells[key] = held | _DOTS[i % 2][j % 4], colour
            before = at
    text = Text(no_wrap=True)
    for j in range(rows):
        label = _short(high) if j == 0 else _short(low) if j == rows - 1 else ""
        text.append(f"{label:>{_MARGIN - 2}} ", style="dim").append("┤" if label else "│", style="dim")
        for i in range(columns):
            dots, colour = cells.get((i, j), (0, ""))
            text.append(chr(0x2800 + dots) if dots else " ", style=colour)
        text.append("\n" if j < rows - 1 else "")
    return text


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots from one to another."""
    (x0, y0), (x1, y1) = start, end
    count = max(abs(x1 - x0), abs(y1 - y0), 1)
    return [(x0 + round((x1 - x0) * k / count), y0 + round((y1 - y0) * k / count)) for k in range(count + 1)]


def _short(value: float) -> str:
    """At most five characters."""
    for digits in (3, 2, 1, 0):
        text = f"{value:.{digits}f}"
        if len(text) <= 5:
            return text
    return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
