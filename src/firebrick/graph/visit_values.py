"""How a walk goes through values: tensors, plain values, containers, arrays, objects and what libraries' objects hold.

Each function takes the record of the walk, the path of a value in the user's words, and the value. Those of ``RECOGNISED``
look at the value itself, since no type describes it, and return whether they have walked through it.
"""

from __future__ import annotations

import random
import sys
from array import array as packed
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import is_dataclass
from decimal import Decimal
from functools import partial
from gc import get_referents
from operator import attrgetter, methodcaller
from types import MethodType, ModuleType
from typing import Any
from weakref import CallableProxyType, ProxyType, ref

import numpy as np

from firebrick.core.errors import TraceError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.contents import content_of, is_shared_memory
from firebrick.graph.plain import LIBRARIES, OPEN, PLAIN, Same, of_library, plain_key
from firebrick.graph.record import Attributes, Record
from firebrick.graph.spaces import ABSENT, bits_of, defaults_of, never, place_of, reader, slots_of, space_of, space_reader
from firebrick.graph.streams import of_torch, state_of
from firebrick.graph.visit_code import called, members, state_reader

_BARE = frozenset({bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset, deque})
"""Types whose values have neither attributes nor members of a user's class; subclasses are not among them."""
_KEYS = (*PLAIN, tuple)  # keys of a dict that a path shows
_BUILT_IN = 1 << 20  # bytes of a host array up to which a graph may have its values built in


# tensors and plain values


def tensor(w: Record, path: str, v: Tensor) -> None:
    """A leaf: its kind is a part of the key, its values are read at each call."""
    first = w.seen.get(id(v))  # as ``again`` does, but without a call: there may be thousands
    if first is not None:
        w.entries.append((path, "same", first))
        return
    w.seen[id(v)] = path
    w.found.append(v)
    kind = type(v)
    # not asked of a plain tensor, which has no such attribute: the error for it takes longer than all the rest
    frozen = None if kind is Tensor else getattr(v, "frozen", None)
    w.entries.append((path, "tensor", kind, v.dtype, v.shape, v.device, frozen))
    w.leaves.append((path, v))
    w.frozen.append((kind, frozen))


def number(w: Record, path: str, v: Weak) -> None:
    """A Python number among the arguments of a trace, which any number of its kind may replace."""
    w.add(path, "number", v.kind)


def plain(w: Record, path: str, v: Any) -> None:
    """A plain value, which a graph has built in."""
    kind = type(v)
    if kind is str:  # the most frequent ones: names of parameters
        w.strings.add(v)
        w.entries.append((path, (kind, v)))
        return
    if isinstance(v, str):
        w.strings.add(v)
    w.add(path, plain_key(v))
    if kind not in _BARE:
        attributes(w, path, v)


def scalar(w: Record, path: str, v: np.generic) -> None:
    """A NumPy scalar."""
    w.add(path, type(v), v.tobytes())


def attributes(w: Record, path: str, v: Any) -> None:
    """What a value of a library's type has besides what every one of this type has: a default factory; members and attributes
    of a user's class."""
    kind = type(v)
    if kind is defaultdict:
        w.value(f"{path}.default_factory", reader(v, "default_factory"))
    if of_library(kind.__module__) or (isinstance(v, PLAIN) and w.again(path, v)):
        return
    members(w, path, kind, constructors=False)
    space = None if isinstance(v, ModuleType) else space_of(v)  # that of a module is read by name
    if space is not None:  # also an empty one, which may get its first attribute
        w.visit(f"{path}.__dict__", space)
    for name in [n for base in kind.__mro__ for n in slots_of(base) if not n.startswith("__")]:
        _slot(w, path, v, name)


# containers


def _visit(w: Record, path: str, v: Any) -> None:
    """A value of any type."""
    w.visit(path, v)


def sequence(w: Record, path: str, v: Any) -> None:
    """A list, tuple or deque."""
    if (type(v) is tuple and _only_plain(v)) or not w.again(path, v):
        w.add(path, type(v), len(v))
        if not isinstance(v, tuple):
            w.lists.append((v, tuple(v)))
        exact = w.exact
        for i, item in enumerate(v):
            (exact.get(type(item)) or _visit)(w, f"{path}[{i}]", item)
        if type(v) not in _BARE:
            attributes(w, path, v)


def _only_plain(v: tuple[Any, ...]) -> bool:
    """Whether a tuple holds plain values only: it does not show whether two of them that look alike are one."""
    for item in v:  # noqa: SIM110 - a loop is quicker
        if type(item) is not str and not isinstance(item, PLAIN):
            return False
    return True


def mapping(w: Record, path: str, v: Any) -> None:
    """A dict or a read-only view of one."""
    if not w.again(path, v):
        w.add(path, type(v), len(v))
        w.lists.append((v, tuple(v)))
        exact = w.exact
        for i, (k, item) in enumerate(v.items()):
            w.slots.append((v, k, item))
            if type(k) is not str and not isinstance(k, _KEYS):
                w.visit(f"key {i} of {path}", k)
                k = i
            (exact.get(type(item)) or _visit)(w, f"{path}[{k!r}]", item)
        if type(v) not in _BARE:
            attributes(w, path, v)


