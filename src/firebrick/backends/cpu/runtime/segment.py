"""Segments: kernels that run one after another in one native call, each on the calling thread or on all threads of the pool.

A segment is a list of launches, and of jumps between them, for one native loop (``runner``). A long segment returns to Python
between two kernels at intervals, so that Ctrl-C is handled and other threads run. After a kernel that reports a fault
(``spec.faults``) the segment ends with an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from firebrick.backends.cpu.runtime.forkjoin import TICKS
from firebrick.backends.cpu.runtime.pool import Pool, native, shared_pool
from firebrick.backends.cpu.runtime.runner import BUFFER, HEADER, RECORD, SEQUENCES, SPAN
from firebrick.compiler.program.launch import Launch
from firebrick.compiler.spec.faults import LARGEST_SITE, Table, found
from firebrick.compiler.targets.llvm.host import Module, Options, compile_ir
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import ExecutionError, FirebrickError, KernelCompileError

_MOST_CHUNKS = 2**31 - 1
# Time between two reads of the clock, by the sum of the kernels' estimates.
_LOOK_US = 500.0


class Segment:
    """Kernels to be run in order.

    Args:
        launches: The kernels.
        modules: Where they are compiled.
        name: For messages.

    Raises:
        KernelCompileError: A kernel is in none of the modules, or has an extent that cannot be.
    """

    __slots__ = ("_address", "_buffers", "_program", "launches", "modules", "name", "parallel", "scratch", "sites")

    def __init__(self, launches: Sequence[Launch], modules: Sequence[Module], name: str = "segment") -> None:
        self.launches, self.modules, self.name = _kept(launches), tuple(modules), name
        self.scratch = max((x.scratch for x in launches), default=0)
        self.sites = max((len(x.sites) for x in launches), default=0)
        self.parallel = any(_shared(x) for x in launches)
        self._program, self._buffers = _program(self.launches, self.modules, self.parallel)
        self._address = int(self._program.ctypes.data)

    def __call__(self, bufs: int, pool: Pool | None = None) -> None:
        """Run its kernels.

        Args:
            bufs: Address of the array of buffer addresses; array and buffers stay there until the call returns.
            pool: Whose threads work; the process's by default.

        Raises:
            OutOfRangeError: An index is out of range in a kernel. Kernels after it have not run; what the segment wrote is
                not to be used.
        """
        if pool is None:
            pool = shared_pool()
        if self.parallel and not pool.started:
            pool.start()
        caller = pool.caller(self.scratch, self.sites)
        program, run = self._address, caller.run
        at = run(program, bufs, caller.address, caller.faults_address, 0)
        while at > 0:  # between two calls Python handles signals, and lets other threads run
            at = run(program, bufs, caller.address, caller.faults_address, at)
        if at < 0:
            raise self.error(self.launches[-1 - at], caller.faults)

    def error(self, launch: Launch, faults: Table) -> FirebrickError:
        """The error of the fault that a launch has left in its table."""
        site = LARGEST_SITE - int(faults[0])
        if site >= len(launch.sites):
            return ExecutionError(
                f"a kernel of {self.name} reports faults of its {len(launch.sites)} checks",
                f"a fault of check {site} of {launch.kernel}",
                "report it: it is a bug",
            )
        fault = found(faults)
        assert fault is not None
        return launch.sites[site].error(fault.payload)


def build_segment(
    kernels: str,
    launches: Sequence[Launch],
    *,
    name: str = "segment",
    target: Target | None = None,
    modules: Sequence[Module] = (),
    options: Options | None = None,
) -> Segment:
    """A segment whose kernels are given as text, as compiled modules, or both.

    Args:
        kernels: LLVM IR of the kernels that are not in ``modules``; may be empty. It may declare ``i64 @firebrick_ticks()``.
        launches: The kernels in order.
        name: For messages.
        target: This machine, with vectors of any width that it has.
        modules: Compiled modules with the other kernels.
        options: How the text is optimised.

    Raises:
        KernelCompileError: A kernel is missing or not valid.
    """
    found = list(modules)
    if kernels:
        own = native().module
        found.insert(0, compile_ir(kernels, target, imports={TICKS: own[TICKS]}, keep=[own], options=options))
    return Segment(launches, found, name)


def _kept(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    """The launches that have something to do. Distances of jumps are those among them."""
    if all(x.grid and not x.jump for x in launches):
        return tuple(launches)
    before = [0, *accumulate(bool(x.grid) for x in launches)]
    kept = ((i, x) for i, x in enumerate(launches) if x.grid)
    return tuple(replace(x, jump=before[i + x.jump] - before[i]) if x.jump else x for i, x in kept)


def _shared(launch: Launch) -> bool:
    """Whether a launch has work for several threads."""
    return bool(launch.chunk) and launch.grid > launch.chunk


Words = np.ndarray[Any, np.dtype[np.int64]]


def _program(launches: Sequence[Launch], modules: Sequence[Module], parallel: bool) -> tuple[Words, Words]:
    """The list for the native loop, and the part of it that locates each kernel's buffers."""
    addresses: dict[str, int] = {}
    for module in modules:
        addresses.update(module.addresses)
    for x in (*launches, *_inside(launches)):
        if min(x.grid, x.chunk, x.scratch) < 0 or (x.chunk and x.grid > _MOST_CHUNKS * x.chunk):
            raise KernelCompileError(
                f"a kernel has a grid ≥ 0 in at most {_MOST_CHUNKS} chunks", str(x), "choose a larger chunk"
            )
    kept = [x for x in launches if x.grid]
    missing = {x.kernel for x in (*kept, *_inside(kept)) if not x.jump and not x.sequences} - addresses.keys()
    if missing:
        raise KernelCompileError(
            "the kernels of a segment are in its text or its modules", f"{', '.join(sorted(missing))}, nowhere", "compile them"
        )
    looks = set(_looks(kept))
    lists = [x for x in kept if x.sequences]
    every = [*kept, *_inside(kept)]
    buffers = np.array([(8 * at, offset) for x in every for at, offset in _entries_of(x)] or [(0, 0)], np.int64)
    # the program, then the list of each launch of sequences
    head, record, span = HEADER // 8, RECORD // 8, SPAN // 8
    sizes = [head + len(x.sequences) * span + len(_inside([x])) * record for x in lists]
    program = np.zeros(head + len(kept) * record + sum(sizes), np.int64)
    slots = [len(x.buffers) for x in kept] + [2 for _ in lists]
    program[:4] = len(kept), max(slots, default=0) or 1, parallel, max((len(x.sites) for x in kept), default=0)
    written = _LaunchRecords(addresses, int(buffers.ctypes.data))
    starts = [head + len(kept) * record, *accumulate(sizes, initial=0)]
    places = iter([starts[0] + offset for offset in starts[1:-1]])
    rows = program[head : starts[0]].reshape(-1, record)
    for k, x in enumerate(kept):
        place = program[next(places) :].ctypes.data if x.sequences else 0
        rows[k] = *written.of(x, int(place)), k in looks
    for x, offset, size in zip(lists, starts[1:], sizes, strict=False):
        _write_list(program[starts[0] + offset : starts[0] + offset + size], x, written)
    return program, buffers


