"""The fork-join pool: Python threads, parked in native code without the GIL, that run chunks of kernels in parallel with their
caller.

Promise: a call never waits for a thread that has not taken a chunk; a second caller at the same time, from another Python
thread or another logical device, runs its chunks itself; chunks are the same for any number of threads. Parked threads do not
keep the process alive, and a forked child starts its own when it first needs them.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from firebrick.backends.cpu.runtime import forkjoin
from firebrick.backends.cpu.runtime.arena import ALIGNMENT, aligned
from firebrick.backends.cpu.runtime.runner import ADDRESSES, RUN, RUNNER
from firebrick.backends.cpu.runtime.slots import SLOTS, install
from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.spec import faults
from firebrick.compiler.targets.llvm.host import Module, Options, compile_ir
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.config import config
from firebrick.core.sharing import cores_of, part_of_cores, usable_cores

# Microseconds that a thread watches for work before it sleeps: inside a segment, between segments. To wake a thread takes
# the system some 5 to 50 µs; kernels in one segment follow each other in less.
BUSY_US, IDLE_US = 30.0, 15.0
# A call that took so much longer than its caller would have taken alone means that a core is gone: callers then work alone
# for a while.
STALL_US = 20.0
# The pool's functions are control flow and atomic operations, which other passes than inlining gain nothing for; they would
# take half of its compile time, at the first program of a machine.
_INLINED = Options(passes=0)
# The longest time in native code, after which a segment returns between two kernels, so that Ctrl-C and other threads are
# served.
BUDGET_MS = 50.0
# Sites of a thread's first table of faults: more than most kernels have.
SITES = 62

_settings: dict[str, Any] = config._values
_lock = threading.Lock()
_shared: Pool | None = None
_parts: dict[tuple[int, int, int], Pool] = {}  # of calls that share the cores
_native: dict[str | None, Native] = {}


class Native:
    """The pool's compiled functions for one way of waiting, and the rate of the processor's clock."""

    def __init__(self, how: str) -> None:
        target = Target.host()
        for name in forkjoin.LIBRARIES:
            ctypes.CDLL(name)
        self.module: Module = compile_ir(forkjoin.pool_ir(target, how) + RUNNER + SLOTS, target, options=_INLINED).pin()
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self.init = self.module.function(forkjoin.INIT, None, pointer)
        self.ring = self.module.function(forkjoin.RING, None, pointer)
        self.worker = self.module.function(forkjoin.WORKER, None, pointer, word)
        self.parallel_for = self.module.function(forkjoin.PARALLEL_FOR, None, pointer, pointer, pointer, word, word, pointer)
        self.run = self.module.function(RUN, word, pointer, pointer, pointer, pointer, word)
        self.addresses = self.module.function(ADDRESSES, word, pointer, pointer, word, word, word, pointer)
        self.ticks = self.module.function(forkjoin.TICKS, word)
        self.ticks_per_us = self._rate()
        install(partial(self.module.function, locked=True))

    def _rate(self) -> float:
        """Ticks of the processor's clock in a microsecond, from some 0.2 ms of both clocks."""
        rates = []
        for _ in range(3):  # the median: a loss of the core between the two clocks would spoil one of them
            t0, c0 = time.perf_counter_ns(), int(self.ticks())
            t1 = t0
            while t1 - t0 < 200_000:
                t1 = time.perf_counter_ns()
            rates.append((int(self.ticks()) - c0) / (t1 - t0) * 1e3)
        return max(1e-3, sorted(rates)[1])


def native(how: str | None = None) -> Native:
    """The pool's functions, compiled at first use.

    Args:
        how: How threads wait, one of ``forkjoin.PARKINGS``; the system's own way by default.

    Raises:
        KernelCompileError: The system forbids code in memory.
    """
    found = _native.get(how)
    if found is None:
        way = how or forkjoin.parking(Target.host())
        with _lock:
            found = _native.get(way) or _native.setdefault(way, Native(way))
            _native[how] = found
    return found


