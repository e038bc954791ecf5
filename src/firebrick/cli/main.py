"""The command ``firebrick`` and its sub-commands, one module each.

Exit codes: 0, all went well; 1, an error that the message explains, or, without a message, nobody reads the output any more
(``firebrick … | head``); 2, a wrong option or argument; 130, stopped by Ctrl-C.
"""

from __future__ import annotations

from importlib import import_module

import click

from firebrick.core.version import __version__

COMMANDS = (
    "analog", "cache", "checkpoint", "devices", "doctor", "evaluate", "explain", "export", "generate", "launch", "predict",
    "train", "tune",
)  # fmt: skip
"""The sub-commands: each is the function of the module of its name."""


class _Commands(click.Group):
    """Imports a sub-command when it is used: some need a tenth of a second more than others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"firebrick.cli.{cmd_name}"), cmd_name)
        return found


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="firebrick", message="%(prog)s %(version)s")
def main() -> None:
    """Firebrick: one tensor program, trained and run on any engine."""
