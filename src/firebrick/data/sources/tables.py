"""Tables of numbers in CSV and Parquet files, read once into arrays of stated dtypes; nothing missing gets in.

Both read with pyarrow. A table is for what fits into memory; larger ones are read as an ``IterableDataset`` of one's own.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from firebrick.core.dtypes import DType
from firebrick.core.settings import whole
from firebrick.core.untrusted import check_regular, opened
from firebrick.data.dataset import ArrayDataset
from firebrick.data.errors import LoaderError
from firebrick.data.sources.optional import need

Array = np.ndarray[Any, Any]
Columns = Mapping[str | tuple[str, ...], Any]
_COMPRESSED = frozenset({".gz", ".bz2", ".br", ".lz4", ".zst"})  # what Arrow decompresses by its name
_WHOLE = re.compile(r"\s*([+-]?)0*([0-9]+?)\s*")  # without leading zeros, which count to the digits that Python converts
_BLOCKS = (2**20, 2**24, 2**28, 2**31 - 1)  # bytes; the last is the most that Arrow takes
_TOO_LONG = ("straddles two block boundaries", "Empty CSV file or block")  # Arrow's errors of a row, and of a header
_IGNORED, _PARQUET = (".", "_"), (b"PAR1", b"PARE")  # names that Arrow ignores in a folder; how a Parquet file begins
_LEAST, _RATIO = 2**28, 200  # bytes that any file may be decompressed to, and their ratio to the bytes of a larger one


class CSVDataset(ArrayDataset):
    r"""The rows of a CSV file with a header line: sample i is the tuple of its values in row i.

    The file is UTF-8, with or without a byte order mark; values in double quotes may hold delimiters and line breaks.

    Args:
        path: The file, also compressed by gzip (``.csv.gz``).
        columns: What a sample is made of, in this order, with the dtype of each: the name of a column, or a tuple of names that
            make one vector. Other columns are not read. Whole numbers must fit into a float dtype exactly, as in Parquet; what
            is written with a decimal point or an exponent is rounded.
        delimiter: What separates values.
        max_bytes: Bytes that a compressed file may have when it is decompressed; 256 MiB or 200 times its own size, whichever
            is more, if None.

    Raises:
        UnsupportedError: pyarrow is not installed.
        LoaderError: The file is absent or no CSV, has no rows or not these columns, a value is missing, not finite or not of
            the dtype (column and row are named), or a value in quotes has no end (the line is named).

    Example:
        >>> from pathlib import Path
        >>> from firebrick.data.sources import CSVDataset
        >>> _ = Path("irises.csv").write_text("length,width,note,kind\n5.1,3.5,a,0\n6.2,2.9,b,1\n")
        >>> data = CSVDataset("irises.csv", {("length", "width"): "float32", "kind": "int64"})
        >>> data[1]
        (array([6.2, 2.9], dtype=float32), np.int64(1))
    """

    def __init__(
        self, path: str | PathLike[str], columns: Columns, *, delimiter: str = ",", max_bytes: int | None = None
    ) -> None:
        arrow, csv = need("pyarrow", "pyarrow", "CSVDataset"), need("pyarrow.csv", "pyarrow", "CSVDataset")
        types = _types("CSVDataset", columns, arrow)
        half = [n for n, kind in types.items() if arrow.types.is_float16(kind)]
        if half:
            raise LoaderError(
                "CSVDataset reads the floats float32 and float64",
                f'float16 for column "{half[0]}"',
                'state "float32", and cast the batches, e.g. DataLoader(…, dtype="float16")',
            )
        if len(delimiter) != 1:
            raise LoaderError("one character separates the values of a CSV", repr(delimiter), 'pass e.g. delimiter=";"')
        path, parse = _path("CSVDataset", path), csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        lines = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False)
        most = _most("CSVDataset", max_bytes)

        blocks = _Blocks(path, arrow)

        def read(threads: bool, types: dict[str, Any] = types) -> Any:
            convert = csv.ConvertOptions(column_types=types, include_columns=list(types))

            def of_blocks(size: int) -> Any:
                options = csv.ReadOptions(use_threads=threads, block_size=size)
                with _source(path, most, arrow) as source:
                    return csv.read_csv(source, options, lines if one() else parse, convert)

            return blocks.read(of_blocks)

        def table() -> Any:
            try:
                return read(True)
            except arrow.ArrowInvalid:
                return read(False)  # which says the row of what it cannot read

        def names() -> list[str]:
            def of_blocks(size: int) -> Any:
                options = csv.ReadOptions(block_size=size)
                with _source(path, most, arrow) as source, csv.open_csv(source, options, parse) as header:
                    return header.schema.names

            found: list[str] = blocks.read(of_blocks)
            return found

        @cache
        def one() -> bool:  # then an empty line is a row whose value is missing
            return len(names()) == 1

        def check_header() -> None:
            _check_names(names(), types, path)

        def check_whole(table: Any) -> None:
            for name, kind in types.items():
                if arrow.types.is_floating(kind) and (rows := _large(table.column(name), kind, arrow)).size:
                    texts = read(False, {name: arrow.string()}).column(name).take(rows).to_pylist()
                    _check_whole(texts, rows, table.column(name).take(rows).to_numpy(), f'column "{name}" of {Path(path)}')

        def arrays() -> list[Array]:
            try:
                read_table = table()
            except KeyError:
                check_header()  # which lists the columns that are there
                raise
            with _source(path, most, arrow) as source:
                _check_quotes(source, delimiter, path)
            check_whole(read_table)
            found = _arrays(read_table, path, columns, types, arrow)
            check_header()
            return found

        super().__init__(*_read(path, arrays))


class ParquetDataset(ArrayDataset):
    """The rows of a Parquet file, or of a folder of them: sample i is the tuple of its values in row i.

    Args:
        path: The file, or a folder that has nothing but Parquet files in it and its subfolders, besides names that begin with
            ``.`` or ``_``.
        columns: What a sample is made of, in this order, with the dtype of each: the name of a column, or a tuple of names that
            make one vector. A column of lists of one length makes vectors. Other columns are not read. Numbers are read as
            numbers and bools as ``"bool"``; texts and times are refused, since their numbers would depend on the file.
        max_bytes: Bytes that these columns may take when they are decompressed; 256 MiB or 200 times the size of the files,
            whichever is more, if None.

    Raises:
        UnsupportedError: pyarrow is not installed.
        LoaderError: The file is absent or no Parquet, has no rows or not these columns, or a value is
            missing, not finite or does not fit into the dtype; the column, and the row of what is missing, are named.

    Example:
        >>> import pyarrow, pyarrow.parquet
        >>> from firebrick.data.sources import ParquetDataset
        >>> table = pyarrow.table({"pixels": [[1, 2], [3, 4]], "label": [0, 1]})
        >>> pyarrow.parquet.write_table(table, "images.parquet")
        >>> ParquetDataset("images.parquet", {"pixels": "uint8", "label": "int64"})[1]
        (array([3, 4], dtype=uint8), np.int64(1))
    """

    def __init__(self, path: str | PathLike[str], columns: Columns, *, max_bytes: int | None = None) -> None:
        arrow, parquet = need("pyarrow", "pyarrow", "ParquetDataset"), need("pyarrow.parquet", "pyarrow", "ParquetDataset")
        types, path = _types("ParquetDataset", columns, arrow), _path("ParquetDataset", path)

        most = _most("ParquetDataset", max_bytes)

        def arrays() -> list[Array]:
            size = _size(Path(path))
            found = parquet.ParquetDataset(path)
            _check_names(found.schema.names, types, path)
            _check_stated(sum(_stated(f.metadata, types) for f in found.fragments), size, most, path)
            return _arrays(found.read(columns=list(types)), path, columns, types, arrow)

        super().__init__(*_read(path, arrays))


def _types(who: str, columns: Columns, arrow: Any) -> dict[str, Any]:
    """The Arrow type of each column that is read."""
    found: dict[str, Any] = {}
    if not isinstance(columns, Mapping):
        raise LoaderError(
            f"{who} takes the dtypes of its columns by name", f"{type(columns).__name__} {columns!r:.60}",
            'e.g. {"height": "float32", "kind": "int64"}',
        )  # fmt: skip
    try:
        for names, dtype in columns.items():
            kind = _numpy(dtype)
            if kind.kind not in "fiub":
                raise TypeError(f"dtype {kind}")
            for name in (names,) if isinstance(names, str) else names:
                found[name] = arrow.from_numpy_dtype(kind)
    except (TypeError, AttributeError) as e:
        raise LoaderError(
            f"{who} takes the dtypes of its columns", str(e), 'e.g. {"height": "float32", "kind": "int64"}'
        ) from e
    if not found:
        raise LoaderError(f"{who} reads at least one column", "none", 'e.g. {"height": "float32", "kind": "int64"}')
    return found


def _numpy(dtype: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = dtype.np if isinstance(dtype, DType) else np.dtype(dtype)
    return found


def _path(who: str, path: Any) -> str | PathLike[str]:
    if not isinstance(path, (str, PathLike)):
        raise LoaderError(f"{who} reads a file", f"path {path!r:.80}", "pass its name")
    return path


def _check_names(names: list[str], wanted: Iterable[str], path: Any) -> None:
    """A name stands for one column."""
    names, wanted = list(names), list(wanted)
    absent = [n for n in wanted if n not in names]
    if absent:
        raise LoaderError(
            f"{Path(path)} has the columns that are read",
            f"no column {', '.join(map(repr, absent))} among {', '.join(names):.1000}",
            "correct the names, or the delimiter of a CSV; the first line of a CSV is its header: add one that is missing",
        )
    twice = [n for n in wanted if names.count(n) > 1]
    if twice:
        raise LoaderError(
            f"each column of {Path(path)} that is read has a name of its own",
            ", ".join(f'{names.count(n)} columns "{n}"' for n in twice),
            "rename them in the file",
        )


def _most(who: str, max_bytes: int | None) -> int | None:
    return None if max_bytes is None else whole(who, "max_bytes", max_bytes, 1)


def _size(path: Path) -> int:
    """Bytes of a regular file, or of the Parquet files in a folder and its subfolders; the first that is none is refused."""
    if not path.is_dir():
        check_regular(path)
        return path.stat().st_size
    total = 0
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(n for n in folders if not n.startswith(_IGNORED))
        for file in (Path(folder, n) for n in sorted(names) if not n.startswith(_IGNORED)):
            with opened(file) as stream:
                if stream.read(4) not in _PARQUET:
                    raise LoaderError(
                        f"the folder {path} holds Parquet files only",
                        f"{file}, which is none",
                        "name one file, or move the others away",
                    )
            total += file.stat().st_size
    if not total:
        raise LoaderError(f"the folder {path} holds Parquet files", "none", "check the path")
    return total


def _check_stated(nbytes: int, size: int, most: int | None, path: Any) -> None:
    """Refuse a file of ``size`` bytes that would take ``nbytes`` when it is decompressed, if that is too many."""
    allowed = max(_LEAST, size * _RATIO) if most is None else most
    if nbytes > allowed:
        raise LoaderError(
            f"{Path(path)}, of {size} bytes, is decompressed to at most {allowed}",
            f"at least {nbytes} bytes",
            "if the file is what you meant, and memory is enough, pass max_bytes=",
        )


def _stated(metadata: Any, names: Iterable[str]) -> int:
    """Bytes that the metadata of a Parquet file state for columns, as stored and as 8 bytes a value."""
    wanted, total = set(names), 0
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema in wanted or chunk.path_in_schema.split(".")[0] in wanted:
                total += max(chunk.num_values * 8, chunk.total_uncompressed_size, group.num_rows)
    return total


class _Limited:
    """A stream that ends in an error when it has given too many bytes; what Arrow asks of a Python file."""

    def __init__(self, stream: Any, path: Any, most: int | None) -> None:
        self._stream, self._path, self._most = stream, path, most
        self._given, self._size = 0, Path(path).stat().st_size
        self.closed = False

    def read(self, count: int | None = None) -> Any:
        """Up to ``count`` bytes; all that are left by default."""
        if count is None:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        found = self._stream.read(count)
        self._given += len(found)
        _check_stated(self._given, self._size, self._most, self._path)
        return found

    def readable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
        self.closed = True


@contextmanager
def _source(path: Any, most: int | None, arrow: Any) -> Iterator[Any]:
    """A file for Arrow's CSV reader: its path, or, if the name is that of a compressed one, its content up to a size."""
    check_regular(path)
    if Path(path).suffix not in _COMPRESSED:
        yield path
        return
    with arrow.input_stream(str(path)) as stream:
        yield _Limited(stream, path, most)


