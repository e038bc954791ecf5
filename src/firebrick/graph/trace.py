"""``Trace``: replaces the engine while a function is traced into a graph.

Inside a trace ``bind`` checks, promotes and records gradients as always; only the last step differs: instead of running
an operation, the trace appends it to its list and returns handles whose storage holds a ``Traced`` instead of a buffer.
Handles that a call knows (arguments, captured tensors, parameters) are made to show traced values for as long as the trace
lasts, and are restored after it, also by an exception; the values that they showed last are the updates that the
graph returns. So a trace needs no copies of modules: handles keep their identity, and ties are preserved.

One thread traces at a time. Another thread that reads a handle of a running trace waits for its end.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event, RLock, get_ident
from typing import Any, TypeVar

import numpy as np

from firebrick.autodiff.batching import of_all_examples
from firebrick.autodiff.tape import grad_enabled, make_leaf, region
from firebrick.backends.contract import check_storable
from firebrick.backends.dispatch import execute as run_now
from firebrick.backends.dispatch import from_host as sent_now
from firebrick.backends.handles import check_present
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, uint32
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import (
    DeviceMismatchError,
    LeakedTracerError,
    StateChangedError,
    TraceError,
)
from firebrick.core.hooks import hooks
from firebrick.core.journal import unnoted
from firebrick.core.levels import Inner
from firebrick.core.lines import user_line
from firebrick.core.op import Op
from firebrick.core.storage import Absent, Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.traced import Traced
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.keys import alike
from firebrick.ops import OPS

current: ContextVar[Any] = ContextVar("firebrick_trace", default=None)
_lock = RLock()
_running: list[Trace] = []
_SMALL = 4096  # bytes of a constant up to which equal ones are one


@dataclass
class Source:
    """The source of an input of a graph.

    Attributes:
        kind: ``leaf`` (payload: its position among the call's tensors), ``weak`` (the ``Weak`` and a dtype), ``key`` (a
            position in ``Trace.draws`` and the number of the draw, or a slice of numbers), ``cotangent``; in a body of control
            flow ``outer``, ``carry`` and ``x``.
    """

    number: int
    aval: Aval
    kind: str
    payload: Any
    name: str = ""


AnyTrace = TypeVar("AnyTrace", bound="Trace")


class Draws:
    """The keys that a trace takes from one generator: their number, and the next one."""

    def __init__(self, generator: Any, find: Callable[[Sequence[Any]], Any]) -> None:
        self.generator, self.find = generator, find  # the generator is held so that its id stays its own
        self.count = self.next = 0


@dataclass
class Check:
    """A condition that a run must meet: a bool value of the graph, and the error where it is False."""

    number: int
    error: Callable[[], Exception]


class Trace:
    """One trace.

    Args:
        name: What is traced, for messages.
        parent: The trace around, for the body of a loop or a branch.
    """

    def __init__(self, name: str, parent: Trace | None = None) -> None:
        self.name, self.parent = name, parent
        self.thread, self.finished = get_ident(), Event()
        self.running = False
        self.device: Device | None = parent.device if parent else None
        self.nodes: list[Node] = []
        self.avals: list[Aval] = []
        self.sources: list[Source] = []
        self.handles: list[Tensor] = []  # the call's tensors, then those adopted while it runs
        self.draws: dict[int, Draws] = {}
        self.streams: dict[int, int] = {}  # the call's generators, by id: their positions among a run's numbers
        self._own: dict[int, Any] = {}  # generators that were made while the trace ran
        self.checks: list[Check] = []
        self.callbacks: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []  # callbacks of ``tell``, with their arguments
        self.region = 0
        self.regions = 0
        self.refused: Exception | None = None  # the error of a request for a value, which the function may catch
        self.set_at: dict[str, str] = {}  # the line where an attribute of this name was set
        self.flows: list[tuple[bool, ...]] = []  # for each node: which operands were tracked
        self.leaves: list[Any] = []  # tape nodes of the call's tracked tensors
        self._known: dict[int, tuple[Tensor, tuple[Any, ...]]] = {}
        self._constants: dict[Any, Tensor] = {}
        self._sourced: dict[Any, int] = {}

    def within(self) -> bool:
        """Whether this context traces here, or in a part of this trace."""
        t = current.get()
        while t is not None and t is not self:
            t = t.parent
        return t is self

    @property
    def differentiated_later(self) -> bool:
        """Whether derivatives may be taken of its graph, once it is made."""
        return bool(self.leaves)

    # values

    def _value(self, aval: Aval) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    def handle(self, number: int, device: Device, line: str = "", label: str | None = None) -> Tensor:
        """A new handle on a value."""
        aval = self.avals[number]
        storage = Storage(Traced(self, number, line), device._memory, 0)
        return Tensor(storage, aval.dtype, aval.shape, device, label)

    def source(self, aval: Aval, kind: str, payload: Any, name: str = "") -> int:
        """A new input of the graph."""
        number = self._value(aval)
        self.sources.append(Source(number, aval, kind, payload, name))
        return number

    def entered(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The operands of an operation that is about to be checked for tracking; a body puts its own in place of some."""
        return inputs

    def require_device(self, device: Device) -> None:
        """Raise unless a device is the graph's: a graph lives on one device."""
        if self.device is None:
            self.device = device
        elif device is not self.device:
            raise DeviceMismatchError(
                f"a graph lives on one device: {self.name} is traced on {self.device}",
                f"an operation on {device} at {user_line()}",
                f'move tensors before the call, x.to("{self.device}"), or split the function into one for each device',
                devices=[self.device.name, device.name],
            )

    def number(self, t: Tensor) -> int:
        """The value that a handle shows."""
        data = t.storage.data
        if isinstance(data, Inner):
            return self.lift_inner(t, data)
        if type(data) is not Traced:
            self.capture(t)
            data = t.storage.data
        if data.trace is self:
            number: int = data.number
            return number
        return self.lift(t, data)

    def lift(self, t: Tensor, data: Traced) -> int:
        """The number here of a handle on a value of another trace."""
        error = data.why()
        assert error is not None
        raise error

    def lift_inner(self, t: Tensor, data: Inner) -> int:
        """The number here of a tensor that belongs to a level of ``fb.vmap`` or ``fb.jvp``."""
        error = data.why(t)
        raise error if error is not None else LeakedTracerError(
            f"a tensor of {data.level.name}, inside fb.jvp, is used in a trace outside of it", f"used at {user_line()}",
            "return it from the function",
        )  # fmt: skip

    def alike(self, a: Traced, b: Traced) -> bool:
        """Whether two values are computed in the same way from the same inputs."""
        pairs, seen = [(a.number, b.number)], set()
        if a.trace is not self or b.trace is not self:
            return a.trace is b.trace and a.number == b.number
        while pairs:
            pair = pairs.pop()
            if pair in seen or pair[0] == pair[1]:
                continue
            seen.add(pair)
            m, n = (self._maker(i) for i in pair)
            if m is None or n is None or m.op is not n.op or pair[0] - m.first != pair[1] - n.first:
                return False
            if not alike(m.params, n.params):
                return False
            pairs += zip(m.inputs, n.inputs, strict=True)
        return True

    def _maker(self, number: int) -> Node | None:
        """The operation that made a value; None for an input."""
        at = bisect_right(self.nodes, number, key=lambda n: n.first) - 1
        return self.nodes[at] if at >= 0 and number in self.nodes[at].results else None

    def capture(self, t: Tensor) -> None:
        """Make a handle show a value of this trace (or of one around it)."""
        data = t.storage.data
        if isinstance(data, Inner):
            return
        if type(data) is Traced:
            if data.trace is self:
                return
            if not (data.trace.running and data.trace.within()):
                error = data.why(t)
                if error is not None:
                    raise error
                self.capture(t)
                return
            if id(t) not in self._known:  # a body of control flow must not rebind it
                self._known[id(t)] = (t, saved_handle(t))
            return
        if isinstance(data, Absent):
            check_present((t,))
        raise TraceError(
            f"jit finds the tensors that {self.name} uses: arguments, and what closures, globals, attributes and containers of "
            "them hold",
            f"{t.aval}{f' ({t.label})' if t.label else ''} at {user_line()}, which is held elsewhere (in an object that jit "
            "cannot look into, or by another thread)",
            "pass it as an argument",
        )

    def enter(self, t: Tensor, name: str, tracked: bool = False) -> None:
        """Make a handle of the call an input of the graph, one that gradients flow to if it is tracked."""
        aval = t.aval
        number = self.source(aval, "leaf", len(self.handles), name)
        self.handles.append(t)
        with hooks.rebinding:
            self._known[id(t)] = (t, saved_handle(t))
            t.storage = Storage(Traced(self, number, name), t.device._memory, 0)
            t.node, t.slot = None, 0
        if tracked:
            self.leaves.append(make_leaf(t))

    def adopt(self, t: Tensor) -> Tensor:
        """Take in a tensor that was made outside of the trace while it ran: state that begins with the first use."""
        root = self.root
        if id(t) not in root._known:
            root.enter(t, t.label or "state")
        return t

    takes_values = False
    """Whether tensors that have values become operands of a body where they are used; else they are found before the trace."""

    @property
    def root(self) -> Trace:
        """The outermost trace."""
        t = self
        while t.parent is not None:
            t = t.parent
        return t

    def constant(self, array: np.ndarray[Any, Any], device: Device) -> Tensor:
        """A host array as part of the program."""
        check_storable(as_dtype(array.dtype), device)
        self.require_device(device)
        if array.size > 1 and not any(array.strides):  # a broadcast of one element
            one = self.constant(array[(0,) * array.ndim], device)
            spread: Tensor = bind(OPS["broadcast_to"], (one,), {"shape": array.shape})
            return spread
        key = (array.dtype, array.shape, array.tobytes()) if array.nbytes <= _SMALL else None
        found = self._constants.get(key) if key else None
        if found is None:
            value = np.array(array, order="C")
            value.flags.writeable = False
            aval = Aval(value.shape, as_dtype(value.dtype))
            first = self._value(aval)
            line = user_line()
            self.nodes.append(Node(CONSTANT, (), {"value": value}, first, (aval,), line=line))
            self.flows.append(())
            found = self.handle(first, device, line)
            if key:
                self._constants[key] = found
        return Tensor(found.storage, found.dtype, found.shape, device)

    def weak(self, number: Weak, dtype: DType, device: Device) -> Tensor:
        """A number of the call as a 0-d tensor."""
        self.require_device(device)
        key = (id(number), dtype)
        found = self._sourced.get(key)
        if found is None:
            found = self._sourced[key] = self.source(Aval((), dtype), "weak", (number, dtype), number.name)
        return self.handle(found, device, user_line())

    def begin(self, generator: Any) -> None:
        """Note a generator that is made while the trace runs."""
        self.root._own[id(generator)] = generator

    def owns(self, generator: Any) -> bool:
        """Whether a generator begins with each call: what it draws is then the same each time."""
        return id(generator) in self.root._own

    def _way(self, generator: Any, find: Callable[[], Any] | None) -> Callable[[Sequence[Any]], Any]:
        """The function by which a run finds a generator among its inputs."""
        position = self.root.streams.get(id(generator))
        if position is not None:
            return lambda given: given[position]
        if find is not None:
            return lambda given: find()
        raise TraceError(
            f"jit finds the random generators that {self.root.name} uses: arguments, and what closures, globals, attributes "
            "and containers of them hold",
            f"{generator!r} at {user_line()}, which is held elsewhere",
            "pass it as an argument",
        )

    def key(self, generator: Any, find: Callable[[], Any] | None, device: Device) -> Tensor:
        """The next key of a generator, uint32 [4]: a different one at each run."""
        return self.keys(generator, find, device, None)

    def keys(self, generator: Any, find: Callable[[], Any] | None, device: Device, count: int | None) -> Tensor:
        """The next ``count`` keys of a generator, uint32 [count, 4]; one of shape [4] for None."""
        self.require_device(device)
        draws = self.draws.get(id(generator))
        if draws is None:
            draws = self.draws[id(generator)] = Draws(generator, self._way(generator, find))
        k = draws.next
        draws.next = k + (1 if count is None else count)
        draws.count = max(draws.count, draws.next)
        key = ("key", id(generator), k, count)
        found = self._sourced.get(key)
        if found is None:
            shape = (4,) if count is None else (count, 4)
            which = k if count is None else slice(k, k + count)
            found = self._sourced[key] = self.source(Aval(shape, uint32), "key", (id(generator), which), f"key {k}")
        return self.handle(found, device, user_line())

    def note(self, owner: Any, name: str) -> None:
        """An attribute is set while this trace runs."""
        self.root.set_at[name] = user_line()

    def drawn(self, generator: Any) -> int:
        """How many keys the trace has taken from a generator."""
        draws = self.draws.get(id(generator))
        return 0 if draws is None else draws.next

    def draw_again(self, generator: Any, position: int) -> None:
        """Take the same keys again, beginning with this one."""
        if id(generator) in self.draws:
            self.draws[id(generator)].next = position

    def check(self, ok: Tensor, error: Callable[[], Exception]) -> None:
        """Add a condition, a bool 0-d value: a run in which it is False raises, and reports the line that asks for it."""
        line = user_line()
        ok = of_all_examples(ok)

        def located() -> Exception:
            raised = error()
            raised.add_note(f"in a compiled program, at {line}")
            return raised

        self.checks.append(Check(self.number(ok), located))

    # operations

    def stage(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...]) -> tuple[Tensor, ...]:
        """Append one operation."""
        if op.transfers:
            goal = params["device"]
            raise DeviceMismatchError(
                f"a graph lives on one device: {self.name} is traced on {self.device or inputs[0].device}",
                f"a move to {goal} at {user_line()}",
                f'move the tensor before the call, x.to("{goal}"), or after it',
                devices=[inputs[0].device.name, goal.name],
            )
        device = inputs[0].device
        self.require_device(device)
        if op.decompose is not None and not device.backend.supports(op, tuple(t.dtype for t in inputs)):
            token = region.set(None)  # ``flows`` has how its parts are tracked; the tape holds the operation as a whole
            try:
                made = op.decompose(*inputs, **params)
            finally:
                region.reset(token)
            return tuple(t.detach() for t in (made if type(made) is tuple else (made,)))
        numbers = tuple(self.number(t) for t in inputs)
        first = len(self.avals)
        self.avals.extend(avals)
        line = user_line()
        self.nodes.append(Node(op, numbers, params, first, avals, line=line, region=self.region))
        recorded = grad_enabled()
        self.flows.append(tuple(recorded and t.node is not None for t in inputs))
        return tuple(self.handle(first + i, device, line) for i in range(len(avals)))

    # the end

    def changed(self) -> list[tuple[Tensor, int]]:
        """The handles of the call that show another value now, with the value's number."""
        before = {id(self.handles[s.payload]): s.number for s in self.sources if s.kind == "leaf"}
        out = []
        for t, _ in self._known.values():
            if t.node is not None and t.node not in self.leaves:
                if self._reaches_leaf(t.node):
                    raise StateChangedError(
                        f"{self.name} is differentiated, and changes {self._called(t)} to a value that depends on what it is "
                        "differentiated by: a graph has derivatives of its results alone",
                        f"{t.label or t.aval}",
                        "return the new value and let the caller keep it, or compile the derivative: fb.jit(fb.grad(f))",
                    )
                raise StateChangedError(
                    f"{self.name} leaves a tensor of the call tracked",
                    f"{t.label or t.aval}",
                    "take gradients with fb.value_and_grad inside the function, or x.require_grad() outside of it; of a value "
                    "that is kept beyond a gradient, keep x.detach()",
                )
            number = self.number(t)
            if number != before.get(id(t)):
                out.append((t, number))
        return out

    def _reaches_leaf(self, node: Any) -> bool:
        """Whether a value depends on a tracked tensor of the call; also if a backward pass has freed what is between them."""
        stack, seen = [node], set()
        while stack:
            node = stack.pop()
            if node in self.leaves:
                return True
            if node.id not in seen:
                seen.add(node.id)
                stack += [parent[0] for parent in node.parents if parent is not None]
        return False

    def _called(self, t: Tensor) -> str:
        """What a tensor of the call is called."""
        named = (s.name for s in self.sources if s.kind == "leaf" and self.handles[s.payload] is t)
        return next(named, None) or t.label or "a tensor"

    def restore(self) -> None:
        """Make every handle show again what it showed before the trace."""
        with hooks.rebinding:
            for t, saved in self._known.values():
                t.storage, t.dtype, t.shape, t.device, t.node, t.slot, t.leaf, t.label = saved
            self._known.clear()

    def forget(self) -> None:
        """Drop all that a program is made from. The values of a trace refer to it and it to values of constants, so it would
        otherwise stay in memory, node by node, until garbage is collected."""
        for held in (self.nodes, self.avals, self.flows, self.sources, self.handles, self.leaves):
            held.clear()
        self._constants.clear()
        self._sourced.clear()

    def later(self, t: Tensor, storage: Any, dtype: DType, shape: tuple[int, ...], node: Any, slot: int) -> None:
        """Make a handle of the call show this after the trace, since another thread has computed it meanwhile."""
        _, (_, _, _, device, _, _, leaf, label) = self._known[id(t)]
        self._known[id(t)] = (t, (storage, dtype, shape, device, node, slot, -abs(leaf), label))
        hooks.version += 1

    def graph(self, outputs: list[int], end: int | None = None) -> Graph:
        """The program from the inputs to these values, of the first ``end`` nodes."""
        positions = [-1] * len(self.avals)
        for i, s in enumerate(self.sources):
            positions[s.number] = i
        at = len(self.sources)
        nodes = []
        for n in self.nodes[:end]:
            count = len(n.avals)
            if count == 1:
                positions[n.first] = at
            else:
                positions[n.first : n.first + count] = range(at, at + count)
            inputs = tuple([positions[i] for i in n.inputs])
            nodes.append(Node(n.op, inputs, n.params, at, n.avals, n.label, n.line, n.region))
            at += count
        names = [s.name for s in self.sources]
        return Graph([s.aval for s in self.sources], nodes, tuple(positions[i] for i in outputs), names)


