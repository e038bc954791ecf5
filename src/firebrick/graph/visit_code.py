"""How a walk goes through code: functions, the globals and modules that they name, classes and their methods.

Code is read, never run: ``reads_of`` gives the names that a code object mentions, and only what it mentions is visited. Each
function takes the record of the walk, the path of a value in the user's words, and the value.
"""

from __future__ import annotations

import builtins
import os
import sys
from abc import ABCMeta
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property, partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, cast

from firebrick.graph.contents import SETTINGS, STATES, registered
from firebrick.graph.outside import NAMES
from firebrick.graph.plain import PLAIN, Same, of_library
from firebrick.graph.reads import BUILTINS, BY_VALUE, ENVIRONMENT, named_in, reads_of
from firebrick.graph.record import Record
from firebrick.graph.spaces import ABSENT, reader, space_of
from firebrick.graph.uses import REVEALING, passes_first, uses_of

_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})  # not called again on an object that exists
# what ``functools.singledispatch`` keeps of its search in the registry, which is a captured value like any other
_KEPT_BY_DISPATCH = frozenset({"dispatch_cache", "cache_token"})
_SIGNATURES = frozenset({"__wrapped__", "__signature__"})  # a function with one of these may have arguments of other names


# functions


def function(w: Record, path: str, v: FunctionType) -> None:
    """A Python function: its code, closure, defaults and attributes, and the globals that its code names."""
    if w.again(path, v):
        return
    if of_library(v.__module__) and not v.__closure__:
        called(w, v)
        w.add(path, Same(v))
        return
    inner = getattr(v, "__wrapped__", None)
    library = of_library(v.__module__)
    if not library:  # before anything is chosen by these names, else the walk would have to begin again
        _names(w, v.__code__)
    w.add(path, "function", v.__code__)
    w.functions.append((v, v.__code__, v.__defaults__, v.__kwdefaults__))
    keyed = v.__kwdefaults__ or {}
    if keyed:
        w.lists.append((keyed, tuple(keyed)))
    w.slots.append((v.__dict__, "__wrapped__", v.__dict__.get("__wrapped__", ABSENT)))
    whole = uses_of(v.__code__).variables
    for name, content in zip(v.__code__.co_freevars, v.__closure__ or (), strict=True):
        if v.__module__ != "functools" or name not in _KEPT_BY_DISPATCH:
            cell(w, name, content, library or name in whole)
    if inner is not None:
        w.visit(path, inner)
    if len(v.__dict__) > (inner is not None):
        w.choose_by_name()
    for name in sorted(v.__dict__.keys() if w.every_name else w.names & v.__dict__.keys()):
        if not name.startswith("__"):
            w.slots.append((v.__dict__, name, v.__dict__[name]))
            w.visit(f"{v.__name__}.{name}", v.__dict__[name])
    defaults = v.__defaults__ or ()
    first = v.__code__.co_argcount - len(defaults)
    for i, default in enumerate(defaults):
        if not library and first >= 0 and v.__code__.co_varnames[first + i] not in whole:
            w.spared = default
        w.visit(f"default {i} of {v.__name__}", default)
    for name, default in keyed.items():
        w.slots.append((keyed, name, default))
        if not library and name not in whole:
            w.spared = default
        w.visit(f"default {name} of {v.__name__}", default)
    if not library:
        _globals(w, v.__code__, v.__globals__)


def method(w: Record, path: str, v: MethodType) -> None:
    """A bound method: its object and its function."""
    w.add(path, "method", getattr(v.__func__, "__name__", type(v.__func__).__name__))
    if isinstance(v.__func__, FunctionType) and not of_library(v.__func__.__module__):
        _names(w, v.__func__.__code__)  # before anything of the object is chosen by them
    if not _passes_on(v.__func__):
        w.spared = v.__self__
    w.visit(f"{path}.__self__", v.__self__)
    w.visit(path, v.__func__)


def builtin(w: Record, path: str, v: BuiltinFunctionType) -> None:
    """A function or bound method of C."""
    owner = v.__self__
    called(w, v)
    w.add(path, v.__name__, Same(v if owner is None or isinstance(owner, ModuleType) else type(owner)))
    if owner is not None and not isinstance(owner, (ModuleType, type)):
        w.visit(f"{path}.__self__", owner)


