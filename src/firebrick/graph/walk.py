"""What a function's result depends on: a walk through its arguments and all that it captures.

The walk looks through closures, globals that the code names, attributes, containers and functions that are called, and finds
*leaves* (tensors and generators, which a graph reads anew at each call) and everything else (*statics*, which a graph has
built in). Statics and the kinds of leaves make the walk's ``key``: equal keys, equal graphs. ``fresh`` reports cheaply
whether nothing that a walk saw has been replaced; if something has, one walks again, which finds an old key or a new one.
``TABLE`` is how each type is walked through.

Objects of classes with ``versioned = True`` (modules, optimizers) promise that every attribute that is set raises
``hooks.settings``, so they need not be looked at again while it is unchanged. A class may name attributes that no result
depends on (``unwatched``), and weak references to other objects (``ties``): a key has the paths of these objects, so that two
that look alike cannot be exchanged, and a traced function may set them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

import numpy as np

from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph import visit_code as code
from firebrick.graph import visit_values as values
from firebrick.graph.plain import PLAIN
from firebrick.graph.record import Record
from firebrick.graph.spaces import ABSENT, reader, weakly

TABLE: tuple[tuple[tuple[type, ...], Callable[[Record, str, Any], None]], ...] = (
    ((Tensor,), values.tensor),
    ((Weak,), values.number),  # before the numbers, whose class it claims to have
    (PLAIN, values.plain),
    ((np.ndarray,), values.array),
    ((np.void,), values.recognised),  # a record, which may hold objects
    ((np.generic,), values.scalar),
    ((list, tuple, deque), values.sequence),
    ((dict, MappingProxyType), values.mapping),
    ((type({}.keys()), type({}.values()), type({}.items())), values.dict_view),
    ((set, frozenset), values.unordered),
    ((FunctionType,), code.function),
    ((MethodType,), code.method),
    ((partial,), code.partial_call),
    ((CellType,), code.cell),
    ((type,), code.class_of),
    ((ModuleType,), code.module),
    ((BuiltinFunctionType, MethodWrapperType), code.builtin),
    ((ref,), values.weak_reference),
    ((ContextVar,), values.context_variable),
    ((MemberDescriptorType,), code.slot_descriptor),
    ((property,), code.property_of),
    ((WeakValueDictionary, WeakKeyDictionary, WeakSet), values.weak_collection),
    ((type(os.environ),), values.environment),
    ((object,), values.recognised),
)
"""Types and how their values are walked through: the first row that a value is an instance of."""

# of the kinds of a user, the walks through these do not look at members and attributes themselves
_HELD_BY_CODE: frozenset[tuple[type, ...]] = frozenset({(partial,), (ModuleType,), (ref,), (property,)})
# most values are of a type of the table itself, and need no search
_EXACT = {kind: walked for kinds, walked in reversed(TABLE) for kind in kinds if kind is not object}


class Walk(Record):
    """One walk.

    Attributes:
        roots: Where it began: the function and its arguments; the function alone after ``let_go``.
        shown: Containers of the arguments as the function sees them, whose objects are among ``roots``.
        key: What a graph depends on.
        number: The key's, among those of one function.
        tensors: The leaves, without their paths.
        streams: The generators, without their paths.
        ids: Identities of the tensors.
    """

    exact = _EXACT

    def __init__(self, roots: list[tuple[str, Any]], shown: Sequence[tuple[str, Any]] = ()) -> None:
        super().__init__()
        self.roots, self.shown = roots, shown
        self._visit_all()
        self._finish()

    @classmethod
    def with_and_without(cls, roots: list[tuple[str, Any]], shown: Sequence[tuple[str, Any]]) -> tuple[Walk, Walk]:
        """``Walk(roots)`` and ``Walk(roots, shown)``: what they have in common is walked through once."""
        without = cls.__new__(cls)
        Record.__init__(without)
        without.roots, without.shown = roots, ()
        without._visit_all()
        both = cls.__new__(cls)
        for name, held in vars(without).items():
            setattr(both, name, held.copy() if isinstance(held, (list, dict, set)) else held)
        both.shown = shown
        if both._visit_shown():
            both._finish()
        else:
            both = cls(roots, shown)
        without._finish()
        return without, both

    def _visit_all(self) -> None:
        owned = code.arguments_for_attributes(self.roots[0][1])
        # which attributes are read is known only after all code was seen, so a walk that learns of more begins again
        while True:
            self.begin()
            for i, (path, root) in enumerate(self.roots):
                if path in owned if i else code.is_called(self, root):
                    self.spared = root
                self.visit(path, root)
                self.ends.append(len(self.found))
            if self._visit_shown():
                return

    def _visit_shown(self) -> bool:
        """Go on through ``shown``; returns whether attributes were chosen by all names that are known now."""
        whole, late = set(self.whole), self.late
        for path, root in self.shown:
            self.visit(path, root)
        self.whole, self.late, self.spared = whole, late, ABSENT
        self.every_name = self.every_name or self.formats_attributes()
        return self.by_name is None or self.by_name == self.known()

    def _finish(self) -> None:
        """Make the key, when all has been visited."""
        for path, belongs in self.ties.items():
            self.add(path, "belongs to", None if belongs is None else self.seen.get(id(belongs())))
        if "label" in self.names:
            for path, t in self.leaves:
                self.value(f"{path}.label", reader(t, "label"))
        self.key = tuple(self.entries)
        self.tensors = [t for _, t in self.leaves]
        self.streams = [g for _, g in self.generators]
        self.ids = {id(t) for t in self.tensors}
        self.number = -1
        self._arguments: list[Callable[[], Any]] = []
        self._remembered: dict[int, Callable[[], Any]] = {}

    def visit(self, path: str, v: Any) -> None:
        walked: Callable[[Record, str, Any], None] | None = _EXACT.get(type(v))
        if walked is not None:
            walked(self, path, v)
            return
        for kinds, walked in TABLE:
            if isinstance(v, kinds):
                walked(self, path, v)
                if kinds in _HELD_BY_CODE:
                    values.attributes(self, path, v)
                return

    def let_go(self, gone: Callable[[Any], None]) -> None:
        """Keep nothing alive that an argument holds: ``gone`` is called when one of the arguments is."""
        self.seen.clear()
        for held in (self.found, self.fields, self.objects, self.classes, self.whole, self.invoked, self.by_names):
            held.clear()
        self.group()
        self._arguments = [weakly(v, gone) for _, v in self.roots[1:]]
        del self.roots[1:]

    def of(self, objects: list[tuple[str, Any]]) -> bool:
        """Whether these are the arguments that it began from."""
        for known, (_, v) in zip(self._arguments, objects, strict=True):  # noqa: SIM110 - a loop is quicker
            if known() is not v:
                return False
        return True

    def remembered(self, positions: Collection[int], again: Callable[[], Walk]) -> dict[int, Any]:
        """The objects found at these indices, which hold as long as it is fresh: looked up once, by a walk of the same way."""
        found = {p: known() for p in positions if (known := self._remembered.get(p)) is not None}
        if len(found) < len(positions) or any(v is None for v in found.values()):
            anew = again().found
            found = {p: anew[p] for p in positions}
            with suppress(TypeError):  # what cannot be referred to weakly is looked up each time
                self._remembered = {p: ref(v) for p, v in found.items()}
        return found

    def moved(self, after: Walk) -> list[str]:
        """Objects that a later walk finds at another path, by both paths: two that look alike may have been exchanged."""
        return [f"{before} → {now}" for i, now in after.seen.items() if (before := self.seen.get(i, now)) != now]