def is_shared_constant(n: Node) -> bool:
    """Whether a node is a constant that a trace has once, for all that use its value."""
    return n.op is CONSTANT and n.params["value"].nbytes <= _SMALL


def saved_handle(t: Tensor) -> tuple[Any, ...]:
    return t.storage, t.dtype, t.shape, t.device, t.node, t.slot, t.leaf, t.label


@contextmanager
def tracing(name: str) -> Iterator[Trace]:
    """Trace in this context for a ``with`` block; handles are restored at its end."""
    token = region.set(None)  # a checkpointed function around it drops what the call of the graph keeps, and runs that again
    try:
        with unnoted(), running(Trace(name)) as trace:
            yield trace
    finally:
        region.reset(token)


@contextmanager
def running(trace: AnyTrace) -> Iterator[AnyTrace]:
    """Trace into a new trace for a ``with`` block."""
    with _lock:
        token = current.set(trace)
        _start(trace)
        try:
            yield trace
        finally:
            trace.restore()
            current.reset(token)
            _stop(trace)


@contextmanager
def alone() -> Iterator[None]:
    """Let no other thread trace during a ``with`` block."""
    with _lock:
        yield


@contextmanager
def outside() -> Iterator[None]:
    """For a ``with`` block, run operations immediately, as outside of a trace."""
    token = current.set(None)
    try:
        yield
    finally:
        current.reset(token)


