"""The records: files of ``tests/compiler/pinned``, with a heading for each program and its lines, in order of their names.

A heading is ``= family:name @ way``, with ``(not run)`` where no machine here runs the code.
"""

from __future__ import annotations

import re
from difflib import unified_diff
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "compiler" / "pinned"
NOT_RUN = " (not run)"
Records = dict[str, tuple[bool, list[str]]]
"""Program → whether its code was run, and its lines."""


def file_of(unit: str) -> Path:
    """The file that has the lines of a program: one for the programs of a family."""
    return FOLDER / f"{unit.partition(':')[0].replace(' ', '_')}.txt"


def read(folder: Path = FOLDER) -> Records:
    """All records."""
    found: Records = {}
    for path in sorted(folder.glob("*.txt")):
        lines: list[str] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("= "):
                lines = []
                found[line[2:].removesuffix(NOT_RUN)] = not line.endswith(NOT_RUN), lines
            else:
                lines.append(line[2:])
    return found


def write(records: Records, folder: Path = FOLDER) -> None:
    """Write all records; files of no program are removed."""
    texts: dict[Path, list[str]] = {}
    for unit in sorted(records, key=_natural):
        ran, lines = records[unit]
        texts.setdefault(folder / file_of(unit).name, []).extend(
            [f"= {unit}{'' if ran else NOT_RUN}", *(f"  {line}".rstrip() for line in lines)]
        )
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.txt"):
        if path not in texts:
            path.unlink()
    for path, lines in texts.items():
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _natural(unit: str) -> list[tuple[int, str]]:
    """Names in order, and numbers in theirs."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", unit)]


def difference(unit: str, before: list[str], after: list[str]) -> str:
    """What changed, and what to do."""
    changed = "\n".join(list(unified_diff(before, after, "recorded", "now", lineterm="", n=0))[:40])
    run = "PYTHONPATH=src:tests/shared python -m pinned"
    return (
        f"{unit}\n{changed}\n\nThe compiler makes something else of this program. See what:\n  {run} --show '{unit}'\n"
        f"If the change is meant, verify it and record it anew, and look at the difference:\n  {run} --write\n"
        f"  git diff tests/compiler/pinned"
    )