class Pool:
    """Some threads that work together.

    Args:
        threads: How many work on a kernel, the caller among them.
        how: How they wait, one of ``forkjoin.PARKINGS``; the system's own way by default.
    """

    def __init__(self, threads: int, how: str | None = None) -> None:
        self.threads = max(1, threads)
        self.wanted = threads  # the setting it was made for
        self.native = native(how)
        self.pid = os.getpid()
        self._record = aligned(forkjoin.POOL_BYTES, 128)
        self._record[:] = 0
        self.address = self._record.ctypes.data
        rate = self.native.ticks_per_us
        self._put(forkjoin.THREADS, self.threads)
        self._put(forkjoin.CUTS, min(self.threads, forkjoin.PARTS))
        self._put(forkjoin.SPIN_BUSY, int(BUSY_US * rate))
        self._put(forkjoin.SPIN_IDLE, int(IDLE_US * rate))
        self._put(forkjoin.STALL, int(STALL_US * rate))
        self.native.init(self.address)
        self._local = threading.local()
        self._starting = threading.Lock()
        self._numbers = count(1)
        self.workers: list[threading.Thread] = []
        self.started = False

    def start(self) -> None:
        """Start the workers, if they are not there yet; until then callers do all work themselves."""
        with self._starting:
            if self.started:
                return
            for i in range(1, self.threads):
                worker = threading.Thread(target=self._work, name=f"firebrick-worker-{i}", daemon=True)
                self.workers.append(worker)
                worker.start()
            self.started = True

    def _work(self) -> None:
        # each number once, as it is that of a part of the scratch; an exception during the first start leaves threads to the
        # second one
        index = next(self._numbers)
        if index < self.threads:
            self.native.worker(self.address, index)  # `self` in this frame keeps the record in memory

    def _put(self, at: int, value: int) -> None:
        self._record[at : at + 8].view(np.int64)[0] = value

    def caller(self, scratch: int = 0, sites: int = 0) -> Caller:
        """The calling thread's record.

        Args:
            scratch: Minimum bytes of working space for each thread of the pool.
            sites: Minimum number of sites of its table of faults.
        """
        try:
            found: Caller = self._local.caller
        except AttributeError:
            found = self._local.caller = Caller(self)
        if found.stride < scratch:
            found.reserve(scratch)
        if found.sites < sites:
            found.reserve_sites(sites)
        return found

    def parallel_for(self, kernel: int, bufs: int, grid: int, chunk: int, scratch: int = 0, sites: int = 1) -> Fault | None:
        """Run one kernel over its grid.

        Args:
            kernel: Its address.
            bufs: Address of its array of buffer addresses.
            grid: Length of its grid.
            chunk: How much of the grid a thread takes at a time.
            scratch: Bytes of working space it needs.
            sites: Number of its checks.

        Returns:
            The fault that it reports.
        """
        if not self.started:
            self.start()
        caller = self.caller(scratch, sites)
        caller.faults[:] = 0
        self.native.parallel_for(caller.address, kernel, bufs, grid, chunk, caller.faults_address)
        return faults.found(caller.faults)

    def release_scratch(self) -> int:
        """Give the calling thread's working space back; returns its bytes."""
        caller = self.caller()
        freed = max(0, caller.stride) * self.threads
        caller.reserve(0)
        return freed

    def close(self) -> None:
        """End the workers, after what they have begun. Callers then do all work themselves."""
        if self.pid != os.getpid():
            self.workers = []  # they are threads of the process that this one was forked from
            return
        self.started = True  # nobody starts them now
        self._put(forkjoin.THREADS, 1)
        self._put(forkjoin.STOP, 1)
        while any(w.is_alive() for w in self.workers):
            self.native.ring(self.address)
            for w in self.workers:
                if w.is_alive():
                    w.join(0.05)
        self.workers = []


