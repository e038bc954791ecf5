"""Where a run of the tests spends processor time: a plugin of pytest that adds up the seconds of each test and each fixture.

    PYTHONPATH=tests/shared python -m pytest -n auto -p processor_time              # all tests, then the table
    PYTHONPATH=tests/shared python -m pytest -p processor_time tests/cli --times=F  # and in F each test, as JSON lines

The time of a test is that of its process and of the processes that it started and that have ended; a fixture counts for the
test that asked for it first. What workers spend on imports and on collection is a row of its own.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FEW_SECONDS = 30.0
"""Folders that take less than this together are one row of the table."""


Phase = tuple[str, str, float, list[tuple[str, float]]]
"""Of a test: its name, "setup", "call" or "teardown", seconds, and the fixtures that took some."""


class Part(NamedTuple):
    """What the tests of one folder took."""

    tests: int
    seconds: float


def spent() -> float:
    """Seconds of processor time that this process, those it waited for and those that its servers forked took so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    servers = [sys.modules[name] for name in ("forked", "ranks") if name in sys.modules]
    return time.process_time() + children.ru_utime + children.ru_stime + sum(server.spent() for server in servers)


def part_of(nodeid: str) -> str:
    """The row of a test: its folder directly under ``tests``."""
    folders = nodeid.split("::")[0].split("/")
    return "/".join(folders[:2]) if len(folders) > 2 else f"{folders[0]}/*.py"


def table(parts: Mapping[str, Part], collecting: float = 0.0) -> str:
    """The parts as a table in Markdown: the longest first, folders that take little in one row.

    Args:
        parts: Tests and seconds by folder.
        collecting: Seconds that were spent outside tests: on imports, collection and reports.
    """
    few = sorted(name for name, part in parts.items() if part.seconds < FEW_SECONDS)
    rows = {f"`{name}`": part for name, part in parts.items() if name not in few}
    if few:
        rows[", ".join(f"`{name}`" for name in few)] = Part(
            sum(parts[name].tests for name in few), sum(parts[name].seconds for name in few)
        )
    lines = ["| part | tests | minutes of processor time |", "|---|---|---|"]
    for name, part in sorted(rows.items(), key=lambda row: -row[1].seconds):
        lines.append(f"| {name} | {part.tests:,} | {part.seconds / 60:.1f} |")
    if collecting:
        lines.append(f"| imports and collection in each worker | | {collecting / 60:.1f} |")
    tests, seconds = sum(part.tests for part in parts.values()), sum(part.seconds for part in parts.values()) + collecting
    lines.append(f"| **all** | {tests:,} | {seconds / 60:.1f} |")
    return "\n".join(lines)


class ProcessorTime:
    """Measures phases of tests where they run, and adds them up where reports arrive."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = 0.0
        self.of_fixtures: list[tuple[str, float]] = []
        self.in_tests = 0.0
        self.collecting = 0.0
        self.worker = hasattr(config, "workerinput")
        self.phases: list[Phase] = []
        self.tests: set[str] = set()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        path = config.getoption("--times")
        self.records = Path(path) if path and not self.worker else None
        if self.records is not None:
            self.records.write_text("")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self.started = spent()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        started = spent()
        try:
            return (yield)
        finally:
            self.of_fixtures.append((fixturedef.argname, spent() - started))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[pytest.TestReport]:
        report = yield
        now = spent()
        fixtures = [(name, round(took, 4)) for name, took in self.of_fixtures if took >= 0.01]
        phase = (report.nodeid, report.when, now - self.started, fixtures)
        if self.worker:
            self.phases.append(phase)  # they are sent at the end: not every report of a test goes to the process with the table
        else:
            self.add([phase])
        self.in_tests += now - self.started
        self.started, self.of_fixtures = now, []
        return report

    def add(self, phases: Iterable[Phase]) -> None:
        """Count phases of tests, and write their records."""
        lines = []
        for test, phase, seconds, fixtures in phases:
            self.tests.add(test)
            self.seconds[test] += seconds
            record = {"test": test, "phase": phase, "seconds": round(seconds, 4), "fixtures": dict(fixtures)}
            lines.append(json.dumps(record) + "\n")
        if self.records is not None:
            with self.records.open("a") as file:
                file.writelines(lines)

    def pytest_sessionfinish(self) -> None:
        if self.worker:
            self.config.workeroutput["processor_phases"] = self.phases
            self.config.workeroutput["processor_seconds"] = spent() - self.in_tests
        elif self.config.getoption("numprocesses", None):
            # Not what children took: they are the workers, each of which reports its own.
            self.collecting += time.process_time()
        else:
            self.collecting += spent() - self.in_tests

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        self.collecting += output.get("processor_seconds", 0.0)
        self.add(output.get("processor_phases", ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        parts: dict[str, Part] = {}
        for nodeid in self.tests:
            tests, seconds = parts.get(part_of(nodeid), Part(0, 0.0))
            parts[part_of(nodeid)] = Part(tests + 1, seconds + self.seconds[nodeid])
        terminalreporter.write_line(table(parts, self.collecting))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", metavar="FILE", help="write the processor time of each test and fixture: --times=FILE")


def pytest_configure(config: pytest.Config) -> None:
    if "--times" in config.invocation_params.args:
        # pytest looks for its settings next to all that may be a path, before it knows the options of plugins: workers, which
        # find the file there, would take its folder for the project's, and run the soak tests too
        raise pytest.UsageError("write --times=FILE, in one word")
    config.pluginmanager.register(ProcessorTime(config), "processor-time")
