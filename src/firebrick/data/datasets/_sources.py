"""Where the files of each downloadable data set come from, and how a verified copy gets onto this machine.

`resolve` gives the paths of a data set's files, and every path it gives has the sha256 of the table below.
Files are looked for in the caller's `data_dir`, which is only read; without one they live in a cache, into
which a download is moved whole and verified or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import logging
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firebrick.core.untrusted import opened
from firebrick.data.datasets._idx import DataError

_log = logging.getLogger(__name__)

_CHUNK = 1 << 20
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class SourceFile:
    """One published file: its name at every mirror, its sha256 in hex, and its size in bytes.

    ``repacked`` is the sha256 of the same content compressed again, as Debian's package has it: gzip without the name and
    time. A folder or the cache may hold that; a mirror does not.
    """

    name: str
    sha256: str
    size: int
    repacked: str = ""


@dataclass(frozen=True)
class Source:
    """The files of one data set by role (`train-images`, …), and the addresses that offer all of them."""

    files: dict[str, SourceFile]
    mirrors: tuple[str, ...]


SOURCES: dict[str, Source] = {
    "mnist": Source(
        files={
            "train-images": SourceFile(
                "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                9_912_422,
            ),
            "train-labels": SourceFile(
                "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                28_881,
            ),
            "test-images": SourceFile(
                "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                1_648_877,
            ),
            "test-labels": SourceFile(
                "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                4_542,
            ),
        },
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "fashion-mnist": Source(
        files={
            "train-images": SourceFile(
                "train-images-idx3-ubyte.gz",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                26_421_880,
                "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
            ),
            "train-labels": SourceFile(
                "train-labels-idx1-ubyte.gz",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                29_515,
                "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
            ),
            "test-images": SourceFile(
                "t10k-images-idx3-ubyte.gz",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                4_422_102,
                "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
            ),
            "test-labels": SourceFile(
                "t10k-labels-idx1-ubyte.gz",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                5_148,
                "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
            ),
        },
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    ),
    "ett": Source(
        files={
            "series": SourceFile(
                "ETTh1.csv",
                "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
                2_589_657,
            ),
        },
        mirrors=("https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/",),
    ),
}


def resolve(name: str, data_dir: str | os.PathLike[str] | None = None, *, split: str | None = None) -> dict[str, Path]:
    """Give the path of each file of a data set, verified against its published sha256.

    Args:
        name: a data set of `SOURCES`.
        data_dir: the folder that holds the files, either directly or in a subfolder called `name`. It is
            never written to. Without it, files come from the cache
            (`$XDG_CACHE_HOME/firebrick/datasets/<name>`, with `~/.cache` for an unset variable), and those
            missing there are downloaded.
        split: `"train"` or `"test"` to resolve only the files of that split.

    Returns:
        The paths by role: `train-images`, `train-labels`, `test-images`, `test-labels`; `series` for a time series.

    Raises:
        DataError: a folder or file is missing, a checksum differs, or no mirror could be read.
    """
    if name not in SOURCES:
        raise DataError(f"unknown data set: expected one of {', '.join(SOURCES)}; received {name!r}.")
    source = SOURCES[name]
    files = {role: file for role, file in source.files.items() if split is None or role.startswith(f"{split}-")}
    if not files:
        raise DataError(f"{name} has no split {split!r}: expected one of train, test.")
    if data_dir is not None:
        return _find_local(name, source, files, Path(data_dir))
    cache = cache_dir() / name
    return {role: _find_cached(name, source, file, cache) for role, file in files.items()}


def cache_dir() -> Path:
    """Return the folder under which downloaded data sets are kept; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative path in the variable is invalid and is ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "firebrick" / "datasets"


def _find_local(name: str, source: Source, files: dict[str, SourceFile], data_dir: Path) -> dict[str, Path]:
    if not data_dir.is_dir():
        what = "a file" if data_dir.exists() else "nothing"
        raise DataError(
            f"data_dir for {name}: expected a folder with {_listing(files)}; received {data_dir}, where "
            f"there is {what}. Create it and get the files from {source.mirrors[0]}, or leave --data-dir out "
            f"to download them."
        )
    # The subfolder goes first: MNIST and Fashion-MNIST use the same file names, so only it is unambiguous.
    folders = (data_dir / name, data_dir)
    paths: dict[str, Path] = {}
    for role, file in files.items():
        found = next((folder / file.name for folder in folders if (folder / file.name).is_file()), None)
        if found is None:
            there = ", ".join(sorted(entry.name for entry in data_dir.iterdir())[:12]) or "nothing"
            raise DataError(
                f"{name}: expected {file.name} in {data_dir} or {data_dir / name}; received a folder that "
                f"holds {there}. Get the file, as published, from {source.mirrors[0]}{file.name}."
            )
        _verify(found, file, f"delete it and get it from {source.mirrors[0]}{file.name}")
        paths[role] = found
    return paths


def _find_cached(name: str, source: Source, file: SourceFile, cache: Path) -> Path:
    path = cache / file.name
    if path.is_file():
        _verify(path, file, "delete it and run again")
        return path
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{name}: expected to be able to create the cache folder {cache}; received: {error.strerror}. "
            f"Set XDG_CACHE_HOME to a writable folder, or give the files with --data-dir."
        ) from error
    failures: list[str] = []
    for mirror in source.mirrors:
        url = mirror + file.name
        try:
            _log.info("downloading %s (%d bytes)", url, file.size)
            _download(url, file, path)
        except (OSError, http.client.HTTPException, DataError) as error:
            failures.append(f"{url}: {error}")
        else:
            return path
    tried = "; ".join(failures)
    raise DataError(
        f"{name}: could not download {file.name}. Expected {file.size} bytes with sha256 {file.sha256}; "
        f"received {tried}. Check the network, or get the file some other way and name its folder with "
        f"--data-dir."
    )


def _download(url: str, file: SourceFile, path: Path) -> None:
    """Move a verified download to `path` in one step; whatever goes wrong leaves nothing there."""
    with _temporary_beside(path) as (handle, temporary):
        digest = hashlib.sha256()
        received = 0
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
            # One byte past the known size is enough to tell that this is another file.
            while received <= file.size and (chunk := response.read(min(_CHUNK, file.size + 1 - received))):
                out.write(chunk)
                digest.update(chunk)
                received += len(chunk)
            out.flush()
            os.fsync(out.fileno())
        if received != file.size:
            more = "more than " if received > file.size else ""
            raise DataError(f"{more}{min(received, file.size)} bytes instead of {file.size}")
        if digest.hexdigest() != file.sha256:
            raise DataError(f"a file with the checksum {digest.hexdigest()}")
        os.replace(temporary, path)


@contextlib.contextmanager
def _temporary_beside(path: Path) -> Iterator[tuple[int, Path]]:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        yield handle, Path(temporary)
    finally:
        # Gone already after a successful move; still there after any failure, an interrupt included.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _verify(path: Path, file: SourceFile, remedy: str) -> None:
    try:
        with opened(path) as stream:
            received = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}. Check its permissions.") from error
    if received not in (file.sha256, file.repacked):
        raise DataError(f"checksum of {path} is {received}, expected {file.sha256}; {remedy}.")


def _listing(files: dict[str, SourceFile]) -> str:
    return ", ".join(file.name for file in files.values())
