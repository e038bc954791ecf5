"""``jit``: a function that is traced once for each kind of arguments and then runs as one program.

What a graph has built in is part of a key: shapes, dtypes and devices of tensors, every plain value that the function can
reach, and the context. What may differ from call to call is read anew each time: the values of tensors, Python
numbers among the arguments, the place of random generators. So no state is frozen, and none is forgotten.
"""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import update_wrapper
from itertools import count
from threading import Lock, RLock
from time import perf_counter
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy as np

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.residuals import strategy
from firebrick.autodiff.tape import grad_enabled, grad_mode
from firebrick.backends.dispatch import check_present
from firebrick.core.bind import not_a_tensor
from firebrick.core.config import config
from firebrick.core.errors import ConfigError, OperandError, StateChangedError, TraceError
from firebrick.core.hooks import hooks
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.call import Linear, Pulled, pull, split
from firebrick.graph.call import call as call_tracked
from firebrick.graph.differences import differences
from firebrick.graph.lines import user_frame, user_line
from firebrick.graph.passes import optimize
from firebrick.graph.passes.dead import without_inputs
from firebrick.graph.program import Program
from firebrick.graph.trace import Trace, Traced, alone, current, tracing
from firebrick.graph.walk import _PLAIN, Same, Walk, foreign_numbers, plain_key
from firebrick.ir import Graph
from firebrick.ir.nested import nodes_in

KEPT = 64  # graphs of one function
WARNED = 8  # graphs after which a warning explains them
_disabled: ContextVar[bool] = ContextVar("firebrick_disable_jit", default=False)
AMBIENT: list[Callable[[], Hashable]] = [
    grad_enabled,
    lambda: config.device,
    lambda: config.fallback,
    lambda: s if isinstance(s := strategy.get(), str) else Same(s),
]


class RecompileWarning(UserWarning):
    """A function under ``jit`` has been traced many times."""


@dataclass(frozen=True)
class Recompile:
    """One trace: of which function, why, how long it and compiling took, and where it was called."""

    name: str
    reason: str
    seconds: float
    line: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason} ({self.seconds * 1e3:.0f} ms, called at {self.line})"


_events: deque[tuple[ref[Jit], Recompile]] = deque(maxlen=1000)
counted: list[Callable[[Any, Recompile], None]] = []  # who is told of each trace: of which function, and why


# arguments


class _Flat:
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
        elif isinstance(v, _PLAIN) and not isinstance(v, np.generic):
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


# results


class _Results:
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


def _shown(storage: Storage, program: Program, slot: int) -> Tensor:
    shape, dtype = program.results[slot][2]
    return Tensor(storage, dtype, shape, program.device)  # type: ignore[arg-type]


def _rebuild(recipe: tuple[Any, ...], made: Callable[[int], Tensor], call: _Call, new: list[Tensor]) -> Any:
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
        parts = [_rebuild(r, made, call, new) for r in recipe[2]]
        return recipe[1](*parts) if hasattr(recipe[1], "_fields") else recipe[1](parts)
    if kind == "dict":
        built = [(k, _rebuild(r, made, call, new)) for k, r in recipe[2]]
        if recipe[1] is None:
            return dict(built)
        again = copy(recipe[1])
        again.update(built)
        return again
    if kind == "object":
        again = copy(recipe[1])
        again.__dict__.update([(k, _rebuild(r, made, call, new)) for k, r in recipe[2]])
        return again
    if kind == "gradients":
        return Gradients.of([(call.handles[at], _rebuild(r, made, call, new)) for at, r in recipe[1]])
    return recipe[1]


@dataclass
class _Call:
    """The values of one call: its tensors in order, and its Python numbers."""

    handles: list[Tensor]
    numbers: list[Any]


@dataclass
class Entry:
    """One graph of a function, with what its key was made of; ``linear`` if the call is on tracked tensors."""

    program: Program
    linear: Linear | None
    recipe: tuple[Any, ...]
    named: list[tuple[str, str]]
    walk: tuple[Any, ...]
    ambient: tuple[Any, ...]
    tracked: tuple[int, ...]

    def __post_init__(self) -> None:
        only = self.recipe[0] == "new" and self.linear is None and self.recipe[1] == 0
        self.simple = None
        if only:
            shape, dtype = self.program.results[0][2]
            self.simple = dtype, shape, *self.recipe[3:]


