"""Multivariate time series: a CSV with a date column, its standard split in time, and its scaling.

The electricity transformer data (ETT) are forecast by a fixed protocol: twelve months of thirty days train, the next four
validate, the next four test; each series is scaled by mean and deviation of its training rows alone. The windows of a later
part may look back into the part before, so that its first forecast begins with its first row.
"""

from __future__ import annotations

import csv
import io
import math
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from firebrick.core.untrusted import opened
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
        with io.TextIOWrapper(opened(file), encoding="utf-8-sig", newline="") as stream:
            return _series(file, name or file.stem, (row for row in csv.reader(stream) if row))
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}. Check its name and permissions.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: expected a CSV in UTF-8; received: {error}.") from error


def _series(file: Path, name: str, rows: Iterator[list[str]]) -> RawSeries:
    """A series from its lines, of which one at a time is kept as text."""
    names = next(rows, [])
    if _is_date(names[0] if names else ""):
        raise DataError(
            f"{file}: expected a line of column names first (a date and at least one series); received a row of values, "
            f"{names[0]!r:.80}. Write the names into the first line."
        )
    columns = tuple(names[1:])
    values = array("d")
    start = last = step = None
    count = 0
    for count, row in enumerate(rows, 1):
        date = _date(file, count, row[0])
        if start is None:
            start = date
        elif (date.tzinfo is None) != (start.tzinfo is None):
            raise DataError(f"{file}, row {count}: expected a time zone in every date or in none; received {row[0]!r:.80}.")
        if last is not None:
            apart = date - last
            step = apart if step is None else step
            if step <= timedelta(0) or apart != step:
                raise DataError(
                    f"{file}, row {count}: expected rows in the order of time, {step} apart; received {date} after "
                    f"{last}. Fill the gap or sort the rows."
                )
        last = date
        if len(row) != len(columns) + 1:
            raise DataError(f"{file}, row {count}: expected {len(columns) + 1} columns; received {len(row)}.")
        values.extend(_number(file, count, n, text) for n, text in zip(columns, row[1:], strict=True))
    if start is None or step is None or not columns:
        raise DataError(
            f"{file}: expected a line of column names (a date and at least one series) and two or more rows; received "
            f"{count} rows of {len(columns)} series."
        )
    return RawSeries(name, columns, start, step, np.array(values).reshape(count, len(columns)))


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _date(file: Path, row: int, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise DataError(
            f"{file}, row {row}: expected a date and time like 2016-07-01 00:00:00 first; received {text!r:.80}."
        ) from None


def _number(file: Path, row: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{file}, row {row}: expected a finite number for {name}; received {text!r:.80}. Fill or drop the gap.")
    return value
