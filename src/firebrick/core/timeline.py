"""What ran when: the events of a profile, by device and thread, in the trace event format of Chrome's and Perfetto's viewers.

Whoever does something of interest opens a ``span``, which costs a test of a list while nothing is recorded. ``fb.profile``
records; higher floors name their own work: operations, kernels, transfers, waits, batches, steps.

Source: Google, "Trace Event Format" (complete events "X", metadata "M").
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any

HOST = "host"
"""The name of the group of threads whose work is on no device."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that took time.

    Attributes:
        name: What.
        category: Its kind: "op", "kernel", "launch" (of a kernel, as timed by its device), "program", "compile", "transfer",
            "wait", "loader", "fallback" or "train".
        device: Name of the device that it ran on, or ``HOST``.
        thread: Name of the thread.
        start_ns: When it began, by ``time.perf_counter_ns``.
        end_ns: When it ended.
        details: Further facts, by name: plain values.
    """

    name: str
    category: str
    device: str
    thread: str
    start_ns: int
    end_ns: int
    details: dict[str, Any] = field(default_factory=dict)


class Timeline:
    """The events of a profile, in the order in which they ended.

    Attributes:
        events: All events.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._begun = perf_counter_ns()

    def add(self, event: Event) -> None:
        """Record an event; threads may do so at the same time."""
        self.events.append(event)

    def trace(self) -> dict[str, Any]:
        """The events in the trace event format: a process for each device, and in it a thread for each thread that used it."""
        events = sorted(self.events, key=lambda e: (e.start_ns, -e.end_ns))
        begun = min([self._begun, *(e.start_ns for e in events[:1])])
        devices = {name: i + 1 for i, name in enumerate(sorted({e.device for e in events}, key=lambda d: (d != HOST, d)))}
        tracks = _tracks(events)
        numbers = {track: i + 1 for i, track in enumerate(dict.fromkeys(tracks))}
        out: list[dict[str, Any]] = []
        for name, pid in devices.items():
            out.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
            out.append({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}})
        for (device, thread, _), tid in numbers.items():
            out.append({"ph": "M", "name": "thread_name", "pid": devices[device], "tid": tid, "args": {"name": thread}})
        for e, track in zip(events, tracks, strict=True):
            out.append({
                "ph": "X", "name": e.name, "cat": e.category, "pid": devices[e.device], "tid": numbers[track],
                "ts": (e.start_ns - begun) / 1000, "dur": (e.end_ns - e.start_ns) / 1000, "args": e.details,
            })  # fmt: skip
        return {"traceEvents": out, "displayTimeUnit": "ms", "otherData": {"writer": "firebrick", "process": os.getpid()}}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace as JSON, which ``chrome://tracing`` and https://ui.perfetto.dev open.

        Args:
            path: The file; it is replaced if there is one.

        Returns:
            The path.

        Raises:
            OSError: It cannot be written.
        """
        target = Path(path)
        text = json.dumps(self.trace(), default=str)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            part.write_text(text, "utf-8")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target


def _tracks(events: list[Event]) -> list[tuple[str, str, int]]:
    """Where each event is drawn: device, thread, and a number above 0 where an event overlaps with others of its thread.

    Viewers need events of one track to be nested. Those of a thread are; of two loaders with one name they may not be.
    """
    open_until: dict[tuple[str, str, int], list[int]] = {}
    found = []
    for e in events:
        lane = 0
        while True:
            ends = open_until.setdefault((e.device, e.thread, lane), [])
            while ends and ends[-1] <= e.start_ns:
                ends.pop()
            if not ends or e.end_ns <= ends[-1]:
                break
            lane += 1
        ends.append(e.end_ns)
        found.append((e.device, e.thread, lane))
    return found


active: list[Timeline] = []
"""The timelines that are being recorded in this process."""


class _Here(threading.local):
    device = HOST


here = _Here()
"""The device of the operation that this thread runs, kept while something is recorded."""


def thread_name() -> str:
    """The name of this thread, which no other has."""
    thread = threading.current_thread()
    return thread.name if thread is threading.main_thread() else f"{thread.name} ({thread.ident})"


def record(name: str, category: str, device: str, start_ns: int, *, thread: str = "", end_ns: int = 0, **details: Any) -> None:
    """Add an event, which ends now unless said, to all timelines that are being recorded."""
    end = end_ns or perf_counter_ns()
    event = Event(name, category, device, thread or thread_name(), start_ns, max(end, start_ns), details)
    for timeline in tuple(active):
        timeline.add(event)


@contextmanager
def span(name: str, category: str, device: str = HOST, **details: Any) -> Iterator[None]:
    """A ``with`` block that is an event, also where it is left by an exception."""
    if not active:
        yield
        return
    start = perf_counter_ns()
    try:
        yield
    finally:
        record(name, category, device, start, **details)
