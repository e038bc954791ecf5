"""Adapters: the GPUs, and software in their place, that wgpu finds on this machine, in a fixed order.

One adapter may be offered through several APIs; only Vulkan, Metal and DirectX 12 count, since OpenGL's drivers lack limits
that kernels need. Hardware precedes software, and among hardware discrete GPUs precede integrated ones.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

APIS = {"Vulkan": "vulkan", "Metal": "metal", "D3D12": "dx12"}
"""wgpu's names of the APIs that are used → ours."""
_KINDS = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")
"""wgpu's kinds of adapters, the fastest first."""
DRIVERS = (
    "on Linux install the driver of the GPU, or mesa-vulkan-drivers, which has one for processors too; "
    "on macOS and Windows update the system"
)
"""What to do if there is no adapter."""


@dataclass(frozen=True)
class Adapter:
    """An adapter.

    Attributes:
        handle: wgpu's object.
        api: Of the values of ``APIS``.
        name: Of the device.
        driver: Name and version of the driver.
        kind: wgpu's kind of adapter.
    """

    handle: Any
    api: str
    name: str
    driver: str
    kind: str

    @property
    def features(self) -> frozenset[str]:
        """What it has besides the standard's least."""
        return frozenset(self.handle.features)

    @property
    def limits(self) -> dict[str, int]:
        """Its limits, by wgpu's names."""
        return dict(self.handle.limits)


def library() -> Any:
    """The module wgpu.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    return importlib.import_module("wgpu")


@cache
def adapters() -> tuple[Adapter, ...]:
    """All adapters.

    Raises:
        ModuleNotFoundError: wgpu is not installed.
        OSError: Its library cannot be loaded.
    """
    wgpu = library()
    with _quiet_drivers():
        handles = wgpu.gpu.enumerate_adapters_sync()
    found = []
    for handle in handles:
        info = dict(handle.info)
        api = APIS.get(str(info.get("backend_type")))
        if api is not None:
            kind = str(info.get("adapter_type"))
            found.append(Adapter(handle, api, str(info.get("device")), str(info.get("description")), kind))
    return tuple(sorted(found, key=lambda a: _KINDS.index(a.kind) if a.kind in _KINDS else len(_KINDS)))


@contextlib.contextmanager
def _quiet_drivers() -> Iterator[None]:
    """OpenGL's libraries write to the standard error that a display is missing, which does not matter here."""
    try:
        kept = os.dup(2)
    except OSError:  # a process without standard error
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
