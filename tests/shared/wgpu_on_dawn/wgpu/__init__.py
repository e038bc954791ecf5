"""In place of wgpu: what the engine webgpu and its tests use of it, done by Dawn in a process of node (``server.mjs``).

Commands are sent in groups, at the latest when some are submitted. Buffers, shaders, pipelines and reads are waited for; the
errors of other commands are raised by the next of these. Names of limits and features are wgpu's; a shader with subgroup
operations gets the directive that wgpu does not know and tint needs.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from dawn import BACKEND, package

_FEATURES = {"shader-f16": "shader-f16", "subgroups": "subgroup"}
"""Dawn's names of features → wgpu's. Others are not offered."""
_MOST_COMMANDS, _MOST_BYTES = 4096, 1 << 25
"""Of a message that nothing waits for."""


class GPUError(Exception):
    """Any error."""


class GPUValidationError(GPUError):
    """A command is wrong."""


class GPUOutOfMemoryError(GPUError):
    """There is no memory."""


class GPUInternalError(GPUError):
    """The driver has failed, or the device is lost."""


_ERRORS = {"validation": GPUValidationError, "out-of-memory": GPUOutOfMemoryError}


class BufferUsage:
    """Flags."""

    MAP_READ, MAP_WRITE, COPY_SRC, COPY_DST, INDEX, VERTEX, UNIFORM, STORAGE, INDIRECT, QUERY_RESOLVE = (
        1 << k for k in range(10)
    )


class ShaderStage:
    """Flags."""

    VERTEX, FRAGMENT, COMPUTE = 1, 2, 4


class _Connection:
    """The process of node."""

    def __init__(self) -> None:
        server = Path(__file__).parents[1] / "server.mjs"
        command = ["node", "--expose-gc", str(server), str(package()), os.environ.get(BACKEND, "vulkan")]
        environment = {"XDG_RUNTIME_DIR": "/tmp", **os.environ}  # which the driver looks for, though it shows nothing
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._lock, self._ids, self._owner = threading.RLock(), count(1), os.getpid()
        self._device = 0
        self._commands: list[Sequence[Any]] = []
        self._data: list[bytes] = []
        self._bytes = 0
        self._dropped: deque[int] = deque()
        self._lost: dict[int, str] = {}
        atexit.register(self._end)

    def _end(self) -> None:
        if os.getpid() == self._owner:
            self._process.kill()
            self._process.communicate()

    def id(self) -> int:
        return next(self._ids)

    def drop(self, id: int) -> None:
        """Forget an object: may be called anywhere."""
        self._dropped.append(id)

    def command(self, device: int, *command: Any, data: Any = None) -> None:
        """Record a command that nothing waits for."""
        with self._lock:
            if device in self._lost:
                raise GPUInternalError(self._lost[device])
            if self._commands and (
                device != self._device or len(self._commands) >= _MOST_COMMANDS or self._bytes >= _MOST_BYTES
            ):
                self.send()
            self._device = device
            if data is not None:
                data = bytes(data)
                command = (*command, (self._bytes, len(data)))
                self._data.append(data)
                self._bytes += len(data)
            self._commands.append(command)

    def send(self, *request: Any) -> None:
        """Send what was recorded, and a request if there is one."""
        with self._lock:
            if os.getpid() != self._owner:
                return
            commands, data, self._commands, self._data, self._bytes = self._commands, self._data, [], [], 0
            while self._dropped:
                commands.append(("drop", self._dropped.popleft()))
            if request:
                commands.append(request)
            if not commands:
                return
            text, content = json.dumps([self._device, commands]).encode(), b"".join(data)
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(struct.pack("<II", len(text), len(content)) + text)
                self._process.stdin.write(content)
                self._process.stdin.flush()
            except OSError as e:
                raise GPUInternalError("the device is lost: the process of Dawn has ended") from e

    def request(self, device: int, *request: Any) -> Any:
        """What Dawn answers.

        Raises:
            GPUError: This request, or a command before it, is wrong.
        """
        with self._lock:
            if self._commands and device != self._device:
                self.send()
            self._device = device
            self.send(*request)
            interrupt = None
            content = bytearray()
            sizes: tuple[int, int] | None = None
            assert self._process.stdout is not None
            from_node = self._process.stdout.fileno()
            while sizes is None or len(content) < 8 + sum(sizes):  # an interrupt must not leave the rest to the next
                missing = (8 if sizes is None else 8 + sum(sizes)) - len(content)
                try:
                    more = os.read(from_node, min(missing, 1 << 20))
                except KeyboardInterrupt as e:
                    interrupt = e
                    continue
                if not more:
                    raise GPUInternalError("the device is lost: the process of Dawn has ended")
                content += more
                if sizes is None and len(content) == 8:
                    sizes = struct.unpack("<II", content)
            if interrupt is not None:
                raise interrupt
            text, size = sizes
            errors, value = json.loads(content[8 : 8 + text])
            if errors:
                kind = next((k for k, _ in errors if k == "lost"), errors[0][0])
                message = "\n".join(dict.fromkeys(m for _, m in errors))
                if kind == "lost":
                    self._lost[device] = message
                raise _ERRORS.get(kind, GPUInternalError)(message)
            return memoryview(content)[8 + text :] if size else value


class _Object:
    """An object of Dawn, which is forgotten with this one."""

    _KIND = "void *"

    def __init__(self, device: _Device | None) -> None:
        self._id, self._of = connection().id(), device

    @property
    def _internal(self) -> Any:
        from .backends.wgpu_native import ffi

        return ffi.cast(self._KIND, self._id)

    def __del__(self) -> None:
        if _CONNECTION and hasattr(self, "_id"):
            _CONNECTION[0].drop(self._id)

    def _do(self, name: str, *arguments: Any, data: Any = None) -> None:
        connection().command((self._of or self)._id, name, *arguments, data=data)

    def _ask(self, name: str, *arguments: Any) -> Any:
        return connection().request((self._of or self)._id, name, *arguments)


_CONNECTION: list[_Connection] = []
open_passes: dict[int, int] = {}
"""Numbers of passes → those of their devices."""
readable_buffers: dict[int, int] = {}
"""Numbers of buffers that the host maps → those of their devices."""


def connection() -> _Connection:
    """The process of node, which starts with the first call."""
    if not _CONNECTION:
        _CONNECTION.append(_Connection())
    return _CONNECTION[0]


def _dashed(name: str) -> str:
    """wgpu's name of a limit, such as max-texture-dimension-2d."""
    return re.sub(r"([a-z])([A-Z0-9])", r"\1-\2", name).lower()


