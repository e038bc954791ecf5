"""The registered engines, and how a device string is resolved to a ``Device``.

Firebrick's own engines are known by name and imported when a device of theirs is first asked for; other packages add
theirs through the entry-point group ``firebrick.backends``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from importlib import import_module
from threading import RLock
from typing import Any

from firebrick.backends.contract import Backend
from firebrick.core.config import config
from firebrick.core.constants import forget_constants
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import DeviceError
from firebrick.core.hooks import hooks
from firebrick.core.locks import forkable
from firebrick.core.scopes import scope
from firebrick.ops import OPS

_OWN = {
    "cpu": "firebrick.backends.cpu:CpuBackend",
    "numpy": "firebrick.backends.numpy:NumpyBackend",
    "torch": "firebrick.backends.torch:TorchBackend",
    "webgpu": "firebrick.backends.webgpu:WebGpuBackend",
    "meta": "firebrick.backends.meta:MetaBackend",
}
_ALIASES = {"vulkan": "webgpu", "metal": "webgpu", "dx12": "webgpu"}
"""Other first parts of device strings, which name devices of these engines."""
_FASTEST_FIRST = ("torch:cuda:0", "torch:xpu:0", "torch:mps:0", "cpu:0")

_lock = forkable(RLock())
_backends: dict[str, Backend] = {}
_external: dict[str, Any] | None = None
_found: dict[str, Device] = {}
_scope: ContextVar[Device | None] = ContextVar("firebrick_device", default=None)


def _discovered() -> dict[str, Any]:
    """Engines that other packages register."""
    global _external
    if _external is None:
        from importlib.metadata import entry_points  # slow to import, and most programs name only our own engines

        _external = {e.name: e for e in entry_points(group="firebrick.backends") if e.name not in _OWN}
    return _external


def engines() -> list[str]:
    """Names of all engines, usable or not."""
    return [
        *_OWN,
        *(n for n in _backends if n not in _OWN),
        *(n for n in _discovered() if n not in _backends),
    ]


def backend(engine: str) -> Backend:
    """The engine of a name.

    Raises:
        DeviceError: There is no such engine; the message lists those there are.
    """
    made: Backend | None = _backends.get(engine)
    if made is not None:
        return made
    with _lock:
        if engine in _backends:
            return _backends[engine]
        if engine in _OWN:
            module, _, name = _OWN[engine].partition(":")
            made = getattr(import_module(module), name)()
        elif engine in _discovered():
            made = _discovered()[engine].load()()
        else:
            raise DeviceError(
                f"a device string begins with an engine: {', '.join(engines())}",
                repr(engine),
                "fb.devices() lists the devices that are usable here; PyTorch's GPUs are torch:cuda:0 and torch:mps",
            )
        _backends[engine] = made
        return made


def register_backend(made: Backend) -> None:
    """Make an engine known in this process (tests and notebooks; packages use the entry-point group). Devices of an engine
    of the same name are served by this one from now on."""
    with _lock:
        _backends[made.engine] = made
        for device in _found.values():
            if device.engine == made.engine:
                device.backend = made
        _forget_kernels(made.engine)


def unregister_backend(engine: str) -> None:
    """Forget an engine that ``register_backend`` made known, and its devices."""
    with _lock:
        _backends.pop(engine, None)
        for name in [n for n, d in _found.items() if d.engine == engine]:
            del _found[name]
        _forget_kernels(engine)


def _forget_kernels(engine: str) -> None:
    """Empty the fast paths of an engine's devices and the constants kept there: another engine serves them now."""
    forget_constants()
    for op in OPS.values():
        for key in [k for k in op.fast if k[0].engine == engine]:
            del op.fast[key]
        op.plans.clear()


def default_device() -> Device:
    """The device of new tensors: the innermost ``use_device`` scope, else the setting ``device``.

    Raises:
        DeviceError: The setting names a device that cannot be used here.

    Example:
        >>> import firebrick as fb
        >>> fb.default_device()
        Device('cpu:0')
    """
    scoped = _scope.get()
    if scoped is not None:
        return scoped
    try:
        return find_device(config.device)
    except DeviceError as e:
        if not config.source("device").startswith("environment"):
            raise
        raise DeviceError(f"FIREBRICK_DEVICE: {e.expected}", f"FIREBRICK_DEVICE={config.device!r}", e.remedy) from None


def set_default_device(device: Any) -> None:
    """Make ``device`` (string or Device) the process's default.

    Args:
        device: Device, or device string as for ``fb.device``; "auto" is the fastest one here.

    Raises:
        DeviceError: There is no such device, or it cannot be used here.

    Example:
        >>> import firebrick as fb
        >>> fb.set_default_device("cpu")
    """
    config.device = find_device(device).name


