"""Levels: calls of ``fb.vmap`` and ``fb.jvp`` that run, and the data of the tensors that belong to them.

A function inside such a call sees ordinary tensors. The storage of such a tensor holds an ``Inner``: tensors of what is
beneath (the values of all examples; a value and its tangent), and the ``Level``. An operation on it is executed by the rules
of the level's ``Kind`` on the tensors beneath, which may belong to another level, a trace or an engine.

The tape of a level is that of the outer tensors, and what is outside of the call tracks the inner ones. So that the two stay
apart, a leaf that is made inside a level is ``boxed``: it belongs to the level even if it is the same for all examples, or
has no tangent, and has a place of its own on the tape.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from firebrick.core.aval import Aval
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.core.storage import Absent, Storage
from firebrick.core.tensor import Tensor


class Kind(NamedTuple):
    """What a level does.

    Attributes:
        execute: ``(level, op, inputs, params, avals) -> tuple of Tensor`` runs an operation of which an operand belongs to it.
        box: ``(level, tensor) -> Tensor`` gives a tensor of the level with the values of another.
    """

    execute: Callable[..., tuple[Tensor, ...]]
    box: Callable[..., Tensor]


class Level:
    """One running call.

    Attributes:
        name: The function, for messages.
        kind: What it does.
        size: How many examples there are; -1 where it has none.
        parent: The level around it, or None.
        began: Position on the tape where it began: leaves behind it were made inside.
        depth: How many levels are around it.
        trace: The trace that it began in, or None. Inside a later trace its tensors are inputs of that trace.
        outside: Identities of handles that a computation of all examples, outside of it, has rebound while it runs.
        tracked: Whether a value beneath it is tracked from outside, so that gradients taken inside it are recorded beneath.
    """

    __slots__ = ("__weakref__", "began", "depth", "kind", "name", "outside", "parent", "running", "size", "trace", "tracked")

    def __init__(self, name: str, kind: Kind, size: int = -1) -> None:
        self.name, self.kind, self.size = name, kind, size
        self.parent = _current.get()
        self.depth: int = 0 if self.parent is None else self.parent.depth + 1
        self.trace = hooks.trace()
        self.began = 0
        self.outside: set[int] = set()
        self.tracked = False
        self.running = True
        hooks.levels[id(self)] = None

    @property
    def maps(self) -> bool:
        """Whether it has examples."""
        return self.size >= 0

    def __del__(self) -> None:
        hooks.levels.pop(id(self), None)


_current: ContextVar[Level | None] = ContextVar("firebrick_level", default=None)
innermost, enter, leave = _current.get, _current.set, _current.reset


class Inner(Absent):
    """The data of a tensor that belongs to a level: ``value`` beneath it has its values, or those of all examples."""

    __slots__ = ("level", "value")

    def __init__(self, level: Level, value: Tensor, *others: Tensor | None) -> None:
        self.level, self.value = level, value
        if any(v is not None and v.node is not None for v in (value, *others)):
            level.tracked = True

    @abstractmethod
    def readable(self) -> Tensor | None:
        """A tensor beneath that has the very values; None if there are several."""


def level_of(t: Tensor) -> Level | None:
    """The level that a tensor belongs to."""
    data = t.storage.data
    return data.level if isinstance(data, Inner) else None


def boxed(t: Tensor) -> Tensor:
    """``t`` as a tensor of the innermost level that runs here: itself if it is one, or if there is no level.

    A leaf of the result is not one of ``t``, so that values beneath the level are tracked from outside of it only.
    """
    level = running()
    return t if level is None or level_of(t) is level else level.kind.box(level, t)


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


def readable(t: Tensor) -> Tensor:
    """The tensor beneath levels that has the values of ``t``, as far as there is one."""
    data = t.storage.data
    while isinstance(data, Inner) and (value := data.readable()) is not None:
        t = value
        data = t.storage.data
    return t


def storage_of(data: Inner, like: Tensor) -> Storage:
    """A storage for the data of a tensor on the device of another."""
    return Storage(data, like.device._memory, 0)


def innermost_of(operands: Sequence[Tensor]) -> Level | None:
    """The innermost level among operands that runs here."""
    trace = hooks.trace()
    found: Level | None = None
    for t in operands:
        data = t.storage.data
        if isinstance(data, Inner) and data.level.trace is trace and (found is None or data.level.depth > found.depth):
            found = data.level
    return found


def execute(op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...]) -> tuple[Tensor, ...] | None:
    """The results of an operation by the innermost level among its operands; None if none belongs to a level that runs
    here."""
    level = innermost_of(inputs)
    return None if level is None else level.kind.execute(level, op, inputs, params, avals)


hooks.in_level = execute