class _Adapter(_Object):
    def __init__(self, found: Mapping[str, Any], id: int) -> None:
        super().__init__(None)
        self._adapter = id
        self.info = {
            **found["info"],
            "adapter_type": "CPU" if found["processor"] else "Unknown",
            "backend_type": "Vulkan",
            "implementation": __version__,
        }
        self._names = {_dashed(name): name for name in found["limits"]}
        self.limits = {_dashed(name): value for name, value in found["limits"].items()}
        self.features = {_FEATURES[name] for name in found["features"] if name in _FEATURES}

    def request_device_sync(
        self, *, label: str = "", required_features: Sequence[str] = (), required_limits: Mapping[str, int] | None = None
    ) -> _Device:
        device = _Device(None)
        dawn = {wgpu: name for name, wgpu in _FEATURES.items()}
        limits = {self._names[name]: value for name, value in (required_limits or {}).items()}
        features = [dawn[name] for name in required_features]
        found = connection().request(0, "device", device._id, self._adapter, features, limits)
        device.limits = {_dashed(name): value for name, value in found.items()}
        device.features, device.adapter = set(required_features), self
        return device


class _Pipeline(_Object):
    _KIND = "WGPUComputePipeline"


class _Layout(_Object):
    _KIND = "WGPUBindGroupLayout"


