"""Tables, folders of images and Hugging Face data sets as data sets of ours; a fault in a file is said with its place."""

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import DataLoader, LoaderError, SampleError, Subset
from firebrick.data.identity import fingerprint
from firebrick.data.sources import CSVDataset, ImageFolder, ParquetDataset, from_hugging_face, optional

TABLE = "a,b,name,label\n1.5,2,x,0\n-3.25,4,y,1\n5,6,z,1\n"
COLUMNS = {("a", "b"): "float32", "label": "int64"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


# CSV


def test_a_csv_file_gives_the_columns_asked_for_in_their_dtypes(table: Path) -> None:
    pytest.importorskip("pyarrow")
    data = CSVDataset(table, {"label": "uint8", ("b", "a"): "float64", "a": "float32"})
    label, pair, a = data.fetch(np.array([1, 2]))
    assert (label.dtype, pair.dtype, a.dtype) == (np.uint8, np.float64, np.float32)
    assert (label.tolist(), pair.tolist(), a.tolist()) == ([1, 1], [[4, -3.25], [6, 5]], [-3.25, 5])
    x, y = DataLoader(CSVDataset(table, COLUMNS), 2, num_workers=1, worker="process").first()
    assert (x.shape, y.tolist()) == ((2, 2), [0, 1])


def test_a_delimiter_is_one_character(table: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(LoaderError, match="one character separates"):
        CSVDataset(table, COLUMNS, delimiter=", ")


def test_a_compressed_csv_and_another_delimiter_are_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(TABLE.replace(",", ";").encode()))
    assert len(CSVDataset(path, COLUMNS, delimiter=";")) == 3


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        (TABLE.replace("4,y", ",y"), COLUMNS, [r'column "b"', "no value in row 1"]),
        (TABLE.replace("5,6", "NaN,6"), COLUMNS, [r'column "a"', "row 2"]),
        (TABLE.replace("5,6", "nan,6").replace("1.5", ""), COLUMNS, [r'column "a"', "row 0", "1 more"]),
        (TABLE.replace("4,y", "four,y"), COLUMNS, ["four", "Row #3"]),  # as pyarrow counts, the header being line 1
        (TABLE, {"label": "float32", "c": "float32"}, ["'c'"]),
        (TABLE, {"a": "int64"}, ["1.5"]),
        (TABLE, {"b": "bool"}, ["bool"]),
        ("a,b\n", {"a": "float32"}, ["at least one row"]),
        ("", {"a": "float32"}, ["Empty"]),
        ("a,b\n1,2\n3\n", {"a": "float32"}, ["Expected 2 columns"]),
        (TABLE, {"name": "str"}, ["dtype"]),
        (TABLE, {}, ["at least one column"]),
        (TABLE, {"a": "float33"}, ["float33"]),
        (TABLE.replace("5,6", "1e60,6"), COLUMNS, [r'column "a"', "beyond the range of float32 in row 2"]),
        (TABLE.replace("5,6", "-inf,6"), COLUMNS, [r'column "a"', "row 2"]),
        ("a,b,a\n1,2,3\n", {"a": "float32"}, ['2 columns "a"', "name of its own"]),
    ],
)
def test_a_csv_file_that_does_not_fit_is_refused_with_the_place(
    tmp_path: Path, text: str, columns: Any, said: list[str]
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(LoaderError) as caught:
        CSVDataset(path, columns)
    for part in said:
        assert part in str(caught.value)
    assert caught.value.remedy


def test_a_name_that_stands_twice_is_no_matter_where_it_is_not_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.csv"
    path.write_text("a,b,a\n1,2,3\n")
    assert CSVDataset(path, {"b": "int64"})[0] == (2,)


@pytest.mark.parametrize("kind", [CSVDataset, ParquetDataset])
@pytest.mark.parametrize("path", [None, 3])
def test_a_path_that_is_none_is_refused(kind: Any, path: Any) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(LoaderError, match="reads a file"):
        kind(path, COLUMNS)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(LoaderError, match=r"nowhere\.csv"):
        CSVDataset(tmp_path / "nowhere.csv", COLUMNS)
    with pytest.raises(LoaderError, match=r"nowhere\.parquet"):
        ParquetDataset(tmp_path / "nowhere.parquet", COLUMNS)


# Parquet


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    writer.write_table(arrow.table(columns), path)
    return path


def test_a_parquet_file_gives_numbers_and_vectors(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", {"v": [[1, 2, 3], [4, 5, 6]], "w": [0.5, 1.5], "text": ["a", "b"]})
    v, w = ParquetDataset(path, {"v": "uint8", "w": "float64"}).fetch(np.array([1]))
    assert (v.tolist(), w.tolist(), v.dtype) == ([[4, 5, 6]], [1.5], np.uint8)


def test_a_folder_of_parquet_files_is_one_data_set(tmp_path: Path) -> None:
    for i in range(3):
        parquet(tmp_path / f"part-{i}.parquet", {"n": [2 * i, 2 * i + 1]})
    assert ParquetDataset(tmp_path, {"n": "int64"}).arrays[0].tolist() == list(range(6))


@pytest.mark.parametrize(
    ("columns", "wanted", "said"),
    [
        ({"a": [1.0], "b": [[1.0, 2.0]]}, {("a", "b"): "float32"}, ["a: [1], b: [1, 2]"]),
        ({"a": [1.0, 1e300]}, {"a": "float32"}, ["beyond the range of float32 in row 1"]),
        ({"a": [1.0, None, 3.0, None]}, {"a": "float32"}, ["no value in row 1", "1 more"]),
        ({"a": [1.0, 2.0, float("nan")]}, {"a": "float32"}, ["NaN in row 2"]),
        ({"a": [[1.0, 2.0], [3.0, None]]}, {"a": "float32"}, ["no value in row 1"]),
        ({"a": [[1.0, 2.0], [3.0, float("nan")]]}, {"a": "float32"}, ["NaN in row 1"]),
        ({"a": [[1.0, 2.0], [3.0]]}, {"a": "float32"}, ["2 in row 0, 1 in row 1"]),
        ({"a": [1, 300]}, {"a": "uint8"}, ['column "a"', "300"]),
        ({"a": [1.0, 2.5]}, {"a": "int64"}, ['column "a"']),
        ({"a": ["x"]}, {"a": "float32"}, ['column "a"']),
        ({"a": [1.0]}, {"b": "float32"}, ["no column 'b' among a"]),
    ],
)
def test_a_parquet_file_that_does_not_fit_is_refused_with_the_place(
    tmp_path: Path, columns: Any, wanted: Any, said: list[str]
) -> None:
    path = parquet(tmp_path / "t.parquet", columns)
    with pytest.raises(LoaderError) as caught:
        ParquetDataset(path, wanted)
    for part in said:
        assert part in str(caught.value)


def test_what_is_no_parquet_is_refused(table: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(LoaderError, match=r"table\.csv"):
        ParquetDataset(table, COLUMNS)


# images


def pictures(root: Path, sizes: dict[str, tuple[int, int]]) -> Path:
    image = pytest.importorskip("PIL.Image")
    for i, (name, size) in enumerate(sizes.items()):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((*size, 3), 10 * i, np.uint8)).save(root / name)
    return root


def test_classes_and_files_are_sorted_and_images_decoded(tmp_path: Path) -> None:
    root = pictures(tmp_path, {"dogs/b.png": (4, 6), "cats/z.bmp": (4, 6), "dogs/a/c.PNG": (4, 6), "cats/a.png": (4, 6)})
    (root / "dogs" / "notes.txt").write_text("no image")
    data = ImageFolder(root)
    assert data.classes == ("cats", "dogs")
    assert [str(f.relative_to(root)) for f in data.files] == ["cats/a.png", "cats/z.bmp", "dogs/a/c.PNG", "dogs/b.png"]
    images, labels = DataLoader(data, 4, num_workers=2, worker="process").first()
    assert images.shape == (4, 4, 6, 3)
    assert images.numpy()[:, 0, 0, 0].tolist() == [30, 10, 20, 0]
    assert labels.tolist() == [0, 0, 1, 1]


def test_folders_are_told_apart_by_their_files_wherever_they_lie(tmp_path: Path) -> None:
    sizes = {"a/1.png": (4, 6), "b/2.png": (4, 6)}
    first, second = (fingerprint(ImageFolder(pictures(tmp_path / where, sizes))) for where in ("here", "there"))
    assert first == second
    assert "digest" in first
    (tmp_path / "here" / "a" / "1.png").write_bytes((tmp_path / "here" / "b" / "2.png").read_bytes())
    (tmp_path / "there" / "a" / "1.png").rename(tmp_path / "there" / "a" / "0.png")
    changed = [fingerprint(ImageFolder(tmp_path / where))["digest"] for where in ("here", "there")]
    assert len({first["digest"], *changed}) == 3
    assert fingerprint(Subset(ImageFolder(tmp_path / "here"), [1]))["digest"] not in changed


def test_images_are_resized_and_made_grey(tmp_path: Path) -> None:
    root = pictures(tmp_path, {"a/1.png": (4, 6), "b/2.png": (9, 3)})
    assert [ImageFolder(root, size=(5, 7), mode="L")[i][0].shape for i in (0, 1)] == [(5, 7), (5, 7)]
    with pytest.raises(SampleError, match="one shape") as caught:
        DataLoader(ImageFolder(root), 2).first()
    assert "sample_transform" in caught.value.remedy


@pytest.mark.parametrize("count", [0, 1])
def test_a_damaged_image_is_named(tmp_path: Path, count: int) -> None:
    root = pictures(tmp_path, {"a/1.png": (40, 60), "b/2.png": (40, 60)})
    whole = (root / "b" / "2.png").read_bytes()
    (root / "b" / "2.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SampleError, match=r"reading sample 1 raised LoaderError: .*2\.png is an image"):
        list(DataLoader(ImageFolder(root), 2, num_workers=count))


@pytest.mark.parametrize("size", [5, (1, 2, 3), (1.5, 2), (0, 4), "ab"])
def test_a_size_that_is_none_is_refused(tmp_path: Path, size: Any) -> None:
    pytest.importorskip("PIL.Image")
    with pytest.raises(LoaderError, match=r"a size \(height, width\)"):
        ImageFolder(pictures(tmp_path, {"a/1.png": (4, 4)}), size=size)


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    with pytest.raises(LoaderError, match="no such folder"):
        ImageFolder(tmp_path / "absent")
    with pytest.raises(LoaderError, match="no folders"):
        ImageFolder(tmp_path)
    pictures(tmp_path, {"full/1.png": (2, 2)})
    (tmp_path / "void").mkdir()
    with pytest.raises(LoaderError, match="no images in void"):
        ImageFolder(tmp_path)
    with pytest.raises(LoaderError, match="mode 'CMYK'"):
        ImageFolder(tmp_path, mode="CMYK")
    with pytest.raises(LoaderError, match=r"size \(0, 3\)"):
        ImageFolder(tmp_path, size=(0, 3))


# Hugging Face


class Rows:
    """What ``from_hugging_face`` needs of a ``datasets.Dataset``."""

    def __init__(self) -> None:
        self.column_names = ["text", "label", "pixels"]
        self.table: dict[str, list[Any]] = {
            "text": ["a", "b", "c"],
            "label": [3, 5, None],
            "pixels": [[[1, 2]], [[3, 4]], [[5, 6]]],
        }
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> dict[str, Any]:
        self.asked.append(key)
        return {c: [v[i] for i in key] if isinstance(key, list) else v[key] for c, v in self.table.items()}


def test_rows_of_dictionaries_become_tuples_and_batches_are_read_at_once() -> None:
    rows = Rows()
    data = from_hugging_face(rows, ["pixels", "label"])
    x, y = DataLoader(data, 2).first()
    assert (x.tolist(), y.tolist()) == ([[[1, 2]], [[3, 4]]], [3, 5])
    assert rows.asked == [[0, 1]]
    assert [v.tolist() for v in data[1]] == [[[3, 4]], 5]


def test_columns_are_given_by_name_with_dtypes_of_either_library(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("fare,kind\n7.5,1\n")
    made = CSVDataset(tmp_path / "a.csv", {"fare": fb.float32, "kind": np.int64})
    assert [str(a.dtype) for a in made.arrays] == ["float32", "int64"]
    with pytest.raises(LoaderError, match=r"dtypes of its columns by name(.|\n)*list \['fare'\]"):
        CSVDataset(tmp_path / "a.csv", ["fare"])  # type: ignore[arg-type]
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"a": [1, 0]}), tmp_path / "a.parquet")
    with pytest.raises(LoaderError, match="state a dtype of numbers, and compare"):
        ParquetDataset(tmp_path / "a.parquet", {"a": "bool"})


def test_a_missing_value_or_text_names_column_and_row() -> None:
    with pytest.raises(SampleError, match=r'column "label".*NoneType in row 2'):
        DataLoader(from_hugging_face(Rows(), ["label"]), 3).first()
    with pytest.raises(LoaderError, match="str in row 1"):
        from_hugging_face(Rows())[1]


@pytest.mark.parametrize(("value", "said"), [(float("nan"), "NaN"), ([1.0, float("-inf")], "an infinity")])
def test_a_number_that_is_not_finite_names_column_and_row(value: Any, said: str) -> None:
    rows = Rows()
    rows.table["pixels"][1] = value
    with pytest.raises(SampleError, match=f'column "pixels".*{said}.* in row 1'):
        DataLoader(from_hugging_face(rows, ["pixels"]), 2).first()


@pytest.mark.parametrize(
    ("given", "columns", "said"),
    [
        ({"train": Rows(), "test": Rows()}, None, "splits train, test"),
        (iter([]), None, "map-style"),
        ([1, 2], None, "Received: list"),
        (
            type("Uncounted", (), {"column_names": ["x"], "__getitem__": lambda self, i: {"x": i}})(),
            None,
            "Received: Uncounted",
        ),
        (type("Unread", (), {"column_names": ["x"], "__len__": lambda self: 3})(), None, "Received: Unread"),
        (Rows(), ["pixel"], "pixel"),
        (Rows(), [], "none"),
    ],
)
def test_what_is_no_map_style_data_set_is_refused(given: Any, columns: Any, said: str) -> None:
    with pytest.raises(LoaderError, match=said) as caught:
        from_hugging_face(given, columns)
    assert caught.value.remedy


def test_a_data_set_of_the_library_itself_is_read() -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets, to read one of its own")
    rows = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [0, 1, 0]})
    for count in (0, 2):
        loader = DataLoader(from_hugging_face(rows, ["x", "y"]), 2, num_workers=count, worker="process")
        assert [(x.tolist(), y.tolist()) for x, y in loader] == [([[1, 2], [3, 4]], [0, 1]), ([[5, 6]], [0])]
    with pytest.raises(LoaderError, match="splits train"):
        from_hugging_face(datasets.DatasetDict({"train": rows}))
    with pytest.raises(LoaderError, match="map-style"):
        from_hugging_face(rows.to_iterable_dataset())


