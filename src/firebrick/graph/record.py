"""What a walk has seen: the parts of its key, and every attribute, item or variable that it read, so that it can be compared
with its value now.

``Record`` does not decide how a value is walked through: the table in ``walk`` does, and its functions (``visit_code``,
``visit_values``) write here. ``fresh`` compares what was read with its value now. It runs at each call of a compiled
function, so it is one loop for each kind of variable and calls no other method of this class.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Iterable
from functools import partial
from operator import is_, itemgetter
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType
from typing import Any, ClassVar, Generic, Protocol
from weakref import ref

import numpy as np

from firebrick.core.hooks import hooks
from firebrick.core.slots import identical
from firebrick.core.tensor import Tensor
from firebrick.graph.contents import decimal_context
from firebrick.graph.plain import PLAIN, of_library
from firebrick.graph.spaces import ABSENT, bits_of

_OF_ATTRIBUTES = frozenset({"__getattr__", "__getattribute__", "__setattr__", "__delattr__"})  # called for any attribute
_INERT: tuple[Any, ...] = (object, ABC, Generic, Protocol)  # bases that call no method of their objects
_FORMATTING = frozenset({"format", "format_map", "vformat", "get_field"})
_FIELD = re.compile(r"\{[^{}:!]*\.")  # a field of a text that names an attribute
_INTERFACES = frozenset({"abc", "collections.abc", "typing"})  # libraries whose classes read no attributes of their objects


class Attributes:
    """The attributes that an object of a ``versioned`` class had. Neither it nor objects among its attributes are kept alive.

    Args:
        v: The object.
        items: Its attributes.
        unwatched: Names of attributes that may change.
    """

    __slots__ = ("_kind", "_owner", "_same", "_unwatched")

    def __init__(self, v: Any, items: Iterable[tuple[str, Any]], unwatched: Collection[str]) -> None:
        self._owner, self._kind, self._unwatched = ref(v), type(v), unwatched
        self._same = [(name, _is_still(item)) for name, item in items if name not in unwatched]

    def same(self) -> bool:
        """Whether the object has the same attributes, in the same order."""
        v = self._owner()
        if v is None or type(v) is not self._kind:
            return False
        now = [(name, item) for name, item in v.__dict__.items() if name not in self._unwatched]
        if len(now) != len(self._same):
            return False
        return all(n == name and same(item) for (n, item), (name, same) in zip(now, self._same, strict=True))


def _is_still(item: Any) -> Callable[[Any], bool]:
    """A function that tells whether a value is this one; it keeps alive what a walk keeps anyway."""
    if isinstance(item, (*PLAIN, Tensor, list, dict, set)):
        return partial(is_, item)
    if type(item) is tuple:
        parts = [_is_still(part) for part in item]
        return lambda now: (
            type(now) is tuple and len(now) == len(parts) and all(same(part) for same, part in zip(parts, now, strict=True))
        )
    if isinstance(item, MethodType):  # each look makes another one; it may hold what began the walk
        return lambda now: False
    try:
        held = ref(item)
    except TypeError:
        return partial(is_, item)
    return lambda now: held() is now


def _values(space: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(space.values())


class Record(ABC):
    """What one walk has seen.

    Attributes:
        leaves: Tensors found, each once, with their paths.
        frozen: The class of each, and whether it is frozen.
        generators: Random generators found, with their paths.
        entries: The parts of the key, each with its path.
        big: Host arrays too large to be part of a graph, with their paths.
        found: The objects visited, in an order that is the same for equal keys.
        ends: How many objects were found after each root.
        names: Attributes that the code reads by name.
        every_name: Whether the code may read attributes of any name.
        strings: Texts that may be such names.
        every_module: Whether the code may read Python modules of any name.
        outside: Whether the code may read clocks, entropy or files.
        identity: Whether the code of users may ask which of two objects is which.
        taken: Attributes that the code reads, and uses what it has read for more than attributes of it (``uses``).
        called: Attributes that the code calls at once.
        whole: Classes of users of which code may call any method: it has an object of theirs, or one itself, whole.
        invoked: Classes of which code calls an object.
        by_names: Classes whose methods were chosen by ``names``.
        late: How many classes were found ``whole`` or ``invoked`` after that.
        revealed: Whether the code may have any object whole.
        spared: The value that is visited next, if the code does not have it whole.
        exact: How values of a type are walked through that need no search in the table of types: items of containers and
            attributes are looked up there, which saves a call of ``visit`` for each of thousands.
        by_name: What was known of the names (``known``) when attributes were first chosen by them, so that the walk begins
            again when more is known at its end; None if none were.
    """

    exact: ClassVar[dict[type, Callable[..., None]]] = {}

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.every_name = False
        self.strings: set[str] = set()
        self.every_module = False
        self.outside = False
        self.identity = False
        self.taken: set[str] = set()
        self.called: set[str] = set()
        self.whole: set[type] = set()
        self.invoked: set[type] = set()
        self.late = 0
        self.revealed = False
        self.spared: Any = ABSENT
        self.begin()

    def begin(self) -> None:
        """Forget what was found; the names that code reads are kept."""
        self.version, self.settings = hooks.version, hooks.settings
        self.leaves: list[tuple[str, Tensor]] = []
        self.frozen: list[tuple[type, Any]] = []  # of the leaves
        self.generators: list[tuple[str, Any]] = []
        self.entries: list[tuple[Any, ...]] = []
        self.big: list[tuple[str, np.ndarray[Any, Any]]] = []
        self.by_name: tuple[Any, ...] | None = None
        self.seen: dict[int, str] = {}  # paths of the objects visited, by identity
        self.found: list[Any] = []  # held so that no id is used twice during the walk
        self.ends: list[int] = []
        self.ties: dict[str, ref[Any] | None] = {}  # weak references, which a key has as the paths of their objects
        self.owners: list[tuple[ref[Any], Any]] = []  # objects, each with the dict of its attributes
        self.slots: list[tuple[Any, Any, Any]] = []  # namespaces, names in them, and their values
        self.spaces: list[tuple[Any, Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]] = []  # ``grouped``
        self.cells: list[tuple[CellType, Any]] = []
        # containers, with their items or keys: held, since an identity alone may be that of a later object
        self.lists: list[tuple[Any, tuple[Any, ...]]] = []
        self.bytes: list[bytearray | array[Any]] = []
        self.arrays: list[tuple[np.ndarray[Any, Any], Any]] = []
        self.functions: list[tuple[FunctionType, CodeType, Any, Any]] = []
        self.owned: list[Attributes] = []  # of ``versioned`` objects
        self.values: list[tuple[Callable[[], Any], Any]] = []  # functions that return a value, compared by identity
        self.contents: list[tuple[Callable[[], Any], Any]] = []  # those that make a new one at each call, compared by ==
        self.fields: list[tuple[Any, str, Any]] = []  # of objects with __slots__
        self.objects: list[Any] = []
        self.draws: list[Any] = []  # generators of NumPy, Python and PyTorch
        self.classes: list[type] = []
        self.by_names: set[type] = set()

    def known(self) -> tuple[Any, ...]:
        """What is known of the names that code reads."""
        strings = len(self.strings) if self.every_name or self.every_module else 0
        uses = len(self.taken), len(self.called), self.late, self.revealed
        return len(self.names), self.every_name, self.every_module, strings, uses

    def choose_by_name(self) -> None:
        """Note that attributes are chosen by the names known now or later. Call it before the first of them is chosen."""
        if self.by_name is None:
            self.by_name = self.known()

    def spare(self, name: str, v: Any) -> None:
        """Note that ``v``, which is visited next, is what an attribute of this name holds, if no code has that whole."""
        if name in self.taken:
            return
        if name in self.called:
            if isinstance(v, type):  # of which the call makes an object
                return
            self.calls(type(v))
        self.spared = v

    def had(self, v: Any, kind: type) -> None:
        """Note that the code has the value visited now whole, unless it was spared, and so any object of its class."""
        if self.spared is not v:
            self.takes(kind)
        self.spared = ABSENT

    def takes(self, kind: type) -> None:
        """Note that the code has an object of a class whole."""
        if kind not in self.whole and not of_library(kind.__module__):
            self.whole.add(kind)
            self.late += kind in self.by_names

    def calls(self, kind: type) -> None:
        """Note that the code calls an object of a class."""
        if kind not in self.invoked and not of_library(kind.__module__):
            self.invoked.add(kind)
            self.late += kind in self.by_names

    def follows_all(self, kind: type) -> bool:
        """Whether code may call any method of a user's class: by computed names, because a library has an object of it whole,
        or because a library is among its bases."""
        if self.every_name or self.revealed or kind in self.whole:
            return True
        return any(of_library(base.__module__) and base not in _INERT for base in kind.__mro__)

    def reads_all(self, kind: type) -> bool:
        """Whether code of a library that is among the bases of a class may read attributes that no code of the user's names."""
        return any(
            of_library(base.__module__) and base is not object and base.__module__ not in _INTERFACES for base in kind.__mro__
        )

    def formats_attributes(self) -> bool:
        """Whether the code formats texts, and may have one such as ``"{0.k}"``, which reads an attribute."""
        return not self.every_name and not self.names.isdisjoint(_FORMATTING) and any(map(_FIELD.search, self.strings))

    def follows(self, kind: type, name: str) -> bool:
        """Whether code may call what a class that is not wholly followed has under a name."""
        return name in self.names or name in _OF_ATTRIBUTES or (name == "__call__" and kind in self.invoked)

    @abstractmethod
    def visit(self, path: str, v: Any) -> None:
        """Walk through a value in the way of its type."""

    def add(self, path: str, *what: Any) -> None:
        """Make ``what`` a part of the key."""
        self.entries.append((path, *what))

    def again(self, path: str, v: Any) -> bool:
        """Whether an object has been visited, in which case the key gets the path where that was."""
        first = self.seen.get(id(v))
        if first is not None:
            self.add(path, "same", first)
            return True
        self.seen[id(v)] = path
        self.found.append(v)
        return False

    def value(self, path: str, read: Callable[[], Any]) -> None:
        """Walk through what a function returns, which must stay the same object."""
        content = read()
        self.values.append((read, content))
        self.visit(path, content)

    def setting(self, path: str, read: Callable[[], Any]) -> None:
        """Make a setting of the process a part of the key, once."""
        if all(known is not read for known, _ in self.contents):
            content = read()
            self.add(path, "setting", content if isinstance(content, frozenset) else repr(content))
            self.contents.append((read, content))

    def decimal(self) -> None:
        """Make the context that arithmetic of decimal numbers depends on a part of the key."""
        self.setting("the decimal context", decimal_context)

    def group(self) -> None:
        """Let ``fresh`` compare the values of one namespace in a few C calls."""
        by_space: dict[int, list[tuple[Any, Any, Any]]] = {}
        for slot in self.slots:
            by_space.setdefault(id(slot[0]), []).append(slot)
        self.slots = []
        compared = {id(held) for held, _ in self.lists}
        for slots in by_space.values():
            there = {k: v for _, k, v in slots if v is not ABSENT}
            if len(there) < 3 or type(slots[0][0]) not in (dict, MappingProxyType) or len(there) < len(slots):
                self.slots += slots  # a mapping of another class may make a value where it has none
            else:
                space, names = slots[0][0], tuple(there)
                # all values of a dict in its order take less time than those of names that are looked up; its names are
                # compared elsewhere then
                whole = type(space) is dict and identical(names, tuple(space)) and id(space) in compared
                self.spaces.append((space, _values if whole else itemgetter(*names), tuple(there.values())))

    def fresh(self) -> bool:
        """Whether nothing that the walk saw has been replaced."""
        if self.version != hooks.version:
            return False
        settings = hooks.settings
        if self.settings != settings and not self._same_settings():
            return False
        try:
            for d, pick, held in self.spaces:
                if not identical(pick(d), held):
                    return False
        except KeyError:
            return False
        for owner, d in self.owners:
            if getattr(owner(), "__dict__", None) is not d:
                return False
        for d, k, v in self.slots:
            if d.get(k, ABSENT) is not v:
                return False
        for cell, v in self.cells:
            try:
                if cell.cell_contents is not v:
                    return False
            except ValueError:
                if v is not ABSENT:
                    return False
        for held, items in self.lists:
            if len(held) != len(items) or not identical(tuple(held), items):
                return False
        for fn, code, defaults, keyed in self.functions:
            if fn.__code__ is not code or fn.__defaults__ is not defaults or fn.__kwdefaults__ is not keyed:
                return False
        for value, v in self.values:
            if value() is not v:
                return False
        for read, content in self.contents:
            if read() != content:
                return False
        for now, then in self.arrays:
            if bits_of(now) != then:
                return False
        self.settings = settings
        return True

    def _same_settings(self) -> bool:
        """Whether ``versioned`` objects have the attributes that they had, after some have been set: a model that was evaluated
        and is trained again. Which ones were set is not known."""
        for (_, t), (kind, frozen) in zip(self.leaves, self.frozen, strict=True):
            if type(t) is not kind or (kind is not Tensor and getattr(t, "frozen", None) != frozen):
                return False
        return all(attributes.same() for attributes in self.owned)
