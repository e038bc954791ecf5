"""``fingerprint``: a hash of the sources that decide what becomes of a graph, so that nothing of another version is reused."""

from __future__ import annotations

import hashlib
import os
import time
from functools import cache
from pathlib import Path

FLOORS = ("backends", "compiler", "core", "graph", "ir", "ops", "scalar")
"""The packages that define operations, and that make programs of graphs."""
_ROOT = Path(__file__).parent.parent
_IMPORTED = time.time()


def defines(module: str) -> bool:
    """Whether a module is one of those whose sources are in the fingerprint."""
    root, _, rest = module.partition(".")
    return root == "firebrick" and rest.partition(".")[0] in FLOORS


@cache
def fingerprint() -> bytes | None:
    """The hash of all sources of these packages, by path and content.

    None if they cannot be read, or if one has changed since this process began to import them: what runs is then not what the
    files say.
    """
    digest = hashlib.sha256()
    try:
        for floor in FLOORS:
            for folder, folders, files in os.walk(_ROOT / floor):
                folders.sort()
                for name in sorted(files):
                    if name.endswith(".py"):
                        path = os.path.join(folder, name)
                        about = os.stat(path)
                        # the time of a change of the file itself, too: a copy may keep the time of its original
                        if max(about.st_mtime, about.st_ctime) > _IMPORTED:
                            return None
                        with open(path, "rb") as file:
                            content = file.read()
                        digest.update(f"{os.path.relpath(path, _ROOT)}\0{len(content)}\0".encode())
                        digest.update(content)
    except OSError:
        return None
    return digest.digest()
