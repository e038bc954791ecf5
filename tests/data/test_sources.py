import gzip
import hashlib
import http.client
import os
import struct
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from firebrick.data.datasets import DataError, _sources, load
from firebrick.data.datasets._sources import SOURCES, Source, SourceFile, cache_dir, resolve

NAMES = {
    "train-images": "train-images-idx3-ubyte.gz",
    "train-labels": "train-labels-idx1-ubyte.gz",
    "test-images": "t10k-images-idx3-ubyte.gz",
    "test-labels": "t10k-labels-idx1-ubyte.gz",
}


def idx_gz(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 0x08, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)


def contents(images: int, labels: int, top_label: int = 9) -> dict[str, bytes]:
    made = {}
    for split, shade in (("train", 1), ("test", 2)):
        made[f"{split}-images"] = idx_gz(np.full((images, 28, 28), shade, dtype=np.uint8))
        made[f"{split}-labels"] = idx_gz(np.linspace(0, top_label, labels).astype(np.uint8))
    return made


def publish(folder: Path, made: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for role, content in made.items():
        (folder / NAMES[role]).write_bytes(content)


def source(made: dict[str, bytes], *mirrors: Path) -> Source:
    files = {role: SourceFile(NAMES[role], hashlib.sha256(content).hexdigest(), len(content)) for role, content in made.items()}
    return Source(files, tuple(mirror.as_uri() + "/" for mirror in mirrors))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "firebrick" / "datasets" / "mnist"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small data set that stands in for MNIST, offered by a `file://` mirror."""
    made = contents(images=20, labels=20)
    publish(tmp_path / "mirror", made)
    monkeypatch.setitem(SOURCES, "mnist", source(made, tmp_path / "mirror"))
    return tmp_path / "mirror"


@pytest.fixture
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        pytest.fail("a download was attempted")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


PUBLISHED = {  # beginning of the sha256, and size, of each file at its mirrors
    "mnist": [("440fcabf", 9_912_422), ("3552534a", 28_881), ("8d422c7b", 1_648_877), ("f7ae60f9", 4_542)],
    "fashion-mnist": [("3aede38d", 26_421_880), ("a04f1713", 29_515), ("346e55b9", 4_422_102), ("67da17c7", 5_148)],
    "ett": [("f18de3ad", 2_589_657)],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_and_checksums_are_those_of_the_published_files(name: str) -> None:
    """Those of Fashion-MNIST were of Debian's package, so that every download was refused."""
    assert set(PUBLISHED) == set(SOURCES)
    assert [(f.sha256[:8], f.size) for f in SOURCES[name].files.values()] == PUBLISHED[name]


@pytest.mark.parametrize("where", ["data_dir", "cache"])
def test_a_copy_that_was_compressed_again_is_read_but_not_downloaded(
    mirror: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    content = (mirror / NAMES["test-labels"]).read_bytes()
    again = gzip.compress(gzip.decompress(content), mtime=1)
    assert again != content
    known = SourceFile(
        NAMES["test-labels"], hashlib.sha256(content).hexdigest(), len(content), hashlib.sha256(again).hexdigest()
    )
    monkeypatch.setitem(SOURCES, "mnist", Source({"test-labels": known}, (mirror.as_uri() + "/",)))
    (mirror / known.name).write_bytes(again)
    with pytest.raises(DataError, match=r"a file with the checksum|bytes instead of"):
        resolve("mnist")
    folder = tmp_path / "folder" if where == "data_dir" else cache
    folder.mkdir(parents=True, exist_ok=True)
    (folder / known.name).write_bytes(again)
    assert resolve("mnist", folder if where == "data_dir" else None) == {"test-labels": folder / known.name}


def test_every_source_names_its_files_by_distinct_sha256_and_size() -> None:
    checksums = []
    for name, published in SOURCES.items():
        expected = {"series": "ETTh1.csv"} if name == "ett" else NAMES
        assert {role: file.name for role, file in published.files.items()} == expected
        assert published.mirrors
        assert all(url.startswith("http") and url.endswith("/") for url in published.mirrors)
        checksums += [file.sha256 for file in published.files.values()]
        assert all(file.size > 4000 for file in published.files.values())
    assert all(len(checksum) == 64 and int(checksum, 16) for checksum in checksums)
    assert len(set(checksums)) == len(checksums)


def test_a_download_fills_the_cache_and_the_second_run_reads_it(
    mirror: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(_sources._log, "info", lambda text, *values: said.append(text % values))
    first = resolve("mnist")
    assert sorted(line.split("/")[-1] for line in said) == [
        f"{name} ({(cache / name).stat().st_size} bytes)" for name in sorted(NAMES.values())
    ]
    assert all(line.startswith("downloading ") for line in said)
    assert first == {role: cache / name for role, name in NAMES.items()}
    assert sorted(os.listdir(cache)) == sorted(NAMES.values())
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_a, **_k: pytest.fail("downloaded again"))
    assert resolve("mnist") == first


def test_only_the_files_of_the_split_that_was_asked_for_are_downloaded(mirror: Path, cache: Path) -> None:
    dataset = load("mnist", "test")
    assert sorted(os.listdir(cache)) == [NAMES["test-images"], NAMES["test-labels"]]
    assert len(dataset) == 20
    assert dataset.images.shape == (20, 28, 28)
    assert (dataset.images == 2).all()


def test_a_mirror_that_fails_is_followed_by_the_next(
    mirror: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        SOURCES,
        "mnist",
        Source(SOURCES["mnist"].files, ((tmp_path / "gone").as_uri() + "/", mirror.as_uri() + "/")),
    )
    assert resolve("mnist")["train-images"].read_bytes() == (mirror / NAMES["train-images"]).read_bytes()


def test_a_failed_download_names_each_address_and_the_option_and_leaves_nothing(mirror: Path, cache: Path) -> None:
    (mirror / NAMES["train-images"]).unlink()
    with pytest.raises(DataError, match=r"could not download train-images.*file:///.*mirror.*--data-dir"):
        resolve("mnist")
    assert os.listdir(cache) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda content: content[:-1], "bytes instead of"),
        (lambda content: content + b"x", "more than"),
        (lambda content: bytes([content[0] ^ 1]) + content[1:], "a file with the checksum"),
        (lambda _: b"<html>not found</html>", "22 bytes instead of"),
    ],
    ids=["truncated", "extra bytes", "one bit flipped", "an error page"],
)
def test_a_download_that_is_not_the_published_file_never_reaches_the_cache(mirror: Path, cache: Path, spoil, said: str) -> None:
    published = mirror / NAMES["train-images"]
    published.write_bytes(spoil(published.read_bytes()))
    with pytest.raises(DataError, match=said):
        resolve("mnist")
    assert os.listdir(cache) == []


