"""The results of a traced function: how they are made again from what a run gives."""

from __future__ import annotations

from collections.abc import Callable, Container
from copy import copy
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from firebrick.autodiff.gradients import Gradients
from firebrick.core.errors import TraceError
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.program import Program
from firebrick.graph.trace import Trace


class Results:
    """How the results of a traced function are made again from the storages of a run."""

    def __init__(self, trace: Trace, handles: dict[int, int], known: Container[int]) -> None:
        self.trace, self.handles, self.known = trace, handles, known
        self.values: list[int] = []
        self.tracked: dict[int, Tensor] = {}
        self._slots: dict[tuple[int, bool], int] = {}
        self._made: dict[int, int] = {}
        self._count = 0

    def slot(self, number: int, tracked: bool = False) -> int:
        found = self._slots.get((number, tracked))
        if found is None:
            found = self._slots[number, tracked] = len(self.values)
            self.values.append(number)
        return found

    def recipe(self, v: Any) -> tuple[Any, ...]:
        if isinstance(v, Tensor):
            at = self.handles.get(id(v))
            if at is not None:
                return "handle", at
            first = self._made.get(id(v))
            if first is not None:
                return "again", first
            self._made[id(v)] = self._count
            self._count += 1
            slot = self.slot(self.trace.number(v), v.node is not None)
            if v.node is not None:
                self.tracked.setdefault(slot, v)
            return "new", slot, v.node is not None, v.device, v.label
        if isinstance(v, Weak):
            return "number", v
        if isinstance(v, Gradients):
            parts = []
            for t, g in v.by_handle():
                at = self.handles.get(id(t))
                if at is None:
                    raise TraceError(
                        f"{self.trace.name} returns gradients of a tensor that it made itself",
                        f"{t.aval}",
                        "differentiate by arguments or captured parameters, or return grads[x]",
                    )
                parts.append((at, self.recipe(g)))
            return "gradients", parts
        if isinstance(v, (list, tuple)):
            return "sequence", type(v), [self.recipe(i) for i in v]
        if isinstance(v, dict):
            return "dict", _emptied(v), [(k, self.recipe(i)) for k, i in v.items()]
        space = getattr(v, "__dict__", None)
        if type(space) is dict and id(v) not in self.known and not isinstance(v, (FunctionType, ModuleType, type)):
            return "object", copy(v), [(k, self.recipe(i)) for k, i in space.items()]
        return "plain", v


def _emptied(v: dict[Any, Any]) -> dict[Any, Any] | None:
    """A dict of a class of its own without its items; None for a plain one."""
    if type(v) is dict:
        return None
    made = copy(v)
    made.clear()
    return made


def shown(storage: Storage, program: Program, slot: int) -> Tensor:
    shape, dtype = program.results[slot][2]
    return Tensor(storage, dtype, shape, program.device)  # type: ignore[arg-type]


def rebuild(recipe: tuple[Any, ...], made: Callable[[int], Tensor], call: Call, new: list[Tensor]) -> Any:
    kind = recipe[0]
    if kind == "new":
        _, slot, tracked, device, label = recipe
        found = made(slot)
        t = Tensor(found.storage, found.dtype, found.shape, device, label)
        if tracked:
            t.node, t.slot = found.node, found.slot
        new.append(t)
        return t
    if kind == "handle":
        return call.handles[recipe[1]]
    if kind == "again":
        return new[recipe[1]]
    if kind == "number":
        return recipe[1].value(call.numbers)
    if kind == "sequence":
        parts = [rebuild(r, made, call, new) for r in recipe[2]]
        return recipe[1](*parts) if hasattr(recipe[1], "_fields") else recipe[1](parts)
    if kind == "dict":
        built = [(k, rebuild(r, made, call, new)) for k, r in recipe[2]]
        if recipe[1] is None:
            return dict(built)
        again = copy(recipe[1])
        again.update(built)
        return again
    if kind == "object":
        again = copy(recipe[1])
        again.__dict__.update([(k, rebuild(r, made, call, new)) for k, r in recipe[2]])
        return again
    if kind == "gradients":
        return Gradients.of([(call.handles[at], rebuild(r, made, call, new)) for at, r in recipe[1]])
    return recipe[1]


@dataclass
class Call:
    """The values of one call: its tensors in order, and its Python numbers."""

    handles: list[Tensor]
    numbers: list[Any]
