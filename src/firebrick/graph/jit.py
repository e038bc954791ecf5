"""``jit``: a function that is traced once for each kind of arguments and then runs as one program.

What a graph has built in is part of a key: shapes, dtypes and devices of tensors, every plain value that the function can
reach, and the context. What may differ from call to call is read anew each time: the values of tensors, Python
numbers among the arguments, the place of random generators. So no state is frozen, and none is forgotten.
"""

from __future__ import annotations

import inspect
import sys
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import update_wrapper
from itertools import count
from threading import Lock, RLock
from time import perf_counter
from types import MethodType
from typing import Any
from weakref import ref

import numpy as np

from firebrick.autodiff.distributed import reduction
from firebrick.autodiff.residuals import strategy
from firebrick.autodiff.tape import grad_enabled, grad_mode, own_handle
from firebrick.backends.dispatch import check_present
from firebrick.core.autocast import autocast_dtype
from firebrick.core.collector import fewer_collections
from firebrick.core.config import config
from firebrick.core.errors import ConfigError, OperandError, StateChangedError, TraceError
from firebrick.core.hooks import hooks
from firebrick.core.lines import user_line, warn
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.arguments import Flat, for_trace
from firebrick.graph.call import Linear, Pulled, pull, split
from firebrick.graph.call import call as call_tracked
from firebrick.graph.differences import differences
from firebrick.graph.making import Making
from firebrick.graph.outside import watched
from firebrick.graph.plain import PLAIN, Same, plain_key
from firebrick.graph.program import Program, Tell
from firebrick.graph.recompiles import Recompile, RecompileWarning, note, reasons
from firebrick.graph.results import Call, Results, places, rebuild, shown
from firebrick.graph.streams import foreign_numbers
from firebrick.graph.trace import Trace, alone, current, tracing
from firebrick.graph.traced import Traced
from firebrick.graph.undo import copies
from firebrick.graph.walk import Walk
from firebrick.ir.nested import nodes_in

