"""Docstrings that share sections: siblings with the same arguments have one text for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])

_AFTER = ("Returns:", "Yields:", "Raises:", "Example:")
_TAKEN = ("Args:", "Attributes:")


def documented_like(sibling: Callable[..., Any], *left_out: str) -> Callable[[T], T]:
    """A decorator that adds the arguments and attributes of a sibling's docstring to that of a function or class.

    Args:
        sibling: The function or class whose docstring has the sections.
        left_out: Names that the decorated function does not have.
    """

    def add(function: T) -> T:
        if function.__doc__ and sibling.__doc__:  # python -OO removes docstrings
            lines = function.__doc__.splitlines()
            at = next((k for k, line in enumerate(lines) if line.strip() in _AFTER), len(lines))
            lines[at:at] = _sections(sibling.__doc__.splitlines(), left_out)
            function.__doc__ = "\n".join(lines)
        return function

    return add


def _sections(lines: list[str], left_out: tuple[str, ...]) -> list[str]:
    """The lines of the sections that siblings share."""
    found: list[str] = []
    margin = depth = 0
    inside = kept = False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() in _TAKEN:
            inside, kept, margin, depth = True, True, indent, 0
        elif line.strip() and indent <= margin:
            inside = False
        elif line.strip() and (not depth or indent == depth):  # an argument begins
            depth = indent
            kept = line.strip().split(":")[0] not in left_out
        if inside and (kept or not line.strip()):
            found.append(line)
    return found
