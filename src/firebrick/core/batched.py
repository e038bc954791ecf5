"""``Batched``: the data of a tensor of one example inside ``fb.vmap`` (see ``core.levels``).

It holds a tensor with the values of all examples along a new first axis, or one that is the same for all.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import DataDependentError, LeakedTracerError
from firebrick.core.levels import Inner, Level, storage_of
from firebrick.core.lines import VALUE_ASKED, method_called, user_line
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor


class Batched(Inner):
    """The data of a tensor of one example: ``value`` has those of all (or, without ``mapped``, is the same for all)."""

    __slots__ = ("mapped",)

    def __init__(self, level: Level, value: Tensor, mapped: bool) -> None:
        super().__init__(level, value)
        self.mapped = mapped

    def readable(self) -> Tensor | None:
        return None if self.mapped else self.value

    def detached(self, storage: Storage) -> Storage:
        return storage_of(Batched(self.level, self.value.detach(), self.mapped), self.value)

    def shown(self) -> str:
        return f"<one of {self.level.size} examples of {self.level.name}>"

    def why(self, tensor: Any = None) -> Exception | None:
        name = self.level.name
        if not self.level.running:
            return LeakedTracerError(
                f"a tensor of one example of fb.vmap({name}) is used outside of it, where it has no value",
                f"used at {user_line()}",
                f"return it from {name}, instead of keeping it in a list, an attribute or a global",
            )
        asked = method_called(VALUE_ASKED) or "reading it"
        shown = "a tensor" if tensor is None else f"{tensor.aval}" + (f" ({tensor.label})" if tensor.label else "")
        return DataDependentError(
            f"{asked} needs one value, and under fb.vmap the tensor has one for each of {self.level.size} examples",
            f"{shown} at {user_line()}, in {name}",
            "use fb.where or fb.cond for a branch, fb.while_loop for a loop, or return the tensor and read it after the call",
        )


def batched(level: Level, value: Tensor, label: str | None = None) -> Tensor:
    """The tensor of one example; ``value`` has those of all, along its first axis."""
    return Tensor(storage_of(Batched(level, value, True), value), value.dtype, value.shape[1:], value.device, label)


def box(level: Level, t: Tensor) -> Tensor:
    """The tensor of one example; ``t`` is the same for all."""
    inner = t._another()
    inner.node, inner.slot = t.node, t.slot
    return Tensor(storage_of(Batched(level, inner, False), t), t.dtype, t.shape, t.device, t.label)


def values_of_all(t: Tensor) -> Tensor:
    """The tensor beneath all levels, with the values of all examples."""
    data = t.storage.data
    while isinstance(data, Inner):
        t = data.value
        data = t.storage.data
    return t
