"""``jit``: a function that is traced once for each kind of arguments and then runs as one program.

What a graph has built in is part of a key (``signature``): shapes, dtypes and devices of tensors, every plain value that the
function can reach, and the context. What may differ from call to call is read anew each time: the values of tensors, Python
numbers among the arguments, the state of random generators. So no state is frozen, and none is forgotten. Graphs are kept by
their keys (``entries``), and a key that is new is traced (``capture``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import update_wrapper
from time import perf_counter
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from firebrick.autodiff.tape import anomaly
from firebrick.backends.handles import check_present
from firebrick.core.collector import fewer_collections
from firebrick.core.config import config
from firebrick.core.errors import OperandError
from firebrick.core.hooks import hooks
from firebrick.core.levels import running
from firebrick.core.lines import user_line, warn
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.scopes import scope
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.graph.arguments import Flat
from firebrick.graph.call import call as call_tracked
from firebrick.graph.capture import capture
from firebrick.graph.entries import KEPT, Entries, Entry
from firebrick.graph.program import Notify
from firebrick.graph.recompiles import Recompile, RecompileWarning, note, reasons
from firebrick.graph.results import Call, rebuild, shown
from firebrick.graph.signature import Signature, key_of, moved_key, shared_tensors
from firebrick.graph.trace import alone, current
from firebrick.graph.walk import Walk

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")

if TYPE_CHECKING:

    class BoundJit(Protocol[Q, R_co]):
        """A method under ``jit``: a bound method, through which the attributes of its ``Jit`` are read."""

        fn: Callable[..., Any]
        name: str
        traces: int

        def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...

        @property
        def __self__(self) -> Any: ...

        def reasons(self) -> list[Recompile]: ...


WARNED = 8  # graphs after which a warning explains them
_disabled: ContextVar[bool] = ContextVar("firebrick_disable_jit", default=False)


class Jit(Generic[P, R]):
    """A function under ``jit``. Call it as the function itself.

    Attributes:
        fn: The function.
        name: Its name, for messages.
        traces: How often it has been traced.
    """

    __jit_through__ = "fn"  # what another compiled function sees of it

    def __init__(self, fn: Callable[P, R], static_argnames: str | Sequence[str] = ()) -> None:
        if not callable(fn):
            raise OperandError("jit takes a function or another callable", type(fn).__name__, "pass a function")
        self.fn = fn
        update_wrapper(self, fn, updated=())
        self._signature = Signature(fn, static_argnames)
        self.name = self._signature.name
        self._entries = Entries((self.name, fn))
        self._latest: Entry | None = None  # the one that the last call used, which stands last among the kept ones
        self.traces = 0
        self._warned = WARNED

    def __repr__(self) -> str:
        return f"<jit of {self.name}, {len(self._entries.graphs)} graphs>"

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:  # one that a decorator made goes by its name
            return name
        return Jit, (self.fn, tuple(self._signature.static))

    @overload
    def __get__(self, owner: None, kind: Any = None) -> Self: ...
    @overload
    def __get__(self: Jit[Concatenate[S, Q], T], owner: S, kind: Any = None) -> BoundJit[Q, T]: ...
    @overload  # of a static method, whose first argument is another
    def __get__(self, owner: object, kind: Any = None) -> Self: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    # calling

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        inlined = (hooks.tracing and current.get() is not None) or (hooks.levels and running() is not None)
        if inlined or _disabled.get() or not config.jit or anomaly.get():
            return self.fn(*args, **kwargs)
        if kwargs:
            args, kwargs = self._signature.ordered(args, kwargs)
        traces = hooks.traces
        flat, walk, key = self._read(args, kwargs)
        while hooks.tracing or hooks.traces != traces:  # another thread's trace may have had some of the tensors
            traces, before = hooks.traces, key
            check_present([*flat.tensors, *walk.tensors])
            flat, walk, key = self._read(args, kwargs)
            if key == before:
                break
        graphs = self._entries.graphs
        entry = graphs.get(key)
        if entry is None:
            entry, walk = self._missing(key, args, kwargs, walk)
        elif entry is not self._latest:
            try:  # noqa: SIM105 - quicker so
                graphs.move_to_end(key)
            except KeyError:  # another thread has just evicted it
                pass
        self._latest = entry
        if entry.changed and not key[-1] and (shared := shared_tensors(flat.tensors, walk)):
            count = len(flat.tensors)
            if any(i in entry.changed or count + at in entry.changed for i, at in shared):
                key = (*key[:-1], shared)
                found = graphs.get(key)
                entry, walk = (found, walk) if found is not None else self._missing(key, args, kwargs, walk)
        handles = [*flat.tensors, *walk.tensors]
        given = [*flat.numbers, *walk.streams] if walk.streams else flat.numbers
        program = entry.program
        result: R
        if entry.linear is not None:
            tensors = call_tracked(program, entry.linear, handles, given)
            result = rebuild(entry.recipe, lambda i: tensors[i], self._call(handles, flat), [])
            return result
        made = program.run(handles, given, notify=self._notifier(entry, handles, flat, walk) if entry.callbacks else None)
        if entry.simple is not None:
            dtype, shape, device, label = entry.simple
            tensor: Any = Tensor(made[0], dtype, shape, device, label)
            result = tensor
        else:
            result = rebuild(entry.recipe, lambda i: shown(made[i], program, i), self._call(handles, flat), [])
        return result

    def _notifier(self, entry: Entry, handles: list[Tensor], flat: Flat, walk: Walk) -> Notify:
        """The function that calls the callbacks of one run."""
        call = self._call(handles, flat)
        call.find = lambda: walk.remembered(entry.known, lambda: Walk([(self.name, self.fn), *flat.objects]))

        def notify(k: int, storage: Callable[[int], Storage]) -> None:
            fn, args = rebuild(entry.callbacks[k], lambda i: shown(storage(i), entry.program, i), call, [])
            fn(*args)

        return notify

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Flat, Walk, Any]:
        """A call's arguments taken apart, what it reaches, and the key of both."""
        flat = Flat()
        spec = self._signature.spec(flat, args, kwargs)
        walk = self._entries.walk(flat.objects)
        return flat, walk, key_of(spec, flat, walk)

    def _call(self, handles: list[Tensor], flat: Flat) -> Call:
        return Call(handles, flat.numbers, lambda: Walk([(self.name, self.fn), *flat.objects]).found)

    # tracing

    def _missing(self, key: Any, args: Any, kwargs: Any, walk: Walk) -> tuple[Entry, Walk]:
        """The graph of a key that has none, traced now unless another thread has just done so."""
        entries, first = self._entries, key
        flat = Flat(named=[])
        spec = self._signature.spec(flat, args, kwargs)
        with entries.lock(key), alone(), fewer_collections():
            if not walk.fresh():  # while another thread traced it, state has begun
                walk = entries.walk(flat.objects)
                key = key_of(spec, flat, walk)
            found = entries.graphs.get(key)
            if found is not None:
                return found, walk
            started, before = perf_counter(), walk
            try:
                entry, walk = capture(self._signature, args, kwargs, flat, walk, key, entries.keep_walk)
            finally:
                entries.drop_lock(first)
            entry.program.seconds = perf_counter() - started
            reason = entries.keep(moved_key(key, len(flat.tensors), before, walk), entry)
            self.traces += 1
            note(self, Recompile(self.name, reason, entry.program.seconds, user_line()))
            if self.traces > self._warned:
                self._warned = self.traces * 4
                self._warn()
            return entry, walk

    # explaining

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
        """The compiled form of that graph: operations, memory plan, writes in place."""
        program = self._entry(args, kwargs).program
        return str(program.executable().explain()) if program.graph.nodes else "no operations: nothing to run"

    def _entry(self, args: Any, kwargs: Any) -> Entry:
        args, kwargs = self._signature.ordered(args, kwargs)
        _, walk, key = self._read(args, kwargs)
        found = self._entries.graphs.get(key)
        return found if found is not None else self._missing(key, args, kwargs, walk)[0]


# the public verbs


@overload
def jit(fn: Callable[P, R], *, static_argnames: str | Sequence[str] = ()) -> Jit[P, R]: ...
@overload
def jit(fn: None = None, *, static_argnames: str | Sequence[str] = ()) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
@answers_arguments
def jit(fn: Callable[P, R] | None = None, *, static_argnames: str | Sequence[str] = ()) -> Any:
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


@scope
def disable_jit() -> Iterator[None]:
    """Run functions under ``jit`` eagerly, for a ``with`` block: to step through them, or to compare.

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
