"""``Dual``: the data of a tensor inside ``fb.jvp`` (see ``core.levels``): its value, and its derivative in a direction."""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import LeakedTracerError
from firebrick.core.levels import Inner, Level, storage_of
from firebrick.core.lines import user_line
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor


class Dual(Inner):
    """The data of a tensor with a ``tangent``; None for zero."""

    __slots__ = ("tangent",)

    def __init__(self, level: Level, value: Tensor, tangent: Tensor | None) -> None:
        super().__init__(level, value, tangent)
        self.tangent = tangent

    def readable(self) -> Tensor | None:
        return self.value

    def detached(self, storage: Storage) -> Storage:
        return storage_of(Dual(self.level, self.value.detach(), None), self.value)

    def shown(self) -> str:
        return f"<{self.value!r} inside fb.jvp>"

    def why(self, tensor: Any = None) -> Exception | None:
        if self.level.running:
            return None  # its value is that of ``value``, which those read who ask for one
        name = self.level.name
        return LeakedTracerError(
            f"a tensor inside fb.jvp({name}) is used in a compiled function outside of it",
            f"used at {user_line()}",
            f"return it from {name}, instead of keeping it in a list, an attribute or a global",
        )


def dual(level: Level, value: Tensor, tangent: Tensor | None, label: str | None = None) -> Tensor:
    """The tensor with a value and a tangent of its shape and dtype."""
    return Tensor(storage_of(Dual(level, value, tangent), value), value.dtype, value.shape, value.device, label)


def box(level: Level, t: Tensor) -> Tensor:
    """The tensor with the values of ``t`` and no tangent."""
    inner = t._another()
    inner.node, inner.slot = t.node, t.slot
    return dual(level, inner, None, t.label)
