"""``Gpu``: one adapter's device, its queue, and the commands that are recorded for it.

Launches are recorded into one open command encoder and submitted when a value is read, when a buffer that they use is written
by the host, or when ``BATCH`` of them are recorded. A device has one queue, so they are executed in the order of their
recording. All methods may be called from any thread; a lock guards the open encoder.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from itertools import accumulate
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from firebrick.backends.webgpu.adapters import PROCESSOR, Adapter, library
from firebrick.backends.webgpu.buffers import Block, BufferPool, DeviceArray, Lease, padded
from firebrick.backends.webgpu.launches import TABLE_BYTES, Chooser, Pipeline, PreparedLaunch, PreparedSegment, Recording
from firebrick.backends.webgpu.lowering import SITES
from firebrick.backends.webgpu.measurements import measured_once
from firebrick.backends.webgpu.probes import FLOAT64
from firebrick.backends.webgpu.readback import Readback
from firebrick.backends.webgpu.replay import LaunchTable
from firebrick.backends.webgpu.stamps import FEATURE, Stamps
from firebrick.compiler.targets.wgsl.bindings import WORD, BoundArray, window_bytes
from firebrick.compiler.targets.wgsl.shader import ITEMS, Shader
from firebrick.core.aval import Aval
from firebrick.core.dtypes import bool_, dtype, uint32
from firebrick.core.errors import DeviceLostError, ExecutionError, KernelCompileError
from firebrick.core.interrupts import deferred

BATCH = 256
"""Maximum number of launches of one submission, so that no driver takes a submission for one that does not end."""
_PIPELINES = 64
"""Maximum number of compiled shaders that are kept when no program has them any more: each takes 0.4 MiB on lavapipe."""
_SMALL, _TOGETHER = 1 << 16, 256
"""Maximum bytes of an array that is read with others by one wait, and maximum number of these."""
UNPROVED = 1 << 22
"""Bytes of a buffer up to which nothing is proved of the device's memory."""
MARK = 0x5BD1E995
"""What positions in a buffer are combined with, to be values that no driver has by chance."""
_GROUPS, _RECORDINGS = 4, 8
"""Maximum number of bind groups that a launch keeps, and of sets of buffers for which a segment keeps its rows."""
_LIMITS = (
    "max-storage-buffer-binding-size", "max-buffer-size", "max-storage-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x", "max-compute-workgroup-storage-size",
)  # fmt: skip
"""Limits that are raised to what the adapter has."""
_FEATURES = ("shader-f16", "subgroup", FEATURE)
"""Features that a device has if its adapter does."""


P = ParamSpec("P")
T = TypeVar("T")


def _reported(method: Callable[Concatenate[Gpu, P], T]) -> Callable[Concatenate[Gpu, P], T]:
    """A method whose errors of wgpu are those of the contract: a lost device, no memory, or a mistake of this engine."""

    @wraps(method)
    def reported(self: Gpu, /, *args: P.args, **named: P.kwargs) -> T:
        try:
            return method(self, *args, **named)
        except self._wgpu.GPUError as e:
            raise self._translated(e) from e

    return reported


_process = os.getpid()
"""This process, for ``_check``: a system call for each launch would take longer than the launch."""


def _leave_to_parent() -> None:
    """In a forked child: wgpu's objects are the parent's, and the threads that their release waits for do not exist here."""
    global _process
    _process = os.getpid()
    api = sys.modules.get("wgpu.backends.wgpu_native._api")
    if api is None:
        return
    vars(api)["libf"] = None  # as at the end of the interpreter, wgpu releases nothing without it
    # Drivers have destructors that run when a process ends, and fail in a child (a segmentation fault of lavapipe): so the
    # child ends before them, with its status, after Python has finished.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _release_of_groups(lib: Any) -> Callable[[Any], None]:
    """The function that releases a bind group, in the process that made it and while the interpreter runs."""
    process, finalizing = _process, sys.is_finalizing

    def release(group: Any) -> None:
        if _process == process and not finalizing():
            lib.wgpuBindGroupRelease(group)

    return release


