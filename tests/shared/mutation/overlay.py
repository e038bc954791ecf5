"""A private copy of the tree that a mutant is written into, so that the work tree never changes.

A copy is kept between runs and only brought up to date, so that Python's compiled files in it stay valid. Each mutated file
gets a modification time that no other version of it has, so the compiled form of one version is never taken for another's.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mutation.points import Mutant

PACKAGE = Path("src/firebrick")
_LEFT_OUT = {"__pycache__", "node_modules", "runs", "build", "dist", "site"}


def files_of(root: Path) -> dict[Path, os.stat_result]:
    """All files of a tree by their relative paths, without hidden folders, caches and build outputs."""
    found = {}
    for folder, names, files in os.walk(root):
        names[:] = [n for n in names if n not in _LEFT_OUT and (not n.startswith(".") or n == ".ci")]
        for name in files:
            path = Path(folder, name)
            found[path.relative_to(root)] = path.stat()
    return found


class Overlay:
    """A copy of the tree in a folder of its own."""

    def __init__(self, source: Path, root: Path) -> None:
        self.source, self.root = source, root
        self._last = 0

    def update(self) -> None:
        """Make the copy equal to the tree."""
        theirs = files_of(self.source)
        ours = files_of(self.root) if self.root.exists() else {}
        for path in ours.keys() - theirs.keys():
            (self.root / path).unlink()
        for path, stat in theirs.items():
            if path not in ours or (ours[path].st_size, ours[path].st_mtime_ns) != (stat.st_size, stat.st_mtime_ns):
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.source / path, self.root / path)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The copy with a mutant in it."""
        goal, original = self.root / PACKAGE / mutant.path, self.source / PACKAGE / mutant.path
        self._last = max(self._last, int(time.time()), int(original.stat().st_mtime)) + 1
        goal.write_text(mutant.applied(original.read_text(encoding="utf-8")), encoding="utf-8")
        os.utime(goal, (self._last, self._last))  # compiled files are valid for a time in whole seconds and a size
        try:
            yield
        finally:
            shutil.copy2(original, goal)


@contextmanager
def linked(warm: Path | None, folder: Path) -> Iterator[Path]:
    """A compile cache for one mutant: hard links to the entries of a warm one, or empty; what is added goes with it.

    Entries are written by renames and never in place, so the warm cache keeps its own.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if warm is not None and warm.exists():
        shutil.copytree(warm, folder, copy_function=os.link, dirs_exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
