"""What the values of a table are is neither guessed nor rounded away: CSV and Parquet refuse the same, by column."""

from __future__ import annotations

import datetime
import gzip
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from firebrick.data import LoaderError
from firebrick.data.sources import CSVDataset, ParquetDataset

arrow = pytest.importorskip("pyarrow")
writer = pytest.importorskip("pyarrow.parquet")


def parquet(path: Path, values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer.write_table(arrow.table({"a": values}), path)
    return path


@pytest.mark.parametrize(
    ("values", "dtype", "remedy"),
    [
        ([datetime.datetime(2020, 1, 1)], "int64", "in a unit of your choice"),
        ([datetime.timedelta(seconds=1)], "int64", "in a unit of your choice"),
        ([datetime.date(2020, 1, 1)], "int32", "in a unit of your choice"),
        (["1"], "float32", "to numbers"),
        ([["1", "2"]], "float32", "to numbers"),
        (["true"], "bool", "convert it"),
        ([True], "float32", 'the dtype "bool"'),
        ([2], "bool", "dtype of numbers"),
    ],
)
def test_parquet_columns_of_another_kind_are_refused_by_name(tmp_path: Path, values: Any, dtype: str, remedy: str) -> None:
    with pytest.raises(LoaderError, match='column "a"') as caught:
        ParquetDataset(parquet(tmp_path / "t.parquet", values), {"a": dtype})
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("values", "dtype", "read"),
    [([True, False], "bool", [True, False]), ([Decimal("0.5")], "float32", [0.5]), ([2, 3], "float32", [2.0, 3.0])],
)
def test_parquet_columns_of_numbers_and_bools_are_read(tmp_path: Path, values: Any, dtype: str, read: list[Any]) -> None:
    assert ParquetDataset(parquet(tmp_path / "t.parquet", values), {"a": dtype}).arrays[0].tolist() == read
    assert ParquetDataset(parquet(tmp_path / "d.parquet", arrow.array([5, 5]).dictionary_encode()), {"a": "int64"}).arrays[
        0
    ].tolist() == [5, 5]


@pytest.mark.parametrize(
    ("number", "dtype"), [(2**24 + 1, "float32"), (2**53 + 1, "float64"), (-(2**53) - 1, "float64"), (2**63 + 1, "float64")]
)
def test_whole_numbers_that_a_float_cannot_hold_are_refused_by_both(tmp_path: Path, number: int, dtype: str) -> None:
    csv = tmp_path / "t.csv"
    csv.write_text(f"a,b\n1,2\n{number},2\n")
    stored = arrow.array([1, number], arrow.uint64() if number >= 2**63 else arrow.int64())
    for read in (
        lambda: CSVDataset(csv, {"a": dtype}),
        lambda: ParquetDataset(parquet(tmp_path / "t.parquet", stored), {"a": dtype}),
    ):
        with pytest.raises(LoaderError, match=r'column "a" of .* holds what'):
            read()


def test_fractions_are_rounded_and_large_ones_are_read(tmp_path: Path) -> None:
    csv = tmp_path / "t.csv"
    csv.write_text("a,b\n0.1,16777216\n16777217.0,1\n1e30,2\n33554432,3\n")
    data = CSVDataset(csv, {"a": "float32", "b": "float32"})
    assert data.arrays[0].tolist()[1] == 2.0**24
    assert data.arrays[0].tolist()[3] == 2.0**25
    assert data.arrays[1].tolist() == [16777216.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("number", "dtype", "read_as", "remedy"),
    [
        ("16777217", "float32", "16777216", 'state "float64"'),
        ("-9007199254740993", "float64", "-9007199254740992", 'state "int64" if all are whole'),
        ("123456789012345678901", "float64", "123456789012345683968", r"write 123456789012345678901\.0 in the file"),
    ],
)
def test_a_whole_number_that_would_be_rounded_among_fractions_is_refused(
    tmp_path: Path, number: str, dtype: str, read_as: str, remedy: str
) -> None:
    csv = tmp_path / "t.csv"
    csv.write_text(f"b,a\nx,0.5\ny, {number} \nz,{number}\n")
    with pytest.raises(LoaderError) as caught:
        CSVDataset(csv, {"a": dtype})
    assert str(caught.value).startswith(f'column "a" of {csv} holds what {dtype} can\n')
    assert f"Received: {number} in row 1 (the first is 0), which would be read as {read_as}, and 1 more." in str(caught.value)
    assert re.match(remedy, caught.value.remedy)


