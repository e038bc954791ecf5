"""``Readback``: a device's buffer that the host maps, to which what it reads is copied.

wgpu's ``read_buffer`` wakes the thread that polls before it begins to map a new buffer. Until the device is done, that thread
holds what the mapping waits for, and then polls again and again: some hundred times for each value that is read. Here the
mapping has begun when a thread is woken, which polls once, and the buffer is kept.
"""

from __future__ import annotations

import itertools
import threading
from queue import SimpleQueue
from typing import Any
from weakref import finalize

_LEAST, _KEPT = 1 << 16, 1 << 22
"""Minimum bytes of the buffer, and maximum bytes of one that is kept."""


class Readback:
    """What the host maps of a device. The lock of its ``Gpu`` is held where methods are called.

    Args:
        wgpu: wgpu's module.
        native: wgpu's module of C functions.
        device: wgpu's device.
    """

    def __init__(self, wgpu: Any, native: Any, device: Any) -> None:
        self._wgpu, self._device = wgpu, device
        self._lib, self._ffi = native.lib, native.ffi
        self._usage = wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.MAP_READ
        self._buffer: Any = None
        self._polls: SimpleQueue[tuple[Any, int] | None] | None = None

    def buffer(self, size: int) -> Any:
        """A buffer of at least so many bytes that commands can copy to. It is the caller's until ``mapped`` has read it, and
        another one is made if that never happens."""
        found, self._buffer = self._buffer, None
        if found is None or found.size < size:
            found = self._device.create_buffer(size=max(_LEAST, size), usage=self._usage)
        return found

    def mapped(self, buffer: Any, size: int) -> bytearray:
        """The first bytes of what ``buffer`` gave, after all that was submitted.

        Raises:
            GPUError: The device is lost, or the driver cannot map its memory.
        """
        native, lib, ffi = buffer._internal, self._lib, self._ffi
        number, mapping = next(_numbers), _Mapping()
        _mappings[number] = mapping
        info = ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode, info.callback = lib.WGPUCallbackMode_AllowProcessEvents, _callback(ffi, lib)
        info.userdata1 = ffi.cast("void *", number)
        lib.wgpuBufferMapAsync(native, lib.WGPUMapMode_Read, 0, size, info[0])
        if number in _mappings:
            self._poll(number)
        with mapping.ended:  # an interrupt ends this, too
            pass
        if mapping.error is not None:
            raise self._wgpu.GPUError(mapping.error)
        found = bytearray(ffi.buffer(lib.wgpuBufferGetConstMappedRange(native, 0, size), size))
        lib.wgpuBufferUnmap(native)
        if buffer.size <= _KEPT:
            self._buffer = buffer
        return found

    def _poll(self, number: int) -> None:
        """Let a thread wait for the device: this one would take no interrupt until it is done."""
        if self._polls is None:
            polls = self._polls = SimpleQueue()
            finalize(self, polls.put, None)
            threading.Thread(target=_polling, args=(polls, self._lib, self._ffi), daemon=True).start()
        self._polls.put((self._device, number))


class _Mapping:
    """A mapping that has begun.

    Attributes:
        ended: Held until the mapping has ended.
        error: Why it failed; None if it did not.
    """

    __slots__ = ("ended", "error")

    def __init__(self) -> None:
        self.ended = threading.Lock()
        self.error: str | None = None
        self.ended.acquire()


_numbers = itertools.count(1)
_mappings: dict[int, _Mapping] = {}
"""Those that have not ended, by the numbers that wgpu gives back; it may do so after whoever began one is gone."""
_callbacks: dict[Any, Any] = {}


def _callback(ffi: Any, lib: Any) -> Any:
    """The C function that wgpu calls at the end of a mapping."""
    if ffi not in _callbacks:

        @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
        def ended(status: int, message: Any, number: Any, _: Any) -> None:
            mapping = _mappings.pop(int(ffi.cast("intptr_t", number)))
            if status != lib.WGPUMapAsyncStatus_Success:
                text = ffi.string(message.data, message.length).decode(errors="replace") if message.data else ""
                mapping.error = text or f"a buffer could not be mapped: status {status}"
            mapping.ended.release()

        _callbacks[ffi] = ended
    return _callbacks[ffi]


def _polling(polls: SimpleQueue[tuple[Any, int] | None], lib: Any, ffi: Any) -> None:
    """Poll devices until the mappings of these numbers have ended."""
    while (wanted := polls.get()) is not None:
        device, number = wanted
        while number in _mappings:
            lib.wgpuDevicePoll(device._internal, True, ffi.NULL)
        del wanted, device
