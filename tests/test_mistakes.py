"""Every program of ``docs/errors.md`` raises, at the line that is marked, the error that the page shows below it.

``PYTHONPATH=src python tests/test_mistakes.py`` writes the errors of the page anew, where a change is meant.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import firebrick as fb
from firebrick.core.other_names import UnknownNameError

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
FILE = "program.py"
PREAMBLE = re.compile(r"```python\n(.*?)```", flags=re.S)
ENTRY = re.compile(r"### ([^\n]+)\n\n```py\n(.*?)```\n\n```text\n(.*?)\n```\n", flags=re.S)
HERE = "  # here"

GRADED_B = {
    "no epochs": "Python's own error, which names the argument",
    "a module without forward": "one sentence",
}
"""Errors that are clear without having three parts, each with what it is instead."""


class Mistake(NamedTuple):
    """One program of the page, with the error that the page shows."""

    title: str
    program: str
    shown: str


class Raised(NamedTuple):
    """What a program raised, and in which line of its own."""

    error: Exception
    text: str
    line: int


def mistakes() -> list[Mistake]:
    return [Mistake(*found) for found in ENTRY.findall(PAGE.read_text("utf-8"))]


def run(program: str) -> Raised | None:
    """Run a program after the page's first block, as a file of its own."""
    preamble = PREAMBLE.search(PAGE.read_text("utf-8"))
    assert preamble is not None
    exec(preamble.group(1), names := {"__name__": "program"})
    linecache.cache[FILE] = len(program), None, program.splitlines(True), FILE
    try:
        exec(compile(program, FILE, "exec"), names)
    except Exception as e:  # noqa: BLE001 - any error is what is looked at
        lines = [f.lineno or 0 for f in traceback.extract_tb(e.__traceback__) if f.filename == FILE]
        return Raised(e, f"{type(e).__name__}: {e}", lines[-1])
    return None


def anywhere(text: str) -> str:
    """Without what differs between machines: the engines that are installed."""
    return re.sub(r"(begins with an engine: )[a-z, ]+", r"\1…", text)


MISTAKES = mistakes()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.title)
def test_a_mistake_is_answered_as_the_page_shows_at_the_line_where_it_is(mistake: Mistake) -> None:
    raised = run(mistake.program)
    assert raised is not None, "nothing is raised"
    assert anywhere(raised.text) == anywhere(mistake.shown)
    marked = [k for k, line in enumerate(mistake.program.splitlines(), 1) if line.endswith(HERE)]
    assert [raised.line] == marked


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.title not in GRADED_B], ids=lambda m: m.title)
def test_an_error_has_what_was_expected_what_was_received_and_what_to_do(mistake: Mistake) -> None:
    raised = run(mistake.program)
    assert raised is not None
    if isinstance(raised.error, UnknownNameError):
        assert re.search(r": (write|none is needed:|did you mean) ", raised.text)
    else:
        assert isinstance(raised.error, fb.FirebrickError)
        assert raised.error.expected
        assert raised.error.received
        assert raised.error.remedy


def test_the_page_has_many_mistakes_each_once() -> None:
    titles = [m.title for m in MISTAKES]
    assert len(titles) == len(set(titles)) >= 94
    assert PAGE.read_text("utf-8").count("\n### ") == len(titles)
    assert GRADED_B.keys() <= set(titles)


def test_a_mistake_that_is_answered_otherwise_is_found() -> None:
    raised = run("x = fb.ones(3)\nx.reshape(2)  # here\n")
    assert raised is not None
    assert raised.line == 2
    assert raised.text != MISTAKES[0].shown
    assert run("x = fb.ones(3)\n") is None


def rewritten(text: str, answer: Callable[[str], Raised | None] = run) -> str:
    """The page with the errors that its programs raise now."""

    def entry(found: re.Match[str]) -> str:
        title, program, _ = found.groups()
        raised = answer(program)
        assert raised is not None, f"{title}: nothing is raised"
        return f"### {title}\n\n```py\n{program}```\n\n```text\n{raised.text}\n```\n"

    return ENTRY.sub(entry, text)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text("utf-8")), "utf-8")
