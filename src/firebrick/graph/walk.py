"""What a function's result depends on: a walk through its arguments and all that it captures.

The walk looks through closures, globals that the code names, attributes, containers and functions that are called, and finds
*leaves* (tensors and generators, which a graph reads anew at each call) and everything else (*statics*, which a graph has
built in). Statics and the kinds of leaves make the walk's ``key``: equal keys, equal graphs. ``fresh`` says cheaply
whether a walk is still what the world looks like; if not, one walks again, which finds an old key or a new one.

Objects of classes with ``versioned = True`` (modules, optimizers) promise that every change of their structure raises
``hooks.version``, so they need not be looked at again while it stands still.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy as np

from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak

SCALARS = (bool, int, float, complex, str, bytes, type(None))
_PLAIN = (*SCALARS, enum.Enum, DType, Device, range, slice)
_LIBRARIES = frozenset({
    "firebrick", "numpy", "torch", "jax", "optree", "ml_dtypes", "scipy", "safetensors", "rich", "click", "pytest", "_pytest",
    "hypothesis", "opt_einsum", "matplotlib", "PIL",
}) | frozenset(sys.stdlib_module_names) - {"__main__"}  # fmt: skip
_WATCHED = 1 << 20  # bytes of a host array up to which its values are compared at each call
_ABSENT = object()


class Same:
    """An object in a key, equal to itself only."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)

    def __repr__(self) -> str:
        return f"{type(self.of).__name__} object"


def of_library(name: str | None) -> bool:
    """Whether a Python module belongs to a library that reads nothing of the user's."""
    return (name or "").partition(".")[0] in _LIBRARIES


def plain_key(v: Any) -> Any:
    """A plain value for a key: floats by their bits, types kept apart."""
    kind = type(v)
    if kind is float:
        return float, v.hex()
    if kind is complex:
        return complex, v.real.hex(), v.imag.hex()
    if kind is slice:
        return slice, v.start, v.stop, v.step
    return kind, v