class Caller:
    """The state that one Python thread passes to its calls: the pool, working space for all its threads, a table of faults, a
    time budget.

    Attributes:
        address: Of the native record, the ``pool`` argument of a segment.
        stride: Bytes of working space of each thread.
        sites: How many sites its table of faults has payloads for.
        faults: The table (``spec.faults``).
        run: The native loop of segments, of the pool's own way of waiting.
    """

    __slots__ = (
        "__weakref__", "_record", "_scratch", "address", "faults", "faults_address", "pool", "run", "sites", "stride",
    )  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.run = pool.native.run
        record = aligned(forkjoin.CALLER_BYTES)
        record[:] = 0
        self._record = record.view(np.int64)
        self.address = record.ctypes.data
        self._record[forkjoin.CALLER_POOL // 8] = pool.address
        self._record[forkjoin.CALLER_BUDGET // 8] = int(BUDGET_MS * 1e3 * pool.native.ticks_per_us)
        self.reserve_sites(SITES)
        self.reserve(0)

    def reserve(self, scratch: int) -> None:
        """Working space of this number of bytes for each thread, aligned and apart from the others'.

        An interrupt may end it anywhere: what there is counts as too little until all of it is written.
        """
        stride = -(-scratch // 128) * 128
        space = aligned(max(stride * self.pool.threads, ALIGNMENT), 128)
        self.stride = -1
        self._scratch = space
        self._record[forkjoin.CALLER_SCRATCH // 8] = space.ctypes.data
        self._record[forkjoin.CALLER_STRIDE // 8] = stride
        self.stride = stride

    def reserve_sites(self, sites: int) -> None:
        """A table of faults with payloads for this number of sites; an interrupt may end it anywhere."""
        table = faults.table(sites)
        self.sites = -1
        self.faults = table
        self.faults_address = int(table.ctypes.data)
        self.sites = sites

    def set_budget(self, milliseconds: float) -> None:
        """How long a segment stays in native code before it returns between two kernels."""
        self._record[forkjoin.CALLER_BUDGET // 8] = int(milliseconds * 1e3 * self.pool.native.ticks_per_us)


def shared_pool() -> Pool:
    """The process's pool, of ``num_threads`` threads (``FIREBRICK_NUM_THREADS``; by default one for each usable core), or the
    pool of this call's part of the cores.

    It is made when first asked for, and anew after the setting changed or the process forked.
    """
    part = part_of_cores.get()
    if part is not None:
        return _part_pool(part)
    found = _shared
    if found is not None and found.wanted == _settings.get("num_threads", 0):
        return found
    return _renewed()


def release_scratch() -> int:
    """Give the calling thread's working space in the process's pool back, if there is one; returns its bytes."""
    return 0 if _shared is None else _shared.release_scratch()


def _renewed() -> Pool:
    global _shared
    with _pool_lock:
        wanted = config.num_threads
        found = _shared
        if found is None or found.wanted != wanted:
            fresh = Pool(wanted or usable_cores())
            fresh.wanted = wanted
            _shared = fresh
            if found is not None:
                found.close()
            return fresh
        return found


def _part_pool(part: tuple[int, int]) -> Pool:
    """The pool of one of several calls at the same time."""
    wanted = config.num_threads
    key = (*part, wanted)
    found = _parts.get(key)
    if found is None:
        with _pool_lock:
            found = _parts.get(key)
            if found is None:
                for old in [k for k in _parts if k[2] != wanted]:
                    _parts.pop(old).close()
                found = _parts[key] = Pool(cores_of(part, wanted or usable_cores()))
    return found


def _forked() -> None:
    """In a child: the parent's workers are not here, and its locks may be held by threads that are not here either."""
    global _shared, _lock, _pool_lock
    _shared = None
    _parts.clear()
    _lock = threading.Lock()
    _pool_lock = threading.Lock()


_pool_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
