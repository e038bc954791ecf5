"""A device: an engine, a platform of it and an index. Devices are singletons, compared and hashed by identity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from firebrick.core.hooks import hooks
from firebrick.core.locks import forkable


class Memory:
    """Bytes that live tensors of one device own: ``live`` now, ``peak`` since the start or the last reset, and how many of
    the live ones were allocated to stay (``persistent``)."""

    __slots__ = ("_blocks", "live", "peak", "persistent")

    def __init__(self) -> None:
        self.live = self.peak = self.persistent = self._blocks = 0


class PersistentMemory:
    """The same account, for allocations that stay: they count as ``persistent`` too as long as they live."""

    __slots__ = ("of",)

    def __init__(self, of: Memory) -> None:
        self.of = of

    @property
    def live(self) -> int:
        """Bytes of all live tensors of the device."""
        return self.of.live

    @live.setter
    def live(self, value: int) -> None:
        self.of.persistent += value - self.of.live
        self.of.live = value

    @property
    def peak(self) -> int:
        """The device's peak."""
        return self.of.peak

    @peak.setter
    def peak(self, value: int) -> None:
        self.of.peak = value

    @property
    def persistent(self) -> int:
        """Bytes of live tensors that were allocated to stay."""
        return self.of.persistent


class Device:
    """Where a tensor lives, as ``engine[:platform]:index``: ``cpu:0``, ``numpy:1``, ``torch:cuda:0``.

    ``fb.device("…")`` makes one and checks that the engine exists.

    Args:
        engine: Name of the engine.
        platform: Kind of hardware that the engine runs on, such as "cpu" or "cuda".
        index: Number of the device, from 0.

    Attributes:
        engine: Name of the engine.
        platform: Kind of hardware.
        index: Number of the device.
        name: The whole name, such as "cpu:0".
        backend: The engine that runs its operations.

    Example:
        >>> import firebrick as fb
        >>> device = fb.device("cpu:1")
        >>> device.engine, device.index
        ('cpu', 1)
    """

    __slots__ = ("_memory", "backend", "engine", "index", "name", "platform")
    _made: dict[tuple[str, str, int], Device] = {}  # noqa: RUF012 - the intern table
    _lock = forkable(Lock())

    engine: str
    platform: str
    index: int
    name: str
    backend: Any
    _memory: Memory | PersistentMemory

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

    @contextmanager
    def persistent_allocations(self) -> Iterator[None]:
        """Count what is allocated here in this block as persistent; blocks nest, and end by exceptions too."""
        memory = self._memory
        account = memory if isinstance(memory, Memory) else memory.of
        with Device._lock:
            account._blocks += 1
            if account._blocks == 1:
                self._memory = PersistentMemory(account)
        try:
            yield
        finally:
            with Device._lock:
                account._blocks -= 1
                if not account._blocks:
                    self._memory = account

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        # looked up when unpickled, so that the registry loads the engine there
        return hooks.find_device, (self.name,)