class Walk:
    """One walk.

    Attributes:
        leaves: Tensors found, each once, with their paths.
        generators: Random generators found.
        key: What a graph depends on.
        number: The key's, among those of one function.
        entries: The key's parts by path, for explanations.
        big: Host arrays too large to be watched, with their paths.
    """

    def __init__(self, roots: list[tuple[str, Any]]) -> None:
        self.roots = roots
        self._names: set[str] = set()
        while True:
            known = len(self._names)
            self._begin()
            for path, root in roots:
                self._visit(path, root)
            if len(self._names) == known or not self._by_name:
                break
        self.key = tuple(self.entries)
        self.tensors = [t for _, t in self.leaves]
        self.ids = {id(t) for t in self.tensors}
        self.number = -1

    def _begin(self) -> None:
        self.version = hooks.version
        self.leaves: list[tuple[str, Tensor]] = []
        self.generators: list[tuple[str, Any]] = []
        self.entries: list[tuple[Any, ...]] = []
        self.big: list[tuple[str, np.ndarray[Any, Any]]] = []
        self._by_name = False  # whether attributes were chosen by the names that code reads
        self._seen: dict[int, str] = {}
        self._held: list[Any] = []  # so that no id is used twice during the walk
        self._slots: list[tuple[dict[Any, Any], Any, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._lists: list[tuple[Any, tuple[int, ...]]] = []
        self._arrays: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self._objects: list[tuple[Any, dict[str, Any]]] = []

    # is it still so?

    def fresh(self) -> bool:
        """Whether nothing that the walk saw has been replaced."""
        if self.version != hooks.version:
            return False
        for d, k, v in self._slots:
            if d.get(k, _ABSENT) is not v:
                return False
        for cell, v in self._cells:
            try:
                if cell.cell_contents is not v:
                    return False
            except ValueError:
                if v is not _ABSENT:
                    return False
        for held, ids in self._lists:
            if len(held) != len(ids) or tuple(map(id, held)) != ids:
                return False
        return all(np.array_equal(now, then, equal_nan=now.dtype.kind in "fc") for now, then in self._arrays)

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
        self._held.append(v)
        return False

    def _visit(self, path: str, v: Any) -> None:
        if isinstance(v, Tensor):
            if not self._again(path, v):
                self._add(path, "tensor", type(v), v.dtype, v.shape, v.device, getattr(v, "frozen", None))
                self.leaves.append((path, v))
        elif isinstance(v, _PLAIN):
            self._add(path, plain_key(v))
        elif isinstance(v, np.ndarray):
            self._array(path, v)
        elif isinstance(v, np.generic):
            self._add(path, type(v), v.tobytes())
        elif isinstance(v, (list, tuple)):
            if not self._again(path, v):
                self._add(path, type(v), len(v))
                if isinstance(v, list):
                    self._lists.append((v, tuple(map(id, v))))
                for i, item in enumerate(v):
                    self._visit(f"{path}[{i}]", item)
        elif isinstance(v, dict):
            if not self._again(path, v):
                self._add(path, type(v), len(v))
                self._lists.append((v, tuple(map(id, v))))
                for k, item in v.items():
                    self._slots.append((v, k, item))
                    self._visit(f"{path}[{k!r}]", item)
        elif isinstance(v, (set, frozenset)) and all(isinstance(i, _PLAIN) for i in v):
            self._add(path, type(v), frozenset(plain_key(i) for i in v))
            if isinstance(v, set):
                self._lists.append((v, tuple(map(id, v))))
        elif isinstance(v, FunctionType):
            self._function(path, v)
        elif isinstance(v, MethodType):
            self._add(path, "method", v.__func__.__name__)
            self._visit(f"{path}.__self__", v.__self__)
            self._visit(path, v.__func__)
        elif isinstance(v, partial):
            self._add(path, "partial", len(v.args), tuple(v.keywords))
            self._visit(f"{path}.func", v.func)
            for i, item in enumerate(v.args):
                self._visit(f"{path}.args[{i}]", item)
            for k, item in v.keywords.items():
                self._visit(f"{path}.{k}", item)
        elif isinstance(v, CellType):
            self._cell(path, v)
        elif isinstance(v, type):
            self._class(path, v)
        elif isinstance(v, ModuleType):
            self._namespace(path, v)
        elif isinstance(v, BuiltinFunctionType):
            self._add(path, Same(v))
        else:
            self._object(path, v)

    def _array(self, path: str, v: np.ndarray[Any, Any]) -> None:
        if self._again(path, v):
            return
        if v.nbytes <= _WATCHED and v.dtype != object:
            self._add(path, "array", v.dtype.str, v.shape, v.tobytes())
            self._arrays.append((v, v.copy()))
        else:
            self._add(path, "array", Same(v))
            self.big.append((path, v))

    def _function(self, path: str, v: FunctionType) -> None:
        if self._again(path, v):
            return
        if of_library(v.__module__) and not v.__closure__:
            self._add(path, Same(v))
            return
        inner = getattr(v, "__wrapped__", None)
        self._add(path, "function", v.__code__)
        self._slots.append((v.__dict__, "__wrapped__", v.__dict__.get("__wrapped__", _ABSENT)))
        for name, cell in zip(v.__code__.co_freevars, v.__closure__ or (), strict=True):
            self._cell(name, cell)
        if inner is not None:
            self._visit(path, inner)
        for i, default in enumerate(v.__defaults__ or ()):
            self._visit(f"default {i} of {v.__name__}", default)
        for name, default in (v.__kwdefaults__ or {}).items():
            self._visit(f"default {name} of {v.__name__}", default)
        if not of_library(v.__module__):
            self._globals(v.__code__, v.__globals__)

    def _globals(self, code: CodeType, space: dict[str, Any]) -> None:
        for name in code.co_names:
            self._names.add(name)
            if name in space:
                self._slots.append((space, name, space[name]))
                self._visit(name, space[name])
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._globals(inner, space)

    def _cell(self, path: str, cell: CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # a variable that is assigned later
            self._add(path, "empty")
            self._cells.append((cell, _ABSENT))
            return
        self._cells.append((cell, content))
        self._visit(path, content)

    def _class(self, path: str, v: type) -> None:
        if self._again(path, v):
            return
        self._add(path, Same(v))
        if not of_library(v.__module__):
            self._members(path, v)

    def _members(self, path: str, kind: type) -> None:
        """The functions of a user's class, and those of its attributes that code may read."""
        for base in kind.__mro__:
            if base is object or of_library(base.__module__):
                continue
            for name, member in list(vars(base).items()):
                fn = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if isinstance(fn, FunctionType) and (name == "__call__" or name == "forward" or not name.startswith("__")):
                    self._function(f"{path}.{name}", fn)
                elif name in self._names and not name.startswith("__") and isinstance(fn, (Tensor, *_PLAIN, list, dict, tuple)):
                    self._by_name = True
                    self._visit(f"{path}.{name}", fn)

    def _namespace(self, path: str, v: ModuleType) -> None:
        """A Python module: what code may read of it."""
        if self._again(path, v):
            return
        self._add(path, Same(v))
        if of_library(v.__name__):
            return
        self._by_name = True
        space = vars(v)
        for name in sorted(self._names & space.keys()):
            if not name.startswith("__"):
                self._slots.append((space, name, space[name]))
                self._visit(f"{path}.{name}", space[name])

    def _object(self, path: str, v: Any) -> None:
        if self._again(path, v):
            return
        kind = type(v)
        if isinstance(v, Weak):
            self._add(path, "number", v.kind)
            return
        if getattr(kind, "__jit_leaf__", False):
            self._add(path, "generator")
            self.generators.append((path, v))
            return
        space = getattr(v, "__dict__", None)
        slots = [n for base in kind.__mro__ for n in _slots_of(base) if not n.startswith("__") and hasattr(v, n)]
        if space is None and not slots:
            self._add(path, "object", Same(v))
            return
        versioned = getattr(kind, "versioned", False)
        self._add(path, "object", kind)
        if not of_library(kind.__module__):
            self._members(path, kind)
        chosen = versioned or of_library(kind.__module__) or is_dataclass(v)
        self._by_name |= not chosen
        unwatched = getattr(kind, "unwatched", ())
        if space is not None:
            self._objects.append((v, dict(space)))
            for name, item in list(space.items()):
                if (chosen or name in self._names) and name not in unwatched and not name.startswith("__"):
                    if not versioned:
                        self._slots.append((space, name, item))
                    self._visit(f"{path}.{name}", item)
        for name in slots:
            if chosen or name in self._names:
                self._visit(f"{path}.{name}", getattr(v, name))

    def copies(self) -> Callable[[], None]:
        """Note what containers and objects hold; the function returned puts it back."""
        lists = [(v, list(v)) for v, _ in self._lists if isinstance(v, list)]
        sets = [(v, set(v)) for v, _ in self._lists if isinstance(v, set)]
        dicts = [(v, dict(v)) for v, _ in self._lists if isinstance(v, dict)]
        objects = [(v.__dict__, dict(v.__dict__)) for v, _ in self._objects]
        names = list(self._slots)
        cells = list(self._cells)

        def back() -> None:
            for held, was in lists:
                if len(held) != len(was) or any(a is not b for a, b in zip(held, was, strict=True)):
                    held[:] = was
            for group, members in sets:
                if group != members:
                    group.clear()
                    group.update(members)
            for space, content in [*dicts, *objects]:
                if space.keys() != content.keys() or any(space[k] is not v for k, v in content.items()):
                    space.clear()
                    space.update(content)
            for space, name, value in names:
                if value is not _ABSENT and space.get(name, _ABSENT) is not value:
                    space[name] = value
            for cell, value in cells:
                if value is not _ABSENT:
                    cell.cell_contents = value
            hooks.version += 1

        return back


def _slots_of(base: type) -> tuple[str, ...]:
    names = base.__dict__.get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


def weakly(v: Any) -> Callable[[], Any]:
    """A way to an object that does not keep it, where its class allows that."""
    try:
        return ref(v)
    except TypeError:
        return lambda: v


def differences(before: tuple[Any, ...], now: tuple[Any, ...]) -> list[str]:
    """What differs between two keys of walks, in words."""
    old, new = ({e[0]: e[1:] for e in key} for key in (before, now))
    out = [f"{p}: {_words(old[p])} → {_words(new[p])}" for p in new if p in old and old[p] != new[p]]
    out += [f"{p}: new, {_words(new[p])}" for p in new if p not in old]
    out += [f"{p}: gone" for p in old if p not in new]
    return out


def _words(what: tuple[Any, ...]) -> str:
    if what[0] == "tensor":
        _, kind, dtype, shape, device, frozen = what
        more = ", frozen" if frozen else ""
        return f"{dtype.name}[{','.join(map(str, shape))}] on {device}{more}"
    if what[0] == "array":
        return "a NumPy array" + (f" {what[1]}{list(what[2])}" if len(what) > 2 else "") + " with other values"
    if what[0] == "same":
        return f"the same object as {what[1]}"
    if len(what) == 1 and isinstance(what[0], tuple) and isinstance(what[0][0], type):
        kind, *value = what[0]
        shown = float.fromhex(value[0]) if kind is float else value[0] if len(value) == 1 else tuple(value)
        return f"{kind.__name__} {shown!r}"
    if what[0] == "function":
        return f"function {what[1].co_name} at line {what[1].co_firstlineno}"
    if isinstance(what[0], type):
        return f"{what[0].__name__} of {what[1]}" if len(what) > 1 else what[0].__name__
    return " ".join(getattr(w, "__name__", str(w)) for w in what)