class Jit:
    """A function under ``jit``. Call it as the function itself.

    Attributes:
        fn: The function.
        traces: How often it has been traced.
    """

    __jit_through__ = "fn"  # what another compiled function sees of it

    def __init__(self, fn: Callable[..., Any], static_argnames: str | Sequence[str] = ()) -> None:
        if not callable(fn):
            raise OperandError("jit takes a function or another callable", type(fn).__name__, "pass a function")
        self.fn = fn
        update_wrapper(self, fn, updated=())
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self._static = frozenset((static_argnames,) if isinstance(static_argnames, str) else static_argnames)
        try:
            self._signature: inspect.Signature | None = inspect.signature(fn)
        except (TypeError, ValueError):
            self._signature = None
        named = [] if self._signature is None else list(self._signature.parameters.values())
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._positional = [p.name for p in named if p.kind in kinds]
        open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in named)
        unknown = self._static - {p.name for p in named}
        if unknown and not open_ended:
            raise ConfigError(
                f"static_argnames are arguments of {self.name}: {', '.join(p.name for p in named) or 'none'}",
                ", ".join(sorted(unknown)),
                "check the spelling",
            )
        self.traces = 0
        self._entries: OrderedDict[Any, Entry] = OrderedDict()
        self._walks: OrderedDict[tuple[int, ...], Walk] = OrderedDict()
        self._numbers: OrderedDict[Any, int] = OrderedDict()
        self._next = count()
        self._lock = RLock()
        self._locks: dict[Any, Any] = {}
        self._warned = WARNED

    def __repr__(self) -> str:
        return f"<jit of {self.name}, {len(self._entries)} graphs>"

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    # calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (hooks.tracing and current.get() is not None) or _disabled.get() or not config.jit:
            return self.fn(*args, **kwargs)
        if kwargs:
            args, kwargs = self._ordered(args, kwargs)
        traces = hooks.traces
        flat = _Flat()
        spec = self._spec(flat, args, kwargs)
        walk = self._walk(flat.objects)
        key = self._key(spec, flat, walk)
        while hooks.tracing or hooks.traces != traces:  # another thread's trace may have had some of the tensors
            traces, before = hooks.traces, key
            check_present([*flat.tensors, *walk.tensors])
            flat = _Flat()
            spec = self._spec(flat, args, kwargs)
            walk = self._walk(flat.objects)
            key = self._key(spec, flat, walk)
            if key == before:
                break
        entry = self._entries.get(key)
        if entry is None:
            entry, walk = self._missing(key, args, kwargs, walk)
        else:
            try:  # noqa: SIM105 - quicker so
                self._entries.move_to_end(key)
            except KeyError:  # another thread has just let go of it
                pass
        handles = [*flat.tensors, *walk.tensors]
        given = [*flat.numbers, *walk.streams] if walk.streams else flat.numbers
        program = entry.program
        if entry.linear is not None:
            tensors = call_tracked(program, entry.linear, handles, given)
            return _rebuild(entry.recipe, lambda i: tensors[i], _Call(handles, flat.numbers), [])
        made = program.run(handles, given)
        if entry.simple is not None:
            dtype, shape, device, label = entry.simple
            return Tensor(made[0], dtype, shape, device, label)
        return _rebuild(entry.recipe, lambda i: _shown(made[i], program, i), _Call(handles, flat.numbers), [])

    def _key(self, spec: Any, flat: _Flat, walk: Walk) -> Any:
        tracked: tuple[int, ...] = ()
        if grad_enabled():
            tracked = tuple([i for i, t in enumerate([*flat.tensors, *walk.tensors]) if t.node is not None])
        return spec, walk.number, self._ties(flat.tensors, walk), tracked, tuple([f() for f in AMBIENT])

    def _ordered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by position as far as they can be, so that f(x, y=y) is f(x, y)."""
        more = list(args)
        rest = dict(kwargs)
        for name in self._positional[len(args) :]:
            if name not in rest:
                break
            more.append(rest.pop(name))
        return tuple(more), rest

    def _spec(self, flat: _Flat, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names, static = self._positional, self._static
        parts: list[Any] = []
        for i, v in enumerate(args):
            name = names[i] if i < len(names) else f"args[{i}]"
            parts.append(self._fixed(flat, name, v) if name in static else flat.key(name, v, self.name))
        for name in sorted(kwargs) if kwargs else ():
            v = kwargs[name]
            parts.append((name, self._fixed(flat, name, v) if name in static else flat.key(name, v, self.name)))
        return tuple(parts)

    def _fixed(self, flat: _Flat, name: str, v: Any) -> Any:
        """The key of a static argument: its value; what an object holds is walked through as that of any other."""
        try:
            hash(v)
        except TypeError:
            raise OperandError(
                f"{self.name}: a static argument is hashable",
                f"{name}: {type(v).__name__}",
                "pass a tuple for a list, or take it out of static_argnames",
            ) from None
        if isinstance(v, _PLAIN):
            part: Any = plain_key(v)
            said = f"static {v!r}"
        elif isinstance(v, (tuple, frozenset)):
            items = list(v) if isinstance(v, tuple) else sorted(v, key=repr)
            return ("static", type(v), *(self._fixed(flat, f"{name}[{i}]", item) for i, item in enumerate(items)))
        else:
            flat.objects.append((name, v))
            part, said = type(v), f"static {type(v).__name__}"
        if flat.named is not None:
            flat.named.append((name, said))
        return "static", part

    def _walk(self, objects: list[tuple[str, Any]]) -> Walk:
        where = tuple([id(v) for _, v in objects])
        walk = self._walks.get(where)
        if walk is not None and walk.of(objects) and walk.fresh():
            return walk
        return self._look(objects, where)

    def _look(self, objects: list[tuple[str, Any]], where: tuple[int, ...]) -> Walk:
        walk = Walk([(self.name, self.fn), *objects])
        walk.let_go(self._forgets(where))
        with self._lock:
            number = self._numbers.get(walk.key)
            walk.number = self._numbers[walk.key] = next(self._next) if number is None else number
            self._numbers.move_to_end(walk.key)
            if len(self._numbers) > 4 * KEPT:
                self._numbers.popitem(last=False)
            self._walks[where] = walk
            if len(self._walks) > KEPT:
                self._walks.popitem(last=False)
        return walk

    def _forgets(self, where: tuple[int, ...]) -> Callable[[Any], None]:
        """What drops a walk when an argument that it began from is gone."""
        jit = ref(self)

        def gone(_: Any) -> None:
            known = jit()
            if known is not None:
                known._walks.pop(where, None)

        return gone

    @staticmethod
    def _ties(tensors: list[Tensor], walk: Walk) -> tuple[int, ...]:
        """Where two arguments, or an argument and a captured tensor, are one handle; empty if nowhere."""
        ids = [id(t) for t in tensors]
        if len(set(ids)) == len(ids) and walk.ids.isdisjoint(ids):
            return ()
        inside = {id(t): -1 - i for i, t in enumerate(walk.tensors)}
        return tuple(inside.get(i, ids.index(i)) for i in ids)

    # tracing

    def _missing(self, key: Any, args: Any, kwargs: Any, walk: Walk) -> tuple[Entry, Walk]:
        first = key
        named: list[tuple[str, str]] = []
        flat = _Flat(named)
        spec = self._spec(flat, args, kwargs)
        with self._lock:
            lock = self._locks.setdefault(key, Lock())
        with lock, alone():
            if not walk.fresh():  # while another thread traced it, state has begun
                walk = self._walk(flat.objects)
                key = self._key(spec, flat, walk)
            found = self._entries.get(key)
            if found is not None:
                return found, walk
            started = perf_counter()
            try:
                entry, walk = self._traced(args, kwargs, flat, walk, key[3], key[4])
            finally:
                with self._lock:
                    self._locks.pop(first, None)
            entry.program.seconds = perf_counter() - started
            key = (key[0], walk.number, key[2], key[3], key[4])
            with self._lock:
                reason = self._reason(entry)
                self.traces += 1
                self._entries[key] = entry
                if len(self._entries) > KEPT:
                    self._entries.popitem(last=False)
            event = Recompile(self.name, reason, entry.program.seconds, user_line())
            _events.append((ref(self), event))
            for told in list(counted):
                told(self, event)
            if self.traces > self._warned:
                self._warned = self.traces * 4
                self._warn()
            return entry, walk

    def _traced(
        self, args: Any, kwargs: Any, flat: _Flat, walk: Walk, tracked: tuple[int, ...], ambient: tuple[Any, ...]
    ) -> tuple[Entry, Walk]:
        numbers: list[Weak] = []
        built = [
            self._argument(self._positional[i] if i < len(self._positional) else f"args[{i}]", v, numbers)
            for i, v in enumerate(args)
        ]
        keyed = {k: self._argument(k, kwargs[k], numbers) for k in sorted(kwargs)}
        # also the containers among the arguments, those that the function sees
        around = Walk([(self.name, self.fn), *flat.objects, ("arguments", [built, keyed])])
        check_present([*flat.tensors, *walk.tensors])
        back = around.copies()
        drawn = foreign_numbers()
        pulled: Pulled | None = None
        residuals: list[int] = []
        try:
            with tracing(self.name) as trace:
                handles = _enter(trace, flat, walk, tracked)
                trace.streams = {id(g): len(flat.numbers) + i for i, g in enumerate(walk.streams)}
                known = len(trace.handles)
                with grad_mode(grad_enabled()):
                    result = self.fn(*built, **keyed)
                for i, t in enumerate(trace.handles[known:], known):
                    handles[id(t)] = i
                results = _Results(trace, handles, around.visited)
                recipe = results.recipe(result)
                own = len(results.values)
                changes = [
                    (handles[id(t)], results.slot(number))
                    for t, number, _ in trace.changed()
                    if number is not None and number != _source_of(trace, handles[id(t)])
                ]
                self._check_arrays(trace, around)
                backward = None
                if tracked:
                    pulled = pull(trace, list(results.tracked.values()), trace.leaves)
                    residuals, backward = split(trace, pulled)
            if foreign_numbers() != drawn:
                raise StateChangedError(
                    f"{self.name} takes random numbers of Python or NumPy, which a graph would keep as they were",
                    f"the process's generator of random or numpy.random has moved; called at {user_line()}",
                    "draw with fb.random, or draw before the call and pass the numbers in",
                )
            after = self._settle(walk, around, trace, known, flat.objects)
            made = Making(self.name, trace, [*flat.tensors, *after.tensors])
            if pulled is None or backward is None:
                program, linear = made.program(results.values, own, changes), None
            else:
                program, linear = made.linear(results, own, changes, pulled, residuals, backward, tracked)
            if program.graph.nodes:
                program.executable()
        except BaseException:
            back()
            raise
        return Entry(program, linear, recipe, flat.named or [], after.key, ambient, tracked), after

    def _argument(self, name: str, v: Any, numbers: list[Weak]) -> Any:
        if name in self._static:
            return v
        return _with_numbers(name, v, numbers)

    def _check_arrays(self, trace: Trace, walk: Walk) -> None:
        for path, big in walk.big:
            for n in nodes_in(trace.nodes):
                value = n.params.get("value")
                if n.op.name == "constant" and isinstance(value, np.ndarray) and value.nbytes == big.nbytes:
                    raise TraceError(
                        f"{self.name} makes a tensor of a large NumPy array, which a graph would keep as it is now",
                        f"{path}: {big.dtype}{list(big.shape)}, at {n.line}",
                        f"make the tensor once, outside of the function: {path} = fb.asarray({path})",
                    )

    def _settle(self, walk: Walk, around: Walk, trace: Trace, known: int, objects: list[tuple[str, Any]]) -> Walk:
        """The walk after the trace; raises if the function changed something that a graph cannot carry out."""
        after = Walk(around.roots)
        made = {id(t) for t in trace.handles[known:]}
        leaked = [p for p, t in after.leaves if type(t.storage.data) is Traced]
        if leaked:
            raise StateChangedError(
                f"{self.name} keeps a tensor of its trace",
                f"{leaked[0]}, set at {_leak_line(after, leaked[0])}",
                "return the tensor instead; for state, change a tensor that is there before the call: x[...] = v, x += v, or "
                "an nn.Buffer of a module",
            )
        changed = differences(around.key, after.key)
        if changed and made:
            new = {p for p, t in after.leaves if id(t) in made}
            changed = [c for c in changed if not _grown(c.partition(": ")[0], new)]
        if changed:
            names = [c.partition(": ")[0].rpartition(".")[2] for c in changed]
            lines = [f" (set at {trace.set_at[n]})" if n in trace.set_at else "" for n in names]
            raise StateChangedError(
                f"{self.name} changed something besides tensors while it was traced, which a graph would not repeat",
                "; ".join(c + at for c, at in zip(changed[:4], lines, strict=False)) + f"; called at {user_line()}",
                "do it outside of the function, or keep it in a 0-d tensor (a Buffer) that is changed by x += 1",
            )
        if made:
            hooks.version += 1
            return self._look(objects, tuple(id(v) for _, v in objects))
        return walk

    # explaining

    def _reason(self, entry: Entry) -> str:
        if not self._entries:
            return "first call"
        best: list[str] | None = None
        for other in reversed(self._entries.values()):
            found = _compare(other, entry)
            if best is None or len(found) < len(best):
                best = found
        return "; ".join((best or ["the same argument twice, or in another place"])[:4])

    def reasons(self) -> list[Recompile]:
        """Why each of its graphs was traced."""
        return [e for jit, e in _events if jit() is self]

    def _warn(self) -> None:
        last = self.reasons()[-3:]
        text = (
            f"{self.name} has been traced {self.traces} times; the last because of: "
            + " | ".join(r.reason for r in last)
            + f". It keeps {KEPT} graphs. Pass what changes as a tensor or a number, pad batches to one size, or see "
            "fb.explain_recompiles()"
        )
        frame = user_frame()
        if frame is None:
            warnings.warn(text, RecompileWarning, stacklevel=1)
            return
        space = frame.f_globals
        registry = space.setdefault("__warningregistry__", {})
        warnings.warn_explicit(
            text, RecompileWarning, frame.f_code.co_filename, frame.f_lineno, space.get("__name__"), registry
        )

    # looking inside

    def graph(self, *args: Any, **kwargs: Any) -> Any:
        """The graph that a call with these arguments runs (traced now if need be)."""
        return self._entry(args, kwargs).program.graph

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """What the engine made of that graph: operations, memory plan, what is written in place."""
        program = self._entry(args, kwargs).program
        return str(program.executable().explain()) if program.graph.nodes else "no operations: nothing to run"

    def _entry(self, args: Any, kwargs: Any) -> Entry:
        args, kwargs = self._ordered(args, kwargs)
        flat = _Flat()
        spec = self._spec(flat, args, kwargs)
        walk = self._walk(flat.objects)
        key = self._key(spec, flat, walk)
        found = self._entries.get(key)
        return found if found is not None else self._missing(key, args, kwargs, walk)[0]


def _enter(trace: Trace, flat: _Flat, walk: Walk, tracked: tuple[int, ...]) -> dict[int, int]:
    """Make the call's handles inputs; returns the place of each."""
    handles: dict[int, int] = {}
    names = {id(t): p for t, p in zip(flat.tensors, _tensor_paths(flat), strict=True)}
    every = [*((names[id(t)], t) for t in flat.tensors), *walk.leaves]
    for i, (path, t) in enumerate(every):
        if id(t) in handles:
            trace.handles.append(t)  # keeps places what they are at a call
            continue
        handles[id(t)] = i
        trace.enter(t, t.label or path, i in tracked)
    return handles


