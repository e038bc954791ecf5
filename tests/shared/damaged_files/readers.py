"""Every reader of files in the project: how an honest folder for it is made, how it is read, and what it may raise.

``honest(rng, folder)`` writes files; ``read(folder)`` reads them as a user would. ``check(value, before)`` says what is wrong
with a value that was read from damaged files, where the format lets one know: by a hash, or a decoder written here again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import PIL.Image
import pyarrow
import pyarrow.parquet

import firebrick as fb
from damaged_files import damage
from firebrick.cli import classification
from firebrick.cli.images import ImageError, read_image
from firebrick.cli.runs import load_run
from firebrick.compiler import cache as compiled
from firebrick.core.aval import Aval
from firebrick.core.errors import FirebrickError, GraphError
from firebrick.data.datasets import DataError, _load, read_idx, read_series
from firebrick.data.errors import LoaderError
from firebrick.data.sources import CSVDataset, ImageFolder, ParquetDataset
from firebrick.ir import Graph, from_json, to_json
from firebrick.train import CheckpointError, Learner, TrainingError, load_checkpoint, save_checkpoint
from firebrick.train.checkpoint import write
from firebrick.train.records import Records

MOST = 2**23  # bytes that a table may be decompressed to
PIXELS = 2**21  # that an image may have: what PIL.Image.MAX_IMAGE_PIXELS is set to
KEY = bytes(range(32))
Damage = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Reader:
    """See the module.

    Attributes:
        honest: Writes a folder.
        read: Reads it.
        errors: What it may raise.
        damages: Kinds of damage besides those of any file, for a file of the folder by its name's end.
        needs: Bytes that reading takes if the headers of the files are believed as far as a reader may.
        check: What is wrong with the value, beside the honest one; None if nothing is.
        honest_value: What an honest folder gives, where that is always the same.
        hashed: Writes the hashes of the folder anew, as whoever damages a file on purpose does.
        writes: Names of files that reading writes.
        opens: Whether the project opens the file; a graph is text that the user read.
    """

    honest: Callable[[Random, Path], None]
    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...]
    damages: dict[str, tuple[Damage, ...]] = field(default_factory=dict)
    needs: Callable[[Path], int] = lambda folder: 0
    check: Callable[[Any, Any], str | None] = lambda value, before: None
    honest_value: Callable[[], Any] | None = None
    hashed: Callable[[Path], None] | None = None
    writes: tuple[str, ...] = ()
    opens: bool = True


def sizes(folder: Path) -> int:
    """Bytes of the regular files of a folder."""
    return sum(f.lstat().st_size for f in folder.rglob("*") if not f.is_symlink() and f.is_file())


def _same(value: Any, before: Any) -> str | None:
    return None if value == before else "another value, though a hash protects it"


# arrays and tables


def _idx(rng: Random, folder: Path) -> None:
    code, dtype = rng.choice(((8, ">u1"), (0x0C, ">i4"), (0x0E, ">f8")))
    shape = rng.choice(((5,), (3, 4, 2), (0, 28), (2000, 4)))
    array = np.random.default_rng(rng.randrange(2**32)).integers(0, 100, shape).astype(dtype)
    content = bytes([0, 0, code, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape) + array.tobytes()
    (folder / "a").write_bytes(damage.gzip.compress(content) if rng.random() < 0.5 else content)


def _idx_again(content: bytes) -> bytes:
    """The elements of a file that is no longer than it states, in native byte order."""
    if content[:2] == b"\x1f\x8b":
        content = damage.gzip.decompress(content)
    dtype = np.dtype({8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}[content[2]])
    array = np.frombuffer(content, dtype, offset=4 + 4 * content[3])
    return array.astype(dtype.newbyteorder("=")).tobytes()


def _read_idx(folder: Path) -> Any:
    found = read_idx(folder / "a")
    return found.tobytes(), folder / "a"


def _check_idx(value: Any, before: Any) -> str | None:
    elements, path = value
    return None if not path.is_file() or elements == _idx_again(path.read_bytes()) else "other elements than the file has"


def _csv(rng: Random, folder: Path) -> None:
    rows = [f"{i / 7:.3f},{i % 5},word {i},{-i}" for i in range(rng.choice((1, 20, 3000)))]
    content = "\n".join(["height,kind,note,other", *rows, ""]).encode()
    if rng.random() < 0.5:
        (folder / "t.csv.gz").write_bytes(damage.gzip.compress(content))
    else:
        (folder / "t.csv").write_bytes(content)


def _read_csv(folder: Path) -> Any:
    file = folder / "t.csv.gz"
    return CSVDataset(
        file if os.path.lexists(file) else folder / "t.csv", {("height", "other"): "float32", "kind": "int64"}, max_bytes=MOST
    )[0]


def _parquet(rng: Random, folder: Path) -> None:
    n = rng.choice((1, 50, 3000))
    table = pyarrow.table({
        "pixels": [[i % 250, 2, 3] for i in range(n)], "label": pyarrow.array([i % 3 for i in range(n)], "int32"),
        "note": ["text"] * n, "height": [i / 3 for i in range(n)],
    })  # fmt: skip
    pyarrow.parquet.write_table(
        table, folder / "t.parquet", compression=rng.choice(("snappy", "gzip", "zstd", "none")), row_group_size=1000,
        use_dictionary=rng.random() < 0.5, data_page_version=rng.choice(("1.0", "2.0")),
    )  # fmt: skip


def _read_parquet(folder: Path) -> Any:
    columns = {"pixels": "uint8", "label": "int64", "height": "float64"}
    return ParquetDataset(folder / "t.parquet", columns, max_bytes=MOST)[0]


def _series(rng: Random, folder: Path) -> None:
    rows = [f"2016-07-{1 + i // 24:02d} {i % 24:02d}:00:00,{i / 3:.3f},{-i}" for i in range(rng.choice((2, 100, 700)))]
    (folder / "s.csv").write_text("\n".join(["date,load,oil", *rows, ""]))


# images


def _image(rng: Random, folder: Path) -> None:
    kind, end = rng.choice((
        ("PNG", "png"), ("PNG", "png"), ("JPEG", "jpg"), ("GIF", "gif"), ("BMP", "bmp"), ("WEBP", "webp"), ("TIFF", "tif"),
        ("PPM", "ppm")
    ))  # fmt: skip
    mode = rng.choice(
        {"JPEG": ("RGB", "L", "CMYK"), "WEBP": ("RGB", "RGBA"), "PPM": ("RGB", "L", "1")}.get(kind, ("RGB", "L", "P", "1"))
    )
    size = rng.choice(((3, 2), (40, 30), (120, 90)))
    pixels = np.random.default_rng(rng.randrange(2**32)).integers(0, 255, (size[1], size[0], 3), np.uint8)
    options: dict[str, Any] = (
        {"compression": rng.choice((None, "tiff_adobe_deflate", "tiff_lzw", "packbits"))} if kind == "TIFF" else {}
    )
    (folder / "cats").mkdir()
    PIL.Image.fromarray(pixels).convert(mode).save(folder / "cats" / f"a.{end}", kind, **options)


def _read_images(folder: Path) -> Any:
    data = ImageFolder(folder, size=None if (folder / "cats").stat().st_mtime_ns % 2 else (8, 8))
    return data[0][0].shape


def _read_picture(folder: Path) -> Any:
    file = next((folder / "cats").iterdir(), folder / "cats" / "a.png")
    return read_image(file, 8, 16).shape


def _pixels(folder: Path) -> int:
    """Bytes of an image as its header states them: 4 a pixel, if it has no more than it may."""
    try:
        (file,) = (folder / "cats").iterdir()
        if not file.is_file() or file.is_symlink():
            return 0
        with PIL.Image.open(BytesIO(file.read_bytes()), formats=("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")) as image:
            return 4 * min(image.width * image.height, PIXELS)
    except Exception:  # noqa: BLE001 no image at all
        return 0


# graphs


def _graph(rng: Random, folder: Path) -> None:
    g = Graph([Aval((2, 3), fb.float32), Aval((2, 3), fb.float32)], names=("x", "y"))
    (a,) = g.add(fb.ops.OPS["add"], 0, 1)
    (b,) = g.add(fb.ops.OPS["sum"], a, axes=(0,), keepdims=False)
    c = g.constant(np.arange(3, dtype=np.float32))
    g.outputs = g.add(fb.ops.OPS["multiply"], b, c)
    (folder / "g.json").write_text(to_json(g))


def _read_graph(folder: Path) -> Any:
    return len(from_json((folder / "g.json").read_bytes().decode("utf-8", "surrogateescape")).nodes)


# runs


@cache
def _learner() -> Learner:
    fb.random.seed(3)
    model = fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.Dropout(0.5), fb.nn.Linear(4, 2))
    return Learner(model, fb.optim.AdamW(model, fb.optim.cosine(0.1, 100)), fb.cross_entropy, ema=0.9, jit=False)


@cache
def _snapshots() -> tuple[Any, Any]:
    """Of a learner in the middle of an epoch, and of a run of the command line."""
    learner = _learner()
    learner.fit(fb.data.DataLoader(fb.data.ArrayDataset(np.ones((4, 3), np.float32), np.array([0, 1, 0, 1])), 2), epochs=1)
    config = {
        "title": "digits, mlp", "dataset": "digits", "model": "mlp", "image_size": 8, "class_names": ["a", "b"],
        "pixel_max": 16, "mean": 0.5,
        "std": 0.25, "epochs": 1, "batch_size": 2, "lr": 0.1, "seed": 0, "model_settings": {"hidden": [4]},
    }  # fmt: skip
    return learner._snapshots.take(
        {"epoch": 1, "position": 2, "samples": 4, "seed": 0}, learner._readings.measures.state()
    ), config


@cache
def _files(of_run: bool) -> dict[str, bytes]:
    """A checkpoint by file, written once: to sync it each time would take longer than all else."""
    snapshot, config = _snapshots()
    with tempfile.TemporaryDirectory() as text:
        if of_run:
            state = classification.build_model(config).state_dict()
            save_checkpoint(f"{text}/c", model=state, optimizer={}, state={"epoch": 1, "step": 2}, config=config)
        else:
            write(snapshot, f"{text}/c")
        return {f.name: f.read_bytes() for f in Path(text, "c").iterdir()}


def _put(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _checkpoint(rng: Random, folder: Path) -> None:
    _put(folder / "checkpoint", _files(False))
    if rng.random() < 0.3:
        _put(folder / "earlier" / "step-00000001", _files(False))


def _run(rng: Random, folder: Path) -> None:
    _put(folder / "checkpoint", _files(True))


def _rehash(folder: Path) -> None:
    """Write the sizes and hashes of the files into the manifests, as far as these can be read, and theirs beside them."""
    for place in (p.parent for p in folder.rglob("manifest.json")):
        manifest = place / "manifest.json"
        if manifest.is_symlink() or not manifest.is_file():
            continue
        content = manifest.read_bytes()
        try:
            for name, facts in json.loads(content)["files"].items():
                file = place / name
                if file.is_file() and not file.is_symlink():
                    new = file.read_bytes()
                    content = content.replace(facts["sha256"].encode(), hashlib.sha256(new).hexdigest().encode())
                    content = content.replace(f'"bytes": {facts["bytes"]}'.encode(), f'"bytes": {len(new)}'.encode(), 1)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError):
            pass
        manifest.write_bytes(content)
        note = place / "manifest.sha256"
        if note.is_file() and not note.is_symlink():
            note.write_text(f"{hashlib.sha256(content).hexdigest()}  manifest.json\n")


@cache
def honest_of(name: str) -> Any:
    """What a reader makes of its honest folder."""
    with tempfile.TemporaryDirectory() as text:
        READERS[name].honest(Random(0), Path(text))
        return READERS[name].read(Path(text))


def _value(found: Any) -> Any:
    return (
        {n: (a.dtype.name, a.shape, a.tobytes()) for n, a in found.model.items()},
        found.state["epoch"],
        found.state["history"],
    )


def _read_checkpoint(folder: Path) -> Any:
    found = load_checkpoint(folder)
    return found.path.name, _value(found) if "epoch" in found.state and "history" in found.state else found.state


def _check_checkpoint(value: Any, before: Any) -> str | None:
    return None if value[1] == before[1] else "another value, though a hash protects it"


def _resume(folder: Path) -> Any:
    learner = _learner()
    state = {n: t.numpy().tobytes() for n, t in learner.model.state_dict().items()}, learner.epoch, learner.step
    try:
        learner.resume(folder)
    except FirebrickError:
        after = {n: t.numpy().tobytes() for n, t in learner.model.state_dict().items()}, learner.epoch, learner.step
        assert after == state, "a learner that is neither the one before nor the one after"
        raise
    return learner.step


def _model_of_run(folder: Path) -> Any:
    model, _ = load_run(folder)
    return sum(p.size for p in model.parameters())


def _steps(rng: Random, folder: Path) -> None:
    rows = [json.dumps({"step": i, "epoch": 1, "loss": 1 / i}) + "\n" for i in range(1, rng.choice((2, 10, 2000)))]
    (folder / "steps.jsonl").write_text("".join(rows))


def _read_steps(folder: Path) -> Any:
    with Records(folder, None, 1).writing(5):
        return (folder / "steps.jsonl").exists()


# what the package and its cache have


def _digits(rng: Random, folder: Path) -> None:
    source = Path(_load.__file__).with_name("digits.npz")
    (folder / "digits.npz").write_bytes(source.read_bytes())


def _read_digits(folder: Path) -> Any:
    files, _load.resources.files = _load.resources.files, lambda package: folder
    try:
        return _load.load("digits", "test").images.tobytes()
    finally:
        _load.resources.files = files


def _entry(rng: Random, folder: Path) -> None:
    (folder / "objects").mkdir()
    content = compiled.pack(KEY, bytes(range(256)) * 20, {"functions": ["f"], "target": "x", "llvm": "1"})
    (folder / "objects" / (KEY.hex() + compiled.SUFFIX)).write_bytes(content)


def _read_entry(folder: Path) -> Any:
    with fb.config.scope(cache_dir=str(folder)):
        store = compiled.ObjectStore()
        entries = [", ".join(e.facts["functions"]) for e in store.entries() if e.facts]
        return store.load(KEY), entries


def _check_entry(value: Any, before: Any) -> str | None:
    return None if value[0] in (None, before[0]) else "another object, though a hash protects it"


def _rehash_entry(folder: Path) -> None:
    file = folder / "objects" / (KEY.hex() + compiled.SUFFIX)
    size = compiled._HEADER.size
    if file.is_symlink() or not file.is_file() or len(content := file.read_bytes()) < size:
        return
    told = content.find(b"}", size) + 1 - size
    rest = content[size:]
    file.write_bytes(
        compiled._HEADER.pack(b"FBOBJECT", 1, KEY, max(told, 0), len(rest) - max(told, 0), hashlib.sha256(rest).digest()) + rest
    )


def _in_entry(rng: Random, content: bytes) -> bytes:
    from damaged_files import trees

    size = compiled._HEADER.size
    told = content.find(b"}", size) + 1
    return content[:size] + trees.damaged(rng, content[size:told]) + content[told:]


READERS: dict[str, Reader] = {
    "idx": Reader(_idx, _read_idx, (DataError,), check=_check_idx),
    "csv": Reader(_csv, _read_csv, (LoaderError,), {".csv": (damage.words,) * 12}, lambda folder: MOST),
    "parquet": Reader(_parquet, _read_parquet, (LoaderError,), needs=lambda folder: MOST),
    "series": Reader(_series, lambda folder: len(read_series(folder / "s.csv")), (DataError,), {".csv": (damage.words,) * 12}),
    "image folder": Reader(_image, _read_images, (LoaderError,), needs=_pixels),
    "picture": Reader(_image, _read_picture, (ImageError,), needs=_pixels),
    "graph": Reader(_graph, _read_graph, (GraphError,), opens=False),
    "checkpoint": Reader(
        _checkpoint,
        _read_checkpoint,
        (CheckpointError,),
        check=_check_checkpoint,
        honest_value=lambda: honest_of("checkpoint"),
        hashed=_rehash,
    ),
    "resume": Reader(_checkpoint, _resume, (FirebrickError,), hashed=_rehash),
    "run": Reader(_run, _model_of_run, (FirebrickError,), hashed=_rehash),
    "steps": Reader(_steps, _read_steps, (TrainingError,), writes=("steps.jsonl", ".steps.jsonl.new")),
    "digits": Reader(_digits, _read_digits, (DataError,), check=_same, honest_value=lambda: honest_of("digits")),
    "cache entry": Reader(
        _entry,
        _read_entry,
        (),
        {".fbo": (_in_entry,)},
        check=_check_entry,
        honest_value=lambda: honest_of("cache entry"),
        hashed=_rehash_entry,
    ),
}
