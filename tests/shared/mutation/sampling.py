"""Which mutants a seed draws: lines of the sources, each as likely as another, then a kind of mutation on the line.

The first N of a seed are the same for every larger count, so a count can be raised. Lines are drawn by their text, so a sample
changes only where the sources do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
    return list(islice(_drawn(package, by_line(package, under, without), seed), count))


def _drawn(package: Path, lines: dict[tuple[str, int], list[Mutant]], seed: int) -> Iterator[Mutant]:
    sources = {path: (package / path).read_text(encoding="utf-8") for path, _ in lines}
    texts = {path: source.splitlines() for path, source in sources.items()}
    seen: Counter[tuple[str, str]] = Counter()
    order = []
    for path, line in sorted(lines):
        text = texts[path][line - 1].strip()
        seen[path, text] += 1
        order.append((Random(f"{seed} {path} {text} {seen[path, text]}"), path, line))
    for random, path, line in sorted(order, key=lambda o: o[0].random()):
        kinds: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in lines[path, line]:
            kinds[mutant.kind].append(mutant)
        names = sorted(kinds)
        random.shuffle(names)
        choices = [random.choice(kinds[n]) for n in names]
        if (mutant := next((m for m in choices if m.viable(sources[path])), None)) is not None:
            yield mutant
