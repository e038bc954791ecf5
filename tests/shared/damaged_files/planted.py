"""Readers as they must not be, each with the failure that the watch must find in it; and what large honest files take."""

from __future__ import annotations

import gzip
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import PIL.Image
import pyarrow
import pyarrow.parquet

import firebrick as fb
from damaged_files import cases, watch
from damaged_files.readers import READERS, sizes
from firebrick.compiler import cache
from firebrick.data.datasets import DataError, _series, read_idx, read_series
from firebrick.data.sources import CSVDataset, ImageFolder, ParquetDataset, images, tables
from firebrick.ir import serialize
from firebrick.train import checkpoint, load_checkpoint, save_checkpoint, snapshots, standing


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        name: What is wrong.
        reader: Where.
        kind: The failure that must be found.
        patches: Objects, attributes and what stands there instead.
        wanted: Which damage can show it.
        first: A seed from which it is soon found.
    """

    name: str
    reader: str
    kind: str
    patches: tuple[tuple[Any, str, Any], ...]
    wanted: Callable[[str], bool] = lambda text: True
    first: int = 0


def _inflates_all(folder: Path) -> Any:
    content = (folder / "a").read_bytes()
    if content.startswith(b"\x1f\x8b"):
        try:
            gzip.decompress(content)
        except (OSError, EOFError, gzip.zlib.error) as e:
            raise DataError("damaged") from e
    return read_idx(folder / "a").tobytes(), folder / "a"


def _unpickles(folder: Path) -> Any:
    try:
        return pickle.loads((folder / "a").read_bytes()), folder / "absent"
    except Exception as e:
        raise DataError("damaged") from e


def _writes_beside(folder: Path) -> Any:
    (folder / "seen").write_text("yes")
    return len(read_series(folder / "s.csv"))


def _opens_anything(path: Any) -> Any:
    return open(path, "rb")


def _unverified(content: bytes, key: bytes) -> tuple[bytes, dict[str, Any]]:
    _, _, _, told, length, _ = cache._HEADER.unpack_from(content.ljust(cache._HEADER.size))
    body = content[cache._HEADER.size :]
    return body[told : told + length], {"functions": []}


def _half(found: Any, model: Any, *_: Any) -> None:
    p = next(iter(model.parameters()))
    p._rebind((p.detach() + 1.0).detach())
    raise standing._malformed(found, ValueError("half way"))


def _replacing(name: str, **changes: Any) -> tuple[tuple[Any, str, Any], ...]:
    return ((READERS, name, replace(READERS[name], **changes)),)


def _has(*words: str) -> Callable[[str], bool]:
    return lambda text: any(word in text for word in words)


FAULTS = (
    Fault("an EPS by another name starts Ghostscript", "image folder", "process", ((images, "FORMATS", None),),
        _has("other"), first=22),
    Fault(
        "a gzip stream is inflated before its header is read", "idx", "memory", _replacing("idx", read=_inflates_all),
        _has("inside", "other"), first=13),
    Fault("a table is read whatever its size", "csv", "memory", ((tables, "_check_stated", lambda *_: None),),
        _has("inside"), first=498),
    Fault("a FIFO is opened as a file is", "series", "blocked", ((_series, "opened", _opens_anything),),
    _has("a FIFO instead"), first=289),
    Fault(
        "a graph nests as deeply as it likes", "graph", "foreign error",
        ((serialize, "json_of", lambda text, finite: json.loads(text)),), _has("damaged"), first=57),
    Fault(
        "a manifest is taken as it comes", "checkpoint", "foreign error", ((checkpoint, "json_of", json.loads),),
        _has("damaged, hashed again"), first=699),
    Fault("hashes are not compared", "cache entry", "wrong value", ((cache, "unpack", _unverified),), _has("flip"), first=224),
    Fault("a file is written beside", "series", "written", _replacing("series", read=_writes_beside)),
    Fault("what looks like a pickle is unpickled", "idx", "code", _replacing("idx", read=_unpickles), _has("other"), first=91),
    Fault("a refused checkpoint leaves half of it", "resume", "foreign error", ((snapshots, "give_back", _half),), first=1),
)  # fmt: skip


def hunt_all() -> Iterator[dict[str, Any]]:
    """For each fault, whether it is found, and whether the reader as it is passes the same case."""
    for fault in FAULTS:
        yield hunt(fault)


def hunt(fault: Fault, most: int = 3000) -> dict[str, Any]:
    """Look for a case that shows a fault."""
    patience, tried = watch.SECONDS, 0
    for seed in range(fault.first, fault.first + most):
        with ExitStack() as stack:
            for owner, name, other in fault.patches:
                stack.enter_context(
                    patch.dict(owner, {name: other}) if isinstance(owner, dict) else patch.object(owner, name, other)
                )
            watch.SECONDS = 0.5  # what waits for ever waits as long
            found = cases.run(seed, fault.reader, fault.wanted)
        watch.SECONDS = patience
        tried += found is not None
        if found is not None and fault.kind in (kinds := [kind for kind, _ in found.failures]):
            whole = cases.run(seed, fault.reader, fault.wanted)
            assert whole is not None
            return {
                "fault": fault.name,
                "found": kinds,
                "seed": seed,
                "cases": tried,
                "damage": found.damage,
                "without": whole.failures,
            }
    return {"fault": fault.name, "found": [], "cases": tried, "damage": "", "without": []}


# honest files


def _large_idx(folder: Path) -> tuple[int, Callable[[], Any]]:
    array = np.arange(3 * 2**20, dtype=">f8")
    content = bytes([0, 0, 0x0E, 1]) + array.size.to_bytes(4, "big") + array.tobytes()
    (folder / "a.gz").write_bytes(gzip.compress(content, 1))
    return array.nbytes, lambda: read_idx(folder / "a.gz")


def _large_checkpoint(folder: Path) -> tuple[int, Callable[[], Any]]:
    a = np.arange(2 * 2**20, dtype=np.float32)
    save_checkpoint(
        folder / "c", model={"a": fb.asarray(a), "b": fb.asarray(a)}, optimizer={"m": fb.asarray(a)}, state={}, config={}
    )
    return sizes(folder), lambda: load_checkpoint(folder / "c")


def _large_image(kind: str, mode: str) -> Callable[[Path], tuple[int, Callable[[], Any]]]:
    def make(folder: Path) -> tuple[int, Callable[[], Any]]:
        (folder / "cats").mkdir()
        PIL.Image.new(mode, (4000, 3000)).save(folder / "cats" / f"a.{kind}")
        return 4 * 4000 * 3000, lambda: ImageFolder(folder)[0]

    return make


def _large_csv(folder: Path) -> tuple[int, Callable[[], Any]]:
    rows = 4 * 10**6
    (folder / "t.csv").write_text("x,y\n" + "0.123456789,7\n" * rows)
    return max(16 * rows, sizes(folder)), lambda: CSVDataset(folder / "t.csv", {"x": "float64", "y": "int64"})


def _large_parquet(folder: Path) -> tuple[int, Callable[[], Any]]:
    x = np.random.default_rng(0).normal(size=2 * 2**20)
    pyarrow.parquet.write_table(pyarrow.table({"x": x}), folder / "t.parquet")
    return x.nbytes, lambda: ParquetDataset(folder / "t.parquet", {"x": "float64"})


def _large_series(folder: Path) -> tuple[int, Callable[[], Any]]:
    rows, columns = 10**4, 100
    with (folder / "s.csv").open("w") as file:
        file.write("date," + ",".join(f"c{i}" for i in range(columns)) + "\n")
        for i in range(rows):
            file.write(str(np.datetime64("2016-01-01T00:00:00") + np.timedelta64(i, "h")) + ",0.5" * columns + "\n")
    return rows * columns * 8, lambda: read_series(folder / "s.csv")


LARGE: dict[str, Callable[[Path], tuple[int, Callable[[], Any]]]] = {
    "idx in gzip": _large_idx, "checkpoint": _large_checkpoint, "png": _large_image("png", "RGB"),
    "png of a palette": _large_image("png", "P"),
    "jpeg": _large_image("jpg", "RGB"), "csv": _large_csv, "parquet": _large_parquet, "series": _large_series,
}  # fmt: skip


def measure() -> Iterator[dict[str, Any]]:
    """What reading a large honest file takes at most, beside what it has."""
    for name, make in LARGE.items():
        with tempfile.TemporaryDirectory() as text:
            PIL.Image.MAX_IMAGE_PIXELS = 2**26
            folder = Path(text)
            honest, read = make(folder)
            found, value = watch.watched(lambda _, read=read: read(), folder, (), honest)
            yield {
                "file": name,
                "honest": honest,
                "peak": found.peak,
                "ratio": round(found.peak / honest, 2),
                "failures": found.failures,
            }
            del value
