"""``Batched``: the data of a storage inside ``fb.vmap``, where a tensor has a value for each example.

A function under ``vmap`` sees tensors of the shape of one example. The storage of such a tensor holds a ``Batched``: a tensor
with the values of all examples along a new first axis, and the ``Level`` (the running call of ``vmap``) that the axis belongs
to. An operation on it is executed by the ``batch`` rule of its entry on these inner tensors (``autodiff.batching``), so an
engine, a trace or another level below sees ordinary operations.

The tape of a level is that of the outer tensors, and what is outside of the call tracks the inner ones. So that the two stay
apart, a leaf that is made inside a level is ``boxed``: the values of a tensor that is the same for all examples, with a
place of its own on the tape.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from firebrick.core.errors import DataDependentError, LeakedTracerError
from firebrick.core.hooks import hooks
from firebrick.core.lines import VALUE_ASKED, method_called, user_line
from firebrick.core.storage import Absent, Storage
from firebrick.core.tensor import Tensor


class Level:
    """One running call of ``vmap``.

    Attributes:
        name: The function, for messages.
        size: How many examples there are.
        parent: The level around it, or None.
        depth: How many levels are around it.
        trace: The trace that it began in, or None. Inside a later trace its tensors are inputs of that trace.
        tracked: Whether a value beneath it is tracked from outside, so that gradients taken inside it are recorded beneath.
    """

    __slots__ = ("__weakref__", "depth", "name", "parent", "running", "size", "trace", "tracked")

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.parent = _current.get()
        self.depth: int = 0 if self.parent is None else self.parent.depth + 1
        self.trace = hooks.trace()
        self.tracked = False
        self.running = True
        hooks.levels[id(self)] = None

    def __del__(self) -> None:
        hooks.levels.pop(id(self), None)


_current: ContextVar[Level | None] = ContextVar("firebrick_vmap", default=None)
innermost, enter, leave = _current.get, _current.set, _current.reset


class Batched(Absent):
    """The data of a tensor of one example: ``value`` has those of all (or, without ``mapped``, is the same for all)."""

    __slots__ = ("level", "mapped", "value")

    def __init__(self, level: Level, value: Tensor, mapped: bool) -> None:
        self.level, self.value, self.mapped = level, value, mapped
        if value.node is not None:
            level.tracked = True

    def detached(self, storage: Storage) -> Storage:
        return _storage(Batched(self.level, self.value.detach(), self.mapped), self.value)

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


def _storage(data: Batched, like: Tensor) -> Storage:
    return Storage(data, like.device._memory, 0)


def batched(level: Level, value: Tensor, label: str | None = None) -> Tensor:
    """The tensor of one example; ``value`` has those of all, along its first axis."""
    return Tensor(_storage(Batched(level, value, True), value), value.dtype, value.shape[1:], value.device, label)


def boxed(t: Tensor) -> Tensor:
    """``t`` as a tensor of the innermost level that runs here: itself if it is one, or if there is no level.

    A leaf of the result is not one of ``t``, so that values beneath the level are tracked from outside of it only.
    """
    level = running()
    return t if level is None or level_of(t) is level else box(level, t)


def box(level: Level, t: Tensor) -> Tensor:
    """The tensor of one example; ``t`` is the same for all."""
    inner = t._another()
    inner.node, inner.slot = t.node, t.slot
    return Tensor(_storage(Batched(level, inner, False), t), t.dtype, t.shape, t.device, t.label)


def level_of(t: Tensor) -> Level | None:
    """The level that a tensor belongs to."""
    data = t.storage.data
    return data.level if type(data) is Batched else None


def values_of_all(t: Tensor) -> Tensor:
    """The tensor beneath all levels, with the values of all examples."""
    data = t.storage.data
    while type(data) is Batched:
        t = data.value
        data = t.storage.data
    return t


def running() -> Level | None:
    """The innermost level of this context, unless a trace began inside it."""
    level = _current.get()
    return level if level is not None and level.trace is hooks.trace() else None


def here() -> Iterator[Level]:
    """The levels of this context, the innermost first."""
    level = _current.get()
    while level is not None:
        yield level
        level = level.parent


def tracked_beneath() -> bool:
    """Whether something outside of a level of this context tracks values beneath it."""
    return any(level.tracked for level in here())