# what is not installed


@pytest.mark.parametrize(
    ("call", "package"),
    [
        (lambda: CSVDataset("t.csv", COLUMNS), "pyarrow"),
        (lambda: ParquetDataset("t.parquet", COLUMNS), "pyarrow"),
        (lambda: ImageFolder("pictures"), "Pillow"),
    ],
)
def test_an_absent_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, call: Any, package: str) -> None:
    def absent(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(optional, "import_module", absent)
    with pytest.raises(fb.UnsupportedError, match=package) as caught:
        call()
    assert "firebrick[data]" in caught.value.remedy


@pytest.mark.parametrize(
    ("source", "module"),
    [(CSVDataset, "pyarrow"), (CSVDataset, "pyarrow.csv"), (ParquetDataset, "pyarrow"), (ParquetDataset, "pyarrow.parquet")],
)
def test_a_package_that_is_absent_is_named_with_the_extra(
    source: Any, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(fb.UnsupportedError, match=rf"{source.__name__} needs pyarrow[\s\S]*firebrick\[data\]"):
        source(tmp_path / "table", COLUMNS)


@pytest.mark.parametrize(("text", "line"), [
    ('x,note\n1,a\n2,"tall\n3,b\n4,c\n', 3), ('x,note\n1,"a\nb"\n2,"tall\n3,b', 4), ('x,note\n1,"\n', 2),
    ('x,note\n1,"a""\n2,b\n', 2),
])  # fmt: skip
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_quoted_value_without_an_end_is_refused(text: str, line: int, suffix: str, tmp_path: Path) -> None:
    """Arrow takes all rows behind it for a part of the value."""
    path = tmp_path / f"table{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix == ".csv.gz" else text.encode())
    with pytest.raises(LoaderError, match=rf"a quotation mark in line {line} without another one"):
        CSVDataset(path, {"x": "float32"})


def test_quotation_marks_that_end_or_stand_within_a_value(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('\ufeff"x","note"\n1,"a,""b"""\n2,5" pipe\n3,""\n"4","c\nd"\n')
    assert CSVDataset(path, {"x": "float32"}).arrays[0].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_an_empty_line_of_a_table_of_one_column_is_a_missing_value(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("x\n1\n\n3\n")
    with pytest.raises(LoaderError, match="no value in row 1"):
        CSVDataset(path, {"x": "float32"})
    path.write_text("x\n1\n2\n3")
    assert len(CSVDataset(path, {"x": "float32"})) == 3
