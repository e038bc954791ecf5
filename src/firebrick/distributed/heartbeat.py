"""``Heartbeat``: which ranks live and where they are, through a store that all reach, so that an error names the right rank.

A connection that closes tells little: the peer may have died, or it ended because another one did. So each rank writes a
counter and the number of its current call every ``interval`` seconds. When an exchange fails, a rank looks who left or
stopped counting, then who is behind; the first one to find out writes the verdict, which all others take over. A verdict
also reaches ranks that are computing, at their next beat, before the store's host may be gone.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from firebrick.core.errors import CollectiveTimeoutError
from firebrick.distributed.group import missing
from firebrick.distributed.wire import WireError

BEATS, SECONDS = 4, 2.0
"""A rank counts as dead after so many beats without a change, but not before so many seconds: a busy machine may be late."""


class Store(Protocol):
    """What is used of ``torch.distributed.TCPStore``."""

    def set(self, key: str, value: str) -> None: ...
    def check(self, keys: list[str]) -> bool: ...
    def multi_get(self, keys: list[str]) -> list[bytes]: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


class Heartbeat:
    """Writes this rank's beats, and finds out about the others.

    Args:
        connect: Opens a connection to the store; one is for the beats, one for looking, since each serves one call at a time.
        rank: This rank.
        size: Number of ranks.
        keeper: The rank whose process is the store, or None if another process is.
        interval: Seconds between beats.
    """

    def __init__(
        self, connect: Callable[[], Store], rank: int, size: int, *, keeper: int | None, interval: float = 1.0
    ) -> None:
        self.rank, self.size, self.keeper, self.interval = rank, size, keeper, interval
        self.patience = max(SECONDS, BEATS * interval)
        self._beats, self._look = connect(), connect()
        self._place = (-1, "before its first operation")
        self._verdict: dict[str, Any] | None = None
        self._stop = threading.Event()
        self._looking = threading.Lock()
        self._beat(0)
        self._thread = threading.Thread(target=self._run, name=f"firebrick-heartbeat-{rank}", daemon=True)
        self._thread.start()

    def at(self, number: int, op: str) -> None:
        """Say that this rank is in its call ``number``, of the operation ``op``."""
        self._place = (number, op)

    def verdict(self) -> CollectiveTimeoutError | None:
        """The error that the group ended with, if it did."""
        return None if self._verdict is None else self._error(self._verdict)

    def _beat(self, count: int) -> None:
        number, op = self._place
        self._beats.set(f"beat/{self.rank}", json.dumps([count, number, op]))

    def _run(self) -> None:
        count = 0
        try:
            while not self._stop.wait(self.interval):
                count += 1
                self._beat(count)
                if self._verdict is None and self._beats.check(["verdict"]):
                    self._take(self._beats.multi_get(["verdict"])[0], self._beats)
        except RuntimeError:  # the store is gone; whoever needs a rank will find out which
            return

    def _take(self, text: bytes, store: Store) -> dict[str, Any]:
        """Make a verdict this rank's own, and say so."""
        found: dict[str, Any] = json.loads(text)
        self._verdict = found
        store.set(f"heard/{self.rank}", "")
        return found

    def explain(self, op: str, number: int, error: WireError) -> CollectiveTimeoutError:
        """Find out who is missing after an exchange failed; all ranks come to one verdict."""
        with self._looking:
            if self._verdict is None:
                try:
                    ranks = self._missing(number, error)
                    text = json.dumps({"op": op, "rank": self.rank, "ranks": ranks, "reason": error.reason})
                    found = self._take(self._look.compare_set("verdict", "", text), self._look)
                    self._tell(set(found["ranks"]))
                except RuntimeError as e:
                    if self._verdict is None:
                        gone = (
                            {}
                            if self.keeper is None
                            else {str(self.keeper): "its process is gone, and with it the group's store"}
                        )
                        reason = f"{error.reason}; the store does not answer: {_first_line(e)}"
                        self._verdict = {"op": op, "rank": self.rank, "ranks": gone, "reason": reason}
            assert self._verdict is not None
            return self._error(self._verdict)

    def _missing(self, number: int, error: WireError) -> dict[str, str]:
        """Who is missing, and what is known of each."""
        others = [r for r in range(self.size) if r != self.rank]
        first, began = self._seen(others), time.monotonic()
        while True:
            if self._look.check(["verdict"]):
                return {}  # another rank was quicker
            left = {r for r in others if self._look.check([f"left/{r}"])}
            if left:
                return {str(r): "its program ended" for r in left}
            over = time.monotonic() - began >= self.patience
            last = self._seen(others)  # also where this rank itself was held up for so long
            if over:
                break
            self._stop.wait(self.interval / 2)
        silent = [r for r in others if last[r] == first[r]]
        if silent:
            return {str(r): f"no sign of life for {self.patience:g} s" for r in silent}
        behind = [r for r in others if last[r][1] < number]
        return {str(r): f"it lives, and is {_place(last[r])}" for r in behind or error.peers}

    def _seen(self, ranks: list[int]) -> dict[int, list[Any]]:
        """The last beat of each rank."""
        texts = self._look.multi_get([f"beat/{r}" for r in ranks])
        return {r: json.loads(text) for r, text in zip(ranks, texts, strict=True)}

    def _tell(self, gone: set[str]) -> None:
        """If the store is in this process, stay until the others that live have heard the verdict."""
        if self.keeper != self.rank:
            return
        waiting = [f"heard/{r}" for r in range(self.size) if str(r) not in gone]
        ends = time.monotonic() + self.patience
        while not self._look.check(waiting) and time.monotonic() < ends:
            self._stop.wait(self.interval / 4)

    def _error(self, verdict: dict[str, Any]) -> CollectiveTimeoutError:
        ranks = {int(r): what for r, what in verdict["ranks"].items()}
        return missing(verdict["op"], verdict["rank"], ranks, verdict["reason"])

    def close(self) -> None:
        """Say that this rank leaves."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(self.patience)
        try:
            self._beats.set(f"left/{self.rank}", "")
        except RuntimeError:  # the store left first
            return


def _place(beat: list[Any]) -> str:
    """Where a beat says its rank is."""
    return beat[2] if beat[1] < 0 else f"at {beat[2]}, call {beat[1]}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
