"""HTML of values for notebooks: tables and text, in which every character of the values is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_ROWS = 50
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(value: str) -> str:
    """Text in which no character has a meaning in HTML; the standard library's would cost each import its table of names."""
    return value.translate(_ESCAPED)


def text(value: object) -> str:
    """Text as it is, in a fixed-width font."""
    return f"<pre style='margin:0;text-align:left'>{escape(str(value))}</pre>"


def table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    foot: Sequence[object] | None = None,
    most: int = MOST_ROWS,
) -> str:
    """A table with a title.

    Args:
        title: First line.
        head: Names of the columns; numbers are aligned to the right in all but the first.
        rows: Cells, one for each column.
        foot: A last row that is always shown.
        most: Number of rows that are shown; of more, the first and the last half, and how many are between.
    """
    shown = [_row("td", row) for row in rows]
    if len(shown) > most:
        left_out = len(shown) - most
        line = f"<tr><td colspan='{len(head)}' style='text-align:center'>… {left_out} more …</td></tr>"
        shown = [*shown[: most - most // 2], line, *shown[len(shown) - most // 2 :]]
    last = [] if foot is None else [_row("th", foot)]
    return f"<div><b>{escape(title)}</b><table>{_row('th', head)}{''.join(shown + last)}</table></div>"


def _row(kind: str, cells: Sequence[object]) -> str:
    aligned = ("left", *("right",) * (len(cells) - 1))
    parts = (f"<{kind} style='text-align:{side}'>{escape(str(c))}</{kind}>" for side, c in zip(aligned, cells, strict=True))
    return f"<tr>{''.join(parts)}</tr>"
