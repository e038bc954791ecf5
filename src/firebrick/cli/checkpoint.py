"""``firebrick checkpoint``: what a checkpoint holds, and whether it is as it was written."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import click

from firebrick.cli.reporting import FAILED, reported, size_of
from firebrick.core import dtypes
from firebrick.core.untrusted import shown
from firebrick.train import CheckpointError, load_checkpoint
from firebrick.train.checkpoint import BEST, NAME, checkpoints_of, is_checkpoint
from firebrick.train.writing import old_of


@click.group()
def checkpoint() -> None:
    """Checkpoints of training runs: what they hold, and whether they are whole."""


@checkpoint.command()
@click.argument("path", type=click.Path(path_type=Path))
@reported
def show(path: Path) -> None:
    """Say what the checkpoint PATH holds; of a run directory, its newest one that is whole.

    Version, progress, config, files with their hashes, and each tensor with dtype, shape and size.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = load_checkpoint(path)
    manifest = found.manifest
    click.echo(f"{'checkpoint':<12}{found.path}")
    click.echo(f"{'written by':<12}Firebrick {shown(manifest['firebrick'])}, format {manifest['format_version']}")
    for name, value in manifest["progress"].items():
        click.echo(f"{shown(name):<12}{shown(value)}")
    for name, value in found.config.items():
        click.echo(f"config      {shown(name)}: {shown(value if isinstance(value, str) else json.dumps(value), 2000)}")
    for name, facts in manifest["files"].items():
        click.echo(f"{'file':<12}{shown(name)}  {size_of(facts['bytes'])}  sha256 {shown(facts['sha256'])}")
    for name, path_of in sorted(manifest["aliases"].items()):
        click.echo(f"{'shared':<12}{shown(name, 500)} is {shown(path_of, 500)}")
    for part in ("model", "optimizer"):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in (f"{part} tensor", "dtype", "shape", "size"):
            table.add_column(column, overflow="fold")
        total = 0
        for name, facts in manifest[part].items():
            nbytes = _nbytes(facts)
            total += nbytes
            table.add_row(Text(shown(name, 500)), facts["dtype"], Text(str(facts["shape"])), size_of(nbytes))
        click.echo()
        Console(width=None if sys.stdout.isatty() else 200).print(table)
        click.echo(f"{len(manifest[part])} tensors of the {part}, {size_of(total)}")


def _nbytes(facts: dict[str, Any]) -> int:
    return int(math.prod(facts["shape"])) * dtypes.dtype(facts["dtype"]).itemsize


@checkpoint.command()
@click.argument("path", type=click.Path(path_type=Path))
@reported
def verify(path: Path) -> None:
    """Read every byte of the checkpoint PATH, or of all checkpoints of a run directory, and compare it with its hash.

    One line each; the exit status is 1 if one of them is damaged, and its line names the file; also if a run directory with
    others lacks its newest one, which nothing but a resumed run would notice.
    """
    places = [path] if is_checkpoint(path) else [*checkpoints_of(path), *(p for p in [path / BEST] if is_checkpoint(p))]
    whole = True
    newest = path / NAME
    if places and not is_checkpoint(path) and not any(is_checkpoint(p) for p in (newest, old_of(newest))):
        whole = False
        there = "a file in its place" if newest.is_file() else "holds no checkpoint" if newest.is_dir() else "does not exist"
        click.echo(f"{click.style('missing', fg='red')}  {newest}  {there}; resume would go on from an older checkpoint")
    for place in places or [path]:  # which is none, and says so
        try:
            found = load_checkpoint(place)
        except CheckpointError as e:
            if not places:
                raise
            whole = False
            click.echo(f"{click.style('damaged', fg='red')}  {place}  {e.received or e}")
            continue
        facts = ", ".join(f"{shown(name)} {shown(value)}" for name, value in found.manifest["progress"].items())
        total = sum(f["bytes"] for f in found.manifest["files"].values())
        click.echo(f"{click.style('whole', fg='green')}    {place}  {facts + ', ' if facts else ''}{size_of(total)}")
    if not whole:
        sys.exit(FAILED)
