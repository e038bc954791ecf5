"""Ctrl-C that is deferred where work must not be left in the middle.

Only the main thread gets ``KeyboardInterrupt``, from the handler of SIGINT, between any two steps of Python. A handler that
notes the signal takes its place for a while.
"""

from __future__ import annotations

import os
import signal
from importlib import import_module
from threading import get_ident, main_thread
from types import TracebackType
from typing import Any

SIGINT = int(signal.SIGINT)
_plain = import_module("_signal")  # what ``signal`` wraps: it makes no enum members, which takes ten times as long
set_handler, _handler = _plain.signal, _plain.getsignal
_main: int | None = None


def _find_main() -> None:
    global _main
    _main = main_thread().ident


_find_main()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_find_main)  # the thread that forked is the child's main one


def handler_of_interrupts() -> Any:
    """The handler of SIGINT that can be replaced here; None in other threads, and where no function of Python is called."""
    return handler if get_ident() == _main and callable(handler := _handler(SIGINT)) else None


class deferred:
    """A ``with`` block at the end of which a Ctrl-C that came in it is raised."""

    __slots__ = ("_before", "_pending")

    def __init__(self) -> None:
        self._before: Any = None
        self._pending = False

    def __enter__(self) -> None:
        handler = handler_of_interrupts()
        if handler is not None:
            self._before = handler
            set_handler(SIGINT, self._note)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            set_handler(SIGINT, self._before)
            if self._pending:
                signal.raise_signal(signal.SIGINT)

    def _note(self, number: int, frame: Any) -> None:
        self._pending = True
