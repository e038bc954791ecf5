"""``Program``: a traced function, ready to run: its graph, the sources of its inputs and the uses of its outputs.

A run reads the call's handles, passes their buffers to the engine's executable, and returns results; handles that the
function changed are rebound. Memory of a changed handle that nothing else can see is donated to the executable. If a run
fails after its first write, the donated values are lost: reading those handles raises the error. All handles change in one
commit, which no interrupt splits; a run that fails before it leaves generators as they were.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from sys import getrefcount
from threading import get_ident
from time import sleep
from typing import Any

from firebrick.backends.contract import Backend
from firebrick.backends.handles import check_present
from firebrick.backends.memory import out_of_memory
from firebrick.compiler.spec.ranges import Ranges
from firebrick.core.aval import Aval
from firebrick.core.commit import Commit, exchange, fill
from firebrick.core.config import config
from firebrick.core.constants import host_scalar
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import DTypeError, ExecutionError, FirebrickError
from firebrick.core.hooks import hooks
from firebrick.core.interrupts import SIGINT, handler_of_interrupts, set_handler
from firebrick.core.slots import contents
from firebrick.core.storage import OWNED, Absent, Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.passes import eliminate_dead_code
from firebrick.graph.staged import Staged
from firebrick.graph.trace import Check, Draws
from firebrick.graph.traced import Traced
from firebrick.ir import Graph

_PATIENCE = 600.0
Notify = Callable[[int, Callable[[int], Storage]], None]


class Taken(Absent):
    """The data of storages while a program writes into their memory, and after it failed doing so."""

    __slots__ = ("error", "name", "thread")

    def __init__(self, name: str) -> None:
        self.name, self.thread = name, get_ident()
        self.error: BaseException | None = None

    def shown(self) -> str:
        return f"<lost when {self.name} failed>" if self.error else f"<being written by {self.name}>"

    def why(self, tensor: Any = None) -> Exception | None:
        if self.error is None and tensor is not None and self.thread != get_ident():
            for _ in range(int(_PATIENCE / 0.001)):  # another thread's step, which ends soon
                if tensor.storage.data is not self:
                    return None
                if self.error is not None:
                    break
                sleep(0.001)
        error = self.error
        return ExecutionError(
            f"{self.name} failed while it wrote into this tensor's memory, so its values are lost",
            f"{type(error).__name__}: {error}" if error else "it has not finished",
            "load the state again from a checkpoint, or make the model and optimizer anew",
        )


@dataclass
class Program:
    """One traced function.

    Attributes:
        name: Name of the traced function.
        graph: From inputs to outputs.
        device: Where it runs; None for a graph without tensors.
        positions: For each input that is a tensor of the call: its position among the call's handles, else -1.
        fixed: Tensors that are no argument or capture of a call, by input.
        numbers: Inputs that are Python numbers: (input or -1 if it is unused, Weak, dtype).
        keys: Inputs that are keys of a generator: (input, which generator, which draw).
        draws: The generators, and how many keys a run takes of each.
        results: For each value that leaves the program: ("out", output) or ("in", input).
        own: How many of the results, the first ones, the function returns; the others are only values of changed handles.
        updates: Handles that change: (position or -1, handle or None, the result's number).
        checks: Outputs that must be True, and the error if not.
        sources: For each input: its number among the inputs of the trace.
        callbacks: For each callback of ``tell``: the numbers of the results that it gets.
    """

    name: str
    graph: Graph
    device: Device | None
    positions: list[int]
    fixed: dict[int, Tensor]
    numbers: list[tuple[int, Weak, DType]]
    keys: list[tuple[int, int, int]]
    draws: list[Draws]
    results: list[tuple[str, int, Aval]]
    own: int
    updates: list[tuple[int, Tensor | None, int]]
    checks: list[tuple[int, Check]]
    sources: tuple[int, ...] = ()
    callbacks: list[tuple[int, ...]] = field(default_factory=list)
    seconds: float = 0.0
    _executables: dict[tuple[int, tuple[Any, ...]], tuple[Backend, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._latest: tuple[Any, Any, Any] = (None, None, None)  # engine, settings and executable of the last call
        self._ranges: Ranges | None = None  # by which the checks may hold
        self._extra = bool(self.fixed or self.numbers or self.draws)
        self._all_read = min(self.positions, default=-1) >= 0
        self._read = None if self.positions == list(range(len(self.positions))) else _items(self.positions)
        shown = {i for kind, i, _ in self.results if kind == "in"}
        read = {p: i for i, p in enumerate(self.positions) if p >= 0}
        alone = {id(t): i for i, t in self.fixed.items()}
        self._changes = [(position, handle) for position, handle, _ in self.updates]
        apart = any(handle is not None for _, handle in self._changes)
        self._changed = None if apart else _items([position for position, _ in self._changes])
        self._values = [r for _, _, r in self.updates]
        self._valued = _items(self._values)
        self._avals = [self.results[r][2] for r in self._values]
        self._alike = True  # whether the changed handles keep their dtypes and shapes
        self._again: dict[int, int] = {}  # results that are a changed handle's new value and nothing else, with its input
        donated = []
        for position, handle, r in self.updates:
            i = read.get(position) if handle is None else alone.get(id(handle))
            if i is None or self.graph.inputs[i] != self.results[r][2]:
                self._alike = False
            if i is None or i in shown:
                continue
            donated.append(i)
            kind, _, aval = self.results[r]
            if kind == "out" and r >= self.own and aval == self.graph.inputs[i] and r not in self._again:
                self._again[r] = i
        times = Counter(r for _, _, r in self.updates)
        for r in [r for r in self._again if times[r] > 1]:
            del self._again[r]
        # for each result: the input that it is, or whose storage it takes, or -1; the output, or -1; its bytes
        self._results = [
            (i, -1, 0) if kind == "in" else (self._again.get(r, -1), i, aval.nbytes)
            for r, (kind, i, aval) in enumerate(self.results)
        ]
        self._donate = tuple(sorted(set(donated)))
        reused = [(own, i) for own, i, _ in self._results if own >= 0 and i >= 0]
        self._filled, self._fillers = _items([own for own, _ in reused]), _items([i for _, i in reused])

    def executable(self) -> Any:
        """The graph compiled by the device's engine: an ``Executable``, or ``Staged`` if there are callbacks. It is compiled
        again when a decorator replaces the engine, or a setting changes that engines read while they compile."""
        assert self.device is not None
        engine: Backend = self.device.backend
        settings = config.compiled_with
        known, under, executable = self._latest
        if known is engine and under is settings:
            return executable
        key = id(engine), settings
        found = self._executables.get(key)
        if found is None or found[0] is not engine:
            found = engine, self._compiled(engine)
            kept = {k: v for k, v in self._executables.items() if len(self._executables) < 4}
            self._executables = {**kept, key: found}
        self._latest = engine, settings, found[1]
        return found[1]

    def _compiled(self, engine: Backend) -> Any:
        assert self.device is not None
        if self.callbacks:
            outputs = [[i for kind, i, _ in (self.results[s] for s in slots) if kind == "out"] for slots in self.callbacks]
            return Staged(engine, self.graph, self.device, outputs)
        ready = [o for o, _ in self.checks]  # conditions, which are checked before anything is written
        return engine.compile(self.graph, self.device, self._donate, ready)

    def inputs(self, handles: Sequence[Tensor], numbers: Sequence[Any], drawn: list[Any]) -> tuple[list[Any], list[Any] | None]:
        """The storage of each input, and its data where that is known to be there; the draws of generators are appended to
        ``drawn``."""
        if self._all_read and not self._extra:  # most graphs; thousands of tensors of a model
            count = len(self.positions)
            whole = handles if len(handles) == count else handles[:count]
            read = whole if self._read is None else self._read(handles)
            storages, given, classes = contents(read)
            if _ABSENT.isdisjoint(classes):
                return storages, given
        found: list[Any] = [handles[p].storage if p >= 0 else None for p in self.positions]
        # another thread is writing one, or it is lost
        while not _ABSENT.isdisjoint([type(s.data) for s in found if s is not None]):
            check_present([handles[p] for p in self.positions if p >= 0])
            found = [handles[p].storage if p >= 0 else None for p in self.positions]
        if self._extra:
            for i, t in self.fixed.items():
                found[i] = t.storage
            for i, number, dtype in self.numbers:
                if i < 0:  # unused, but it must fit its dtype all the same
                    host_scalar(number.value(numbers), dtype)
                else:
                    found[i] = self._scalar(number, dtype, numbers)
            if self.draws:  # also those whose numbers are unused
                blocks = [d.find(numbers)._take(d.count, drawn) for d in self.draws]
                for i, which, k in self.keys:
                    found[i] = self._sent(blocks[which][k])
        return found, None

    def _sent(self, host: Any) -> Storage:
        assert self.device is not None
        backend = self.device.backend
        return Storage(backend.from_host(host, self.device), self.device._memory, 0)

    def _scalar(self, number: Weak, dtype: DType, numbers: Sequence[Any]) -> Storage:
        value = number.value(numbers)
        if number.kind is int and type(value) is not int and dtype.is_integer:
            raise DTypeError(
                f"{number.name} was an int when {self.name} was traced",
                f"{type(value).__name__} {value!r}",
                "write the number as a float, 2.0 for 2, wherever it may become one",
            )
        if isinstance(value, complex) and dtype.kind != "complex":
            raise DTypeError(
                f"{number.name} was a float when {self.name} was traced",
                f"complex {value!r}",
                "pass numbers whose power is real, or cast the tensor to a complex dtype and compute the power with fb.pow",
            )
        return self._sent(host_scalar(value, dtype))

    def run(
        self,
        handles: Sequence[Tensor],
        numbers: Sequence[Any] = (),
        notify: Notify | None = None,
        kept: list[Any] | None = None,
    ) -> list[Storage]:
        """Run once: rebind what changes, and return the storages of the results.

        Args:
            handles: The call's tensors.
            numbers: Its numbers and generators.
            notify: Called during the run if there are callbacks, with the number of the callback and a function that returns
                the storage of a result.
            kept: A list that the storages of the inputs are appended to; the run then overwrites none of them.
        """
        drawn: list[Any] = []
        device, version = self.device, hooks.version
        writing = _Writing(self) if self._donate else _NOTHING
        try:
            storages, given = self.inputs(handles, numbers, drawn)
            if kept is not None:
                kept += storages
            if hooks.journals:  # before memory is donated, after which a journal could not note the old values
                for position, handle in self._changes:
                    hooks.note(handles[position] if handle is None else handle)
            if device is not None and self.graph.nodes and not self.callbacks:
                return self._run(handles, device, storages, given, writing, drawn, version)
            if device is None or not self.graph.nodes:
                outputs = self.graph.outputs  # inputs, since nothing is computed
                made: list[Storage] = [storages[i if kind == "in" else outputs[i]] for kind, i, _ in self.results]
                for k in range(len(self.callbacks)):
                    assert notify is not None
                    notify(k, made.__getitem__)
            else:
                assert notify is not None
                made = self._run_in_stages(device, storages, notify)
            if self.updates:
                self._rebind(handles, made, drawn, version)
            return made
        except BaseException:
            for generator, before, after in reversed(drawn):
                generator.untake(before, after)
            raise
        finally:
            if writing.before is not None:  # no call of Python's own: it could be interrupted before it did anything
                set_handler(SIGINT, writing.before)
                if writing.pending:
                    signal.raise_signal(signal.SIGINT)

    def _rebind(
        self, handles: Sequence[Tensor], made: list[Storage], drawn: list[Any], version: int, filled: Sequence[Storage] = (),
        buffers: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        """Let the handles that change show their new values, all of them or, by an interrupt, none.

        Args:
            handles: The call's tensors.
            made: The storages of the results.
            drawn: The draws, which are final from then on.
            version: What ``hooks.version`` was when the run began: handles have the dtypes and shapes of then if it still is.
            filled: Storages that take new buffers.
            buffers: Those buffers.
        """
        if self._changed is not None:
            changed = self._changed(handles)
        else:
            changed = [handles[position] if handle is None else handle for position, handle in self._changes]
        values = self._valued(made)
        rows = [(list.clear, drawn)] if drawn else ()
        with hooks.rebinding:
            if self._alike and not hooks.tracing and hooks.version == version:
                for t, s in zip(changed, values):  # noqa: B905 - as long as each other, and quicker so
                    if t.storage is not s or t.node or t.leaf > 0:
                        break
                else:
                    if not rows:
                        return fill(filled, buffers)
                return exchange(changed, values, filled, buffers, rows)
        commit = Commit()
        commit.show(changed, values, self._avals)
        commit.fill(filled, buffers)
        for row in rows:
            commit.call(*row)
        commit.apply()

    def _run_in_stages(self, device: Device, storages: list[Any], notify: Notify) -> list[Storage]:
        """A run with callbacks, which overwrites none of its inputs."""
        exe: Staged = self.executable()
        natives, memory = self._given(device, storages), device._memory
        outputs: dict[int, Any] = {}
        made: dict[int, Storage] = {}
        calls, notifying = iter(range(len(self.callbacks))), False
        looked: set[int] = set()

        def storage(slot: int) -> Storage:
            kind, i, aval = self.results[slot]
            if kind == "in":
                found: Storage = storages[i]
                return found
            if i not in made:
                made[i] = Storage(outputs[i], memory, aval.nbytes)
            return made[i]

        def look() -> None:
            there = [(o, c) for o, c in self.checks if o in outputs and o not in looked]
            if there:
                self._look(device, there, [outputs[o] for o, _ in there])
                looked.update(o for o, _ in there)

        def reached(found: dict[int, Any]) -> None:
            nonlocal notifying
            outputs.update(found)
            look()
            notifying = True
            notify(next(calls), storage)
            notifying = False

        try:
            outputs.update(exe(natives, reached))
            look()
        except BaseException as e:
            if notifying:
                raise
            if isinstance(e, FirebrickError) and len(looked) < len(self.checks):
                self._recheck(device, natives)
            if isinstance(e, MemoryError) and not isinstance(e, ExecutionError):
                raise out_of_memory(self.name, tuple(a for _, _, a in self.results), device) from e
            raise
        memory.peak = max(memory.peak, memory.live + exe.peak)
        return [storage(slot) for slot in range(len(self.results))]

    def _given(self, device: Device, storages: Sequence[Storage]) -> list[Any]:
        """The buffers of a run's inputs."""
        given = [s.data for s in storages]
        while not _ABSENT.isdisjoint(map(type, given)):  # another thread is checking whether it may write there
            self._check_present(device, storages)
            given = [s.data for s in storages]
        return given

    def _run(
        self, handles: Sequence[Tensor], device: Device, storages: list[Any], given: list[Any] | None, writing: _Writing,
        drawn: list[Any], version: int,
    ) -> list[Storage]:  # fmt: skip
        exe = self.executable()
        if given is None:
            given = self._given(device, storages)
        natives = given.copy()
        taken = outputs = None
        try:
            if exe.writes or self._again:
                taken, copy = Taken(self.name), device.backend.copy
                for i in exe.writes:
                    s = storages[i]
                    if s.base is None and s.kind is OWNED:
                        s.data = taken  # a thread that read the buffer before this line is counted in the next one
                        if getrefcount(s) <= _STORAGE and getrefcount(given[i]) <= _BUFFER:
                            continue
                        s.data = given[i]
                    natives[i] = copy(given[i], device)
            hold = not self.checks or self._hold(device, natives)
            if exe.writes:
                writing.hold = hold
            outputs = exe(natives, writing)
            if not hold and not writing.begun:
                self.look(device, [outputs[o] for o, _ in self.checks])
            memory = device._memory
            if memory.live + exe.plan.peak > memory.peak:
                memory.peak = memory.live + exe.plan.peak
            if not self.updates:
                return [storages[own] if i < 0 else Storage(outputs[i], memory, nbytes) for own, i, nbytes in self._results]
            return self._finish(handles, device, storages, given, outputs, taken, drawn, version)
        except BaseException as e:
            if writing.begun:
                assert taken is not None
                taken.error = e
                if outputs is not None and any(s.data is taken for s in storages):  # all is written, but not committed
                    self._finish(handles, device, storages, given, outputs, taken, drawn, version)
            written = exe.writes if writing.begun else ()
            back = [i for i, s in enumerate(storages) if s.data is taken and i not in written]
            commit = Commit()
            commit.fill([storages[i] for i in back], [given[i] for i in back])
            commit.apply()
            if self.checks and outputs is None and not writing.begun and isinstance(e, FirebrickError):
                self._recheck(device, natives)
            if isinstance(e, MemoryError) and not isinstance(e, ExecutionError):
                raise out_of_memory(self.name, tuple(a for _, _, a in self.results), device) from e
            raise

    def _finish(
        self, handles: Sequence[Tensor], device: Device, storages: list[Any], given: list[Any], outputs: Sequence[Any],
        taken: Taken | None, drawn: list[Any], version: int,
    ) -> list[Storage]:  # fmt: skip
        """The storages of the results, and the commit; a second call continues an interrupted one."""
        memory = device._memory
        made, all_reused = [], True
        for own, i, nbytes in self._results:
            if own >= 0:
                s = storages[own]
                if i < 0:
                    made.append(s)
                    continue
                if s.data is not taken and s.base is None and s.kind is OWNED:
                    s.data = taken  # before it is counted, as above
                    if getrefcount(s) > _STORAGE:
                        s.data = given[own]
                if s.data is taken:
                    made.append(s)
                    continue
                all_reused = False
            made.append(Storage(outputs[i], memory, nbytes))
        filled, buffers = self._filled(storages), self._fillers(outputs)
        if not all_reused:
            reused = [s.data is taken for s in filled]  # not pairs: thousands of them would start a pass of the collector
            filled, buffers = list(compress(filled, reused)), list(compress(buffers, reused))
        self._rebind(handles, made, drawn, version, filled, buffers)
        return made

    def _check_present(self, device: Device, storages: Sequence[Storage]) -> None:
        """Wait for values that another thread is writing; raise the error of values that are lost."""
        check_present([Tensor(s, a.dtype, a.shape, device) for s, a in zip(storages, self.graph.inputs, strict=True)])

    def _recheck(self, device: Device, natives: list[Any]) -> None:
        """After an operation failed before the checks were evaluated: raise the error of a check that does not hold."""
        outputs = tuple(self.graph.outputs[o] for o, _ in self.checks)
        graph = eliminate_dead_code(Graph(self.graph.inputs, self.graph.nodes, outputs, self.graph.names), checks=False)
        try:
            flags = device.backend.compile(graph, device)(natives)
        except FirebrickError:
            return
        self.look(device, flags)

    def _hold(self, device: Device, natives: Sequence[Any]) -> bool:
        """Whether the checks are known to hold, so that nothing waits for them."""
        ranges = self._ranges
        if ranges is None:
            ranges = self._ranges = Ranges(self.graph, [self.graph.outputs[o] for o, _ in self.checks], indices=False)
        known = device.backend.known_ranges([natives[i] for i in ranges.inputs])
        return known is not None and ranges.hold(known)

    def look(self, device: Device, flags: Sequence[Any]) -> None:
        """Raise the first error among the checks of a run."""
        self._look(device, self.checks, flags)

    def _look(self, device: Device, checks: Sequence[tuple[int, Check]], flags: Sequence[Any]) -> None:
        if device.engine == "meta":
            return
        for (_, check), flag in zip(checks, device.backend.read(list(flags)), strict=True):
            if not flag:
                raise check.error()


class _Writing:
    """Called by an executable directly before its first write into donated memory: from then on Ctrl-C is deferred.

    Attributes:
        begun: Whether it was called.
        hold: Whether the program's checks are known to hold.
        before: The replaced handler of SIGINT, if SIGINT is deferred.
        pending: Whether SIGINT came meanwhile.
    """

    __slots__ = ("before", "begun", "hold", "pending", "program")

    def __init__(self, program: Program | None) -> None:
        self.program = program
        self.before: Any = None
        self.begun = self.hold = self.pending = False

    def __call__(self, flags: Sequence[Any] = ()) -> None:
        program = self.program
        assert program is not None
        if program.checks and not self.hold:
            assert program.device is not None
            program.look(program.device, flags)
        self.before = handler_of_interrupts()  # first, so that an exception right after the next lines finds it
        if self.before is not None:
            set_handler(SIGINT, self._note)
        self.begun = True

    def _note(self, number: int, frame: Any) -> None:
        self.pending = True


def _items(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that returns the items at these positions of a sequence, in one C call."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return itemgetter(slice(positions[0], positions[0] + 1) if positions else slice(0))


_NOTHING = _Writing(None)  # where no input may be overwritten


class _Holder:
    __slots__ = ("data",)
    data: Any


def _calibrate() -> tuple[int, int]:
    """How many references this interpreter counts, in ``_run``, to a storage that only its handle has, and to its buffer."""
    handle, buffer = _Holder(), _Holder()
    buffer.data = _Holder()
    handle.data = _Holder()
    storages, given = [handle.data], [buffer.data]
    natives = given.copy()
    for i in range(1):
        s = storages[i]
        buffer.data = None
        return getrefcount(s), getrefcount(given[i])
    return len(natives), 0


_STORAGE, _BUFFER = _calibrate()
_ABSENT = frozenset({Taken, Traced})