def _tensor_paths(flat: _Flat) -> list[str]:
    named = [p for p, said in flat.named or [] if " on " in said]
    return named if len(named) == len(flat.tensors) else [f"argument {i}" for i in range(len(flat.tensors))]


def _source_of(trace: Trace, place: int) -> int | None:
    for s in trace.sources:
        if s.kind == "leaf" and s.payload == place:
            return s.number
    return None


def _with_numbers(name: str, v: Any, numbers: list[Weak]) -> Any:
    """An argument with ``Weak`` in place of its Python numbers."""
    kind = type(v)
    if kind is float or kind is int:
        at = len(numbers)
        numbers.append(Weak(kind, name, lambda given: given[at]))
        return numbers[-1]
    if isinstance(v, (list, tuple)):
        parts = [_with_numbers(f"{name}[{i}]", item, numbers) for i, item in enumerate(v)]
        if all(a is b for a, b in zip(parts, v, strict=True)):
            return v
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    if isinstance(v, dict):
        built = {k: _with_numbers(f"{name}[{k!r}]", item, numbers) for k, item in v.items()}
        if all(built[k] is v[k] for k in v):
            return v
        made = copy(v)
        made.update(built)
        return made
    return v


def _grown(path: str, new: set[str]) -> bool:
    """Whether a difference is only that a container got state that began with this call."""
    return any(p == path or p.startswith(path) for p in new)


