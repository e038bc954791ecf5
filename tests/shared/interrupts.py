"""Interrupts at every place of a call: a trace function raises where Python is about to execute the k-th line, or bytecode, of
some source files.

CPython delivers signals between bytecodes, at fewer places than these. It delivers none between the end of a ``with`` block
and the call of a lock's ``__exit__``, where a trace function would be called: lines with ``with`` are no places. Nor does it
before the first bytecode of a ``try`` block, which is not in the block for CPython.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import firebrick

PACKAGE = Path(firebrick.__file__).parent


class Interrupted(BaseException):
    """In place of KeyboardInterrupt, which the test runner would take for its own."""


class _Places:
    def __init__(self, at: int | None, files: tuple[str, ...], opcodes: bool) -> None:
        self.count, self.at, self.opcodes = 0, at, opcodes
        self._known: dict[tuple[str, int], bool] = {}
        self.files = tuple(str(PACKAGE / f) for f in files)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.files):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = self.opcodes, not self.opcodes
        self._reached()
        return self._within

    def _within(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event in ("line", "opcode") and not self._at_block(frame):
            self._reached()
        return self._within

    def _at_block(self, frame: FrameType) -> bool:
        key = frame.f_code.co_filename, frame.f_lineno
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = getline(*key).lstrip().startswith(("with ", "try:"))
        return found

    def _reached(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Interrupted


def interrupted(call: Callable[[], Any], at: int | None, *files: str, opcodes: bool = False) -> int:
    """Run a call and interrupt it at its place of this number, from 1; return how many places were reached.

    Args:
        call: What is run.
        at: Number of the place; None only counts.
        files: Where places are: folders or files of the package.
        opcodes: Whether each bytecode is a place, or each line.
    """
    found = _Places(at, files, opcodes)
    trace, unraisable, handler = sys.gettrace(), sys.unraisablehook, signal.getsignal(signal.SIGINT)
    sys.unraisablehook = lambda given: None if given.exc_type is Interrupted else unraisable(given)  # in a finalizer
    sys.settrace(found)
    try:
        call()
    except Interrupted:
        pass
    finally:
        sys.settrace(trace)
        sys.unraisablehook = unraisable
        if signal.getsignal(signal.SIGINT) is not handler:  # a place where SIGINT itself is deferred, so no signal raises there
            signal.signal(signal.SIGINT, handler)
    return found.count