def _check_quotes(source: Any, delimiter: str, path: Any) -> None:
    """Raise where a quoted value has no end: Arrow takes all rows up to the end of the file for a part of it."""
    with _mapped(source) if isinstance(source, (str, PathLike)) else nullcontext(source.read()) as content:
        quoted = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n" + re.escape(delimiter.encode()) + rb'])"(?:[^"]|"")*+("?)')
        for found in quoted.finditer(content):
            if not found[1]:
                line = content[: found.end()].count(b"\n", 0, found.start() + 1) + 1
                raise LoaderError(
                    f"each quoted value of {Path(path)} has an end", f'a quotation mark in line {line} without another one',
                    'add it, or write a mark within a quoted value twice: ""',
                )  # fmt: skip


@contextmanager
def _mapped(path: Any) -> Iterator[Any]:
    """The bytes of a file, of which those are in memory that are looked at."""
    with opened(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def _read(path: Any, read: Callable[[], list[Array]]) -> list[Array]:
    try:
        return read()
    except LoaderError:
        raise
    except Exception as e:  # Arrow's errors derive from many types, and damaged names and values raise Python's own
        text = e.args[0] if isinstance(e, KeyError) and e.args else e
        raise LoaderError(
            f"{Path(path)} is a table with these columns and dtypes",
            f"{type(e).__name__}: {text!s:.1000}",
            "correct the file or columns",
        ) from e


def _arrays(table: Any, path: Any, columns: Columns, types: dict[str, Any], arrow: Any) -> list[Array]:
    if not table.num_rows:
        raise LoaderError(f"{Path(path)} has at least one row", "none", "check where the data come from")
    read = {}
    for name, kind in types.items():  # each column is let go when it is an array
        read[name] = _column(table.column(name), name, path, kind, arrow)
        table = table.drop_columns([name]) if len(read) < len(types) else None
    made = []
    for names, dtype in columns.items():
        parts = [read[n] for n in ((names,) if isinstance(names, str) else names)]
        if len({p.shape for p in parts}) > 1:
            raise LoaderError(
                f"the columns of {Path(path)} that make one vector hold numbers, or lists of one length",
                ", ".join(f"{n}: {list(p.shape)}" for n, p in zip(names, parts, strict=True)),
                "read them as columns of their own",
            )
        made.append((parts[0] if isinstance(names, str) else np.stack(parts, -1)).astype(_numpy(dtype), copy=False))
    return made


def _column(column: Any, name: str, path: Any, kind: Any, arrow: Any) -> Array:
    """One column as an array [rows], or [rows, length] of lists."""
    where = f'column "{name}" of {Path(path)}'
    if column.null_count:
        _refuse(where, int(np.flatnonzero(column.is_null().to_numpy())[0]), "no value", column.null_count)
    rows = len(column)
    column = column.combine_chunks()
    lists = any(
        check(column.type) for check in (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list)
    )
    values = column.flatten() if lists else column
    if lists:
        lengths = column.value_lengths().to_numpy()
        other = np.flatnonzero(lengths != lengths[0])
        if other.size:
            raise LoaderError(
                f"the lists of {where} have one length",
                f"{int(lengths[0])} in row 0, {int(lengths[other[0]])} in row {int(other[0])}",
                "pad them in the file, or read it as a data set of your own with collate=pad_collate",
            )
        if values.null_count:
            _refuse(
                where, int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) * rows // len(values), "no value"
            )
    _check_kind(values.type, where, kind, arrow)
    try:
        array: Array = values.cast(kind).to_numpy(zero_copy_only=False)
    except arrow.ArrowException as e:
        raise LoaderError(f"{where} holds what {kind} can", f"{column.type}: {e}", "state another dtype") from e
    array = array.reshape(rows, int(lengths[0])) if lists else array
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array).reshape(rows, -1).all(1))
        what = "NaN" if np.isnan(array[bad[0]]).any() else f"a value beyond the range of {array.dtype}"
        _refuse(where, int(bad[0]), what, len(bad))
    return array