def _write_list(words: Words, launch: Launch, written: _LaunchRecords) -> None:
    """Write the list of a launch's sequences, in the form that ``runner`` describes."""
    head, count = HEADER // 8, len(launch.sequences)
    begin = head + count * SPAN // 8
    inside = _inside([launch])
    words[:2] = max((len(x.buffers) for x in inside), default=0) or 1, count
    ends = [*accumulate(sum(bool(x.grid) for x in part) for part in launch.sequences)]
    words[head:begin].reshape(-1, 2)[:] = [*zip([0, *ends[:-1]], ends, strict=True)]
    rows = words[begin:].reshape(-1, RECORD // 8)
    for k, x in enumerate(inside):
        rows[k, :-1] = written.of(x, 0)


class _LaunchRecords:
    """The records of launches, in the order of their entries in the array of buffers."""

    def __init__(self, addresses: Mapping[str, int], first: int) -> None:
        self.addresses, self.first = addresses, first

    def of(self, x: Launch, sequences: int) -> tuple[int, ...]:
        """A launch's record without its last word.

        Args:
            x: The launch.
            sequences: Address of the list of its sequences.
        """
        if x.sequences:
            return native().module[SEQUENCES], x.grid, x.chunk if _shared(x) else 0, sequences, -2
        entries = _entries_of(x)
        start = entries[0][0] if entries else 0
        if all(entry == (start + i, 0) for i, entry in enumerate(entries)):  # a part of the segment's own array
            where, number = 8 * start, -1
        else:
            where, number = self.first, len(entries)
        self.first += BUFFER * len(entries)
        if x.jump:
            return 0, x.jump, bool(x.buffers), where, number
        return self.addresses[x.kernel], x.grid, x.chunk if _shared(x) else 0, where, number


def _inside(launches: Iterable[Launch]) -> list[Launch]:
    """The launches of sequences that have something to do."""
    return [x for launch in launches for part in launch.sequences for x in part if x.grid]


def _entries_of(launch: Launch) -> list[tuple[int, int]]:
    return [b if isinstance(b, tuple) else (b, 0) for b in launch.buffers]


def _looks(launches: Sequence[Launch]) -> Iterator[int]:
    """The launches before which the clock is read: also each jump back, since a loop may have any number of rounds."""
    spent = 0.0
    for k, launch in enumerate(launches):
        if k and (spent >= _LOOK_US or launch.jump < 0):
            yield k
            spent = 0.0
        spent += _LOOK_US if launch.cost_us is None else launch.cost_us
