"""Errors and warnings of the command as lines on stderr; imports nothing of the package, as settings may be what is wrong."""

from __future__ import annotations

from typing import Any

import click


def say_error(message: str) -> None:
    """``error: …`` in red on stderr."""
    click.secho(f"error: {message}", fg="red", err=True)


def say_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """``warning: …`` in yellow on stderr; in place of ``warnings.showwarning``."""
    click.secho(f"warning: {message}", fg="yellow", err=True)
