"""``firebrick cache``: compiled code on disk, listed and removed."""

from __future__ import annotations

import sys
import time

import click

from firebrick.cli.reporting import reported, size_of

_SHOWN = 20
_UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))


@click.group()
def cache() -> None:
    """Compiled code that is kept on disk, so that no process compiles it twice.

    FIREBRICK_CACHE_DIR names another folder (or `off`), FIREBRICK_CACHE_SIZE its size, such as 512M.
    """


@cache.command("list")
@click.option("--all", "everything", is_flag=True, help=f"List all entries, not only the {_SHOWN} that were used last.")
@reported
def list_entries(everything: bool) -> None:
    """List what is kept: which functions, for which processor, how large, when last used."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from firebrick.compiler.cache import folder, store
    from firebrick.core.config import config

    home = folder()
    if home is None:
        click.echo("compiled code is not kept (FIREBRICK_CACHE_DIR is off, or there is no home directory)")
        return
    entries = store.entries()
    shown = entries if everything else entries[:_SHOWN]
    if shown:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("entry", "functions", "processor", "LLVM", "size", "last used"):
            table.add_column(column, overflow="fold")
        now = time.time()
        for e in shown:
            functions = Text(", ".join(e.facts["functions"])) if e.facts else Text("not valid: it will be replaced", "yellow")
            target, version = (Text(str(e.facts.get(k, ""))) for k in ("target", "llvm"))
            table.add_row(Text(e.key[:12], "green"), functions, target, version, size_of(e.nbytes), _ago(now - e.used))
        Console(width=None if sys.stdout.isatty() else 200).print(table)
        if len(entries) > len(shown):
            click.echo(f"… and {len(entries) - len(shown)} more: firebrick cache list --all")
        click.echo()
    total = sum(e.nbytes for e in entries)
    count = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    click.echo(f"{count}, {size_of(total)} of at most {size_of(config.cache_size)}, in {home}")


@cache.command()
@reported
def clear() -> None:
    """Remove all of it; what is needed is compiled again."""
    from firebrick.compiler.cache import folder, store

    count, total = store.clear()
    click.echo(f"removed {'1 entry' if count == 1 else f'{count} entries'}, {size_of(total)}, from {folder() or 'nowhere'}")


def _ago(seconds: float) -> str:
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name} ago"
    return "now"