def partial_call(w: Record, path: str, v: partial[Any]) -> None:
    """A ``functools.partial``: its function and the arguments that it holds."""
    w.add(path, "partial", len(v.args), tuple(v.keywords))
    w.values += [(reader(v, name), getattr(v, name)) for name in ("func", "args", "keywords")]
    w.lists.append((v.keywords, tuple(v.keywords)))
    w.visit(f"{path}.func", v.func)
    for i, item in enumerate(v.args):
        w.visit(f"{path}.args[{i}]", item)
    for k, item in v.keywords.items():
        w.slots.append((v.keywords, k, item))
        w.visit(f"{path}.{k}", item)


def cell(w: Record, path: str, v: CellType, whole: bool = True) -> None:
    """A variable of a closure, whose value code has ``whole`` or only reads attributes of."""
    try:
        content = v.cell_contents
    except ValueError:  # a variable that is assigned later
        w.add(path, "empty")
        w.cells.append((v, ABSENT))
        return
    w.cells.append((v, content))
    if not whole:
        w.spared = content
    w.visit(path, content)


def property_of(w: Record, path: str, v: property) -> None:
    """A property: the functions that read and set it."""
    w.add(path, "property")
    for name in ("fget", "fset", "fdel"):
        w.visit(f"{path}.{name}", getattr(v, name))


def slot_descriptor(w: Record, path: str, v: MemberDescriptorType) -> None:
    """An attribute of a class with ``__slots__``, which reads it from any of its objects."""
    w.names.add(v.__name__)
    w.add(path, Same(v))


def called(w: Record, v: Any) -> None:
    """A function of a library that code may call: note what it may read."""
    name = v.__name__
    w.every_name = w.every_name or name in BY_VALUE
    w.revealed = w.revealed or name in REVEALING
    module = str(getattr(v, "__module__", None))  # a bound method of C has none
    w.outside = w.outside or (name in NAMES and not _ours(module))
    if name in ENVIRONMENT and module in ("os", "posixpath", "ntpath"):
        w.visit("os.environ", os.environ)
    read = SETTINGS.get(module.partition(".")[0], {}).get(name)
    if read is not None:
        w.setting(name, read)


def state_reader(w: Record, v: Any) -> Callable[[], Any] | None:
    """The method that reads the state of a lock, an event or a queue, if the code reads it; None for other objects."""
    asks = next((asks for kind, asks in STATES.items() if isinstance(v, kind)), None)
    if asks is None:
        return None
    w.choose_by_name()
    return None if w.names.isdisjoint(asks) else cast("Callable[[], Any]", getattr(v, asks[0]))


# what a code object names


def _names(w: Record, code: CodeType) -> None:
    """Note the names of attributes in a code object and in the code inside it."""
    reads, uses = reads_of(code), uses_of(code)
    w.names |= reads.attributes
    w.strings |= reads.strings
    w.taken |= uses.attributes
    w.called |= uses.called
    w.revealed = w.revealed or uses.reveals
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            _names(w, inner)


def _globals(w: Record, code: CodeType, space: dict[str, Any]) -> None:
    """The globals, builtins and imported modules that a code object names, and those of the code inside it."""
    reads = reads_of(code)
    w.outside |= reads.outside and not _ours(space.get("__name__"))
    w.identity |= reads.identity and not of_library(space.get("__name__"))
    if reads.any_module:
        w.every_module = True
        w.choose_by_name()
        for name in sorted(w.strings & sys.modules.keys()):
            if not of_library(name):
                w.value(name, partial(sys.modules.get, name))
    w.every_name = w.every_name or not BY_VALUE.isdisjoint(reads.globals) or not BY_VALUE.isdisjoint(reads.attributes)
    whole = uses_of(code).variables
    for name in named_in(space, reads) if reads.any_global else reads.globals:
        held = space.get(name, ABSENT)
        w.slots.append((space, name, held))
        if held is not ABSENT:
            if name not in whole:
                w.spared = held
            w.visit(name, held)
        elif name not in BUILTINS:
            held = vars(builtins).get(name, ABSENT)
            w.slots.append((vars(builtins), name, held))
            w.visit(f"builtins.{name}", held)
    for name in reads.imports:
        for full in (name, f"{space.get('__package__')}.{name}"):
            found = sys.modules.get(full)
            w.values.append((partial(sys.modules.get, full), found))
            if found is not None:
                _imported(w, full, found)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            _globals(w, inner, space)


