"""How a sub-command ends: what a person did wrong or can change is one message and an exit code, never a traceback.

``reported`` wraps each sub-command and adds ``--debug``, which shows the traceback after all.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from firebrick.cli.messages import say_error, say_warning
from firebrick.core.errors import FallbackWarning, FirebrickError
from firebrick.data import SharedRowsWarning, UncheckedCursorWarning
from firebrick.data.datasets import DataError
from firebrick.graph import RecompileWarning
from firebrick.train import (
    DamagedCheckpointWarning,
    EagerTrainingWarning,
    FrozenTrainingWarning,
    NothingTrainedWarning,
    ResumeWarning,
    TrainingInterrupted,
)

FAILED, INTERRUPTED = 1, 130
_REMEDY = "Remedy: check the path, its permissions and the space on the disk, or name another one."


def size_of(nbytes: int) -> str:
    """A number of bytes for people."""
    return f"{nbytes / 2**20:.1f} MiB" if nbytes >= 2**20 else f"{nbytes / 1024:.1f} KiB" if nbytes >= 1024 else f"{nbytes} B"


def reported(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a sub-command's function: warnings become one line, known errors a message and exit code 1."""

    @click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
    @wraps(command)
    def wrapped(*args: Any, debug: bool, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            for kind in (
                DamagedCheckpointWarning,
                FrozenTrainingWarning,
                EagerTrainingWarning,
                FallbackWarning,
                NothingTrainedWarning,
                RecompileWarning,
                ResumeWarning,
                SharedRowsWarning,
                UncheckedCursorWarning,
            ):
                warnings.simplefilter("always", kind)
            warnings.showwarning = say_warning
            try:
                return command(*args, **kwargs)
            except BrokenPipeError:
                raise  # nobody reads the output any more: click ends the command without a word
            except (FirebrickError, DataError, OSError, MemoryError) as e:
                if debug:
                    traceback.print_exc()
                say_error(_message(e))
                sys.exit(FAILED)
            except TrainingInterrupted as e:
                click.echo(str(e), err=True)
                sys.exit(INTERRUPTED)
            except KeyboardInterrupt:
                click.echo("stopped", err=True)
                sys.exit(INTERRUPTED)

    return wrapped


def _message(e: BaseException) -> str:
    if isinstance(e, OSError) and not isinstance(e, FirebrickError) and e.strerror:
        if not e.filename:
            return e.strerror
        return f"{e.filename}: {e.strerror}\n{_REMEDY}"
    return str(e) or type(e).__name__
