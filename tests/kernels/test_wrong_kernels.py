"""Wrong kernels, and wrong calls: each error names the line at fault, what was expected, what was received, and what to do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import wrong_kernels
from wrong_kernels import CASES

import firebrick as fb

TEXTS = Path(__file__).with_name("errors.txt")
FILE = wrong_kernels.__file__


def _here(name: str) -> str | None:
    """The line that a case marks: in its function, or in one before it."""
    lines, first = inspect.getsourcelines(CASES[name])
    marked = [first + k for k, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return f"{FILE}:{marked[0]}" if marked else None


def _error(name: str) -> fb.FirebrickError:
    with pytest.raises(fb.FirebrickError) as caught:
        CASES[name]()
    return caught.value


def _shown(name: str, e: fb.FirebrickError) -> str:
    text = re.sub(re.escape(FILE) + r":\d+", "FILE:LINE", f"{type(e).__name__}: {e}")
    return f"## {name}\n{text}\n"


@pytest.mark.parametrize("name", CASES)
def test_an_error_names_the_line_at_fault(name: str) -> None:
    here, e = _here(name), _error(name)
    if here is not None:
        assert here in str(e)
        assert e.context["line"] == here


def test_the_texts_of_all_errors() -> None:
    assert "".join(_shown(name, _error(name)) for name in CASES) == TEXTS.read_text()


def test_there_are_40_wrong_kernels() -> None:
    assert sum(_here(name) is not None for name in CASES) >= 40
