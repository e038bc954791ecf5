"""A device: an engine, a platform of it and an index. Devices are singletons, compared and hashed by identity."""

from __future__ import annotations

from threading import Lock
from typing import Any


class Memory:
    """Bytes that live tensors of one device own: ``live`` now, ``peak`` since the start or the last reset."""

    __slots__ = ("live", "peak")

    def __init__(self) -> None:
        self.live = self.peak = 0


class Device:
    """Where a tensor lives, as ``engine[:platform]:index``: ``cpu:0``, ``numpy:1``, ``torch:cuda:0``.

    Made by ``fb.device("…")``, which checks that the engine exists. ``backend`` is the engine that runs its operations.
    """

    __slots__ = ("_memory", "backend", "engine", "index", "name", "platform")
    _made: dict[tuple[str, str, int], Device] = {}  # noqa: RUF012 - the intern table
    _lock = Lock()

    engine: str
    platform: str
    index: int
    name: str
    backend: Any
    _memory: Memory

    def __new__(cls, engine: str, platform: str, index: int) -> Device:
        key = (engine, platform, index)
        with cls._lock:
            made = cls._made.get(key)
            if made is None:
                made = object.__new__(cls)
                made.engine, made.platform, made.index = key
                middle = "" if engine == platform else f":{platform}"
                made.name = f"{engine}{middle}:{index}"
                made.backend, made._memory = None, Memory()
                cls._made[key] = made
            return made

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        from firebrick.core.hooks import hooks  # at unpickling time the registry must know the engine

        return hooks.find_device, (self.name,)
