"""Storage: an engine's buffer, who owns it, and the one check that decides whether memory may be written.

Promise: nothing is reused, donated or written in place unless ``Storage.unique()`` says that exactly one handle can
see it. A result that an engine made as a view keeps its parent's storage as ``base``, so a parent with a living
view is never unique, whatever the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from firebrick.core.device import Memory, PersistentMemory

OWNED, BORROWED, EXPORTED = "owned", "borrowed", "exported"


class Absent:
    """Replaces a buffer where there is none: a value of a trace, or memory that a failed program left half written.

    A plain class: asking for an instance of an abstract one takes four times as long, and each read of a tensor asks.
    """

    __slots__ = ()

    def why(self, tensor: Any = None) -> Exception | None:
        """The error for reading ``tensor``, whose storage holds this; None if the value has arrived while this waited."""
        raise NotImplementedError(f"{type(self).__name__} has no why: return the error for reading a tensor that has no values")

    def detached(self, storage: Storage) -> Storage:
        """The storage with this data, but of values that no tape tracks."""
        return storage

    def shown(self) -> str:
        """The text printed for the values."""
        return "<no values>"

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("there is no buffer here")  # raised to an engine's library; the general path reports the reason

    __array_ufunc__ = __array_function__ = __array__ = __torch_function__ = _refuse


class Storage:
    """A buffer of one device.

    Attributes:
        data: The engine's own array object.
        kind: ``owned`` (ours alone), ``borrowed`` (another library's, never written) or ``exported`` (handed out).
        base: The storage whose memory this one views, or None.
        nbytes: Bytes owned (0 for views and borrowed memory).
    """

    __slots__ = ("__weakref__", "base", "data", "kind", "memory", "nbytes")

    def __init__(
        self, data: Any, memory: Memory | PersistentMemory, nbytes: int, kind: str = OWNED, base: Storage | None = None
    ) -> None:  # fmt: skip
        self.data = data
        self.kind = kind
        self.base = base
        self.memory = memory
        self.nbytes = nbytes
        memory.live = live = memory.live + nbytes
        if live > memory.peak:
            memory.peak = live

    def __del__(self) -> None:
        if hasattr(self, "nbytes"):  # else Ctrl-C came before it was counted
            self.memory.live -= self.nbytes

    def uncount(self) -> None:
        """Take its bytes out of the device's account: Firebrick keeps this memory, no program holds it."""
        self.memory.live -= self.nbytes
        self.nbytes = 0

    @property
    def root(self) -> Storage:
        """The storage that owns the memory this one shows."""
        return self if self.base is None else self.base.root

    def export(self) -> None:
        """Mark this memory as one that another library may hold, so that it is never written again."""
        root = self
        while root.base is not None:
            root = root.base
        root.kind = EXPORTED

    def unique(self) -> bool:
        """Whether exactly one reference to this storage exists and its memory is ours alone.

        Call it as ``handle.storage.unique()``: the handle's own reference is the one allowed.
        """
        return self.base is None and self.kind == OWNED and getrefcount(self) <= _ALONE


_new = object.__new__
_count = Storage.__dict__["nbytes"].__set__


def owned(natives: Sequence[Any], memory: Memory | PersistentMemory) -> list[Storage]:
    """A storage for each of these new buffers, counted together."""
    made, sizes = list[Storage](), list[int]()
    for native in natives:
        s = _new(Storage)
        s.data, s.kind, s.base, s.memory = native, OWNED, None, memory
        made.append(s)
        sizes.append(native.nbytes)
    memory.live = live = memory.live + sum(sizes)
    if live > memory.peak:
        memory.peak = live
    deque(map(_count, made, sizes), 0)
    return made


class _Handle:
    __slots__ = ("storage",)

    def __init__(self) -> None:
        self.storage = _Probe(None, Memory(), 0)


class _Probe(Storage):
    __slots__ = ()

    def unique(self) -> bool:
        global _ALONE
        _ALONE = getrefcount(self)
        return True


_ALONE = 0
_handle = _Handle()  # must live during the call below, as a tensor does
_handle.storage.unique()  # calibrates: how many references this interpreter counts when one handle holds a storage
