"""What a function's result depends on: a walk through its arguments and all that it captures.

The walk looks through closures, globals that the code names, attributes, containers and functions that are called, and finds
*leaves* (tensors and generators, which a graph reads anew at each call) and everything else (*statics*, which a graph has
built in). Statics and the kinds of leaves make the walk's ``key``: equal keys, equal graphs. ``fresh`` says cheaply
whether a walk is still what the world looks like; if not, one walks again, which finds an old key or a new one.

Objects of classes with ``versioned = True`` (modules, optimizers) promise that every change of their structure raises
``hooks.version``, so they need not be looked at again while it stands still. A class may name attributes that no result depends
on (``unwatched``), and weak references to other objects (``ties``): a key says where these objects are, so that two that look
alike cannot be exchanged, and a traced function may set them.
"""

from __future__ import annotations

import builtins
import os
import random
import sys
from abc import ABCMeta
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import is_dataclass
from decimal import Decimal
from functools import partial
from operator import attrgetter, methodcaller
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, cast
from weakref import CallableProxyType, ProxyType, WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

import numpy as np

from firebrick.core.errors import TraceError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.contents import SETTINGS, STATES, content_of, decimal_context, is_shared_memory, registered
from firebrick.graph.outside import NAMES
from firebrick.graph.plain import LIBRARIES, OPEN, PLAIN, Same, of_library, plain_key
from firebrick.graph.reads import BUILTINS, BY_VALUE, ENVIRONMENT, named_in, reads_of
from firebrick.graph.spaces import ABSENT, bits_of, defaults_of, never, place_of, reader, slots_of, space_of, weakly
from firebrick.graph.streams import of_torch, state_of

_BUILT_IN = 1 << 20  # bytes of a host array up to which a graph may have its values built in
_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_MAKING = frozenset({"__init__", "__new__", "__post_init__"})  # not called again on an object that is there


