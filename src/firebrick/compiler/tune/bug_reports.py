"""Reports of barred variants: files with all that a bug report needs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from firebrick.compiler import cache
from firebrick.compiler.tune.variant import KernelProblem
from firebrick.core.version import __version__

MOST = 64
"""Maximum number of reports that are kept."""


def folder() -> Path | None:
    """The folder of reports, beside that of compiled objects; None if nothing is kept on disk."""
    objects = cache.folder()
    return None if objects is None else objects.parent / "reports"


def write_report(problem: KernelProblem, variant: str, reason: str, source: str) -> Path | None:
    """Write a report.

    Args:
        problem: The problem.
        variant: Name of the variant.
        reason: What was wrong.
        source: Its code.

    Returns:
        The file; None if it could not be written.
    """
    home = folder()
    if home is None:
        return None
    safe = "".join(c if c.isalnum() or c in "-=." else "_" for c in variant)[:60]
    path = home / f"{problem.id}-{safe}.txt"
    text = "\n".join([
        f"Firebrick {__version__}: a variant of a kernel was barred", f"problem: {problem.text}", f"variant: {variant}",
        f"reason: {reason}", f"threads: {problem.threads}", f"sizes: {problem.sizes}", "device:",
        problem.device, "", source, "",
    ])  # fmt: skip
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, encoding="utf-8")
        kept = sorted(home.glob("*.txt"), key=lambda p: p.stat().st_mtime)
        for old in kept[:-MOST]:
            with suppress(OSError):
                os.unlink(old)
    except OSError:
        return None
    return path