def _check_kind(stored: Any, where: str, kind: Any, arrow: Any) -> None:
    """Numbers become numbers and bools bools; Arrow would also parse texts, and take the units of times for numbers."""
    of = arrow.types
    stored = stored.value_type if of.is_dictionary(stored) else stored
    if of.is_boolean(stored) and of.is_boolean(kind):
        return
    number = of.is_integer(stored) or of.is_floating(stored) or of.is_decimal(stored)
    if number and not of.is_boolean(kind):
        return
    if of.is_boolean(stored):
        remedy = 'state the dtype "bool"'
    elif number:
        remedy = "state a dtype of numbers, and compare: column != 0"
    else:
        remedy = "convert it in the file: to numbers, of times in a unit of your choice"
    raise LoaderError(
        f"{where} holds {'bools' if of.is_boolean(kind) else 'numbers'}, to be read as {kind}", f"{stored}", remedy
    )


def _large(column: Any, kind: Any, arrow: Any) -> Array:
    """The rows of a column of floats from whose values on not all whole numbers are floats of this kind."""
    values = np.abs(column.to_numpy())  # NaN where nothing is
    return np.flatnonzero((values >= (2**24 if arrow.types.is_float32(kind) else 2**53)) & np.isfinite(values))


def _check_whole(texts: list[str], rows: Array, values: Array, where: str) -> None:
    """Raise where a text is a whole number, and no value that was read from it."""
    whole = [(i, int(found[1] + found[2])) for i, text in enumerate(texts) if (found := _WHOLE.fullmatch(text))]
    wrong = [(i, number) for i, number in whole if number != int(values[i])]
    if not wrong:
        return
    at, number = wrong[0]
    text, value = texts[at].strip(), values[at]
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    exact = int(float(number)) == number
    wide = 'state "float64", or ' if exact else 'state "int64" if all are whole, or ' if abs(number) < 2**63 else ""
    raise LoaderError(
        f"{where} holds what {value.dtype} can",
        f"{text} in row {rows[at]} (the first is 0), which would be read as {int(value)}{more}",
        f"{wide}write {text}.0 in the file where rounding does no harm",
    )


