"""Which mutants a seed draws: lines of the sources, each as likely as another, then a kind of mutation on the line.

The first N of a seed are the same for every larger count, so a count can be raised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from mutation.points import Mutant, mutants


def by_line(package: Path, under: tuple[str, ...], without: tuple[str, ...]) -> dict[tuple[str, int], list[Mutant]]:
    """All mutants of the files under some folders, by file and line."""
    found: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for file in sorted(package.rglob("*.py")):
        path = str(file.relative_to(package))
        if (not under or _within(path, under)) and not _within(path, without):
            for mutant in mutants(path, file.read_text(encoding="utf-8")):
                found[path, mutant.line].append(mutant)
    return found


def _within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == f or path.startswith(f.rstrip("/") + "/") for f in folders)


def sample(package: Path, count: int, seed: int, under: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> list[Mutant]:
    """The first mutants of a seed."""
    lines = by_line(package, under, without)
    keys = sorted(lines)
    Random(seed).shuffle(keys)
    return list(islice(_drawn(package, lines, keys, seed), count))


def _drawn(
    package: Path, lines: dict[tuple[str, int], list[Mutant]], keys: list[tuple[str, int]], seed: int
) -> Iterator[Mutant]:
    for path, line in keys:
        random = Random(f"{seed} {path} {line}")
        source = (package / path).read_text(encoding="utf-8")
        kinds: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in lines[path, line]:
            kinds[mutant.kind].append(mutant)
        names = sorted(kinds)
        random.shuffle(names)
        choices = [random.choice(kinds[n]) for n in names]
        if (mutant := next((m for m in choices if m.viable(source)), None)) is not None:
            yield mutant