def dict_view(w: Record, path: str, v: Any) -> None:
    """The keys, values or items of a dict: the dict."""
    w.visit(path, v.mapping)


def unordered(w: Record, path: str, v: Any) -> None:
    """A set, in an order that equal sets share."""
    if not w.again(path, v):
        w.add(path, type(v), len(v))
        w.lists.append((v, tuple(v)))
        for i, item in enumerate(sorted(v, key=place_of)):
            w.visit(f"item {i} of {path}", item)
        attributes(w, path, v)


def weak_collection(w: Record, path: str, v: Any) -> None:
    """A dict or set of weak references: the container of these references."""
    w.visit(path, vars(v)["data"])


def environment(w: Record, path: str, v: Any) -> None:
    """``os.environ``, which is walked again at each call: other code may set variables past Python."""
    w.add(path, "environment", hash(tuple(v.items())))
    w.values.append((never, None))


# arrays


def array(w: Record, path: str, v: np.ndarray[Any, Any]) -> None:
    """A NumPy array: its bits, or its items if these are objects."""
    _bits(w, path, v)
    attributes(w, path, v)


def _bits(w: Record, path: str, v: np.ndarray[Any, Any]) -> None:
    if w.again(path, v):
        return
    if v.dtype == object:
        w.add(path, "array", v.shape)
        read = partial(_items, v)
        w.contents.append((read, read()))
        for i, item in enumerate(v.flat):
            w.visit(f"{path}.flat[{i}]", item)
    else:
        content = bits_of(v)
        w.add(path, "array", *content)
        w.arrays.append((v, content))
        if v.dtype.hasobject:  # in the fields of its records
            w.visit(f"{path}.tolist()", v.tolist())
        if v.nbytes > _BUILT_IN:
            w.big.append((path, v))


def _items(v: np.ndarray[Any, Any]) -> tuple[Same, ...]:
    """The objects in an array, each equal to itself only. A reshaped array may be a copy, which shows no later change."""
    return tuple(map(Same, v.flat))


# values behind others


def weak_reference(w: Record, path: str, v: ref[Any]) -> None:
    """What a weak reference refers to."""
    content = v()
    w.values.append((v, content))
    (w.exact.get(type(content)) or _visit)(w, path, content)


def context_variable(w: Record, path: str, v: ContextVar[Any]) -> None:
    """A context variable: its value in this context, or its default."""
    w.value(path, partial(_current, v))


def _current(v: ContextVar[Any]) -> Any:
    try:
        return v.get()
    except LookupError:
        return None


# recognised by looking at the value


def recognised(w: Record, path: str, v: Any) -> None:
    """A value that is of no type of the table: the first of ``RECOGNISED`` that knows it, or an object as any other."""
    for walked in RECOGNISED:
        if walked(w, path, v):
            attributes(w, path, v)
            return
    _object(w, path, v)


def _proxy(w: Record, path: str, v: Any) -> bool:
    if type(v) not in (ProxyType, CallableProxyType):
        return False
    w.visit(path, v.__repr__.__self__)  # the object itself: a bound method of a proxy is that of its object
    return True


def _contents(w: Record, path: str, v: Any) -> bool:
    """What libraries' objects hold outside of Python (ctypes, mmap, open files), and the state of locks and queues."""
    read = content_of(path, v) or state_reader(w, v)
    if read is None:
        return False
    if w.again(path, v):
        return True
    content = read()
    w.add(path, type(v).__name__, content)
    w.contents.append((read, content))
    if isinstance(v, np.void) and v.dtype.hasobject:
        w.visit(path, v.item())
    elif isinstance(v, np.flatiter):
        w.visit(f"{path}.base", v.base)
    elif is_shared_memory(v):
        w.visit(f"{path}.buf", v.buf)
    elif isinstance(v, (bytearray, packed)):
        w.bytes.append(v)
    return True


def _shared_ctypes(w: Record, path: str, v: Any) -> bool:
    if type(v).__module__ != "multiprocessing.sharedctypes":
        return False
    w.visit(path, v._obj)
    return True


def _getter(w: Record, path: str, v: Any) -> bool:
    """``attrgetter`` and ``methodcaller`` read attributes whose names are values."""
    if not isinstance(v, (attrgetter, methodcaller)):
        return False
    w.every_name = True
    w.visit(path, v.__reduce__()[1])
    return True


def _iterator(w: Record, path: str, v: Any) -> bool:
    if not (isinstance(v, Iterator) and type(v).__module__ in ("builtins", "itertools")) and not isinstance(v, np.nditer):
        return False
    raise TraceError(
        "a function under jit takes no items from an iterator, which would happen while it is traced only",
        f"{path}: {type(v).__name__}",
        "take the item before the call and pass it in, or keep a list",
    )


def _torch_tensor(w: Record, path: str, v: Any) -> bool:
    if type(v).__module__.partition(".")[0] != "torch" or not hasattr(v, "data_ptr"):
        return False
    _bits(w, path, v.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy())
    w.values.append((reader(v, "_version"), v._version))
    return True