def _start(trace: Trace) -> None:
    _running.append(trace)
    trace.running = True
    hooks.tracing += 1
    hooks.traces += 1
    hooks.execute, hooks.from_host = _execute, _from_host


def _stop(trace: Trace) -> None:
    _running.remove(trace)
    trace.running = False
    hooks.tracing -= 1
    if not hooks.tracing:
        hooks.execute, hooks.from_host = run_now, sent_now
    trace.finished.set()


def _execute(
    op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...], out: Tensor | None = None
) -> tuple[Tensor, ...]:
    trace = current.get()
    if trace is not None:
        staged: tuple[Tensor, ...] = trace.stage(op, inputs, params, avals)
        return staged
    check_present(inputs)
    return run_now(op, inputs, params, avals, out)


def _from_host(array: np.ndarray[Any, Any], device: Device) -> Tensor:
    trace = current.get()
    made: Tensor = sent_now(array, device) if trace is None else trace.constant(array, device)
    return made


def _capture(t: Tensor) -> None:
    trace = current.get()
    if trace is not None:
        trace.capture(t)
    elif not isinstance(t.storage.data, Inner):
        check_present((t,))


def _elsewhere(t: Tensor, storage: Any, dtype: DType, shape: tuple[int, ...], node: Any, slot: int) -> bool:
    data = t.storage.data
    if type(data) is not Traced or data.trace.thread == get_ident() or id(t) not in data.trace.root._known:
        return False
    data.trace.root.later(t, storage, dtype, shape, node, slot)
    return True


def new_state(make: Callable[[], Tensor], beside: Tensor | None = None) -> Tensor:
    """A tensor that outlives the call, such as a moment of an optimizer: made immediately, also inside a trace.

    Args:
        make: Makes it.
        beside: State that is held by the same object. If a trace has made that, the object begins anew with each call, and so
            does the tensor, which is then a value of the trace.
    """
    trace = current.get()
    if trace is None or (beside is not None and type(beside.storage.data) is Traced and id(beside) not in trace.root._known):
        return make()
    token = current.set(None)  # as ``outside`` does, at a third of its time: there may be thousands
    try:
        made = make()
    finally:
        current.reset(token)
    adopted: Tensor = trace.adopt(made)
    return adopted


def _after_fork() -> None:
    """In a child process, drop the traces that ran in its parent's other threads."""
    global _lock
    _lock, hooks.rebinding = RLock(), RLock()
    for trace in _running[::-1]:
        trace.restore()
        trace.running = False
        trace.finished.set()
    _running.clear()
    hooks.tracing = 0
    hooks.execute, hooks.from_host = run_now, sent_now
    current.set(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

hooks.capture = _capture
hooks.elsewhere = _elsewhere
hooks.trace = current.get
