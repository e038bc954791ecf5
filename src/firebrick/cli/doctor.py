"""``firebrick doctor``: whether the engines of this machine compute what they should, and what to do where they do not."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from firebrick.cli.reporting import FAILED, reported


@click.command()
@click.option(
    "--device", "names", multiple=True, help="Device to check, such as cpu or torch:cuda:0; several times for several."
)
@click.option("--op", "ops", multiple=True, help="Op that conformance looks at; all by default.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the samples and draws.")
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="File for the text that a bug report needs."
)  # fmt: skip
@click.pass_context
@reported
def doctor(ctx: click.Context, names: tuple[str, ...], ops: tuple[str, ...], seed: int, report: Path | None) -> None:
    """Check that devices compute what they should.

    Every op is held against the reference, forward and gradient, in each dtype and memory layout; then large tensors,
    transfers, destinations, random bits and a short training. It takes about a minute a device. The exit code is 1 if something
    failed; the text between the lines is what a bug report needs.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from firebrick.testing.doctor import examine

    if report is not None:
        report.touch()  # a path that cannot be written is said now, not after the work
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.status("") as status:

        def watch(device: str, check: str) -> None:
            status.update(f"{device}: {check}")
            if not console.is_terminal:
                click.echo(f"checking {device}: {check}", err=True)

        found = examine(names or None, ops or None, seed=seed, watch=watch)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "device", "check", "what", "how far off", "what to do"):
        table.add_column(column, overflow="fold")
    for f in found.findings:
        mark = Text("ok", "green") if f.ok else Text("FAILED", "bold red")
        table.add_row(mark, f.device, f.check, Text(f.subject), Text(f.off), Text(f.advice))
    console.print(table)
    for name in dict.fromkeys(f.device for f in found.findings if f.device in found.facts):
        click.echo(f"{name}: {found.facts[name]}")
    text = found.text()
    if report is not None:
        report.write_text(text, encoding="utf-8")
        click.echo(f"report written to {report}")
    elif not found.ok:
        click.echo(f"\n----- paste this into a bug report -----\n{text}----------------------------------------")
    if not found.ok:
        click.echo(f"{len(found.failures)} checks failed", err=True)
        ctx.exit(FAILED)
    places = len({f.device for f in found.findings if f.device in found.facts})
    click.echo(f"all is well: {len(found.findings)} checks on {places} device{'s' * (places != 1)}, {found.seconds:.0f} s")
