"""Errors and warnings of the command as lines on stderr, and paths that cannot be meant; imports nothing of the package, as
settings may be what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


def say_error(message: str) -> None:
    """``error: …`` in red on stderr."""
    click.secho(f"error: {message}", fg="red", err=True)


def say_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """``warning: …`` in yellow on stderr; in place of ``warnings.showwarning``."""
    click.secho(f"warning: {message}", fg="yellow", err=True)


class NewFolder(click.Path):
    """The path of a folder that is written. An empty text, as of a variable of the shell that is not set, is none: the working
    folder would be taken."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if value == "":
            self.fail("a path has at least one character", param, ctx)
        return super().convert(value, param, ctx)
