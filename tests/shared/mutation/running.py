"""Runs the tests nearest to a mutant in a copy of the tree that has it.

The tests run in order until one fails, first a few seconds' worth of the best, then the rest up to a limit of processor time.
A test that takes far longer than it is known to, or far more memory than any needs, has noticed as well. What a mutant
compiles is kept apart from what others do: it begins with links to a warm cache, whose keys are hashes of the code that is
compiled, or with an empty cache where the mutant is in a file that makes objects of that code.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
import pytest

from mutation.collecting import PYTEST
from mutation.forking import Child
from mutation.nearest import Asked
from mutation.overlay import Overlay, linked
from mutation.points import Mutant

MEMORY = 6 << 30  # bytes; the tests need less than 2 GiB
_UNSEEN_BY_KEYS = ("compiler/targets/llvm/host.py", "compiler/targets/llvm/loaded.py")  # keys are hashes of what these compile
_FIRST = 5.0  # seconds of tests that are run before all others


@dataclass
class Verdict:
    """What the tests said of a mutant.

    Attributes:
        outcome: ``killed``, ``survived``, ``timeout`` or ``not executed``.
        by: The test that noticed, or what else did.
        seconds: Wall time.
        tests: Number of tests that were run.
        limit: Seconds of processor time that they had.
        files: Files of the tests that were asked.
        says: The end of what the failing test says.
    """

    outcome: str
    by: str = ""
    seconds: float = 0.0
    tests: int = 0
    limit: float = 0.0
    files: list[str] = field(default_factory=list)
    says: str = ""


class Ordered:
    """The plugin of a run: the tests asked for, in their order, with a journal and a limit of processor time."""

    def __init__(self, names: list[str], journal: Path, limit: float) -> None:
        self.rank = {name: n for n, name in enumerate(names)}
        self.journal = journal.open("a", encoding="utf-8", buffering=1)
        self.limit = limit
        self.begun = sum(os.times()[:4])

    def _write(self, **row: object) -> None:
        self.journal.write(json.dumps(row) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        import firebrick

        place = Path(firebrick.__file__ or "").resolve()
        if not place.is_relative_to(Path.cwd().resolve()):
            pytest.exit(f"these are other sources: {place}", returncode=70)
        self._write(collected=len(session.items))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep those asked for. A name that is not there any more stands for all parameters that its test has now."""
        there = {i.nodeid for i in items}
        renamed: dict[str, int] = {}
        for name, rank in self.rank.items():
            if name not in there:
                renamed.setdefault(name.partition("[")[0], rank)
        ranks = {name: self.rank.get(name, renamed.get(name.partition("[")[0])) for name in there}
        items[:] = sorted((i for i in items if ranks[i.nodeid] is not None), key=lambda i: ranks[i.nodeid] or 0)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(begun=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(failed=report.nodeid, text=str(report.longrepr)[-400:])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(failed=f"import of {report.nodeid}", text=str(report.longrepr)[-400:])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(ended=nodeid)
        if sum(os.times()[:4]) - self.begun > self.limit:
            pytest.exit("the limit of processor time is reached", returncode=0)


@dataclass(frozen=True)
class Bench:
    """Where mutants are run, and how long.

    Attributes:
        overlay: The copy of the tree that they are written into.
        folder: For what a run leaves.
        warm: The compile cache that they begin with.
        limit: Seconds of processor time for the tests of one mutant.
        patience: Seconds without news of a test, beside 15 times those that it is known to take, until it hangs.
    """

    overlay: Overlay
    folder: Path
    warm: Path
    limit: float
    patience: float

    def ask(self, tests: list[Asked], cache: Path, stop: bool = True) -> tuple[str, list[dict[str, str]]]:
        """Run tests: how it ended (``passed``, ``failed``, ``timeout``, ``memory`` or ``crashed``), and the journal."""
        self.folder.mkdir(parents=True, exist_ok=True)
        journal, log = self.folder / "journal", self.folder / "log"
        journal.write_text("")
        names = [t.name for t in tests]
        files = list(dict.fromkeys(t.file for t in tests))
        arguments = [*PYTEST, "-m", "", "--tb=short", f"--basetemp={self.folder / 'tmp'}", *(["-x"] if stop else []), *files]
        child = Child(
            lambda: int(pytest.main(arguments, plugins=[Ordered(names, journal, self.limit if stop else 1e9)])),
            self.overlay.root, log, {"FIREBRICK_CACHE_DIR": str(cache)},
        )  # fmt: skip
        known = {t.name: t.seconds for t in tests}
        ended, changed, looked, size, current = "", child.begun, child.begun, 0, 0.0
        try:
            while not ended:
                time.sleep(0.03)
                status, now = child.poll(), time.monotonic()
                if status is not None:
                    ended = {0: "passed", 5: "passed", 1: "failed", 2: "failed"}.get(status, "crashed")
                elif journal.stat().st_size != size:
                    size, changed = journal.stat().st_size, now
                    current = max([known.get(row.get("begun", ""), 0.0) for row in read(journal)[-1:]], default=0.0)
                elif now - changed > self.patience + 15 * current:
                    ended = "timeout"
                elif now - looked > 2:
                    looked = now
                    if child.memory() > MEMORY:
                        ended = "memory"
        finally:
            child.kill()
        return ended, read(journal)

    def run(self, mutant: Mutant, tests: list[Asked]) -> Verdict:
        """Ask the tests about a mutant."""
        begun = time.monotonic()
        if not tests:
            return Verdict("not executed")
        found = Verdict("survived", limit=self.limit, files=sorted({t.file for t in tests}))
        unseen = mutant.path.startswith(_UNSEEN_BY_KEYS)
        with self.overlay.mutated(mutant), linked(None if unseen else self.warm, self.folder / "cache") as cache:
            for some in rounds(tests, self.limit):
                ended, journal = self.ask(some, cache)
                found.tests += sum("begun" in row for row in journal)
                failed = next((row for row in journal if "failed" in row), None)
                last = next((row["begun"] for row in reversed(journal) if "begun" in row), "the import")
                if ended == "timeout":
                    found.outcome, found.by = "timeout", last
                elif failed is not None:
                    found.outcome, found.by, found.says = "killed", failed["failed"], failed["text"]
                elif ended != "passed":
                    found.outcome, found.by = "killed", f"{ended} in {last}"
                    found.says = (self.folder / "log").read_text(errors="replace")[-400:]
                if found.outcome != "survived":
                    break
        found.seconds = round(time.monotonic() - begun, 2)
        return found

    def begins(self, names: list[str]) -> None:
        """Make sure that the tests begin without any mutation: what ends before its first test would count as noticed.

        Raises:
            ClickException: They do not.
        """
        _, journal = self.ask([Asked(n, 60.0) for n in names[:1]], self.warm)
        if names and not any("begun" in row for row in journal):
            said = (self.folder / "log").read_text(errors="replace")[-2000:]
            raise click.ClickException(f"the tests do not begin, without a mutation:\n{said}")

    def control(self, names: list[str]) -> set[str]:
        """Tests that fail without any mutation, of those that noticed one: their word does not count."""
        failed: set[str] = set()
        for start in range(0, len(names), 100):
            some = names[start : start + 100]
            _, journal = self.ask([Asked(n, 60.0) for n in some], self.warm, stop=False)
            failed |= {row["failed"] for row in journal if "failed" in row}
            failed |= set(some) - {row.get("ended", "") for row in journal}
        return failed


def read(journal: Path) -> list[dict[str, str]]:
    """The lines of a journal that are whole."""
    rows = []
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def rounds(tests: list[Asked], limit: float) -> Iterator[list[Asked]]:
    """A few seconds' worth of the best tests, in few files; then the others up to a limit."""
    first: list[Asked] = []
    total, files = 0.0, set()
    for t in tests:
        if total + t.seconds > _FIRST and first:
            break
        if t.file in files or len(files) < 3:
            first.append(t)
            files.add(t.file)
            total += t.seconds
    yield first
    asked, rest = set(first), []
    for t in tests:
        if t not in asked and total < limit:
            rest.append(t)
            total += t.seconds
    if rest:
        yield rest


def test_of(by: str) -> str | None:
    """The test in what `Verdict.by` says."""
    match = re.search(r"tests/\S*\.py::.*", by)
    return match[0] if match else None


def row_of(mutant: Mutant, source: str, verdict: Verdict) -> dict[str, object]:
    """What is kept of a mutant."""
    return {**asdict(mutant), "diff": mutant.difference(source), **asdict(verdict)}