def _imported(w: Record, name: str, v: Any) -> None:
    """A Python module that code imports as it runs. The first import of a library must not change the key, so a library's
    module is no part of it."""
    if of_library(name) and isinstance(v, ModuleType):
        _library(w, v)
    else:
        w.visit(name, v)


# modules


def module(w: Record, path: str, v: ModuleType) -> None:
    """A Python module: what code may read of it."""
    if w.again(path, v):
        return
    w.add(path, Same(v))
    if of_library(v.__name__):
        _library(w, v)
        if not _ours(v.__name__):
            _assigned(w, path, v)
        return
    w.choose_by_name()
    space = vars(v)
    names = {*w.names, "__getattr__"}
    if w.every_name:  # numbers and texts of any name, other things of names that code may make
        names |= {n for n, held in space.items() if n in w.strings or isinstance(held, PLAIN)}
    for name in sorted(names):
        if not name.startswith("__") or name == "__getattr__":
            held = space.get(name, ABSENT)
            w.slots.append((space, name, held))
            if held is not ABSENT:
                w.spare(name, held)
                w.visit(f"{path}.{name}", held)


def _library(w: Record, v: ModuleType) -> None:
    """What code may read of a library that is not constant."""
    settings = SETTINGS.get(v.__name__, {})
    if v in (os, os.path) or v.__name__ == "firebrick" or settings:
        w.choose_by_name()
    if v in (os, os.path) and not w.names.isdisjoint(ENVIRONMENT):
        w.visit("os.environ", os.environ)
    if v.__name__ == "firebrick" and "config" in w.names:
        shown = vars(v.config)
        for name in sorted(shown.keys() & w.names):
            w.slots.append((shown, name, shown[name]))
            w.visit(f"config.{name}", shown[name])
    if v.__name__ in ("decimal", "_decimal"):
        w.decimal()
    for name in sorted(settings.keys() & w.names):
        w.setting(f"{v.__name__}.{name}", settings[name])


def _assigned(w: Record, path: str, v: ModuleType) -> None:
    """Numbers, texts and containers of a library that code names: a user may have assigned them."""
    w.choose_by_name()
    space = vars(v)
    for name in sorted(w.names & space.keys()):
        held = space[name]
        if isinstance(held, (*PLAIN, list, dict, set)) and held is not sys.modules and not name.startswith("__"):
            w.slots.append((space, name, held))
            w.visit(f"{path}.{name}", held)


# classes


def class_of(w: Record, path: str, v: type) -> None:
    """A class: itself, and its members if it is a user's."""
    if not of_library(type(v).__module__):  # methods of its metaclass have it
        w.spared = ABSENT
    w.had(v, v)
    if w.again(path, v):
        return
    w.add(path, Same(v))
    if issubclass(v, Decimal):
        w.decimal()
    if of_library(v.__module__):
        called(w, v)
    else:
        if isinstance(v, ABCMeta):
            w.setting(f"{path}.register", partial(registered, v))
        members(w, path, v, every=False)
        if not of_library(type(v).__module__):
            members(w, f"type of {path}", type(v))


