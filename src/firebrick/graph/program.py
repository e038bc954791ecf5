"""``Program``: a traced function, ready to run: its graph, what its inputs are read from and what its outputs become.

A run reads the call's handles, hands their buffers to the engine's executable, and gives back results; handles that the
function changed are rebound. Memory of a changed handle that nobody else can see is given to the executable to write into.
If that fails half way, what was given away is lost: reading those handles raises what went wrong.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from sys import getrefcount
from threading import get_ident, main_thread
from time import sleep
from typing import Any

from firebrick.backends import transfer
from firebrick.backends.contract import Backend
from firebrick.backends.dispatch import check_present
from firebrick.core.aval import Aval
from firebrick.core.bind import host_scalar
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import DTypeError, ExecutionError, FirebrickError
from firebrick.core.hooks import hooks
from firebrick.core.storage import OWNED, Absent, Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.passes import eliminate_dead_code
from firebrick.graph.staged import Staged
from firebrick.graph.trace import Check, Draws
from firebrick.graph.traced import Traced
from firebrick.ir import Graph

_PATIENCE = 600.0
Tell = Callable[[int, Callable[[int], Storage]], None]


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
            for _ in range(int(_PATIENCE / 0.001)):  # another thread's step: over in a moment
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
        name: What was traced.
        graph: From inputs to outputs.
        device: Where it runs; None for a graph without tensors.
        places: For each input that is a tensor of the call: its place among the call's handles, else -1.
        fixed: Tensors that stand for themselves, by input.
        numbers: Inputs that are Python numbers: (input or -1 if nothing uses it, Weak, dtype).
        keys: Inputs that are keys of a generator: (input, which generator, which draw).
        draws: The generators, and how many keys each gives.
        results: For each value that leaves the program: ("out", output) or ("in", input).
        own: How many of the results, the first ones, the function returns; the others are only values of changed handles.
        updates: Handles that change: (place or -1, handle or None, which result).
        checks: Outputs that must be True, and the error if not.
        sources: For each input: its number among the inputs of the trace.
        told: For each call on the way (``tell``): which results it is told.
    """

    name: str
    graph: Graph
    device: Device | None
    places: list[int]
    fixed: dict[int, Tensor]
    numbers: list[tuple[int, Weak, DType]]
    keys: list[tuple[int, int, int]]
    draws: list[Draws]
    results: list[tuple[str, int, Aval]]
    own: int
    updates: list[tuple[int, Tensor | None, int]]
    checks: list[tuple[int, Check]]
    sources: tuple[int, ...] = ()
    told: list[tuple[int, ...]] = field(default_factory=list)
    seconds: float = 0.0
    _executables: dict[tuple[int, bool, bool], tuple[Backend, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._extra = bool(self.fixed or self.numbers or self.draws)
        shown = [i for kind, i, _ in self.results if kind == "in"]
        read = {p: i for i, p in enumerate(self.places) if p >= 0}
        alone = {id(t): i for i, t in self.fixed.items()}
        self._changes = [(place, handle, r, *self.results[r][2]) for place, handle, r in self.updates]
        self._again: dict[int, int] = {}  # results that are a changed handle's new value and nothing else, with its input
        donated = []
        for place, handle, r in self.updates:
            i = read.get(place) if handle is None else alone.get(id(handle))
            if i is None or i in shown:
                continue
            donated.append(i)
            kind, _, aval = self.results[r]
            if kind == "out" and r >= self.own and aval == self.graph.inputs[i] and r not in self._again:
                self._again[r] = i
        for r in [r for r in self._again if sum(u[2] == r for u in self.updates) > 1]:
            del self._again[r]
        # for each result: the input that it is, or whose storage it takes, or -1; the output, or -1; its bytes
        self._results = [
            (i, -1, 0) if kind == "in" else (self._again.get(r, -1), i, aval.nbytes)
            for r, (kind, i, aval) in enumerate(self.results)
        ]
        self._donate = tuple(sorted(set(donated)))

    def executable(self) -> Any:
        """What the device's engine made of the graph, an ``Executable``, or ``Staged`` where it tells; made again where a
        decorator stands in for the engine."""
        assert self.device is not None
        engine: Backend = self.device.backend
        key = id(engine), config.torch_compile, config.cpu_compile
        found = self._executables.get(key)
        if found is None or found[0] is not engine:
            found = engine, self._compiled(engine)
            kept = {k: v for k, v in self._executables.items() if len(self._executables) < 4}
            self._executables = {**kept, key: found}
        return found[1]

    def _compiled(self, engine: Backend) -> Any:
        assert self.device is not None
        if self.told:
            outputs = [[i for kind, i, _ in (self.results[s] for s in slots) if kind == "out"] for slots in self.told]
            return Staged(engine, self.graph, self.device, outputs)
        ready = [o for o, _ in self.checks]  # conditions, which are looked at before anything is written
        return engine.compile(self.graph, self.device, self._donate, ready)

    def inputs(self, handles: Sequence[Tensor], numbers: Sequence[Any]) -> list[Any]:
        """The storage of each input."""
        found: list[Any] = [handles[p].storage if p >= 0 else None for p in self.places]
        # another thread has one for a moment, or it is lost
        while not _ABSENT.isdisjoint([type(s.data) for s in found if s is not None]):
            check_present([handles[p] for p in self.places if p >= 0])
            found = [handles[p].storage if p >= 0 else None for p in self.places]
        if self._extra:
            for i, t in self.fixed.items():
                found[i] = t.storage
            for i, number, dtype in self.numbers:
                if i < 0:  # nothing uses it, but it must fit all the same
                    host_scalar(number.value(numbers), dtype)
                else:
                    found[i] = self._scalar(number, dtype, numbers)
            if self.draws:  # also those whose numbers nothing uses
                blocks = [d.find(numbers)._take(d.count) for d in self.draws]
                for i, which, k in self.keys:
                    found[i] = self._sent(blocks[which][k])
        return found

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
        self, handles: Sequence[Tensor], numbers: Sequence[Any] = (), storages: list[Any] | None = None,
        tell: Tell | None = None,
    ) -> list[Storage]:  # fmt: skip
        """Run once: rebind what changes, and return the storages of the results.

        Args:
            handles: The call's tensors.
            numbers: Its numbers and generators.
            storages: What ``inputs`` gave for them, if it was asked already.
            tell: Called on the way where ``told`` is not empty: which call it is, and what gives the storage of a result.
        """
        if storages is None:
            storages = self.inputs(handles, numbers)
        if hooks.journals:  # before memory is given away: what is noted is written nowhere else
            for place, handle, *_ in self._changes:
                hooks.note(handles[place] if handle is None else handle)
        device = self.device
        writing = _Writing(self, device)
        try:
            if device is None or not self.graph.nodes:
                outputs = self.graph.outputs  # inputs, as nothing is computed
                made: list[Storage] = [storages[i if kind == "in" else outputs[i]] for kind, i, _ in self.results]
                for k in range(len(self.told)):
                    assert tell is not None
                    tell(k, made.__getitem__)
            elif self.told:
                assert tell is not None
                made = self._run_in_stages(device, storages, tell)
            else:
                made = self._run(device, storages, writing)
            del storages
            if self.updates:  # all of them change, or none
                writing.hold()
                self._rebind(handles, made)
        finally:
            writing.end()
        return made

    def _rebind(self, handles: Sequence[Tensor], made: list[Storage]) -> None:
        with hooks.rebinding:
            for place, handle, r, shape, dtype in self._changes:
                t = handles[place] if handle is None else handle
                if hooks.tracing and hooks.elsewhere(t, made[r], dtype, shape, None, 0):
                    continue
                t.storage = made[r]
                if t.node is not None:
                    t.node = None
                if t.leaf > 0:
                    t.leaf = -t.leaf
                if t.dtype is not dtype or t.shape != shape:
                    t.shape, t.dtype = shape, dtype
                    hooks.version += 1

    def _run_in_stages(self, device: Device, storages: list[Any], tell: Tell) -> list[Storage]:
        """A run that tells, and writes nothing that it was given."""
        exe: Staged = self.executable()
        natives, memory = self._given(device, storages), device._memory
        outputs: dict[int, Any] = {}
        made: dict[int, Storage] = {}
        calls, telling = iter(range(len(self.told))), False
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
            nonlocal telling
            outputs.update(found)
            look()
            telling = True
            tell(next(calls), storage)
            telling = False

        try:
            outputs.update(exe(natives, reached))
            look()
        except BaseException as e:
            if telling:
                raise
            if isinstance(e, FirebrickError) and len(looked) < len(self.checks):
                self._recheck(device, natives)
            if isinstance(e, MemoryError) and not isinstance(e, ExecutionError):
                raise transfer.out_of_memory(self.name, tuple(a for _, _, a in self.results), device) from e
            raise
        memory.peak = max(memory.peak, memory.live + exe.peak)
        return [storage(slot) for slot in range(len(self.results))]

    def _given(self, device: Device, storages: Sequence[Storage]) -> list[Any]:
        """The buffers of a run's inputs."""
        given = [s.data for s in storages]
        while not _ABSENT.isdisjoint(map(type, given)):  # another thread looked for a moment whether it may write there
            self._check_present(device, storages)
            given = [s.data for s in storages]
        return given

    def _run(self, device: Device, storages: list[Any], writing: _Writing) -> list[Storage]:
        exe = self.executable()
        given = self._given(device, storages)
        natives = given.copy()
        taken = outputs = None
        try:
            if exe.writes:
                taken, copy = Taken(self.name), device.backend.copy
                for i in exe.writes:
                    s = storages[i]
                    if s.base is None and s.kind is OWNED:
                        s.data = taken  # whoever found the buffer before this line is counted in the next one
                        if getrefcount(s) <= _STORAGE and getrefcount(given[i]) <= _BUFFER:
                            continue
                        s.data = given[i]
                    natives[i] = copy(given[i], device)
            outputs = exe(natives, writing)
            if self.checks and not writing.begun:
                self.look(device, [outputs[o] for o, _ in self.checks])
        except BaseException as e:
            if taken is not None and writing.begun:
                taken.error = e
            else:
                for s, data in zip(storages, given, strict=True):
                    if s.data is taken:
                        s.data = data
            if self.checks and outputs is None and not writing.begun and isinstance(e, FirebrickError):
                self._recheck(device, natives)
            if isinstance(e, MemoryError) and not isinstance(e, ExecutionError):
                raise transfer.out_of_memory(self.name, tuple(a for _, _, a in self.results), device) from e
            raise
        if self.updates:
            writing.hold()
        del given, natives
        memory = device._memory
        if memory.live + exe.plan.peak > memory.peak:
            memory.peak = memory.live + exe.plan.peak
        made = []
        for own, i, nbytes in self._results:
            if own >= 0:
                s = storages[own]
                if i < 0:
                    made.append(s)
                    continue
                if s.data is taken or (s.base is None and s.kind is OWNED and getrefcount(s) <= _STORAGE):
                    s.data = outputs[i]
                    made.append(s)
                    continue
            made.append(Storage(outputs[i], memory, nbytes))
        return made

    def _check_present(self, device: Device, storages: Sequence[Storage]) -> None:
        """Wait for what another thread has for a moment; raise what went wrong with what is lost."""
        check_present([Tensor(s, a.dtype, a.shape, device) for s, a in zip(storages, self.graph.inputs, strict=True)])

    def _recheck(self, device: Device, natives: list[Any]) -> None:
        """An operation failed before the checks were looked at: raise what they have to say about its operands."""
        outputs = tuple(self.graph.outputs[o] for o, _ in self.checks)
        graph = eliminate_dead_code(Graph(self.graph.inputs, self.graph.nodes, outputs, self.graph.names), checks=False)
        try:
            flags = device.backend.compile(graph, device)(natives)
        except FirebrickError:
            return
        self.look(device, flags)

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
    """Called by an executable right before it first writes into memory it was given: from then on Ctrl-C waits."""

    __slots__ = ("_before", "_pending", "begun", "device", "program")

    def __init__(self, program: Program, device: Device | None) -> None:
        self.program, self.device = program, device
        self.begun = False
        self._before: Any = None
        self._pending = False

    def __call__(self, flags: Sequence[Any] = ()) -> None:
        if self.program.checks:
            assert self.device is not None
            self.program.look(self.device, flags)
        self.hold()
        self.begun = True

    def hold(self) -> None:
        """Ctrl-C waits from here on."""
        if self._before is not None:
            return
        if get_ident() == main_thread().ident and _read(_SIGINT) not in (None, signal.SIG_IGN):
            self._before = _set(_SIGINT, self._note)

    def _note(self, number: int, frame: Any) -> None:
        self._pending = True

    def end(self) -> None:
        """The run is over, one way or the other: Ctrl-C acts again, also one that came in between."""
        if self._before is not None:
            before, self._before = self._before, None
            _set(_SIGINT, before)
            if self._pending:
                signal.raise_signal(signal.SIGINT)


_SIGINT = int(signal.SIGINT)
_plain = import_module("_signal")  # what ``signal`` wraps: it makes no enum members, which takes ten times as long
_set, _read = _plain.signal, _plain.getsignal


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
