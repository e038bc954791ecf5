"""Access to an object's own attributes and slots without running its code, by functions that do not keep the object alive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import local
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from firebrick.graph.plain import PLAIN, of_library

ABSENT: Any = object()


def never() -> Any:
    """A value that never equals the one seen before."""
    return ABSENT


def place_of(item: Any) -> str:
    return repr(item) if isinstance(item, (*PLAIN, tuple)) else f"{type(item).__name__} {id(item)}"


def bits_of(v: np.ndarray[Any, Any]) -> Any:
    """A host array for comparison: its bits, what they mean, and how they lie in memory."""
    kind = v.dtype.str if v.dtype.names is None else repr(v.dtype)
    return kind, v.shape, v.tobytes(), v.strides, v.flags.writeable


_defaults: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()  # a class's methods may hold a whole model


def defaults_of(kind: type) -> dict[str, Any]:
    """Plain class attributes of Firebrick's bases of a class, which an instance may hide by its own."""
    known = _defaults.get(kind)
    if known is None:
        bases = [base for base in reversed(kind.__mro__) if of_library(base.__module__)]
        found = {n: v for base in bases for n, v in vars(base).items() if isinstance(v, PLAIN)}
        known = _defaults[kind] = {n: v for n, v in found.items() if not n.startswith("__") and n != "versioned"}
    return known


def space_of(v: Any) -> dict[str, Any] | None:
    """An object's own attributes, without its class's ``__getattribute__``."""
    try:
        space = v.__dict__ if isinstance(v, local) else object.__getattribute__(v, "__dict__")
    except AttributeError:
        return None
    return space if isinstance(space, dict) else None


def space_reader(v: Any) -> Callable[[], Any]:
    """A function that returns ``space_of`` an object: another dict may take the place of its own."""
    try:
        held = ref(v)
    except TypeError:
        return partial(space_of, v)
    return lambda: space_of(held())


def weakly(v: Any, gone: Callable[[Any], None]) -> Callable[[], Any]:
    """A function that returns an object without keeping it alive, if its class allows weak references."""
    if isinstance(v, MethodType):
        return lambda: v
    try:
        return ref(v, gone)
    except TypeError:
        return lambda: v


def reader(v: Any, name: str) -> Callable[[], Any]:
    try:
        held = ref(v)
    except TypeError:
        return partial(getattr, v, name, ABSENT)
    return lambda: getattr(held(), name, ABSENT)


def slots_of(base: type) -> tuple[str, ...]:
    """The names of a class's own ``__slots__``, as code in it has them."""
    names = base.__dict__.get("__slots__", ())
    own = base.__name__.lstrip("_")
    return tuple(
        [
            f"_{own}{n}" if n.startswith("__") and not n.endswith("__") and own else n
            for n in ((names,) if isinstance(names, str) else names)
        ]
    )
