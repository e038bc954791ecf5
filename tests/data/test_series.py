"""Time series: the published form, the split in time, the scaling, and windows cut when they are asked for."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from rounding import within

from firebrick.core.errors import ConfigError
from firebrick.data import DataLoader, LoaderError, WindowDataset
from firebrick.data.datasets import DataError, RawSeries, load_series, read_series, series_names


def csv_of(rows: int, step: timedelta = timedelta(hours=1), columns: tuple[str, ...] = ("HUFL", "OT")) -> str:
    start = datetime(2016, 7, 1)
    lines = [",".join(("date", *columns))]
    lines += [f"{start + i * step},{','.join(str(i + 1000 * c) for c in range(len(columns)))}" for i in range(rows)]
    return "\n".join(lines) + "\n"


def hours(count: int = 14500) -> RawSeries:
    """One series that counts hours, and a constant one."""
    values = np.stack([np.arange(count, dtype=np.float64), np.full(count, 3.0)], 1)
    return RawSeries("ett", ("a", "b"), datetime(2016, 7, 1), timedelta(hours=1), values)


def test_a_csv_is_read_with_its_dates_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(csv_of(5, timedelta(minutes=15)))
    series = load_series("ett", path)
    assert series.columns == ("HUFL", "OT")
    assert series.start == datetime(2016, 7, 1)
    assert series.step == timedelta(minutes=15)
    assert series.values.tolist()[2] == [2.0, 1002.0]
    assert read_series(path).name == "mine"


def test_the_split_is_twelve_four_and_four_months_of_thirty_days() -> None:
    series = hours()
    assert [series.borders(s) for s in ("train", "validation", "test")] == [(0, 8640), (8640, 11520), (11520, 14400)]
    quarters = RawSeries("ett", ("a",), series.start, timedelta(minutes=15), np.zeros((4 * 14400, 1)))
    assert quarters.borders("test") == (4 * 11520, 4 * 14400)


def test_later_parts_look_back_and_their_forecasts_begin_with_their_first_row() -> None:
    series, look_back, horizon = hours(), 336, 96
    mean, deviation = series.scaling()
    counts = {}
    for split in ("train", "validation", "test"):
        windows = series.windows(split, look_back, horizon)
        counts[split] = len(windows)
        first, stop = series.borders(split)
        _, target = windows[0]
        back = target[0, 0] * deviation[0] + mean[0]
        within(np.float32(back), first if split != "train" else look_back, 4, scale=stop)
        last = windows[len(windows) - 1][1][-1, 0] * deviation[0] + mean[0]
        within(np.float32(last), stop - 1, 4, scale=stop)
    assert counts == {"train": 8209, "validation": 2785, "test": 2785}


def test_scaling_looks_at_the_training_rows_alone() -> None:
    series = hours()
    changed = RawSeries("ett", series.columns, series.start, series.step, series.values.copy())
    changed.values[8640:] *= 1e6
    for one, other in zip(series.scaling(), changed.scaling(), strict=True):
        assert one.tolist() == other.tolist()
    mean, deviation = series.scaling()
    assert mean.tolist() == [8639 / 2, 3.0]
    assert deviation.tolist() == pytest.approx([np.arange(8640).std(), 1.0])  # a constant series is only shifted


def test_windows_are_gathered_when_fetched_and_never_held() -> None:
    values = np.arange(20.0).reshape(10, 2)
    data = WindowDataset(values, 3, 2)
    assert data.values is values
    seen, target = data.fetch(np.array([5, 0]))
    assert seen.shape == (2, 3, 2)
    assert target.shape == (2, 2, 2)
    for row, index in enumerate((5, 0)):
        one, two = data[index]
        assert seen[row].tolist() == one.tolist()
        assert target[row].tolist() == two.tolist()
    (x, y), *_ = DataLoader(data, 4, shuffle=True, seed=1)
    assert x.shape == (4, 3, 2)
    assert y.shape == (4, 2, 2)
    for outside in ([6], [-1], [0, 6]):
        with pytest.raises(IndexError, match=f"windows {outside[0]} to {outside[-1]} of 6"):
            data.fetch(np.array(outside))
    for index in (-1, 6):
        with pytest.raises(IndexError, match=f"window {index} of 6"):
            data[index]
    assert [a.shape for a in data.fetch(np.array([], np.int64))] == [(0, 3, 2), (0, 2, 2)]
    assert len(WindowDataset(values, 6, 4)) == 1


@pytest.mark.parametrize(
    ("values", "look_back", "horizon", "text"),
    [
        (np.zeros(5), 1, 1, "floating array"),
        (np.zeros((5, 1), np.int64), 1, 1, "floating array"),
        (np.zeros((5, 1)), 4, 2, "no longer than the series"),
        (np.zeros((5, 1)), 0, 2, "look_back is an int ≥ 1"),
        (np.zeros((5, 1)), 2, 1.0, "horizon is an int ≥ 1"),
    ],
)
def test_windows_that_cannot_be_are_refused(values: np.ndarray, look_back: int, horizon: int, text: str) -> None:
    with pytest.raises((LoaderError, ConfigError), match=text):
        WindowDataset(values, look_back, horizon)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date,a\n", "two or more rows"),
        (csv_of(4).partition("\n")[2], "line of column names first .*; received a row of values, '2016-07-01 00:00:00'"),
        ("\ufeff" + csv_of(4).partition("\n")[2], "line of column names first .*; received a row of values, '2016-07-01 00"),
        (csv_of(3).replace("1001", "x"), "row 2: expected a finite number for OT; received 'x'"),
        (csv_of(3).replace("1001", "nan"), "row 2: expected a finite number for OT"),
        (csv_of(3).replace("2016-07-01 01:00:00", "yesterday"), "row 2: expected a date and time"),
        (csv_of(3).replace(",1001", ""), "row 2: expected 3 columns; received 2"),
        (csv_of(4).replace("2016-07-01 02:00:00", "2016-07-01 05:00:00"), "row 3: expected rows in the order of time"),
        (csv_of(3).replace("2016-07-01 01:00:00", "2016-07-01 00:00:00"), "in the order of time"),
        (csv_of(3).replace("2016-07-01 01:00:00", "2016-07-01 01:00:00+00:00"), "row 2: expected a time zone in every date"),
        ("date,a\n0001-01-01,1\n9000-01-01,2\n9001-01-01,3\n", "row 3: expected rows in the order of time"),
    ],
)
def test_a_malformed_csv_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_series(path)


def test_missing_files_and_short_series_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected ETTh1.csv in"):
        load_series("ett", tmp_path)
    with pytest.raises(DataError, match="cannot read"):
        read_series(tmp_path / "none.csv")
    with pytest.raises(DataError, match="unknown time series: expected one of ett"):
        load_series("weather")
    with pytest.raises(DataError, match="at least 14400 rows"):
        hours(14000).windows("test", 10, 10)
    with pytest.raises(DataError, match="at most 30 days apart"):
        RawSeries("yearly", ("a",), datetime(2000, 1, 1), timedelta(days=365), np.zeros((50, 1))).windows("train", 2, 2)
    with pytest.raises(DataError, match=r"cannot read .*gone\.csv: No such file"):
        load_series("ett", tmp_path / "gone.csv")
    with pytest.raises(DataError, match="unknown split"):
        hours().borders("valid")
    assert series_names() == ("ett",)


def test_a_published_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ETTh1.csv").write_text(csv_of(5))
    with pytest.raises(DataError, match="checksum"):
        load_series("ett", tmp_path)


@pytest.mark.skipif(
    "FIREBRICK_TEST_DATA_DIR" not in os.environ, reason="FIREBRICK_TEST_DATA_DIR names no folder with ETTh1.csv"
)
def test_etth1_as_published_has_its_rows_series_and_windows() -> None:
    series = load_series("ett", os.environ["FIREBRICK_TEST_DATA_DIR"])
    assert series.values.shape == (17_420, 7)
    assert series.columns == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
    assert series.start == datetime(2016, 7, 1)
    counts = [len(series.windows(split, 336, 96)) for split in ("train", "validation", "test")]
    assert counts == [8209, 2785, 2785]
    scaled = series.windows("train", 336, 96).values.astype(np.float64)
    assert np.abs(scaled.mean(0)).max() < 1e-5
    assert scaled.std(0) == pytest.approx(np.ones(7), abs=1e-5)
