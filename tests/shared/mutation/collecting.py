"""Which tests execute a line: measured with coverage.py, one test file at a time, and kept.

What a test file was found to execute stays valid until it or one of the sources that it executed changes. A run that measures
nothing (`--no-collect`) uses older shards as well: the sources that they were measured with are kept, and their lines are
followed through the changes. Processes that a test starts are measured too, under the test's name; lines that only those
execute are known as such.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import coverage
import pytest
from _pytest.runner import runtestprotocol

from mutation.forking import Child
from mutation.overlay import PACKAGE, files_of

_TEST = "MUTATION_TEST"  # the test that runs, for the processes that it starts

PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")
ENOUGH = 4.0  # seconds of processor time after which no more parameters of a test function are measured
ENOUGH_OF_OPS = 150.0  # the same for conformance, and for other tests of which each parameter is other ops
_OF_OPS = re.compile(r"^tests/conformance/|_every_(op|sample)|/test_pinned.py")
LONGEST = 900.0  # seconds that the tests of one file may take while they are measured


@dataclass
class Shard:
    """What the tests of one file execute.

    Attributes:
        tests: Their names, in the order in which they ran.
        seconds: Processor time of each, its children's included.
        failed: Those that fail without any mutation; they are never asked.
        lines: For each file of the package, sets of lines (as coverage.py keeps them, in hexadecimal digits) with the
            positions in `tests` of those that execute just these.
        elsewhere: The same for processes that tests started.
        imported: Lines that ran when modules were imported, before the first test.
        sources: Hashes of the files of the package that were executed.
    """

    file: str
    key: str
    tests: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lines: dict[str, list[tuple[str, list[int]]]] = field(default_factory=dict)
    elsewhere: dict[str, list[tuple[str, list[int]]]] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def digest(*paths: Path) -> str:
    """A hash of the contents of files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def test_files(root: Path) -> list[str]:
    """All files of tests."""
    return sorted(str(p) for p in files_of(root) if p.parts[0] == "tests" and p.name.startswith("test_") and p.suffix == ".py")


