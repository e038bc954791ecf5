"""``firebrick devices``: what can compute here, and what cannot and why."""

from __future__ import annotations

import sys

import click

from firebrick.backends.registry import default_device, unavailable
from firebrick.backends.registry import devices as all_devices
from firebrick.cli.reporting import reported


@click.command()
@reported
def devices() -> None:
    """List the devices that are there, and the engines that cannot be used, with the reason.

    * marks the default device; FIREBRICK_DEVICE changes it.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 200)
    home = default_device()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "device", "engine", "name", "driver", "memory"):
        table.add_column(column, overflow="fold")
    for device in all_devices():
        facts = device.backend.properties(device)
        memory = facts.get("memory")
        table.add_row(
            "*" if device is home else "",
            Text(device.name, "green"),
            device.engine,
            Text(str(facts.get("name", device.backend.name(device)))),
            Text(str(facts.get("driver", ""))),
            f"{memory / 2**30:.1f} GiB" if isinstance(memory, int) else "",
        )
    console.print(table)
    absent = unavailable()
    if absent:
        console.print()
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("unavailable")
        table.add_column("reason", overflow="fold")
        for name, reason in absent.items():
            table.add_row(Text(name, "yellow"), Text(" ".join(reason.split())))
        console.print(table)
