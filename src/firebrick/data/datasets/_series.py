"""Multivariate time series: a CSV with a date column, its standard split in time, and its scaling.

The electricity transformer data (ETT) are forecast by a fixed protocol: twelve months of thirty days train, the next four
validate, the next four test; each series is scaled by mean and deviation of its training rows alone. The windows of a later
part may look back into the part before, so that its first forecast begins with its first row.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firebrick.data.datasets._idx import DataError
from firebrick.data.datasets._sources import resolve
from firebrick.data.windows import WindowDataset

_SERIES = ("ett",)
_MONTHS = {"train": (0, 12), "validation": (12, 16), "test": (16, 20)}
_MONTH = timedelta(days=30)


@dataclass(frozen=True)
class RawSeries:
    """A multivariate series with a constant time between its rows, unscaled.

    Args:
        name: the data set's name, as given to `load_series`.
        columns: the name of each series.
        start: date and time of the first row.
        step: time from one row to the next.
        values: float64[rows, series].
    """

    name: str
    columns: tuple[str, ...]
    start: datetime
    step: timedelta
    values: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    def borders(self, split: str) -> tuple[int, int]:
        """The rows of `"train"`, `"validation"` or `"test"`: 12, 4 and 4 months of 30 days from the first row on.

        Raises:
            DataError: an unknown split, or the series is shorter than these twenty months.
        """
        if split not in _MONTHS:
            raise DataError(f"unknown split of {self.name}: expected one of {', '.join(_MONTHS)}; received {split!r}.")
        rows = _MONTH // self.step
        last = rows * max(stop for _, stop in _MONTHS.values())
        if not rows:
            raise DataError(
                f"{self.name}: expected rows at most 30 days apart, since the split is in months of 30 days; received "
                f"{self.step}. Bring a finer series."
            )
        if len(self) < last:
            raise DataError(
                f"{self.name}: expected at least {last} rows, twenty months of 30 days at {self.step} a row; received "
                f"{len(self)} rows. The split in time needs the whole series."
            )
        first, stop = _MONTHS[split]
        return first * rows, stop * rows

    def scaling(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Mean and standard deviation of each series over the training rows; 1 for the deviation of a constant one."""
        first, stop = self.borders("train")
        rows = self.values[first:stop]
        deviation = rows.std(0)
        return rows.mean(0), np.where(deviation > 0, deviation, 1.0)

    def windows(
        self, split: str, look_back: int, horizon: int, scaling: tuple[Sequence[float], Sequence[float]] | None = None
    ) -> WindowDataset:
        """All scaled windows of a split, as float32; those after training look back into the split before.

        Args:
            split: `"train"`, `"validation"` or `"test"`.
            look_back: rows that are seen.
            horizon: rows that are predicted; all of them lie within the split.
            scaling: mean and deviation of each series that a model was trained with; `scaling()` if None.
        """
        first, stop = self.borders(split)
        mean, deviation = self.scaling() if scaling is None else map(np.asarray, scaling)
        scaled = (self.values[max(first - look_back, 0) if first else 0 : stop] - mean) / deviation
        return WindowDataset(scaled.astype(np.float32), look_back, horizon)


def series_names() -> tuple[str, ...]:
    """Return the names that `load_series` knows."""
    return _SERIES


def load_series(name: str = "ett", data_dir: str | os.PathLike[str] | None = None) -> RawSeries:
    """Load a time-series data set; `ett` is ETTh1, the hourly oil temperature and load of a transformer over two years.

    Args:
        name: one of `series_names()`.
        data_dir: the folder with the published ETTh1.csv, or one with a subfolder called `name` that has it; or a CSV file
            in the same form (ETTh2, ETTm1, ETTm2, or your own), which is taken as it is. Without it ETTh1 is downloaded
            once into a cache.

    Returns:
        The whole series; `RawSeries.windows` cuts a split into windows.

    Raises:
        DataError: an unknown name, or a missing, damaged or malformed file.
    """
    if name not in _SERIES:
        raise DataError(f"unknown time series: expected one of {', '.join(_SERIES)}; received {name!r}.")
    if data_dir is not None and (Path(data_dir).is_file() or (Path(data_dir).suffix == ".csv" and not Path(data_dir).is_dir())):
        return read_series(data_dir, name)
    return read_series(resolve(name, data_dir)["series"], name)


def read_series(path: str | os.PathLike[str], name: str | None = None) -> RawSeries:
    """Read a CSV whose first column is a date and time, `2016-07-01 00:00:00`, and whose others are series of numbers.

    Args:
        path: the file; its first line names the columns, and rows follow each other by one constant step in time.
        name: what the series is called; the file's name if None.

    Raises:
        DataError: it cannot be read, or a line has another form; the message names the line.
    """
    file = Path(path)
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}. Check its name and permissions.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: expected a CSV in UTF-8; received: {error}.") from error
    if len(rows) < 3 or len(rows[0]) < 2:
        raise DataError(
            f"{file}: expected a line of column names (a date and at least one series) and two or more rows; received "
            f"{len(rows)} lines."
        )
    columns, lines = tuple(rows[0][1:]), rows[1:]
    dates = _dates(file, lines)
    values = _numbers(file, columns, lines)
    step = dates[1] - dates[0]
    for i, date in enumerate(dates):
        if step <= timedelta(0) or date - dates[0] != i * step:
            raise DataError(
                f"{file}, row {i + 1}: expected rows in the order of time, {step} apart; received {date} after "
                f"{dates[max(i - 1, 0)]}. Fill the gap or sort the rows."
            )
    return RawSeries(name or file.stem, columns, dates[0], step, values)


def _dates(file: Path, lines: list[list[str]]) -> list[datetime]:
    out = []
    for i, line in enumerate(lines, 1):
        try:
            out.append(datetime.fromisoformat(line[0]))
        except ValueError:
            raise DataError(
                f"{file}, row {i}: expected a date and time like 2016-07-01 00:00:00 first; received {line[0]!r}."
            ) from None
        if (out[-1].tzinfo is None) != (out[0].tzinfo is None):
            raise DataError(f"{file}, row {i}: expected a time zone in every date or in none; received {line[0]!r}.")
    return out


def _numbers(file: Path, columns: tuple[str, ...], lines: list[list[str]]) -> npt.NDArray[np.float64]:
    for i, line in enumerate(lines, 1):
        if len(line) != len(columns) + 1:
            raise DataError(f"{file}, row {i}: expected {len(columns) + 1} columns; received {len(line)}.")
    try:
        values = np.array([line[1:] for line in lines], dtype=np.float64)
        if np.isfinite(values).all():
            return values
    except ValueError:
        pass
    i, name, text = next(
        (i, n, t) for i, line in enumerate(lines, 1) for n, t in zip(columns, line[1:], strict=True) if not _finite(t)
    )
    raise DataError(f"{file}, row {i}: expected a finite number for {name}; received {text!r}. Fill or drop the gap.")


def _finite(text: Any) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