class _Blocks:
    """Reads a CSV in blocks, each of which must hold a whole row: the size grows with the longest one."""

    def __init__(self, path: Any, arrow: Any) -> None:
        self._path, self._error = path, arrow.ArrowInvalid
        self._sizes = list(_BLOCKS)

    def read(self, read: Callable[[int], Any]) -> Any:
        """What ``read`` returns for the size of a block, at the first size that is enough."""
        while True:
            try:
                return read(self._size())
            except self._error as e:
                if not any(text in str(e) for text in _TOO_LONG):
                    raise
                if len(self._sizes) == 1:
                    if _TOO_LONG[1] in str(e):
                        raise  # nothing is in the file
                    raise LoaderError(
                        f"each row of {Path(self._path)} has at most {self._sizes[0]} bytes", "a longer one",
                        "leave out such values, or read the file as a data set of your own",
                    ) from e  # fmt: skip
                del self._sizes[0]

    def _size(self) -> int:
        path = Path(self._path)
        if path.suffix in _COMPRESSED or not path.is_file():
            return self._sizes[0]
        return min(self._sizes[0], max(_BLOCKS[0], path.stat().st_size))


def _refuse(where: str, row: int, what: str, count: int = 1) -> None:
    more = f", and in {count - 1} more" if count > 1 else ""
    raise LoaderError(
        f"{where} has a finite number in each row",
        f"{what} in row {row} (the first is 0){more}",
        "fill or leave out these rows",
    )