def members(w: Record, path: str, kind: type, constructors: bool = True, every: bool = True) -> None:
    """The functions of a user's class, and those of its attributes that code may read.

    Args:
        w: The record of the walk.
        path: Path of the class or its object.
        kind: The class.
        constructors: Whether code may make objects of it.
        every: Whether all methods are followed; else those that code names or that Python calls for an attribute, unless code
            has an object of it whole.
    """
    w.values.append((reader(kind, "__mro__"), kind.__mro__))
    w.add(path, "bases", *map(Same, kind.__mro__))
    if not every and not w.follows_all(kind):
        _foresee(w, kind)
    every = every or w.follows_all(kind)
    if not every:
        w.choose_by_name()
        w.by_names.add(kind)
    for base in kind.__mro__:
        if base is object or of_library(base.__module__):
            continue
        space: Any = vars(base)
        if not any(known is base for known in w.classes):
            w.classes.append(base)
            w.lists.append((space, tuple(space)))
        for name, member in list(space.items()):
            if name in _CONSTRUCTORS and not constructors:
                continue
            if not every and not w.follows(kind, name):
                continue
            for fn in _parts(member):
                through = _function_of(fn)
                if through is not None:
                    w.slots.append((space, name, member))
                    w.visit(f"{path}.{name}", through)
                elif fn is not None and not name.startswith("__"):
                    w.choose_by_name()
                    if name in w.names or w.every_name:
                        w.slots.append((space, name, member))
                        if not every:
                            w.spare(name, fn)
                        w.visit(f"{path}.{name}", fn)


def _parts(member: Any) -> tuple[Any, ...]:
    """The functions of a property; what a static or class method calls; else the member itself, also of a user's kind."""
    own = () if of_library(type(member).__module__) else (member,)
    if isinstance(member, property):
        return member.fget, member.fset, member.fdel, *own
    inner = getattr(member, "__func__", member)
    return (inner,) if inner is member else (inner, *own)


def _function_of(member: Any) -> FunctionType | None:
    """The Python function that a member of a class is, or that one of a library's kinds calls."""
    if isinstance(member, FunctionType):
        return member
    held = space_of(member) or {} if of_library(type(member).__module__) else {}
    through = held.get("__wrapped__", held.get("func"))
    return through if isinstance(through, FunctionType) else None


def _foresee(w: Record, kind: type) -> None:
    """Note the names in those methods of a class that code may call, before anything is chosen by them; if one of these passes
    on its object, code has this whole."""
    open_ = {}
    for base in kind.__mro__:
        if base is not object and not of_library(base.__module__):
            open_.update({(base, name): member for name, member in vars(base).items() if name not in _CONSTRUCTORS})
    more = True
    while more and not w.follows_all(kind):
        reached = [at for at in open_ if w.follows(kind, at[1])]
        more = bool(reached)
        for at in reached:
            member = open_.pop(at)
            for fn in _parts(member):
                through = _function_of(fn)
                if through is not None and not of_library(through.__module__):
                    _names(w, through.__code__)
                if _binds(member) and fn is not None and _passes_on(fn):
                    w.takes(kind)


def _binds(member: Any) -> bool:
    """Whether what a class holds is given the object or the class when code reads it as an attribute of these."""
    return not isinstance(member, staticmethod) and any(hasattr(type(member), n) for n in ("__get__", "__set__", "__delete__"))


def _passes_on(fn: Any) -> bool:
    """Whether what a class has for a method or attribute may have the object whole that it belongs to."""
    if isinstance(fn, (MemberDescriptorType, GetSetDescriptorType)):
        return False
    through = getattr(type(fn), "__jit_through__", None)
    if through is not None:
        fn = getattr(fn, through)
    elif isinstance(fn, cached_property):
        fn = fn.func
    return not isinstance(fn, FunctionType) or of_library(fn.__module__) or passes_first(fn.__code__)


def is_called(w: Record, fn: Any) -> bool:
    """Whether the compiled function, which is only called, is an object: then its ``__call__`` is."""
    if isinstance(fn, type):
        return False
    if not isinstance(fn, (FunctionType, MethodType)):
        w.calls(type(fn))
    return True


def arguments_for_attributes(fn: Any) -> frozenset[str]:
    """The arguments of a function of which it only reads and sets attributes or calls methods."""
    if isinstance(fn, MethodType):
        fn = fn.__func__
    if not isinstance(fn, FunctionType) or of_library(fn.__module__) or not fn.__dict__.keys().isdisjoint(_SIGNATURES):
        return frozenset()
    code = fn.__code__
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) - uses_of(code).variables


def _ours(module: Any) -> bool:
    """Whether code is Firebrick's own, which reads nothing outside that a graph would keep."""
    return isinstance(module, str) and module.partition(".")[0] == "firebrick"
