"""The sign of life of a rank, over a store in memory: it ends with the rank, which says that it leaves."""

from __future__ import annotations

import threading

from firebrick.distributed.heartbeat import Heartbeat


class InMemory(dict[str, bytes]):
    """What is used of a store, in this process."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(k in self for k in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self[k] for k in keys]

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return self.setdefault(key, desired.encode())


def beating() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "firebrick-heartbeat-1"}


def test_a_closed_heartbeat_has_said_that_its_rank_left_and_beats_no_more() -> None:
    store, before = InMemory(), beating()
    heartbeat = Heartbeat(lambda: store, rank=1, size=2, keeper=0, interval=0.01)
    assert beating() > before
    assert "left/1" not in store
    heartbeat.close()
    assert beating() == before
    assert store.pop("left/1") == b""
    heartbeat.close()
    assert "left/1" not in store  # it is said once
