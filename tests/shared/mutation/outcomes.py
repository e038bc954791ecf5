"""What is known of mutants: outcomes kept in a state folder, mutants judged equivalent by a person, and the table of both.

An outcome counts for the sources that it was found with. A kill counts while the file of the test that noticed is the same,
a survivor while the files of all tests that were asked are, and no other would be asked now.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mutation.collecting import digest
from mutation.overlay import PACKAGE
from mutation.points import Mutant
from mutation.running import test_of

EQUIVALENT = Path(__file__).parent / "equivalent.txt"
KILLED = ("killed", "timeout")


def sources(root: Path) -> str:
    """A hash of all sources."""
    found = hashlib.sha256()
    for path in sorted((root / PACKAGE).rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def place(mutant: Mutant) -> tuple[str, int, int, str]:
    """What a mutant is known by among those of the same sources."""
    return mutant.path, mutant.start, mutant.end, mutant.text


class Outcomes:
    """The outcomes of one state of the sources, in a file that is only appended to."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        self.file = folder / f"{sources(root)}.jsonl"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.rows: dict[tuple[str, int, int, str], dict[str, Any]] = {}
        self.read()

    def read(self) -> None:
        """Read what was appended, by other processes too."""
        if self.file.exists():
            for line in self.file.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # cut off when the process was ended
                self.rows[row["path"], row["start"], row["end"], row["text"]] = row

    def add(self, row: dict[str, Any]) -> None:
        """Keep an outcome, with the state of the tests that it depends on."""
        killer = test_of(row["by"])
        files = [killer.partition("::")[0]] if killer is not None and row["outcome"] in KILLED else row["files"]
        row["tests_were"] = {f: digest(self.root / f) for f in files}
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        self.rows[row["path"], row["start"], row["end"], row["text"]] = row

    def known(self, mutant: Mutant, files: Iterable[str], never: set[str], limit: float) -> dict[str, Any] | None:
        """The outcome of a mutant if it still counts; ``files`` are those of the tests that would be asked now."""
        row = self.rows.get(place(mutant))
        if row is None or test_of(row["by"]) in never:
            return None
        if any(not (self.root / f).exists() or digest(self.root / f) != old for f, old in row["tests_were"].items()):
            return None
        if row["outcome"] not in KILLED and (
            not set(files) <= set(row["files"]) or (row["files"] and row.get("limit", 0.0) < limit)
        ):
            return None
        return row


def equivalents(file: Path = EQUIVALENT) -> dict[tuple[str, str, str], str]:
    """Mutants judged equivalent, with the reasons: by file, function and changed lines, so that edits elsewhere keep them.

    Raises:
        ValueError: A paragraph is not of the form that the file's head describes.
    """
    found = {}
    for block in file.read_text(encoding="utf-8").split("\n\n"):
        lines = [x for x in block.splitlines() if x.strip() and not x.startswith("#")]
        if not lines:
            continue
        head, *body = lines
        diff = [x for x in body if x.startswith(("- ", "+ "))]
        reason = " ".join(x[2:] for x in body if x.startswith("= "))
        if not diff or not reason or len(diff) + sum(x.startswith("= ") for x in body) != len(body):
            raise ValueError(f"{file}: not a path with a function, lines of '- ' and '+ ', and reasons after '= ':\n{block}")
        path, _, function = head.strip().partition(" ")
        found[path, function, "\n".join(diff)] = reason
    return found


def key(row: dict[str, Any]) -> tuple[str, str, str]:
    """What an equivalent mutant is known by."""
    return row["path"], row["function"], row["diff"]


def judged(row: dict[str, Any], known: dict[tuple[str, str, str], str]) -> str:
    """The outcome of a row, ``equivalent`` included."""
    return "equivalent" if row["outcome"] not in KILLED and key(row) in known else row["outcome"]


def table(rows: Iterable[dict[str, Any]], known: dict[tuple[str, str, str], str]) -> str:
    """A table of outcomes by folder; two levels of them where they are of one or two folders."""
    rows = list(rows)
    depth = 2 if len({row["path"].split("/")[0] for row in rows}) <= 2 else 1
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        folder = "/".join(row["path"].split("/")[:-1][:depth]) or "(top)"
        counts.setdefault(folder, Counter())[judged(row, known)] += 1
    total: Counter[str] = Counter()
    lines = [
        "| folder | mutants | killed | of these by a hang | equivalent | survived | not executed |",
        "|---|---|---|---|---|---|---|",
    ]
    for folder in sorted(counts):
        lines.append(_line(f"`{folder}`", counts[folder]))
        total += counts[folder]
    lines.append(_line("**all**", total))
    return "\n".join(lines)


def _line(name: str, c: Counter[str]) -> str:
    killed = c["killed"] + c["timeout"]
    return f"| {name} | {c.total()} | {killed} | {c['timeout']} | {c['equivalent']} | {c['survived']} | {c['not executed']} |"
