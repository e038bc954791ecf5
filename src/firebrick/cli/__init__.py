"""The command ``firebrick``: what devices there are, and training, evaluating and using image models."""

from firebrick.cli.main import main

__all__ = ["main"]
