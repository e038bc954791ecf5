"""Adapters: the GPUs, and software in their place, that wgpu finds on this machine, in a fixed order.

One adapter may be offered through several APIs; only Vulkan, Metal and DirectX 12 count, since OpenGL's drivers lack limits
that kernels need. Hardware precedes software, and among hardware discrete GPUs precede integrated ones.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

APIS = {"Vulkan": "vulkan", "Metal": "metal", "D3D12": "dx12"}
"""wgpu's names of the APIs that are used → ours."""
PROCESSOR = "CPU"
"""wgpu's kind of adapters that compute on the processor."""
_KINDS = ("DiscreteGPU", "IntegratedGPU", "Unknown", PROCESSOR)
"""wgpu's kinds of adapters, the fastest first."""
_PLAIN = re.compile(r"\s*([A-Za-z_]\w*)\s*(\*|\[\s*\])?\s*")
"""A name of a type, a pointer to it, or an array of it."""
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
    found = importlib.import_module("wgpu")
    _look_types_up()
    return found


@cache
def _look_types_up() -> None:
    """Let cffi look plain types of wgpu's header up.

    For each new type that is named, such as ``WGPULimits *``, cffi parses the names of all types of the header, which takes 20
    ms; opening a device names forty. What cffi declares under a name is what it finds by parsing. If a version of it keeps
    declarations in another way, it parses as before.
    """
    native = importlib.import_module("wgpu.backends.wgpu_native")
    parser = getattr(getattr(native, "ffi", None), "_parser", None)
    if parser is not None and all(hasattr(parser, name) for name in ("_declarations", "_get_type_pointer", "parse_type")):
        parser.parse_type = partial(looked_up, parser, parser.parse_type)


def looked_up(parser: Any, parse: Callable[[str], Any], text: str) -> Any:
    """The type that a C declaration names.

    Args:
        parser: cffi's parser.
        parse: Its function that parses a declaration.
        text: The declaration, such as ``WGPULimits *`` or ``WGPUAdapter[]``.
    """
    plain = _PLAIN.fullmatch(text)
    found = parser._declarations.get(f"typedef {plain[1]}") if plain else None
    if plain is None or found is None:
        return parse(text)
    kind, qualifiers = found
    if plain[2] == "*":
        return parser._get_type_pointer(kind, qualifiers)
    if plain[2]:
        return importlib.import_module("cffi.model").ArrayType(kind, None)
    return kind


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
