"""Defaults of the public interface. A program that does not write an argument gets other results when its default changes.

``PYTHONPATH=src python tests/test_defaults.py`` writes them down anew, where a change is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import firebrick as fb

FILE = Path(__file__).parent / "defaults.txt"
MODULES = ("", "nn", "optim", "data", "train", "random", "linalg", "fft", "models", "distributed", "testing")


def plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str) or (isinstance(value, tuple) and all(map(plain, value)))


def defaults() -> Iterator[str]:
    """A line for each public callable with defaults other than None: its name, then what it takes."""
    for module in MODULES:
        home = getattr(fb, module) if module else fb
        for name in sorted(home.__all__):
            member = getattr(home, name)
            if not callable(member) or (isinstance(member, type) and issubclass(member, BaseException)):
                continue
            try:
                parameters = inspect.signature(member).parameters.values()
            except ValueError:  # a class of Python's own
                continue
            if found := [f"{p.name}={p.default!r}" for p in parameters if plain(p.default)]:
                yield f"{f'{module}.' if module else ''}{name}: {', '.join(found)}"


def test_defaults_are_those_that_are_written_down() -> None:
    found, known = set(defaults()), set(FILE.read_text(encoding="utf-8").splitlines())
    assert found - known == known - found == set(), f"if this is meant: {__doc__}"


if __name__ == "__main__":
    FILE.write_text("\n".join(defaults()) + "\n", encoding="utf-8")