def _leak_line(walk: Walk, path: str) -> str:
    data = next(t for p, t in walk.leaves if p == path).storage.data
    return str(data.line)


def _compare(old: Entry, new: Entry) -> list[str]:
    before, now = dict(old.named), dict(new.named)
    out = [f"argument {p}: {before[p]} → {now[p]}" for p in now if p in before and before[p] != now[p]]
    out += [f"argument {p}: new" for p in now if p not in before] + [f"argument {p}: gone" for p in before if p not in now]
    out += differences(old.walk, new.walk)
    if old.tracked != new.tracked:
        out.append("other tensors are tracked")
    if old.ambient != new.ambient:
        out.append("the context: gradients on or off, the default device, checkpointing or the row offset")
    return out


@dataclass
class Making:
    """Makes programs of a finished trace, for calls with these tensors."""

    name: str
    trace: Trace
    tensors: list[Tensor]

    def program(
        self, values: list[int], own: int, changes: list[tuple[int, int]], also: tuple[int, ...] = (), end: int | None = None
    ) -> Program:  # fmt: skip
        """The program of ``values``. Inputs that nothing uses (nor ``also`` names) are left out."""
        trace = self.trace
        made = {n.first + k for n in trace.nodes[:end] for k in range(len(n.avals))}
        outputs = list(dict.fromkeys(v for v in values if v in made))
        checks = [c for c in trace.checks if c.number in made]
        graph = optimize(trace.graph([*outputs, *(c.number for c in checks)], end))
        used = {i for n in graph.nodes for i in n.inputs} | set(graph.outputs)
        kept = [i for i, s in enumerate(trace.sources) if i in used or s.number in values or i in also]
        graph = without_inputs(graph, kept)
        sources = [trace.sources[i] for i in kept]
        at = {s.number: i for i, s in enumerate(sources)}
        first: dict[int, int] = {}
        for i, t in enumerate(self.tensors):
            first.setdefault(id(t), i)
        places, fixed = [], {}
        numbers, keys, draws = [], [], list(trace.draws)
        for i, s in enumerate(sources):
            place = -1
            if s.kind == "leaf":
                t = trace.handles[s.payload]
                place = first.get(id(t), -1)
                if place < 0:
                    fixed[i] = t
            elif s.kind == "weak":
                numbers.append((i, *s.payload))
            else:
                keys.append((i, draws.index(s.payload[0]), s.payload[1]))
            places.append(place)
        used_up = set(kept)
        numbers += [(-1, *s.payload) for i, s in enumerate(trace.sources) if s.kind == "weak" and i not in used_up]
        order = {v: k for k, v in enumerate(outputs)}
        results = [("out", order[v], trace.avals[v]) if v in order else ("in", at[v], trace.avals[v]) for v in values]
        updates = []
        for place, slot in changes:
            t = trace.handles[place]
            now = first.get(id(t), -1)
            updates.append((now, None if now >= 0 else t, slot))
        return Program(
            self.name, graph, trace.device if graph.nodes or numbers or keys else None, places, fixed, numbers, keys,
            list(trace.draws.values()),
            results, own, updates, [(len(outputs) + k, c) for k, c in enumerate(checks)], tuple(kept),
        )  # fmt: skip

    def linear(
        self, results: _Results, own: int, changes: list[tuple[int, int]], pulled: Pulled, residuals: list[int],
        backward: Graph, tracked: tuple[int, ...],
    ) -> tuple[Program, Linear]:  # fmt: skip
        """The forward program, which returns residuals too, and what the tape needs of it."""
        trace = self.trace
        slots = sorted(results.tracked)
        forward, flows = pruned(trace.graph([results.values[i] for i in slots], pulled.start), trace.flows)
        used = {i for n in forward.nodes for i in n.inputs if i < len(forward.inputs)} | set(forward.outputs)
        values = [*results.values, *residuals]
        program = self.program(values, own, changes, tuple(used), pulled.start)
        count = len(backward.inputs)
        graph = optimize(backward)
        outs = list(dict.fromkeys(graph.outputs))
        order = {v: k for k, v in enumerate(outs)}
        shown = [
            ("in", v, backward.inputs[v]) if v < count else ("out", order[v], aval)
            for v, aval in zip(graph.outputs, [graph.avals[v] for v in graph.outputs], strict=True)
        ]
        graph = Graph(graph.inputs, graph.nodes, tuple(outs), graph.names)
        back = Program(
            f"the gradient of {self.name}", graph, trace.device if graph.nodes else None, list(range(count)), {}, [], [], [],
            shown, len(shown), [], [], tuple(range(count)),
        )  # fmt: skip
        reached = tuple(i for i, _ in pulled.gradients)
        return program, Linear(tracked, tuple(slots), back, reached, len(results.values), forward, flows)


