"""The results of a traced function: how they are rebuilt from the outputs of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from firebrick.autodiff.gradients import Gradients
from firebrick.core.errors import TraceError
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.arguments import refilled
from firebrick.graph.plain import PLAIN
from firebrick.graph.program import Program
from firebrick.graph.spaces import slots_of
from firebrick.graph.trace import Trace

_MADE_ANEW = frozenset({"sequence", "dict", "object"})


class Results:
    """How the results of a traced function are rebuilt from the storages of a run.

    Args:
        trace: The trace.
        handles: Positions of the call's tensors, by id.
        known: Positions, in a walk, of the objects that existed before the call, by id.
    """

    def __init__(self, trace: Trace, handles: dict[int, int], known: Mapping[int, int]) -> None:
        self.trace, self.handles, self.known = trace, handles, known
        self.values: list[int] = []
        self.tracked: dict[int, Tensor] = {}
        self._slots: dict[tuple[int, bool], int] = {}
        self._made: dict[int, int] = {}
        self._held: list[Any] = []  # so that no id is used twice
        self._around: list[int] = []  # ids of the containers and objects whose parts are being visited

    def slot(self, number: int, tracked: bool = False) -> int:
        found = self._slots.get((number, tracked))
        if found is None:
            found = self._slots[number, tracked] = len(self.values)
            self.values.append(number)
        return found

    def callback(self, fn: Any, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """The recipe of a callback, a function and its arguments, and the positions of the values in it."""
        self._made, self._held = {}, []
        try:
            found = self.recipe((fn, args))
        except TraceError as e:
            raise TraceError(
                f"{self.trace.name} passes tensors and plain values to a callback that it can find again at each call",
                f"{getattr(fn, '__qualname__', type(fn).__name__)}: {e.received}",
                "pass a function of a module, or a method of an object that an argument or the compiled function holds",
            ) from e
        return found, tuple(dict.fromkeys(positions(found, "new")))

    def recipe(self, v: Any) -> tuple[Any, ...]:
        if isinstance(v, Tensor):
            at = self.handles.get(id(v))
            if at is not None:
                return "handle", at
            first = self._made.get(id(v))
            if first is not None:
                return "again", first
            self._note(v)
            slot = self.slot(self.trace.number(v), v.node is not None)
            if v.node is not None:
                self.tracked.setdefault(slot, v)
            return "new", slot, v.node is not None, v.device, v.label
        if isinstance(v, Weak):
            return "number", v
        if isinstance(v, Gradients):
            first = self._made.get(id(v))
            if first is not None:
                return "again", first
            parts: list[tuple[tuple[Any, ...] | None, tuple[Any, ...]]] = []
            for t, _, g in v.parts():
                if t is not None and id(t) not in self.handles:
                    raise TraceError(
                        f"{self.trace.name} returns gradients of a tensor that it made itself",
                        f"{t.aval}",
                        "differentiate by arguments or captured parameters, or return grads[x]",
                    )
                parts.append((None if t is None else ("handle", self.handles[id(t)]), self.recipe(g)))
            rebound = [("handle", at) for t in v.rebound() if (at := self.handles.get(id(t))) is not None]
            valid = ("plain", None) if v.valid is None else self.recipe(v.valid)
            self._note(v)
            return "gradients", parts, rebound, [label for _, label, _ in v.parts()], valid
        if isinstance(v, PLAIN):
            return "plain", v
        if id(v) in self.known:
            return "known", self.known[id(v)]
        if id(v) in self._around:
            raise self._refused(f"a {type(v).__name__} that holds itself", "return the parts")
        first = self._made.get(id(v))
        if first is not None:
            return "again", first
        self._around.append(id(v))
        try:
            found = self._parts(v)
        finally:
            self._around.pop()
        if found[0] in _MADE_ANEW:
            self._note(v)
        return found

    def _note(self, v: Any) -> None:
        """Note that ``rebuild`` makes a value now, so that where it is met again it is the same one."""
        self._made[id(v)] = len(self._held)
        self._held.append(v)

    def _parts(self, v: Any) -> tuple[Any, ...]:
        """The recipe of a container or an object."""
        if isinstance(v, (list, tuple, set, frozenset, deque)):
            return "sequence", _emptied(v), [self.recipe(i) for i in v]
        if isinstance(v, dict):
            return "dict", _emptied(v), [(k, self.recipe(i)) for k, i in v.items()]
        if isinstance(v, (ModuleType, type)):
            return "plain", v
        if isinstance(v, (np.ndarray, np.generic, bytearray)) and not (isinstance(v, np.ndarray) and v.dtype.hasobject):
            return "object", copy(v), []
        if isinstance(v, MethodType) and id(v.__self__) in self.known:
            return "bound", v.__func__, self.recipe(v.__self__)
        if isinstance(v, (FunctionType, BuiltinFunctionType)) and _holds_nothing(v):
            return "plain", v
        space = getattr(v, "__dict__", None)
        held = attributes(v)
        if (type(space) is dict or held) and not isinstance(v, (FunctionType, MethodType, partial)):
            return "object", copy(v), [(k, self.recipe(i)) for k, i in held]
        raise self._refused(
            f"a {type(v).__name__}, which would be the same one at each call",
            "return tensors, numbers and containers or objects of these; make the rest of them after the call",
        )

    def _refused(self, received: str, remedy: str) -> TraceError:
        return TraceError(f"{self.trace.name} returns what a graph can make anew at each call", received, remedy)


def positions(recipe: tuple[Any, ...], kind: str) -> list[int]:
    """The positions in a recipe: of the tensors that it makes among the results (``new``), or in a walk (``known``)."""
    if recipe[0] == kind:
        return [recipe[1]]
    if recipe[0] == "bound":
        return positions(recipe[2], kind)
    if recipe[0] == "gradients":
        return [position for part in (*[r for _, r in recipe[1]], recipe[4]) for position in positions(part, kind)]
    inside = {"sequence": 2, "dict": 2, "object": 2}.get(recipe[0])
    if inside is None:
        return []
    parts = recipe[inside] if recipe[0] == "sequence" else [r for _, r in recipe[inside]]
    return [position for part in parts for position in positions(part, kind)]


def moved(recipe: tuple[Any, ...], handle: Callable[[int], tuple[Any, ...]], known: Callable[[int], int]) -> tuple[Any, ...]:
    """A recipe with other positions: a trace that begins state changes where a walk finds what was there before.

    Args:
        recipe: The recipe.
        handle: From a position among the handles of the trace to the recipe of that handle in a call.
        known: From the position of an object in the walk before the trace to that in a later walk.
    """
    kind = recipe[0]
    if kind == "handle":
        return handle(recipe[1])
    if kind == "known":
        return kind, known(recipe[1])
    if kind == "bound":
        return kind, recipe[1], moved(recipe[2], handle, known)
    if kind == "sequence":
        return kind, recipe[1], [moved(r, handle, known) for r in recipe[2]]
    if kind in ("dict", "object"):
        return kind, recipe[1], [(k, moved(r, handle, known)) for k, r in recipe[2]]
    if kind == "gradients":
        parts = [(None if t is None else moved(t, handle, known), moved(r, handle, known)) for t, r in recipe[1]]
        return kind, parts, [moved(t, handle, known) for t in recipe[2]], recipe[3], moved(recipe[4], handle, known)
    return recipe


def _emptied(v: Any) -> Any:
    """A container of a class of its own without its items; the class of a plain one, and of tuples."""
    kind = type(v)
    if kind in (list, tuple, set, frozenset, dict) or isinstance(v, (tuple, frozenset)):
        return kind
    made = copy(v)
    made.clear()
    return made


def _holds_nothing(v: FunctionType | BuiltinFunctionType) -> bool:
    """Whether a function holds no values, which would be those of the call that was traced."""
    if isinstance(v, BuiltinFunctionType):
        return v.__self__ is None or isinstance(v.__self__, ModuleType)
    return not (v.__closure__ or v.__defaults__ or v.__kwdefaults__)


def attributes(v: Any) -> list[tuple[str, Any]]:
    """The attributes of an object, in its ``__dict__`` and its slots."""
    space = getattr(v, "__dict__", None)
    slots = [n for base in type(v).__mro__ for n in slots_of(base) if not n.startswith("__") and hasattr(v, n)]
    return [*(space.items() if type(space) is dict else ()), *((n, getattr(v, n)) for n in slots)]


def shown(storage: Storage, program: Program, slot: int) -> Tensor:
    """A handle on the result number ``slot`` of a run, of the shape and dtype known for it."""
    shape, dtype = program.results[slot][2]
    return Tensor(storage, dtype, shape, program.device)  # type: ignore[arg-type]


def rebuild(recipe: tuple[Any, ...], made: Callable[[int], Tensor], call: Call, new: list[Any]) -> Any:
    """The return value of a traced function, rebuilt from a call's own values.

    Args:
        recipe: How it is rebuilt: a kind, then the parts that the kind needs.
        made: The tensor of a position among the program's results.
        call: The arguments and state that the result may hold.
        new: A list that new handles, containers and objects are appended to, in the order in which they are complete.
    """
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
        new.append(refilled(recipe[1], [rebuild(r, made, call, new) for r in recipe[2]]))
        return new[-1]
    if kind == "dict":
        new.append(refilled(recipe[1], {k: rebuild(r, made, call, new) for k, r in recipe[2]}))
        return new[-1]
    if kind == "known":
        return call.known[recipe[1]]
    if kind == "bound":
        return MethodType(recipe[1], rebuild(recipe[2], made, call, new))
    if kind == "object":
        again = copy(recipe[1])
        for name, r in recipe[2]:
            object.__setattr__(again, name, rebuild(r, made, call, new))
        new.append(again)
        return again
    if kind == "gradients":
        _, parts, rebound, labels, valid = recipe
        pairs = [(None if t is None else rebuild(t, made, call, new), rebuild(r, made, call, new)) for t, r in parts]
        gradients = Gradients.of(pairs, [rebuild(t, made, call, new) for t in rebound], labels)
        gradients.valid = rebuild(valid, made, call, new)
        new.append(gradients)
        return gradients
    return recipe[1]


@dataclass
class Call:
    """The values of one call: its tensors in order, its Python numbers, and a way to the objects that it found."""

    handles: list[Tensor]
    numbers: list[Any]
    find: Callable[[], Any]

    @cached_property
    def known(self) -> Any:
        """The objects that existed before the call, by their positions in a walk."""
        return self.find()