KEPT = 64  # graphs of one function
WARNED = 8  # graphs after which a warning explains them
_disabled: ContextVar[bool] = ContextVar("firebrick_disable_jit", default=False)
AMBIENT: list[Callable[[], Hashable]] = [
    grad_enabled,
    autocast_dtype,
    lambda: config.device,
    lambda: config.fallback,
    lambda: s if isinstance(s := strategy.get(), str) else ("budget", s.limit),
    lambda: None if (r := reduction()) is None else Same(r),
]


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
    shared: bool
    told: list[tuple[Any, ...]]

    def __post_init__(self) -> None:
        self.changed = frozenset(place for place, _, _ in self.program.updates)
        self.known = frozenset(place for recipe in self.told for place in places(recipe, "known"))
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

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Jit, (self.fn, tuple(self._static)))  # one that a decorator made goes by its name

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    # calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (hooks.tracing and current.get() is not None) or _disabled.get() or not config.jit:
            return self.fn(*args, **kwargs)
        if kwargs:
            args, kwargs = self._ordered(args, kwargs)
        traces = hooks.traces
        flat, walk, key = self._read(args, kwargs)
        while hooks.tracing or hooks.traces != traces:  # another thread's trace may have had some of the tensors
            traces, before = hooks.traces, key
            check_present([*flat.tensors, *walk.tensors])
            flat, walk, key = self._read(args, kwargs)
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
        if entry.changed and not key[-1] and (shared := _shared(flat.tensors, walk)):
            count = len(flat.tensors)
            if any(i in entry.changed or count + at in entry.changed for i, at in shared):
                key = (*key[:-1], shared)
                found = self._entries.get(key)
                entry, walk = (found, walk) if found is not None else self._missing(key, args, kwargs, walk)
        handles = [*flat.tensors, *walk.tensors]
        given = [*flat.numbers, *walk.streams] if walk.streams else flat.numbers
        program = entry.program
        if entry.linear is not None:
            tensors = call_tracked(program, entry.linear, handles, given)
            return rebuild(entry.recipe, lambda i: tensors[i], self._call(handles, flat), [])
        made = program.run(handles, given, tell=self._teller(entry, handles, flat, walk) if entry.told else None)
        if entry.simple is not None:
            dtype, shape, device, label = entry.simple
            return Tensor(made[0], dtype, shape, device, label)
        return rebuild(entry.recipe, lambda i: shown(made[i], program, i), self._call(handles, flat), [])

    def _teller(self, entry: Entry, handles: list[Tensor], flat: Flat, walk: Walk) -> Tell:
        """What carries out the calls on the way of one run."""
        call = self._call(handles, flat)
        call.find = lambda: walk.remembered(entry.known, lambda: Walk([(self.name, self.fn), *flat.objects]))

        def tell(k: int, storage: Callable[[int], Storage]) -> None:
            fn, args = rebuild(entry.told[k], lambda i: shown(storage(i), entry.program, i), call, [])
            fn(*args)

        return tell

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Flat, Walk, Any]:
        """A call's arguments taken apart, what it reaches, and the key of both."""
        flat = Flat()
        spec = self._spec(flat, args, kwargs)
        walk = self._walk(flat.objects)
        return flat, walk, self._key(spec, flat, walk)

    def _call(self, handles: list[Tensor], flat: Flat) -> Call:
        return Call(handles, flat.numbers, lambda: Walk([(self.name, self.fn), *flat.objects]).found)

    def _key(self, spec: Any, flat: Flat, walk: Walk) -> Any:
        tracked: tuple[int, ...] = ()
        if grad_enabled():
            tracked = tuple([i for i, t in enumerate([*flat.tensors, *walk.tensors]) if t.node is not None])
        ids = [id(t) for t in flat.tensors]
        ties = () if len(set(ids)) == len(ids) else tuple([ids.index(i) for i in ids])
        shared: tuple[tuple[int, int], ...] = ()
        if not walk.ids.isdisjoint(ids) and any(type(t) is not Tensor and id(t) in walk.ids for t in flat.tensors):
            shared = _shared(flat.tensors, walk)
        return spec, walk.number, ties, tracked, tuple([f() for f in AMBIENT]), shared

    def _ordered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by position as far as they can be, so that f(x, y=y) is f(x, y)."""
        more = list(args)
        rest = dict(kwargs)
        for name in self._positional[len(args) :]:
            if name not in rest:
                break
            more.append(rest.pop(name))
        return tuple(more), rest

    def _named(self, i: int) -> str:
        """What the function calls argument ``i``."""
        return self._positional[i] if i < len(self._positional) else f"args[{i}]"

    def _spec(self, flat: Flat, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        static = self._static
        parts: list[Any] = []
        for i, v in enumerate(args):
            name = self._named(i)
            parts.append(self._fixed(flat, name, v) if name in static else flat.key(name, v, self.name))
        for name in sorted(kwargs) if kwargs else ():
            v = kwargs[name]
            parts.append((name, self._fixed(flat, name, v) if name in static else flat.key(name, v, self.name)))
        return tuple(parts)

    def _fixed(self, flat: Flat, name: str, v: Any) -> Any:
        """The key of a static argument: its value; what an object holds is walked through as that of any other."""
        try:
            hash(v)
        except TypeError:
            raise OperandError(
                f"{self.name}: a static argument is hashable",
                f"{name}: {type(v).__name__}",
                "pass a tuple for a list, or take it out of static_argnames",
            ) from None
        if isinstance(v, PLAIN):
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

    # tracing

    def _missing(self, key: Any, args: Any, kwargs: Any, walk: Walk) -> tuple[Entry, Walk]:
        first = key
        named: list[tuple[str, str]] = []
        flat = Flat(named)
        spec = self._spec(flat, args, kwargs)
        with self._lock:
            lock = self._locks.setdefault(key, Lock())
        with lock, alone(), fewer_collections():
            if not walk.fresh():  # while another thread traced it, state has begun
                walk = self._walk(flat.objects)
                key = self._key(spec, flat, walk)
            found = self._entries.get(key)
            if found is not None:
                return found, walk
            started = perf_counter()
            try:
                entry, walk = self._traced(args, kwargs, flat, walk, key)
            finally:
                with self._lock:
                    self._locks.pop(first, None)
            entry.program.seconds = perf_counter() - started
            key = (key[0], walk.number, *key[2:])
            with self._lock:
                reason = self._reason(entry)
                self.traces += 1
                self._entries[key] = entry
                if len(self._entries) > KEPT:
                    self._entries.popitem(last=False)
            note(self, Recompile(self.name, reason, entry.program.seconds, user_line()))
            if self.traces > self._warned:
                self._warned = self.traces * 4
                self._warn()
            return entry, walk

    def _traced(self, args: Any, kwargs: Any, flat: Flat, walk: Walk, key: Any) -> tuple[Entry, Walk]:
        tracked, ambient, shared = key[3:]
        # an argument that is captured too is traced as a tensor of its own, unless the key says that it is not
        twins = {} if shared else {id(t): _twin(t) for t in flat.tensors if id(t) in walk.ids}
        tensors = [twins.get(id(t), t) for t in flat.tensors]
        numbers: list[Weak] = []
        built = [self._argument(self._named(i), v, numbers, twins) for i, v in enumerate(args)]
        keyed = {k: self._argument(k, kwargs[k], numbers, twins) for k in sorted(kwargs)}
        # also the containers among the arguments, those that the function sees
        around = Walk([(self.name, self.fn), *flat.objects, *self._seen(built, keyed)])
        check_present([*flat.tensors, *walk.tensors])
        back = copies(around)
        drawn = foreign_numbers()
        pulled: Pulled | None = None
        residuals: list[int] = []
        try:
            with tracing(self.name) as trace:
                handles = _enter(trace, list(zip(flat.paths(), tensors, strict=True)), walk, tracked)
                trace.streams = {id(g): len(flat.numbers) + i for i, g in enumerate(walk.streams)}
                known = len(trace.handles)
                with grad_mode(grad_enabled()), self._watched(around, trace):
                    result = self.fn(*built, **keyed)
                if trace.refused is not None:
                    raise trace.refused  # which the function has caught: its other way would be taken at each call
                for i, t in enumerate(trace.handles[known:], known):
                    handles[id(t)] = i
                there = {id(v): i for i, v in enumerate(around.found[: around.ends[len(flat.objects)]])}
                results = Results(trace, handles, there)
                recipe = results.recipe(result)
                own = len(results.values)
                told = [results.told(*call) for call in trace.told]
                changes = [(handles[id(t)], results.slot(number)) for t, number in trace.changed()]
                self._check_arrays(trace, around)
                backward = None
                if tracked and told:
                    raise TraceError(
                        f"{self.name} tells of its values, which a graph does that no gradient flows through",
                        "a call on tracked tensors",
                        "take the gradient inside the compiled function, or call it under fb.no_grad()",
                    )
                if tracked:
                    pulled = pull(trace, list(results.tracked.values()), trace.leaves)
                    residuals, backward = split(trace, pulled)
            if foreign_numbers() != drawn:
                raise StateChangedError(
                    f"{self.name} takes random numbers of Python, NumPy or PyTorch, which a graph would keep as they were",
                    f"the process's generator of random, numpy.random or torch has moved; called at {user_line()}",
                    "draw with fb.random, or draw before the call and pass the numbers in",
                )
            after = self._settle(walk, around, trace, known, flat.objects)
            made = Making(self.name, trace, [*tensors, *after.tensors])
            if pulled is None or backward is None:
                program, linear = made.program(results.values, own, changes, told=[slots for _, slots in told]), None
            else:
                program, linear = made.linear(results, own, changes, pulled, residuals, backward, tracked)
            if program.graph.nodes:
                program.executable()
        except BaseException:
            back()
            raise
        calls = [how for how, _ in told]
        return Entry(program, linear, recipe, flat.named or [], after.key, ambient, tracked, bool(shared), calls), after

    def _watched(self, walk: Walk, trace: Trace) -> AbstractContextManager[None]:
        """What raises where the function reads the world outside, if its code may do so."""
        if not walk.outside:
            return nullcontext()

        def refuse(error: Exception) -> None:
            trace.refused = trace.refused or error

        return watched(self.name, refuse)

    def _seen(self, built: list[Any], keyed: dict[str, Any]) -> list[tuple[str, Any]]:
        """The arguments that the function gets, by name, to walk through."""
        return [("arguments", {self._named(i): v for i, v in enumerate(built)}), ("keywords", keyed)]

    def _argument(self, name: str, v: Any, numbers: list[Weak], twins: dict[int, Tensor]) -> Any:
        return v if name in self._static else for_trace(name, v, numbers, twins)

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
        changed = differences(around.key, after.key) or ([] if made else around.moved(after))
        changed = [c for c in changed if c.partition(": ")[0] not in after.ties]
        if changed and made:
            new = sorted(p for p, t in after.leaves if id(t) in made)
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
        again = "an argument that the function changes is a tensor that it captures" if entry.shared else "one argument twice"
        return "; ".join((best or [again])[:4])

    def reasons(self) -> list[Recompile]:
        """Why each of its graphs was traced."""
        return reasons(self)

    def _warn(self) -> None:
        last = self.reasons()[-3:]
        warn(
            f"{self.name} has been traced {self.traces} times; the last because of: "
            + " | ".join(r.reason for r in last)
            + f". It keeps {KEPT} graphs. Pass what changes as a tensor or a number, pad batches to one size, or see "
            "fb.explain_recompiles()",
            RecompileWarning,
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
        _, walk, key = self._read(args, kwargs)
        found = self._entries.get(key)
        return found if found is not None else self._missing(key, args, kwargs, walk)[0]


def _shared(tensors: list[Tensor], walk: Walk) -> tuple[tuple[int, int], ...]:
    """Which arguments are captured too, and where the walk has them."""
    inside = {id(t): i for i, t in enumerate(walk.tensors)}
    return tuple([(i, inside[id(t)]) for i, t in enumerate(tensors) if id(t) in inside])


def _twin(t: Tensor) -> Tensor:
    made = own_handle(t)
    made.leaf = t.leaf
    return made


def _enter(trace: Trace, arguments: list[tuple[str, Tensor]], walk: Walk, tracked: tuple[int, ...]) -> dict[int, int]:
    """Make the call's handles inputs; returns the place of each."""
    handles: dict[int, int] = {}
    for i, (path, t) in enumerate([*arguments, *walk.leaves]):
        if id(t) in handles:
            trace.handles.append(t)  # keeps places what they are at a call
            continue
        handles[id(t)] = i
        trace.enter(t, t.label or path, i in tracked)
    return handles


def _grown(path: str, new: list[str]) -> bool:
    """Whether a difference is only that a container got state that began with this call, at one of these paths, sorted."""
    at = bisect_left(new, path)  # what begins with the path follows it
    return at < len(new) and new[at].startswith(path)


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


# the public verbs


def jit(fn: Callable[..., Any] | None = None, *, static_argnames: str | Sequence[str] = ()) -> Any:
    """Trace ``fn`` into a graph once for each kind of arguments, and run it as one program from then on.

    Results are those of ``fn`` itself. Tensors, modules, optimizers and generators that it uses or changes are read and
    written at each call, whether it gets them as arguments or captures them. Python ints and floats among the arguments may
    differ from call to call; other plain values (bool, str, None) and those read from closures, globals and attributes make a
    graph of their own. It returns tensors, numbers, objects that were there before, and new containers and objects of these.
    Printing and other effects happen while it is traced only; reading clocks, entropy or files raises.

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