@scope
def use_device(device: Any) -> Iterator[Device]:
    """Make ``device`` the default inside a ``with`` block (of this thread or task).

    Args:
        device: Device, or device string as for ``fb.device``.

    Yields:
        The device.

    Raises:
        DeviceError: There is no such device, or it cannot be used here.

    Example:
        >>> import firebrick as fb
        >>> with fb.use_device("numpy"):
        ...     fb.zeros(2).device
        Device('numpy:0')
    """
    found = find_device(device)
    token = _scope.set(found)
    try:
        yield found
    finally:
        _scope.reset(token)


def find_device(spec: Any = None) -> Device:
    """The device of a string such as ``"cpu"``, ``"numpy:1"`` or ``"torch:cuda:0"``; None for the default.

    Args:
        spec: ``engine[:platform][:index]``, index 0 by default; "auto" for the fastest device here; or a ``Device``, which is
            returned.

    Raises:
        DeviceError: Unknown engine or platform, an engine that cannot be used here (and why), or an index that does not
            exist.

    Example:
        >>> import firebrick as fb
        >>> fb.device("cpu:1").index
        1
    """
    if spec is None:
        return default_device()
    if isinstance(spec, Device):
        return spec
    device = _found.get(spec) if isinstance(spec, str) else None
    if device is None:
        device = _resolve(spec)
        _found[spec] = device
    if device.index >= config.logical_devices:
        _check_index(backend(device.engine), device.platform, device.index)
    return device


def _resolve(spec: Any) -> Device:
    if not isinstance(spec, str) or not spec:
        remedy = "change a dtype with astype" if isinstance(spec, DType) else "pass one"
        raise DeviceError("a device is a string such as 'cpu', 'numpy:1' or 'torch:cuda:0'", repr(spec), remedy)
    if spec == "auto":
        return _fastest()
    if "," in spec:
        raise DeviceError("a device string names one device", repr(spec), "pass a list of strings; the command takes --devices")
    parts = spec.split(":")
    found = backend(_ALIASES.get(parts[0], parts[0]))
    rest = parts[1:]
    if rest and rest[0] in found.platforms:
        platform, rest = rest[0], rest[1:]
    elif found.engine in found.platforms or not rest:
        platform = found.platforms[0]
    else:
        raise DeviceError(
            f"{found.engine} has the platforms {', '.join(found.platforms)}",
            repr(spec),
            f"write {found.engine}:cpu",
        )
    if len(rest) > 1 or (rest and not (rest[0].isascii() and rest[0].isdigit())):
        raise DeviceError("a device string is engine[:platform][:index]", repr(spec), f"write {parts[0]}:0")
    reason = found.unavailable(platform)
    if reason:
        raise DeviceError(f"{found.engine}:{platform} cannot be used here", reason, "fb.devices() lists what can be used")
    index = int(rest[0]) if rest else 0
    if parts[0] in _ALIASES:
        numbers = found.aliased(parts[0])
        if index >= len(numbers):
            raise DeviceError(
                f"{found.engine} has {len(numbers)} device(s) by the name of {parts[0]}", repr(spec),
                f"fb.devices() lists those of {found.engine}",
            )  # fmt: skip
        return find_device(f"{found.engine}:{numbers[index]}")
    _check_index(found, platform, index)
    device = Device(found.engine, platform, index)
    device.backend = found
    return device


def _check_index(found: Backend, platform: str, index: int) -> None:
    count = found.device_count(platform)
    if index >= count:
        name = platform if found.engine == platform else f"{found.engine}:{platform}"
        raise DeviceError(
            f"{name} has {count} device(s), {name}:0 to {name}:{count - 1}",
            f"index {index}",
            "use one of these (host engines: raise fb.config.logical_devices)",
        )


def _fastest() -> Device:
    for name in _FASTEST_FIRST:
        try:
            return find_device(name)
        except DeviceError:
            continue
    raise DeviceError("no engine can be used", "", "reinstall Firebrick")


def devices() -> list[Device]:
    """Every device that is present, engine by engine.

    Returns:
        Usable devices only; the number of a host engine's devices is ``fb.config.logical_devices``.

    Example:
        >>> import firebrick as fb
        >>> fb.device("cpu:0") in fb.devices()
        True
    """
    out = []
    for engine in engines():
        found = backend(engine)
        for platform in found.platforms:
            if found.unavailable(platform) is None:
                base = engine if platform == engine else f"{engine}:{platform}"
                out += [find_device(f"{base}:{i}") for i in range(found.device_count(platform))]
    return out


def unavailable() -> dict[str, str]:
    """Engines and platforms that cannot be used here, each with the reason and what to do.

    Returns:
        Reasons by ``engine`` or ``engine:platform``, such as ``torch:cuda``; empty where all can be used.

    Example:
        >>> import firebrick as fb
        >>> "cpu" in fb.unavailable()
        False
    """
    out = {}
    for engine in engines():
        found = backend(engine)
        for platform in found.platforms:
            reason = found.unavailable(platform)
            if reason:
                out[engine if platform == engine else f"{engine}:{platform}"] = reason
    return out


hooks.find_device = find_device
