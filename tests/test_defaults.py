"""Defaults of the public interface, and the options of its commands. A program that does not write an argument gets other
results when its default changes; so does a command line without an option.

``PYTHONPATH=src python tests/test_defaults.py`` writes them down anew, where a change is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

import firebrick as fb
from firebrick.cli.main import main
from firebrick.testing import soak

FILE = Path(__file__).parent / "defaults.txt"
MODULES = (
    "", "analog", "nn", "nn.initial", "optim", "data", "train", "random", "linalg", "fft", "models", "distributed", "testing",
)  # fmt: skip


def plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str) or (isinstance(value, tuple) and all(map(plain, value)))


def defaults() -> Iterator[str]:
    """A line for each public callable with defaults other than None: its name, then what it takes."""
    for module in MODULES:
        home = attrgetter(module)(fb) if module else fb
        for name in sorted(public(home)):
            member = getattr(home, name)
            if not isinstance(member, type):
                yield from of(f"{module}.{name}".lstrip("."), member)
            elif not issubclass(member, BaseException | Enum) and member.__module__.startswith("firebrick."):
                yield from of(f"{module}.{name}".lstrip("."), member)
                for method in sorted(n for n in vars(member) if not n.startswith("_")):
                    yield from of(f"{module}.{name}.{method}".lstrip("."), getattr(member, method))


def public(home: Any) -> list[str]:
    return getattr(home, "__all__", [n for n, v in vars(home).items() if getattr(v, "__module__", "") == home.__name__])


def of(name: str, member: Any) -> Iterator[str]:
    """The line of one callable; none where all must be written."""
    if callable(member) and (found := [f"{p.name}={p.default!r}" for p in signature(member) if plain(p.default)]):
        yield f"{name}: {', '.join(found)}"


def signature(member: Any) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(member).parameters.values()
    except ValueError:  # a class of Python's own
        return ()


def options(name: str, command: click.Command) -> Iterator[str]:
    """A line for each option and argument of a command and of those in it: what it takes, how often, its default."""
    if command.context_settings:
        yield f"$ {name}: {dict(sorted(command.context_settings.items()))}"
    for p in command.params:
        facts, own = p.to_info_dict(), getattr(p.type, "type", None)
        kind = facts.pop("type")
        shown = {k: facts.get(k) for k in ("required", "nargs", "multiple", "hidden", "default")}
        shown |= {k: v for k, v in kind.items() if k not in ("name", "param_type", "readable", "case_sensitive")}
        shown |= {"metavar": p.metavar, "shown": getattr(p, "show_default", None), "made": own and own.__name__}
        if p.name == "jobs":
            del shown["default"]  # one for each core of this machine
        if shown["nargs"] == 1:
            del shown["nargs"]
        said = [f"{k}={v}" for k, v in shown.items() if v is not None and v is not False and v != ()]
        yield f"$ {name} {' '.join(p.opts)}: {', '.join([kind['param_type'], *said])}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in sorted(command.list_commands(context)):
            found = command.get_command(context, inner)
            assert found is not None
            yield from options(f"{name} {inner}", found)


def written() -> list[str]:
    """All lines."""
    return [*defaults(), *options("firebrick", main), *options("python -m firebrick.testing.soak", soak.main)]


def test_defaults_are_those_that_are_written_down() -> None:
    found, known = set(written()), set(FILE.read_text(encoding="utf-8").splitlines())
    assert found - known == known - found == set(), f"if this is meant: {__doc__}"


if __name__ == "__main__":
    FILE.write_text("\n".join(written()) + "\n", encoding="utf-8")
