"""Requests to a running fit: Ctrl-C and SIGTERM, which clusters send, let the running step finish, save and stop; so does
``stop()`` from any thread. The second signal stops at once.
"""

from __future__ import annotations

import signal
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While it is entered in the main thread, a signal sets ``pending`` instead of ending the process.

    In another thread, where Python gives no signals, only ``stop`` and ``save`` are heard.

    Attributes:
        pending: Whether to stop after the running step, with a checkpoint.
    """

    def __init__(self) -> None:
        self.pending = False
        self._last: int | None = None
        self._save = False
        self._before: dict[signal.Signals, Any] = {}

    def stop(self, *, after: int | None = None) -> None:
        """Ask to finish the running step, save and stop; from any thread.

        Args:
            after: Number of a step of the run, from 1, after which to stop instead; asked before ``fit``, which forgets it at
                its end.
        """
        if after is None:
            self.pending = True
        else:
            self._last = after

    def due(self, step: int) -> bool:
        """Whether to stop once so many steps of the run are done."""
        return self.pending or (self._last is not None and step >= self._last)

    def save(self) -> None:
        """Ask for a checkpoint after the running step; from any thread."""
        self._save = True

    def take_save(self) -> bool:
        """Whether a checkpoint was asked for since the last time."""
        asked, self._save = self._save, False
        return asked

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            self._before = {s: signal.signal(s, self._received) for s in SIGNALS}
        return self

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.stop()
        self._restore()

    def _restore(self) -> None:
        while self._before and current_thread() is main_thread():
            signal.signal(*self._before.popitem())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()
        self.pending = self._save = False
        self._last = None
