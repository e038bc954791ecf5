"""What a walk has seen: the parts of its key, and every attribute, item or variable that it read, so that it can be compared
with its value now.

``Record`` does not decide how a value is walked through: the table in ``walk`` does, and its functions (``visit_code``,
``visit_values``) write here. ``fresh`` compares what was read with its value now. It runs at each call of a compiled
function, so it is one loop for each kind of variable and calls no other method of this class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, ClassVar
from weakref import ref

import numpy as np

from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.graph.contents import decimal_context
from firebrick.graph.spaces import ABSENT, bits_of


class Record(ABC):
    """What one walk has seen.

    Attributes:
        leaves: Tensors found, each once, with their paths.
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
        self.begin()

    def begin(self) -> None:
        """Forget what was found; the names that code reads are kept."""
        self.version = hooks.version
        self.leaves: list[tuple[str, Tensor]] = []
        self.generators: list[tuple[str, Any]] = []
        self.entries: list[tuple[Any, ...]] = []
        self.big: list[tuple[str, np.ndarray[Any, Any]]] = []
        self.by_name: tuple[Any, ...] | None = None
        self.seen: dict[int, str] = {}  # paths of the objects visited, by identity
        self.found: list[Any] = []  # held so that no id is used twice during the walk
        self.ends: list[int] = []
        self.ties: dict[str, ref[Any] | None] = {}  # weak references, which a key has as the paths of their objects
        self.slots: list[tuple[Any, Any, Any]] = []  # namespaces, names in them, and their values
        self.cells: list[tuple[CellType, Any]] = []
        self.lists: list[tuple[Any, tuple[int, ...]]] = []  # containers, with the identities of their items or keys
        self.bytes: list[bytearray | array[Any]] = []
        self.arrays: list[tuple[np.ndarray[Any, Any], Any]] = []
        self.functions: list[tuple[FunctionType, CodeType, Any, Any]] = []
        self.values: list[tuple[Callable[[], Any], Any]] = []  # functions that return a value, compared by identity
        self.contents: list[tuple[Callable[[], Any], Any]] = []  # those that make a new one at each call, compared by ==
        self.fields: list[tuple[Any, str, Any]] = []  # of objects with __slots__
        self.objects: list[Any] = []
        self.draws: list[Any] = []  # generators of NumPy, Python and PyTorch
        self.classes: list[type] = []

    def known(self) -> tuple[Any, ...]:
        """What is known of the names that code reads."""
        strings = len(self.strings) if self.every_name or self.every_module else 0
        return len(self.names), self.every_name, self.every_module, strings

    def choose_by_name(self) -> None:
        """Note that attributes are chosen by the names known now or later. Call it before the first of them is chosen."""
        if self.by_name is None:
            self.by_name = self.known()

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

    def fresh(self) -> bool:
        """Whether nothing that the walk saw has been replaced."""
        if self.version != hooks.version:
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
        for held, ids in self.lists:
            if len(held) != len(ids) or tuple(map(id, held)) != ids:
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
        return all(bits_of(now) == then for now, then in self.arrays)
