"""``Gpu``: one adapter's device, its queue, and the commands that are recorded for it.

Launches are recorded into one open command encoder and submitted when a value is read, when a buffer that they use is written
by the host, or when ``BATCH`` of them are recorded. A device has one queue, so they are executed in the order of their
recording. All methods may be called from any thread; a lock guards the open encoder.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.backends.webgpu.adapters import Adapter, library
from firebrick.backends.webgpu.buffers import BufferPool, DeviceArray, Lease, padded
from firebrick.backends.webgpu.probes import measured
from firebrick.compiler.targets.wgsl.shader import Shader
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype, uint32
from firebrick.core.errors import DeviceLostError, ExecutionError, KernelCompileError

BATCH = 256
"""Maximum number of launches of one submission, so that no driver takes a submission for one that does not end."""
SITES = 1023
"""Maximum number of checks of one program."""
_WORDS = 4096
"""Launch arguments that are kept on the device."""
_LIMITS = (
    "max-storage-buffer-binding-size", "max-buffer-size", "max-storage-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x", "max-compute-workgroup-storage-size",
)  # fmt: skip
"""Limits that are raised to what the adapter has."""


class Pipeline:
    """A compiled shader and the layout of its bindings."""

    __slots__ = ("layout", "pipeline")

    def __init__(self, pipeline: Any, layout: Any) -> None:
        self.pipeline, self.layout = pipeline, layout


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
        self.adapter, self.index = adapter, index
        self._process = os.getpid()
        limits = adapter.limits
        self._device = adapter.handle.request_device_sync(
            label="firebrick", required_limits={name: limits[name] for name in _LIMITS}
        )
        self._usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        self.binding_bytes = limits["max-storage-buffer-binding-size"]
        self.pool = BufferPool(self._buffer, limits["max-buffer-size"])
        self.lock = threading.RLock()
        self._encoder: Any = None
        self._pass: Any = None
        self._batch = self._recorded = 0
        self._held: list[Any] = []  # what recorded commands use, until they are submitted
        self._pipelines: dict[tuple[str, tuple[bool, ...]], Pipeline] = {}
        self._words: OrderedDict[bytes, Any] = OrderedDict()
        self._faults: Any = None
        self._empty: Lease | None = None
        self.measured = measured(self._probe, limits, adapter.name)

    def _probe(self, source: str, inputs: Sequence[np.ndarray[Any, Any]], words: int) -> np.ndarray[Any, Any]:
        """Run a shader of ``probes``."""
        read = (True,) * len(inputs)
        pipeline = self._compiled(source, (*read, False), ())
        with self.lock:
            arrays = [self.uploaded(x, Aval(x.shape, dtype(x.dtype))) for x in inputs]
            made = self.array(Aval((words,), uint32))
            entries = [_entry(k, x.lease.block.buffer, x.aval.nbytes) for k, x in enumerate((*arrays, made)) if x.lease]
            group = self._device.create_bind_group(layout=pipeline.layout, entries=entries)
            into = self._compute_pass()
            into.set_pipeline(pipeline.pipeline)
            into.set_bind_group(0, group)
            into.dispatch_workgroups(-(-words // 64), 1, 1)
            return self.read(made)

    # memory

    def _buffer(self, size: int) -> Any:
        try:
            return self._device.create_buffer(size=size, usage=self._usage)
        except self._wgpu.GPUOutOfMemoryError as e:
            raise MemoryError(str(e)) from e

    def array(self, aval: Aval) -> DeviceArray:
        """A new array, whose elements are undefined."""
        with self.lock:
            self._check()
            return DeviceArray(self, self.pool.lease(padded(aval.nbytes)) if aval.size else None, aval)

    def uploaded(self, array: np.ndarray[Any, Any], aval: Aval) -> DeviceArray:
        """A copy of a host array."""
        with self.lock:
            made = self.array(aval)
            if made.lease is not None:
                data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                if data.size % 4:
                    data = np.concatenate([data, np.zeros(-data.size % 4, np.uint8)])
                if made.lease.block.used == self._batch:
                    self.submit()
                self._device.queue.write_buffer(made.lease.block.buffer, 0, data)
            return made

    def copied(self, x: DeviceArray) -> DeviceArray:
        """A copy of an array."""
        with self.lock:
            made = self.array(x.aval)
            if made.lease is not None and x.lease is not None:
                encoder = self._commands()
                encoder.copy_buffer_to_buffer(x.lease.block.buffer, 0, made.lease.block.buffer, 0, padded(x.aval.nbytes))
                self._use(x.lease, made.lease)
            return made

    def read(self, x: DeviceArray) -> np.ndarray[Any, Any]:
        """The values of an array, after all that was recorded before."""
        aval = x.aval
        if x.lease is None:
            return np.zeros(aval.shape, aval.dtype.np)
        data = self.bytes_of(x.lease.block.buffer, padded(aval.nbytes))
        found: np.ndarray[Any, Any] = np.frombuffer(data, np.uint8, aval.nbytes).view(aval.dtype.np).reshape(aval.shape)
        return found

    def bytes_of(self, buffer: Any, size: int) -> Any:
        """The first bytes of a buffer."""
        with self.lock:
            self.submit()
            try:
                return self._device.queue.read_buffer(buffer, 0, size)
            except (RuntimeError, self._wgpu.GPUError) as e:
                raise self._lost(e) from e

    # kernels

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
                found = self._pipelines[key] = self._compiled(shader.text, shader.access, more)
            return found

    def _compiled(self, text: str, read: Sequence[bool], more: Sequence[str]) -> Pipeline:
        """A pipeline.

        Args:
            text: WGSL.
            read: For each array, whether it is only read.
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
            raise KernelCompileError(
                f"{self.adapter.name} compiles generated kernels", str(e), "report this with the kernel", code=text
            ) from e
        return Pipeline(pipeline, layout)

    def launch(
        self, shader: Shader, arrays: Sequence[tuple[Lease | None, int]], scalars: Sequence[float], grid: Sequence[int],
        site: int = 0,
    ) -> None:  # fmt: skip
        """Record a launch of a kernel over a grid that is not empty.

        Args:
            shader: The kernel.
            arrays: For each array its buffer and its bytes.
            scalars: A number for each scalar.
            grid: Sizes of the grid.
            site: Number of its first site in the table of faults.
        """
        with self.lock:
            self._check()
            pipeline, leases = self.pipeline(shader), []
            entries: list[dict[str, Any]] = []
            for lease, nbytes in arrays:
                used = lease if lease is not None and nbytes else self._nothing()
                leases.append(used)
                entries.append(_entry(len(entries), used.block.buffer, padded(nbytes) or 4))
            words = self._arguments(shader.words(scalars, grid, site))
            entries.append(_entry(len(entries), words, words.size))
            if shader.checks:
                entries.append(_entry(len(entries), self._table(), 4 * (SITES + 1)))
            group = self._device.create_bind_group(layout=pipeline.layout, entries=entries)
            into = self._compute_pass()
            into.set_pipeline(pipeline.pipeline)
            into.set_bind_group(0, group)
            into.dispatch_workgroups(*shader.workgroups(grid), 1)
            self._held += (group, words)
            self._use(*leases)
            self._recorded += 1
            if self._recorded >= BATCH:
                self.submit()

    def _arguments(self, words: np.ndarray[Any, Any]) -> Any:
        """A buffer with these words; launches with equal arguments share one."""
        key = words.tobytes()
        found = self._words.get(key)
        if found is None:
            found = self._device.create_buffer_with_data(data=key, usage=self._wgpu.BufferUsage.UNIFORM)
            self._words[key] = found
            if len(self._words) > _WORDS:
                self._words.popitem(last=False)
        else:
            self._words.move_to_end(key)
        return found

    def _nothing(self) -> Lease:
        """A buffer for arrays without elements: drivers refuse bindings of size 0."""
        if self._empty is None:
            self._empty = self.pool.lease(4)
        return self._empty

    # faults

    def _table(self) -> Any:
        if self._faults is None:
            self._faults = self._buffer(4 * (SITES + 1))
        return self._faults

    def clear_faults(self) -> None:
        """Record that the table of faults is empty."""
        with self.lock:
            self._commands().clear_buffer(self._table())

    def faults(self, sites: int) -> np.ndarray[Any, Any]:
        """The table of faults, after all that was recorded before."""
        return np.frombuffer(self.bytes_of(self._table(), 4 * (sites + 1)), np.uint32)

    # commands

    def _commands(self) -> Any:
        """The open encoder, outside of a pass."""
        self._check()
        if self._pass is not None:
            self._pass.end()
            self._pass = None
        if self._encoder is None:
            self._encoder = self._device.create_command_encoder()
        return self._encoder

    def _compute_pass(self) -> Any:
        if self._pass is None:
            self._pass = self._commands().begin_compute_pass()
        return self._pass

    def _use(self, *leases: Lease) -> None:
        for lease in leases:
            lease.block.used = self._batch

    def submit(self) -> None:
        """Start what was recorded, without waiting for it."""
        with self.lock:
            if self._encoder is None:
                return
            encoder = self._commands()
            self._encoder, held, self._held = None, self._held, []
            self._recorded = 0
            self._batch += 1
            self._device.queue.submit([encoder.finish()])
            del held

    def wait(self) -> None:
        """Wait until all work is done."""
        with self.lock:
            if self._empty is None:
                self._nothing()
        assert self._empty is not None
        self.bytes_of(self._empty.block.buffer, 4)

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise ExecutionError(
                "a GPU is used by the process that opened it", f"a fork of process {self._process}",
                "start processes with the methods spawn or forkserver",
            )  # fmt: skip

    def _lost(self, error: Exception) -> Exception:
        return DeviceLostError(
            f"{self.adapter.name} finishes its work", str(error), "restart the program, from its last checkpoint if it trains"
        )


def _entry(binding: int, buffer: Any, size: int) -> dict[str, Any]:
    return {"binding": binding, "resource": {"buffer": buffer, "offset": 0, "size": size}}