class Trace:
    """The plugin of a run that is measured."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        self.tests: list[str] = []
        self.seconds: list[float] = []
        self.failed: list[str] = []
        self.spent: dict[str, float] = defaultdict(float)
        os.environ[_TEST] = ""
        rc = folder / "coveragerc"
        rc.write_text(
            f"[run]\nsource = {root / PACKAGE}\ndata_file = {folder / 'elsewhere'}\nparallel = true\n"
            f"context = ${{{_TEST}-}}\nconcurrency = thread,multiprocessing\npatch = _exit\n"
            "disable_warnings = no-data-collected,module-not-measured,module-not-imported,already-imported\n"
        )
        (folder / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
        os.environ["COVERAGE_PROCESS_START"] = str(rc)
        where = str(Path(coverage.__file__).parents[1])
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ["PYTHONPATH"], where])
        self.coverage = coverage.Coverage(
            data_file=str(folder / "own"), config_file=False, source=[str(root / PACKAGE)], concurrency="thread"
        )
        self.coverage.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        Random(0).shuffle(items)  # so that those of one function that are run are of all its parameters

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        function = item.nodeid.partition("[")[0]
        if self.spent[function] > (ENOUGH_OF_OPS if _OF_OPS.search(function) else ENOUGH):
            return True
        self.tests.append(item.nodeid)
        os.environ[_TEST] = item.nodeid
        self.coverage.switch_context(item.nodeid)
        begun = os.times()
        try:
            runtestprotocol(item, nextitem=nextitem)
        finally:
            self.seconds.append(round(sum(os.times()[:4]) - sum(begun[:4]), 3))
            self.spent[function] += self.seconds[-1]
            self.coverage.switch_context("")
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def save(self) -> None:
        self.coverage.stop()
        self.coverage.save()
        rows = {"tests": self.tests, "seconds": self.seconds, "failed": sorted(set(self.failed))}
        (self.folder / "tests.json").write_text(json.dumps(rows))


def measure(root: Path, folder: Path, file: str, arguments: list[str]) -> int:
    """Run a test file and leave in ``folder`` what it executes; in a process of its own."""
    trace = Trace(root, folder)
    try:
        return int(pytest.main([*PYTEST, f"--basetemp={folder / 'tmp'}", *arguments, file], plugins=[trace]))
    finally:
        trace.save()


def harvest(root: Path, folder: Path, file: str, key: str) -> Shard:
    """What `measure` left in a folder."""
    known = json.loads((folder / "tests.json").read_text())
    shard = Shard(file, key, known["tests"], known["seconds"], known["failed"])
    number = {name: n for n, name in enumerate(shard.tests)}
    prefix = f"{(root / PACKAGE).resolve()}/"
    own, elsewhere = defaultdict(dict), defaultdict(dict)  # type: ignore[var-annotated]
    for data in sorted(folder.glob("own*")) + sorted(folder.glob("elsewhere.*")):
        for path, context, bits in _rows(data):
            if not path.startswith(prefix):
                continue
            name = path.removeprefix(prefix)
            test = number.get(context.split("|")[-1]) if context else None
            if test is None:
                old = bytes.fromhex(shard.imported.get(name, ""))
                shard.imported[name] = _union(old, bits).hex()
                continue
            goal = own if data.name.startswith("own") else elsewhere
            goal[name][test] = _union(goal[name].get(test, b""), bits)
    for found, goal in ((own, shard.lines), (elsewhere, shard.elsewhere)):
        for name, tests in found.items():
            alike: dict[bytes, list[int]] = defaultdict(list)
            for test, bits in sorted(tests.items()):
                alike[bits].append(test)
            goal[name] = [(bits.hex(), numbers) for bits, numbers in alike.items()]
    executed = sorted({*shard.imported, *shard.lines, *shard.elsewhere})
    shard.sources = {name: digest(root / PACKAGE / name) for name in executed if (root / PACKAGE / name).exists()}
    return shard


def _rows(data: Path) -> Iterator[tuple[str, str, bytes]]:
    with sqlite3.connect(data) as connection:
        try:
            yield from connection.execute(
                "select file.path, context.context, line_bits.numbits from line_bits "
                "join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
            )
        except sqlite3.DatabaseError:  # the process was killed while it wrote
            return


def _union(one: bytes, other: bytes) -> bytes:
    size = max(len(one), len(other))
    return bytes(a | b for a, b in zip(one.ljust(size, b"\0"), other.ljust(size, b"\0"), strict=True))


def path_of(state: Path, file: str) -> Path:
    """The file in which a shard is kept."""
    return state / "map" / (re.sub(r"[^\w]", "_", file.removeprefix("tests/").removesuffix(".py")) + ".json")


def key_of(root: Path, file: str, arguments: list[str]) -> str:
    """What a shard depends on beside the sources that it executes."""
    return f"{digest(root / file)} {' '.join(arguments)}"


def load(state: Path, root: Path, file: str, key: str | None = None) -> Shard | None:
    """The shard of a test file if it is known and still true; without a key also one of older sources, its lines followed."""
    try:
        shard = Shard(**json.loads(path_of(state, file).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    if key is not None and shard.key != key:
        return None
    for name, known in shard.sources.items():
        path = root / PACKAGE / name
        if path.exists() and digest(path) == known:
            continue
        old = _measured_source(state, name, known)
        if key is not None or not old.exists():
            return None
        for lines in (shard.lines, shard.elsewhere):
            found = lines.pop(name, [])
            if path.exists():
                lines[name] = [(followed(bits, old, path), tests) for bits, tests in found]
    return shard


def _measured_source(state: Path, name: str, digits: str) -> Path:
    """Where a source is kept as it was when it was measured."""
    return state / "measured" / digits / Path(name).name


@cache
def followed(bits: str, old: Path, new: Path) -> str:
    """Lines of a file, as in `Shard`, in a later version of it; those that changed are lost."""
    was, found = int.from_bytes(bytes.fromhex(bits), "little"), 0
    for one, other, size in _matching(old, new):
        found |= (was >> (one + 1) & ((1 << size) - 1)) << (other + 1)
    return found.to_bytes((found.bit_length() + 7) // 8, "little").hex()


@cache
def _matching(old: Path, new: Path) -> list[tuple[int, int, int]]:
    texts = [p.read_text(encoding="utf-8").splitlines() for p in (old, new)]
    return [tuple(m) for m in difflib.SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()]


def collect(overlay: Path, state: Path, files: list[str], arguments: list[str], jobs: int = 1) -> Iterator[tuple[Shard, float]]:
    """Measure what is not known yet, in so many processes; each shard with the seconds that it took now, 0 for one that was
    known."""
    todo = []
    for file in files:
        key = key_of(overlay, file, arguments)
        if (known := load(state, overlay, file, key)) is not None:
            yield known, 0.0
        else:
            todo.append((file, key))
    running: dict[int, tuple[str, str, Child]] = {}
    try:
        while todo or running:
            for place in range(jobs):
                if place not in running and todo:
                    file, key = todo.pop(0)
                    running[place] = file, key, _measured(overlay, state, state / f"measuring-{place}", file, arguments)
            time.sleep(0.05)
            for place, (file, key, child) in list(running.items()):
                if child.poll() is None and time.monotonic() - child.begun < LONGEST:
                    continue
                child.kill()
                del running[place]
                yield _kept(overlay, state, state / f"measuring-{place}", file, key, child), time.monotonic() - child.begun
    finally:
        for _, _, child in running.values():
            child.kill()


def _measured(overlay: Path, state: Path, folder: Path, file: str, arguments: list[str]) -> Child:
    """The process that measures a file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {"FIREBRICK_CACHE_DIR": str(state / "cache")}
    return Child(lambda: measure(overlay, folder, file, arguments), overlay, folder / "log", environment)


def _kept(overlay: Path, state: Path, folder: Path, file: str, key: str, child: Child) -> Shard:
    """What a process that ended has measured."""
    if child.poll() not in (0, 1, 5) or not (folder / "tests.json").exists():  # passed, failed, or no tests of this kind
        raise RuntimeError(f"{file} could not be measured ({child.poll()}):\n{(folder / 'log').read_text()[-3000:]}")
    shard = harvest(overlay, folder, file, key)
    for name, digits in shard.sources.items():
        source = _measured_source(state, name, digits)
        if not source.exists():
            source.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(overlay / PACKAGE / name, source)
    goal = path_of(state, file)
    goal.parent.mkdir(parents=True, exist_ok=True)
    partial = goal.with_suffix(".writing")
    partial.write_text(json.dumps(asdict(shard)), encoding="utf-8")
    partial.replace(goal)
    return shard
