"""Ctrl-C that lets the running step finish: the first one raises a flag, the second one stops at once."""

from __future__ import annotations

import signal
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """While it is entered, SIGINT sets ``pending`` instead of raising KeyboardInterrupt.

    Outside the main thread, where Python gives no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.pending = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            self._before = signal.signal(signal.SIGINT, self._received)
        return self

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.pending = True
        signal.signal(signal.SIGINT, self._before)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