LONG = "x" * 3_000_000


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    ("text", "column", "read"),
    [
        (f"a,b\n{LONG},1\ny,2\n", "b", [1, 2]),
        (f'a,b\ny,2\n"{LONG}\n{LONG}",1\n', "b", [2, 1]),
        (f"{LONG},b\n1,1\n2,2\n", "b", [1, 2]),
        (f"{LONG}\n1\n2\n", LONG, [1, 2]),
        ("a,b\n" + "y,2\n" * 300_000 + f"{LONG},1\n", "b", [2] * 300_000 + [1]),
    ],
    ids=["first", "quoted", "header", "one column", "last of many"],
)
def test_a_row_longer_than_a_block_is_read(tmp_path: Path, text: str, column: str, read: list[int], suffix: str) -> None:
    path = tmp_path / f"t.{suffix}"
    path.write_bytes(text.encode() if suffix == "csv" else gzip.compress(text.encode(), 1))
    assert CSVDataset(path, {column: "int64"}).arrays[0].tolist() == read


def test_a_row_longer_than_the_largest_block_is_refused_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import firebrick.data.sources.tables as tables

    monkeypatch.setattr(tables, "_BLOCKS", (2**10, 2**20))
    path = tmp_path / "t.csv"
    path.write_text(f"a,b\n{LONG},1\ny,2\n")
    with pytest.raises(LoaderError, match=r"each row of .*t\.csv has at most 1048576 bytes"):
        CSVDataset(path, {"b": "int64"})
    path.write_text("")
    with pytest.raises(LoaderError, match="Empty CSV file"):
        CSVDataset(path, {"b": "int64"})


def test_an_absent_column_of_a_csv_lists_those_there(tmp_path: Path) -> None:
    csv = tmp_path / "t.csv"
    csv.write_text("a,c\n1,2\n")
    with pytest.raises(LoaderError, match="no column 'b' among a, c"):
        CSVDataset(csv, {"a": "float32", "b": "float32"})


def test_float16_of_a_csv_is_refused_with_the_cast(tmp_path: Path) -> None:
    csv = tmp_path / "t.csv"
    csv.write_text("a\n1\n")
    with pytest.raises(LoaderError, match="CSVDataset reads the floats float32 and float64") as caught:
        CSVDataset(csv, {"a": "float16"})
    assert 'DataLoader(…, dtype="float16")' in caught.value.remedy


def test_a_folder_of_parquet_files_has_nothing_else_in_it(tmp_path: Path) -> None:
    for i in range(2):
        parquet(tmp_path / "data" / f"year-{i}" / f"{i}.parquet", [i])
    (tmp_path / "data" / "_SUCCESS").touch()
    (tmp_path / "data" / ".note").write_text("not read")
    assert ParquetDataset(tmp_path / "data", {"a": "int64"}).arrays[0].tolist() == [0, 1]
    (tmp_path / "data" / "readme.txt").write_text("one more file")
    with pytest.raises(LoaderError, match=r"readme\.txt, which is none"):
        ParquetDataset(tmp_path / "data", {"a": "int64"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(LoaderError, match="check the path"):
        ParquetDataset(tmp_path / "empty", {"a": "int64"})


def test_a_folder_is_refused_at_the_first_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import firebrick.data.sources.tables as tables

    (tmp_path / "a.txt").write_text("x")
    for i in range(5):
        (tmp_path / "sub" / str(i)).mkdir(parents=True)
        (tmp_path / "sub" / str(i) / "b.txt").write_text("x")
    looked: list[Any] = []
    monkeypatch.setattr(tables, "opened", lambda p, real=tables.opened: looked.append(p) or real(p))
    with pytest.raises(LoaderError, match=r"a\.txt, which is none"):
        ParquetDataset(tmp_path, {"a": "int64"})
    assert len(looked) == 1


def test_line_breaks_in_quotes_are_read_in_files_of_any_size(tmp_path: Path) -> None:
    path, rows = tmp_path / "notes.csv", 120_000  # several blocks, which begin at any row
    notes = ["plain", "a, b", "two\nlines", "7\n8,9,10", 'say ""hi""']
    path.write_text("a,note,b\n" + "".join(f'{i},"{notes[i % 5]}",{i % 7}\n' for i in range(rows)), encoding="utf-8-sig")
    a, b = CSVDataset(path, {"a": "int64", "b": "int64"}).arrays
    assert (a == range(rows)).all()
    assert (b == a % 7).all()


def test_leading_zeros_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "zeros.csv"
    path.write_text("a,b\n" + "0" * 5000 + "16777216,3\n000,4\n", encoding="utf-8")
    data = CSVDataset(path, {"a": "float32", "b": "int64"})
    assert [float(data[k][0]) for k in range(2)] == [16777216.0, 0.0]
    path.write_text("a,b\n" + "0" * 5000 + "16777217,3\n", encoding="utf-8")
    with pytest.raises(LoaderError, match="would be read as 16777216"):
        CSVDataset(path, {"a": "float32", "b": "int64"})