@pytest.mark.parametrize(
    "failure",
    [ConnectionResetError("reset"), TimeoutError("timed out"), http.client.IncompleteRead(b"")],
    ids=lambda failure: type(failure).__name__,
)
def test_a_connection_lost_halfway_leaves_nothing_behind(
    mirror: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_a, **_k: _BreaksOff(failure))
    with pytest.raises(DataError, match="could not download"):
        resolve("mnist")
    assert os.listdir(cache) == []


def test_an_interrupt_during_a_download_leaves_nothing_behind(
    mirror: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_a, **_k: _BreaksOff(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        resolve("mnist")
    assert os.listdir(cache) == []


def test_a_download_appears_under_its_name_only_when_it_is_whole(
    mirror: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, str, int]] = []
    replace = os.replace

    def watched(temporary: Path, path: Path) -> None:
        seen.append((path.exists(), temporary.parent.name, temporary.stat().st_size))
        replace(temporary, path)

    monkeypatch.setattr(_sources.os, "replace", watched)
    paths = resolve("mnist")
    assert seen == [(False, "mnist", path.stat().st_size) for path in paths.values()]


def test_a_damaged_cached_file_is_refused_with_both_checksums(
    mirror: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = resolve("mnist")["test-labels"]
    expected = SOURCES["mnist"].files["test-labels"].sha256
    path.write_bytes(b"damaged")
    received = hashlib.sha256(b"damaged").hexdigest()
    with pytest.raises(DataError) as caught:
        resolve("mnist")
    assert str(caught.value) == (f"checksum of {path} is {received}, expected {expected}; delete it and run again.")


def test_a_cache_folder_that_cannot_be_made_names_the_ways_out(mirror: Path, cache: Path) -> None:
    cache.parents[2].write_text("a file where the cache folder should be")
    with pytest.raises(DataError, match=r"cache folder .*XDG_CACHE_HOME.*--data-dir"):
        resolve("mnist")


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_an_empty_or_relative_xdg_cache_home_means_the_home_folders_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_dir() == tmp_path / ".cache" / "firebrick" / "datasets"


@pytest.mark.usefixtures("no_download", "cache")
class TestDataDir:
    def test_files_are_found_in_the_folder_itself_and_in_the_one_named_after_the_data_set(
        self, mirror: Path, tmp_path: Path
    ) -> None:
        assert resolve("mnist", mirror)["train-images"] == mirror / NAMES["train-images"]
        nested = tmp_path / "data" / "mnist"
        nested.parent.mkdir()
        mirror.rename(nested)
        assert resolve("mnist", str(nested.parent))["train-images"] == nested / NAMES["train-images"]

    def test_the_folder_named_after_the_data_set_goes_before_the_folder_itself(self, mirror: Path) -> None:
        publish(mirror / "mnist", {role: (mirror / name).read_bytes() for role, name in NAMES.items()})
        for name in NAMES.values():
            (mirror / name).write_bytes(b"of another data set with the same file names")
        assert resolve("mnist", mirror)["test-images"].parent == mirror / "mnist"

    def test_a_missing_folder_is_refused_with_what_it_should_hold(self, mirror: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError) as caught:
            resolve("mnist", tmp_path / "nowhere")
        said = str(caught.value)
        assert f"received {tmp_path / 'nowhere'}, where there is nothing" in said
        assert all(name in said for name in NAMES.values())
        assert mirror.as_uri() in said

    def test_a_file_in_place_of_the_folder_is_refused(self, mirror: Path) -> None:
        with pytest.raises(DataError, match=r"expected a folder .*, where there is a file"):
            resolve("mnist", mirror / NAMES["train-images"])

    def test_a_missing_file_is_refused_with_what_is_there(self, mirror: Path) -> None:
        (mirror / NAMES["test-labels"]).rename(mirror / "t10k-labels-idx1-ubyte")
        with pytest.raises(DataError) as caught:
            resolve("mnist", mirror)
        said = str(caught.value)
        assert f"expected {NAMES['test-labels']} in {mirror} or {mirror / 'mnist'}" in said
        assert "holds t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte, train-images" in said
        assert f"{mirror.as_uri()}/{NAMES['test-labels']}" in said

    def test_a_wrong_checksum_is_refused_with_both_and_the_address(self, mirror: Path) -> None:
        path = mirror / NAMES["train-labels"]
        expected = SOURCES["mnist"].files["train-labels"].sha256
        path.write_bytes(path.read_bytes() + b"x")
        received = hashlib.sha256(path.read_bytes()).hexdigest()
        with pytest.raises(DataError) as caught:
            resolve("mnist", mirror)
        assert str(caught.value) == (
            f"checksum of {path} is {received}, expected {expected}; delete it and get it from {path.as_uri()}."
        )

    def test_a_data_dir_is_only_read(self, mirror: Path) -> None:
        before = {entry.name: entry.stat().st_mtime_ns for entry in mirror.iterdir()}
        load("mnist", "train", mirror)
        assert {entry.name: entry.stat().st_mtime_ns for entry in mirror.iterdir()} == before


def test_an_image_and_label_count_that_differ_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = contents(images=20, labels=19)
    publish(tmp_path, made)
    monkeypatch.setitem(SOURCES, "mnist", source(made, tmp_path))
    with pytest.raises(DataError, match=r"mnist \(train\): expected one label .* 20 images and 19 labels"):
        load("mnist", "train", tmp_path)


def test_a_label_beyond_the_classes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = contents(images=20, labels=20, top_label=10)
    publish(tmp_path, made)
    monkeypatch.setitem(SOURCES, "mnist", source(made, tmp_path))
    with pytest.raises(DataError, match="expected labels from 0 to 9; received 10"):
        load("mnist", "test", tmp_path)


def test_label_files_in_place_of_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = contents(images=20, labels=20)
    made["train-images"] = made["train-labels"]
    publish(tmp_path, made)
    monkeypatch.setitem(SOURCES, "mnist", source(made, tmp_path))
    with pytest.raises(DataError, match=r"expected images as uint8\[n, 28, 28\]; received uint8\[20\]"):
        load("mnist", "train", tmp_path)


def test_an_unknown_name_or_split_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(DataError, match="expected one of digits, mnist, fashion-mnist; received 'cifar'"):
        load("cifar", "train")
    with pytest.raises(DataError, match="unknown split of mnist: expected one of train, test; received 'val'"):
        load("mnist", "val")
    with pytest.raises(DataError, match="expected one of mnist, fashion-mnist, ett; received 'digits'"):
        resolve("digits")
    with pytest.raises(DataError, match="mnist has no split 'val'"):
        resolve("mnist", split="val")


@pytest.mark.skipif(
    "FIREBRICK_TEST_DATA_DIR" not in os.environ,
    reason="FIREBRICK_TEST_DATA_DIR names no folder with Fashion-MNIST",
)
def test_fashion_mnist_as_published_loads_with_its_stated_moments() -> None:
    folder = os.environ["FIREBRICK_TEST_DATA_DIR"]
    train, test = load("fashion-mnist", "train", folder), load("fashion-mnist", "test", folder)
    assert train.images.shape == (60_000, 28, 28)
    assert test.images.shape == (10_000, 28, 28)
    assert np.bincount(train.labels).tolist() == [6_000] * 10
    assert np.bincount(test.labels).tolist() == [1_000] * 10
    assert train.images.mean() / train.pixel_max == pytest.approx(train.mean, abs=5e-5)
    assert train.images.std() / train.pixel_max == pytest.approx(train.std, abs=5e-5)


class _BreaksOff:
    """A response that gives a few bytes and then fails."""

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure
        self.reads = 0

    def __enter__(self) -> "_BreaksOff":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, _size: int) -> bytes:
        self.reads += 1
        if self.reads > 1:
            raise self.failure
        return b"some"
