"""In place of wgpu's C functions: those that the engine webgpu calls. A handle is the number of an object of Dawn."""

from __future__ import annotations

from typing import Any

import cffi

import wgpu

_DECLARATIONS = """
typedef struct WGPUDeviceImpl *WGPUDevice;
typedef struct WGPUBufferImpl *WGPUBuffer;
typedef struct WGPUBindGroupImpl *WGPUBindGroup;
typedef struct WGPUBindGroupLayoutImpl *WGPUBindGroupLayout;
typedef struct WGPUComputePipelineImpl *WGPUComputePipeline;
typedef struct WGPUComputePassEncoderImpl *WGPUComputePassEncoder;
typedef struct { uint32_t binding; WGPUBuffer buffer; uint64_t offset; uint64_t size; } WGPUBindGroupEntry;
typedef struct { WGPUBindGroupLayout layout; size_t entryCount; WGPUBindGroupEntry const *entries; } WGPUBindGroupDescriptor;
typedef int WGPUMapAsyncStatus;
typedef struct { char const *data; size_t length; } WGPUStringView;
typedef struct {
    int mode; void (*callback)(WGPUMapAsyncStatus, WGPUStringView, void *, void *); void *userdata1; void *userdata2;
} WGPUBufferMapCallbackInfo;
"""


class _Ffi(cffi.FFI):
    def addressof(self, what: Any, *names: Any) -> Any:
        return getattr(what, names[0]) if what is lib else super().addressof(what, *names)


ffi = _Ffi()
ffi.cdef(_DECLARATIONS)


def _number(handle: Any) -> int:
    return int(ffi.cast("intptr_t", handle))


class _Functions:
    """wgpu's functions by their names. Those of passes have addresses, since a compiled loop calls them too."""

    def __init__(self) -> None:
        passes = {
            "SetPipeline": ("WGPUComputePipeline", lambda pipeline: ("set_pipeline", _number(pipeline))),
            "SetBindGroup": (
                "uint32_t, WGPUBindGroup, size_t, uint32_t const *", lambda k, group, *_: ("set_group", k, _number(group)),
            ),
            "DispatchWorkgroups": ("uint32_t, uint32_t, uint32_t", lambda x, y, z: ("dispatch", x, y, z)),
        }  # fmt: skip
        for name, (parameters, of) in passes.items():

            def call(into: Any, *arguments: Any, of: Any = of) -> None:
                number = _number(into)
                name, *more = of(*arguments)
                wgpu.connection().command(wgpu.open_passes[number], name, number, *more)

            declaration = f"void(WGPUComputePassEncoder, {parameters})"
            setattr(self, f"wgpuComputePassEncoder{name}", ffi.callback(declaration, call))

        self._mapped: dict[int, Any] = {}

    WGPUCallbackMode_AllowProcessEvents, WGPUMapMode_Read, WGPUMapAsyncStatus_Success = 2, 1, 1

    def wgpuBufferMapAsync(self, buffer: Any, mode: int, offset: int, size: int, info: Any) -> None:
        number = _number(buffer)
        self._mapped[number] = wgpu.connection().request(wgpu.readable_buffers[number], "map", number, size)
        info.callback(self.WGPUMapAsyncStatus_Success, ffi.new("WGPUStringView *")[0], info.userdata1, info.userdata2)

    def wgpuBufferGetConstMappedRange(self, buffer: Any, offset: int, size: int) -> Any:
        return ffi.from_buffer(self._mapped[_number(buffer)])

    def wgpuBufferUnmap(self, buffer: Any) -> None:
        del self._mapped[_number(buffer)]

    def wgpuDeviceCreateBindGroup(self, device: Any, description: Any) -> Any:
        entries = [description.entries[k] for k in range(description.entryCount)]
        listed = [(e.binding, _number(e.buffer), e.offset, e.size) for e in entries]
        made = wgpu.connection().id()
        wgpu.connection().command(_number(device), "group", made, _number(description.layout), listed)
        return ffi.cast("WGPUBindGroup", made)

    def wgpuBindGroupRelease(self, group: Any) -> None:
        wgpu.connection().drop(_number(group))


lib = _Functions()