def _stream(w: Record, path: str, v: Any) -> bool:
    """A random generator of NumPy, Python or PyTorch, whose state is compared at each call."""
    if not isinstance(v, (np.random.Generator, np.random.RandomState, random.Random)) and not of_torch(v):
        return False
    w.add(path, "stream", type(v), state_of(v))
    w.values.append((never, None))
    w.draws.append(v)
    return True


# the order matters: a file in memory is an iterator too, and its contents can be compared
RECOGNISED: tuple[Callable[[Record, str, Any], bool], ...] = (
    _proxy, _contents, _shared_ctypes, _getter, _iterator, _torch_tensor, _stream,
)  # fmt: skip


# objects


def _object(w: Record, path: str, v: Any) -> None:
    """An object: what its class says of it, else its attributes and slots that code may read."""
    kind = type(v)
    w.had(v, kind)
    if w.again(path, v):
        return
    if isinstance(v, Decimal):
        w.decimal()
        w.add(path, "decimal", str(v))
        attributes(w, path, v)
        return
    if getattr(kind, "__jit_constant__", False):
        w.add(path, "object", Same(v))
        return
    if "cython_function" in kind.__name__:
        called(w, v)
    if getattr(kind, "__jit_leaf__", False):
        w.add(path, "generator", hooks.methods["find_generator"](v) is not None)
        w.generators.append((path, v))
        return
    through = getattr(kind, "__jit_through__", None)
    if through is not None:
        w.visit(path, getattr(v, through))
        return
    space = space_of(v)
    if isinstance(v, BaseException):
        w.value(f"{path}.args", reader(v, "args"))
    if space and "__wrapped__" in space:
        w.visit(path, space["__wrapped__"])
    slots = [n for base in kind.__mro__ for n in slots_of(base) if not n.startswith("__")]
    torch = space is not None and "_parameters" in space  # a module of torch
    root = kind.__module__.partition(".")[0]
    closed = root in LIBRARIES and root not in OPEN and not torch  # locks, loggers, files, other libraries' objects
    if (space is None and not slots) or closed:
        _holds(w, v)
        w.add(path, "object", Same(v))
        return
    versioned = getattr(kind, "versioned", False)
    w.add(path, "object", kind)
    library = of_library(kind.__module__)
    if not library:
        members(w, path, kind, constructors=False, every=False)
    whole = library or w.follows_all(kind)
    chosen = versioned or library or (is_dataclass(v) and whole) or w.every_name or torch or w.reads_all(kind)
    if not chosen:
        w.choose_by_name()
    if space is not None:
        _own_attributes(w, path, v, space, versioned, chosen, whole)
    for name in slots:
        if chosen or name in w.names:
            _slot(w, path, v, name, whole)


_LOOKUP: Any = object.__getattribute__


def _slot(w: Record, path: str, v: Any, name: str, whole: bool = True) -> None:
    """What an object has in one of its class's ``__slots__``."""
    item = getattr(v, name, ABSENT)
    w.values.append((reader(v, name), item))
    w.fields.append((v, name, item))
    if item is not ABSENT:
        if not whole:
            w.spare(name, item)
        w.visit(f"{path}.{name}", item)


def _holds(w: Record, v: Any, depth: int = 3) -> None:
    """Note that a library has the objects whole that this object of it, which is not walked through, holds."""
    for item in get_referents(v):
        kind = type(item)
        if kind in (dict, list, tuple, set, frozenset, MethodType, partial):
            if depth:
                _holds(w, item, depth - 1)
        elif not isinstance(item, (type, ModuleType)):
            w.takes(kind)


def _own_attributes(
    w: Record, path: str, v: Any, space: dict[str, Any], versioned: bool, chosen: bool, whole: bool
) -> None:  # fmt: skip
    """The attributes in an object's ``__dict__``: all if they are ``chosen``, else those that code names.

    A ``versioned`` class raises ``hooks.settings`` when one of them is set, so they are compared only then.
    """
    kind = type(v)
    unwatched, ties = getattr(kind, "unwatched", ()), getattr(kind, "ties", ())
    w.objects.append(v)
    if not versioned:
        w.lists.append((space, tuple(space)))
        w.values.append((reader(v, "__class__"), v.__class__))
        if kind.__weakrefoffset__ and kind.__getattribute__ is _LOOKUP:
            w.owners.append((ref(v), space))
        else:
            w.values.append((space_reader(v), space))
    seen = {**defaults_of(kind), **space} if versioned else space
    if versioned:
        w.owned.append(Attributes(v, space.items(), unwatched))
    exact = w.exact
    for name, item in list(seen.items()):
        if (chosen or name in w.names) and name not in unwatched and not name.startswith("__"):
            if not versioned:
                w.slots.append((space, name, item))
            if name in ties:
                w.ties[f"{path}.{name}"] = item
            else:
                if not whole:
                    w.spare(name, item)
                (exact.get(type(item)) or _visit)(w, f"{path}.{name}", item)
