"""The command ``firebrick`` and its sub-commands, one module each.

Exit codes: 0, all went well; 1, an error that the message explains, or, without a message, nobody reads the output any more
(``firebrick … | head``); 2, a wrong option or argument; 130, stopped by Ctrl-C.
"""

from __future__ import annotations

import click

from firebrick.cli.analog import analog
from firebrick.cli.cache import cache
from firebrick.cli.checkpoint import checkpoint
from firebrick.cli.devices import devices
from firebrick.cli.doctor import doctor
from firebrick.cli.evaluate import evaluate
from firebrick.cli.explain import explain
from firebrick.cli.export import export
from firebrick.cli.generate import generate
from firebrick.cli.launch import launch
from firebrick.cli.predict import predict
from firebrick.cli.train import train
from firebrick.cli.tune import tune
from firebrick.core.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="firebrick", message="%(prog)s %(version)s")
def main() -> None:
    """Firebrick: one tensor program, trained and run on any engine."""


for command in (
    devices, doctor, train, launch, evaluate, predict, generate, checkpoint, export, cache, explain, tune, analog,
):  # fmt: skip
    main.add_command(command)