def pruned(graph: Graph, flows: list[tuple[bool, ...]]) -> tuple[Graph, list[tuple[bool, ...]]]:
    """The nodes that the outputs depend on, with their flows; numbers stay as they are."""
    wanted = set(graph.outputs)
    nodes, kept = [], []
    for n, flow in zip(reversed(graph.nodes), reversed(flows[: len(graph.nodes)]), strict=True):
        if wanted.intersection(n.results):
            wanted.update(n.inputs)
            nodes.append(n)
            kept.append(flow)
    return Graph(graph.inputs, nodes[::-1], graph.outputs, graph.names), kept[::-1]


# the public verbs


def jit(fn: Callable[..., Any] | None = None, *, static_argnames: str | Sequence[str] = ()) -> Any:
    """Trace ``fn`` into a graph once for each kind of arguments, and run it as one program from then on.

    Results are those of ``fn`` itself. Tensors, modules, optimizers and generators that it uses or changes are read and
    written at each call, whether it gets them as arguments or captures them. Python ints and floats among the arguments may
    differ from call to call; other plain values (bool, str, None) and those read from closures, globals and attributes make a
    graph of their own. Printing and other effects happen while it is traced only.

    Args:
        fn: Function, method or callable object; left out, ``jit`` is a decorator with settings.
        static_argnames: Names of arguments whose values are built into the graph.

    Raises:
        TraceError: While tracing: the function needs a value that is not there yet (``DataDependentError``), or changes
            something that a graph cannot carry out (``StateChangedError``). Its objects are then as before.

    Example:
        >>> import firebrick as fb
        >>> scale = fb.asarray(2.0)
        >>> @fb.jit
        ... def f(x, n):
        ...     return x * scale + n
        >>> f(fb.ones(2), 1).tolist(), f(fb.ones(2), 5).tolist()
        ([3.0, 3.0], [7.0, 7.0])
        >>> scale += 1.0
        >>> f(fb.ones(2), 1).tolist(), f.traces
        ([4.0, 4.0], 1)
    """
    if fn is None:
        return lambda fn: Jit(fn, static_argnames)
    return Jit(fn, static_argnames)


@contextmanager
def disable_jit() -> Iterator[None]:
    """Run functions under ``jit`` as they are written, for a ``with`` block: to step through them, or to compare.

    Example:
        >>> import firebrick as fb
        >>> with fb.disable_jit():
        ...     fb.jit(lambda x: x + x.item())(fb.asarray(2.0)).item()
        4.0
    """
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)


def explain_recompiles(fn: Any = None) -> list[Recompile]:
    """Why functions under ``jit`` were traced: which argument or captured value changed, and from what to what.

    Args:
        fn: A function under ``jit``; all of the process if None.

    Returns:
        One record for each trace, oldest first (the last 1,000).

    Example:
        >>> import firebrick as fb
        >>> double = fb.jit(lambda x: x + x)
        >>> y = double(fb.ones(2)), double(fb.ones(3))
        >>> [r.reason for r in fb.explain_recompiles(double)]
        ['first call', 'argument x: float32[2] on cpu:0 → float32[3] on cpu:0']
    """
    wanted = getattr(fn, "__func__", fn)
    return [e for jit, e in _events if fn is None or jit() is wanted]