class Walk:
    """One walk.

    Attributes:
        leaves: Tensors found, each once, with their paths.
        generators: Random generators found.
        key: What a graph depends on.
        number: The key's, among those of one function.
        entries: The key's parts by path, for explanations.
        big: Host arrays too large to be part of a graph, with their paths.
        found: The objects visited, in an order that is the same for equal keys; none after ``let_go``.
        ends: How many were found after each root.
    """

    def __init__(self, roots: list[tuple[str, Any]]) -> None:
        self.roots = roots
        self._names: set[str] = set()
        self._all = False  # whether code may read attributes of any name
        self._strings: set[str] = set()  # texts that may be names then
        self._modules = False  # whether code may read Python modules of any name
        self.outside = False  # whether code may read clocks, entropy or files
        while True:
            known = self._known()
            self._begin()
            for path, root in roots:
                self._visit(path, root)
                self.ends.append(len(self.found))
            if self._known() == known or not self._by_name:
                break
        for path, belongs in self.ties.items():
            self._add(path, "belongs to", None if belongs is None else self._seen.get(id(belongs())))
        if "label" in self._names:
            for path, t in self.leaves:
                self._value(f"{path}.label", reader(t, "label"))
        self.key = tuple(self.entries)
        self.tensors = [t for _, t in self.leaves]
        self.streams = [g for _, g in self.generators]
        self.ids = {id(t) for t in self.tensors}
        self.number = -1
        self._arguments: list[Callable[[], Any]] = []
        self._told: dict[int, Callable[[], Any]] = {}

    def _known(self) -> tuple[Any, ...]:
        """What is known of the names that code reads: when it grows, the walk begins again."""
        strings = len(self._strings) if self._all or self._modules else 0
        return len(self._names), self._all, self._modules, strings

    def _begin(self) -> None:
        self.version = hooks.version
        self.leaves: list[tuple[str, Tensor]] = []
        self.generators: list[tuple[str, Any]] = []
        self.entries: list[tuple[Any, ...]] = []
        self.big: list[tuple[str, np.ndarray[Any, Any]]] = []
        self._by_name = False  # whether attributes were chosen by the names that code reads
        self._seen: dict[int, str] = {}
        self.found: list[Any] = []  # held so that no id is used twice during the walk
        self.ends: list[int] = []
        self.ties: dict[str, ref[Any] | None] = {}  # weak references that a key has as the places of what they refer to
        self.slots: list[tuple[Any, Any, Any]] = []  # namespaces, names in them, and what these show
        self.cells: list[tuple[CellType, Any]] = []
        self.lists: list[tuple[Any, tuple[int, ...]]] = []  # containers, with the identities of their items or keys
        self.bytes: list[bytearray | array[Any]] = []
        self.arrays: list[tuple[np.ndarray[Any, Any], Any]] = []
        self._functions: list[tuple[FunctionType, CodeType, Any, Any]] = []
        self._values: list[tuple[Callable[[], Any], Any]] = []  # ways to other values
        self._contents: list[tuple[Callable[[], Any], Any]] = []  # likewise, to values that are made anew each time
        self.fields: list[tuple[Any, str, Any]] = []  # of objects with __slots__
        self.objects: list[Any] = []
        self.draws: list[Any] = []  # generators of NumPy, Python and PyTorch
        self.classes: list[type] = []

    def let_go(self, gone: Callable[[Any], None]) -> None:
        """Keep nothing alive that an argument holds: ``gone`` is called when one of the arguments is."""
        self._seen.clear()
        for held in (self.found, self.fields, self.objects, self.classes):
            held.clear()
        self._arguments = [weakly(v, gone) for _, v in self.roots[1:]]
        del self.roots[1:]

    def of(self, objects: list[tuple[str, Any]]) -> bool:
        """Whether these are the arguments that it began from."""
        for known, (_, v) in zip(self._arguments, objects, strict=True):  # noqa: SIM110 - a loop is quicker
            if known() is not v:
                return False
        return True

    def remembered(self, places: Collection[int], again: Callable[[], Walk]) -> dict[int, Any]:
        """What it found at these places, which holds as long as it is fresh: looked up once, by a walk of the same way."""
        found = {p: known() for p in places if (known := self._told.get(p)) is not None}
        if len(found) < len(places) or any(v is None for v in found.values()):
            anew = again().found
            found = {p: anew[p] for p in places}
            with suppress(TypeError):  # what cannot be referred to weakly is looked up each time
                self._told = {p: ref(v) for p, v in found.items()}
        return found

    def moved(self, after: Walk) -> list[str]:
        """Objects that a later walk finds in another place, by both paths: two that look alike may have been exchanged."""
        return [f"{before} → {now}" for i, now in after._seen.items() if (before := self._seen.get(i, now)) != now]

    # is it still so?

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
        for fn, code, defaults, keyed in self._functions:
            if fn.__code__ is not code or fn.__defaults__ is not defaults or fn.__kwdefaults__ is not keyed:
                return False
        for value, v in self._values:
            if value() is not v:
                return False
        for read, content in self._contents:
            if read() != content:
                return False
        return all(bits_of(now) == then for now, then in self.arrays)

    # walking

    def _add(self, path: str, *what: Any) -> None:
        self.entries.append((path, *what))

    def _again(self, path: str, v: Any) -> bool:
        """Whether an object has been visited, in which case the tie is noted."""
        first = self._seen.get(id(v))
        if first is not None:
            self._add(path, "same", first)
            return True
        self._seen[id(v)] = path
        self.found.append(v)
        return False

    def _visit(self, path: str, v: Any) -> None:
        if isinstance(v, Tensor):
            first = self._seen.get(id(v))
            if first is not None:  # as ``_again``: most of what is found are tensors
                self.entries.append((path, "same", first))
                return
            self._seen[id(v)] = path
            self.found.append(v)
            self.entries.append((path, "tensor", type(v), v.dtype, v.shape, v.device, getattr(v, "frozen", None)))
            self.leaves.append((path, v))
        elif type(v) is str:
            self._strings.add(v)
            self.entries.append((path, (str, v)))
        elif type(v) is ref:
            self._value(path, v)
        elif type(v) is Weak:
            self._add(path, "number", v.kind)
        elif isinstance(v, PLAIN):
            if isinstance(v, str):
                self._strings.add(v)
            self._add(path, plain_key(v))
            self._beside(path, v)
        elif isinstance(v, np.ndarray):
            self._array(path, v)
            self._beside(path, v)
        elif isinstance(v, np.generic) and not isinstance(v, np.void):
            self._add(path, type(v), v.tobytes())
        elif isinstance(v, (list, tuple, deque)):
            plain = type(v) is tuple and all(isinstance(i, PLAIN) for i in v)  # whether two alike are one does not show
            if plain or not self._again(path, v):
                self._add(path, type(v), len(v))
                if not isinstance(v, tuple):
                    self.lists.append((v, tuple(map(id, v))))
                for i, item in enumerate(v):
                    self._visit(f"{path}[{i}]", item)
                self._beside(path, v)
        elif isinstance(v, (dict, MappingProxyType)):
            if not self._again(path, v):
                self._add(path, type(v), len(v))
                self.lists.append((v, tuple(map(id, v))))
                for i, (k, item) in enumerate(v.items()):
                    self.slots.append((v, k, item))
                    if not isinstance(k, (*PLAIN, tuple)):
                        self._visit(f"key {i} of {path}", k)
                        k = i
                    self._visit(f"{path}[{k!r}]", item)
                self._beside(path, v)
        elif isinstance(v, _VIEWS):
            self._visit(path, v.mapping)
        elif isinstance(v, (set, frozenset)):
            if not self._again(path, v):
                self._add(path, type(v), len(v))
                self.lists.append((v, tuple(map(id, v))))
                for i, item in enumerate(sorted(v, key=place_of)):
                    self._visit(f"item {i} of {path}", item)
                self._beside(path, v)
        elif isinstance(v, FunctionType):
            self._function(path, v)
        elif isinstance(v, MethodType):
            self._add(path, "method", v.__func__.__name__)
            self._visit(f"{path}.__self__", v.__self__)
            self._visit(path, v.__func__)
        elif isinstance(v, partial):
            self._add(path, "partial", len(v.args), tuple(v.keywords))
            self._values += [(reader(v, name), getattr(v, name)) for name in ("func", "args", "keywords")]
            self.lists.append((v.keywords, tuple(map(id, v.keywords))))
            self._visit(f"{path}.func", v.func)
            for i, item in enumerate(v.args):
                self._visit(f"{path}.args[{i}]", item)
            for k, item in v.keywords.items():
                self.slots.append((v.keywords, k, item))
                self._visit(f"{path}.{k}", item)
        elif isinstance(v, CellType):
            self._cell(path, v)
        elif isinstance(v, type):
            self._class(path, v)
        elif isinstance(v, ModuleType):
            self._namespace(path, v)
        elif isinstance(v, (BuiltinFunctionType, MethodWrapperType)):
            owner = v.__self__
            self._called(v)
            self._add(path, v.__name__, Same(v if owner is None or isinstance(owner, ModuleType) else type(owner)))
            if owner is not None and not isinstance(owner, (ModuleType, type)):
                self._visit(f"{path}.__self__", owner)
        elif isinstance(v, ref):
            self._value(path, v)
        elif isinstance(v, ContextVar):
            self._value(path, partial(_current, v))
        elif isinstance(v, MemberDescriptorType):  # of a class with __slots__
            self._names.add(v.__name__)
            self._add(path, Same(v))
        elif isinstance(v, property):
            self._add(path, "property")
            for name in ("fget", "fset"):
                self._visit(f"{path}.{name}", getattr(v, name))
        elif isinstance(v, (WeakValueDictionary, WeakKeyDictionary, WeakSet)):
            self._visit(path, vars(v)["data"])
        elif isinstance(v, type(os.environ)):
            self._add(path, "environment", hash(tuple(v.items())))
            self._values.append((never, None))
        elif type(v) in (ProxyType, CallableProxyType):
            self._visit(path, v.__repr__.__self__)
        elif (read := content_of(path, v) or self._asked(v)) is not None:
            if not self._again(path, v):
                content = read()
                self._add(path, type(v).__name__, content)
                self._contents.append((read, content))
                if isinstance(v, np.void) and v.dtype.hasobject:
                    self._visit(path, v.item())
                elif isinstance(v, np.flatiter):
                    self._visit(f"{path}.base", v.base)
                elif is_shared_memory(v):
                    self._visit(f"{path}.buf", v.buf)
                elif isinstance(v, (bytearray, array)):
                    self.bytes.append(v)
        elif type(v).__module__ == "multiprocessing.sharedctypes":
            self._visit(path, v._obj)
        elif isinstance(v, (attrgetter, methodcaller)):
            self._all = True
            self._visit(path, v.__reduce__()[1])
        elif (isinstance(v, Iterator) and type(v).__module__ in ("builtins", "itertools")) or isinstance(v, np.nditer):
            raise TraceError(
                "a function under jit takes no items from an iterator, which would happen while it is traced only",
                f"{path}: {type(v).__name__}",
                "take the item before the call and pass it in, or keep a list",
            )
        elif type(v).__module__.partition(".")[0] == "torch" and hasattr(v, "data_ptr"):
            self._array(path, v.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy())
            self._values.append((reader(v, "_version"), v._version))
        elif isinstance(v, (np.random.Generator, np.random.RandomState, random.Random)) or of_torch(v):
            self._add(path, "stream", type(v), state_of(v))
            self._values.append((never, None))
            self.draws.append(v)
        else:
            self._object(path, v)

    def _beside(self, path: str, v: Any) -> None:
        """What a plain value or a container has of its own when its class is a user's."""
        kind = type(v)
        if kind is defaultdict:
            self._value(f"{path}.default_factory", reader(v, "default_factory"))
        if of_library(kind.__module__) or (isinstance(v, PLAIN) and self._again(path, v)):
            return
        self._members(path, kind, making=False)
        space = space_of(v)
        if space:
            self._visit(f"{path}.__dict__", space)

    def _array(self, path: str, v: np.ndarray[Any, Any]) -> None:
        if self._again(path, v):
            return
        if v.dtype == object:
            flat = v.reshape(-1)
            self._add(path, "array", v.shape)
            self.lists.append((flat, tuple(map(id, flat))))
            for i, item in enumerate(flat):
                self._visit(f"{path}.flat[{i}]", item)
        else:
            content = bits_of(v)
            self._add(path, "array", *content)
            self.arrays.append((v, content))
            if v.dtype.hasobject:  # in the fields of its records
                self._visit(f"{path}.tolist()", v.tolist())
            if v.nbytes > _BUILT_IN:
                self.big.append((path, v))

    def _function(self, path: str, v: FunctionType) -> None:
        if self._again(path, v):
            return
        if of_library(v.__module__) and not v.__closure__:
            self._called(v)
            self._add(path, Same(v))
            return
        inner = getattr(v, "__wrapped__", None)
        self._add(path, "function", v.__code__)
        self._functions.append((v, v.__code__, v.__defaults__, v.__kwdefaults__))
        keyed = v.__kwdefaults__ or {}
        if keyed:
            self.lists.append((keyed, tuple(map(id, keyed))))
        self.slots.append((v.__dict__, "__wrapped__", v.__dict__.get("__wrapped__", ABSENT)))
        for name, cell in zip(v.__code__.co_freevars, v.__closure__ or (), strict=True):
            self._cell(name, cell)
        if inner is not None:
            self._visit(path, inner)
        self._by_name |= len(v.__dict__) > (inner is not None)
        for name in sorted(v.__dict__.keys() if self._all else self._names & v.__dict__.keys()):
            if not name.startswith("__"):
                self.slots.append((v.__dict__, name, v.__dict__[name]))
                self._visit(f"{v.__name__}.{name}", v.__dict__[name])
        for i, default in enumerate(v.__defaults__ or ()):
            self._visit(f"default {i} of {v.__name__}", default)
        for name, default in keyed.items():
            self.slots.append((keyed, name, default))
            self._visit(f"default {name} of {v.__name__}", default)
        if not of_library(v.__module__):
            self._globals(v.__code__, v.__globals__)

    def _globals(self, code: CodeType, space: dict[str, Any]) -> None:
        reads = reads_of(code)
        self._names |= reads.attributes
        self._strings |= reads.strings
        self.outside |= reads.outside and not _ours(space.get("__name__"))
        if reads.any_module:
            self._modules = self._by_name = True
            for name in sorted(self._strings & sys.modules.keys()):
                if not of_library(name):
                    self._value(name, partial(sys.modules.get, name))
        self._all = self._all or not BY_VALUE.isdisjoint(reads.globals) or not BY_VALUE.isdisjoint(reads.attributes)
        for name in named_in(space, reads) if reads.any_global else reads.globals:
            held = space.get(name, ABSENT)
            self.slots.append((space, name, held))
            if held is not ABSENT:
                self._visit(name, held)
            elif name not in BUILTINS:
                held = vars(builtins).get(name, ABSENT)
                self.slots.append((vars(builtins), name, held))
                self._visit(f"builtins.{name}", held)
        for name in reads.imports:
            for full in (name, f"{space.get('__package__')}.{name}"):
                found = sys.modules.get(full)
                self._values.append((partial(sys.modules.get, full), found))
                if found is not None:
                    self._imported(full, found)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._globals(inner, space)

    def _imported(self, name: str, v: Any) -> None:
        """A Python module that code imports as it runs; that a library is imported the first time then changes nothing."""
        if of_library(name) and isinstance(v, ModuleType):
            self._library(v)
        else:
            self._visit(name, v)

    def _library(self, v: ModuleType) -> None:
        """What code may read of a library that is no constant."""
        if v in (os, os.path) and not self._names.isdisjoint(ENVIRONMENT):
            self._visit("os.environ", os.environ)
        if v.__name__ == "firebrick" and "config" in self._names:
            shown = vars(v.config)
            for name in sorted(shown.keys() & self._names):
                self.slots.append((shown, name, shown[name]))
                self._visit(f"config.{name}", shown[name])
        if v.__name__ in ("decimal", "_decimal"):
            self._decimal()
        settings = SETTINGS.get(v.__name__, {})
        for name in sorted(settings.keys() & self._names):
            self._setting(f"{v.__name__}.{name}", settings[name])
        self._by_name |= v in (os, os.path) or v.__name__ == "firebrick" or bool(settings)

    def _assigned(self, path: str, v: ModuleType) -> None:
        """Numbers, texts and containers of a library that code names: a user may have assigned them."""
        self._by_name = True
        space = vars(v)
        for name in sorted(self._names & space.keys()):
            held = space[name]
            if isinstance(held, (*PLAIN, list, dict, set)) and held is not sys.modules and not name.startswith("__"):
                self.slots.append((space, name, held))
                self._visit(f"{path}.{name}", held)

    def _asked(self, v: Any) -> Callable[[], Any] | None:
        """What locks, events and queues say of their state, where code asks for it."""
        asks = next((asks for kind, asks in STATES.items() if isinstance(v, kind)), None)
        if asks is None:
            return None
        self._by_name = True
        return None if self._names.isdisjoint(asks) else cast("Callable[[], Any]", getattr(v, asks[0]))

    def _called(self, v: Any) -> None:
        """A function of a library that code may call: what it may read."""
        name = v.__name__
        self._all = self._all or name in BY_VALUE
        module = str(getattr(v, "__module__", None))  # a bound method of C has none
        self.outside = self.outside or (name in NAMES and not _ours(module))
        if name in ENVIRONMENT and module in ("os", "posixpath", "ntpath"):
            self._visit("os.environ", os.environ)
        read = SETTINGS.get(module.partition(".")[0], {}).get(name)
        if read is not None:
            self._setting(name, read)

    def _value(self, path: str, value: Callable[[], Any]) -> None:
        content = value()
        self._values.append((value, content))
        self._visit(path, content)

    def _cell(self, path: str, cell: CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # a variable that is assigned later
            self._add(path, "empty")
            self.cells.append((cell, ABSENT))
            return
        self.cells.append((cell, content))
        self._visit(path, content)

    def _class(self, path: str, v: type) -> None:
        if self._again(path, v):
            return
        self._add(path, Same(v))
        if issubclass(v, Decimal):
            self._decimal()
        if of_library(v.__module__):
            self._called(v)
        else:
            if isinstance(v, ABCMeta):
                self._setting(f"{path}.register", partial(registered, v))
            self._members(path, v)
            if not of_library(type(v).__module__):
                self._members(f"type of {path}", type(v))

    def _members(self, path: str, kind: type, making: bool = True) -> None:
        """The functions of a user's class, and those of its attributes that code may read."""
        self._values.append((reader(kind, "__mro__"), kind.__mro__))
        self._add(path, "bases", *map(Same, kind.__mro__))
        for base in kind.__mro__:
            if base is object or of_library(base.__module__):
                continue
            space: Any = vars(base)
            if not any(known is base for known in self.classes):
                self.classes.append(base)
                self.lists.append((space, tuple(map(id, space))))
            for name, member in list(space.items()):
                if name in _MAKING and not making:
                    continue
                parts = (member.fget, member.fset) if isinstance(member, property) else (getattr(member, "__func__", member),)
                for fn in parts:
                    held = space_of(fn) or {}
                    through = fn if isinstance(fn, FunctionType) else held.get("__wrapped__", held.get("func"))
                    if isinstance(through, FunctionType):
                        self.slots.append((space, name, member))
                        self._visit(f"{path}.{name}", fn if isinstance(fn, FunctionType) else through)
                    elif fn is not None and (name in self._names or self._all) and not name.startswith("__"):
                        self.slots.append((space, name, member))
                        self._visit(f"{path}.{name}", fn)
                    self._by_name = True

    def _namespace(self, path: str, v: ModuleType) -> None:
        """A Python module: what code may read of it."""
        if self._again(path, v):
            return
        self._add(path, Same(v))
        if of_library(v.__name__):
            self._library(v)
            if not _ours(v.__name__):
                self._assigned(path, v)
            return
        self._by_name = True
        space = vars(v)
        names = {*self._names, "__getattr__"}
        if self._all:  # numbers and texts of any name, other things of names that code may make
            names |= {n for n, held in space.items() if n in self._strings or isinstance(held, PLAIN)}
        for name in sorted(names):
            if not name.startswith("__") or name == "__getattr__":
                held = space.get(name, ABSENT)
                self.slots.append((space, name, held))
                if held is not ABSENT:
                    self._visit(f"{path}.{name}", held)

    def _decimal(self) -> None:
        """Arithmetic of decimal numbers depends on a context."""
        self._setting("the decimal context", decimal_context)

    def _setting(self, path: str, read: Callable[[], Any]) -> None:
        if all(known is not read for known, _ in self._contents):
            content = read()
            self._add(path, "setting", content if isinstance(content, frozenset) else repr(content))
            self._contents.append((read, content))

    def _object(self, path: str, v: Any) -> None:
        if self._again(path, v):
            return
        kind = type(v)
        if isinstance(v, Decimal):
            self._decimal()
            self._add(path, "decimal", str(v))
            return
        if "cython_function" in kind.__name__:
            self._called(v)
        if getattr(kind, "__jit_leaf__", False):
            self._add(path, "generator", hooks.methods["find_generator"](v) is not None)
            self.generators.append((path, v))
            return
        through = getattr(kind, "__jit_through__", None)
        if through is not None:
            self._visit(path, getattr(v, through))
            return
        space = space_of(v)
        if isinstance(v, BaseException):
            self._value(f"{path}.args", reader(v, "args"))
        if space and "__wrapped__" in space:
            self._visit(path, space["__wrapped__"])
        slots = [n for base in kind.__mro__ for n in slots_of(base) if not n.startswith("__")]
        if space is None and not slots:
            self._add(path, "object", Same(v))
            return
        versioned = getattr(kind, "versioned", False)
        root = kind.__module__.partition(".")[0]
        torch = space is not None and "_parameters" in space  # a module of torch
        whole = root in OPEN or torch
        if root in LIBRARIES and not whole:  # locks, loggers, files, other libraries' objects
            self._add(path, "object", Same(v))
            return
        self._add(path, "object", kind)
        if not of_library(kind.__module__):
            self._members(path, kind, making=False)
        chosen = versioned or of_library(kind.__module__) or is_dataclass(v) or self._all or torch
        self._by_name |= not chosen
        unwatched, ties = getattr(kind, "unwatched", ()), getattr(kind, "ties", ())
        if space is not None:
            self.objects.append(v)
            if not versioned:
                self.lists.append((space, tuple(map(id, space))))
                self._values.append((reader(v, "__class__"), v.__class__))
            seen = {**defaults_of(kind), **space} if versioned else space
            for name, item in list(seen.items()):
                if (chosen or name in self._names) and name not in unwatched and not name.startswith("__"):
                    if not versioned:
                        self.slots.append((space, name, item))
                    if name in ties:
                        self.ties[f"{path}.{name}"] = item
                    else:
                        self._visit(f"{path}.{name}", item)
        for name in slots:
            if chosen or name in self._names:
                item = getattr(v, name, ABSENT)
                self._values.append((reader(v, name), item))
                self.fields.append((v, name, item))
                if item is not ABSENT:
                    self._visit(f"{path}.{name}", item)


def _current(v: ContextVar[Any]) -> Any:
    """Its value in this context, or its default."""
    try:
        return v.get()
    except LookupError:
        return None


def _ours(module: Any) -> bool:
    """Whether code is Firebrick's own, which reads nothing outside that a graph would keep."""
    return isinstance(module, str) and module.partition(".")[0] == "firebrick"
