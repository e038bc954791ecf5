"""The arguments of a call, split into values that a graph reads at each run and values that it has built in."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from firebrick.core.dtypes import python_kind
from firebrick.core.operands import not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, number_kind
from firebrick.graph.plain import PLAIN, of_library, plain_key


class Flat:
    """The arguments of one call, split into tensors, numbers, objects, and the rest as a key."""

    __slots__ = ("named", "numbers", "objects", "tensors")

    def __init__(self, named: list[tuple[str, str]] | None = None) -> None:
        self.tensors: list[Tensor] = []
        self.numbers: list[Any] = []
        self.objects: list[tuple[str, Any]] = []
        self.named = named  # (path, what) of every part, if names are needed

    def key(self, path: str, v: Any, fn: str) -> Any:
        """The part of the key that an argument makes; its tensors and numbers are appended to those of ``self``.

        Args:
            path: Its path, for messages.
            v: The argument.
            fn: The function's name, for messages.
        """
        kind = type(v)
        if kind is list or kind is tuple:  # first, and without the questions below: most calls of models have one
            return self._sequence(path, v, fn)
        if isinstance(v, Tensor):
            self.tensors.append(v)
            frozen = None if kind is Tensor else getattr(v, "frozen", None)  # which a plain tensor has not
            part: Any = (kind, v.shape, v.dtype, v.device, frozen)
            described = f"{v.aval} on {v.device}" if self.named is not None else ""
        elif kind is float or kind is int or (isinstance(v, np.generic) and number_kind(kind)):
            self.numbers.append(v)
            part, described = kind, f"{kind.__name__} (any)"
        elif isinstance(v, np.generic) and python_kind(kind):  # a bool or complex number, static as Python's are
            part, described = (kind, v.tobytes()), repr(v)
        elif isinstance(v, PLAIN) and not isinstance(v, np.generic):
            part = plain_key(v)
            described = repr(v)
        elif isinstance(v, (list, tuple)):
            return (*self._sequence(path, v, fn), self._attributes(path, v))
        elif isinstance(v, dict):
            if self.named is not None:
                self.named.append((path, f"{kind.__name__} with {', '.join(map(str, v))}"))
            items = (kind, *((type(k), k, self.key(f"{path}[{k!r}]", item, fn)) for k, item in v.items()))
            return items if kind is dict else (*items, self._attributes(path, v))
        elif isinstance(v, (np.ndarray, np.generic)):
            raise not_a_tensor(fn, path, v, None)
        else:
            self.objects.append((path, v))
            part, described = kind, kind.__name__
        if self.named is not None:
            self.named.append((path, described))
        return part

    def _sequence(self, path: str, v: Any, fn: str) -> tuple[Any, ...]:
        """The key of a list or tuple and its items."""
        kind, named, tensors = type(v), self.named, self.tensors
        if named is not None:
            named.append((path, f"{kind.__name__} of {len(v)}"))
        parts: list[Any] = [kind]
        for i, item in enumerate(v):
            if type(item) is Tensor and named is None:  # without a call and a path: lists of parameters are long
                tensors.append(item)
                parts.append((Tensor, item.shape, item.dtype, item.device, None))
            else:
                parts.append(self.key(f"{path}[{i}]", item, fn))
        return tuple(parts)

    def _attributes(self, path: str, v: Any) -> Any:
        """The key of what a container has besides its items: a user's class, attributes, a default factory."""
        held = dict(getattr(v, "__dict__", {}))
        if isinstance(v, defaultdict):
            held["default_factory"] = v.default_factory
        if not of_library(type(v).__module__):
            held["class"] = type(v)
        plain = []
        for name, item in held.items():
            if isinstance(item, PLAIN):
                plain.append((name, plain_key(item)))
            else:
                self.objects.append((f"{path}.{name}", item))
        return tuple(plain)

    def paths(self) -> list[str]:
        """The user's name for each tensor."""
        named = [p for p, described in self.named or [] if " on " in described]
        return named if len(named) == len(self.tensors) else [f"argument {i}" for i in range(len(self.tensors))]


def for_trace(name: str, v: Any, numbers: list[Weak], twins: Mapping[int, Tensor]) -> Any:
    """An argument with its numbers replaced by ``Weak``, and tensors by their ``twins`` if they have one."""
    kind = type(v)
    if isinstance(v, Tensor):
        return twins.get(id(v), v)
    if kind is float or kind is int or (isinstance(v, np.generic) and number_kind(kind)):
        at = len(numbers)
        numbers.append(Weak(kind, name, lambda given: given[at]))
        return numbers[-1]
    if isinstance(v, (list, tuple)):
        parts = [for_trace(f"{name}[{i}]", item, numbers, twins) for i, item in enumerate(v)]
        if all(a is b for a, b in zip(parts, v, strict=True)):
            return v
        return refilled(kind if kind is list or isinstance(v, tuple) else copy(v), parts)
    if isinstance(v, dict):
        built = {k: for_trace(f"{name}[{k!r}]", item, numbers, twins) for k, item in v.items()}
        if all(built[k] is v[k] for k in v):
            return v
        return refilled(copy(v), built)
    return v


def refilled(like: Any, items: Any) -> Any:
    """A container of these items: of the class ``like``, made without its constructor if it is a tuple or frozenset, or in a
    copy of the container ``like``."""
    kind: Any = like
    if isinstance(like, type):
        if issubclass(like, tuple):
            return tuple.__new__(like, items)
        return frozenset.__new__(like, items) if issubclass(like, frozenset) else kind(items)
    made = copy(like)
    if isinstance(made, (list, deque)):
        made.clear()
        made.extend(items)
    else:
        made.update(items)
    return made
