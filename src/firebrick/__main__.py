"""The command ``firebrick``, also as ``python -m firebrick``: it ends quietly when it is stopped, from its first import on."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

FAILED = 1
"""Exit code after an error that its message explains."""
STOPPED = 130
"""Exit code after Ctrl-C."""


def _stop(*_: Any) -> None:
    """End at once: a library that is being imported may take KeyboardInterrupt for its own failure."""
    os.write(2, b"stopped\n")
    os._exit(STOPPED)


def main() -> None:
    """Import the sub-commands, which takes most of a second, and run one."""
    _fill_streams()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as of a program that a shell script started in the background
        signal.signal(signal.SIGINT, _stop)
    command = _command()
    signal.signal(signal.SIGINT, before)
    try:
        command(prog_name="firebrick")
    except KeyboardInterrupt:
        _stop()
    finally:
        _close_quietly()


def _fill_streams() -> None:
    """Let closed standard streams (``firebrick … >&-``) lead nowhere. Python has None in their place, and the next files that
    are opened would get their numbers, and with them what libraries print."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends


def _command() -> Callable[..., None]:
    """The command; what is wrong with the environment, which the import reads, is one message, as mistakes in options are."""
    from firebrick.cli.messages import say_error, say_warning

    show, warnings.showwarning = warnings.showwarning, say_warning
    try:
        from firebrick.cli.main import main as command
        from firebrick.core.config import config  # noqa: F401 - whatever the command, wrong variables are reported
    except Exception as e:
        errors = sys.modules.get("firebrick.core.errors")
        if errors is None or not isinstance(e, errors.FirebrickError) or "--debug" in sys.argv:
            raise
        say_error(str(e))
        sys.exit(FAILED)
    finally:
        warnings.showwarning = show
    return command


def _close_quietly() -> None:
    """Write what is left of the output, unless nobody reads it any more, as after ``firebrick … | head``."""
    if sys.stdout is None:  # a program without a console
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
