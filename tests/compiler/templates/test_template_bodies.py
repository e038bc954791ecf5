"""The kernel IR of each template, with each of its constants changed alone, is what it was when ``bodies.txt`` was written.

``test_template_conformance.py`` runs the same templates with drawn constants. Python does not execute the bodies of templates,
so no measure of executed lines shows what a change of one reaches. After a change that is meant, and when those tests pass,
``PYTHONPATH=src:tests/shared python tests/compiler/templates/test_template_bodies.py`` writes the file anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from template_problems import CASES, Posed, basic

from firebrick.core.errors import FirebrickError

FILE = Path(__file__).with_name("bodies.txt")
WIDE = {"group_size": 64}
"""Of templates of attention, whose items have fewer elements then, and shorter bodies."""
MORE: dict[str, tuple[dict[str, Any], ...]] = {"row reduction": ({"lanes": 64}, {"group_size": 256, "lanes": 128})}
"""Further constants: rows of more items than exchange values."""


def changes(name: str) -> Iterator[dict[str, Any]]:
    """Constants that differ from the basic ones."""
    case = CASES[name]
    first = WIDE if "features" in case.constants else {}
    yield first
    for constant, values in case.constants.items():
        yield from (first | {constant: v} for v in values[1:2] if constant not in first)
    yield from case.more[:1] if first else (*case.more, *MORE.get(name, ()))


def body(name: str, changed: dict[str, Any]) -> str:
    """A hash of the kernel IR, with the number of its lines; empty for constants that the template does not take."""
    case, base = CASES[name], basic(CASES[name])
    posed = Posed(case, base.names, base.constants | changed, {}, {})
    try:
        if not posed.valid():
            return ""
        dtypes = {n: a.dtype.name for n, a in posed.avals().items()}
        text = str(case.template.program(dtypes, **posed.constants).translated.function)
    except (ValueError, FirebrickError):
        return ""
    return f"{text.count(chr(10))} lines {blake2b(text.encode(), digest_size=6).hexdigest()}"


def lines(name: str) -> list[str]:
    """A line for each of the constants with which a template has a kernel."""
    found = {", ".join(f"{n}={v}" for n, v in changed.items()) or "basic": body(name, changed) for changed in changes(name)}
    return [f"{title}: {text}" for title, text in found.items() if text]


def recorded() -> dict[str, list[str]]:
    parts = FILE.read_text(encoding="utf-8").split("== ")[1:]
    return {p.split("\n", 1)[0]: p.strip("\n").split("\n")[1:] for p in parts}


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_ir_of_a_template_is_as_it_was_recorded(name: str) -> None:
    assert lines(name) == recorded()[name]


def test_each_template_has_a_record() -> None:
    assert list(recorded()) == list(CASES)


if __name__ == "__main__":
    FILE.write_text("".join("\n".join([f"== {name}", *lines(name), ""]) for name in CASES), encoding="utf-8")
