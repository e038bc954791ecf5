"""The arguments of a call, taken apart into what a graph reads at each run and what it has built in."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from firebrick.core.bind import not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.walk import PLAIN, plain_key


class Flat:
    """The arguments of one call, taken apart: tensors, numbers, objects, and the rest as a key."""

    __slots__ = ("named", "numbers", "objects", "tensors")

    def __init__(self, named: list[tuple[str, str]] | None = None) -> None:
        self.tensors: list[Tensor] = []
        self.numbers: list[Any] = []
        self.objects: list[tuple[str, Any]] = []
        self.named = named  # (path, what) of every part, where names are wanted

    def key(self, path: str, v: Any, fn: str) -> Any:
        kind = type(v)
        if isinstance(v, Tensor):
            self.tensors.append(v)
            part: Any = (kind, v.shape, v.dtype, v.device, getattr(v, "frozen", None))
            said = f"{v.aval} on {v.device}" if self.named is not None else ""
        elif kind is float or kind is int:
            self.numbers.append(v)
            part, said = kind, f"{kind.__name__} (any)"
        elif isinstance(v, PLAIN) and not isinstance(v, np.generic):
            part = plain_key(v)
            said = repr(v)
        elif isinstance(v, (list, tuple)):
            if self.named is not None:
                self.named.append((path, f"{kind.__name__} of {len(v)}"))
            return (kind, *(self.key(f"{path}[{i}]", item, fn) for i, item in enumerate(v)))
        elif isinstance(v, dict):
            if self.named is not None:
                self.named.append((path, f"{kind.__name__} with {', '.join(map(str, v))}"))
            return (kind, *((k, self.key(f"{path}[{k!r}]", item, fn)) for k, item in v.items()))
        elif isinstance(v, (np.ndarray, np.generic)):
            raise not_a_tensor(fn, path, v, None)
        else:
            self.objects.append((path, v))
            part, said = kind, kind.__name__
        if self.named is not None:
            self.named.append((path, said))
        return part

    def paths(self) -> list[str]:
        """What the user calls each tensor."""
        named = [p for p, said in self.named or [] if " on " in said]
        return named if len(named) == len(self.tensors) else [f"argument {i}" for i in range(len(self.tensors))]


def for_trace(name: str, v: Any, numbers: list[Weak], twins: Mapping[int, Tensor]) -> Any:
    """An argument with ``Weak`` in place of its Python numbers, and with ``twins`` in place of tensors that have one."""
    kind = type(v)
    if isinstance(v, Tensor):
        return twins.get(id(v), v)
    if kind is float or kind is int:
        at = len(numbers)
        numbers.append(Weak(kind, name, lambda given: given[at]))
        return numbers[-1]
    if isinstance(v, (list, tuple)):
        parts = [for_trace(f"{name}[{i}]", item, numbers, twins) for i, item in enumerate(v)]
        if all(a is b for a, b in zip(parts, v, strict=True)):
            return v
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    if isinstance(v, dict):
        built = {k: for_trace(f"{name}[{k!r}]", item, numbers, twins) for k, item in v.items()}
        if all(built[k] is v[k] for k in v):
            return v
        made = copy(v)
        made.update(built)
        return made
    return v