class Gpu:
    """The state of one device.

    Args:
        adapter: Its adapter.
        index: Number of the device.

    Attributes:
        adapter: Its adapter.
        index: Number of the device.
        measured: What its driver does.
        pool: Its buffers.
    """

    def __init__(self, adapter: Adapter, index: int) -> None:
        wgpu = self._wgpu = library()
        self._native = importlib.import_module("wgpu.backends.wgpu_native")
        self.adapter, self.index = adapter, index
        self._process = _process
        limits = self._limits = adapter.limits
        wanted = {*_FEATURES, *(FLOAT64 if FLOAT64.issubset(adapter.features) else ())}
        features = sorted(wanted & adapter.features)
        self._device = adapter.handle.request_device_sync(
            label="firebrick", required_limits={name: limits[name] for name in _LIMITS}, required_features=features
        )
        self._usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        self.pool = BufferPool(self._buffer, limits["max-buffer-size"], self._forget_groups)
        self._readback = Readback(wgpu, self._native, self._device)
        # launches and segments that keep bind groups, and these their buffers
        self._grouped: WeakSet[PreparedLaunch | PreparedSegment] = WeakSet()
        self._release_group = _release_of_groups(self._native.lib)
        self.lock = threading.RLock()
        self._encoder: Any = None
        self._pass: Any = None
        self._batch = self._recorded = 0
        self._dropped: set[int] = set()  # batches that an interrupt or an error kept from being submitted
        self._held: list[Any] = []  # what recorded commands use, until they are submitted
        self._table = LaunchTable(self._native)  # of the open pass
        self._pipelines: WeakValueDictionary[tuple[str, tuple[bool, ...]], Pipeline] = WeakValueDictionary()
        self._words: WeakValueDictionary[bytes, Any] = WeakValueDictionary()  # buffers of launches, by their content
        self._last: deque[Pipeline] = deque(maxlen=_PIPELINES)
        self._stamping: dict[int, Stamps] = {}  # of the threads whose launches are timed
        self._unused: list[Stamps] = []
        self._period = 0.0  # nanoseconds of a unit of the device's clock, 0 without one
        if FEATURE in features:
            self._period = self._native.lib.wgpuQueueGetTimestampPeriod(self._device.queue._internal)
        self._faults: Any = None
        self._empty: Lease | None = None
        self._proved = UNPROVED
        self.measured = replace(measured_once(self._probe, adapter), processor=adapter.kind == PROCESSOR)

    def _probe(self, source: str, inputs: Sequence[np.ndarray[Any, Any]], words: int) -> np.ndarray[Any, Any]:
        """Run a shader of ``probes``."""
        read = (True,) * len(inputs)
        pipeline = self._compiled(source, (*read, False), ())
        with self.lock:
            arrays = [self.uploaded(x, Aval(x.shape, dtype(x.dtype))) for x in inputs]
            made = self.array(Aval((words,), uint32))
            entries = [_entry(k, x.lease.block.buffer, x.aval.nbytes) for k, x in enumerate((*arrays, made)) if x.lease]
            group = self._device.create_bind_group(layout=pipeline.layout, entries=entries)
            self._pass = self._commands().begin_compute_pass()
            self._pass.set_pipeline(pipeline.pipeline)
            self._pass.set_bind_group(0, group)
            self._pass.dispatch_workgroups(-(-words // 64), 1, 1)
            return self.read(made)

    # memory

    def _buffer(self, size: int) -> Any:
        try:
            made = self._device.create_buffer(size=size, usage=self._usage)
        except self._wgpu.GPUOutOfMemoryError as e:  # the pool tries once more
            raise MemoryError(str(e)) from e
        if size > self._proved:
            self._prove(made, size // WORD)
            self._proved = size
        return made

    def _prove(self, buffer: Any, words: int) -> None:
        """Let a kernel write the ends of each window of a buffer that is larger than all before, and look whether the values
        are there.

        Drivers may offer memory that they do not have, or bind less than they are told to.

        Raises:
            ExecutionError: They are not.
        """
        each = min(words, window_bytes(self._limits["max-storage-buffer-binding-size"]) // WORD)
        windows = min(-(-words // each), self._limits["max-storage-buffers-per-shader-stage"] - 1)
        words = min(words, windows * each)
        shader = Shader(_marks(windows, each), (False,), False, 1, 0, ("uint32",), 1, (windows,), WORD * each)
        launch = self.prepared(shader, [WORD * words], (words,), (3 * windows * ITEMS,))
        self.launch(launch, [Lease(Block(buffer, WORD * words), deque())])
        self.submit()
        for at in (at for k in range(windows) for at in _marked(k * each, min(k * each + each, words))):
            found = np.frombuffer(self._device.queue.read_buffer(buffer, WORD * at, WORD), np.uint32)[0]
            if found != (at ^ MARK):
                raise ExecutionError(
                    f"{self.adapter.name} keeps what kernels write to the buffers that it offers",
                    f"a buffer of {WORD * words:,} bytes in which it does not keep what is written at byte {WORD * at:,}",
                    "use smaller arrays, or another driver; arrays that were made before are as they were",
                )  # fmt: skip

    @_reported
    def array(self, aval: Aval) -> DeviceArray:
        """A new array, whose elements are undefined."""
        with self.lock:
            self._check()
            return DeviceArray(self, self.pool.lease(padded(aval.nbytes)) if aval.size else None, aval)

    @_reported
    def uploaded(self, array: np.ndarray[Any, Any], aval: Aval) -> DeviceArray:
        """A copy of a host array."""
        with self.lock:
            lease = self.array(aval).lease
            if lease is None:
                return DeviceArray(self, None, aval)
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            if data.size % 4:
                data = np.concatenate([data, np.zeros(-data.size % 4, np.uint8)])
            if lease.block.used == self._batch:
                self.submit()
            self._device.queue.write_buffer(lease.block.buffer, 0, data)
            lease.block.written = -1
            made = DeviceArray(self, lease, aval)
            if aval.dtype.is_integer or aval.dtype is bool_:
                made.know(int(array.min()), int(array.max()))
            return made

    @_reported
    def copied(self, x: DeviceArray) -> DeviceArray:
        """A copy of an array."""
        with self.lock:
            made = self.array(x.aval)
            if made.lease is not None and x.lease is not None:
                if x.lease.block.written in self._dropped:
                    raise self._interrupted()
                encoder = self._commands()
                encoder.copy_buffer_to_buffer(x.lease.block.buffer, 0, made.lease.block.buffer, 0, padded(x.aval.nbytes))
                self._use(x.lease, made.lease)
                made.lease.block.written = self._batch
                if (known := x.known_range) is not None:
                    made.know(*known)
            return made

    def read(self, x: DeviceArray) -> np.ndarray[Any, Any]:
        """The values of an array, after all that was recorded before."""
        aval = x.aval
        if x.lease is None:
            return np.zeros(aval.shape, aval.dtype.np)
        if self._stamping and (stamps := self._stamping.get(threading.get_ident())) is not None:
            stamps.host = True
        data = self.bytes_of(x.lease.block.buffer, padded(aval.nbytes))
        if x.lease.block.written in self._dropped:
            raise self._interrupted()
        return _values(data, aval)

    @_reported
    def read_all(self, arrays: Sequence[DeviceArray]) -> list[np.ndarray[Any, Any]]:
        """The values of arrays, those of small ones with one wait."""
        found: dict[int, np.ndarray[Any, Any]] = {}
        small = [(k, x.lease) for k, x in enumerate(arrays) if x.lease is not None and x.aval.nbytes <= _SMALL]
        with self.lock:
            for first in range(0, len(small) if len(small) > 1 else 0, _TOGETHER):
                part = small[first : first + _TOGETHER]
                sizes = [padded(arrays[k].aval.nbytes) for k, _ in part]
                data = self._copied_to_host([lease.block.buffer for _, lease in part], sizes)
                for (k, lease), end, size in zip(part, accumulate(sizes), sizes, strict=True):
                    if lease.block.written in self._dropped:
                        raise self._interrupted()
                    found[k] = _values(data[end - size : end], arrays[k].aval)
        return [found[k] if k in found else self.read(x) for k, x in enumerate(arrays)]

    @_reported
    def bytes_of(self, buffer: Any, size: int) -> Any:
        """The first bytes of a buffer."""
        with self.lock:
            return self._copied_to_host([buffer], [size])

    def _copied_to_host(self, buffers: Sequence[Any], sizes: Sequence[int]) -> bytearray:
        """The first bytes of buffers, one after the other, after all that was recorded before."""
        encoder, whole, begin = self._commands(), sum(sizes), 0
        into = self._readback.buffer(whole)
        for buffer, size in zip(buffers, sizes, strict=True):
            encoder.copy_buffer_to_buffer(buffer, 0, into, begin, size)
            begin += size
        self.submit()
        return self._readback.mapped(into, whole)

    # kernels

    @_reported
    def pipeline(self, shader: Shader) -> Pipeline:
        """The compiled form of a shader.

        Raises:
            KernelCompileError: The driver refuses it.
        """
        key = shader.text, shader.access
        with self.lock:
            found = self._pipelines.get(key)
            if found is None:
                self._check()
                more = ["uniform", "storage"] if shader.checks else ["uniform"]
                found = self._pipelines[key] = self._compiled(shader.text, shader.reads, more)
                self._last.append(found)
            return found

    def _compiled(self, text: str, read: Sequence[bool], more: Sequence[str]) -> Pipeline:
        """A pipeline.

        Args:
            text: WGSL.
            read: For each binding of an array, whether it is only read.
            more: The types of further bindings.
        """
        wgpu, device = self._wgpu, self._device
        kinds = [*("read-only-storage" if r else "storage" for r in read), *more]
        entries = [
            {"binding": k, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}} for k, kind in enumerate(kinds)
        ]
        try:
            module = device.create_shader_module(code=text)
            layout = device.create_bind_group_layout(entries=entries)
            pipeline = device.create_compute_pipeline(
                layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
            )
        except wgpu.GPUError as e:
            if isinstance(lost := self._translated(e), DeviceLostError):
                raise lost from e
            raise KernelCompileError(
                f"{self.adapter.name} compiles generated kernels", str(e), "report this with the kernel", code=text
            ) from e
        return Pipeline(pipeline, layout, len(kinds))

    @_reported
    def prepared(
        self, shader: Shader, sizes: Sequence[int], scalars: Sequence[float], grid: Sequence[int], site: int = 0
    ) -> PreparedLaunch:  # fmt: skip
        """A launch of a kernel over a grid that is not empty.

        Args:
            shader: The kernel.
            sizes: Bytes of each array.
            scalars: A number for each scalar.
            grid: Sizes of the grid.
            site: Number of its first site in the table of faults.
        """
        pipeline = self.pipeline(shader)
        with self.lock:
            self._check()
            words = shader.words(scalars, grid, site).tobytes()
            held = self._words.get(words)
            if held is None:
                held = self._device.create_buffer_with_data(data=words, usage=self._wgpu.BufferUsage.UNIFORM)
                self._words[words] = held
            bindings, workgroups = shader.bindings(sizes), shader.workgroups(grid)
            return PreparedLaunch(pipeline, shader.access, bindings, held, shader.checks, workgroups, self._native)

    @_reported
    def launch(self, what: PreparedLaunch, arrays: Sequence[Lease | None]) -> None:
        """Record a launch.

        Args:
            what: The launch.
            arrays: The buffer of each array; None for one without elements.
        """
        with self.lock:
            self._record(what, tuple([(lease or self._nothing()).block for lease in arrays]))

    def launched(
        self, steps: Sequence[tuple[PreparedLaunch, Chooser]], operands: Sequence[DeviceArray],
        avals: Sequence[tuple[int, Aval]],
    ) -> list[DeviceArray]:  # fmt: skip
        """Record launches one after the other, and make what they write.

        Args:
            steps: Each with what takes its arrays from a list of the operands and the new arrays.
            operands: Arrays.
            avals: Of the new arrays, each with the size of its buffer (``BufferPool.size_of``), 0 for one without elements.

        Returns:
            The new arrays.
        """
        try:  # as ``_reported``, without the call in between: this is what a kernel costs on the host
            with self.lock:
                if _process != self._process:
                    self._check()
                sized, blocks, made = self.pool.sized, [], []
                for x in operands:
                    blocks.append((x.lease or self._nothing()).block)
                for size, aval in avals:
                    lease = sized(size) if size else None
                    blocks.append((lease or self._nothing()).block)
                    made.append(DeviceArray(self, lease, aval))
                for what, arrays_of in steps:
                    self._record(what, arrays_of(blocks))
                return made
        except self._wgpu.GPUError as e:
            raise self._translated(e) from e

    def recorded(self, segment: PreparedSegment, operands: Sequence[DeviceArray]) -> list[Lease]:
        """Record the launches of a segment.

        Args:
            segment: Which.
            operands: The arrays that it reads.

        Returns:
            Its own buffers.
        """
        try:  # as in ``launched``
            with self.lock:
                if _process != self._process:
                    self._check()
                blocks = tuple([(x.lease or self._nothing()).block for x in operands])
                leases, found = self._again(segment, blocks) or self._first(segment, blocks)
                if self._recorded + len(segment.steps) > BATCH:
                    self.submit()
                if self._pass is None or self._stamping:
                    self._begin_pass()
                if self._dropped and any(block.written in self._dropped for block in blocks):
                    raise self._interrupted()
                batch, used = self._batch, found.blocks
                for block in used:
                    block.used = batch
                for k in segment.writes:
                    used[k].written = batch
                self._held.append(found)  # which holds what the rows have the addresses of
                self._table.rows.extend(found.rows)
                self._recorded += len(segment.steps)
                if self._stamping:
                    self._commands()
                return leases
        except self._wgpu.GPUError as e:
            raise self._translated(e) from e

    def _again(self, segment: PreparedSegment, blocks: tuple[Block, ...]) -> tuple[list[Lease], Recording] | None:
        """The buffers of an earlier call with these operands, and what was recorded; None if some are in use."""
        for own, found in segment.groups.get(blocks, {}).items():
            leases = self.pool.again(own)
            if leases is not None:
                return leases, found
        return None

    def _first(self, segment: PreparedSegment, blocks: tuple[Block, ...]) -> tuple[list[Lease], Recording]:
        """Buffers of a segment, and what is recorded for them, which is kept.

        Where it is free, a value has a buffer that it had in an earlier call. So parameters and their new values take turns in
        two sets of buffers from some call of a training step on.
        """
        known = [own for found in segment.groups.values() for own in found]
        leases = [
            next((lease for own in reversed(known) if (lease := self.pool.once_more(own[k]))), None) or self.pool.sized(size)
            for k, size in enumerate(segment.sizes)
        ]
        own = tuple([lease.block for lease in leases])
        every = (*blocks, *own, self._nothing().block)
        rows, made = array("q"), dict[Any, Any]()
        for launch, numbers in segment.steps:
            key = launch, tuple([every[k] for k in numbers])
            if key not in made:
                made[key] = self._bound(*key)
            rows.extend(made[key][1])
        found = Recording(rows, every, [*made.items()])
        kept = segment.groups.setdefault(blocks, {})
        kept[own] = found
        segment.groups.move_to_end(blocks)
        while sum(map(len, segment.groups.values())) > _RECORDINGS:
            first = next(iter(segment.groups))
            del segment.groups[first][next(iter(segment.groups[first]))]
            if not segment.groups[first]:
                del segment.groups[first]
        self._grouped.add(segment)
        return leases, found

    def _record(self, what: PreparedLaunch, blocks: tuple[Block, ...]) -> None:
        """Append a launch to the table of the open pass."""
        if self._pass is None or self._stamping:
            self._begin_pass()
        if self._dropped:
            for block, read in zip(blocks, what.reads, strict=False):
                if read and block.written in self._dropped:
                    raise self._interrupted()
        batch = self._batch
        for block in blocks:
            block.used = batch
        for k in what.writes:
            blocks[k].written = batch
        found = what.groups.get(blocks)
        if found is None:
            found = self._bound(what, blocks)
            while len(what.groups) >= _GROUPS:
                what.groups.pop(next(iter(what.groups)))  # ``_held`` has it until it is submitted
            what.groups[blocks] = found
            self._grouped.add(what)
        self._held.append((what, found[0]))  # whose addresses the table has
        self._table.rows.extend(found[1])
        self._recorded += 1
        if self._stamping:
            self._commands()
        if self._recorded >= BATCH:
            self.submit()

    def _bound(self, what: PreparedLaunch, blocks: tuple[Block, ...]) -> tuple[Any, tuple[int, int, int, int]]:
        """A new bind group of a launch, and the row of a table of launches.

        Args:
            what: The launch.
            blocks: The buffers of its arrays, and that of a table of faults, if it is not that of the device.
        """
        if what.table is not None:
            table = self._fault_table() if len(blocks) == len(what.reads) else blocks[-1].buffer
            what.entries[what.table].buffer = table._internal
        for k, number in enumerate(what.arrays):
            what.entries[k].buffer = blocks[number].buffer._internal
        made = self._native.lib.wgpuDeviceCreateBindGroup(self._device._internal, what.group)
        group = self._native.ffi.gc(made, self._release_group)
        return group, (what.address, self._table.address(made), *what.workgroups)

    def _forget_groups(self) -> None:
        for what in list(self._grouped):
            what.groups.clear()
        self._grouped.clear()

    def _nothing(self) -> Lease:
        """A buffer for arrays without elements: drivers refuse bindings of size 0."""
        if self._empty is None:
            self._empty = self.pool.lease(4)
        return self._empty

    # faults

    def _fault_table(self) -> Any:
        if self._faults is None:
            self._faults = self._buffer(TABLE_BYTES)
        return self._faults

    @_reported
    def clear_faults(self) -> None:
        """Record that the table of faults is empty."""
        with self.lock:
            self._commands().clear_buffer(self._fault_table())

    @_reported
    def new_table(self, before: Block | None) -> DeviceArray:
        """An empty table of faults.

        Args:
            before: The buffer of an earlier one, which is taken if it is free.
        """
        with self.lock:
            self._check()
            lease = (self.pool.once_more(before) if before is not None else None) or self.pool.lease(TABLE_BYTES)
            self._commands().clear_buffer(lease.block.buffer)
            lease.block.used = lease.block.written = self._batch
            return DeviceArray(self, lease, Aval((SITES + 1,), uint32))

    def faults(self, sites: int) -> np.ndarray[Any, Any]:
        """The device's own table of faults, after all that was recorded before."""
        return np.frombuffer(self.bytes_of(self._fault_table(), 4 * (sites + 1)), np.uint32)

    # commands

    def _commands(self) -> Any:
        """The open encoder, outside of a pass."""
        self._check()
        if self._pass is not None:
            batch = self._batch
            try:
                with deferred():
                    self._table.record(self._pass._internal)
                    self._pass.end()
                    self._pass = None
            except BaseException:
                if self._pass is not None:
                    self._leave(batch, False)
                raise
        if self._encoder is None:
            self._encoder = self._device.create_command_encoder()
        return self._encoder

    def _begin_pass(self) -> None:
        """Begin a pass; while launches are timed, one for the next launch alone."""
        stamps = self._stamping.get(threading.get_ident()) if self._stamping else None
        if stamps is not None and stamps.full:
            self._read_stamps(stamps)
        commands, batch = self._commands(), self._batch
        try:
            with deferred():
                self._pass = commands.begin_compute_pass(timestamp_writes=None if stamps is None else stamps.next_pass())
        except BaseException:
            if self._pass is None:  # an encoder whose pass is lost takes no commands
                self._leave(batch, False)
            raise

    @_reported
    def _read_stamps(self, stamps: Stamps) -> None:
        stamps.resolve(self._commands())
        self.submit()
        stamps.read()

    def timed(self, run: Callable[[], T]) -> tuple[T, list[tuple[int, int]]]:
        """Run a function, and wait for what it recorded.

        Returns:
            What it returns; and when each of its launches began and ended, in nanoseconds of the device's clock: none if the
            device has no clock, or the function waited for values.
        """
        thread = threading.get_ident()
        before = self._stamping.get(thread)

        def end() -> None:
            with self.lock:
                if before is None:
                    self._stamping.pop(thread, None)
                else:
                    self._stamping[thread] = before

        stamps = None
        try:
            with self.lock:
                if self._period:
                    stamps = self._unused.pop() if self._unused else Stamps(self._wgpu, self._device, self._period)
                    self._stamping[thread] = stamps
            made = run()
            if stamps is None or not stamps.waiting:
                self.wait()
            else:
                with self.lock:
                    self._read_stamps(stamps)
            end()
        except BaseException:  # of ``end``, too
            end()
            raise
        if stamps is None:
            return made, []
        found = [] if stamps.host else stamps.found
        if before is not None:
            before.found += found
            before.host |= stamps.host
        stamps.clear()
        self._unused.append(stamps)
        return made, found

    def _use(self, *leases: Lease) -> None:
        for lease in leases:
            lease.block.used = self._batch

    @_reported
    def submit(self) -> None:
        """Start what was recorded, without waiting for it."""
        with self.lock:
            if self._encoder is None:
                return
            submitted, batch, held = False, self._batch, self._held
            try:
                with deferred():  # as values that were recorded before, such as a model's parameters, would be lost
                    commands = self._commands().finish()
                    self._device.queue.submit([commands])
                    submitted = True
                    self._begin()
            except BaseException:
                self._leave(batch, submitted)
                raise
            del held

    def _leave(self, batch: int, submitted: bool) -> None:
        """After an exception, also within ``_begin``: begin a batch in place of this one, if that is the present one.

        What it would have written is never read if it was not submitted.
        """
        if not submitted:
            self._dropped.add(batch)
        if self._batch == batch:
            self._begin()

    def _begin(self) -> None:
        """Begin a new batch."""
        self._table.rows = array("q")  # first, as an interrupt may come between: no pass gets launches of another
        self._encoder = self._pass = None
        self._held, self._recorded, self._batch = [], 0, self._batch + 1

    def wait(self) -> None:
        """Wait until all work is done."""
        with self.lock:
            if self._empty is None:
                self._nothing()
        assert self._empty is not None
        self.bytes_of(self._empty.block.buffer, 4)

    def _check(self) -> None:
        if _process != self._process:
            raise ExecutionError(
                "a GPU is used by the process that opened it", f"a fork of process {self._process}",
                "start processes with the methods spawn or forkserver",
            )  # fmt: skip

    def _interrupted(self) -> ExecutionError:
        return ExecutionError(
            f"values on {self.adapter.name} were computed", "commands that an interrupt kept from being started",
            "compute the tensor again; tensors that were computed before are as they were",
        )  # fmt: skip

    def _translated(self, error: Exception) -> Exception:
        """An error of wgpu as one of the contract."""
        text = str(error)
        if isinstance(error, self._wgpu.GPUOutOfMemoryError):
            return MemoryError(text)
        if "device is lost" in text.lower():
            return DeviceLostError(
                f"{self.adapter.name} stays there while it is used", "the device is lost, with the values of its tensors",
                "start the program again, from its last checkpoint if it trains",
            )  # fmt: skip
        return ExecutionError("wgpu takes what this engine records", text, "report this as a bug of the engine")


def _values(data: bytearray, aval: Aval) -> np.ndarray[Any, Any]:
    """The array that has these first bytes."""
    found: np.ndarray[Any, Any] = np.frombuffer(data, np.uint8, aval.nbytes).view(aval.dtype.np).reshape(aval.shape)
    return found


def _marked(begin: int, end: int) -> tuple[int, int, int]:
    """The words of a window that are marked: its first, one in the middle, and its last."""
    return begin, (begin + end) // 2, end - 1


def _marks(windows: int, each: int) -> str:
    """The shader that marks words of each window of an array, of so many words but for the last."""
    array = BoundArray("a", "u32", windows, each)
    store = array.store("at", f"at ^ {MARK:#x}u")
    return "\n".join(
        [
            *array.declarations(0, "read_write"),
            f"@group(0) @binding({windows}) var<uniform> launch: array<vec4<u32>, 2>;",
            *array.functions(store),
            "@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {",
            f"    let begin = id.x / 3u * {each}u;",
            f"    let end = min(begin + {each}u, launch[1].x);",
            "    let at = select(select(end - 1u, (begin + end) / 2u, id.x % 3u == 1u), begin, id.x % 3u == 0u);",
            f"    {store}",
            "}",
            "",
        ]
    )


def _entry(binding: int, buffer: Any, size: int) -> dict[str, Any]:
    return {"binding": binding, "resource": {"buffer": buffer, "offset": 0, "size": size}}