class _Device(_Object):
    _KIND = "WGPUDevice"

    def __init__(self, device: None) -> None:
        super().__init__(device)
        self.queue = _Queue(self._id)

    def create_buffer(self, *, size: int, usage: int, label: str = "") -> _Buffer:
        made = _Buffer(self, size, usage)
        self._ask("buffer_now", made._id, size, usage)
        return made

    def create_buffer_with_data(self, *, data: Any, usage: int, label: str = "") -> _Buffer:
        data = memoryview(data).cast("B") if len(data) else b""
        made = _Buffer(self, len(data), usage)
        whole = -len(data) % 4
        self._do("buffer", made._id, len(data) + whole, usage | BufferUsage.COPY_DST)
        self._do("write", made._id, 0, data=bytes(data) + bytes(whole))
        return made

    def create_shader_module(self, *, code: str, label: str = "") -> _Object:
        made = _Object(self)
        if re.search(r"\bsubgroup_size\b|\bsubgroup[A-Z]", code):
            code = "enable subgroups;\n" + code
        errors = self._ask("module", made._id, code)
        if errors:
            raise GPUValidationError("\n".join(errors))
        return made

    def create_bind_group_layout(self, *, entries: Sequence[Any], label: str = "") -> _Layout:
        made = _Layout(self)
        self._do("layout", made._id, entries)
        return made

    def create_pipeline_layout(self, *, bind_group_layouts: Sequence[_Object], label: str = "") -> _Object:
        made = _Object(self)
        self._do("layouts", made._id, [x._id for x in bind_group_layouts])
        return made

    def create_compute_pipeline(self, *, layout: _Object, compute: Mapping[str, Any], label: str = "") -> _Pipeline:
        made = _Pipeline(self)
        self._ask("pipeline", made._id, layout._id, compute["module"]._id, compute["entry_point"])
        return made

    def create_bind_group(self, *, layout: _Object, entries: Sequence[Any], label: str = "") -> _Object:
        made = _Object(self)
        listed = [(e["binding"], e["resource"]["buffer"]._id, e["resource"]["offset"], e["resource"]["size"]) for e in entries]
        self._do("group", made._id, layout._id, listed)
        return made

    def create_command_encoder(self, *, label: str = "") -> _Encoder:
        made = _Encoder(self)
        self._do("encoder", made._id)
        return made

    def destroy(self) -> None:
        self._do("destroy")


class _Buffer(_Object):
    _KIND = "WGPUBuffer"

    def __init__(self, device: _Device, size: int, usage: int) -> None:
        super().__init__(device)
        self.size, self.usage = size, usage
        if usage & BufferUsage.MAP_READ:
            readable_buffers[self._id] = device._id

    def __del__(self) -> None:
        readable_buffers.pop(getattr(self, "_id", 0), None)
        super().__del__()


class _Encoder(_Object):
    def begin_compute_pass(self, *, timestamp_writes: None = None) -> _Pass:
        made = _Pass(self._of)
        self._do("pass", made._id, self._id)
        return made

    def copy_buffer_to_buffer(self, source: _Buffer, begin: int, goal: _Buffer, offset: int, size: int) -> None:
        self._do("copy", self._id, source._id, begin, goal._id, offset, size)

    def clear_buffer(self, buffer: _Buffer, offset: int = 0, size: int | None = None) -> None:
        self._do("clear", self._id, buffer._id, offset, buffer.size - offset if size is None else size)

    def finish(self, *, label: str = "") -> _Object:
        made = _Object(self._of)
        self._do("finish", made._id, self._id)
        return made


class _Pass(_Object):
    _KIND = "WGPUComputePassEncoder"

    def __init__(self, device: _Device | None) -> None:
        super().__init__(device)
        assert device is not None
        open_passes[self._id] = device._id

    def set_pipeline(self, pipeline: _Object) -> None:
        self._do("set_pipeline", self._id, pipeline._id)

    def set_bind_group(self, number: int, group: _Object) -> None:
        self._do("set_group", self._id, number, group._id)

    def dispatch_workgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        self._do("dispatch", self._id, x, y, z)

    def end(self) -> None:
        self._do("end", self._id)
        del open_passes[self._id]


class _Queue:
    def __init__(self, device: int) -> None:
        self._device = device

    def submit(self, commands: Sequence[_Object]) -> None:
        connection().command(self._device, "submit", [x._id for x in commands])
        connection().send()

    def write_buffer(self, buffer: _Buffer, offset: int, data: Any) -> None:
        connection().command(self._device, "write", buffer._id, offset, data=memoryview(data).cast("B"))

    def read_buffer(self, buffer: _Buffer, offset: int = 0, size: int | None = None) -> Any:
        return connection().request(self._device, "read", buffer._id, offset, buffer.size - offset if size is None else size)


class _Gpu:
    @staticmethod
    def enumerate_adapters_sync() -> list[_Adapter]:
        id = connection().id()
        found = connection().request(0, "adapters", id)
        return [_Adapter(found, id)] if found else []


gpu = _Gpu()
__version__ = "npm webgpu " + json.loads((package() / "package.json").read_text())["version"]
